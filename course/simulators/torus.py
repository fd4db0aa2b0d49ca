"""One idea: a torus has two links on every axis, and a gather can keep all of them busy.

Each rank's array is cut in as many parts as there are axes; part i passes the axes in the order i, i + 1, ... In a pass
over an axis, what a rank holds goes round that ring in both directions at once, each link passing on what came. Sums
take the same ways backwards. In an all-to-all a pass brings every piece to its place on that axis, the shorter way.
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


def torus_all_reduce(
    arrays: Sequence[Array], side: int, axes: int, bandwidth: Time = float("inf"), latency: Time = 0
) -> Collective:
    """Every rank ends with the sum of all arrays (flat): sums are scattered over the torus, then gathered.

    Arguments as in `torus_all_gather`.

    >>> result = torus_all_reduce([np.full(18, rank) for rank in range(9)], side=3, axes=2)
    >>> set(result.arrays[4].tolist()), result.steps
    ({36}, 4)
    """
    count = len(places(side, axes))
    if len(arrays) != count:
        raise ValueError(f"{len(arrays)} arrays do not fill a torus of {axes} axes of {side}")
    held = [np.array_split(array.ravel(), count) for array in arrays]
    mine, sent, tasks = _scattered(held, side, axes, bandwidth, latency)
    gathered = torus_all_gather(mine, side, axes, bandwidth, latency)
    both = [out + more for out, more in zip(sent, gathered.bytes_sent, strict=True)]
    return Collective(gathered.arrays, both, 2 * gathered.steps, run(tasks).makespan + gathered.time)


def _scattered(
    held: Sequence[Sequence[Array]], side: int, axes: int, bandwidth: Time, latency: Time
) -> tuple[list[Array], list[int], list[Task]]:
    """Piece r of the sum on rank r: over each axis, sums move to the place of their piece from both sides."""
    ranks = places(side, axes)
    sums = {
        (place, part): {to: np.array_split(piece, axes)[part].copy() for to, piece in zip(ranks, pieces, strict=True)}
        for place, pieces in zip(ranks, held, strict=True)
        for part in range(axes)
    }
    waits: dict[tuple[Place, int], tuple[object, ...]] = dict.fromkeys(sums, ())
    sent, tasks = dict.fromkeys(ranks, 0), []
    for passed in range(axes):
        ready = dict(waits)
        for part, hop, way in product(range(axes), reversed(range(side // 2)), (1, -1)):
            axis = (part - passed) % axes
            for place in ranks:  # sends what is wanted hop + 1 places further, one place on
                target, home = _moved(place, axis, way, side), _moved(place, axis, way * (hop + 1), side)[axis]
                size = 0
                for to, piece in sums[place, part].items():
                    if to[axis] == home:
                        moves = piece
                        if 2 * (hop + 1) == side:  # straight across: half goes either way
                            half = slice(None, len(piece) // 2) if way > 0 else slice(len(piece) // 2, None)
                            moves = np.zeros_like(piece)
                            moves[half] = piece[half]
                            size -= piece.nbytes - piece[half].nbytes
                        sums[target, part][to] = sums[target, part][to] + moves
                        size += piece.nbytes
                sent[place] += size
                name = (passed, part, place, way, hop)
                came = () if 2 * (hop + 2) > side else ((passed, part, _moved(place, axis, -way, side), way, hop + 1),)
                tasks.append(Task(name, (place, axis, way), latency + size / bandwidth, came or ready[place, part]))
                waits[target, part] += (name,)
        for (place, part), pieces in sums.items():
            axis = (part - passed) % axes
            sums[place, part] = {to: piece for to, piece in pieces.items() if to[axis] == place[axis]}
    mine = [np.concatenate([sums[one, part][one] for part in range(axes)]) for one in ranks]
    return mine, [sent[one] for one in ranks], tasks


def torus_all_to_all(
    arrays: Sequence[Array], side: int, axes: int, bandwidth: Time = float("inf"), latency: Time = 0
) -> Collective:
    """Rank r ends with piece r of every rank's array, in the order of the ranks (flat).

    Arguments as in `torus_all_gather`; a link carries all that goes its way one hop further as one message.

    >>> torus_all_to_all([np.array([1, 2]), np.array([10, 20])], side=2, axes=1).arrays[1].tolist()
    [2, 20]
    """
    ranks = places(side, axes)
    if len(arrays) != len(ranks):
        raise ValueError(f"{len(arrays)} arrays do not fill a torus of {axes} axes of {side}")
    at = {  # where each piece is: (from, to, part) by rank
        place: {(place, to, part): half
                for to, piece in zip(ranks, np.array_split(array.ravel(), len(ranks)), strict=True)
                for part, half in enumerate(np.array_split(piece, axes))}
        for place, array in zip(ranks, arrays, strict=True)
    }  # fmt: skip
    sent, time = dict.fromkeys(ranks, 0.0), 0 * latency
    for passed in range(axes):  # alike for all ranks and axes, so that a pass ends everywhere at once
        longest: Time = 0
        for hop in range(side // 2):
            loads = dict.fromkeys(product(ranks, range(axes), (1, -1)), 0.0)
            for place, pieces in at.items():
                for (_, to, part), piece in pieces.items():
                    axis = (part + passed) % axes
                    ahead = (to[axis] - place[axis]) % side
                    for way, far in ((1, ahead), (-1, side - ahead)):
                        if ahead and hop < far <= side / 2:
                            loads[place, axis, way] += piece.nbytes * (0.5 if 2 * far == side else 1)
            # whoever is one hop on sends as much: every ring is full of equal messages
            longest = longest + max(latency + load / bandwidth for load in loads.values())
            for (place, _, _), load in loads.items():
                sent[place] += load
        moved: dict[Place, dict[tuple[Place, Place, int], Array]] = {place: {} for place in ranks}
        for place, pieces in at.items():
            for key, piece in pieces.items():
                axis = (key[2] + passed) % axes
                moved[(*place[:axis], key[1][axis], *place[axis + 1 :])][key] = piece
        at, time = moved, time + longest
    whole = [np.concatenate([at[one][other, one, part] for other in ranks for part in range(axes)]) for one in ranks]
    return Collective(whole, [round(sent[one]) for one in ranks], axes * (side // 2), time)
