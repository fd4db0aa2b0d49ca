"""The cells of a lab report as rows of runs, so that what one measured is held against the same predictions.

A report says less than a table of runs, and its devices are often none of the catalog's: such cells are rows all the
same, and skipped with the reason later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from course.errors import UserError
from course.records.columns import NUMBERS, RUN_COLUMNS, SWITCHES, WHOLE, Row, Value

__all__ = ["rows"]

_SHAPE = {
    "layers": "n_layers", "hidden": "hidden", "heads": "n_heads", "kv_heads": "n_kv_heads", "head_size": "head_size",
    "ffn": "ffn_hidden", "vocabulary": "vocab", "gated_mlp": "gated_mlp", "tied_embeddings": "tied_embeddings",
    "experts": "moe_experts",
}  # fmt: skip
_LAYOUT = {
    "data": "dp", "tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep", "interleave": "vpp",
    "sharding": "sharding", "recompute": "recompute", "micro_batch": "micro_batch", "schedule": "schedule",
    "sequence_parallel": "sequence_parallel",
}  # fmt: skip
_PROGRAMS = {"torch": "torch-fsdp", "jax": "maxtext"}
_PARTS = frozenset({"collective", "p2p", "matmul"})
_COLUMNS = (
    *RUN_COLUMNS, "head_size", "tied_embeddings", "sequence_parallel", "schedule", "order", "fabric", "node_size",
    "family", "unfit",
)  # fmt: skip


def rows(text: str, name: str) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Columns and rows of a lab report. Raises UserError where the text is none.

    >>> rows('{"machine": {}, "cells": [{"id": "m", "family": "matmul"}]}', "lab.json")[1][0]["unfit"]
    'a measured matmul is no training step'
    """
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{name} is no JSON. Give a report of `course lab measure`, or a CSV of runs.") from None
    cells = report.get("cells") if isinstance(report, dict) else None
    if not isinstance(cells, list) or not all(isinstance(one, dict) for one in cells):
        raise UserError(f"{name} has no list of cells. Give a report of `course lab measure`, or a CSV of runs.")
    if not cells:
        raise UserError(f"{name} holds no cells: nothing was measured.")
    machine = report.get("machine")
    return _COLUMNS, tuple(_row(one, machine if isinstance(machine, dict) else {}) for one in cells)


def _row(one: Mapping[str, Any], machine: Mapping[str, Any]) -> Row:
    model, layout = one.get("model"), _mapping(one.get("layout"))
    shape = _mapping(model)
    peak, time = _mapping(one.get("peak_flops_per_s")), _mapping(one.get("step_time_s"))
    found: dict[str, Any] = {
        "id": str(one.get("id") or ""),
        "source": "lab report",
        "model": shape.get("name") or shape.get("preset") if shape else model,
        "seq_len": one.get("sequence_length"),
        "global_batch_seqs": one.get("global_batch_sequences"),
        "micro_batch": one.get("micro_batch"),
        "software": one.get("software") or _PROGRAMS.get(str(one.get("engine")), one.get("engine")),
        "accelerator": _first(("accelerator", "device", "device_name"), one, machine),
        "n_devices": one.get("devices"),
        "dtype": _first(("precision", "dtype"), one, machine),
        "fabric": _first(("fabric",), one, machine),
        "node_size": _first(("node_size", "devices_per_node"), one, machine),
        "order": " ".join(map(str, order)) if isinstance(order := one.get("order"), list) else order,
        "mfu_reported": one.get("mfu") if peak.get("catalog") else None,
        "mfu_convention_code": one.get("flops_convention"),
        "step_time_s": time.get("p50") if time else one.get("step_time_s"),
        "peak_mem_gib": one.get("peak_memory_gib"),
        "family": one.get("family"),
    }
    found |= {column: shape.get(field) for field, column in _SHAPE.items() if field in shape}
    found |= {column: layout.get(field) for field, column in _LAYOUT.items() if layout.get(field) is not None}
    status = str(one.get("status") or "ok")
    if status in ("oom", "failed"):
        found["notes"] = f"FAILED: {one.get('reason') or status}"
    found["unfit"] = _unfit(one, status)
    return {column: _value(column, found.get(column)) for column in _COLUMNS}


def _unfit(one: Mapping[str, Any], status: str) -> str | None:
    """Why a cell is no run to predict, or None."""
    family = one.get("family")
    if family in _PARTS:
        return f"a measured {family} is no training step"
    if status in ("timeout", "refused"):
        return f"the cell was not measured: {status}"
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(names: tuple[str, ...], *places: Mapping[str, Any]) -> Any:
    """The first of the names that a place gives as text or number; of a list of devices, the first one."""
    for place in places:
        for name in names:
            value = place.get(name)
            value = value[0] if isinstance(value, list) and value else value
            value = value.get("name") if isinstance(value, dict) else value
            if isinstance(value, (str, int, float)):
                return value
    return None


def _value(column: str, value: Any) -> Value:
    """A value of the column's own type; None where the report holds none, or one of another type."""
    if column in SWITCHES:
        return value if isinstance(value, bool) else None
    if column not in WHOLE and column not in NUMBERS:
        return value if isinstance(value, str) and value else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return number if column in NUMBERS else (int(number) if number.is_integer() else None)
