"""Parameters, counted from the matrices of a layer; a mixture of experts counted whole and as one token uses it."""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols

L, h, a, a_kv, d, f, V, n_mlp, e, w_L, w_0 = symbols(
    "layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocabulary", "mlp_matrices", "embedding_tables",
    "layer_vectors", "outer_vectors",
)  # fmt: skip
E, k_E, E_s, f_E, L_d = symbols("experts", "experts_per_token", "shared_experts", "expert_ffn", "dense_layers")

_attention = h * a * d + 2 * h * a_kv * d + a * d * h
_matrices = _attention + n_mlp * h * f
_router = h * E

parameters = Formula(
    "parameters",
    "P",
    L * (sp.expand(_matrices) + w_L) + e * V * h + w_0,
    "1",
    "parameters of a dense decoder, every tensor once",
    derivation=(
        Step("queries, keys and values, output, MLP, norms and biases of a layer; tables; the rest",
             L * (h * a * d + h * (2 * a_kv * d) + a * d * h + n_mlp * h * f + w_L) + e * V * h + w_0),
    ),
)  # fmt: skip

matmul_parameters = Formula(
    "matmul_parameters",
    "N",
    L * sp.expand(_matrices) + V * h,
    "1",
    "parameters that multiply each token; looking a row up in the input table is no matmul",
    derivation=(Step("the matrices of all layers, and the output head", L * _matrices + V * h),),
)

attention_parameters = Formula(
    "attention_parameters",
    "P_att",
    sp.expand(_attention),
    "1",
    "parameters of one layer's attention: its four matrices",
    derivation=(
        Step("a query of every head, a key and a value of every key/value head, and the way back to the hidden width",
             h * (a * d) + h * (a_kv * d) + h * (a_kv * d) + (a * d) * h),
    ),
)  # fmt: skip

expert_parameters = Formula(
    "expert_parameters",
    "P_E",
    (L - L_d) * E * n_mlp * h * f_E,
    "1",
    "parameters of all routed experts: what a group of its own can share",
    assumptions=("shared experts and routers stay with the rest: every token passes them",),
    derivation=(
        Step("in each layer that has experts: the matrices of one, for every one of them",
             (L - L_d) * (E * (n_mlp * h * f_E))),
    ),
)  # fmt: skip

mixture_parameters = Formula(
    "mixture_parameters",
    "P",
    L * (sp.expand(_attention) + w_L) + L_d * n_mlp * h * f
    + (L - L_d) * (_router + (E + E_s) * n_mlp * h * f_E) + e * V * h + w_0,
    "1",
    "parameters of a mixture of experts, every tensor once: what memory must hold",
    assumptions=(
        "dense_layers of the layers have one MLP, the others a router and experts",
        "no biases in router or experts",
    ),
    derivation=(
        Step("attention and norms of every layer; one MLP in dense layers; router, routed and shared experts elsewhere",
             L * (_attention + w_L) + L_d * (n_mlp * h * f)
             + (L - L_d) * (_router + E * n_mlp * h * f_E + E_s * n_mlp * h * f_E) + e * V * h + w_0),
    ),
)  # fmt: skip

mixture_active_parameters = Formula(
    "mixture_active_parameters",
    "P",
    L * (sp.expand(_attention) + w_L) + L_d * n_mlp * h * f
    + (L - L_d) * (_router + (k_E + E_s) * n_mlp * h * f_E) + e * V * h + w_0,
    "1",
    "parameters one token uses in a mixture of experts: what FLOPs follow from",
    assumptions=("the input table counted once, as in `six_ps`; some reports leave it out",),
    derivation=(
        Step("as before, with the experts a token is sent to in place of all",
             L * (_attention + w_L) + L_d * (n_mlp * h * f)
             + (L - L_d) * (_router + k_E * n_mlp * h * f_E + E_s * n_mlp * h * f_E) + e * V * h + w_0),
    ),
)  # fmt: skip
