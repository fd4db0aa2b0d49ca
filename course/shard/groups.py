"""The smallest group that resolves the memory limit, and what every axis of a layout then sends in a step.

>>> from course import catalog
>>> state = catalog.state("bf16-18")
>>> smallest_groups(8.03e9, state.weights, state.all_gradients, state.optimizer, room_bytes=60 * 2**30)
{'none': None, 'zero1': 6, 'zero2': 3, 'zero3': 3}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from course.estimate import count, expert_parameters, pick, shape
from course.problem import Layout, Model
from course.shard.activations import (
    context_unit_bytes,
    context_units,
    pipeline_send_bytes,
    pipeline_sends,
    tensor_unit_bytes,
)
from course.shard.activations import tensor_units as units_of_tensor
from course.shard.experts import EXPERT_TRANSFERS, expert_data_ranks, expert_transfer_bytes
from course.shard.ladder import LADDER, STAGE_FLAGS, hybrid_traffic, state_per_device
from course.shard.latent import latent_context_bytes

__all__ = ["AxisCost", "axis_costs", "smallest_groups"]

_GROUPS = np.arange(1, 2**15 + 1)
"""Group sizes that are tried, up to more ranks than any run has had."""


def smallest_groups(
    parameters: float, weight_bytes: float, gradient_bytes: float, optimizer_bytes: float, *, room_bytes: float,
    tensor: int = 1,
) -> dict[str, int | None]:  # fmt: skip
    """For each rung of the ladder the fewest ranks with which the state fits; None where none is enough.

    What `state_per_device.solve("ranks", equals=room_bytes, …)` gives, found by evaluating a column of group sizes.

    Args:
        parameters: of one pipeline stage, before tensor ranks divide them.
        weight_bytes, gradient_bytes, optimizer_bytes: bytes a parameter.
        room_bytes: what the state may take on each device.
        tensor: tensor ranks that divide the parameters first.
    """
    given = {
        "stage_parameters": parameters, "tensor": tensor, "weight_bytes": weight_bytes,
        "gradient_bytes": gradient_bytes, "optimizer_bytes": optimizer_bytes,
    }  # fmt: skip
    found: dict[str, int | None] = {}
    for rung, flags in STAGE_FLAGS.items():
        enough = np.flatnonzero(state_per_device(ranks=_GROUPS, **given, **flags) <= room_bytes)
        found[rung] = int(_GROUPS[enough[0]]) if len(enough) else None
    return found


@dataclass(frozen=True)
class AxisCost:
    """One axis of a layout: what it splits, which collective, how often a step, bytes a device sends each time."""

    axis: str
    degree: int
    splits: str
    collective: str
    times: float
    bytes_each: float

    @property
    def bytes_per_step(self) -> float:
        """Bytes one device sends in one optimizer step."""
        return self.times * self.bytes_each


def axis_costs(
    model: Model, layout: Layout, *, sequence_length: int, micro_batches: int, weight_bytes: float = 2,
    reduced_gradient_bytes: float = 2, gathers_again: bool = False,
) -> tuple[AxisCost, ...]:  # fmt: skip
    """What every axis of a layout above 1 sends, for a device of the busiest stage, bf16 activations.

    Stages hold equally many layers, vocabulary tables are spread over them as if they were layers, and their units of
    tensor ranks are not counted; context ranks pass keys and values in a ring and again in backward, or the latents
    where the model has them. Experts fold into tensor, context and data ranks; what the ranks that share one expert
    move beside the units of its layer has no row. Tensor ranks gather hidden vectors, before latent attention too. No
    switch sums on the way. Shard groups smaller than all data and context ranks count under ZeRO-3, outside experts;
    full recomputation counts in the tensor units, not in what context and expert ranks send.

    Args:
        model: its shape.
        layout: the degrees, the micro-batch, the sharding.
        sequence_length: tokens of a sequence.
        micro_batches: micro-batches of a step on each replica.
        weight_bytes, reduced_gradient_bytes: bytes of a weight, and of a gradient on the wire.
        gathers_again: whether tensor ranks keep shares of the matmuls' inputs and gather them again in backward: 10
            tensor units a layer in place of 8.

    >>> from course import catalog
    >>> eight, ten = (axis_costs(catalog.model("llama-3-8b"), Layout(tensor=8), sequence_length=8192, micro_batches=1,
    ...                          gathers_again=again)[0] for again in (False, True))
    >>> eight.times / 32, ten.times / 32
    (8.0, 10.0)
    """
    widths = shape(model)
    sharded = float(bool(layout.sequence_parallel))
    batch = {
        **widths, "kv_lora": model.kv_lora, "rope_head_size": model.rope_head_size, "activation_bytes": 2,
        "micro_batch": layout.micro_batch, "tensor": layout.tensor, "context": layout.context,
        "expert": layout.expert, "sequence_sharded": sharded,
    }  # fmt: skip
    own = {**batch, "sequence_length": sequence_length / layout.context}
    whole = {**batch, "sequence_length": sequence_length}
    layers = model.layers / layout.pipeline
    mixture = _mixture_layers(model) / layout.pipeline
    passes = layers * micro_batches
    # where tokens travel to whole experts, the MLP of a mixture layer needs no tensor collectives
    blocks = passes - mixture * micro_batches / 2 * (layout.expert_tensor == 1)
    state = {
        "stage_parameters": _shared(model) / layout.pipeline, "tensor": layout.tensor,
        "ranks": layout.data * layout.context, "reductions": micro_batches, "weight_bytes": weight_bytes,
        "reduced_gradient_bytes": reduced_gradient_bytes, "shard_group": layout.shard_group,
    }  # fmt: skip
    ladder, (splits, moves) = LADDER[layout.sharding], _DATA[layout.sharding]
    in_groups = layout.sharding == "zero3" and layout.shard_group != layout.data * layout.context
    spread = hybrid_traffic if in_groups else ladder
    fold = {name: getattr(layout, name) for name in ("tensor", "context", "data", "expert", "expert_tensor")}
    copies = expert_data_ranks(**fold)
    experts = state | {
        "stage_parameters": _routed(model) / layout.pipeline, "ranks": copies,
        "tensor": layout.expert * layout.expert_tensor,
    }  # fmt: skip
    # only with sequence parallelism are there shares of inputs to gather again
    units = sum(units_of_tensor(float(layout.recompute == "full"), sharded * gathers_again))
    ring, passed = (latent_context_bytes, "latents") if model.kv_lora else (context_unit_bytes, "keys and values")
    rows = (
        AxisCost("data", layout.data * layout.context, splits, moves, 1, spread(**pick(spread, state))),
        AxisCost("expert data", int(copies) if model.experts else 1, splits, moves, 1, ladder(**pick(ladder, experts))),
        AxisCost("tensor", layout.tensor, "matrices of a layer", "all-gathers and reduce-scatters of activations",
                 units * blocks, tensor_unit_bytes(**pick(tensor_unit_bytes, own))),
        AxisCost("context", layout.context, "sequence, in attention too", f"{passed} round a ring",
                 sum(context_units()) * passes, ring(**pick(ring, whole))),
        AxisCost("pipeline", layout.pipeline, "layers", "activations to the next stage",
                 pipeline_sends(layout.pipeline, layout.interleave) * micro_batches,
                 pipeline_send_bytes(**pick(pipeline_send_bytes, own))),
        AxisCost("expert", layout.expert, "experts", "all-to-all of tokens",
                 EXPERT_TRANSFERS * mixture * micro_batches, _tokens(whole, model)),
    )  # fmt: skip
    return tuple(row for row in rows if row.degree > 1)


_DATA: Mapping[str, tuple[str, str]] = {
    "none": ("examples", "all-reduce of gradients"),
    "zero1": ("examples, optimizer state", "reduce-scatter of gradients, all-gather of weights"),
    "zero2": ("examples, optimizer state, gradients", "reduce-scatters of gradients, all-gather of weights"),
    "zero3": ("examples and all state", "all-gathers of weights, reduce-scatters of gradients"),
}


def _tokens(whole: Mapping[str, float], model: Model) -> float:
    given = {**whole, "experts_per_token": model.experts_per_token}
    return float(expert_transfer_bytes(**pick(expert_transfer_bytes, given))) if model.experts else 0.0


def _shared(model: Model) -> float:
    """Parameters outside the routed experts; those are reduced over another group."""
    return count(model).total - _routed(model)


def _routed(model: Model) -> float:
    """Parameters of all routed experts."""
    if not model.experts:
        return 0.0
    given = {**shape(model), "experts": model.experts, "expert_ffn": model.expert_ffn}
    return float(expert_parameters(**pick(expert_parameters, {**given, "dense_layers": model.dense_layers or 0})))


def _mixture_layers(model: Model) -> int:
    return model.layers - (model.dense_layers or 0) if model.experts else 0
