"""One idea: every rank has a store of named arrays of its own, and only collectives move anything between stores.

Write a parallel program against `Ranks`, compare its numbers with the serial program, and read off what each rank
sent and what it held at most. The collectives are those of `ring`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from course.simulators import ring
from course.simulators.ring import Array, Collective, Links


class Ranks:
    """`count` ranks with empty stores. `world[r]` is the store of rank r, a dict of arrays, to read and compute with.

    Attributes: `sent`, bytes sent by each rank so far; `peak`, the most bytes each rank has held; `time`, seconds spent
    in collectives, over `links` (one way out for each rank).

    >>> import numpy as np
    >>> world = Ranks(2)
    >>> world.put("gradient", [np.array([1.0, 2.0]), np.array([3.0, 4.0])])
    >>> world.reduce_scatter("gradient", into="piece")
    >>> world[1]["piece"].tolist(), world.sent, world.peak
    ([6.0], [8, 8], [24, 24])
    """

    def __init__(self, count: int, links: Links | None = None) -> None:
        if count < 1:
            raise ValueError(f"count is {count}; there must be at least 1 rank")
        self._stores: list[dict[str, Array]] = [{} for _ in range(count)]
        self._links = links
        self.sent = [0] * count
        self.peak = [0] * count
        self.time: float = 0

    def __len__(self) -> int:
        return len(self._stores)

    def __getitem__(self, rank: int) -> dict[str, Array]:
        return dict(self._stores[rank])

    def put(self, name: str, arrays: Sequence[Array]) -> None:
        """Store `arrays[r]` as `name` on every rank r, in place of what had that name."""
        if len(arrays) != len(self):
            raise ValueError(f"{name!r} has {len(arrays)} arrays for {len(self)} ranks; give one for each rank")
        for rank, array in enumerate(arrays):
            self._keep(rank, name, array)

    def compute(self, name: str, function: Callable[[int, dict[str, Array]], Array]) -> None:
        """Store `function(rank, store)` as `name` on every rank; it sees that rank's store only."""
        self.put(name, [function(rank, self[rank]) for rank in range(len(self))])

    def drop(self, *names: str) -> None:
        """Forget arrays on every rank."""
        for name in names:
            self._get(name)
            for store in self._stores:
                del store[name]

    def held(self, rank: int) -> int:
        """Bytes that `rank` holds now."""
        return sum(array.nbytes for array in self._stores[rank].values())

    def all_reduce(self, name: str, into: str | None = None) -> None:
        """The sum over all ranks, on every rank, as `into` (in place without it)."""
        self._collect(ring.all_reduce(self._get(name), self._links), into or name)

    def reduce_scatter(self, name: str, into: str | None = None) -> None:
        """Piece r of the sum over all ranks, on rank r (flat), as `into` (in place without it)."""
        self._collect(ring.reduce_scatter(self._get(name), self._links), into or name)

    def all_gather(self, name: str, into: str | None = None) -> None:
        """The pieces of all ranks one behind the other (flat), on every rank, as `into` (in place without it)."""
        self._collect(ring.all_gather(self._get(name), self._links), into or name)

    def all_to_all(self, name: str, into: str | None = None) -> None:
        """Piece r of every rank's array, on rank r (flat), as `into` (in place without it)."""
        self._collect(ring.all_to_all(self._get(name), self._links), into or name)

    def send(self, source: int, target: int, name: str, into: str | None = None) -> None:
        """A copy of `name` of rank `source` goes to rank `target`, stored as `into` (the same name without it)."""
        if name not in self._stores[source]:
            raise KeyError(f"rank {source} holds no {name!r} to send")
        array = self._stores[source][name]
        self.sent[source] += array.nbytes
        self.time += (self._links or Links()).seconds(source, array.nbytes)
        self._keep(target, into or name, array.copy())

    def _get(self, name: str) -> list[Array]:
        missing = [rank for rank, store in enumerate(self._stores) if name not in store]
        if missing:
            raise KeyError(f"rank {missing[0]} holds no {name!r}; every rank must take part")
        return [store[name] for store in self._stores]

    def _collect(self, result: Collective, name: str) -> None:
        self.put(name, result.arrays)
        self.time += result.time
        self.sent = [before + more for before, more in zip(self.sent, result.bytes_sent, strict=True)]

    def _keep(self, rank: int, name: str, array: Array) -> None:
        self._stores[rank][name] = array
        self.peak[rank] = max(self.peak[rank], self.held(rank))
