"""The run a layout question is about: a model, a batch and devices put in the place of an example's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from course import catalog, examples
from course.problem import Run, load

__all__ = ["run_on"]


@cache
def run_on(model: str, batch: int, length: int, goal: Any = None, **cluster: Any) -> Run:
    """A run without a layout: `batch` sequences of `length` tokens a step, on 8 H100 where nothing else is said.

    Args:
        model: a name of the catalog.
        batch: sequences of a step.
        length: tokens of a sequence.
        goal: that of the run; the example's where it is None.
        **cluster: fields of the cluster to replace: `devices`, `accelerator`, `fabric`.

    >>> run = run_on("llama-3-70b", 64, 4096, devices=32)
    >>> run.model.name, run.training.tokens_per_step, run.cluster.devices, run.layout
    ('llama-3-70b', 262144, 32, None)
    """
    base = load(examples.path("llama-3-8b-8-h100"))
    return replace(
        base,
        model=catalog.model(model),
        training=replace(base.training, global_batch_sequences=batch, sequence_length=length),
        cluster=replace(base.cluster, **cluster),
        goal=base.goal if goal is None else goal,
        layout=None,
    )
