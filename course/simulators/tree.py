"""One idea: sums may climb a tree instead of going round a ring: few messages, each of the whole array.

Rank r hands its sum to the rank in which one bit fewer is set, lowest bits first; rank 0 then has the total, and it
comes down the same way. A rank takes in one array at a time, and sends one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course.simulators.engine import Task, run
from course.simulators.ring import Array, Collective, Links


def parents(ranks: int) -> list[tuple[int, int]]:
    """The sends upwards, (from, to), level by level.

    >>> parents(5)
    [(1, 0), (3, 2), (2, 0), (4, 0)]
    """
    sends, reach = [], 1
    while reach < ranks:
        sends += [(rank, rank - reach) for rank in range(reach, ranks, 2 * reach)]
        reach *= 2
    return sends


def tree_all_reduce(arrays: Sequence[Array], links: Links | None = None) -> Collective:
    """Every rank ends with the sum of all arrays. `links` is each rank's way out; a send needs the target's way in.

    >>> result = tree_all_reduce([np.ones(4) for _ in range(4)], Links(bandwidth=32.0, latency=1.0))
    >>> result.arrays[3].tolist(), result.steps, result.time
    ([4.0, 4.0, 4.0, 4.0], 4, 8.0)
    """
    ways, upwards = links or Links(), parents(len(arrays))
    held = [np.array(array) for array in arrays]
    sent, tasks = [0] * len(arrays), []
    for source, target in upwards:  # a rank sends up once, when all that climbs to it has arrived
        held[target] = held[target] + held[source]
        sent[source] += held[source].nbytes
        waits = tuple(("up", child) for child, parent in upwards if parent == source)
        tasks.append(Task(("up", source), ("in", target), ways.seconds(source, held[source].nbytes), waits))
    for target, source in reversed(upwards):  # and receives the total once
        held[target] = held[source].copy()
        sent[source] += held[source].nbytes
        waits = (("down", source),) if source else tuple(("up", child) for child, parent in upwards if parent == 0)
        tasks.append(Task(("down", target), ("out", source), ways.seconds(source, held[source].nbytes), waits))
    levels = max(len(arrays) - 1, 0).bit_length()
    return Collective(held, sent, 2 * levels, run(tasks).makespan)
