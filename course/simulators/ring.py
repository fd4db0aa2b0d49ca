"""One idea: a collective is a list of sends; follow it with real arrays and both the result and the bytes are there.

`plan` says who sends which chunk to whom in which step. `reduce_scatter`, `all_gather`, `all_reduce`, `all_to_all` and
`send` carry the arrays along it and time it on the engine; `rings_on_nodes` runs several rings over nodes whose network
cards they share. Rank r sends over a way out of its own, so a send takes latency + bytes / bandwidth of that way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from course.simulators.engine import After, Task, Time, run

Array: TypeAlias = NDArray[Any]
COLLECTIVES = ("reduce_scatter", "all_gather", "all_reduce", "all_to_all")


class Send(NamedTuple):
    """In `step`, rank `source` sends chunk `chunk` to rank `target`."""

    step: int
    source: int
    target: int
    chunk: int


def plan(collective: str, ranks: int) -> list[Send]:
    """The sends of a collective on `ranks` ranks, each of whose arrays is cut into `ranks` chunks.

    In a reduce-scatter a chunk goes once round the ring and gathers every rank's share, to end on the rank of its own
    number; in an all-gather it goes round unchanged. An all-reduce is the one and then the other. An all-to-all passes
    chunk j straight to rank j, to a different neighbour in each step.

    >>> plan("all_gather", 3)[1]
    Send(step=0, source=1, target=2, chunk=1)
    >>> len(plan("all_reduce", 4))
    24
    """
    if ranks < 1:
        raise ValueError(f"ranks is {ranks}; a collective needs at least 1 rank")
    everyone, steps = range(ranks), range(ranks - 1)
    if collective == "reduce_scatter":
        return [Send(step, r, (r + 1) % ranks, (r - step - 1) % ranks) for step in steps for r in everyone]
    if collective == "all_gather":
        return [Send(step, r, (r + 1) % ranks, (r - step) % ranks) for step in steps for r in everyone]
    if collective == "all_reduce":
        gather = [send._replace(step=send.step + len(steps)) for send in plan("all_gather", ranks)]
        return plan("reduce_scatter", ranks) + gather
    if collective == "all_to_all":
        hops = [(step, r, (r + step + 1) % ranks) for step in steps for r in everyone]
        return [Send(step, source, target, target) for step, source, target in hops]
    raise ValueError(f"collective is {collective!r}; it is one of {', '.join(COLLECTIVES)}")


@dataclass(frozen=True)
class Collective:
    """What a collective led to: the array on each rank, the bytes each sent, the number of steps, and the seconds."""

    arrays: list[Array]
    bytes_sent: list[int]
    steps: int
    time: Time


@dataclass(frozen=True)
class Links:
    """The way out of each rank: bandwidth in byte/s and latency in s, one number for all or one for each rank.

    While the latency passes, the way out is taken, unless `in_flight`: then the next message may leave already. Where
    all ranks have one latency a ring takes equally long either way, for its messages wait for each other.

    >>> Links(bandwidth=[4.0, 2.0], latency=1.0).seconds(rank=1, sent=8)
    5.0
    >>> slow_hop = [1.0, 1.0, 1.0, 9.0]
    >>> [all_gather([np.ones(1)] * 4, Links(latency=slow_hop, in_flight=way)).time for way in (False, True)]
    [27.0, 11.0]
    """

    bandwidth: Time | Sequence[Time] = float("inf")
    latency: Time | Sequence[Time] = 0
    in_flight: bool = False

    def seconds(self, rank: int, sent: Time) -> Time:
        """Seconds that `rank` needs to send `sent` bytes."""
        latency, bandwidth = (v[rank] if isinstance(v, Sequence) else v for v in (self.latency, self.bandwidth))
        if not bandwidth > 0:
            raise ValueError(f"the bandwidth of rank {rank} is {bandwidth!r}; it must be above 0 byte/s, one way")
        return latency + sent / bandwidth

    def taken(self, rank: int, sent: Time) -> tuple[Time, Time]:
        """Seconds in which the way out of `rank` is taken, and seconds that the message then still travels."""
        whole, waits = self.seconds(rank, sent), self.seconds(rank, 0)
        return (whole - waits, waits) if self.in_flight else (whole, 0)


def reduce_scatter(arrays: Sequence[Array], links: Links | None = None) -> Collective:
    """Rank r ends with chunk r of the sum of all arrays (flat; chunks differ by one element at most).

    >>> [chunk.tolist() for chunk in reduce_scatter([np.array([1, 2]), np.array([10, 20])]).arrays]
    [[11], [22]]
    """
    held = [_chunks(array, len(arrays)) for array in _alike(arrays)]
    sends = plan("reduce_scatter", len(arrays))
    sizes = _carry(sends, held, add=True)
    return _result([chunks[rank] for rank, chunks in enumerate(held)], sends, sizes, links)


def all_gather(arrays: Sequence[Array], links: Links | None = None) -> Collective:
    """Every rank ends with all ranks' arrays, one behind the other (flat).

    >>> [array.tolist() for array in all_gather([np.array([1]), np.array([2])]).arrays]
    [[1, 2], [1, 2]]
    """
    ranks = len(arrays)
    nothing = arrays[0].ravel()[:0] if ranks else np.empty(0)
    held = [[array.ravel().copy() if r == rank else nothing for r in range(ranks)] for rank, array in enumerate(arrays)]
    sends = plan("all_gather", ranks)
    sizes = _carry(sends, held, add=False)
    return _result([np.concatenate(chunks) for chunks in held], sends, sizes, links)


def all_reduce(arrays: Sequence[Array], links: Links | None = None) -> Collective:
    """Every rank ends with the sum of all arrays, in their shape.

    >>> result = all_reduce([np.ones(4), np.ones(4)], Links(bandwidth=8.0))
    >>> result.arrays[0].tolist(), result.bytes_sent, result.steps, result.time
    ([2.0, 2.0, 2.0, 2.0], [32, 32], 2, 4.0)
    """
    held = [_chunks(array, len(arrays)) for array in _alike(arrays)]
    sends = plan("all_reduce", len(arrays))
    half = len(sends) // 2
    sizes = _carry(sends[:half], held, add=True) + _carry(sends[half:], held, add=False)
    return _result([np.concatenate(chunks).reshape(arrays[0].shape) for chunks in held], sends, sizes, links)


def all_to_all(arrays: Sequence[Array], links: Links | None = None) -> Collective:
    """Rank r ends with chunk r of every rank's array, in the order of the ranks (flat).

    >>> [array.tolist() for array in all_to_all([np.array([1, 2]), np.array([10, 20])]).arrays]
    [[1, 10], [2, 20]]
    """
    held = [_chunks(array, len(arrays)) for array in _alike(arrays)]
    received = [[chunks[rank] for chunks in held] for rank in range(len(held))]  # by target, then by source
    sends = plan("all_to_all", len(arrays))
    sizes = [held[send.source][send.chunk].nbytes for send in sends]
    return _result([np.concatenate(chunks) for chunks in received], sends, sizes, links, forwarding=False)


def send(array: Array, links: Links | None = None) -> Collective:
    """Rank 0 sends `array` to rank 1, point to point.

    >>> send(np.ones(4), Links(bandwidth=16.0, latency=0.5)).time
    2.5
    """
    return _result([array.copy(), array.copy()], [Send(0, 0, 1, 0)], [array.nbytes], links)


def _alike(arrays: Sequence[Array]) -> Sequence[Array]:
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1:
        raise ValueError(f"the ranks hold arrays of shapes {sorted(shapes)}; they must be alike, and there must be one")
    return arrays


def _chunks(array: Array, ranks: int) -> list[Array]:
    return [chunk.copy() for chunk in np.array_split(array.ravel(), ranks)]


def _carry(sends: list[Send], held: list[list[Array]], add: bool) -> list[int]:
    """Do the sends, step by step; return the bytes of each. All sends of a step leave before any arrives."""
    sizes = []
    for step in sorted({one.step for one in sends}):
        now = [one for one in sends if one.step == step]
        parcels = [held[one.source][one.chunk] for one in now]
        for one, parcel in zip(now, parcels, strict=True):
            own = held[one.target][one.chunk]
            held[one.target][one.chunk] = own + parcel if add else parcel.copy()
            sizes.append(parcel.nbytes)
    return sizes


def _result(
    arrays: list[Array], sends: list[Send], sizes: list[int], links: Links | None, forwarding: bool = True
) -> Collective:
    links = links or Links()
    sent = [0] * len(arrays)
    for one, size in zip(sends, sizes, strict=True):
        sent[one.source] += size
    needs = _needs(sends) if forwarding else {}
    ways = [links.taken(one.source, size) for one, size in zip(sends, sizes, strict=True)]
    travels = {one: travel for one, (_, travel) in zip(sends, ways, strict=True)}
    tasks = [
        Task(one, one.source, busy, tuple(After(need, travels[need]) for need in needs.get(one, ())))
        for one, (busy, _) in zip(sends, ways, strict=True)
    ]
    schedule = run(tasks)
    arrived = max((schedule.finish[one] + travel for one, travel in travels.items()), default=0)
    return Collective(arrays, sent, 1 + max((one.step for one in sends), default=-1), arrived)


def _needs(sends: list[Send]) -> dict[Send, tuple[Send, ...]]:
    """What each send waits for: the chunk it passes on was sent here in the step before."""
    came = {(one.step, one.target, one.chunk): one for one in sends}
    needs = {one: came.get((one.step - 1, one.source, one.chunk)) for one in sends}
    return {one: (need,) for one, need in needs.items() if need is not None}


@dataclass(frozen=True)
class SharedRings:
    """What several rings led to: seconds until all and until each was done, and the bytes between nodes."""

    time: Time
    ring_times: list[Time]
    crossing: dict[tuple[int, int], Time]
    """Bytes by (node they left, node they reached)."""

    def bytes_out(self, node: int) -> Time:
        """Bytes that `node` sent to other nodes."""
        return sum(sent for (source, _), sent in self.crossing.items() if source == node)


def rings_on_nodes(
    rings: Sequence[Sequence[int]],
    payload: Time,
    node_size: int,
    device: Links,
    node: Links,
    collective: str = "all_reduce",
) -> SharedRings:
    """Run one collective in every ring at the same time.

    Arguments: `rings`, each the devices in the order of the ring (device d sits on node d // node_size); `payload`, the
    bytes of the whole array of each ring; `device`, each device's way out inside its node; `node`, each node's way out,
    all its network cards together, through which one chunk goes at a time, taking turns. Raises ValueError where a
    device is in two rings.

    >>> pairs = [[0, 2], [1, 3]]  # two nodes of two devices; both rings cross
    >>> result = rings_on_nodes(pairs, payload=8, node_size=2, device=Links(100.0), node=Links(4.0))
    >>> result.time, result.bytes_out(0)
    (4.0, 16.0)
    """
    devices = [place for ring in rings for place in ring]
    if len(set(devices)) != len(devices):
        twice = min(name for name, count in Counter(devices).items() if count > 1)
        raise ValueError(f"device {twice} stands twice in the rings; each device is in one ring, once")
    tasks, crossing = [], Counter[tuple[int, int]]()
    for number, ring in enumerate(rings):
        sends = plan(collective, len(ring))
        needs = _needs(sends) if collective != "all_to_all" else {}
        chunk = payload / len(ring)
        for one in sends:
            source, target = ring[one.source], ring[one.target]
            home, away = source // node_size, target // node_size
            if home == away:
                resource, seconds = ("device", source), device.seconds(source, chunk)
            else:
                resource, seconds = ("node", home), node.seconds(home, chunk)
                crossing[home, away] += chunk
            after = tuple((number, need) for need in needs.get(one, ()))
            tasks.append(Task((number, one), resource, seconds, after, priority=one.step))
    # rings take turns at a node's way out: the earlier step goes first
    schedule = run(tasks, by_priority={task.resource for task in tasks})
    done: list[Time] = [0] * len(rings)
    for (number, _), finish in cast(dict[tuple[int, Send], Time], schedule.finish).items():
        done[number] = max(done[number], finish)
    return SharedRings(schedule.makespan, done, dict(crossing))
