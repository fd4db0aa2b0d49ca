"""Oracles of latent attention and of experts: tensors written out one by one, and the totals of released models."""

from __future__ import annotations

import math
import random

from course.simulators.shapes import parameters
from oracles.checking import Answers, Check, agrees
from oracles.shapes import random_shapes

MATRICES = ("query", "key", "value", "projection")


def matrices_of_a_walk() -> Answers:
    for shape in random_shapes(20, seed=31):
        walked = {one.name: one.elements for one in parameters(shape)}
        yield (
            {"hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.kv_heads, "head_size": shape.head_size},
            sum(walked[f"layer 0 {name}"] for name in MATRICES),
        )


def experts_one_by_one() -> Answers:
    draw = random.Random(32)
    for shape in random_shapes(20, seed=33):
        experts, width, dense = draw.randint(2, 9), draw.randint(2, 30), draw.randint(0, shape.layers)
        held = 0
        for layer in range(shape.layers):
            for _ in range(experts if layer >= dense else 0):
                into, out = (2, 1) if shape.gated_mlp else (1, 1)
                held += into * shape.hidden * width + out * width * shape.hidden
        yield (
            {
                "layers": shape.layers, "hidden": shape.hidden, "mlp_matrices": 3 if shape.gated_mlp else 2,
                "experts": experts, "expert_ffn": width, "dense_layers": dense,
            },
            held,
        )  # fmt: skip


def _widths(draw: random.Random) -> dict[str, int]:
    return {
        "hidden": draw.randint(3, 40), "heads": draw.randint(1, 9), "q_lora": draw.randint(2, 30),
        "kv_lora": draw.randint(2, 30), "rope_head_size": draw.randint(1, 9), "nope_head_size": draw.randint(1, 9),
        "v_head_size": draw.randint(1, 9),
    }  # fmt: skip


def _latent_tensors(w: dict[str, int], compressed: bool) -> dict[str, tuple[int, int]]:
    """Name to shape of each matrix, as the released implementations name them."""
    key = w["nope_head_size"] + w["rope_head_size"]
    queries = {"q_a_proj": (w["hidden"], w["q_lora"]), "q_b_proj": (w["q_lora"], w["heads"] * key)}
    return (queries if compressed else {"q_proj": (w["hidden"], w["heads"] * key)}) | {
        "kv_a_proj_with_mqa": (w["hidden"], w["kv_lora"] + w["rope_head_size"]),
        "kv_b_proj": (w["kv_lora"], w["heads"] * (w["nope_head_size"] + w["v_head_size"])),
        "o_proj": (w["heads"] * w["v_head_size"], w["hidden"]),
    }


def latent_matrices_one_by_one() -> Answers:
    draw = random.Random(34)
    for number in range(40):
        widths, compressed = _widths(draw), number % 2 == 0
        held = sum(math.prod(shape) for shape in _latent_tensors(widths, compressed).values())
        yield widths | {"query_compressed": compressed}, held


def released_latent_models() -> Answers:
    """Totals of the released tensors less all that is not latent attention, spread over the layers."""
    common = {"kv_lora": 512, "rope_head_size": 64, "nope_head_size": 128, "v_head_size": 128}
    for layers, hidden, heads, rank, ffn, vocabulary, experts, shared, width, dense, bias, total in (
        (27, 2048, 16, 0, 10944, 102400, 64, 2, 1408, 1, 0, 15_706_484_224),  # DeepSeek-V2-Lite
        (60, 5120, 128, 1536, 12288, 102400, 160, 2, 1536, 1, 0, 235_741_434_880),  # DeepSeek-V2
        (61, 7168, 128, 1536, 18432, 129280, 256, 1, 2048, 3, 1, 671_026_419_200),  # DeepSeek-V3
        (61, 7168, 64, 1536, 18432, 163840, 384, 1, 2048, 1, 1, 1_026_408_232_448),  # Kimi K2
    ):
        mixed = layers - dense
        rest = 2 * vocabulary * hidden + hidden  # tables and the last norm
        rest += layers * (2 * hidden + rank + 512)  # two norms of a layer, and those of the latents
        rest += dense * 3 * hidden * ffn
        rest += mixed * (experts * hidden + bias * experts + (experts + shared) * 3 * hidden * width)
        given = common | {"hidden": hidden, "heads": heads, "q_lora": rank, "query_compressed": rank > 0}
        yield given, (total - rest) / layers


def tensors_kept_by_latent_attention() -> Answers:
    """What the backward of each operation reads, for one token."""
    draw = random.Random(35)
    for number in range(40):
        w, again, size = _widths(draw), number % 2 == 1, draw.choice((1, 2, 4))
        key = w["nope_head_size"] + w["rope_head_size"]
        kept = {
            "query norm input": w["q_lora"], "query up input": w["q_lora"],
            "key-value norm input": w["kv_lora"], "key-value up input": w["kv_lora"],
            "attention output": w["heads"] * w["v_head_size"],
        }  # fmt: skip
        if again:
            kept["rotated key"] = w["rope_head_size"]
        else:
            kept |= {"query": w["heads"] * key, "key": w["heads"] * key, "value": w["heads"] * w["v_head_size"]}
        given = {name: width for name, width in w.items() if name != "hidden"}
        yield given | {"activation_bytes": size, "latent_recompute": again}, size * sum(kept.values())


ORACLES: dict[str, list[Check]] = {
    "estimate.attention_parameters": [agrees(matrices_of_a_walk)],
    "estimate.expert_parameters": [agrees(experts_one_by_one)],
    "estimate.latent_attention_parameters": [agrees(latent_matrices_one_by_one), agrees(released_latent_models)],
    "estimate.latent_attention_saved": [agrees(tensors_kept_by_latent_attention)],
}
