"""A run file made from the fields a case speaks of."""

from __future__ import annotations

import json
from typing import Any

from course.problem import Run, loads

MODEL = {
    "layers": 8, "hidden": 6144, "heads": 48, "kv_heads": 48, "head_size": 128, "ffn": 36960, "vocabulary": 32000,
    "gated_mlp": True, "tied_embeddings": False,
}  # fmt: skip


def run_with(
    devices: int,
    layout: str = "",
    sequence_length: int = 4096,
    global_batch: int = 64,
    recipe: str = "megatron",
    **shape: Any,
) -> Run:
    fields = "\n".join(f"{key} = {json.dumps(value)}" for key, value in (MODEL | shape).items())
    return loads(
        f"""
[model]
{fields}
[training]
tokens = 1e12
sequence_length = {sequence_length}
global_batch_sequences = {global_batch}
[software]
recipe = "{recipe}"
[cluster]
accelerator = "h100-sxm"
devices = {devices}
fabric = "h100-ib400"
[layout]
{layout}
"""
    )
