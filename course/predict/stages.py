"""What each pipeline stage really holds. A few representative stages stand for all of them.

Stages with the same contents differ only in how many micro-batches they hold, and the first of them holds most. So at
most four stages a layout need to be looked at: the first, the first of the rest, the first after the layer count
changes, and the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.estimate import count, shape
from course.predict.experts import shared_layers
from course.predict.first_layers import walked
from course.problem import Run

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Stages:
    """Representative stages, arrays of shape (layouts, representatives).

    `index` counts from 0; `layers` each holds, `mixture` of them with experts; `stands_for` how many stages are like it
    (0: not there at all); `has_input` and `has_head` are 1 where the input table and the output head sit.
    """

    index: np.ndarray
    layers: np.ndarray
    stands_for: np.ndarray
    has_input: np.ndarray
    has_head: np.ndarray
    mixture: np.ndarray


def stages(run: Run, columns: Columns) -> Stages:
    """The representative stages of each layout.

    Even stages where layers divide by the chunks; one layer fewer on the first and the last where layers + 2 do;
    under the rule `first-extra` the first stages take the rest.
    """
    p, chunks = columns["pipeline"], columns["pipeline"] * columns["interleave"]
    if run.model.experts and 0 < (run.model.dense_layers or 0) < run.model.layers:
        return _finish(*walked(run, columns), p)
    if run.layout is not None and run.layout.stage_layers is not None:
        layers = np.array([run.layout.stage_layers], float)
        index = np.arange(layers.shape[1], dtype=float)[None, :]
        return _finish(index, layers, np.ones_like(layers), _mixture(run, layers), p)
    total = float(run.model.layers)
    even = total % chunks == 0
    ends = ~even & ((total + 2) % chunks == 0) & (p > 1)
    if run.software.stage_rule == "first-extra":
        ends = np.zeros_like(even)
    if run.software.stage_rule == "ends-one-fewer":
        ends = ((total + 2) % chunks == 0) & (p > 1)
    base = np.where(ends, (total + 2) / p, np.floor(total / p))
    extra = np.where(ends, 0.0, total - base * p)  # stages that take one layer more
    first = base - ends + (extra > 0)
    last = base - ends + (extra >= p)
    more = np.clip(extra - 1, 0, p - 2)  # middle stages with an extra layer
    fewer = np.maximum(p - 2 - more, 0)
    index = np.stack([np.zeros_like(p), np.minimum(1, p - 1), np.minimum(1 + more, p - 1), p - 1], axis=1)
    layers = np.stack([first, base + 1, base, last], axis=1)
    stands_for = np.stack([np.ones_like(p), np.maximum(more, 0), fewer, (p > 1).astype(float)], axis=1)
    return _finish(index, layers, stands_for, _mixture(run, layers), p)


def _mixture(run: Run, layers: np.ndarray) -> np.ndarray:
    """Layers with experts where all layers are alike."""
    return layers if run.model.experts and not run.model.dense_layers else np.zeros_like(layers)


def layer_parameters(run: Run) -> float:
    """Parameters of one layer, whole: those of the model less its tables and what else lies outside the layers.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> layer_parameters(load(path("llama-3-8b-8-h100"))) / 1e6
    218.112
    """
    widths = shape(run.model)
    outside = widths["embedding_tables"] * run.model.vocabulary * run.model.hidden + widths["outer_vectors"]
    return float((count(run.model).total - outside) / run.model.layers)


def stage_parameters(run: Run, columns: Columns, stages: Stages) -> np.ndarray:
    """Parameters of each representative stage, before tensor and data-parallel sharding; shape as `stages`.

    Routed experts are left out: other ranks share them. A tied table is stored once where one stage holds both ends,
    and on both ends of a pipeline.
    """
    widths = shape(run.model)
    table = float(run.model.vocabulary * run.model.hidden)
    head = np.where((widths["embedding_tables"] == 2) | (columns["pipeline"] > 1), table, 0.0)[:, None]
    ends = stages.has_input * table + stages.has_head * (head + widths["outer_vectors"])
    if run.model.experts:
        dense, mixture = shared_layers(run.model)
        return np.asarray((stages.layers - stages.mixture) * dense + stages.mixture * mixture + ends)
    return np.asarray(stages.layers * layer_parameters(run) + ends)


def _finish(
    index: np.ndarray, layers: np.ndarray, stands_for: np.ndarray, mixture: np.ndarray, p: np.ndarray
) -> Stages:
    has_input = (index == 0).astype(float)
    has_head = (index == p[:, None] - 1).astype(float)
    there = stands_for > 0
    return Stages(
        index, np.where(there, layers, 0.0), stands_for, has_input, has_head, np.where(there, mixture, 0.0)
    )  # fmt: skip
