"""The explorer of a larger batch's price: steps and sequences to one target, fitted to two batches, tried on others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from course import scaling as step
from course.errors import UserError
from course.explorers.base import Choice, Explorer, Number, View
from course.pictures.place import Line
from course.pictures.scaling import Bands

__all__ = ["batches", "batches_view", "fitted", "used"]

NAMED = {"Llama 2 70B, LoRA fine-tuning": "llama2_70b_lora", "GPT-3 175B, a part of its pretraining": "gpt3"}
EVERY = {"llama2_70b_lora": 384, "gpt3": 24576}
"""Sequences between two evaluations, as the counts of the records show: nobody stops in between."""


@cache
def used(benchmark: str) -> Mapping[int, tuple[float, ...]]:
    """Batch to the sequences that entries of a benchmark used to the target with it."""
    found: dict[int, list[float]] = {}
    for one in step.batches_to_target(benchmark):
        found.setdefault(one.batch, []).append(one.sequences)
    return {batch: tuple(values) for batch, values in sorted(found.items())}


def fitted(small: int, large: int, sequences: tuple[float, float]) -> tuple[float, float]:
    """(n_min, e_min): the line e = e_min + n_min B through two batches.

    Raises:
        UserError: the larger batch needed no more sequences: the model has nothing to fit.
    """
    few, many = sequences
    steps = (many - few) / (large - small)
    least = few - steps * small
    if not (steps > 0 and least > 0):
        raise UserError(
            "large (the larger fitted batch) must be a batch that needed more sequences than small, and not in "
            "proportion to the batch."
        )
    return steps, least


def batches_view(benchmark: str, small: int, large: int, step_time: float, devices: int) -> View:
    """Sequences and steps to the target by batch: measured, and by the model through two of them.

    Args:
        benchmark: "llama2_70b_lora" or "gpt3".
        small: the smaller fitted batch, in sequences.
        large: the larger one.
        step_time: seconds of a step with the smaller batch on `devices`; larger batches get devices in proportion.
        devices: for the smaller batch.
    """
    if not small < large:
        raise UserError("large (the larger fitted batch) must be above small.")
    if not step_time > 0 or devices < 1:
        raise UserError("step_time must be above 0 and devices 1 or more.")
    measured = {batch: median(values) for batch, values in used(benchmark).items()}
    steps, least = fitted(small, large, (measured[small], measured[large]))
    model = {"least_steps": steps, "least_sequences": least}
    room = np.geomspace(min(measured) / 2, max(measured) * 4, 41)
    rows = []
    for batch, sequences in measured.items():
        given = {**model, "global_batch_sequences": batch}
        predicted, many = float(step.sequences_to_target(**given)), devices * batch / small
        time = float(step.time_to_target(**given, step_time=step_time))
        rows.append((f"{batch:,}", f"{sequences:,.0f}", f"{predicted:,.0f}", f"{sequences / predicted - 1:+.0%}",
                     f"{sequences / batch:,.0f}", f"{many:,.0f}", f"{time / 60:,.1f}",
                     f"{time * many / 3600:,.0f}"))  # fmt: skip
    critical = float(step.critical_batch(**model))
    wide = EVERY[benchmark]
    line = np.asarray(step.sequences_to_target(**model, global_batch_sequences=room))
    return View(
        f"Through batches of {small:,} and {large:,}: at least {steps:,.0f} steps and {least:,.0f} sequences, critical "
        f"batch {critical:,.0f}. An entry stops at an evaluation, every {wide:,} sequences: the band is one of them "
        "either way.",
        ("batch", "sequences used", "by the model", "off by", "steps", "devices, weak", "minutes", "device-hours"),
        tuple(rows),
        {
            "finding": "A larger batch reads more to the same target",
            "curves": {
                "measured (median)": Line(list(measured), list(measured.values()), marks=True),
                "model": Line(room, line),
            },
            "band": (room, np.maximum(line - wide, line / 10), line + wide),
            "place": (critical, "critical batch"),
        },
    )


def batches(*, ask: str | None = None, **values: Any) -> Explorer:
    """Steps and sequences to a target by batch. `ask` is to be guessed first; Reset comes back to `values`."""
    def all_but_last(now: Mapping[str, Any]) -> dict[str, int]:
        return {f"{batch:,}": batch for batch in list(used(now["benchmark"]))[:-1]}

    def larger(now: Mapping[str, Any]) -> dict[str, int]:
        return {f"{batch:,}": batch for batch in used(now["benchmark"]) if batch > now["small"]}

    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        if name != "benchmark":
            return {}
        found = list(used(now["benchmark"]))
        return {"small": found[0], "large": found[-1]}

    controls = (
        Choice("benchmark", "target", "llama2_70b_lora", NAMED),
        Choice("small", "fitted: batch", 8, all_but_last),
        Choice("large", "and", 128, larger),
        Number("step_time", "seconds of a step", 0.5, 0.1, 100, logarithmic=True),
        Number("devices", "devices for the small batch", 64, 1, 4096, whole=True, logarithmic=True),
    )
    return Explorer(controls, batches_view, lambda: Bands("batch (sequences)", "sequences to the target", 6.2, 4.2),
                    follow=follow, ask=ask, values=values)  # fmt: skip
