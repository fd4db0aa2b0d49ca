"""Step 8, sweep: all legal layouts of a question, those that fit, ranked, with the reason for each axis.

>>> from course.examples import path
>>> from course.problem import load
>>> found = sweep(load(path("llama-3-8b-8-h100")))
>>> best = found["layouts"][0]["layout"]
>>> best["tensor"], best["pipeline"]
(1, 1)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from course.predict.constants import constants_for
from course.predict.report import counted, document
from course.problem import Run
from course.stops import Fastest, Point, points, stops
from course.sweep.placement import evaluate_placed
from course.sweep.rank import LEAST, MODEL_ERROR, MOST, TIE, pareto, ranked_by
from course.sweep.rank import proposal as proposed_rows
from course.sweep.search import Search, search
from course.sweep.space import MOST_CANDIDATES, take
from course.sweep.why import whys

__all__ = [
    "LEAST", "MODEL_ERROR", "MOST", "MOST_CANDIDATES", "TIE", "Search", "across_devices", "described", "proposal",
    "search", "sweep",
]  # fmt: skip


def sweep(run: Run, fix: Iterable[str] = (), top: int = 10) -> dict[str, Any]:
    """Rank all legal layouts of a run; the document is that of `course sweep --json`.

    Args:
        run: the question; of its layout only the fields named in `fix` are used.
        fix: fields of the layout to hold at the values of the run file.
        top: how many layouts to describe; those proposed to be measured follow them where they rank lower.

    Raises:
        UserError: a fixed field is not given, or the search is too large.
    """
    fix = tuple(fix)
    return described(run, search(run, fix), top, free=not fix)


def across_devices(run: Run, found: Search | None = None, half: Search | None = None) -> list[Point]:
    """The fastest layout of each device count, half as many and twice as many up to three times over.

    Args:
        run: the question; no field of its layout is held.
        found: the search on the run's own devices, where it is done and held no field.
        half: the same on half of them.
    """

    def best(other: Run) -> Fastest | None:
        known = half if 2 * other.cluster.devices == run.cluster.devices else None
        return _fastest(search(other) if known is None else known)

    return points(run, best, None if found is None else _fastest(found))


def described(
    run: Run, found: Search, top: int = 10, free: bool = True, counts: Sequence[Point] | None = None
) -> dict[str, Any]:
    """The document of a search that is done.

    Args:
        run: the question.
        found: its search.
        top: how many layouts to describe besides those proposed.
        free: the search held no field, so that the stops may use its result.
        counts: what `across_devices` gives, where it is known.
    """
    proposed = proposal(found)
    rows = sorted({*range(min(top, found.fitting)), *proposed})
    constants, known = constants_for(run), counted(run)
    without_layout = dataclasses.replace(run, layout=None)
    shown = take(found.columns, rows)
    values = evaluate_placed(without_layout, shown, constants) if rows else {}
    reasons = whys(without_layout, found, rows)
    layouts = [
        {
            "layout": dataclasses.asdict(found.layout(row)),
            "why": reason,
            **document(without_layout, shown, values, place, [], constants, known),
        }
        for place, (row, reason) in enumerate(zip(rows, reasons, strict=True))
    ]
    if counts is None:
        counts = across_devices(run, found if free else None)
    return {
        "candidates": found.candidates,
        "legal": found.legal,
        "fitting": found.fitting,
        "rejected": found.rejected,
        "last_constraint": found.last_constraint,
        "ranked_by": ranked_by(run, found.ties),
        "ties": [place for place, row in enumerate(rows) if row < found.ties],
        "pareto": [int(place) for place in np.flatnonzero(pareto(values))] if rows else [],
        "proposal": [rows.index(row) for row in proposed],
        "stops": stops(run.goal, counts),
        "layouts": layouts,
    }


def proposal(found: Search) -> list[int]:
    """A short sweep to measure: rows of the search, six to ten where it has as many, best first."""
    return proposed_rows(found.columns, found.ties)


def _fastest(found: Search) -> Fastest | None:
    """The fastest layout that fits, or None where none does."""
    if not found.fitting:
        return None
    best = int(np.argmin(found.values["time_s"]))
    return Fastest(float(found.values["time_s"][best]), float(found.values["compute_s"][best]), found.layout(best))
