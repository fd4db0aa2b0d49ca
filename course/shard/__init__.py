"""Step 3, shard: what each axis splits, the bytes it must move and how often.

Traffic is counted in bytes one device sends in one optimizer step (or in one pass, where the name says so). Whether it
extends the step is another question: that is step 7.

>>> zero3_traffic(ranks=8, reductions=1, weight_bytes=2, reduced_gradient_bytes=2, stage_parameters=8e9, tensor=1)
42000000000.0
"""

from __future__ import annotations

from course.shard.activations import (
    FORWARD_UNITS,
    context_unit_bytes,
    context_units,
    head_exchange_bytes,
    pipeline_send_bytes,
    pipeline_sends,
    tensor_all_reduce_bytes,
    tensor_unit_bytes,
    tensor_units,
)
from course.shard.collectives import all_gather_bytes, all_reduce_bytes, all_to_all_bytes, reduce_scatter_bytes
from course.shard.experts import (
    EXPERT_TRANSFERS,
    expert_data_ranks,
    expert_state_per_device,
    expert_transfer_bytes,
)
from course.shard.groups import AxisCost, axis_costs, smallest_groups
from course.shard.ladder import (
    LADDER,
    STAGE_FLAGS,
    data_parallel_traffic,
    hybrid_traffic,
    state_per_device,
    zero1_traffic,
    zero2_traffic,
    zero3_traffic,
)
from course.shard.latent import expanded_context_bytes, latent_context_bytes, latent_tensor_unit_bytes

__all__ = [
    "EXPERT_TRANSFERS", "FORWARD_UNITS", "LADDER", "STAGE_FLAGS", "AxisCost", "all_gather_bytes", "all_reduce_bytes",
    "all_to_all_bytes", "axis_costs", "context_unit_bytes", "context_units", "data_parallel_traffic",
    "expanded_context_bytes", "expert_data_ranks", "expert_state_per_device", "expert_transfer_bytes",
    "head_exchange_bytes", "hybrid_traffic", "latent_context_bytes", "latent_tensor_unit_bytes",
    "pipeline_send_bytes", "pipeline_sends", "reduce_scatter_bytes", "smallest_groups", "state_per_device",
    "tensor_all_reduce_bytes", "tensor_unit_bytes", "tensor_units", "zero1_traffic", "zero2_traffic", "zero3_traffic",
]  # fmt: skip
