"""The sweep against counting: every integer microsecond is asked whether an interval covers it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.traces.intervals import Intervals, difference, intersection, length, rows, union

END = 40
PAIRS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted), max_size=12)


def covered(pairs: list[tuple[int, int]]) -> set[int]:
    """The unit cells that the intervals cover, one by one."""
    return {cell for start, end in pairs for cell in range(start, end)}


def cells(found: Intervals) -> set[int]:
    """The cells of a result, which must be sorted, disjoint, merged and without empty rows."""
    assert found.shape == (len(found), 2)
    assert (found[:, 0] < found[:, 1]).all()
    assert (found[1:, 0] > found[:-1, 1]).all()
    return covered([(int(start), int(end)) for start, end in found])


@given(PAIRS, PAIRS)
@settings(max_examples=150, deadline=None)
def test_sets_are_those_of_counting(first, second):
    one, other = rows(first), rows(second)
    assert cells(union(one)) == covered(first)
    assert cells(intersection(one, other)) == covered(first) & covered(second)
    assert cells(difference(one, other)) == covered(first) - covered(second)
    assert length(one) == len(covered(first))


@given(PAIRS, PAIRS, st.integers(-(10**12), 10**12))
@settings(max_examples=50, deadline=None)
def test_a_shift_and_an_order_change_nothing(first, second, shift):
    one, other = rows(first), rows(second)
    assert np.array_equal(intersection(one + shift, other + shift), intersection(one, other) + shift)
    assert np.array_equal(difference(one[::-1], other[::-1]), difference(one, other))


def test_a_hundred_thousand_intervals_are_counted_cell_by_cell():
    draw = np.random.default_rng(3)
    ends = 1_000_000
    starts = draw.integers(0, ends, size=(2, 100_000))
    spans = draw.integers(0, 9, size=(2, 100_000))
    masks = np.zeros((2, ends + 10), dtype=bool)
    for side in range(2):
        for start, span in zip(starts[side], spans[side], strict=True):
            masks[side, start : start + span] = True
    one, other = (np.stack([starts[side], starts[side] + spans[side]], axis=1).astype(float) for side in range(2))
    assert length(one) == masks[0].sum()
    assert length(intersection(one, other)) == (masks[0] & masks[1]).sum()
    assert length(difference(one, other)) == (masks[0] & ~masks[1]).sum()


@pytest.mark.parametrize("operation", [intersection, difference])
def test_nothing_with_nothing_is_nothing(operation):
    assert operation(rows([]), rows([])).shape == (0, 2)
    assert union(rows([(3, 3)])).shape == (0, 2)
