"""One idea: a torus has two links on every axis, and a gather can keep all of them busy.

Each rank's array is cut in as many parts as there are axes; part i passes the axes in the order i, i + 1, ... In a pass
over an axis, what a rank holds goes round that ring in both directions at once, each link passing on what came.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from course.simulators.engine import Task, Time, run
from course.simulators.ring import Array, Collective

Place = tuple[int, ...]


def places(side: int, axes: int) -> list[Place]:
    """The coordinates of all ranks, in the order of their numbers.

    >>> places(2, 2)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return list(product(range(side), repeat=axes))


def hops(side: int) -> list[tuple[int, int, float]]:
    """How a piece goes round a ring: (way, hop, share of the piece); straight across come halves from both sides.

    >>> hops(3), hops(4)[2:]
    ([(1, 0, 1.0), (-1, 0, 1.0)], [(1, 1, 0.5), (-1, 1, 0.5)])
    """
    return [(way, hop, 0.5 if 2 * (hop + 1) == side else 1.0) for hop in range(side // 2) for way in (1, -1)]


def torus_all_gather(
    arrays: Sequence[Array], side: int, axes: int, bandwidth: Time = float("inf"), latency: Time = 0
) -> Collective:
    """Every rank ends with all ranks' arrays, one behind the other (flat).

    Arguments: one flat array for each of side**axes ranks, all of one length; `bandwidth` in byte/s of one link one
    way; `latency` in s of one hop. Raises ValueError where the arrays do not fill the torus.

    >>> result = torus_all_gather([np.array([rank]) for rank in range(9)], side=3, axes=2)
    >>> result.arrays[4].tolist(), result.steps
    ([0, 1, 2, 3, 4, 5, 6, 7, 8], 2)
    """
    ranks = places(side, axes)
    if len(arrays) != len(ranks):
        raise ValueError(f"{len(arrays)} arrays do not fill a torus of {axes} axes of {side}")
    held = {
        (place, part): {place: piece}
        for place, array in zip(ranks, arrays, strict=True)
        for part, piece in enumerate(np.array_split(array.ravel(), axes))
    }
    complete: dict[tuple[Place, int], tuple[object, ...]] = dict.fromkeys(held, ())  # the sends it waits for
    sent = dict.fromkeys(ranks, 0.0)
    tasks = []
    for passed in range(axes):
        before, waits = {key: dict(pieces) for key, pieces in held.items()}, dict(complete)
        for (place, part), (way, hop, share) in product(before, hops(side)):
            axis = (part + passed) % axes
            source, target = _moved(place, axis, way * hop, side), _moved(place, axis, way * (hop + 1), side)
            pieces = before[place, part]
            size = share * sum(piece.nbytes for piece in pieces.values())
            held[target, part].update(pieces)
            sent[source] += size
            name = (passed, part, place, way, hop)
            came = ((passed, part, place, way, hop - 1),) if hop else waits[place, part]
            seconds = latency + size / bandwidth
            tasks.append(Task(name, (source, axis, way), seconds, came, priority=passed * side + hop))
            complete[target, part] += (name,)
    schedule = run(tasks, by_priority={task.resource for task in tasks})
    whole = [np.concatenate([held[one, part][other] for other in ranks for part in range(axes)]) for one in ranks]
    return Collective(whole, [round(sent[one]) for one in ranks], axes * (side // 2), schedule.makespan)


def _moved(place: Place, axis: int, by: int, side: int) -> Place:
    return (*place[:axis], (place[axis] + by) % side, *place[axis + 1 :])
