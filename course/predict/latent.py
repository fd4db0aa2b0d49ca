"""Latent attention on one tensor rank: its matmuls, what its latents cost in memory traffic, and what they keep.

Queries, keys, values and outputs together are as wide as those of plain attention with as many key/value heads as heads
and a head as wide as the mean of a query head and a value head; so the formulas of plain attention serve.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.estimate import shape
from course.formula import Formula, Step
from course.predict.experts import Columns, Matmul
from course.problem import Model
from course.symbols import symbols
from course.units import DEVICE, TOKEN

b_a, r_q, r_kv, B, T, C_p, T_p, s_p = symbols(
    "activation_bytes", "q_lora", "kv_lora", "micro_batch", "sequence_length", "context", "tensor", "sequence_sharded"
)
_held = s_p / T_p + 1 - s_p

latent_norm_bytes = Formula(
    "latent_norm_bytes",
    "Q_lat",
    2 * b_a * (r_q + r_kv) * B * T / C_p / TOKEN * _held / DEVICE,
    "byte/device",
    "bytes of the norms of one layer's latents, forward",
    derivation=(
        Step("each latent is read and written",
             b_a * (r_q + r_q + r_kv + r_kv) * (B * T / C_p / TOKEN) * (s_p * (1 / T_p) + (1 - s_p)) / DEVICE),
    ),
)  # fmt: skip

latent_saved_bytes = Formula(
    "latent_saved_bytes",
    "A_r",
    2 * b_a * (r_q + r_kv) * _held / TOKEN,
    "byte/token",
    "bytes one layer's latents keep for backward for one token, on one tensor rank",
    assumptions=("each latent is kept before and after its norm", "sequence parallelism shares the tokens out"),
    derivation=(
        Step("two copies of each latent", b_a * (r_q + r_q + r_kv + r_kv) * (s_p * (1 / T_p) + (1 - s_p)) / TOKEN),
    ),
)  # fmt: skip


def widths(model: Model) -> dict[str, Any]:
    """The widths of a model as the formulas of plain attention take them, whatever attention it has.

    >>> from course import catalog
    >>> wide = widths(catalog.model("deepseek-v3"))
    >>> wide["kv_heads"], wide["head_size"]  # (128 + 64 + 128) / 2
    (128, 160.0)
    """
    found = shape(model)
    if model.kv_lora:
        found["kv_heads"] = model.heads
        found["head_size"] = (model.nope_head_size + model.rope_head_size + model.v_head_size) / 2
    return found


def matmul_time(model: Model, columns: Columns, rows: np.ndarray, matmul: Matmul) -> np.ndarray:
    """Seconds of the matmuls of latent attention: down and up for queries, for keys and values, and the way back.

    The matrices down are whole on every tensor rank, which works on the tokens it holds; those up are split by heads.
    """
    around = rows * (columns["sequence_parallel"] / columns["tensor"] + 1 - columns["sequence_parallel"])
    queries = model.heads * (model.nope_head_size + model.rope_head_size)
    keys_values = model.heads * (model.nope_head_size + model.v_head_size)
    if model.q_lora:
        time = matmul(model.hidden, model.q_lora, around, 1.0) + matmul(model.q_lora, queries)
    else:
        time = matmul(model.hidden, queries)
    return (
        time + matmul(model.hidden, model.kv_lora + model.rope_head_size, around, 1.0)
        + matmul(model.kv_lora, keys_values) + matmul(model.hidden, model.heads * model.v_head_size)
    )  # fmt: skip
