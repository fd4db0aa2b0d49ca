"""Which layouts are legal at all, and why the others are not. Belongs to step 3.

Rules differ between programs, so each rule that is one program's own says so. A layout is a row of columns; one layout
is a column of length one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from course.problem import Run

Columns = Mapping[str, np.ndarray]

RULES: dict[str, str] = {
    "devices": "data x tensor x pipeline x context = {product:.0f} must equal the {devices} devices of the cluster",
    "batch": "a global batch of {global_batch} sequences does not split into micro-batches of "
    "{micro_batch:.0f} on {data:.0f} replicas",
    "heads": "{heads} heads do not split over {tensor:.0f} tensor ranks",
    "kv_heads": "{kv_heads} key/value heads do not split over {tensor:.0f} tensor ranks, and {recipe} does "
    "not copy them",
    "ffn": "a feed-forward width of {ffn} does not split over {tensor:.0f} tensor ranks",
    "sequence": "a sequence of {sequence_length} tokens does not split over {shares} tensor ranks, as "
    "sequence parallelism wants",
    "context": "a sequence of {sequence_length} tokens does not split into 2 chunks for each of {context:.0f} context "
    "ranks: one early and one late chunk share out the causal half evenly",
    "no_experts": "expert and expert_tensor split experts, and the model has none",
    "experts": "{experts} experts do not spread over {expert:.0f} expert ranks",
    "expert_ffn": "an expert width of {expert_ffn} does not split over {expert_tensor:.0f} expert-tensor ranks",
    "shared_ffn": "shared experts of together {shared_ffn} do not split over {tensor:.0f} tensor ranks",
    "expert_fold": "expert x expert_tensor = {fold:.0f} must divide the {group:.0f} ranks of a stage "
    "(tensor x context x data)",
    "expert_tokens": "without sequence parallelism each of {tensor:.0f} tensor ranks holds every token, and would send "
    "it to the experts, or pass it through them, {tensor:.0f} times",
    "layers": "{layers} layers (or {layers} + 2, embedding and head counted) do not spread over "
    "{pipeline:.0f} stages of {interleave:.0f} chunks",
    "stage_layers": "stage_layers must list {pipeline:.0f} stages that add up to {layers} layers",
    "interleave": "{interleave:.0f} chunks a stage need the interleaved schedule and at least 2 stages, and "
    "that schedule at least 2 chunks",
    "rounds": "{micro_batches:.0f} micro-batches are no multiple of {pipeline:.0f} stages, which {recipe}'s "
    "interleaved schedule wants",
    "few_micro_batches": "{micro_batches:.0f} micro-batches are fewer than the {minimum:.0f} with which "
    "{recipe} starts {pipeline:.0f} stages",
    "split_backward": "the zero-bubble schedule fills the waits between stages, and pipeline is 1",
    "shard_group": "a shard group of {shard_group:.0f} does not divide the {data:.0f} data-parallel ranks",
    "sequence_parallel": "sequence parallelism needs tensor parallelism: tensor is 1",
}
"""Rule code -> sentence; the codes are what `sweep` counts rejections by, besides "memory".

Where programs disagree: experts fold into tensor, context and data ranks here, as in Megatron since 2024 and in
torchtitan; older ones, and DeepSpeed, want `expert` to divide `data`, so they refuse layouts that this rule set lets
pass. Megatron and torchtitan cut a sequence into 2 chunks a context rank, an early and a late one; a program that gives
each rank one piece needs only that `context` divides it, and its last rank then has nearly twice the average work.
Megatron asks for sequence parallelism where tensor and expert parallelism meet; a program that lets each tensor rank
send a share of the tokens does without.
"""


def violations(run: Run, columns: Columns) -> dict[str, np.ndarray]:
    """For each rule, a boolean column: True where the layout breaks it.

    Args:
        run: the question; its own layout is not used except for `stage_layers`.
        columns: float columns named as the fields of a layout; `schedule` as an index into `SCHEDULES`, and
            `micro_batches` as the micro-batches of a step.
    """
    model, training, software = run.model, run.training, run.software
    t, p, v, d = (columns[name] for name in ("tensor", "pipeline", "interleave", "data"))
    c, m = columns["context"], columns["micro_batches"]
    e, e_t = columns["expert"], columns["expert_tensor"]
    shared_ffn = model.shared_experts * model.expert_ffn
    interleaved = columns["schedule"] == SCHEDULES.index("interleaved")
    split = columns["schedule"] == SCHEDULES.index("zero-bubble")
    chunks = p * v
    stages_named = run.layout is not None and run.layout.stage_layers is not None
    named_wrong = stages_named and sum(run.layout.stage_layers) != model.layers  # type: ignore[union-attr, arg-type]
    lengths = len(run.layout.stage_layers) if stages_named else 0  # type: ignore[union-attr, arg-type]
    spread = (model.layers % chunks == 0) | ((model.layers + 2) % chunks == 0)
    if software.stage_rule == "first-extra":
        spread = spread | ((v == 1) & (p <= model.layers))
    minimum = _least_micro_batches(run, p)
    return {
        "devices": d * t * p * c != run.cluster.devices,
        "batch": training.global_batch_sequences % (d * columns["micro_batch"]) != 0,
        "heads": model.heads % t != 0,
        "kv_heads": model.kv_heads % t != 0,
        "ffn": (model.ffn % t != 0) & (model.dense_layers != 0),
        "sequence": (columns["sequence_parallel"] > 0) & (training.sequence_length % (t * c) != 0),
        "context": (c > 1) & (training.sequence_length % (2 * c) != 0),
        "no_experts": ((e > 1) | (e_t > 1)) & (model.experts == 0),
        "experts": (model.experts % e != 0) & (model.experts > 0),
        "expert_ffn": (model.expert_ffn % e_t != 0) & (model.experts > 0),
        "shared_ffn": (shared_ffn % t != 0) & (model.experts > 0),
        "expert_fold": (t * c * d) % (e * e_t) != 0,
        "expert_tokens": ((e > 1) | (e_t < t)) & (t > 1) & (columns["sequence_parallel"] == 0) & (model.experts > 0),
        "layers": ~spread & (not stages_named),
        "stage_layers": np.full(p.shape, named_wrong) | ((p != lengths) & stages_named),
        "interleave": ((v > 1) & (~interleaved | (p == 1))) | (interleaved & (v == 1)),
        "rounds": interleaved & (m % p != 0) & software.interleave_needs_divisible,
        "few_micro_batches": (p > 1) & (m < minimum),
        "split_backward": split & (p == 1),
        "shard_group": (d * c) % columns["shard_group"] != 0,
        "sequence_parallel": (columns["sequence_parallel"] > 0) & (t == 1),
    }


def _least_micro_batches(run: Run, pipeline: np.ndarray) -> np.ndarray:
    rules = {"none": 0 * pipeline, "stages": pipeline, "stages-1": pipeline - 1}
    return rules[run.software.pipeline_minimum_micro_batches]


def reasons(run: Run, columns: Columns) -> list[str]:
    """The sentences of every rule the single layout in `columns` breaks; an empty list means it is legal."""
    broken = [code for code, column in violations(run, columns).items() if column.any()]
    values = {name: float(column[0]) for name, column in columns.items() if column.dtype != object}
    values["product"] = values["data"] * values["tensor"] * values["pipeline"] * values["context"]
    values["fold"] = values["expert"] * values["expert_tensor"]
    values["group"] = values["data"] * values["tensor"] * values["context"]
    shared = f"{values['context']:.0f} context x " if values["context"] > 1 else ""
    names = {
        "shares": f"{shared}{values['tensor']:.0f}",
        "experts": run.model.experts, "expert_ffn": run.model.expert_ffn,
        "shared_ffn": run.model.shared_experts * run.model.expert_ffn,
        "devices": run.cluster.devices, "global_batch": run.training.global_batch_sequences, "heads": run.model.heads,
        "kv_heads": run.model.kv_heads, "ffn": run.model.ffn, "layers": run.model.layers, "recipe": run.software.recipe,
        "sequence_length": run.training.sequence_length,
        "minimum": float(_least_micro_batches(run, columns["pipeline"])[0]),
    }  # fmt: skip
    return [RULES[code].format(**{**values, **names}) for code in broken]


SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
"""A layout's `schedule`. Zero-bubble is ZB-H1: one chunk a stage, backward in two, any number of micro-batches."""

SHARDINGS = ("none", "zero1", "zero2", "zero3")
RECOMPUTES = ("none", "selective", "full")
