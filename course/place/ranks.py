"""Where ranks sit: an order of axes, innermost first, numbers the devices, and nodes are consecutive numbers.

>>> groups({"tensor": 2, "data": 2}, ("tensor", "data"), "data")
[[0, 2], [1, 3]]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def axis_strides(degrees: Mapping[str, int], order: Sequence[str]) -> dict[str, int]:
    """Distance between neighbours of each axis in device numbers, `order` listing the innermost axis first.

    >>> axis_strides({"tensor": 8, "pipeline": 16, "data": 128}, ("tensor", "pipeline", "data"))
    {'tensor': 1, 'pipeline': 8, 'data': 128}
    """
    strides, step = {}, 1
    for axis in order:
        strides[axis] = step
        step *= degrees.get(axis, 1)
    return strides


def groups(degrees: Mapping[str, int], order: Sequence[str], axis: str) -> list[list[int]]:
    """The groups of one axis, each a list of device numbers: ranks that differ in this axis alone.

    Args:
        degrees: ranks along each axis; their product is the number of devices.
        order: axes, innermost first.
        axis: the one whose groups are asked for.
    """
    stride, size = axis_strides(degrees, order)[axis], degrees.get(axis, 1)
    devices = math.prod(degrees.get(name, 1) for name in order)
    first = [device for device in range(devices) if device // stride % size == 0]
    return [[device + place * stride for place in range(size)] for device in first]


def nodes_of(group: Sequence[int], node_size: int) -> list[int]:
    """The nodes a group has ranks on.

    >>> nodes_of([0, 4, 8, 12], node_size=8)
    [0, 1]
    """
    return sorted({device // node_size for device in group})


def on_node(degrees: Mapping[str, int], order: Sequence[str], axis: str, node_size: int) -> int:
    """How many ranks of one group of `axis` share a node: the k of `group_bandwidth`.

    >>> on_node({"tensor": 4, "data": 8}, ("tensor", "data"), "data", node_size=8)
    2
    """
    stride, size = axis_strides(degrees, order)[axis], degrees.get(axis, 1)
    return min(size, max(1, node_size // stride))
