"""Step 1, counts: FLOPs of a matmul and of a run, parameters of a layer, and where 6P a token fails."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from course import catalog, estimate
from course.questions.draws import picks
from course.questions.kinds import BugHunt, Expression, Fault, Function, Given, Mistake, Number, Question
from course.symbols import symbols

__all__ = ["QUESTIONS"]

P, L, h, a, a_kv, d, f, T, N = symbols(
    "parameters", "layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "sequence_length", "matmul_parameters"
)

_run = Number(
    id="estimate.1",
    title="FLOPs of a run",
    prompt=(
        "A dense model of {billions:g} billion parameters is trained on {trillions:g} trillion tokens. How many FLOPs "
        "does that take, by the short rule that leaves attention scores out?"
    ),
    given={"billions": 70.0, "trillions": 15.0},
    draw=picks(billions=(1.0, 3.0, 8.0, 13.0, 34.0, 70.0, 180.0, 405.0), trillions=(0.3, 1.4, 2.0, 6.5, 15.0)),
    answer=lambda g: estimate.six_ps_run(parameters=g["billions"] * 1e9, tokens=g["trillions"] * 1e12),
    unit="FLOP",
    mistakes=(
        Mistake("backward forgotten", lambda g: 2 * g["billions"] * g["trillions"] * 1e21),
        Mistake("forward counted twice", lambda g: 4 * g["billions"] * g["trillions"] * 1e21),
        Mistake("multiply-add counted once", lambda g: 3 * g["billions"] * g["trillions"] * 1e21),
        Mistake("recomputation as useful work", lambda g: 8 * g["billions"] * g["trillions"] * 1e21),
    ),
    hints=(
        "What does one token cost in the forward pass, for each parameter that multiplies it?",
        "A parameter multiplies and adds: two FLOPs forward. Backward makes two matmuls for each one of forward.",
        "Forward and backward together, times the parameters, times the tokens. Mind the powers of ten: 9 and 12.",
    ),
    difficulty=1,
    minutes=3,
    source="the first source document; MFU-31: recomputation counted as work of the model",
)


def _products(given: Given) -> float:
    """Multiply-adds of the matmul, in units of 1e12."""
    return float(given["tokens"] * given["hidden"] * given["ffn"]) / 1e12


_matmul = Number(
    id="estimate.2",
    title="FLOPs of one matmul",
    prompt=(
        "{tokens:,} tokens of width {hidden:,} pass a matrix of {hidden:,} x {ffn:,}, forward only, in {dtype}. "
        "How many "
        "TFLOP is that?"
    ),
    given={"tokens": 8192, "hidden": 4096, "ffn": 14336, "dtype": "fp32"},
    draw=picks(tokens=(2048, 4096, 8192), hidden=(2048, 4096, 8192), ffn=(5504, 11008, 14336), dtype=("fp32",)),
    answer=lambda g: estimate.matmul_flops(rows=g["tokens"], inner=g["hidden"], columns=g["ffn"]) / 1e12,
    unit="TFLOP",
    mistakes=(
        Mistake("multiply-add counted once", _products),
        Mistake(
            "rule for another case",
            lambda g: 4 * _products(g),
            "The bytes of a number have come into a count of operations; the count is the same in every precision.",
        ),
        Mistake(
            "rule for another case",
            lambda g: 6 * _products(g),
            "Backward was counted as well; the forward pass alone is asked for.",
        ),
    ),
    hints=(
        "How many results does it have, and what does each one take?",
        "Each result is a sum of products over the inner width: a multiplication and an addition for each.",
        "Rows times columns results, each of `inner` multiply-adds; the precision does not matter.",
    ),
    difficulty=1,
    minutes=3,
    source=(
        "a published ZeRO arithmetic in which the factor 2 of a multiply-add is called the bytes of a number; ROF-03"
    ),
)

# ---------------------------------------------------------------- parameters
_n_mlp, _V = symbols("mlp_matrices", "vocabulary")
_layer_matrices = estimate.matmul_parameters.value_expression.subs({L: 1, _V: 0, _n_mlp: 3})

_layer = Expression(
    id="estimate.11",
    title="Matrices of one layer",
    prompt=(
        "A layer has attention with `a` query heads and `a_kv` key/value heads of size `d`, and a gated MLP of "
        "width `f`; "
        "the hidden width is `h`. Write the number of parameters in its matrices; leave norms and biases out."
    ),
    symbols=("hidden", "heads", "kv_heads", "head_size", "ffn"),
    answer=lambda _: _layer_matrices,
    mistakes=(
        Mistake("grouped heads ignored", lambda _: 4 * h * a * d + 3 * h * f),
        Mistake("one projection shrunk", lambda _: 3 * h * a * d + h * a_kv * d + 3 * h * f),
        Mistake("two matrices for a gated MLP", lambda _: 2 * h * a * d + 2 * h * a_kv * d + 2 * h * f),
        Mistake("head size inferred", lambda _: 2 * h**2 + 2 * h**2 * a_kv / a + 3 * h * f),
    ),
    hints=(
        "List the matrices: four of attention, and those of the MLP. What goes in and what comes out of each?",
        "Queries and output have a heads; keys and values have a_kv heads. A head is d wide, whatever h is.",
        "A gated MLP has three matrices between the widths h and f.",
    ),
    difficulty=2,
    minutes=6,
    source="MFU-27, NVIDIA/Megatron-LM#682: one projection shrunk; MFU-29: head size taken as width over heads",
)

# ---------------------------------------------------------------- FLOPs of a token
_token = Expression(
    id="estimate.14",
    title="FLOPs of a token with attention",
    prompt=(
        "Write the training FLOPs of one token of a model of `P` parameters and `L` layers of `a` heads of size "
        "`d`, in "
        "sequences of `T` tokens. Take every parameter as multiplying once, and count the whole square of "
        "attention: no "
        "causal mask."
    ),
    symbols=("parameters", "layers", "heads", "head_size", "sequence_length"),
    answer=lambda _: estimate.palm,
    mistakes=(
        Mistake("attention left out", lambda _: 6 * P),
        Mistake(
            "causal half",
            lambda _: 6 * P + 6 * L * a * d * T,
            "Half of the attention is missing: the whole square is asked for, and it has two matmuls, the scores "
            "and the "
            "weighted values.",
        ),
        Mistake("backward forgotten", lambda _: 2 * P + 4 * L * a * d * T),
        Mistake(
            "backward forgotten",
            lambda _: 6 * P + 4 * L * a * d * T,
            "The attention was counted forward only; backward makes two matmuls for each of its two as well.",
        ),
        Mistake("multiply-add counted once", lambda _: 3 * P + 6 * L * a * d * T),
    ),
    hints=(
        "Two parts: what the parameters do, and what attention does beside them.",
        (
            "One token meets T keys in each head: a product of d numbers for each, once for the score and once for "
            "the value."
        ),
        "Attention costs 4 a d T a layer forward, and three times that with backward.",
    ),
    difficulty=2,
    minutes=8,
    source="MFU-21, AI-Hypercomputer/maxtext#1972, and the other threads on factors 6, 7 and 12",
)


def _token_case(source: random.Random) -> dict[str, Any]:
    length: Any = source.choice((1024, 4096, 8192, 131072))
    if source.random() < 0.4:
        length = np.array([2048.0, 8192.0, 32768.0])
    return {
        "matmul_parameters": 10 ** source.uniform(9, 12),
        "layers": source.randint(16, 126),
        "heads": source.choice((16, 32, 40, 64)),
        "head_size": source.choice((64, 80, 128, 256)),
        "sequence_length": length,
    }


def _token_flops(scale: float, attention: float) -> Any:
    def flops(matmul_parameters: Any, layers: Any, heads: Any, head_size: Any, sequence_length: Any) -> Any:
        return scale * matmul_parameters + attention * layers * heads * head_size * np.asarray(sequence_length)

    return flops


_token_function = Function(
    id="estimate.15",
    title="FLOPs of a token as a function",
    prompt=(
        "Write `flops_per_token(matmul_parameters, layers, heads, head_size, sequence_length)`: training FLOPs of "
        "a token "
        "by its matmuls, with the causal mask: a token meets half of the keys on average. The sequence length may "
        "be an array."
    ),
    arguments=("matmul_parameters", "layers", "heads", "head_size", "sequence_length"),
    case=_token_case,
    answer=lambda **case: estimate.causal_attention(**case),
    unit="FLOP/token",
    mistakes=(
        Mistake(
            "causal half",
            lambda _: _token_flops(6, 12),
            "The whole square of attention was counted; behind a causal mask a token looks back only.",
        ),
        Mistake("one of two attention matmuls", lambda _: _token_flops(6, 3)),
        Mistake("attention left out", lambda _: _token_flops(6, 0)),
        Mistake("backward forgotten", lambda _: _token_flops(2, 2)),
    ),
    hints=(
        "Start from the matmuls: each matrix, the scores, the weighted values.",
        "The head size is an argument of its own; it is not width over heads.",
        "Forward: 2 for each matmul parameter and 4 a d T/2 for each layer. Then what backward adds.",
    ),
    difficulty=2,
    minutes=8,
    source="MFU-29, pytorch/torchtitan#1920: head size; picotron takes the longest sequence in place of the run's",
)

# ---------------------------------------------------------------- a bug to hunt
_COUNT = """
def count(layers, hidden, heads, kv_heads, head_size, ffn, vocabulary, tied):
    attention = {attention}
    mlp = {mlp}
    tables = {tables}
    return layers * (attention + mlp) + tables
"""
_PARTS = {
    "attention": "2 * hidden * heads * head_size + 2 * hidden * kv_heads * head_size",
    "mlp": "3 * hidden * ffn",
    "tables": "vocabulary * hidden * (1 if tied else 2)",
}


def _version(**changed: str) -> str:
    return _COUNT.format(**{**_PARTS, **changed}).strip() + "\n"


_hunt = BugHunt(
    id="estimate.16",
    title="A count that is wrong sometimes",
    prompt=(
        "`count(layers, hidden, heads, kv_heads, head_size, ffn, vocabulary, tied)` returns the parameters in the "
        "matrices "
        "and tables of a model with a gated MLP. Versions of it went wrong in four ways. Write `test(count)`: it "
        "asserts "
        "what must hold, passes on the right version and fails on each of the wrong ones. Small models that you "
        "count by "
        "hand are good witnesses."
    ),
    function="count",
    good=_version(),
    faults=(
        Fault(
            _version(attention="4 * hidden * heads * head_size"),
            "Ask for a model whose keys and values have fewer heads.",
        ),
        Fault(
            _version(attention="2 * hidden * hidden + 2 * hidden * hidden * kv_heads // heads"),
            "Ask for a model whose heads together are not as wide as the model.",
        ),
        Fault(
            _version(tables="2 * vocabulary * hidden"), "Ask for a model that shares one table for input and output."
        ),
        Fault(_version(tables="vocabulary * hidden"), "Ask for a model that has two tables."),
    ),
    hints=(
        "A test is a few calls with numbers you know. Which property does each fault break?",
        "One model is not enough: a fault that touches tied tables cannot show where they are not tied.",
        "Three calls do: grouped heads and two tables; tied tables; a head size that is not hidden / heads.",
    ),
    difficulty=3,
    minutes=12,
    source="MFU-23, huggingface/trl#6731 (tying); MFU-27 (grouped heads); MFU-29 (head size)",
)


# ---------------------------------------------------------------- where 6P fails
@cache
def _widths(name: str) -> dict[str, Any]:
    model = catalog.model(name)
    counted = estimate.count(model)
    return estimate.shape(model) | {"parameters": counted.total, "matmul_parameters": counted.matmul_active}


def _per_token(given: Given, formula: Any) -> float:
    return float(formula(**estimate.pick(formula, _widths(given["model"]), sequence_length=given["length"])))


_error = Number(
    id="estimate.17",
    title="How wrong is 6P",
    prompt=(
        "{model_name} is trained on sequences of {length:,} tokens. By how many per cent is 6P a token off the "
        "count by "
        "matmuls with the full attention square? Below zero when 6P is too small. The catalog has its shape: "
        '`course.catalog.model("{model}")`.'
    ),
    given={"model": "llama-3.1-8b", "model_name": "Llama 3.1 8B", "length": 32768},
    draw=picks(length=(12288, 16384, 24576, 32768)),
    answer=lambda g: 100 * _per_token(g, estimate.six_ps_error),
    unit="%",
    mistakes=(
        Mistake(
            "attention left out",
            lambda g: 100 * (_widths(g["model"])["parameters"] / _widths(g["model"])["matmul_parameters"] - 1),
        ),
        Mistake(
            "causal half",
            lambda g: 100 * (_per_token(g, estimate.six_ps) / _per_token(g, estimate.causal_attention) - 1),
        ),
        Mistake(
            "input table multiplied",
            lambda g: 100 * (_per_token(g, estimate.six_ps) / _per_token(g, estimate.palm) - 1),
        ),
        Mistake(
            "share for ratio",
            lambda g: 100 * (_per_token(g, estimate.full_attention) / _per_token(g, estimate.six_ps) - 1),
            "The error is relative to the full count, not to 6P.",
        ),
    ),
    hints=(
        "Two things are different: what the input table does, and what attention does.",
        "Count the parameters that multiply a token, then add attention for T keys, forward and backward.",
        "6P over (6N + 12 L a d T), minus 1, in per cent.",
    ),
    difficulty=3,
    minutes=10,
    source="MFU-33, EleutherAI/gpt-neox#1093, and MFU-21: attention becomes the main term at long context",
)


def _crossing(given: Given, share: float = 1.0) -> float:
    """Sequence length at which attention costs as much as the layer's matrices: full square by `share` = 1."""
    matrices = float(
        _layer_matrices.subs(
            {h: given["hidden"], a: given["hidden"] // 128, a_kv: given["kv"], d: 128, f: given["ffn"]}
        )
    )
    one = estimate.full_attention.value_expression.subs({N: 0, L: 1, a: given["hidden"] // 128, d: 128})
    return 6 * matrices / float(sp.diff(one, T)) / share


def _layer_shape(source: random.Random) -> dict[str, Any]:
    width = source.choice((2048, 4096, 8192))
    heads = width // 128
    return {"hidden": width, "heads": heads, "kv": source.choice((4, 8, heads)), "ffn": source.choice((3, 4)) * width}


_cross = Number(
    id="estimate.18",
    title="When attention takes over",
    prompt=(
        "A layer has width {hidden:,}, {heads} query heads and {kv} key/value heads of size 128, and a gated MLP "
        "of width "
        "{ffn:,}. From which sequence length on does attention, the full square counted, cost more FLOPs than all the "
        "layer's matrices?"
    ),
    given={"hidden": 4096, "heads": 32, "kv": 8, "ffn": 14336},
    draw=_layer_shape,
    answer=_crossing,
    unit="tokens",
    mistakes=(
        Mistake(
            "causal half",
            lambda g: _crossing(g, 0.5),
            "Half the attention was counted: the full square has two matmuls over all keys.",
        ),
        Mistake("two matrices for a gated MLP", lambda g: _crossing({**g, "ffn": g["ffn"] * 2 / 3})),
        Mistake(
            "forward counted twice",
            lambda g: _crossing(g, 1 / 3),
            "Forward of one was compared with forward and backward of the other.",
        ),
    ),
    hints=(
        "Write both costs for one token and one layer; T stands in one of them only.",
        "The matrices cost 6 FLOPs a parameter. Attention costs 12 a d for each key.",
        "Set 12 a d T equal to 6 times the layer's matrix parameters and solve for T.",
    ),
    difficulty=3,
    minutes=8,
    source="MFU-45, jax-ml/scaling-book#109: a rounded power of two was printed",
)

QUESTIONS: tuple[Question, ...] = (_run, _matmul, _layer, _token, _token_function, _hunt, _error, _cross)
