"""The explorer `latents` of step 3: what latent attention passes round context ranks, beside plain heads."""

from __future__ import annotations

from typing import Any

from course import catalog
from course import shard as step
from course.explorers.base import Choice, Explorer, Number, View
from course.explorers.shared import powers
from course.pictures.live import Section, Stacks
from course.pictures.shard import LATENT_COLOURS

__all__ = ["latents", "latents_view"]

WIDTH = 5.8
POWERS = powers(1024)
FEW = dict(list(POWERS.items())[:7])
LATENT_MODEL = "deepseek-v3"


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
