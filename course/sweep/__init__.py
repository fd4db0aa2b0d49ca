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
from collections.abc import Iterable
from typing import Any

import numpy as np

from course.predict.columns import Columns, to_layout
from course.predict.constants import constants_for
from course.predict.report import counted, document
from course.problem import Run
from course.stops import stops
from course.sweep.search import MOST_CANDIDATES, TIE, Search, search
from course.sweep.why import whys

__all__ = ["MOST_CANDIDATES", "PROPOSED", "TIE", "Search", "described", "proposal", "search", "sweep"]

PROPOSED = 6
"""Layouts of the short sweep to measure."""


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


def described(run: Run, found: Search, top: int = 10, free: bool = True) -> dict[str, Any]:
    """The document of a search that is done; `free` says that it held no field, so that `stops` may use its result."""
    proposed = proposal(found, found.fitting)
    rows = sorted({*range(min(top, found.fitting)), *proposed})
    constants, known = constants_for(run), counted(run)
    without_layout = dataclasses.replace(run, layout=None)
    reasons = whys(without_layout, found, rows)
    layouts = [
        {
            "layout": dataclasses.asdict(to_layout(found.columns, row, found.order)),
            "why": reason,
            **document(without_layout, found.columns, found.values, row, [], constants, known),
        }
        for row, reason in zip(rows, reasons, strict=True)
    ]
    return {
        "candidates": found.candidates,
        "legal": found.legal,
        "fitting": found.fitting,
        "rejected": found.rejected,
        "last_constraint": found.last_constraint,
        "ranked_by": f"step time on the {run.cluster.devices} devices held (so accelerator-hours too); "
        f"layouts within {100 * TIE:.0f} % of the best count as equal: fewest axes first, then the smallest "
        "tensor x pipeline group, the least sharding, the fewest chunks a stage, the shortest time",
        "ties": [place for place, row in enumerate(rows) if row < found.ties],
        "pareto": _pareto(found.values, rows),
        "proposal": [rows.index(row) for row in proposed],
        "stops": stops(run, _best_time, _best_of(found) if free else None),
        "layouts": layouts,
    }


def proposal(found: Search, among: int) -> list[int]:
    """A short sweep to measure: of the first `among` layouts, the best of each different way to split, best first."""
    ways = np.stack([found.columns[name][:among] for name in ("tensor", "pipeline", "sharding")], axis=1)
    _, first = np.unique(ways, axis=0, return_index=True) if among else (None, np.zeros(0, int))
    chosen = [int(row) for row in np.sort(first)][:PROPOSED]
    rest = [row for row in range(min(among, 2 * PROPOSED)) if row not in chosen]
    return sorted(chosen + rest[: PROPOSED - len(chosen)])


def _pareto(values: Columns, rows: list[int]) -> list[int]:
    """Of the layouts shown, those no other beats in both time and memory.

    All hold the same devices, so the fastest is also the cheapest; memory left over is what time can be traded for.
    """
    if not rows:
        return []
    points = list(zip(values["time_s"][rows].tolist(), values["peak_bytes"][rows].tolist(), strict=True))
    return [i for i, p in enumerate(points) if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)]


def _best_time(run: Run) -> tuple[float, float] | None:
    return _best_of(search(run))


def _best_of(found: Search) -> tuple[float, float] | None:
    """Step time and compute time of the fastest layout that fits, or None where none does."""
    if not found.fitting:
        return None
    best = int(np.argmin(found.values["time_s"]))
    return float(found.values["time_s"][best]), float(found.values["compute_s"][best])
