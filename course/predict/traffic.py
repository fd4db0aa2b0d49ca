"""Communication of one step by axis: how long it takes in all, what of it is exposed, and over which link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from course.overlap import exposed_every_reduction, exposed_gather, exposed_reduction
from course.place import group_bandwidth, point_to_point_time, ring_all_gather_time, ring_all_reduce_time
from course.predict import groups
from course.predict.constants import Constants
from course.predict.experts import routed_parameters
from course.predict.stages import Stages, stage_parameters
from course.problem import Run
from course.shard import pipeline_send_bytes, tensor_units

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Link:
    """The link a group's ring runs over: rate and latency of a message, and whether it `crosses` nodes.

    `on_node` is the fewest ranks a group has on a node it touches, all of them where none crosses.
    """

    bytes_per_s: np.ndarray
    latency_s: np.ndarray
    crosses: np.ndarray
    on_node: np.ndarray


@dataclass(frozen=True)
class Traffic:
    """Seconds of one step on the slowest stage: `total` of the axis and the part that extends the step."""

    total: np.ndarray
    exposed: np.ndarray
    link: Link


def links(run: Run, columns: Columns, constants: Constants, order: tuple[str, ...]) -> dict[str, Link]:
    """The link of each axis, from its place in `order` (innermost first).

    `data` is the group that reduces gradients: replicas, and the context ranks of each. Two more entries cut it:
    `shard`, neighbouring ranks that share one copy of the state, and `replica`, the ranks that hold the same shard.
    Without hybrid sharding they are the whole group and nothing. A model with experts has their groups as well.
    """
    stride = {}
    inner = np.ones_like(columns["tensor"])
    for axis in order:
        stride[axis] = inner
        inner = inner * columns[axis]
    # a send to one neighbour is one message of one device, and uses one network card however many share its node
    sends = {"pipeline", "context"} if run.software.overlap_context else {"pipeline"}
    found = {axis: _link(run, constants, stride[axis], columns[axis], axis in sends) for axis in order}
    cuts = groups.data_and_context(columns, order, stride)
    if run.model.experts:
        cuts |= groups.experts(columns, order)
    return found | {name: _group_link(run, constants, cut) for name, cut in cuts.items()}


def _group_link(run: Run, constants: Constants, group: groups.Pattern) -> Link:
    plain = _link(run, constants, group.stride, group.size)
    apart = group.outer_size > 1
    if not apart.any():
        return plain
    found = np.where(apart, groups.fewest(run.cluster.fabric.node_size, run.cluster.devices, group), plain.on_node)
    return _link_of(run, constants, found, group.ranks, False)


def _link(run: Run, constants: Constants, stride: np.ndarray, size: np.ndarray, one_card: bool = False) -> Link:
    """The link of groups of `size` ranks that lie `stride` apart: the group worst placed sets the pace of all."""
    fabric, devices = run.cluster.fabric, run.cluster.devices
    kinds, place = np.unique(stride * (devices + 1.0) + size, return_inverse=True)
    table = [_fewest_on_a_node(fabric.node_size, devices, *divmod(int(kind), devices + 1)) for kind in kinds]
    return _link_of(run, constants, np.array(table, float)[place.reshape(stride.shape)], size, one_card)


def _link_of(run: Run, constants: Constants, fewest: np.ndarray, size: np.ndarray, one_card: bool) -> Link:
    fabric, crosses = run.cluster.fabric, fewest < size
    across = group_bandwidth(
        scale_up_bytes_per_s=constants.scale_up_bytes_per_s, scale_out_bytes_per_s=constants.scale_out_bytes_per_s,
        ranks_per_node=np.ones_like(size) if one_card else fewest,
    )  # fmt: skip
    rate = np.where(crosses, across, constants.scale_up_bytes_per_s)
    return Link(rate, np.where(crosses, fabric.scale_out_latency_s, fabric.scale_up_latency_s), crosses, fewest)


@lru_cache(maxsize=4096)
def _fewest_on_a_node(node: int, devices: int, stride: int, size: int) -> int:
    """The fewest ranks that a group has on a node it touches, over all groups; `size` where none crosses a node.

    Groups are blocks of stride x size devices, one group from each of a block's first `stride` devices; where blocks do
    not tile the nodes some group lies across a boundary, and its thin end uses few network cards.
    """
    block = stride * size
    blocks = max(1, min(devices // block, node // math.gcd(block, node)))  # then the pattern begins again
    first = (block * np.arange(blocks)[:, None] + np.arange(min(stride, devices))).ravel()
    last = first + stride * (size - 1)
    spans = last // node - first // node
    if not spans.any():
        return size
    ends = np.minimum(-(-(node - first % node) // stride), last % node // stride + 1)
    middle = np.where(spans > 1, max(1, node // stride), size)
    return int(np.minimum(ends, middle)[spans > 0].min())


def tensor_layer_time(run: Run, columns: Columns, link: Link) -> tuple[np.ndarray, np.ndarray]:
    """Tensor-parallel collectives of one layer and micro-batch, (forward, backward), in seconds."""
    tokens = columns["micro_batch"] * run.training.sequence_length / columns["context"]
    unit = ring_all_gather_time(
        ranks=columns["tensor"], payload_bytes=2.0 * run.model.hidden * tokens, latency=link.latency_s,
        bandwidth=link.bytes_per_s,
    )  # fmt: skip
    again = float(run.software.tensor_regather) * columns["sequence_parallel"]
    forward, backward = tensor_units(columns["full_recompute"], again)
    return forward * unit, backward * unit


def data_traffic(
    run: Run, columns: Columns, stages: Stages, forward_s: np.ndarray, backward_s: np.ndarray, link: dict[str, Link]
) -> Traffic:
    """Gradient reduction and weight gathers, layer by layer, of the stage with most parameters.

    Its layers send buckets of equal size, which carry its vocabulary tables as well.

    `forward_s` and `backward_s` are what one layer takes and can cover traffic with. Under the interleaved schedule the
    last backward of one chunk is followed by those of the pipeline's other micro-batches, which cover it too.
    """
    software = run.software
    ranks = columns["data"] * columns["context"]
    most = np.maximum(stages.layers.max(axis=1), 1.0)
    bucket = stage_parameters(run, columns, stages).max(axis=1) / most / columns["tensor"]
    reduce_all, scatter, gather = _bucket_messages(run, columns, link, bucket)
    if run.model.experts:  # the experts of a layer follow its other parameters, over the ranks that hold the same ones
        own = routed_parameters(run.model, stages).max(axis=1) / most / columns["expert"] / columns["expert_tensor"]
        also = _bucket_messages(run, columns, link, own, "expert_")
        reduce_all, scatter, gather = reduce_all + also[0], scatter + also[1], gather + also[2]
        ranks = np.maximum(ranks, columns["expert_data"])
    sharded, whole = columns["shard_optimizer"], 1 - columns["shard_optimizer"]
    weights = columns["shard_weights"]
    every = columns["shard_gradients"] * (columns["micro_batches"] - 1) + 1  # ZeRO-2 and 3 reduce every micro-batch
    again = weights * float(software.regather_in_backward)  # and ZeRO-3 gathers again for backward
    gathers = np.where(weights > 0, columns["micro_batches"] * (1 + again), sharded)
    total = most * (whole * reduce_all + sharded * (every * scatter + gathers * gather))

    kept = (columns["interleave"] > 1) & (columns["shard_gradients"] == 0)
    cover = np.where(kept, np.minimum(columns["pipeline"], columns["micro_batches"]), 1.0)
    reduced = whole * reduce_all + sharded * scatter
    once = exposed_every_reduction(
        buckets=most, forward_per_layer=forward_s, backward_per_layer=backward_s * cover,
        communication_per_layer=reduced, reductions=every,
    )  # fmt: skip
    with_gather = every * exposed_reduction(
        buckets=most, compute_per_layer=backward_s, communication_per_layer=reduced + again * gather
    )
    backward = np.where(weights > 0, with_gather, once)
    if not software.overlap_gradients:
        backward = every * most * (reduced + again * gather)
    first = exposed_gather(buckets=most, compute_per_layer=forward_s, communication_per_layer=sharded * gather)
    forward = first if software.overlap_parameters else most * sharded * gather
    exposed = backward + (weights * (columns["micro_batches"] - 1) + 1) * forward
    return Traffic(np.where(ranks > 1, total, 0.0), np.where(ranks > 1, exposed, 0.0), link["data"])


def _bucket_messages(
    run: Run, columns: Columns, link: dict[str, Link], parameters: np.ndarray, of: str = ""
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds to all-reduce, to reduce-scatter and to all-gather a bucket of parameters: (whole, scatter, gather)."""
    ranks, group = columns["data"] * columns["context"], columns["shard_group"]
    if of:
        ranks, group = columns["expert_data"], columns["expert_shards"]
    gradients = float(run.software.gradient_reduction_bytes) * parameters
    message = {
        name: {"latency": link[of + name].latency_s, "bandwidth": link[of + name].bytes_per_s}
        for name in ("data", "shard", "replica")
    }
    weights = float(run.training.state.weights) * parameters
    whole = ring_all_reduce_time(ranks=ranks, payload_bytes=gradients, **message["data"])
    scatter = ring_all_gather_time(ranks=group, payload_bytes=gradients, **message["shard"])
    # hybrid sharding: what a group holds in shards is then summed over the groups
    between = ring_all_reduce_time(
        ranks=np.maximum(ranks / group, 1), payload_bytes=gradients / group, **message["replica"]
    )
    gather = ring_all_gather_time(ranks=group, payload_bytes=weights, **message["shard"])
    return np.asarray(whole), np.asarray(scatter + between), np.asarray(gather)


def pipeline_traffic(run: Run, columns: Columns, link: Link) -> Traffic:
    """Sends between stages: hidden in the steady state where the program overlaps them, never in fill and drain."""
    payload = pipeline_send_bytes(
        activation_bytes=2.0, hidden=run.model.hidden, micro_batch=columns["micro_batch"],
        sequence_length=run.training.sequence_length / columns["context"], tensor=columns["tensor"],
        sequence_sharded=columns["sequence_parallel"],
    )  # fmt: skip
    send = point_to_point_time(latency=link.latency_s, payload_bytes=payload, bandwidth=link.bytes_per_s)
    hops = 2 * (columns["pipeline"] - 1)
    steady = 2 * columns["micro_batches"] * columns["interleave"] * (columns["pipeline"] > 1)
    exposed = hops * send + (0 if run.software.overlap_pipeline else steady * send)
    return Traffic((hops + steady) * send, exposed, link)
