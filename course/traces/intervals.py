"""Sets of time as NumPy rows (start, end), and one sweep over their ends that unites, intersects and subtracts them.

The sweep sorts every start and end once, counts at each how many intervals of either set are open, and keeps the
stretches where the counts are as wanted. Rows may come in any order, touch, overlap or be empty; results are sorted,
disjoint and merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Intervals", "difference", "intersection", "length", "rows", "union"]

Intervals = NDArray[np.float64]
"""Shape (n, 2): a start and an end in each row, in one unit of time."""


def rows(intervals: Iterable[Sequence[float]]) -> Intervals:
    """Pairs (start, end) as rows, none of them as shape (0, 2).

    >>> rows([]).shape, rows([(1, 4)]).tolist()
    ((0, 2), [[1.0, 4.0]])
    """
    return np.asarray(list(intervals), dtype=np.float64).reshape(-1, 2)


def union(first: Intervals) -> Intervals:
    """The time in which at least one interval is open.

    >>> union(rows([(5, 6), (0, 2), (1, 3), (3, 4)])).tolist()
    [[0.0, 4.0], [5.0, 6.0]]
    """
    return _sweep(first, rows([]), lambda one, _: one > 0)


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """The time in which an interval of each set is open.

    >>> intersection(rows([(0, 4), (5, 9)]), rows([(3, 6)])).tolist()
    [[3.0, 4.0], [5.0, 6.0]]
    """
    return _sweep(first, second, lambda one, other: (one > 0) & (other > 0))


def difference(first: Intervals, second: Intervals) -> Intervals:
    """The time in which an interval of the first set is open and none of the second.

    >>> difference(rows([(0, 9)]), rows([(3, 4), (8, 12)])).tolist()
    [[0.0, 3.0], [4.0, 8.0]]
    """
    return _sweep(first, second, lambda one, other: (one > 0) & (other == 0))


def length(first: Intervals) -> float:
    """The time in which at least one interval is open, as a number.

    >>> length(rows([(0, 2), (1, 3)]))
    3.0
    """
    merged = union(first)
    return float((merged[:, 1] - merged[:, 0]).sum())


def _sweep(
    first: Intervals, second: Intervals, wanted: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]
) -> Intervals:
    times, place = np.unique(np.concatenate([first.ravel(), second.ravel()]), return_inverse=True)
    if not len(times):
        return rows([])
    open_first, open_second = (
        np.cumsum(
            np.bincount(part[0::2], minlength=len(times)) - np.bincount(part[1::2], minlength=len(times)),
            dtype=np.int64,
        )
        for part in np.split(place.ravel(), [first.size])
    )
    kept = np.concatenate([[False], wanted(open_first, open_second), [False]])
    changes = np.flatnonzero(kept[1:] != kept[:-1])
    result: Intervals = times[changes].reshape(-1, 2)
    return result
