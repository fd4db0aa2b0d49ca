"""The explorer `legal` of step 3: what is left over where an axis divides something, and the rules that breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from course import catalog
from course.explorers.base import Choice, Explorer, Number, View
from course.explorers.shared import asked
from course.legality import violations
from course.pictures.live import Section, Stacks
from course.pictures.shard import DIVISION_COLOURS
from course.predict.columns import from_layout
from course.problem import Layout

__all__ = ["legal", "legal_view"]

WIDTH = 5.8


def legal_view(
    model: str, devices: int, batch: int, micro_batch: int, tensor: int, pipeline: int, context: int
) -> View:
    """What is left over where an axis divides something, and the rules that a layout breaks; data is what is left.

    Args:
        model: a dense preset.
        devices: of the cluster.
        batch: sequences of a step, of 8,192 tokens each.
        micro_batch: sequences at once on a replica.
        tensor, pipeline, context: degrees.
    """
    group = tensor * pipeline * context
    layout = Layout(
        data=max(1, devices // group), tensor=tensor, pipeline=pipeline, context=context, micro_batch=micro_batch
    )
    run = replace(asked(model, batch, devices), layout=layout)
    shaped = run.model
    divided = (
        ("devices", devices, group), ("sequences", batch, layout.data * micro_batch),
        ("layers", shaped.layers, pipeline),
        ("query heads", shaped.heads, tensor), ("key/value heads", shaped.kv_heads, tensor),
        ("MLP width", shaped.ffn, tensor), ("tokens", 8192, tensor * context),
    )  # fmt: skip
    left = {name: {name: float(whole % by)} for name, whole, by in divided}
    broken = [code for code, column in violations(run, from_layout(layout, run)).items() if column.any()]
    said = f"breaks a rule: {', '.join(broken)}" if broken else "is legal"
    return View(
        f"Data {layout.data}, tensor {tensor}, pipeline {pipeline}, context {context} on {devices} devices {said}.",
        ("what is divided", "number", "by", "left over"),
        tuple((name, f"{whole:,}", f"{by:,}", f"{whole % by:,}") for name, whole, by in divided),
        {
            "finding": "Left over by each division",
            "sections": [Section("a layout is legal where nothing is", left, lambda value: f"{value:,.0f}")],
        },
    )


def legal(*, ask: str | None = None, **values: Any) -> Explorer:
    """Who must divide what; `ask` is guessed first, `values` are those Reset comes back to."""
    dense = [name for name in catalog.names("models") if name.startswith("llama-3")]
    small = {str(count): count for count in (1, 2, 3, 4, 6, 8, 12, 16, 24)}
    controls = (
        Choice("model", "model", "llama-3-70b", {name: name for name in dense}),
        Number("devices", "devices", 384, 1, 4096, whole=True, logarithmic=True),
        Number("batch", "sequences a step", 512, 1, 4096, whole=True, logarithmic=True),
        Choice("micro_batch", "sequences at once", 1, small),
        Choice("tensor", "tensor", 8, small),
        Choice("pipeline", "pipeline", 3, small),
        Choice("context", "context", 1, small),
    )
    return Explorer(
        controls, legal_view, lambda: Stacks(DIVISION_COLOURS, WIDTH, 4.4, labels=1.5), ask=ask, values=values
    )
