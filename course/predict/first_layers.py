"""Stages of a model whose first layers have no experts: every chunk is walked, and stages that are alike stand for one.

There are few pairs of stages and chunks in a column of a million layouts, so each is walked once and looked up.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from course.problem import Run

Columns = dict[str, np.ndarray]


def walked(run: Run, columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Index, layers, count and layers with experts of the representative stages of each layout, one column a kind."""
    rule, named = run.software.stage_rule, None if run.layout is None else run.layout.stage_layers
    pairs = np.stack([columns["pipeline"], columns["interleave"]], axis=1).astype(int)
    unique, place = np.unique(pairs, axis=0, return_inverse=True)
    dense = run.model.dense_layers or 0
    tables = [_kinds(chunks(run.model.layers, int(p), int(v), rule, named), int(p), dense) for p, v in unique]
    most = max(len(table) for table in tables)
    padded = np.zeros((len(tables), most, 4))
    for at, table in enumerate(tables):
        padded[at, : len(table)] = table
        padded[at, len(table) :, 0] = table[-1][0]  # a kind that is not there: its count is 0
    index, layers, stands_for, mixture = np.moveaxis(padded[place.ravel()], 2, 0)
    return index, layers, stands_for, mixture


@cache
def chunks(
    layers: int, pipeline: int, interleave: int, rule: str, named: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Layers of every chunk in the order in which a token passes them; stage i holds chunks i, i + pipeline and so on.

    Args:
        layers: of the model.
        pipeline, interleave: stages, and chunks on each.
        rule: how layers are spread that do not divide, as `stage_rule` of a program.
        named: layers of each stage, where they are given; each stage spreads its own over its chunks.

    >>> chunks(6, 2, 2, "even"), chunks(7, 2, 1, "first-extra"), chunks(5, 2, 2, "even", (3, 2))
    ((1, 2, 2, 1), (4, 3), (2, 1, 1, 1))
    """
    parts = pipeline * interleave
    if named is not None:
        return tuple(own // interleave + (turn < own % interleave) for turn in range(interleave) for own in named)
    ends = (layers + 2) % parts == 0 and pipeline > 1 and rule != "first-extra"
    if ends and (layers % parts or rule == "ends-one-fewer"):
        size = (layers + 2) // parts
        return (size - 1, *[size] * (parts - 2), size - 1)
    base, extra = divmod(layers, parts)
    return tuple(base + (part < extra) for part in range(parts))


def _kinds(sizes: tuple[int, ...], pipeline: int, dense: int) -> list[tuple[int, int, int, int]]:
    """(index of the first, layers, how many, layers with experts) of every kind of stage, in order of the index."""
    held, plain, before = [0] * pipeline, [0] * pipeline, 0
    for chunk, size in enumerate(sizes):
        held[chunk % pipeline] += size
        plain[chunk % pipeline] += min(max(dense - before, 0), size)
        before += size
    seen: dict[tuple[int, int, bool, bool], list[int]] = {}
    for stage in range(pipeline):
        kind = (held[stage], plain[stage], stage == 0, stage == pipeline - 1)
        seen.setdefault(kind, []).append(stage)
    return [(found[0], kind[0], len(found), kind[0] - kind[1]) for kind, found in seen.items()]
