"""The search behind a sweep: enumerate, drop what is illegal, evaluate the rest at once, drop what does not fit, rank.

Two spellings of one layout count once: a group of one shards nothing, and a pipeline of one stage has no schedule.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from course.errors import UserError
from course.fields import LAYOUT_FIELDS, nearest
from course.legality import RECOMPUTES, SCHEDULES, SHARDINGS, violations
from course.predict.columns import CODES, Columns, derived
from course.predict.evaluate import evaluate
from course.problem import Run

TIE = 0.05
"""Layouts within this share of the best time count as equal: a rule for ranking, not the error of the model."""

MOST_CANDIDATES = 1_000_000
LARGEST_TENSOR, MOST_CHUNKS, LARGEST_MICRO_BATCH = 64, 16, 16
"""Where the search ends on its own; a larger value can be asked for with --fix."""

COMPARED = ("data", "tensor", "pipeline", "interleave", "micro_batch", "sharding", "recompute")
"""Axes whose every value is remembered with the best it allows."""


@dataclasses.dataclass(frozen=True)
class Best:
    """Of all legal layouts with one value of one axis: the shortest step that fits (inf: none), the least memory."""

    time_s: float
    peak_bytes: float


@dataclasses.dataclass(frozen=True)
class Search:
    """A search done: fitting layouts in ranked order, and what became of the others.

    `rejected` counts by rule, in the order in which the rules are asked; `best` holds axis -> value -> what it allows.
    """

    columns: Columns
    values: Columns
    order: tuple[str, ...]
    candidates: int
    legal: int
    rejected: dict[str, int]
    ties: int
    best: dict[str, dict[int, Best]]

    @property
    def fitting(self) -> int:
        """How many legal layouts fit."""
        return len(self.columns["data"])

    @property
    def last_constraint(self) -> str | None:
        """The rule that removed the last candidate; None where a layout is left."""
        return None if self.fitting else list(self.rejected)[-1]


def search(run: Run, fix: Iterable[str] = ()) -> Search:
    """Search the layouts of a run; arguments and errors as for `course.sweep.sweep`.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> found = search(load(path("llama-3-8b-8-h100")))
    >>> found.candidates == found.fitting + sum(found.rejected.values())
    True
    """
    fixed = _fixed(run, tuple(fix))
    order = fixed.pop("order", run.software.order)
    free = dataclasses.replace(run, layout=None)
    columns = _candidates(run, fixed)
    candidates = len(columns["data"])
    columns, rejected = _drop_illegal(free, columns)
    legal = len(columns["data"])
    if not legal:
        return Search(columns, {"time_s": np.zeros(0)}, order, candidates, 0, rejected, 0, {})
    values = evaluate(free, columns, order)
    best = {name: _best(columns[name], values) for name in COMPARED}
    fits = values["fits"]
    if not fits.all():
        rejected["memory"] = int((~fits).sum())
    columns, values = take(columns, fits), take(values, fits)
    ranked, ties = _rank(columns, values)
    return Search(take(columns, ranked), take(values, ranked), order, candidates, legal, rejected, ties, best)


def take(columns: Columns, rows: Any) -> Columns:
    """The named rows (a mask, numbers or a slice) of every column."""
    return {name: column[rows] for name, column in columns.items()}


def _candidates(run: Run, fixed: dict[str, Any]) -> Columns:
    axes = _axes(run, fixed)
    schedules = [
        (schedule, chunks)
        for schedule in _choices(fixed, "schedule", range(len(SCHEDULES)))
        for chunks in _choices(fixed, "interleave", range(1, 1 + min(MOST_CHUNKS, max(1, (run.model.layers + 2) // 2))))
        if (schedule == SCHEDULES.index("interleaved")) == (chunks > 1)
    ]
    sizes = [len(choices) for choices in axes.values()] + [len(schedules)]
    if math.prod(sizes) > MOST_CANDIDATES:
        raise UserError(
            f"This search has {math.prod(sizes):,} candidates, more than {MOST_CANDIDATES:,}. "
            "Hold a field or two of [layout] with --fix, for instance tensor or micro_batch."
        )
    *places, schedule = (grid.ravel() for grid in np.indices(sizes))
    columns = {
        name: np.array(choices, float)[place] for (name, choices), place in zip(axes.items(), places, strict=True)
    }
    columns["schedule"], columns["interleave"] = np.array(schedules, float).reshape(-1, 2)[schedule].T
    columns["context"] = np.ones(len(schedule))
    rest = np.floor(run.cluster.devices / (columns["tensor"] * columns["pipeline"]))
    columns["data"] = np.full(len(schedule), fixed["data"]) if "data" in fixed else np.maximum(rest, 1.0)
    group = columns["data"] * columns["context"]
    columns["shard_group"] = np.full(len(schedule), fixed["shard_group"]) if "shard_group" in fixed else group
    split = (columns["tensor"] > 1).astype(float)
    columns["sequence_parallel"] = np.full(len(schedule), fixed.get("sequence_parallel", 1.0)) * split
    again = np.zeros(len(schedule), bool)
    if "sharding" not in fixed:
        again |= (columns["shard_group"] <= 1) & (columns["sharding"] > 0)
    if "schedule" not in fixed:
        again |= (columns["pipeline"] == 1) & (columns["schedule"] != SCHEDULES.index("1f1b"))
    return derived(take(columns, ~again), run)


def _axes(run: Run, fixed: dict[str, Any]) -> dict[str, list[float]]:
    devices, layers, heads = run.cluster.devices, run.model.layers, run.model.heads
    recompute = [c for c, name in enumerate(RECOMPUTES) if name != "selective" or not run.software.flash_attention]
    free: dict[str, Iterable[float]] = {
        "tensor": [n for n in _divisors(devices, LARGEST_TENSOR) if heads % n == 0],
        "pipeline": _divisors(devices, layers + 2),
        "micro_batch": _divisors(run.training.global_batch_sequences, LARGEST_MICRO_BATCH),
        "sharding": range(len(SHARDINGS)),
        "recompute": recompute,
    }
    return {name: _choices(fixed, name, choices) for name, choices in free.items()}


def _choices(fixed: dict[str, Any], name: str, free: Iterable[float]) -> list[float]:
    return [fixed[name]] if name in fixed else [float(n) for n in free]


def _divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def _fixed(run: Run, fix: tuple[str, ...]) -> dict[str, Any]:
    """The values to hold, as columns hold them: numbers and codes."""
    if not fix:
        return {}
    if run.layout is None:
        raise UserError("--fix names fields of [layout], and the run file has none. Add it with the values to hold.")
    fixed: dict[str, Any] = {}
    for name in fix:
        if name == "stage_layers":
            raise UserError("--fix stage_layers: the layers of a stage follow from pipeline. Fix pipeline instead.")
        if name not in LAYOUT_FIELDS:
            raise UserError(
                f"--fix {name[:80]}: [layout] has no such field; the nearest name is {nearest(name, LAYOUT_FIELDS)}."
            )
        value = getattr(run.layout, name)
        fixed[name] = value if name == "order" else float(CODES[name].index(value) if name in CODES else value)
    return fixed


def _drop_illegal(run: Run, columns: Columns) -> tuple[Columns, dict[str, int]]:
    """Keep the legal rows; a row that breaks several rules is counted under the first."""
    left = np.ones(len(columns["data"]), bool)
    rejected = {}
    for code, broken in violations(run, columns).items():
        hit = left & broken
        if hit.any():
            rejected[code] = int(hit.sum())
        left &= ~broken
    return take(columns, left), rejected


def _rank(columns: Columns, values: Columns) -> tuple[np.ndarray, int]:
    """Row numbers in ranked order, and how many of them tie with the best."""
    time = values["time_s"]
    if not len(time):
        return np.arange(0), 0
    tied = time <= time.min() * (1 + TIE)
    axes = sum((columns[name] > 1).astype(int) for name in ("tensor", "pipeline", "data", "context"))
    group = columns["tensor"] * columns["pipeline"]
    simple = (axes, group, columns["sharding"], columns["interleave"])  # fewest axes first, chunks last
    keys = [np.where(tied, key, 0) for key in simple]
    return np.lexsort((time, *keys[::-1], ~tied)), int(tied.sum())


def _best(column: np.ndarray, values: Columns) -> dict[int, Best]:
    table = {}
    for value in np.unique(column):
        rows = column == value
        times = values["time_s"][rows & values["fits"]]
        table[int(value)] = Best(float(times.min(initial=np.inf)), float(values["peak_bytes"][rows].min()))
    return table
