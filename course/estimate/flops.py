"""FLOPs of a token and of a run, by every named convention, from the list of matmuls."""

from __future__ import annotations

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import FLOP, SEQUENCE, TOKEN

L, h, a, d, V, P, N, S, T = symbols(
    "layers",
    "hidden",
    "heads",
    "head_size",
    "vocabulary",
    "parameters",
    "matmul_parameters",
    "tokens",
    "sequence_length",
)
r_full, r_core, m_r, k_r, n_r = symbols("full_recompute", "core_recompute", "rows", "inner", "columns")

_keys = T * SEQUENCE / TOKEN  # the keys one token meets: a whole sequence, when nothing is masked

matmul_flops = Formula(
    "matmul_flops",
    "F",
    2 * m_r * k_r * n_r * FLOP,
    "FLOP",
    "FLOPs of one matmul of (rows x inner) by (inner x columns)",
    derivation=(
        Step("each of the rows x columns results sums `inner` products: a multiplication and an addition each",
             m_r * n_r * (k_r + k_r) * FLOP),
    ),
)  # fmt: skip

six_ps = Formula(
    "six_ps",
    "F_t",
    6 * P * FLOP / TOKEN,
    "FLOP/token",
    "training FLOPs of a token when every parameter multiplies it once; attention scores are left out",
    source="the first source document; convention `six_ps`",
    derivation=(
        Step("2 FLOPs a parameter forward; backward makes two matmuls of the same size for each of forward's",
             (2 * P + 2 * (2 * P)) * FLOP / TOKEN),
        Step("what is left of `palm` for short sequences",
             (6 * P + 12 * L * a * d * _keys) * FLOP / TOKEN, limit=(T, 0)),
    ),
)  # fmt: skip

six_ps_run = Formula(
    "six_ps_run",
    "F_model",
    6 * P * S * FLOP / TOKEN,
    "FLOP",
    "FLOPs of a whole run by the short rule",
    assumptions=("sequences short against 6 hidden widths", "most parameters are in matrices"),
    source="the first source document",
    derivation=(Step("forward, and twice as much backward, for each token", (2 + 4) * P * S * FLOP / TOKEN),),
)

palm = Formula(
    "palm",
    "F_t",
    (6 * P + 12 * L * a * d * _keys) * FLOP / TOKEN,
    "FLOP/token",
    "training FLOPs of a token with all parameters and the full attention square",
    source="PaLM paper, appendix B; convention `palm`",
    derivation=(
        Step("scores and weighted values: 2 matmuls of 2 a d T each, forward once and backward twice",
             (6 * P + 3 * L * 2 * (2 * a * d * _keys)) * FLOP / TOKEN),
    ),
)  # fmt: skip

full_attention = Formula(
    "full_attention",
    "F_t",
    (6 * N + 12 * L * a * d * _keys) * FLOP / TOKEN,
    "FLOP/token",
    "training FLOPs of a token by its matmuls, the full attention square counted",
    source="convention `full_attention`",
    derivation=(
        Step("forward: every matrix, the scores, the weighted values; three times that in all",
             3 * (2 * N + L * (2 * a * d * _keys + 2 * a * d * _keys)) * FLOP / TOKEN),
    ),
)  # fmt: skip

causal_attention = Formula(
    "causal_attention",
    "F_t",
    (6 * N + 6 * L * a * d * _keys) * FLOP / TOKEN,
    "FLOP/token",
    "training FLOPs of a token by its matmuls, half the attention square: a token only looks back",
    source="convention `causal_attention`",
    derivation=(
        Step("a token meets T/2 keys on average", 3 * (2 * N + L * 2 * (2 * a * d * _keys / 2)) * FLOP / TOKEN),
    ),
)

executed = Formula(
    "executed",
    "F_t",
    (6 * N + 12 * L * a * d * _keys
     + r_full * (2 * (N - V * h) + 4 * L * a * d * _keys) + r_core * 4 * L * a * d * _keys)
    * FLOP / TOKEN,
    "FLOP/token",
    "FLOPs a token really costs: recomputation counted, the head once; over time this gives HFU, not MFU",
    assumptions=("full_recompute and core_recompute are not both 1",),
    source="convention `executed`",
    derivation=(
        Step("model work, and one more forward of all layers, or of their attention cores alone",
             (3 * (2 * N + 4 * L * a * d * _keys) + r_full * (2 * N - 2 * V * h + 4 * L * a * d * _keys)
              + r_core * L * (4 * a * d * _keys)) * FLOP / TOKEN),
    ),
)  # fmt: skip

six_ps_error = Formula(
    "six_ps_error",
    "epsilon",
    P / (N + 2 * L * a * d * _keys) - 1,
    "1",
    "relative error of 6P against the full count: below zero when long sequences make attention matter",
    derivation=(Step("6P over 6N + 12 L a d T, minus 1", 6 * P / (6 * N + 12 * L * a * d * _keys) - 1),),
)
