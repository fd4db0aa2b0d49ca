"""Step 4, place: what a link costs, which links a group of ranks crosses, and when an axis is bound by them.

>>> ring_all_reduce_time(ranks=8, payload_bytes=1e9, latency=0, bandwidth=450e9) * 1e3  # milliseconds
3.888888888888889
"""

from __future__ import annotations

from course.place.bounds import (
    context_ratio,
    data_ratio,
    expert_ratio,
    fsdp_ratio,
    fsdp_tensor_optimum,
    fsdp_tensor_time,
    pipeline_ratio,
    tensor_ratio,
)
from course.place.collectives import (
    algorithm_bandwidth,
    all_gather_bus_bandwidth,
    all_reduce_bus_bandwidth,
    all_to_all_time,
    hierarchical_all_reduce_time,
    point_to_point_time,
    ring_all_gather_time,
    ring_all_reduce_time,
    torus_all_gather_time,
    torus_all_reduce_time,
    torus_all_to_all_time,
    tree_all_reduce_time,
)
from course.place.links import crossing_bytes, group_bandwidth, leaf_bandwidth, ring_nodes_latency, scattered_bytes
from course.place.ranks import axis_strides, groups, nodes_of, on_node
from course.place.tiers import AxisTraffic, climbing, traffic

__all__ = [
    "AxisTraffic",
    "algorithm_bandwidth", "all_gather_bus_bandwidth", "all_reduce_bus_bandwidth", "all_to_all_time", "axis_strides",
    "climbing", "context_ratio", "crossing_bytes", "data_ratio", "expert_ratio", "fsdp_ratio", "fsdp_tensor_optimum",
    "fsdp_tensor_time", "group_bandwidth", "groups", "hierarchical_all_reduce_time", "leaf_bandwidth", "nodes_of",
    "on_node", "pipeline_ratio", "point_to_point_time", "ring_all_gather_time", "ring_all_reduce_time",
    "ring_nodes_latency", "scattered_bytes", "tensor_ratio", "torus_all_gather_time", "torus_all_reduce_time",
    "torus_all_to_all_time", "traffic", "tree_all_reduce_time",
]  # fmt: skip
