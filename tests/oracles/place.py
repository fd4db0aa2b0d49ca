"""Oracles of step 4: rings timed send by send, and rows of published collective benchmarks."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from course.simulators import ring
from oracles.checking import Answers, Check, agrees

Ring = Callable[[list[np.ndarray], ring.Links], ring.Collective]


def _cases() -> list[tuple[int, int, float, float]]:
    """(ranks, bytes, latency, bandwidth), from all latency to all bytes."""
    draw = random.Random(30)
    return [
        (ranks, 64 * ranks * draw.randint(1, 9), draw.uniform(0.1, 2), draw.uniform(20, 2000))
        for ranks in (1, 2, 3, 5, 8)
    ] * 2


def one_send() -> Answers:
    for _, size, latency, bandwidth in _cases():
        sent = ring.send(np.zeros(size, np.uint8), ring.Links(bandwidth, latency))
        yield {"payload_bytes": size, "latency": latency, "bandwidth": bandwidth}, sent.time


def _timed(collective: Ring) -> Callable[[], Answers]:
    def sends_of_a_ring() -> Answers:
        for ranks, size, latency, bandwidth in _cases():
            mine = size // ranks if collective is ring.all_gather else size
            arrays = [np.zeros(mine, np.uint8) for _ in range(ranks)]
            yield (
                {
                    "ranks": ranks,
                    "payload_bytes": size,
                    "latency": latency,
                    "bandwidth": bandwidth,
                },
                collective(arrays, ring.Links(bandwidth, latency)).time,
            )

    return sends_of_a_ring


# ---------------------------------------------------------------- bandwidths as nccl-tests prints them
ALL_REDUCE_ROWS = (
    # ranks, bytes, seconds, algorithm bandwidth, bus bandwidth
    (8, 8589934592, 158070e-6, 54.3426e9, 95.09955e9),  # NVIDIA/nccl-tests #159, #252
    # ml-engineering, network/README.md: 8 H200 in one node prints both rates; the time is size over the first
    (8, 32768, 32768 / 0.82e9, 0.82e9, 1.44e9),
    (8, 131072, 131072 / 3.27e9, 3.27e9, 5.73e9),
)


def published_algorithm_bandwidth() -> Answers:
    _, size, seconds, answer, _ = ALL_REDUCE_ROWS[0]
    yield {"payload_bytes": size, "communication_time": seconds}, answer


def published_all_reduce_bus_bandwidth() -> Answers:
    for ranks, size, seconds, _, answer in ALL_REDUCE_ROWS:
        yield {"ranks": ranks, "payload_bytes": size, "communication_time": seconds}, answer


def published_all_gather_bus_bandwidth() -> Answers:
    # NVIDIA/nccl-tests #45: 8 ranks give 1e9 bytes each, 25 ms
    yield {"ranks": 8, "payload_bytes": 8e9, "communication_time": 25e-3}, 280e9


def bytes_over_seconds() -> Answers:
    for size, seconds in ((100, 4), (9, 0.5)):
        per_second = size
        for _ in range(2):  # halve or double until one second has passed
            if seconds > 1:
                per_second, seconds = per_second / 2, seconds / 2
            elif seconds < 1:
                per_second, seconds = per_second * 2, seconds * 2
        yield {"payload_bytes": size, "communication_time": {100: 4, 9: 0.5}[size]}, per_second


def _rate_of_the_links(collective: Ring) -> Callable[[], Answers]:
    def rate_of_links_without_latency() -> Answers:
        """Bus bandwidth is defined as the rate of the links, whatever the collective and the number of ranks."""
        for ranks, size, _, bandwidth in _cases():
            if ranks == 1:
                continue
            mine = size // ranks if collective is ring.all_gather else size
            seconds = collective([np.zeros(mine, np.uint8) for _ in range(ranks)], ring.Links(bandwidth)).time
            yield {"ranks": ranks, "payload_bytes": size, "communication_time": seconds}, bandwidth

    return rate_of_links_without_latency


def rings_that_leave_a_node() -> Answers:
    """A ring over nodes with k of its ranks on each: the hop that leaves a node has the cards of all k."""
    for per_node, nodes, inside, card in ((1, 4, 400, 50), (2, 3, 400, 50), (4, 2, 300, 50), (8, 2, 300, 50)):
        ranks = per_node * nodes
        ways = [inside] * ranks
        for last in range(per_node - 1, ranks, per_node):
            ways[last] = sum(card for _ in range(per_node))
        size = 64 * ranks
        seconds = ring.all_gather([np.zeros(64, np.uint8) for _ in range(ranks)], ring.Links(ways)).time
        slowest = size * (ranks - 1) / ranks / seconds
        yield {"scale_up_bytes_per_s": inside, "scale_out_bytes_per_s": card, "ranks_per_node": per_node}, slowest


ORACLES: dict[str, list[Check]] = {
    "place.point_to_point_time": [agrees(one_send)],
    "place.ring_all_gather_time": [agrees(_timed(ring.all_gather)), agrees(_timed(ring.reduce_scatter))],
    "place.ring_all_reduce_time": [agrees(_timed(ring.all_reduce))],
    "place.algorithm_bandwidth": [agrees(published_algorithm_bandwidth, 1e-4), agrees(bytes_over_seconds)],
    "place.all_reduce_bus_bandwidth": [
        agrees(published_all_reduce_bus_bandwidth, 0.005),
        agrees(_rate_of_the_links(ring.all_reduce)),
    ],
    "place.all_gather_bus_bandwidth": [
        agrees(published_all_gather_bus_bandwidth),
        agrees(_rate_of_the_links(ring.all_gather)),
        agrees(_rate_of_the_links(ring.reduce_scatter)),
    ],
    "place.group_bandwidth": [agrees(rings_that_leave_a_node)],
}
