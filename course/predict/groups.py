"""Groups of ranks that are no single axis: experts folded into a stage's ranks, data and context ranks together.

A group is described by where its ranks lie: `size` of them `stride` devices apart, and that pattern `outer_size` times,
`outer_stride` apart. Ranks of a stage are numbered in the order of the axes, pipeline left out; expert-tensor ranks are
the innermost of that numbering, expert ranks the next, ranks with the same experts the outermost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Columns = dict[str, np.ndarray]
FOLDED = ("tensor", "context", "data")
"""The axes whose ranks expert groups are cut from."""


@dataclass(frozen=True)
class Pattern:
    """Where the ranks of a group lie: columns over layouts."""

    stride: np.ndarray
    size: np.ndarray
    outer_stride: np.ndarray
    outer_size: np.ndarray

    @property
    def ranks(self) -> np.ndarray:
        """How many ranks the group has."""
        return np.asarray(self.size * self.outer_size)


def pattern(stride: np.ndarray, size: np.ndarray, outer_stride: np.ndarray, outer_size: np.ndarray) -> Pattern:
    """A pattern in its simplest form: two steps that continue each other are one.

    >>> one = pattern(*(np.array([float(n)]) for n in (2, 4, 8, 3)))
    >>> float(one.stride[0]), float(one.size[0]), float(one.outer_size[0])
    (2.0, 12.0, 1.0)
    """
    alone = (size == 1) | (outer_size == 1) | (outer_stride == stride * size)
    return Pattern(
        np.where(size == 1, outer_stride, stride), np.where(alone, size * outer_size, size), outer_stride,
        np.where(alone, 1.0, outer_size),
    )  # fmt: skip


def cut(columns: Columns, order: Sequence[str], stride: np.ndarray, size: np.ndarray) -> Pattern:
    """Where ranks lie that are `stride` apart in the numbering of a stage's ranks, which a pipeline may interrupt."""
    inside = np.ones_like(columns["data"])
    for axis in order[: order.index("pipeline")]:
        inside = inside * columns[axis]
    near = np.gcd(size.astype(int), np.maximum(inside // stride, 1).astype(int)).astype(float)
    far = np.where(stride >= inside, stride, inside) * columns["pipeline"]
    return pattern(stride, near, far, size / near)


def experts(columns: Columns, order: Sequence[str]) -> dict[str, Pattern]:
    """The expert groups: `expert_tensor`, `expert`, `expert_data`, and the last one cut in shards and their copies."""
    tensor, spread = columns["expert_tensor"], columns["expert_tensor"] * columns["expert"]
    shards = columns["expert_shards"]
    return {
        "expert_tensor": cut(columns, order, np.ones_like(tensor), tensor),
        "expert": cut(columns, order, tensor, columns["expert"]),
        "expert_data": cut(columns, order, spread, columns["expert_data"]),
        "expert_shard": cut(columns, order, spread, shards),
        "expert_replica": cut(columns, order, spread * shards, columns["expert_data"] / shards),
    }


def data_and_context(columns: Columns, order: Sequence[str], stride: Columns) -> dict[str, Pattern]:
    """The group that reduces gradients, and its neighbouring ranks that share one copy of the state, and the copies."""
    first, second = sorted(("data", "context"), key=order.index)
    shared = np.minimum(columns["shard_group"], columns["dense_ranks"])
    near = np.gcd(shared.astype(int), columns[first].astype(int)).astype(float)
    far = shared / near
    return {
        "data": pattern(stride[first], columns[first], stride[second], columns[second]),
        "shard": pattern(stride[first], near, stride[second], far),
        "replica": pattern(stride[first] * near, columns[first] / near, stride[second] * far, columns[second] / far),
    }


@lru_cache(maxsize=4096)
def fewest_on_a_node(node: int, devices: int, stride: int, size: int, outer_stride: int, outer_size: int) -> int:
    """The fewest ranks that a group of two steps has on a node it touches, over all; its size where none crosses.

    >>> fewest_on_a_node(8, 32, 1, 4, 16, 2)  # devices 0 to 3 with 16 to 19, and so on
    4
    """
    ranks = size * outer_size
    if outer_stride % (stride * size):
        first = _starts_of_uneven(devices, stride, size, outer_stride, outer_size) % node
    else:
        first = _starts(node, devices, stride, size, outer_stride, outer_size)
        # long groups repeat themselves: whole periods are cut out, and what is left keeps its place in the nodes
        short = _shortened(size, node // math.gcd(node, stride))
        outer_stride -= (size - short) * stride
        size, outer_size = short, _shortened(outer_size, node // math.gcd(node, outer_stride))
    offsets = (stride * np.arange(size) + outer_stride * np.arange(outer_size)[:, None]).ravel()
    on = (np.unique(first)[:, None] + offsets) // node
    crossing = on.min(axis=1) != on.max(axis=1)
    if not crossing.any():
        return ranks
    homes = on[crossing] + (on.max() + 1) * np.arange(int(crossing.sum()))[:, None]
    return int(np.unique(homes, return_counts=True)[1].min())


def _shortened(ranks: int, period: int) -> int:
    """As many ranks as show every way a long row of them meets nodes: both ends, and all that lies between."""
    return ranks if ranks < 4 * period else 3 * period + ranks % period


def _starts(node: int, devices: int, stride: int, size: int, outer_stride: int, outer_size: int) -> np.ndarray:
    """Where in a node a group may begin: groups lie side by side, after an inner row, and in each block."""
    block = outer_stride * outer_size
    starts = np.zeros(1, int)
    for step, count in ((1, stride), (stride * size, outer_stride // (stride * size)), (block, devices // block)):
        times = max(1, min(count, node // math.gcd(node, step)))  # then the places begin again
        starts = np.unique((starts[:, None] + step * np.arange(times)) % node)
        if len(starts) == node:
            break
    return np.asarray(starts)


def _starts_of_uneven(devices: int, stride: int, size: int, outer_stride: int, outer_size: int) -> np.ndarray:
    """The first rank of every group whose inner rows do not fill the outer step."""
    place = np.arange(max(outer_stride * outer_size, devices))
    return np.asarray(place[(place // stride % size == 0) & (place // outer_stride % outer_size == 0)])


def fewest(node: int, devices: int, group: Pattern) -> np.ndarray:
    """`fewest_on_a_node` for a column of groups."""
    steps = np.stack([group.stride, group.size, group.outer_stride, group.outer_size], axis=1).astype(int)
    differs = np.append(True, (steps[1:] != steps[:-1]).any(axis=1))[: len(steps)]  # neighbours are mostly alike
    kinds, place = np.unique(steps[differs], axis=0, return_inverse=True)
    table = [fewest_on_a_node(node, devices, *(int(n) for n in kind)) for kind in kinds]
    return np.asarray(np.array(table, float)[place.ravel()][np.cumsum(differs) - 1])
