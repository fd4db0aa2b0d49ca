"""Communication of one step by axis: how long it takes in all, what of it is exposed, and over which link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from course import catalog
from course.overlap import exposed_every_reduction, exposed_gather, exposed_reduction
from course.place import group_bandwidth, point_to_point_time, ring_all_gather_time, ring_all_reduce_time
from course.predict import groups
from course.predict.constants import Constants
from course.predict.experts import routed_parameters
from course.predict.stages import Stages, stage_parameters
from course.problem import Run
from course.shard import pipeline_send_bytes, pipeline_sends, tensor_units

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Link:
    """The link a group's ring runs over: rate of a gather or scatter and of an all-reduce, latency of a message.

    `crosses` says whether it leaves a node; `on_node` is the fewest ranks a group has on a node it touches, all of them
    where none crosses.
    """

    bytes_per_s: np.ndarray
    reduce_bytes_per_s: np.ndarray
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
    on_node = np.ones_like(size) if one_card else fewest

    def rate(table: tuple[tuple[int, float], ...]) -> np.ndarray:
        out = _measured_card_rate(table, fabric.node_size, size) if table else constants.scale_out_bytes_per_s
        across = group_bandwidth(
            scale_up_bytes_per_s=constants.scale_up_bytes_per_s, scale_out_bytes_per_s=out, ranks_per_node=on_node
        )
        return np.where(crosses, across, constants.scale_up_bytes_per_s)

    # a ring leaves a node once for all the ranks it has there: the other hops are short
    hop = ((on_node - 1) * constants.hop_s + constants.hop_across_s) / on_node
    latency = np.where(crosses, hop, constants.hop_s)
    return Link(rate(fabric.gather_bus_by_nodes), rate(fabric.reduce_bus_by_nodes), latency, crosses, fewest)


def _measured_card_rate(table: tuple[tuple[int, float], ...], node_size: int, ranks: np.ndarray) -> np.ndarray:
    """Rate of one device's network card in a ring of that many ranks: its share of what whole nodes reached.

    Longer rings are slower, whether one long ring crosses the nodes or several short ones share them: so the table,
    measured over whole nodes, is read at the length of the ring. Between the lengths measured the rate follows a
    straight line in logarithms; beyond them the nearest holds.
    """
    nodes, rates = np.log(np.array(table)).T
    return np.asarray(np.exp(np.interp(np.log(ranks), nodes + np.log(node_size), rates))) / node_size


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


def tensor_layer_time(
    run: Run, columns: Columns, link: Link, constants: Constants, column_split: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tensor-parallel collectives of one layer and micro-batch, in seconds: (forward, backward, hidden in backward).

    Where the program starts them apart from the matmuls, what column-split matrices need in backward runs beside their
    two gradients, `column_split` seconds: with sequence parallelism the second gather of their inputs and the
    reduce-scatter of the inputs' gradients, without it the all-reduce of these.
    """
    tokens = columns["micro_batch"] * run.training.sequence_length / columns["context"]
    sharded = columns["sequence_parallel"]
    # what starting a collective was measured to take, or its hops, each as slow as the slowest link of the ring;
    # without sequence parallelism two units are one start
    hops = np.maximum(columns["tensor"] - 1, 1)
    hop = np.where(link.crosses, run.cluster.fabric.scale_out_latency_s, run.cluster.fabric.scale_up_latency_s)
    unit = ring_all_gather_time(
        ranks=columns["tensor"], payload_bytes=2.0 * run.model.hidden * tokens, bandwidth=link.bytes_per_s,
        latency=np.where(sharded > 0, 1.0, 0.5) * np.maximum(hop, constants.collective_s / hops),
    )  # fmt: skip
    again = float(run.software.tensor_regather) * sharded
    forward, backward = tensor_units(columns["full_recompute"], again)
    beside = np.where(sharded > 0, 2 + 2 * again, 4) * float(run.software.overlap_tensor_backward)
    return forward * unit, backward * unit, np.minimum(beside * unit, column_split)


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
    reduce_all, scatter, gather = _bucket_messages(run, columns, link, bucket, most)
    held = _layers_in_a_bucket(run, columns, bucket, most)
    if run.model.experts:  # the experts of a layer follow its other parameters, over the ranks that hold the same ones
        own = routed_parameters(run.model, stages).max(axis=1) / most / columns["expert"] / columns["expert_tensor"]
        also = _bucket_messages(run, columns, link, own, most, "expert_")
        # two kinds of buckets: as many layers as an average second of traffic belongs to
        part = also[0] / np.maximum(reduce_all + also[0], 1e-30)
        held = held + (_layers_in_a_bucket(run, columns, own, most) - held) * part
        reduce_all, scatter, gather = reduce_all + also[0], scatter + also[1], gather + also[2]
        ranks = np.maximum(ranks, columns["expert_data"])
    if not software.scatter_gradients:
        scatter = reduce_all
    sharded, whole = columns["shard_optimizer"], 1 - columns["shard_optimizer"]
    weights = columns["shard_weights"]
    every = columns["shard_gradients"] * (columns["micro_batches"] - 1) + 1  # ZeRO-2 and 3 reduce every micro-batch
    again = weights * float(software.regather_in_backward)  # and ZeRO-3 gathers again for backward
    gathers = np.where(weights > 0, columns["micro_batches"] * (1 + again), sharded)
    total = most * (whole * reduce_all + sharded * (every * scatter + gathers * gather))

    kept = (columns["interleave"] > 1) & (columns["shard_gradients"] == 0)
    cover = np.where(kept, np.minimum(columns["pipeline"], columns["micro_batches"]), 1.0)
    reduced = whole * reduce_all + sharded * scatter
    buckets = most / held  # one that holds several layers is ready when the last of them is
    once = exposed_every_reduction(
        buckets=buckets, forward_per_layer=forward_s * held, backward_per_layer=backward_s * cover * held,
        communication_per_layer=reduced * held, reductions=every,
    )  # fmt: skip
    with_gather = every * exposed_reduction(
        buckets=most, compute_per_layer=backward_s, communication_per_layer=reduced + again * gather
    )
    backward = np.where(weights > 0, with_gather, once)
    exposed_all = every * most * (reduced + again * gather)
    hidden = np.where(sharded > 0, float(software.overlap_gradients), float(software.overlap_unsharded))
    backward = np.where(hidden > 0, backward, exposed_all)
    first = exposed_gather(
        buckets=buckets, compute_per_layer=forward_s * held, communication_per_layer=sharded * gather * held
    )
    forward = first if software.overlap_parameters else most * sharded * gather
    exposed = backward + (weights * (columns["micro_batches"] - 1) + 1) * forward
    return Traffic(np.where(ranks > 1, total, 0.0), np.where(ranks > 1, exposed, 0.0), link["data"])


def _bucket_messages(
    run: Run, columns: Columns, link: dict[str, Link], parameters: np.ndarray, layers: np.ndarray, of: str = ""
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds to all-reduce, to reduce-scatter and to all-gather a bucket of parameters: (whole, scatter, gather).

    A program cuts gradients in messages of a bucket, and each pays its hops; ZeRO-3 sends layer by layer, and a
    program that sums sharded gradients by an all-reduce sends them all at once.
    """
    ranks, group = columns["data"] * columns["context"], columns["shard_group"]
    if of:
        ranks, group = columns["expert_data"], columns["expert_shards"]
    gradients = float(run.software.gradient_reduction_bytes) * parameters
    messages = np.maximum(gradients / bucket_bytes(run, columns, gradients), 1 / layers)
    if not run.software.scatter_gradients:
        messages = np.where(columns["shard_optimizer"] > 0, 1 / layers, messages)
    messages = np.where(columns["shard_weights"] > 0, 1.0, messages)
    latency = {name: link[of + name].latency_s * messages for name in ("data", "shard", "replica")}
    summed = {name: {"latency": latency[name], "bandwidth": link[of + name].reduce_bytes_per_s} for name in latency}
    message = {"latency": latency["shard"], "bandwidth": link[of + "shard"].bytes_per_s}
    weights = float(run.software.weight_gather_bytes) * parameters
    whole = ring_all_reduce_time(ranks=ranks, payload_bytes=gradients, **summed["data"])
    scatter = ring_all_gather_time(ranks=group, payload_bytes=gradients, **message)
    # hybrid sharding: what a group holds in shards is then summed over the groups
    between = ring_all_reduce_time(
        ranks=np.maximum(ranks / group, 1), payload_bytes=gradients / group, **summed["replica"]
    )
    gather = ring_all_gather_time(ranks=group, payload_bytes=weights, **message)
    return np.asarray(whole), np.asarray(scatter + between), np.asarray(gather)


def bucket_bytes(run: Run, columns: Columns, layer: np.ndarray) -> np.ndarray:
    """Bytes of gradients that a program reduces at once: what the run file says, or else the recipe's rule.

    `layer` is the bytes of one layer's gradients. A number of the run file holds for every layout; a rule is a bucket a
    layer, or numbers that grow with the replicas.
    """
    software = run.software
    rule = catalog.bucket_rule(software.recipe)
    if software.bucket_given or software.bucket_bytes != rule.bytes:
        return np.full(layer.shape, float(software.bucket_bytes))
    if rule.layer:
        return np.asarray(np.maximum(layer, 1.0))
    if not rule.per_rank:
        return np.full(layer.shape, float(rule.bytes))
    return np.asarray(software.gradient_reduction_bytes * np.maximum(rule.numbers, rule.per_rank * columns["data"]))


def _layers_in_a_bucket(run: Run, columns: Columns, parameters: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """How many layers' gradients are reduced together, at least 1 and at most a chunk's; ZeRO-3 sends them singly."""
    gradients = np.maximum(float(run.software.gradient_reduction_bytes) * parameters, 1.0)
    chunk = np.maximum(layers / columns["interleave"], 1.0)
    held = np.clip(bucket_bytes(run, columns, gradients) / gradients, 1.0, chunk)
    return np.where(columns["shard_weights"] > 0, 1.0, held)


def pipeline_traffic(run: Run, columns: Columns, link: Link, beside: np.ndarray) -> Traffic:
    """Sends between stages: hidden in the steady state where the program overlaps them, never in fill and drain.

    `beside` is how long the slowest stage computes in a step or waits for other traffic: no more than that can hide. In
    the steady state the sends are those of the busiest stage; each of two stages sends in one direction alone.
    """
    payload = pipeline_send_bytes(
        activation_bytes=2.0, hidden=run.model.hidden, micro_batch=columns["micro_batch"],
        sequence_length=run.training.sequence_length / columns["context"], tensor=columns["tensor"],
        sequence_sharded=columns["sequence_parallel"],
    )  # fmt: skip
    send = point_to_point_time(latency=link.latency_s, payload_bytes=payload, bandwidth=link.bytes_per_s)
    hops = 2 * (columns["pipeline"] - 1)
    steady = columns["micro_batches"] * pipeline_sends(columns["pipeline"], columns["interleave"])
    hidden = beside if run.software.overlap_pipeline else 0.0
    exposed = hops * send + np.maximum(steady * send - hidden, 0.0)
    return Traffic((hops + steady) * send, exposed, link)
