"""What splits a layer's work and so moves activations: tensor, sequence, context and pipeline parallelism.

All of these are bytes of one layer and one micro-batch, so they are paid layers x micro-batches times a step.

>>> layer = {"activation_bytes": 2, "hidden": 4096, "micro_batch": 1, "sequence_length": 8192, "tensor": 8}
>>> tensor_all_reduce_bytes(**layer) / tensor_unit_bytes(**layer)
2.0
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from course.formula import Formula, Step
from course.shard.collectives import all_gather_bytes, all_reduce_bytes, all_to_all_bytes, reduce_scatter_bytes
from course.symbols import symbols
from course.units import DEVICE, TOKEN

__all__ = [
    "FORWARD_UNITS", "context_unit_bytes", "context_units", "head_exchange_bytes", "pipeline_send_bytes",
    "pipeline_sends", "tensor_all_reduce_bytes", "tensor_unit_bytes", "tensor_units",
]  # fmt: skip

n, X, T_p, C_p = symbols("ranks", "payload_bytes", "tensor", "context")
h, T, B, b_a, s_p = symbols("hidden", "sequence_length", "micro_batch", "activation_bytes", "sequence_sharded")
a, a_kv, d = symbols("heads", "kv_heads", "head_size")
_j = sp.Symbol("j", integer=True, positive=True)
_tokens = B * T / TOKEN  # of one micro-batch
_hidden = b_a * h * _tokens / DEVICE  # hidden vectors of one micro-batch

tensor_unit_bytes = Formula(
    "tensor_unit_bytes",
    "X_TP",
    b_a * h * B * T / TOKEN / DEVICE * (T_p - 1) / T_p,
    "byte/device",
    "one tensor-parallel unit: an all-gather or a reduce-scatter of a micro-batch's activations",
    assumptions=("one micro-batch and one layer: 4 units forward, 4 backward, 2 more where inputs are gathered again, "
                 "4 more under full recomputation",),
    derivation=(
        Step("all-gather of B T hidden vectors over the tensor ranks",
             all_gather_bytes.expression.subs([(X, b_a * h * B * T / TOKEN / DEVICE), (n, T_p)])),
    ),
)  # fmt: skip

tensor_all_reduce_bytes = Formula(
    "tensor_all_reduce_bytes",
    "X_TPAR",
    2 * b_a * h * B * T / TOKEN / DEVICE * (T_p - 1) / T_p,
    "byte/device",
    "one all-reduce of a micro-batch's activations: tensor parallelism without sequence parallelism",
    assumptions=("one micro-batch and one layer: 2 forward, after attention and after the MLP, and 2 backward",),
    derivation=(
        Step("all-reduce of B T hidden vectors over the tensor ranks",
             all_reduce_bytes.expression.subs([(X, _hidden), (n, T_p)])),
        Step("with sequence parallelism a reduce-scatter and, before the next matmul, an all-gather: two units",
             (reduce_scatter_bytes.expression + all_gather_bytes.expression).subs([(X, _hidden), (n, T_p)])),
    ),
)  # fmt: skip

pipeline_send_bytes = Formula(
    "pipeline_send_bytes",
    "X_PP",
    b_a * h * B * T / TOKEN / DEVICE * (s_p / T_p + 1 - s_p),
    "byte/device",
    "one pipeline send: a micro-batch's activations (or their gradients) to the next stage",
    assumptions=("each of the v chunks of a stage sends once forward and once backward for each micro-batch; the last "
                 "chunk of all does not send forward, nor the first backward",),
    derivation=(
        Step("one hidden vector a token, sharded by sequence parallelism",
             b_a * B * T / TOKEN * (h - s_p * h * (1 - 1 / T_p)) / DEVICE),
    ),
)  # fmt: skip

_keys_values = 2 * b_a * a_kv * d / T_p * _tokens / DEVICE  # of the whole sequence, this tensor rank's heads

context_unit_bytes = Formula(
    "context_unit_bytes",
    "X_CP",
    2 * b_a * a_kv * d / T_p * B * T / TOKEN / DEVICE * (C_p - 1) / C_p,
    "byte/device",
    "one context-parallel unit: keys and values (or their gradients) of a micro-batch pass all context ranks once",
    assumptions=(
        "one micro-batch and one layer: 1 unit forward; backward 1 for the gradients, 1 more where keys and values "
        "were not kept",
        "tensor ranks divide the key/value heads",
    ),
    derivation=(
        Step("ring: a block of T/C_p tokens to the neighbour, C_p - 1 times",
             sp.Sum(_keys_values / C_p, (_j, 1, C_p - 1))),
        Step("all-gather instead: all keys and values, but the share of them that a rank has",
             _keys_values - _keys_values / C_p),
    ),
)  # fmt: skip

head_exchange_bytes = Formula(
    "head_exchange_bytes",
    "X_UL",
    2 * b_a * (a + a_kv) * d / T_p * B * T / C_p / TOKEN / DEVICE * (C_p - 1) / C_p,
    "byte/device",
    "context parallelism by exchanging heads (Ulysses): attention's inputs to one share of the heads, its output back",
    assumptions=(
        "one micro-batch and one layer, forward; backward the same",
        "tensor and context ranks together divide the key/value heads",
    ),
    source="DeepSpeed-Ulysses (Jacobs et al. 2023)",
    derivation=(
        Step("all-to-alls of queries, keys and values of T/C_p tokens, and of the output",
             sum(all_to_all_bytes.expression.subs([(X, b_a * heads * d / T_p * _tokens / C_p / DEVICE), (n, C_p)])
                 for heads in (a, a_kv, a_kv, a))),
    ),
)  # fmt: skip

FORWARD_UNITS = 4
"""Units of one layer forward: gather before attention, scatter after it, gather before the MLP, scatter after it."""

def tensor_units(recompute_full: Any, gathers_again: Any) -> tuple[Any, Any]:
    """Tensor-parallel units of one layer, (forward, backward), for one micro-batch.

    `gathers_again` is 1 where the program keeps only the shard of a matmul's input and gathers it again in backward:
    two units more. Full recomputation repeats the forward ones.

    >>> tensor_units(0, 0), tensor_units(1, 0), tensor_units(0, 1)
    ((4, 4), (4, 8), (4, 6))
    """
    return FORWARD_UNITS, FORWARD_UNITS + 2 * gathers_again + FORWARD_UNITS * recompute_full


def pipeline_sends(pipeline: Any, interleave: Any = 1) -> Any:
    """Sends of the busiest stage for one micro-batch, forward and backward together.

    A chunk sends its output on and its gradient back, but the last of all does not send on, nor the first back. So a
    stage between the ends makes two sends a chunk, the first and the last stage one fewer. Numbers or columns.

    >>> pipeline_sends(4), pipeline_sends(2), pipeline_sends(2, interleave=3), pipeline_sends(1)
    (2, 1, 5, 0)
    """
    return (pipeline > 1) * (2 * interleave - (pipeline == 2))


def context_units(gathers_again: Any = 1) -> tuple[Any, Any]:
    """Context-parallel units of one layer, (forward, backward), for one micro-batch.

    `gathers_again` is 1 where backward fetches keys and values once more, 0 where every rank kept them all.

    >>> context_units(), context_units(0)
    ((1, 2), (1, 1))
    """
    return 1, 1 + gathers_again
