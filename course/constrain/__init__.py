"""Step 2, constrain: what one device must hold, what does not fit first, what remedies it and what the remedy costs.

The order of the questions is fixed: optimizer state, gradients, weights, one layer, activations, then time and budget.

>>> one = {"micro_batch": 1, "sequence_length": 8192, "in_flight": 1}
>>> activation_memory(token_layer_bytes=520192, stage_layers=126, **one) / 2**30
500.0625
"""

from __future__ import annotations

from course.constrain.activations import activation_memory, checkpointed_memory, gathered_weights, whole_gradients
from course.constrain.limits import Limit, first_limit, held, how_far, layer_parameters, limits

__all__ = [
    "Limit", "activation_memory", "checkpointed_memory", "first_limit", "gathered_weights", "held",
    "how_far", "layer_parameters", "limits", "whole_gradients",
]  # fmt: skip
