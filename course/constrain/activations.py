"""Bytes beside the state: activations, whole or by checkpoints, and what sharding makes a device hold for a moment.

>>> one = {"micro_batch": 1, "sequence_length": 8192}
>>> activation_memory(token_layer_bytes=520192, stage_layers=126, in_flight=1, **one) / 2**30
500.0625
"""

from __future__ import annotations

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import DEVICE

A, A_in, B, T, k_c, L_s, m, P_L, b_w, b_g, T_p, z_2, z_3, n = symbols(
    "token_layer_bytes", "input_bytes", "micro_batch", "sequence_length", "checkpoint_layers", "stage_layers",
    "in_flight", "layer_parameters", "weight_bytes", "gradient_bytes", "tensor", "shard_gradients",
    "shard_weights", "ranks",
)  # fmt: skip

activation_memory = Formula(
    "activation_memory",
    "M_act",
    A * B * T * L_s * m / DEVICE,
    "byte/device",
    "activations a device keeps for backward: of each of its layers, for every micro-batch in flight",
    derivation=(
        Step(
            "tokens of a micro-batch, bytes of a token and layer, layers, micro-batches", B * T * A * (m * L_s) / DEVICE
        ),
    ),
)

gathered_weights = Formula(
    "gathered_weights",
    "M_gather",
    2 * z_3 * (1 - 1 / n) * P_L * b_w / T_p / DEVICE,
    "byte/device",
    "whole weights under ZeRO-3: the layer at work and the next one, fetched ahead; its own share is there already",
    derivation=(Step("two layers, less the n-th a rank stores", 2 * (P_L - P_L / n) * z_3 * b_w / T_p / DEVICE),),
)

whole_gradients = Formula(
    "whole_gradients",
    "M_grad",
    z_2 * (1 - 1 / n) * P_L * b_g / T_p / DEVICE,
    "byte/device",
    "gradients of one layer before they are reduced, when gradients are sharded",
    derivation=(Step("one layer, less the n-th a rank keeps", (P_L - P_L / n) * z_2 * b_g / T_p / DEVICE),),
)

checkpointed_memory = Formula(
    "checkpointed_memory",
    "M_ckpt",
    B * T * (m * A_in * L_s / k_c + k_c * A) / DEVICE,
    "byte/device",
    "activations under full recomputation: an input for every k_c layers and micro-batch in flight, k_c layers whole",
    assumptions=("k_c divides the layers; one group at a time is made again, of one micro-batch, and all of it kept",),
    source="Chen et al. 2016 (arXiv 1604.06174)",
    derivation=(
        Step("an input for each group of layers and micro-batch, and all that the layers of one group keep, once",
             (B * T * A_in) * m * (L_s / k_c) / DEVICE + (B * T * A) * k_c / DEVICE),
    ),
)  # fmt: skip
