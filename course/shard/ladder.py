"""The ladder: data parallelism and the rungs of ZeRO, what each keeps on a device and what it sends in a step.

>>> zero3_traffic(ranks=8, reductions=1, weight_bytes=2, reduced_gradient_bytes=2, stage_parameters=8e9, tensor=1)
42000000000.0
"""

from __future__ import annotations

from course.formula import Formula, Step
from course.shard.collectives import all_gather_bytes, all_reduce_bytes, reduce_scatter_bytes
from course.symbols import symbols
from course.units import DEVICE

__all__ = [
    "LADDER", "STAGE_FLAGS", "data_parallel_traffic", "hybrid_traffic", "state_per_device", "zero1_traffic",
    "zero2_traffic", "zero3_traffic",
]  # fmt: skip

n, n_g, X, G_r, g, b_w, b_g, b_o, P_s, T_p = symbols(
    "ranks", "shard_group", "payload_bytes", "reductions", "reduced_gradient_bytes", "weight_bytes", "gradient_bytes",
    "optimizer_bytes", "stage_parameters", "tensor",
)  # fmt: skip
z_1, z_2, z_3 = symbols("shard_optimizer", "shard_gradients", "shard_weights")
_share = (n - 1) / n
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

hybrid_traffic = Formula(
    "hybrid_traffic",
    "X_HS",
    G_r * _stage * ((2 * b_w + g) * (n_g - 1) / n_g + 2 * g * (n - n_g) / (n * n_g)),
    "byte/device",
    "ZeRO-3 inside groups of n_g ranks, copies of the model between them (hybrid sharding, HSDP)",
    assumptions=(
        "n_g divides n; n_g = n is ZeRO-3, n_g = 1 plain data parallelism that reduces G_r times",
        "the summed piece is all-reduced between the n/n_g groups as often as gradients leave the device; a program "
        "that waits for the last micro-batch does it once",
    ),
    derivation=(
        Step("ZeRO-3 inside the group, and a piece of the gradients all-reduced over the n/n_g ranks that hold it",
             G_r * (2 * all_gather_bytes.expression.subs([(X, b_w * _stage), (n, n_g)])
                    + reduce_scatter_bytes.expression.subs([(X, g * _stage), (n, n_g)])
                    + all_reduce_bytes.expression.subs([(X, g * _stage / n_g), (n, n / n_g)]))),
    ),
)  # fmt: skip

LADDER = {"none": data_parallel_traffic, "zero1": zero1_traffic, "zero2": zero2_traffic, "zero3": zero3_traffic}

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

STAGE_FLAGS = {
    "none": {"shard_optimizer": 0, "shard_gradients": 0, "shard_weights": 0},
    "zero1": {"shard_optimizer": 1, "shard_gradients": 0, "shard_weights": 0},
    "zero2": {"shard_optimizer": 1, "shard_gradients": 1, "shard_weights": 0},
    "zero3": {"shard_optimizer": 1, "shard_gradients": 1, "shard_weights": 1},
}
"""What each rung of the ladder shards over its group."""
