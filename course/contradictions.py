"""Pairs of given values that cannot both be true. Each is an error that names both.

Only values that stand in the run file are compared: a default gives way. Whether a layout is legal on its cluster is
another question, answered in the step `shard`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course.fields import FIELDS, RunFileError, describe, show
from course.problem import Layout, Model, Run

__all__ = ["check"]

Given = Mapping[str, Mapping[str, Any]]


def check(given: Given, run: Run) -> None:
    """Raise `RunFileError` for the first contradiction between given values.

    `given` holds the checked values of the file by table, `run` what was made of them.

    >>> from course.problem import load
    >>> from importlib.resources import files
    >>> run = load(str(files("course") / "examples" / "llama-3-8b-8-h100.toml"))
    >>> check({}, run)
    """
    _check_training(given, run)
    if run.layout is not None:
        _check_layout(given, run, run.layout)


def _clash(first: str, second: str, reason: str) -> RunFileError:
    return RunFileError(f"{first} and {second} contradict each other: {reason}")


def _check_training(given: Given, run: Run) -> None:
    training, model = run.training, run.model
    tokens, length = show(training.tokens), training.sequence_length
    if training.tokens < training.tokens_per_step:
        raise _clash(
            f"[training] tokens = {tokens}",
            f"global_batch_sequences = {training.global_batch_sequences} with sequence_length = {length}",
            f"one step already takes {training.tokens_per_step} tokens, more than the whole run.",
        )
    if 0 < model.learned_positions < length:
        raise _clash(
            f"[training] sequence_length = {length}",
            f"[model] learned_positions = {model.learned_positions}",
            "the position table must have a row for every token of a sequence. Shorten one or enlarge the other.",
        )
    if (model.window_layers or 0) > (model.layers if model.sliding_window else 0):
        raise _clash(
            f"[model] window_layers = {model.window_layers}",
            f"layers = {model.layers}" if model.sliding_window else "sliding_window = 0",
            "they are some of the layers, and need a sliding_window, in tokens.",
        )
    _check_model(given.get("model", {}), model)


def _check_model(own: Mapping[str, Any], model: Model) -> None:
    """Fields that only a mixture of experts has, and those that only latent attention has, come together."""
    dense = own.get("dense_layers", model.dense_layers)
    if model.experts:
        for name in ("experts_per_token", "expert_ffn"):
            if not getattr(model, name):
                raise RunFileError(
                    f"[model] {name} is missing: {describe(FIELDS['model', name])}. With experts = {model.experts} it "
                    "must be at least 1."
                )
        if model.experts_per_token > model.experts:
            raise _clash(
                f"[model] experts_per_token = {model.experts_per_token}",
                f"experts = {model.experts}",
                "a token cannot visit more experts than a layer has.",
            )
        if dense > model.layers:
            raise _clash(f"[model] dense_layers = {dense}", f"layers = {model.layers}", "they are some of the layers.")
    else:
        for name in ("experts_per_token", "shared_experts", "expert_ffn", "router_bias"):
            if getattr(model, name):
                raise _clash(
                    f"[model] {name} = {show(getattr(model, name))}",
                    "experts = 0",
                    f"only a model with experts has it. Give experts, or leave {name} out.",
                )
    widths = ("rope_head_size", "nope_head_size", "v_head_size")
    if model.kv_lora:
        for name in widths:
            if not getattr(model, name):
                raise RunFileError(
                    f"[model] {name} is missing: {describe(FIELDS['model', name])}. With kv_lora = {model.kv_lora} it "
                    "must be at least 1."
                )
    else:
        for name in ("q_lora", *widths):
            if getattr(model, name):
                raise _clash(
                    f"[model] {name} = {getattr(model, name)}",
                    "kv_lora = 0",
                    f"only latent attention has it. Give kv_lora, or leave {name} out.",
                )
    if not model.experts and dense != model.layers:
        raise _clash(
            f"[model] dense_layers = {dense}",
            f"layers = {model.layers}",
            "without experts every layer is dense. Leave dense_layers out.",
        )


def _check_layout(given: Given, run: Run, layout: Layout) -> None:
    own = given.get("layout", {})
    if own.get("sequence_parallel") and layout.tensor == 1:
        raise _clash(
            "[layout] sequence_parallel = true",
            "tensor = 1",
            "it is the tensor group that shares the sequence. Leave sequence_parallel out, or raise tensor.",
        )
    if layout.interleave > 1 and layout.schedule != "interleaved":
        raise _clash(
            f"[layout] interleave = {layout.interleave}",
            f'schedule = "{layout.schedule}"' + ("" if "schedule" in own else " (the default)"),
            "only the interleaved one holds several chunks a stage. Set schedule to interleaved, or interleave to 1.",
        )
    if layout.schedule == "interleaved" and layout.interleave == 1:
        raise _clash(
            '[layout] schedule = "interleaved"',
            "interleave = 1",
            'interleaving needs at least two chunks a stage. Raise interleave, or set schedule = "1f1b".',
        )
    if layout.schedule == "interleaved" and layout.pipeline == 1:
        raise _clash(
            '[layout] schedule = "interleaved"',
            "pipeline = 1",
            "there are no stages to interleave. Raise pipeline, or leave schedule and interleave out.",
        )
    if layout.schedule == "zero-bubble" and layout.pipeline == 1:
        raise _clash(
            '[layout] schedule = "zero-bubble"',
            "pipeline = 1",
            "it fills the waits between stages, and there are none. Raise pipeline, or leave schedule out.",
        )
    if own.get("shard_group", 1) > 1 and layout.sharding == "none":
        raise _clash(
            f"[layout] shard_group = {layout.shard_group}",
            'sharding = "none"' + ("" if "sharding" in own else " (the default)"),
            "nothing is sharded. Choose zero1, zero2 or zero3, or leave shard_group out.",
        )
    batch = run.training.global_batch_sequences
    if batch % layout.micro_batch:
        raise _clash(
            f"[layout] micro_batch = {layout.micro_batch}",
            f"[training] global_batch_sequences = {batch}",
            "the global batch, in sequences, must be a whole number of micro-batches.",
        )
    _check_stages(run, layout)


def _check_stages(run: Run, layout: Layout) -> None:
    stages = layout.stage_layers
    if stages is None:
        return
    if len(stages) != layout.pipeline:
        raise _clash(
            f"[layout] stage_layers with {len(stages)} entries",
            f"pipeline = {layout.pipeline}",
            "stage_layers gives the layers of each stage, one number a stage.",
        )
    if sum(stages) != run.model.layers:
        raise _clash(
            f"[layout] stage_layers, which sum to {sum(stages)},",
            f"[model] layers = {run.model.layers}",
            "every layer stands on exactly one stage.",
        )
