"""Measured rows held ready for many predictions: the same questions asked again with other constants.

Rows that share a model, batch and cluster are columns of one evaluation, and reading and checking them happens once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from course.compare.mapping import Skipped, run_of
from course.compare.predictions import columns_of, measured_time
from course.legality import violations
from course.predict import evaluate
from course.predict.constants import constants_for
from course.problem import Run
from course.records.columns import Row

__all__ = ["Trial", "candidates", "trial"]

Constants = Mapping[str, float]


@dataclass(frozen=True)
class Trial:
    """Rows that can be predicted, with what was measured of them; arrays over the rows.

    `time_s` and `peak_gib` are measured, NaN where a row does not say; `legal` is False where a rule refuses the row.
    """

    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    time_s: np.ndarray
    peak_gib: np.ndarray
    legal: np.ndarray
    questions: tuple[tuple[Run, dict[str, np.ndarray], tuple[str, ...], np.ndarray], ...]

    def predict(self, constants: Constants | None = None) -> dict[str, np.ndarray]:
        """`time_s`, `peak_gib` without the margin and `fits` of every row, NaN and False where it is not legal.

        `constants` are fields of `course.predict.constants.Constants` that replace the catalog's.
        """
        out = {name: np.full(len(self.rows), np.nan) for name in ("time_s", "peak_gib")}
        fits = np.zeros(len(self.rows), bool)
        for run, columns, order, places in self.questions:
            own = replace(constants_for(run), **constants) if constants else None  # type: ignore[arg-type]
            with np.errstate(all="ignore"):
                found = evaluate(run, columns, order, own)
            out["time_s"][places] = found["time_s"]
            out["peak_gib"][places] = (found["peak_bytes"] - found["part_margin"]) / 2**30
            fits[places] = found["fits"]
        return {**out, "fits": fits}

    def column(self, name: str) -> np.ndarray:
        """A column of the rows as an array of objects."""
        return np.array([row.get(name) for row in self.rows], object)


def trial(rows: Iterable[Row]) -> Trial:
    """The rows that a prediction reaches, ready for it.

    >>> from course import records
    >>> one = trial(records.runs()[:2])
    >>> bool((abs(one.time_s / one.predict()["time_s"] - 1) < 0.5).all())
    True
    """
    kept = [(row, run) for row in rows if not isinstance(run := run_of(row), Skipped)]
    together: dict[object, list[int]] = defaultdict(list)
    for place, (_, run) in enumerate(kept):
        assert run.layout is not None
        together[run.model, run.training, run.software, run.cluster, run.layout.order].append(place)
    legal = np.ones(len(kept), bool)
    questions = []
    for places in together.values():
        runs = [kept[place][1] for place in places]
        question = replace(runs[0], layout=None)
        layouts = [run.layout for run in runs if run.layout is not None]
        columns = columns_of(layouts, question)
        broken = np.any(list(violations(question, columns).values()), axis=0)
        legal[places] = ~broken
        left = {name: column[~broken] for name, column in columns.items()}
        if not broken.all():
            questions.append((question, left, layouts[0].order, np.array(places)[~broken]))
    return Trial(
        rows=tuple(row for row, _ in kept), runs=tuple(run for _, run in kept),
        time_s=np.array([measured_time(row, run) or np.nan for row, run in kept]),
        peak_gib=np.array([row.get("peak_mem_gib") or np.nan for row, _ in kept], float),
        legal=legal, questions=tuple(questions),
    )  # fmt: skip


def candidates(grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination of a coarse grid of constants.

    >>> candidates({"matmul_share": (0.6, 0.7), "attention_share": (0.2,)})
    [{'matmul_share': 0.6, 'attention_share': 0.2}, {'matmul_share': 0.7, 'attention_share': 0.2}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
