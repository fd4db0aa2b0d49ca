"""Latent attention in traffic: what lies between the hidden vector and the heads is narrow, so that may travel instead.

Keys and values of all heads are made from one latent, so a rank that is sent latents can make the keys and values of
its heads itself. It then makes those of all tokens, not of its own alone: fewer bytes, more FLOPs.

>>> v3 = {"kv_lora": 512, "rope_head_size": 64, "activation_bytes": 2, "micro_batch": 1, "sequence_length": 131072}
>>> latent_context_bytes(**v3, context=16) / 1e6
141.55776
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.shard.collectives import all_gather_bytes
from course.symbols import symbols
from course.units import DEVICE, TOKEN

__all__ = ["expanded_context_bytes", "latent_context_bytes", "latent_tensor_unit_bytes"]

n, X, T_p, C_p = symbols("ranks", "payload_bytes", "tensor", "context")
T, B, b_a, a = symbols("sequence_length", "micro_batch", "activation_bytes", "heads")
r_q, r_kv, d_r, d_n, d_v = symbols("q_lora", "kv_lora", "rope_head_size", "nope_head_size", "v_head_size")
_j = sp.Symbol("j", integer=True, positive=True)
_tokens = B * T / TOKEN  # of one micro-batch

_wide = b_a * a * (d_n + d_r + d_v) / T_p * _tokens / DEVICE
_narrow = b_a * (r_kv + d_r) * _tokens / DEVICE

expanded_context_bytes = Formula(
    "expanded_context_bytes",
    "X_CE",
    b_a * a * (d_n + d_r + d_v) / T_p * B * T / TOKEN / DEVICE * (C_p - 1) / C_p,
    "byte/device",
    "one context-parallel unit of latent attention when wide keys and values of all heads pass the context ranks",
    assumptions=(
        "one micro-batch and one layer: 1 unit forward, 2 backward where keys and values were not kept",
        "a key has d_n numbers of its own head and d_r that all heads share; each head sends them again",
    ),
    derivation=(
        Step("keys of d_n + d_r and values of d_v numbers, for this tensor rank's heads: C_p - 1 blocks of them",
             sp.Sum(_wide / C_p, (_j, 1, C_p - 1))),
        Step("all keys and values, but the share of them that a rank has", _wide - _wide / C_p),
    ),
)  # fmt: skip

latent_context_bytes = Formula(
    "latent_context_bytes",
    "X_CL",
    b_a * (r_kv + d_r) * B * T / TOKEN / DEVICE * (C_p - 1) / C_p,
    "byte/device",
    "one context-parallel unit of latent attention when the latent and the shared part of the key pass instead",
    assumptions=(
        "one micro-batch and one layer: 1 unit forward, 2 backward where latents were not kept",
        "a latent belongs to no head, so tensor ranks do not divide it: each passes all of it",
        "every rank makes keys and values of all tokens from the latents: C_p times the FLOPs of the matrices up",
    ),
    derivation=(
        Step("a latent of r_kv and the d_r numbers of the key that carry the position: C_p - 1 blocks of them",
             sp.Sum(_narrow / C_p, (_j, 1, C_p - 1))),
        Step("gathered at once instead", all_gather_bytes.expression.subs([(X, _narrow), (n, C_p)])),
    ),
)  # fmt: skip

_latents = b_a * (r_q + r_kv + d_r) * _tokens / DEVICE

latent_tensor_unit_bytes = Formula(
    "latent_tensor_unit_bytes",
    "X_TL",
    b_a * (r_q + r_kv + d_r) * B * T / TOKEN / DEVICE * (T_p - 1) / T_p,
    "byte/device",
    "the tensor-parallel unit before latent attention: latents are gathered (or their gradients scattered)",
    assumptions=(
        "sequence parallelism; the matrices that lead down are whole on every tensor rank, which uses them for its "
        "own tokens; their gradients are then summed over the tensor ranks, once a step",
        "queries have a latent too; else the hidden vector must be gathered for them",
    ),
    derivation=(
        Step("all-gather of both latents and the shared part of the key over the tensor ranks",
             all_gather_bytes.expression.subs([(X, _latents), (n, T_p)])),
        Step("all of them, but this rank's tokens", _latents - _latents / T_p),
    ),
)  # fmt: skip
