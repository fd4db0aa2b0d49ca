"""Bytes by tier: what each axis sends in one step, how much of it leaves the node, and how long its link needs.

>>> from course import catalog
>>> sent = traffic(catalog.model("llama-3-8b"), {"tensor": 2, "data": 8}, ("tensor", "data"),
...                catalog.fabric("h100-ib400"), sequence_length=8192, micro_batches=4)
>>> sent["tensor"].leaving, sent["data"].on_node, round(sent["data"].leaving / 1e9, 2)
(0.0, 4, 3.51)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course.estimate import count
from course.place.collectives import point_to_point_time, ring_all_gather_time, ring_all_reduce_time
from course.place.links import group_bandwidth
from course.place.ranks import axis_strides, on_node
from course.problem import Fabric, Model
from course.shard import all_reduce_bytes, pipeline_send_bytes, tensor_unit_bytes


@dataclass(frozen=True)
class AxisTraffic:
    """One axis in one step of one device: bytes sent, those of them that leave the node, and seconds on the link.

    `on_node` is the k of `group_bandwidth`, `rate` the byte/s that follow from it. Of a pipeline it is an inner stage,
    which sends both ways; the first and the last send half of that.
    """

    bytes: float
    leaving: float
    on_node: int
    rate: float
    seconds: float


def traffic(
    model: Model, degrees: Mapping[str, int], order: Sequence[str], fabric: Fabric, *, sequence_length: int,
    micro_batches: int, gradient_bytes: float = 2, tensor_units: float = 8, interleave: int = 1,
) -> dict[str, AxisTraffic]:  # fmt: skip
    """Traffic of the axes of a dense model, without overlap; all links at their wire rate.

    Args:
        model: a dense model.
        degrees: ranks along "tensor", "pipeline" and "data"; 1 where one is not named.
        order: those axes, innermost first.
        fabric: its node size, rates and latencies.
        sequence_length: tokens of the one sequence of a micro-batch.
        micro_batches: micro-batches of a step.
        gradient_bytes: of one gradient on the wire; plain data parallelism, reduced once a step.
        tensor_units: gathers and scatters of a layer, forward and backward: 8, or 10 where a program gathers the inputs
            of matmuls again (`course.shard.tensor_units`).
        interleave: chunks of layers a stage holds; each passes its activations on.
    """
    tensor, pipeline, data = (degrees.get(axis, 1) for axis in ("tensor", "pipeline", "data"))
    widths = {"activation_bytes": 2, "hidden": model.hidden, "micro_batch": 1, "sequence_length": sequence_length}
    unit = tensor_unit_bytes(tensor=tensor, **widths)
    send = pipeline_send_bytes(tensor=tensor, sequence_sharded=1, **widths)
    gradients = gradient_bytes * count(model).total / pipeline / tensor
    units = tensor_units * model.layers / pipeline * micro_batches
    sends = 2 * micro_batches * interleave * (pipeline > 1)
    found = {}
    for axis in order:
        k = on_node(degrees, order, axis, fabric.node_size)
        crosses = axis_strides(degrees, order)[axis] * degrees.get(axis, 1) > fabric.node_size
        link = {"latency": fabric.scale_out_latency_s if crosses else fabric.scale_up_latency_s}
        # a send to the next stage is one message, which one card carries
        across = group_bandwidth(
            scale_up_bytes_per_s=fabric.scale_up_bytes_per_s, scale_out_bytes_per_s=fabric.scale_out_bytes_per_s,
            ranks_per_node=1 if axis == "pipeline" else k,
        )  # fmt: skip
        link["bandwidth"] = across if crosses else fabric.scale_up_bytes_per_s
        if axis == "tensor":
            whole = unit * tensor / max(tensor - 1, 1)
            sent, time = units * unit, units * ring_all_gather_time(ranks=tensor, payload_bytes=whole, **link)
        elif axis == "pipeline":
            sent, time = sends * send, sends * point_to_point_time(payload_bytes=send, **link)
        else:
            sent = all_reduce_bytes(ranks=data, payload_bytes=gradients)
            time = ring_all_reduce_time(ranks=data, payload_bytes=gradients, **link)
        found[axis] = AxisTraffic(sent, sent / k if crosses else 0.0, k, link["bandwidth"], time)
    return found


def climbing(
    sent: Mapping[str, AxisTraffic], degrees: Mapping[str, int], order: Sequence[str], sizes: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Bytes of each axis that leave each tier, for each device below it: those a node, a leaf, a pod sends upwards.

    Counted device by device: in a ring a rank sends to the next one, and where that sits in another unit of the tier
    the bytes leave. The mean is over the full units: the last one may be smaller, and a ring may have more ranks in one
    than in the next.

    Args:
        sent: what `traffic` returned for these degrees in this order.
        degrees: ranks along each axis.
        order: the axes, innermost first.
        sizes: devices of each tier, such as `{"node": 8, "leaf": 128}`.

    >>> from course import catalog
    >>> degrees, order = {"tensor": 8, "data": 64}, ("tensor", "data")
    >>> sent = traffic(catalog.model("llama-3-8b"), degrees, order, catalog.fabric("h100-ib400"),
    ...                sequence_length=8192, micro_batches=1)
    >>> out = climbing(sent, degrees, order, {"node": 8, "leaf": 128})
    >>> {tier: round(size / 1e9, 2) for tier, size in out["data"].items()}, out["tensor"]["leaf"]
    ({'node': 3.95, 'leaf': 0.25}, 0.0)
    """
    strides, devices = axis_strides(degrees, order), math.prod(degrees.get(axis, 1) for axis in order)
    return {
        axis: {
            tier: one.bytes * _leaving(strides[axis], degrees.get(axis, 1), devices, size)
            for tier, size in sizes.items()
        }
        for axis, one in sent.items()
    }


def _leaving(stride: int, degree: int, devices: int, size: int) -> float:
    """Share of the devices of full tiers whose next rank in the ring sits in another tier."""
    device = np.arange(devices // size * size if devices >= size else devices)
    last = device // stride % degree == degree - 1
    following = np.where(last, device - (degree - 1) * stride, device + stride)
    return float(np.mean(following // size != device // size))
