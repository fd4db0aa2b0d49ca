"""From a model's shape to the arguments of the formulas, and the counts and FLOPs that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course.estimate.flops import causal_attention, executed, full_attention, palm, six_ps
from course.estimate.latent import latent_attention_parameters
from course.estimate.parameters import (
    attention_parameters,
    matmul_parameters,
    mixture_active_parameters,
    mixture_parameters,
    parameters,
)
from course.formula import Formula
from course.problem import Model

MIXTURE_WIDTHS = ("experts", "experts_per_token", "shared_experts", "expert_ffn", "dense_layers")
"""Fields of a model that only a mixture of experts has, as the formulas call them."""
LATENT_WIDTHS = ("q_lora", "kv_lora", "rope_head_size", "nope_head_size", "v_head_size")
"""Fields of a model that only latent attention has."""


@dataclass(frozen=True)
class Count:
    """Parameters of a model: `total`, those a token uses (`active`), those that multiply it (`matmul_active`)."""

    total: float
    active: float
    matmul_active: float


def shape(model: Model) -> dict[str, Any]:
    """The widths of a model as keyword arguments for the formulas of this step.

    >>> from course import catalog
    >>> shape(catalog.model("llama-3-8b"))["layer_vectors"]
    8192
    """
    query, key = model.heads * model.head_size, model.kv_heads * model.head_size
    biases = {"none": 0, "qkv": query + 2 * key, "qkvo": query + 2 * key + model.hidden}[model.attention_bias]
    matrices = 3 if model.gated_mlp else 2
    if model.mlp_bias:
        biases += (matrices - 1) * model.ffn + model.hidden
    norm = model.norm_size * model.hidden
    query_key_norms = {"none": 0, "head": 2 * model.head_size, "width": query + key}[model.qk_norm] * model.norm_size
    return {
        "layers": model.layers, "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads,
        "head_size": model.head_size, "ffn": model.ffn, "vocabulary": model.vocabulary, "mlp_matrices": matrices,
        "embedding_tables": 1 if model.tied_embeddings else 2,
        "layer_vectors": model.norms_per_layer * norm + biases + query_key_norms,
        "outer_vectors": model.hidden * model.learned_positions + norm * (model.final_norm + model.embedding_norm),
    }  # fmt: skip


def pick(formula: Formula, values: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Those of `values` (and `more`) that a formula takes, so that one dictionary serves many formulas."""
    every = {**values, **more}
    return {entry.key: every[entry.key] for entry in formula.inputs if entry.key in every}


def count(model: Model) -> Count:
    """Parameters of a model from its shape; in a mixture a token is active in its own experts and the shared ones.

    Latent attention takes the place of the four matrices of attention in every layer.

    >>> from course import catalog
    >>> f"{count(catalog.model('llama-3.1-405b')).total:,.0f}"
    '405,853,388,800'
    >>> f"{count(catalog.model('deepseek-v3')).total:,.0f}"
    '671,026,419,200'
    """
    widths = shape(model)
    if not model.experts:
        total = active = parameters(**pick(parameters, widths))
        matmul_active = matmul_parameters(**pick(matmul_parameters, widths))
    else:
        widths |= {name: getattr(model, name) for name in MIXTURE_WIDTHS}
        total = mixture_parameters(**pick(mixture_parameters, widths))
        active = mixture_active_parameters(**pick(mixture_active_parameters, widths))
        # all that does not multiply a token: the input table (the head does, tied or not), norms, biases, positions
        looked_up = (widths["embedding_tables"] - 1) * model.vocabulary * model.hidden
        vectors = model.layers * widths["layer_vectors"] + widths["outer_vectors"]
        matmul_active = active - looked_up - vectors
    if model.router_bias:  # one number an expert, which multiplies nothing
        corrections = (model.layers - (model.dense_layers or 0)) * model.experts
        total, active = total + corrections, active + corrections
    if model.kv_lora:
        matrices = model.layers * (
            latent_attention_parameters(**pick(latent_attention_parameters, widths | latent(model)))
            - attention_parameters(**pick(attention_parameters, widths))
        )
        norms = model.layers * model.norm_size * (model.q_lora + model.kv_lora)  # one on each latent
        total, active = total + matrices + norms, active + matrices + norms
        matmul_active += matrices
    return Count(total, active, matmul_active)


def latent(model: Model) -> dict[str, float]:
    """The widths of latent attention as keyword arguments for its formulas."""
    return {name: getattr(model, name) for name in LATENT_WIDTHS} | {"query_compressed": float(model.q_lora > 0)}


def flops_per_token(model: Model, sequence_length: float, recompute: str = "none") -> dict[str, float]:
    """Training FLOPs of a token by every named convention, in FLOP/token.

    `recompute` is "none", "selective" or "full". Flash attention recomputes its scores inside the kernel, which no
    convention counts; "selective" repeats the attention core in either case.

    >>> from course import catalog
    >>> {k: f"{v:.3e}" for k, v in flops_per_token(catalog.model("llama-3.1-405b"), 8192).items()}["full_attention"]
    '2.625e+12'
    """
    counted = count(model)
    values = shape(model) | {
        "parameters": counted.active,
        "matmul_parameters": counted.matmul_active,
        "sequence_length": sequence_length,
        "full_recompute": float(recompute == "full"),
        "core_recompute": float(recompute == "selective"),
    }
    if model.kv_lora:  # scores take the width of queries and keys, weighted values that of values: the mean serves both
        values["head_size"] = (model.nope_head_size + model.rope_head_size + model.v_head_size) / 2
    conventions = (six_ps, palm, full_attention, causal_attention, executed)
    return {formula.name: formula(**pick(formula, values)) for formula in conventions}
