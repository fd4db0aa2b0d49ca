"""Memory counted from tensors: model state, what a layer saves for backward, logits."""

from __future__ import annotations

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import BYTE, DEVICE, SEQUENCE, TOKEN

h, a, a_kv, d, f, V, n_mlp, P, B, T = symbols(
    "hidden", "heads", "kv_heads", "head_size", "ffn", "vocabulary", "mlp_matrices", "parameters", "micro_batch",
    "sequence_length",
)  # fmt: skip
r_core, u, delta, s_p, T_p = symbols("core_recompute", "unfused_attention", "dropout", "sequence_sharded", "tensor")
b_w, b_g, b_o, b_a, b_V = symbols(
    "weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "logit_bytes"
)

_keys = T * SEQUENCE / TOKEN

state_bytes = Formula(
    "state_bytes",
    "M_state",
    P * (b_w + b_g + b_o),
    "byte",
    "model state: weights, gradients, optimizer state",
    derivation=(Step("weights, gradients, optimizer, each for all parameters", P * b_w + P * b_g + P * b_o),),
)

token_layer_bytes = Formula(
    "token_layer_bytes",
    "A",
    (
        h * (4 * b_a + 2 * delta * BYTE) * (s_p / T_p + 1 - s_p)
        + (b_a * (2 * (a + a_kv) * d + n_mlp * f) + u * (1 - r_core) * a * _keys * (b_a + delta * (b_a + BYTE))) / T_p
    )
    / TOKEN,
    "byte/token",
    "bytes one layer saves for backward for one token",
    assumptions=(
        "each norm keeps its input and each matmul its input; a gated MLP keeps gate, up and product",
        "numbers per token beside a width (norm statistics, log-sum-exp) are left out: under 1 %",
    ),
    source="counted from the tensors; with two MLP matrices, f = 4h and dropout: Korthikanti et al. 2022",
    derivation=(
        Step("around attention and MLP: 2 norm inputs, 2 matmul inputs, 2 one-byte dropout masks; inside: "
             "Q, K, V, attention output, MLP, and without flash attention the softmax, its mask and its dropout",
             ((2 * h * b_a + 2 * h * b_a + 2 * h * delta * BYTE) * (s_p * (1 / T_p) + (1 - s_p))
              + (b_a * (a * d + a_kv * d + a_kv * d + a * d) + b_a * n_mlp * f
                 + (1 - r_core) * u * (b_a * a * _keys + delta * BYTE * a * _keys + delta * b_a * a * _keys)) / T_p)
             / TOKEN),
    ),
)  # fmt: skip

layer_input_bytes = Formula(
    "layer_input_bytes",
    "A",
    b_a * h * (s_p / T_p + 1 - s_p) / TOKEN,
    "byte/token",
    "bytes one layer saves for one token under full recomputation: its input alone",
    derivation=(
        Step("one hidden vector, sharded by sequence parallelism", b_a * h * (1 - s_p * (1 - 1 / T_p)) / TOKEN),
    ),
)

logits_bytes = Formula(
    "logits_bytes",
    "M_V",
    b_V * B * T * V / T_p / TOKEN / DEVICE,
    "byte/device",
    "logits of one micro-batch and what the loss keeps beside them, on the last stage",
    assumptions=("the vocabulary is split over the tensor-parallel ranks",),
    derivation=(
        Step(
            "one number for each token and each entry of this rank's vocabulary",
            B * T / TOKEN * (V / T_p) * b_V / DEVICE,
        ),
    ),
)

LOGIT_BYTES = {"unfused": 2 + 4 + 4 + 4, "fused": 2 + 4}
"""Bytes held for one logit at the peak: bf16 logits, an fp32 copy, fp32 softmax and fp32 gradient; fused keeps two."""
