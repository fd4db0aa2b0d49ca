"""Bytes one device sends in one optimizer step, by axis: what the questions about traffic speak of."""

from __future__ import annotations

import numpy as np

from course.estimate import pick
from course.predict.columns import Columns
from course.predict.experts import routed_parameters, tensor_share
from course.predict.latent import widths
from course.predict.stages import stage_parameters, stages
from course.problem import Run
from course.shard import (
    EXPERT_TRANSFERS,
    LADDER,
    all_gather_bytes,
    all_reduce_bytes,
    context_unit_bytes,
    context_units,
    expert_transfer_bytes,
    pipeline_send_bytes,
    pipeline_sends,
    tensor_unit_bytes,
    tensor_units,
)

__all__ = ["sent_bytes"]


def sent_bytes(run: Run, row: Columns) -> dict[str, float]:
    """Bytes one device sends in one optimizer step, by axis, for the single layout in `row`.

    Data traffic is that of the stage with most parameters, the others that of the stage with most layers. What ranks
    that share one expert gather and scatter counts as expert traffic.
    """
    model, software = run.model, run.software
    value = {name: float(column[0]) for name, column in row.items()}
    stage = stages(run, row)
    most = int(np.argmax(stage.layers[0]))
    layers, mixture = float(stage.layers[0, most]), float(stage.mixture[0, most])
    passes = value["micro_batches"]
    data = _reduced(run, value, "", float(stage_parameters(run, row, stage).max()))
    moved = {
        **widths(model), "activation_bytes": 2.0, "micro_batch": value["micro_batch"],
        "sequence_length": run.training.sequence_length / value["context"], "tensor": value["tensor"],
        "sequence_sharded": value["sequence_parallel"],
    }  # fmt: skip
    whole = moved | {
        "sequence_length": run.training.sequence_length, "context": value["context"], "expert": value["expert"],
        "experts_per_token": model.experts_per_token,
    }  # fmt: skip
    again = float(software.tensor_regather) * value["sequence_parallel"]
    units = sum(tensor_units(value["full_recompute"], again))
    blocks = layers - mixture * (1 - tensor_share(model))
    tensor = units * blocks * passes * float(tensor_unit_bytes(**pick(tensor_unit_bytes, moved)))
    sends = passes * pipeline_sends(int(value["pipeline"]), int(value["interleave"]))
    pipeline = sends * float(pipeline_send_bytes(**pick(pipeline_send_bytes, moved)))
    rounds = sum(context_units()) + value["full_recompute"]
    context = rounds * layers * passes * float(context_unit_bytes(**pick(context_unit_bytes, whole)))
    expert = 0.0
    if model.experts:
        data += _reduced(run, value, "expert_", float(routed_parameters(model, stage).max()))
        travels = EXPERT_TRANSFERS + EXPERT_TRANSFERS / 2 * value["full_recompute"]
        expert = travels * mixture * passes * float(expert_transfer_bytes(**pick(expert_transfer_bytes, whole)))
        copies = model.experts_per_token if value["expert"] > 1 else 1
        held = copies * value["expert_tensor"] / value["tensor"]  # gathered tokens over those of a tensor group
        shared = moved | {"tensor": value["expert_tensor"]}
        inside = sum(tensor_units(value["full_recompute"], float(software.tensor_regather))) / 2
        # the bytes grow with the tokens, so fewer than a micro-batch are a share of one
        expert += inside * mixture * passes * held * float(tensor_unit_bytes(**pick(tensor_unit_bytes, shared)))
    return {"tensor": tensor, "context": context, "expert": expert, "pipeline": pipeline, "data": data}


def _reduced(run: Run, value: dict[str, float], of: str, held: float) -> float:
    """Gradients reduced and weights gathered: of routed experts (`expert_`), or of the rest."""
    software, state = run.software, run.training.state
    sharding = list(LADDER)[int(value["sharding"])]
    ranks, group, split = value["dense_ranks"], value["shard_group"], value["tensor"]
    if of:
        ranks, group, split = value["expert_data"], value["expert_shards"], value["expert"] * value["expert_tensor"]
    names = {
        "ranks": group if sharding != "none" else ranks, "reductions": value["micro_batches"],
        "weight_bytes": float(state.weights), "reduced_gradient_bytes": float(software.gradient_reduction_bytes),
        "stage_parameters": held, "tensor": split,
    }  # fmt: skip
    data = float(LADDER[sharding](**pick(LADDER[sharding], names)))
    if sharding == "zero3" and not software.regather_in_backward:
        kept = all_gather_bytes(ranks=names["ranks"], payload_bytes=state.weights * held / split)
        data -= value["micro_batches"] * float(kept)
    copies = ranks / group
    if sharding != "none" and copies > 1:  # hybrid sharding: the groups sum what each holds in shards
        shard = software.gradient_reduction_bytes * held / split / group
        times = value["micro_batches"] if value["shard_gradients"] else 1
        data += times * float(all_reduce_bytes(ranks=copies, payload_bytes=shard))
    return data
