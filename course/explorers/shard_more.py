"""Two more explorers of step 3: `latents`, what attention passes round context ranks, and `legal`, who divides what.

`latents_view` and `legal_view` take values and give sentence, table and picture data; the widgets are the frame's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from course import catalog
from course import shard as step
from course.explorers.base import Choice, Explorer, Number, View
from course.explorers.shared import asked
from course.legality import violations
from course.pictures.live import Section, Stacks
from course.pictures.shard import DIVISION_COLOURS, LATENT_COLOURS
from course.predict.columns import from_layout
from course.problem import Layout

__all__ = ["latents", "latents_view", "legal", "legal_view"]

WIDTH = 5.8
POWERS = {f"{2**power:,}": 2**power for power in range(11)}
FEW = dict(list(POWERS.items())[:7])
LATENT_MODEL = "deepseek-v3"


# ---------------------------------------------------------------- latent attention
def latents_view(sequence_length: int, tensor: int, context: int, kv_heads: int) -> View:
    """Bytes of one context unit of a layer: wide keys and values, their latent, or plain heads of 128.

    Args:
        sequence_length: tokens of a sequence.
        tensor: tensor ranks, which divide heads.
        context: context ranks.
        kv_heads: key/value heads of the plain attention beside it.
    """
    model = catalog.model(LATENT_MODEL)
    batch = {"activation_bytes": 2, "micro_batch": 1, "sequence_length": sequence_length, "context": context}
    widths = {name: getattr(model, name) for name in ("heads", "nope_head_size", "rope_head_size", "v_head_size")}
    sent = {
        "wide keys and values": step.expanded_context_bytes(**batch, **widths, tensor=tensor),
        "latent": step.latent_context_bytes(**batch, kv_lora=model.kv_lora, rope_head_size=model.rope_head_size),
        # heads that do not divide are copied: a rank passes at least one
        "plain heads": step.context_unit_bytes(
            **batch, kv_heads=max(kv_heads, tensor), head_size=128, tensor=tensor
        ),
    }  # fmt: skip
    least = min(sent, key=lambda name: sent[name])
    said = "one rank has nobody to send to" if context == 1 else f"the fewest bytes are those of the {least}"
    return View(
        f"{sequence_length:,} tokens on {context} context and {tensor} tensor ranks: {said}.",
        ("what passes", "numbers of a token", "a unit of a layer (MB)"),
        tuple(
            (name, f"{value / 2 / sequence_length * context / max(context - 1, 1):,.0f}", f"{value / 1e6:,.1f}")
            for name, value in sent.items()
        ),
        {
            "finding": f"Widths of DeepSeek-V3 beside {kv_heads} heads of 128",
            "sections": [
                Section("sent by a device for a layer (MB)", {name: {name: value} for name, value in sent.items()},
                        lambda value: f"{value / 1e6:,.1f}"),
            ],
        },
    )  # fmt: skip


def latents(*, ask: str | None = None, **values: Any) -> Explorer:
    """What latent attention passes round context ranks; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Number("sequence_length", "sequence (tokens)", 131072, 1024, 2**20, whole=True, logarithmic=True),
        Choice("tensor", "tensor ranks", 1, dict(list(POWERS.items())[:6])),
        Choice("context", "context ranks", 16, FEW),
        Choice("kv_heads", "plain key/value heads", 8, FEW),
    )
    return Explorer(
        controls, latents_view, lambda: Stacks(LATENT_COLOURS, WIDTH, 2.9, labels=1.9), ask=ask, values=values
    )


# ---------------------------------------------------------------- legality
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
