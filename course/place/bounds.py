"""When an axis is bound by its links: communication over the compute that may cover it, 1 where they are equal.

>>> tokens = fsdp_ratio.solve("tokens_per_device", equals=1, ranks=1e9, weight_bytes=2, tensor=1, latency=0,
...                           layer_parameters=1e9, reduced_gradient_bytes=2, peak_flops_per_s=989.4e12,
...                           bandwidth=400e9)
>>> round(tokens.value, 1)
2473.5
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.place.collectives import ring_all_gather_time, ring_all_reduce_time
from course.place.links import scattered_bytes
from course.shard import all_gather_bytes
from course.symbols import symbols
from course.units import DEVICE, FLOP, SEQUENCE, TOKEN

n, X, C, alpha, beta, beta_up, beta_out, R = symbols(
    "ranks", "payload_bytes", "peak_flops_per_s", "latency", "bandwidth", "scale_up_bytes_per_s",
    "scale_out_bytes_per_s", "devices",
)  # fmt: skip
tau, u_T, P_L, L_s, T_p, g, b_w, b_a, h, a, a_kv, d = symbols(
    "tokens_per_device", "tensor_units", "layer_parameters", "stage_layers", "tensor", "reduced_gradient_bytes",
    "weight_bytes", "activation_bytes", "hidden", "heads", "kv_heads", "head_size",
)  # fmt: skip
n_mlp, f_E, k_E, k = symbols("mlp_matrices", "expert_ffn", "experts_per_token", "ranks_per_node")
T, C_p = symbols("sequence_length", "context")

_layer = 6 * FLOP / TOKEN * P_L * tau / C  # s: a layer's matmuls, forward and backward
_forward = 2 * FLOP / TOKEN * P_L * tau / C
_backward = 4 * FLOP / TOKEN * P_L * tau / C
_vectors = b_a * h * tau / TOKEN  # byte/device: one hidden vector for each of a device's tokens

_part = P_L / T_p / DEVICE  # 1/device: a tensor rank's parameters of the layer


def _chunks(bytes_each: sp.Expr) -> sp.Expr:
    """Seconds of one step of a ring, without its latency: an n-th of a tensor rank's part of the layer."""
    return bytes_each * P_L / (n * T_p * beta) / DEVICE


data_ratio = Formula(
    "data_ratio",
    "r_DP",
    (n - 1) * (alpha + _chunks(g)) * C / (2 * P_L * tau) * TOKEN / FLOP,
    "1",
    "data parallelism: time of a layer's gradient all-reduce over that of the backward pass that can cover it",
    assumptions=(
        "gradients are reduced once a step, during one backward pass: tokens are those of one micro-batch",
        "a tensor group works on tokens_per_device times T_p tokens, each rank with a T_p-th of the layer",
        "rings; a bucket holds the gradients of one layer",
    ),
    derivation=(
        Step("all-reduce of a T_p-th of a layer's gradients, over two matmuls of 2 FLOPs a parameter and token",
             ring_all_reduce_time.expression.subs(X, g * _part) / _backward),
    ),
)  # fmt: skip

fsdp_ratio = Formula(
    "fsdp_ratio",
    "r_FSDP",
    sp.Max(
        (n - 1) * (alpha + _chunks(b_w)) * C / (2 * P_L * tau) * TOKEN / FLOP,  # forward
        (n - 1) * (2 * alpha + _chunks(b_w + g)) * C / (4 * P_L * tau) * TOKEN / FLOP,  # backward
    ),
    "1",
    "FSDP: time of a layer's collectives over that of its matmuls, in the pass where this is larger",
    assumptions=(
        "each micro-batch gathers and scatters: tokens are those of one micro-batch",
        "gathers come ahead of time, within a pass: forward covers one, backward the other and the scatter",
        "rings, one collective a layer",
    ),
    derivation=(
        Step("a T_p-th of a layer: a gather over forward's 2 FLOPs a parameter and token, or gather and scatter over "
             "backward's 4",
             sp.Max(sp.factor_terms(ring_all_gather_time.expression.subs(X, b_w * _part)) / _forward,
                    # a gather of b_w and a scatter of g: the bytes of one collective of b_w + g, and its latency twice
                    sp.factor_terms(ring_all_gather_time.expression.subs([(X, (b_w + g) * _part), (alpha, 2 * alpha)]))
                    / _backward)),
    ),
)  # fmt: skip

tensor_ratio = Formula(
    "tensor_ratio",
    "r_TP",
    u_T * (T_p - 1) * (alpha + b_a * h * tau / TOKEN / beta) * C / (6 * P_L * tau) * TOKEN / FLOP,
    "1",
    "tensor parallelism: time of a layer's gathers and scatters over that of its matmuls",
    assumptions=(
        "a group works on tokens_per_device times T_p tokens together",
        "matmuls at the rate C; what programs cover of the collectives is step 7",
    ),
    derivation=(
        Step("u_T collectives of the group's tau T_p vectors, over 6 FLOPs a parameter and token, one T_p-th each",
             u_T * ((T_p - 1) * alpha + all_gather_bytes.expression.subs([(X, _vectors * T_p), (n, T_p)]) / beta)
             / (6 * FLOP / TOKEN * P_L * tau * T_p / T_p / C)),
    ),
)  # fmt: skip

pipeline_ratio = Formula(
    "pipeline_ratio",
    "r_PP",
    (alpha + b_a * h * tau / TOKEN / beta) * C / (3 * P_L * L_s * tau) * TOKEN / FLOP,
    "1",
    "pipeline: time of a stage's two sends of a micro-batch over that of its layers; idle time comes in step 5",
    assumptions=(
        "tensor ranks send one share each, as with sequence parallelism",
        "with interleaved stages L_s is the layers of one chunk: each chunk sends",
    ),
    derivation=(
        Step("activations onward, gradients back, over the matmuls of L_s layers",
             2 * (alpha + _vectors / beta) / (L_s * _layer)),
    ),
)  # fmt: skip

expert_ratio = Formula(
    "expert_ratio",
    "r_EP",
    2 * b_a * C * (n - k) / n / (3 * n_mlp * f_E * beta) / FLOP,
    "1",
    "experts: time of a mixture layer's all-to-alls over that of its routed experts; no batch helps",
    assumptions=(
        "tokens spread evenly; every copy is sent; nothing covers the all-to-alls; latency left out",
        "copies for the k ranks of the own node do not use this link; k = 1 inside a node, where one rank is oneself",
    ),
    derivation=(
        Step("k_E copies out and back, forward and backward, over 6 FLOPs a parameter of k_E experts",
             4 * scattered_bytes.expression.subs(X, k_E * _vectors) / beta
             / (6 * FLOP / TOKEN * k_E * n_mlp * h * f_E * tau / C)),
    ),
)  # fmt: skip

_block = T / C_p * SEQUENCE / DEVICE  # token/device: what a rank holds of one sequence

context_ratio = Formula(
    "context_ratio",
    "r_CP",
    a_kv * b_a * C * C_p / (a * T * beta) * TOKEN / FLOP / SEQUENCE,
    "1",
    "context parallelism by a ring: time to pass a block of keys and values on, over the attention on that block",
    assumptions=(
        "a block is T / C_p tokens of one sequence, shared out so that the causal mask leaves half of each block",
        "forward; backward passes twice the bytes in bf16 and computes 2.5 times the FLOPs",
        "tensor ranks cut heads and key/value heads alike, which cancels; attention at the rate C",
    ),
    derivation=(
        Step("keys and values of a block, over half of two matmuls of 2 a d FLOPs for each pair of tokens",
             2 * a_kv * d * b_a * _block / TOKEN / beta
             / (4 * a * d / 2 * _block**2 * FLOP / TOKEN**2 * DEVICE / C)),
    ),
)  # fmt: skip

fsdp_tensor_time = Formula(
    "fsdp_tensor_time",
    "t_FT",
    (2 * b_w + g) * P_L / DEVICE * (1 / T_p - DEVICE / R) / beta_out
    + u_T * b_a * h * tau / TOKEN * (T_p - 1) / beta_up,
    "s",
    "communication of one layer when R devices are T_p tensor ranks times R / T_p FSDP ranks, one after the other",
    assumptions=("FSDP and tensor parallelism have links of their own, whose rate does not depend on T_p; no latency",),
    derivation=(
        Step("three collectives of a T_p-th of the layer over R / T_p ranks; u_T of the group's vectors",
             (2 * b_w + g) * P_L / T_p / DEVICE * (1 - T_p * DEVICE / R) / beta_out
             + u_T * all_gather_bytes.expression.subs([(X, _vectors * T_p), (n, T_p)]) / beta_up),
    ),
)  # fmt: skip


def _rising(roots: list[sp.Expr]) -> sp.Expr:
    """The root that is a degree: of the two, the one above zero."""
    return next(root for root in roots if not root.could_extract_minus_sign())


fsdp_tensor_optimum = Formula(
    "fsdp_tensor_optimum",
    "T_p",
    sp.sqrt((2 * b_w + g) * P_L * beta_up / (u_T * b_a * h * tau * beta_out)) * sp.sqrt(TOKEN / DEVICE),
    "1",
    "tensor degree at which FSDP and tensor parallelism together communicate least",
    assumptions=("a real number; the degree used must divide heads and devices, and fit the links",),
    derivation=(Step("where the slope is zero", _rising(sp.solve(sp.diff(fsdp_tensor_time.expression, T_p), T_p))),),
)
