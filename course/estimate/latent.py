"""Latent attention: keys and values, and mostly queries, pass through a narrow vector, the latent.

Fewer parameters than full matrices; what a layer keeps for backward shrinks only where the wide vectors are made again.

>>> v3 = {"hidden": 7168, "heads": 128, "q_lora": 1536, "kv_lora": 512, "rope_head_size": 64, "nope_head_size": 128,
...       "v_head_size": 128}
>>> f"{latent_attention_parameters(**v3, query_compressed=1):,.0f}"
'187,105,280'
"""

from __future__ import annotations

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import TOKEN

h, a, b_a = symbols("hidden", "heads", "activation_bytes")
r_q, r_kv, d_r, d_n, d_v, c_q, r_lat = symbols(
    "q_lora", "kv_lora", "rope_head_size", "nope_head_size", "v_head_size", "query_compressed", "latent_recompute"
)

_query = a * (d_n + d_r)  # numbers of all query heads; of all key heads as well
_value = a * d_v

latent_attention_parameters = Formula(
    "latent_attention_parameters",
    "P_lat",
    c_q * (h * r_q + r_q * _query) + (1 - c_q) * h * _query + h * (r_kv + d_r) + r_kv * a * (d_n + d_v) + _value * h,
    "1",
    "parameters of one layer's latent attention: its matrices, without the norms of the latents",
    assumptions=("one rotated key of d_r numbers serves all heads",),
    source="shapes of DeepSeek-V2 and V3; the totals of their released tensors",
    derivation=(
        Step("queries down and up, or in one matrix; keys and values down, with the rotated key beside them; keys and "
             "values up; the way back to the hidden width",
             c_q * r_q * (h + _query) + (1 - c_q) * (h * a * d_n + h * a * d_r)
             + h * r_kv + h * d_r + r_kv * (a * d_n) + r_kv * (a * d_v) + h * (a * d_v)),
    ),
)  # fmt: skip

latent_attention_saved = Formula(
    "latent_attention_saved",
    "A_lat",
    b_a * (2 * r_q + 2 * r_kv + _value + (1 - r_lat) * (2 * _query + _value) + r_lat * d_r) / TOKEN,
    "byte/token",
    "bytes latent attention keeps for backward for one token of one layer, between its input and its last matrix",
    assumptions=(
        "queries are compressed, flash attention",
        "each latent is kept before and after its norm",
        "the vectors around attention are counted elsewhere",
    ),
    source="counted from the tensors; making them again: DeepSeek-V3 report (2024), section 3.2.3",
    derivation=(
        Step("latents and their normed copies, attention output; then queries, keys and values, or the rotated key "
             "alone when these are made again",
             b_a * (r_q + r_q + r_kv + r_kv + a * d_v
                    + (1 - r_lat) * (_query + _query + a * d_v) + r_lat * d_r) / TOKEN),
    ),
)  # fmt: skip
