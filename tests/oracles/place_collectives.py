"""Oracles of step 4, collectives: real arrays up a tree, in two levels, over a torus, straight to every rank."""

from __future__ import annotations

import random

import numpy as np

from course.simulators import ring
from course.simulators.torus import torus_all_gather, torus_all_reduce, torus_all_to_all
from course.simulators.tree import tree_all_reduce
from course.simulators.two_level import two_level_all_reduce
from oracles.checking import Answers, Check, agrees

_draw = random.Random(31)


def _bytes(size: int, ranks: int) -> list[np.ndarray]:
    return [np.zeros(size, np.uint8) for _ in range(ranks)]


def messages_to_everyone() -> Answers:
    for ranks in (1, 2, 3, 5, 8) * 2:
        size, latency, bandwidth = 60 * ranks * _draw.randint(1, 9), _draw.uniform(0.1, 2), _draw.uniform(20, 2000)
        time = ring.all_to_all(_bytes(size, ranks), ring.Links(bandwidth, latency)).time
        yield {"ranks": ranks, "payload_bytes": size, "latency": latency, "bandwidth": bandwidth}, time


def arrays_up_and_down_a_tree() -> Answers:
    for levels in (0, 1, 2, 3, 4) * 2:
        size, latency, bandwidth = _draw.randint(1, 900), _draw.uniform(0.1, 2), _draw.uniform(20, 2000)
        time = tree_all_reduce(_bytes(size, 2**levels), ring.Links(bandwidth, latency)).time
        yield {"levels": levels, "payload_bytes": size, "latency": latency, "bandwidth": bandwidth}, time


def sums_inside_nodes_first() -> Answers:
    for per_node, nodes in ((1, 1), (1, 4), (4, 1), (2, 2), (2, 3), (4, 2), (3, 3), (8, 2)):
        size = per_node * nodes * 60 * _draw.randint(1, 5)
        inside = ring.Links(_draw.uniform(100, 2000), _draw.uniform(0.1, 1))
        across = ring.Links(_draw.uniform(20, 200), _draw.uniform(0.5, 3))
        result = two_level_all_reduce(_bytes(size, per_node * nodes), per_node, inside, across)
        yield {
            "ranks_per_node": per_node, "nodes": nodes, "payload_bytes": size,
            "scale_up_bytes_per_s": inside.bandwidth, "scale_up_latency_s": inside.latency,
            "scale_out_bytes_per_s": across.bandwidth, "scale_out_latency_s": across.latency,
        }, result.time  # fmt: skip


def pieces_round_every_axis_of_a_torus() -> Answers:
    for side, axes in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3)):
        ranks, mine = side**axes, 12 * axes * _draw.randint(1, 5)
        latency, bandwidth = _draw.uniform(0.1, 2), _draw.uniform(20, 2000)
        time = torus_all_gather(_bytes(mine, ranks), side, axes, bandwidth, latency).time
        yield {
            "torus_side": side, "torus_axes": axes, "payload_bytes": mine * ranks, "latency": latency,
            "link_bytes_per_s": bandwidth,
        }, time  # fmt: skip


def sums_back_and_gathered_over_a_torus() -> Answers:
    for side, axes in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3)):
        ranks = side**axes
        size = 2 * axes * ranks * _draw.randint(1, 3)
        latency, bandwidth = _draw.uniform(0.1, 2), _draw.uniform(20, 2000)
        arrays = [np.full(size, rank, np.uint8) for rank in range(ranks)]
        done = torus_all_reduce(arrays, side, axes, bandwidth, latency)
        assert all((array == sum(range(ranks)) % 256).all() for array in done.arrays)
        yield {
            "torus_side": side, "torus_axes": axes, "payload_bytes": size, "latency": latency,
            "link_bytes_per_s": bandwidth,
        }, done.time  # fmt: skip


def parts_the_shorter_way_round_a_torus() -> Answers:
    for side, axes in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (2, 2), (3, 2), (4, 2), (5, 2), (2, 3), (3, 3)):
        ranks = side**axes
        size = 2 * axes * ranks * _draw.randint(1, 3)
        latency, bandwidth = _draw.uniform(0.1, 2), _draw.uniform(20, 2000)
        arrays = [np.arange(size, dtype=np.uint8) + rank for rank in range(ranks)]
        done = torus_all_to_all(arrays, side, axes, bandwidth, latency)
        wanted = [np.concatenate([np.split(array, ranks)[rank] for array in arrays]) for rank in range(ranks)]
        assert all((mine == right).all() for mine, right in zip(done.arrays, wanted, strict=True))
        yield {
            "torus_side": side, "torus_axes": axes, "payload_bytes": size, "latency": latency,
            "link_bytes_per_s": bandwidth,
        }, done.time  # fmt: skip


def empty_messages_round_a_ring_over_nodes() -> Answers:
    """A ring whose last rank on each node has the slower way out; nothing but latency."""
    for per_node, nodes in ((3, 2), (3, 4), (4, 2), (8, 2), (5, 3)):
        inside, across = _draw.uniform(0.1, 1), _draw.uniform(1, 9)
        ways = ([inside] * (per_node - 1) + [across]) * nodes
        links = ring.Links(latency=ways, in_flight=True)
        yield {
            "ranks_per_node": per_node, "nodes": nodes, "scale_up_latency_s": inside, "scale_out_latency_s": across,
        }, ring.all_reduce(_bytes(per_node * nodes, per_node * nodes), links).time  # fmt: skip


def parts_for_other_nodes() -> Answers:
    for per_node, nodes in ((1, 1), (2, 1), (1, 3), (2, 2), (4, 3), (8, 2)):
        ranks, chunk = per_node * nodes, _draw.randint(1, 9)
        out = sum(chunk for one in ring.plan("all_to_all", ranks)
                  if one.source < per_node <= one.target)  # of the first node  # fmt: skip
        yield {"payload_bytes": chunk * ranks, "ranks": ranks, "ranks_per_node": per_node}, out / per_node


ORACLES: dict[str, list[Check]] = {
    "place.all_to_all_time": [agrees(messages_to_everyone)],
    "place.tree_all_reduce_time": [agrees(arrays_up_and_down_a_tree)],
    "place.hierarchical_all_reduce_time": [agrees(sums_inside_nodes_first)],
    "place.torus_all_gather_time": [agrees(pieces_round_every_axis_of_a_torus)],
    "place.torus_all_reduce_time": [agrees(sums_back_and_gathered_over_a_torus)],
    "place.torus_all_to_all_time": [agrees(parts_the_shorter_way_round_a_torus)],
    "place.ring_nodes_latency": [agrees(empty_messages_round_a_ring_over_nodes)],
    "place.scattered_bytes": [agrees(parts_for_other_nodes)],
}
