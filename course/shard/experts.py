"""Expert parallelism: experts fold into the ranks that are there, and tokens travel to them and back.

>>> expert_data_ranks(tensor=1, context=1, data=2, expert=2, expert_tensor=1)
1.0
"""

from __future__ import annotations

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import DEVICE, TOKEN

__all__ = ["EXPERT_TRANSFERS", "expert_data_ranks", "expert_state_per_device", "expert_transfer_bytes"]

T_p, C_p, D_p = symbols("tensor", "context", "data")
E_p, E_tp, E_dp, P_E, k_E = symbols("expert", "expert_tensor", "expert_data", "expert_parameters", "experts_per_token")
h, T, B, b_a, s_p = symbols("hidden", "sequence_length", "micro_batch", "activation_bytes", "sequence_sharded")
b_w, b_g, b_o, z_1, z_2, z_3 = symbols(
    "weight_bytes", "gradient_bytes", "optimizer_bytes", "shard_optimizer", "shard_gradients", "shard_weights"
)

_copies = b_a * h * k_E * B * T / C_p / TOKEN / DEVICE * (s_p / T_p + 1 - s_p)  # what a rank's tokens send out

EXPERT_TRANSFERS = 4
"""All-to-alls of one mixture layer and micro-batch: tokens out and back forward, their gradients out and back."""

expert_data_ranks = Formula(
    "expert_data_ranks",
    "E_dp",
    T_p * C_p * D_p / (E_tp * E_p),
    "1",
    "expert data-parallel degree: how many ranks hold the same experts, and share their state",
    assumptions=("every pipeline stage folds its own ranks: E_tp E_p E_dp = T_p C_p D_p",),
    derivation=(
        Step("ranks of a stage, over the ranks that hold all experts once", (T_p * C_p * D_p) / (E_p * E_tp)),
    ),
)

expert_state_per_device = Formula(
    "expert_state_per_device",
    "M_exp",
    P_E / (E_p * E_tp) / DEVICE
    * (b_w * (1 - z_3 + z_3 / E_dp) + b_g * (1 - z_2 + z_2 / E_dp) + b_o * (1 - z_1 + z_1 / E_dp)),
    "byte/device",
    "model state of experts one device holds: its experts, sharded over the expert data-parallel group",
    assumptions=("what is no expert is counted by state_per_device, over the data and context ranks",),
    derivation=(
        Step("this rank's experts whole, less what the others with the same experts keep",
             P_E / (E_p * E_tp) / DEVICE
             * (b_w + b_g + b_o - (1 - 1 / E_dp) * (z_3 * b_w + z_2 * b_g + z_1 * b_o))),
    ),
)  # fmt: skip

expert_transfer_bytes = Formula(
    "expert_transfer_bytes",
    "X_EP",
    b_a * h * k_E * B * T / C_p / TOKEN / DEVICE * (s_p / T_p + 1 - s_p) * (E_p - 1) / E_p,
    "byte/device",
    "one all-to-all: a copy of each token of a micro-batch to each of its experts, or the results back",
    assumptions=(
        "routing is balanced; every copy travels, two to one rank as well; programs that merge them send 1 to k_E",
        "tokens travel out and back in the same width",
        "one micro-batch and one mixture layer: 4 such transfers",
    ),
    derivation=(
        Step("k_E copies of each token a rank holds, less those for its own experts", _copies - _copies / E_p),
    ),
)  # fmt: skip
