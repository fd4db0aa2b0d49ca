"""A check compares a formula with answers that were found without it; they are computed once and kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from course.formula import Formula

Answers: TypeAlias = Iterable[tuple[dict[str, Any], Any]]
"""Pairs of (arguments of the formula, the independent answer)."""
Check: TypeAlias = Callable[[Formula], None]
"""Raises AssertionError where a formula disagrees with its oracle."""

EXACT = 1e-9
"""Relative tolerance for an answer that is exact but for rounding."""


def agrees(find: Callable[[], Answers], tolerance: float = EXACT) -> Check:
    """A check that a formula gives the answers of `find`, within a relative `tolerance` (absolute where that is 0)."""

    @functools.cache
    def known() -> tuple[dict[str, np.ndarray], np.ndarray]:
        pairs = list(find())
        assert len(pairs) > 0, f"{find.__name__} gives no answer"
        columns = {key: np.array([float(given[key]) for given, _ in pairs]) for key in pairs[0][0]}
        return columns, np.array([float(answer) for _, answer in pairs])

    @functools.wraps(find)
    def check(formula: Formula) -> None:
        columns, answers = known()
        results = np.broadcast_to(formula(**columns), answers.shape)
        allowed = tolerance * np.where(answers == 0, 1.0, np.abs(answers))
        wrong = ~(np.abs(results - answers) <= allowed)  # a NaN is wrong too
        if wrong.any():
            first = int(np.argmax(wrong))
            given = {key: float(column[first]) for key, column in columns.items()}
            raise AssertionError(
                f"{formula.name} gives {results[first]} where {find.__name__} finds {answers[first]}, for {given}"
            )

    return check
