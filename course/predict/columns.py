"""Layouts as columns: one layout is a column of length one, a sweep a column of a million."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from course.batch import accumulation
from course.legality import RECOMPUTES, SCHEDULES, SHARDINGS
from course.problem import Layout, Run
from course.shard import STAGE_FLAGS, expert_data_ranks

Columns = dict[str, np.ndarray]

DEGREES = (
    "data", "tensor", "pipeline", "context", "expert", "expert_tensor", "interleave", "micro_batch", "shard_group",
)  # fmt: skip
CODES = {"sharding": SHARDINGS, "recompute": RECOMPUTES, "schedule": SCHEDULES}
_RECIPE = {name: np.array([flags[name] for flags in STAGE_FLAGS.values()], float) for name in STAGE_FLAGS["none"]}


def from_layout(layout: Layout, run: Run) -> Columns:
    """The columns, of length one, of one layout."""
    columns = {name: np.array([float(getattr(layout, name))]) for name in DEGREES}
    columns |= {name: np.array([float(codes.index(getattr(layout, name)))]) for name, codes in CODES.items()}
    columns["sequence_parallel"] = np.array([float(bool(layout.sequence_parallel))])
    return derived(columns, run)


def derived(columns: Mapping[str, np.ndarray], run: Run) -> Columns:
    """Add what follows from the fields of a layout: accumulation, micro-batches and the flags the formulas take.

    Columns that leave out `context`, `expert` or `expert_tensor` have none of them: 1. `dense_ranks` share the state
    of what is no expert, `expert_data` ranks hold the same experts and share theirs.
    """
    out = dict(columns)
    for axis in ("context", "expert", "expert_tensor"):
        out.setdefault(axis, np.ones_like(out["data"]))
    out["dense_ranks"] = out["data"] * out["context"]
    fold = {axis: out[axis] for axis in ("tensor", "context", "data", "expert", "expert_tensor")}
    out["expert_data"] = np.maximum(expert_data_ranks(**fold), 1.0)  # below one the rule `expert_fold` says so
    replicas = np.maximum(out["dense_ranks"] / out["shard_group"], 1.0)
    out["expert_shards"] = np.maximum(out["expert_data"] / replicas, 1.0)
    whole = accumulation(
        global_batch_sequences=run.training.global_batch_sequences, data=out["data"], micro_batch=out["micro_batch"]
    )
    out["micro_batches"] = np.maximum(whole, 1.0)  # below one the layout is illegal: the rule `batch` says so
    sharding = out["sharding"].astype(int)
    out |= {name: flags[sharding] for name, flags in _RECIPE.items()}
    out["full_recompute"] = (out["recompute"] == RECOMPUTES.index("full")).astype(float)
    out["core_recompute"] = (out["recompute"] == RECOMPUTES.index("selective")).astype(float)
    return out


def to_layout(columns: Mapping[str, np.ndarray], row: int, order: tuple[str, ...]) -> Layout:
    """The layout of one row."""
    degrees = {name: int(columns[name][row]) for name in DEGREES}
    codes = {name: choices[int(columns[name][row])] for name, choices in CODES.items()}
    return Layout(**degrees, **codes, sequence_parallel=bool(columns["sequence_parallel"][row]), order=order)  # type: ignore[arg-type]
