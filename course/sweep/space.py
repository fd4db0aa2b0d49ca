"""The layouts a sweep looks at: each axis with its values, combined step by step, the illegal ones dropped on the way.

A combination whose degrees break a rule never gets its micro-batches or chunks, so a space of millions costs what its
legal part costs. Those it would have had are counted all the same: `candidates` is the whole product.

Two spellings of one layout count once: one stage has no schedule, a group of one shards nothing (so that a
larger one that is held leaves no layout unsharded), one tensor rank has nobody to share the sequence with.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from course.errors import UserError
from course.legality import violations
from course.predict.columns import Columns, derived
from course.problem import Run
from course.sweep.axes import Axes, shard_groups

MOST_CANDIDATES = 5_000_000
"""Combinations a search evaluates at most, shard groups counted; a larger one is refused before it starts."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of the combination.

    `options` are columns of equal length that a row of the step before is combined with; `apt` says for each row (first
    axis) which of them (second axis) are not merely another spelling; `rules` are decided here (None: all the rest).
    """

    options: Mapping[str, np.ndarray]
    apt: Callable[[Columns], np.ndarray]
    rules: tuple[str, ...] | None


@dataclasses.dataclass(frozen=True)
class Space:
    """A space combined but for its last step, which `blocks` adds: sharding, recomputation, sequence parallelism.

    `rejected` counts by rule what fell out so far; `witness` is one combination the last rule removed, where none is
    left.
    """

    run: Run
    axes: Axes
    parents: Columns
    last: Step
    candidates: int
    rejected: dict[str, int]
    witness: Columns | None

    @property
    def size(self) -> int:
        """Combinations left, each with its shard groups; the rules of the last step may still drop some."""
        if not len(self.parents["data"]):
            return 0
        each = self.last.apt(self.parents)
        groups = np.sum([np.isfinite(g) for g in shard_groups(self.run, self.axes, self.parents)], axis=0)
        return int((each * np.where(self.last.options["sharding"] > 0, groups[:, None], 1)).sum())

    def blocks(self, rows: int) -> Iterator[tuple[Columns, dict[str, int], Columns | None]]:
        """Blocks of about `rows` legal layouts, what each rejected, and a row it rejected where nothing is left.

        Each layout shards over the whole of its data and context ranks, or over the group that is held.
        """
        several = max(1, rows // len(self.last.options["sharding"]))
        for start in range(0, len(self.parents["data"]), several):
            columns = _combined(take(self.parents, slice(start, start + several)), self.last)
            columns["sequence_parallel"] = columns["sequence_parallel"] * (columns["tensor"] > 1)
            whole = columns["data"] * columns["context"]
            columns["shard_group"] = shard_groups(self.run, self.axes, columns)[0]
            columns = derived(columns, self.run)
            yield _legal(self.run, columns, None, np.ones(len(whole)))


def take(columns: Columns, rows: Any) -> Columns:
    """The named rows (a mask, numbers or a slice) of every column."""
    return {name: column[rows] for name, column in columns.items()}


def space(run: Run, axes: Axes) -> Space:
    """Combine the axes of a run's layouts.

    Raises:
        UserError: more combinations are left than a search evaluates.
    """
    steps = _steps(axes)
    rows: Columns = {}
    rejected: dict[str, int] = {}
    candidates, witness = 0, None
    for place, step in enumerate(steps[:-1]):
        _refuse_too_many(axes, int(step.apt(rows).sum()) if rows else len(step.options["tensor"]))
        rows = _combined(rows, step) if rows else dict(step.options)
        if not place:
            rest = np.floor(run.cluster.devices / (rows["tensor"] * rows["pipeline"] * rows["context"]))
            rows["data"] = np.full_like(rest, axes.held["data"]) if "data" in axes.held else np.maximum(rest, 1.0)
        weight = np.prod([later.apt(rows).sum(axis=1) for later in steps[place + 1 :]], axis=0, dtype=float)
        candidates = candidates or int(weight.sum())
        rows, dropped, witness = _legal(run, rows, step.rules, weight)
        rejected |= dropped
        if not len(rows["data"]):
            break
    found = Space(run, axes, rows, steps[-1], candidates, rejected, witness)
    _refuse_too_many(axes, found.size)
    return found


def _steps(axes: Axes) -> list[Step]:
    """The degrees, the micro-batch, the schedule, the experts; last what shares memory and what saves it."""
    held = axes.held
    schedule, experts = axes.schedules, axes.grid("expert", "expert_tensor")
    tail = axes.grid("sharding", "recompute", "sequence_parallel")
    both = len(axes.values["sequence_parallel"]) > 1

    def every(options: Mapping[str, np.ndarray]) -> Callable[[Columns], np.ndarray]:
        return lambda rows: np.ones((_length(rows), _length(options)), bool)

    def one_stage_has_no_schedule(rows: Columns) -> np.ndarray:
        return np.asarray(((rows["pipeline"] > 1) | ("schedule" in held))[:, None] | axes.plain_schedule)

    def experts_split_as_the_rest_does(rows: Columns) -> np.ndarray:
        fold = np.mod(rows["tensor"][:, None], experts["expert_tensor"]) == 0
        return np.asarray(fold | ("expert_tensor" in held))

    def nobody_to_share_with(rows: Columns) -> np.ndarray:
        group = held.get("shard_group")
        alone = (rows["data"] * rows["context"] <= 1) if group is None else np.full(_length(rows), group == 1)
        single = (rows["tensor"] <= 1) & both
        sharded, parallel = tail["sharding"] > 0, tail["sequence_parallel"] > 0
        spelt = single[:, None] & parallel
        if "sharding" not in held:
            spelt = spelt | alone[:, None] & sharded
            if group is not None and group > 1:  # a group asked for has something to share
                spelt = spelt | ~sharded
        return np.asarray(~spelt)

    degrees, micro = axes.grid("tensor", "pipeline", "context"), axes.grid("micro_batch")
    return [
        Step(degrees, every(degrees), ("devices", "heads", "kv_heads", "ffn", "shared_ffn", "context")),
        Step(micro, every(micro), ("batch",)),
        Step(schedule, one_stage_has_no_schedule,
             ("layers", "stage_layers", "interleave", "rounds", "few_micro_batches", "split_backward")),
        Step(experts, experts_split_as_the_rest_does, ("no_experts", "experts", "expert_ffn", "expert_fold")),
        Step(tail, nobody_to_share_with, None),
    ]  # fmt: skip


def _length(columns: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))


def _combined(rows: Columns, step: Step) -> Columns:
    """Every row with every option that is apt for it."""
    parent, option = np.nonzero(step.apt(rows))
    return take(rows, parent) | {name: column[option] for name, column in step.options.items()}


_UNDECIDED = {
    "micro_batch": 1.0, "schedule": 1.0, "interleave": 1.0, "expert": 1.0, "expert_tensor": 1.0, "sharding": 0.0,
    "recompute": 0.0, "sequence_parallel": 0.0, "shard_group": 1.0,
}  # fmt: skip


def _legal(
    run: Run, rows: Columns, rules: tuple[str, ...] | None, weight: np.ndarray
) -> tuple[Columns, dict[str, int], Columns | None]:
    """The rows that keep these rules, what the others count by the first rule they break, and one that broke the last.

    Rules look at whole layouts, so columns that are not there yet stand at a value that breaks none of `rules`.
    """
    whole = rows
    if rules is not None:
        count = _length(rows)
        whole = derived({name: np.full(count, value) for name, value in _UNDECIDED.items()} | rows, run)
    left, rejected = np.ones(_length(rows), bool), {}
    witness: Columns | None = None
    for code, broken in violations(run, whole).items():
        if rules is not None and code not in rules:
            continue
        hit = left & broken
        if hit.any():
            rejected[code] = int(weight[hit].sum())
            share = np.where(hit, whole["data"] * whole["micro_batch"], np.inf)  # the smallest is the nearest to legal
            witness = take(whole, [int(np.argmin(share))])
        left &= ~broken
    return take(rows, left), rejected, None if left.any() else witness


def _refuse_too_many(axes: Axes, size: int) -> None:
    if size <= MOST_CANDIDATES:
        return
    free = {name: len(set(column)) for name, column in axes.values.items() if name not in axes.held}
    name = max(free, key=lambda axis: free[axis])
    raise UserError(
        f"This search has {size:,} candidates, more than the {MOST_CANDIDATES:,} it may evaluate, and was not started. "
        f"Hold a field or two of [layout] with --fix: {name} has {free[name]} values here, and --fix {name} leaves "
        f"about one candidate in {free[name]}; one in {math.ceil(size / MOST_CANDIDATES)} is few enough."
    )
