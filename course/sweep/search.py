"""The search behind a sweep: enumerate what is legal, drop what does not fit, time the rest, rank.

Memory is evaluated before time, for most layouts are too large, and in blocks, so that a search of a million layouts
holds a few numbers of each. A single layout takes the same path as a million.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from course.legality import violations
from course.predict.columns import Columns, derived, to_layout
from course.predict.constants import Constants, constants_for
from course.predict.memory import memory
from course.predict.stages import stages
from course.problem import Layout, Run
from course.sweep.axes import Axes, axes, shard_groups
from course.sweep.placement import ORDERS, evaluate_placed, fastest, orders_to_try, useful
from course.sweep.rank import ranking
from course.sweep.space import Space, space, take

COMPARED = (
    "data", "tensor", "pipeline", "context", "expert", "expert_tensor", "interleave", "micro_batch", "sharding",
    "recompute",
)  # fmt: skip
"""Axes whose every value is remembered with the best it allows."""

FIELDS = (*COMPARED, "shard_group", "schedule", "sequence_parallel", "order")
"""What makes a row a layout; the rest of its columns follows."""

KEPT = ("time_s", "compute_s", "peak_bytes", "wall_s", "accelerator_hours")
"""What is remembered of every layout that fits; the rest is evaluated again for those that are shown."""

BLOCK = 32_768
"""Rows evaluated at once: large enough that NumPy's cost a call does not show, small enough for the caches."""


@dataclasses.dataclass(frozen=True)
class Best:
    """Of all legal layouts with one value of one axis: the shortest step that fits (inf: none), the least memory."""

    time_s: float
    peak_bytes: float


@dataclasses.dataclass(frozen=True)
class Search:
    """A search done: fitting layouts in ranked order, and what became of the others.

    `rejected` counts by rule, in the order in which the rules are asked; `best` holds axis -> value -> what it allows;
    `evaluated` counts the predictions made, each layout once for every placement tried. `witness` is one layout that
    the last constraint removed, where none is left.
    """

    columns: Columns
    values: Columns
    candidates: int
    legal: int
    rejected: dict[str, int]
    ties: int
    best: dict[str, dict[int, Best]]
    evaluated: int
    witness: Columns | None

    @property
    def fitting(self) -> int:
        """How many legal layouts fit."""
        return len(self.columns["data"])

    @property
    def last_constraint(self) -> str | None:
        """The rule that removed the last candidate; None where a layout is left."""
        return None if self.fitting else list(self.rejected)[-1]

    @property
    def order(self) -> tuple[str, ...]:
        """The order of the axes of the first layout."""
        return ORDERS[int(self.columns["order"][0])] if self.fitting else ORDERS[0]

    def layout(self, row: int) -> Layout:
        """The layout of one row, as a run file may hold it: where nothing is sharded the shard group is 1."""
        found = to_layout(self.columns, row, ORDERS[int(self.columns["order"][row])])
        return found if found.sharding != "none" else dataclasses.replace(found, shard_group=1)


class _Tally:
    """What blocks add up to."""

    def __init__(self) -> None:
        self.columns: list[Columns] = []
        self.values: list[Columns] = []
        self.rejected: dict[str, int] = {}
        self.best: dict[str, dict[int, Best]] = {name: {} for name in COMPARED}
        self.legal = self.evaluated = 0
        self.witness: Columns | None = None
        self.least = np.inf

    def reject(self, counts: dict[str, int]) -> None:
        for code, count in counts.items():
            self.rejected[code] = self.rejected.get(code, 0) + count

    def improve(self, columns: Columns, name: str, amounts: np.ndarray) -> None:
        """Keep the smallest `amounts` (of time or of memory) of each value of each axis."""
        for axis in COMPARED:
            table = self.best[axis]
            for value in np.unique(columns[axis]):
                least = float(amounts[columns[axis] == value].min())
                old = table.setdefault(int(value), Best(np.inf, np.inf))
                table[int(value)] = dataclasses.replace(old, **{name: min(least, getattr(old, name))})


def search(run: Run, fix: Iterable[str] = ()) -> Search:
    """Search the layouts of a run; arguments and errors as for `course.sweep.sweep`.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> found = search(load(path("llama-3-8b-8-h100")))
    >>> found.candidates == found.fitting + sum(found.rejected.values())
    True
    """
    chosen = axes(run, fix)
    run = dataclasses.replace(run, layout=None)
    whole, constants, tally = space(run, chosen), constants_for(run), _Tally()
    tally.witness = whole.witness
    for columns, rejected, witness in whole.blocks(BLOCK):
        tally.reject(rejected)
        tally.witness = witness or tally.witness
        if len(columns["data"]):
            _evaluate_block(run, chosen, columns, constants, tally)
    return _finished(run, whole, tally)


def _evaluate_block(run: Run, chosen: Axes, columns: Columns, constants: Constants, tally: _Tally) -> None:
    """Memory of every shard group of every layout, then the time of those that fit, in each order worth trying."""
    count = len(columns["data"])
    tally.legal += count
    columns = columns | {"layout": np.arange(count)}
    grouped = [columns]
    for group in shard_groups(run, chosen, columns)[1:]:
        rows = np.isfinite(group) & (columns["sharding"] > 0)
        grouped.append(take(columns, rows) | {"shard_group": group[rows]})
    columns = derived({name: np.concatenate([part[name] for part in grouped]) for name in columns}, run)
    held = memory(run, columns, stages(run, columns))
    tally.improve(columns, "peak_bytes", held.peak)
    fits = held.peak <= run.cluster.accelerator.memory_bytes
    if not fits.any() and held.peak.min() < tally.least:
        tally.least, tally.witness = float(held.peak.min()), take(columns, [int(held.peak.argmin())])
    left = len(np.unique(columns["layout"][fits]))
    if left < count:
        tally.reject({"memory": count - left})
    if not left:
        return
    columns = take(columns | {"peak_bytes": held.peak}, fits)
    orders = orders_to_try(run, chosen)
    row, order = np.nonzero(useful(run, columns, orders, constants))
    columns = take(columns, row) | {"order": np.array(orders, float)[order]}
    values = evaluate_placed(run, columns, constants, held=False) | {"peak_bytes": columns["peak_bytes"]}
    tally.evaluated += len(row)
    plain = (columns["order"] == orders[0]) & (columns["shard_group"] == columns["data"] * columns["context"])
    best = fastest(columns["layout"], plain, values["time_s"])
    columns = take(columns, best)
    values = {name: values[name][best] for name in KEPT}
    tally.improve(columns, "time_s", values["time_s"])
    tally.columns.append({name: columns[name] for name in FIELDS})
    tally.values.append(values)


def _finished(run: Run, whole: Space, tally: _Tally) -> Search:
    found = {**whole.rejected, **tally.rejected}
    rules = [*violations(run, _nothing(run)), "memory"]
    late = {code: found[code] for code in rules if code in tally.rejected}
    rejected = {**{code: count for code, count in whole.rejected.items() if code not in late}, **late}
    if tally.columns:
        columns = derived({name: np.concatenate([part[name] for part in tally.columns]) for name in FIELDS}, run)
        values = {name: np.concatenate([part[name] for part in tally.values]) for name in KEPT}
    else:
        columns, values = _nothing(run), {name: np.zeros(0) for name in KEPT}
    ranked, ties = ranking(run, columns, values)
    return Search(
        take(columns, ranked), take(values, ranked), whole.candidates, tally.legal, rejected, ties,
        {name: dict(sorted(table.items())) for name, table in tally.best.items()}, tally.evaluated,
        None if len(ranked) else tally.witness,
    )  # fmt: skip


def _nothing(run: Run) -> Columns:
    return derived({name: np.zeros(0) for name in FIELDS}, run)
