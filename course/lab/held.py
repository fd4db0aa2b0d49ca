"""What a rank of the lab's model holds: parameters by what its layout cuts, and their gradients; exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course.estimate import attention_parameters

__all__ = ["held_bytes", "parameters", "parameters_held"]

BYTES = 4
"""Of a number in fp32, in which the lab's CPU model is kept."""


def parameters(model: Mapping[str, Any]) -> dict[str, int]:
    """The lab's model by parts: `layers` (matrices), `norms`, `embedding`, `head`; it has no biases and no positions.

    >>> sum(parameters({"layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocabulary": 512}).values())
    918656
    """
    hidden, ffn, layers = model["hidden"], model["ffn"], model["layers"]
    attention = attention_parameters(
        hidden=hidden, heads=model["heads"], kv_heads=model["heads"], head_size=hidden // model["heads"]
    )
    return {
        "layers": int(layers * (attention + 2 * hidden * ffn)),
        "norms": (2 * layers + 1) * hidden,
        "embedding": hidden * model["vocabulary"],
        "head": hidden * model["vocabulary"],
    }


def parameters_held(model: Mapping[str, Any], layout: Mapping[str, Any], engine: str = "torch") -> int:
    """Parameters on the fullest rank.

    Args:
        model: of the lab; layout: degrees and sharding of a cell.
        engine: "torch" cuts the embedding over tensor ranks, "jax" leaves it whole.

    Norms are whole on every tensor rank. The first pipeline stage has the embedding, the last the head and the last
    norm. ZeRO-2 and ZeRO-3 both keep shards between steps. Data and context ranks cut nothing.
    """
    part = parameters(model)
    tensor, stages = int(layout.get("tensor", 1)), int(layout.get("pipeline", 1))
    last_norm = int(model["hidden"])
    embedding = part["embedding"] // (tensor if engine == "torch" else 1)
    head = part["head"] // tensor + last_norm
    blocks = (part["layers"] // tensor + part["norms"] - last_norm) // stages
    held = int(blocks) + (embedding + head if stages == 1 else max(embedding, head))
    return held // int(layout["data"]) if layout.get("sharding") in ("zero2", "zero3") else held


def held_bytes(cell: Mapping[str, Any]) -> int:
    """Bytes that a rank of this cell holds between steps: parameters, and in Torch their gradients; SGD has no state.

    >>> cell = {"model": {"layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocabulary": 512}, "engine": "torch"}
    >>> held_bytes({**cell, "layout": {"data": 2}}), held_bytes({**cell, "layout": {"data": 2, "sharding": "zero3"}})
    (7349248, 3674624)
    """
    copies = 2 if cell["engine"] == "torch" else 1
    size = 2 if cell.get("precision") == "bf16" else BYTES
    return copies * size * parameters_held(cell["model"], cell["layout"], str(cell["engine"]))
