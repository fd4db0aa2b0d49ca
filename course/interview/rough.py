"""The second routes: parameters by the widths of a layer on a napkin, and a short grid around a layout."""

from __future__ import annotations

import itertools
from typing import Any

from course.interview.study import Study
from course.problem import Layout, Model

__all__ = ["grid_around", "grid_layouts", "rough_parameters"]

MOST_RUNS, FEWEST_RUNS = 12, 3
"""Runs of a sweep that is short enough to measure and long enough to compare."""


def rough_parameters(model: Model) -> float:
    """Parameters by widths alone: attention and MLP of a layer, times layers, plus tables; no norms, no biases.

    >>> from course import catalog
    >>> round(rough_parameters(catalog.model("llama-3.1-70b")) / 1e9, 1)
    70.6
    """
    matrices = 3 if model.gated_mlp else 2
    attention = 2 * model.hidden * (model.heads + model.kv_heads) * model.head_size
    if model.kv_lora:
        attention = 2 * model.hidden * (model.q_lora + model.kv_lora) + 2 * model.hidden * model.heads * 128
    dense = int(model.dense_layers or 0)
    mixture = model.layers - dense if model.experts else 0
    experts = (model.experts + model.shared_experts) * matrices * model.hidden * model.expert_ffn
    mlp = matrices * model.hidden * model.ffn
    tables = (1 if model.tied_embeddings else 2) * model.vocabulary * model.hidden
    return float(model.layers * attention + mixture * experts + (model.layers - mixture) * mlp + tables)


def grid_layouts(known: Study, grid: dict[str, Any], layout: Layout) -> tuple[int, list[dict[str, Any]], float]:
    """How many combinations a grid has, those that are legal and fit, and the shortest step among them.

    Args:
        known: the question.
        grid: field -> values to try; fields that are not in it stay as in `layout`.
        layout: the candidate's own.
    """
    base = {
        name: getattr(layout, name)
        for name in ("tensor", "pipeline", "context", "expert", "expert_tensor", "sharding", "recompute",
                     "micro_batch", "interleave")
    }  # fmt: skip
    names = [name for name in grid if name in base]
    combined = [dict(zip(names, values, strict=True)) for values in itertools.product(*(grid[name] for name in names))]
    kept: list[dict[str, Any]] = []
    best = float("inf")
    for change in combined[:500]:
        found = known.fastest({**base, **change})
        if found is not None:
            kept.append(change)
            best = min(best, found[0])
    return len(combined), kept, best


def grid_around(known: Study, layout: Layout) -> dict[str, list[Any]]:
    """A short grid of legal neighbours of a layout, itself among them."""
    grid: dict[str, list[Any]] = {}
    for name, value in _neighbours(layout):
        longer = {**grid, name: sorted({*grid.get(name, [getattr(layout, name)]), value}, key=str)}
        count, kept, _ = grid_layouts(known, longer, layout)
        if count <= 8 and len(kept) > len(grid_layouts(known, grid, layout)[1]) and 2 * len(kept) > count:
            grid = longer
    return grid


def _neighbours(layout: Layout) -> list[tuple[str, Any]]:
    ladder = ["none", "zero1", "zero2", "zero3"]
    place = ladder.index(layout.sharding)
    near = [("sharding", ladder[other]) for other in (place + 1, place - 1, place + 2, place - 2) if 0 <= other < 4]
    moves: list[tuple[str, Any]] = []
    for name in ("tensor", "pipeline", "context", "micro_batch"):
        value = getattr(layout, name)
        moves += [(name, 2 * value), *([(name, value // 2)] if value % 2 == 0 else [])]
    other = "none" if layout.recompute == "full" else "full"
    chunks = [("interleave", count) for count in (1, 2, 4) if layout.pipeline > 1 and count != layout.interleave]
    experts = [("expert", 2 * layout.expert), ("expert", layout.expert // 2)] if layout.expert > 1 else []
    return [*moves, near[0], ("recompute", other), *experts, *near[1:], *chunks]
