"""Step 3, shard: what each axis splits, the bytes it must move and how often.

Traffic is counted in bytes one device sends in one optimizer step (or in one pass, where the name says so). Whether it
extends the step is another question: that is step 7.

>>> zero3_traffic(ranks=8, reductions=1, weight_bytes=2, reduced_gradient_bytes=2, stage_parameters=8e9, tensor=1)
42000000000.0
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import DEVICE, TOKEN

n, X, G_r, g, b_w, b_g, b_o, P_s, T_p = symbols(
    "ranks", "payload_bytes", "reductions", "reduced_gradient_bytes", "weight_bytes", "gradient_bytes",
    "optimizer_bytes", "stage_parameters", "tensor",
)  # fmt: skip
z_1, z_2, z_3 = symbols("shard_optimizer", "shard_gradients", "shard_weights")
h, T, B, b_a, s_p, r_full, v = symbols(
    "hidden", "sequence_length", "micro_batch", "activation_bytes", "sequence_sharded", "full_recompute", "interleave"
)
_j = sp.Symbol("j", integer=True, positive=True)
_share = (n - 1) / n  # what a rank sends to the others of a buffer spread over n ranks

reduce_scatter_bytes = Formula(
    "reduce_scatter_bytes",
    "X_RS",
    X * _share,
    "byte/device",
    "bytes a rank sends to sum a buffer over n ranks and keep one n-th of it",
    assumptions=("ring: a chunk of X/n to the neighbour, n - 1 times",),
    derivation=(Step("n - 1 steps of one chunk each", sp.Sum(X / n, (_j, 1, n - 1))),),
)

all_gather_bytes = Formula(
    "all_gather_bytes",
    "X_AG",
    X * _share,
    "byte/device",
    "bytes a rank sends so that every rank holds the whole buffer, X when complete",
    assumptions=("ring: a chunk of X/n to the neighbour, n - 1 times",),
    derivation=(Step("n - 1 steps of one chunk each", sp.Sum(X / n, (_j, 1, n - 1))),),
)

all_reduce_bytes = Formula(
    "all_reduce_bytes",
    "X_AR",
    2 * X * _share,
    "byte/device",
    "bytes a rank sends so that every rank holds the sum",
    derivation=(
        Step("a reduce-scatter, then an all-gather", reduce_scatter_bytes.expression + all_gather_bytes.expression),
        Step("almost 2X for many ranks, half of that for two", 2 * X - 2 * X / n),
    ),
)

_stage = P_s / T_p / DEVICE  # parameters of one device before data-parallel sharding

data_parallel_traffic = Formula(
    "data_parallel_traffic",
    "X_DP",
    2 * g * _stage * _share,
    "byte/device",
    "plain data parallelism: gradients all-reduced once a step",
    derivation=(Step("all-reduce of the gradients", all_reduce_bytes.expression.subs(X, g * _stage)),),
)

zero1_traffic = Formula(
    "zero1_traffic",
    "X_Z1",
    (g + b_w) * _stage * _share,
    "byte/device",
    "ZeRO-1: gradients reduce-scattered once a step, updated weights all-gathered",
    derivation=(
        Step("a reduce-scatter of gradients and an all-gather of weights",
             reduce_scatter_bytes.expression.subs(X, g * _stage) + all_gather_bytes.expression.subs(X, b_w * _stage)),
    ),
)  # fmt: skip

zero2_traffic = Formula(
    "zero2_traffic",
    "X_Z2",
    (G_r * g + b_w) * _stage * _share,
    "byte/device",
    "ZeRO-2: gradients reduce-scattered each time they leave the device, weights all-gathered once",
    assumptions=("whole gradients are never kept, so every micro-batch reduces: G_r = G",),
    derivation=(
        Step("G_r reduce-scatters and one all-gather",
             G_r * reduce_scatter_bytes.expression.subs(X, g * _stage)
             + all_gather_bytes.expression.subs(X, b_w * _stage)),
    ),
)  # fmt: skip

zero3_traffic = Formula(
    "zero3_traffic",
    "X_Z3",
    G_r * (2 * b_w + g) * _stage * _share,
    "byte/device",
    "ZeRO-3 (FSDP): for each micro-batch weights gathered forward and again backward, gradients reduce-scattered",
    assumptions=("weights are released after forward and gathered again for backward",),
    derivation=(
        Step("two all-gathers and a reduce-scatter for each micro-batch",
             G_r * (2 * all_gather_bytes.expression.subs(X, b_w * _stage)
                    + reduce_scatter_bytes.expression.subs(X, g * _stage))),
    ),
)  # fmt: skip

LADDER = {"none": data_parallel_traffic, "zero1": zero1_traffic, "zero2": zero2_traffic, "zero3": zero3_traffic}

tensor_unit_bytes = Formula(
    "tensor_unit_bytes",
    "X_TP",
    b_a * h * B * T / TOKEN / DEVICE * (T_p - 1) / T_p,
    "byte/device",
    "one tensor-parallel unit: an all-gather or a reduce-scatter of a micro-batch's activations",
    assumptions=("one micro-batch and one layer: 4 units forward, 4 backward, 4 more under full recomputation",),
    derivation=(
        Step("all-gather of B T hidden vectors over the tensor ranks",
             all_gather_bytes.expression.subs([(X, b_a * h * B * T / TOKEN / DEVICE), (n, T_p)])),
    ),
)  # fmt: skip

pipeline_send_bytes = Formula(
    "pipeline_send_bytes",
    "X_PP",
    b_a * h * B * T / TOKEN / DEVICE * (s_p / T_p + 1 - s_p),
    "byte/device",
    "one pipeline send: a micro-batch's activations (or their gradients) to the next stage",
    assumptions=("each of the v chunks of a stage sends once forward and once backward for each micro-batch",),
    derivation=(
        Step("one hidden vector a token, sharded by sequence parallelism",
             b_a * B * T / TOKEN * (h - s_p * h * (1 - 1 / T_p)) / DEVICE),
    ),
)  # fmt: skip

state_per_device = Formula(
    "state_per_device",
    "M_state",
    _stage * (b_w * (1 - z_3 + z_3 / n) + b_g * (1 - z_2 + z_2 / n) + b_o * (1 - z_1 + z_1 / n)),
    "byte/device",
    "model state one device holds: each part whole, or one n-th of it once it is sharded",
    derivation=(
        Step("what sharding removes from the whole state",
             _stage * (b_w + b_g + b_o - (1 - 1 / n) * (z_3 * b_w + z_2 * b_g + z_1 * b_o))),
    ),
)  # fmt: skip

FORWARD_UNITS = 4
"""Units of one layer forward: gather before attention, scatter after it, gather before the MLP, scatter after it."""

STAGE_FLAGS = {
    "none": {"shard_optimizer": 0, "shard_gradients": 0, "shard_weights": 0},
    "zero1": {"shard_optimizer": 1, "shard_gradients": 0, "shard_weights": 0},
    "zero2": {"shard_optimizer": 1, "shard_gradients": 1, "shard_weights": 0},
    "zero3": {"shard_optimizer": 1, "shard_gradients": 1, "shard_weights": 1},
}
"""What each rung of the ladder shards over its group."""


def tensor_units(recompute_full: Any, gathers_again: Any) -> tuple[Any, Any]:
    """Tensor-parallel units of one layer, (forward, backward), for one micro-batch.

    `gathers_again` is 1 where the program keeps only the shard of a matmul's input and gathers it again in backward:
    two units more. Full recomputation repeats the forward ones.

    >>> tensor_units(0, 0), tensor_units(1, 0), tensor_units(0, 1)
    ((4, 4), (4, 8), (4, 6))
    """
    return FORWARD_UNITS, FORWARD_UNITS + 2 * gathers_again + FORWARD_UNITS * recompute_full
