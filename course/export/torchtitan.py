"""Layouts as torchtitan reads them: since 0.3 a Python module with one function a layout, chosen by `--config`.

Names and meanings are those of torchtitan 0.3.0 (`config/configs.py`, `trainer.py`, `distributed/pipeline_parallel.py`,
`models/llama3`). It has no rungs of ZeRO: `fully_shard` shards weights, gradients and optimizer together, and only what
becomes of gathered weights between forward and backward can be chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

from course.errors import UserError
from course.export.port import LOG_EVERY, STEPS, Asked, Ported, Settings, chunk_layers, distinct, inner_to_outer, told
from course.problem import Model, Run

__all__ = ["MODULE", "RECIPE", "VERSION", "settings"]

RECIPE, VERSION, MODULE = "torch-fsdp", "0.3.0", "torchtitan_layouts"
MESH = ("tensor", "context", "data", "pipeline")
"""Axes of its device mesh, from neighbouring devices outwards."""

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}


def settings(run: Run, asked: Sequence[Asked]) -> Settings:
    """The module `torchtitan_layouts.py`.

    Raises:
        UserError: the model is none that torchtitan's Llama block can be set to.
    """
    _check(run.model)
    ported, same = distinct([_ported(run, one) for one in asked])
    functions = "\n\n\n".join(_function(run, one) for one in ported)
    head = files("course.export").joinpath("torchtitan_head.txt").read_text("utf-8")
    widths = {
        "LAYERS": run.model.layers, "HIDDEN": run.model.hidden, "HEADS": run.model.heads,
        "KV_HEADS": run.model.kv_heads, "HEAD_SIZE": run.model.head_size, "FFN": run.model.ffn,
        "VOCABULARY": run.model.vocabulary, "SEQUENCE": run.training.sequence_length, "STEPS": STEPS,
        "LOG_EVERY": LOG_EVERY, "CHUNKED_LOSS": run.software.fused_loss,
    }  # fmt: skip
    constants = "\n".join(f"{name} = {value}" for name, value in widths.items())
    return Settings(
        engine=f"torchtitan {VERSION}",
        recipe=RECIPE,
        files={f"{MODULE}.py": f"{head.replace('# WIDTHS', constants).rstrip()}\n\n\n{functions}\n"},
        ported=ported,
        launch=f'-m torchtitan.train --module {MODULE} --config "$name"',
        needs="HF_ASSETS_PATH (the folder of a tokenizer with at most as many tokens as the vocabulary), and, unless "
        "the nodes reach the hub, DATASET_PATH (a local copy of c4); with a PyTorch before the nightly builds that "
        "torchtitan asks for, SPMD_BACKEND=partial_dtensor",
        said=(*_said(run), *same),
    )


def _said(run: Run) -> tuple[str, ...]:
    said = []
    if run.training.precision not in ("bf16", "fp32"):
        said.append(f"{run.training.precision} is asked; these settings of torchtitan compute in bf16.")
    if run.training.state.id != "fp32-16":
        said.append(
            f"The sweep holds {run.training.state.total} bytes a parameter ({run.training.state.id}); torchtitan keeps "
            "fp32 weights, gradients and moments, 16 bytes (fp32-16)."
        )
    return tuple(said)


def _check(model: Model) -> None:
    """Refuse a model that the Llama block cannot be set to, naming everything that it lacks."""
    lacks = [
        what
        for what, has in (
            ("experts", model.experts > 0), ("latent attention", model.kv_lora > 0),
            ("a feed-forward without a gate", not model.gated_mlp),
            ("norms other than one RMSNorm before attention and one before the feed-forward",
             model.norm_size != 1 or model.norms_per_layer != 2 or model.embedding_norm or not model.final_norm),
            ("biases", model.attention_bias != "none" or model.mlp_bias), ("norms of query and key",
             model.qk_norm != "none"), ("learned positions", model.learned_positions > 0),
            ("sliding windows", model.sliding_window > 0), ("parallel blocks", model.parallel_block),
        )
        if has
    ]  # fmt: skip
    if lacks:
        raise UserError(
            f"torchtitan's Llama block cannot be set to {model.name}, which has {', '.join(lacks)}. "
            "Use --export megatron, or write a torchtitan model for it by hand."
        )


def _ported(run: Run, asked: Asked) -> Ported:
    """The layout as torchtitan runs it, and what it cannot do of the one asked."""
    want = asked.layout
    cannot: list[str] = []
    changes: dict[str, Any] = {}
    columns: dict[str, Any] = {"state": "fp32-16", "dtype": "fp32" if run.training.precision == "fp32" else "bf16"}
    group = want.data * want.context
    if want.sharding in ("zero1", "zero2") and group > 1:
        rung = want.sharding.replace("zero", "ZeRO-")
        cannot.append(
            f"torchtitan has no {rung}: it shards the weights too, and here keeps the gathered ones from forward to "
            "backward, which is nearest to ZeRO-2."
        )
        changes["sharding"] = "zero2"
    if want.sharding == "none" and want.context > 1:
        cannot.append("torchtitan always shards the model state over the context ranks.")
        changes |= {"sharding": "zero3", "shard_group": want.context}
    if want.sharding != "none" and (want.shard_group or 1) % want.context:
        cannot.append(
            f"A shard group of {want.shard_group} does not hold whole context groups, as torchtitan wants: the state "
            "is sharded over all of them."
        )
        changes["shard_group"] = group
    if want.schedule == "zero-bubble":
        cannot.append(
            "torchtitan's zero-bubble schedules, InterleavedZeroBubble and ZBVZeroBubble, hold several chunks a stage; "
            "the one of this layout, ZB-H1, holds one: 1F1B runs in its place."
        )
        changes["schedule"] = "1f1b"
    if want.recompute == "selective":
        cannot.append("torchtitan's selective recomputation repeats every second matrix product, not attention alone.")
    if inner_to_outer(want) != tuple(axis for axis in MESH if getattr(want, axis) > 1):
        cannot.append("torchtitan's mesh has one order: tensor, context, data, then pipeline.")
        changes["order"] = MESH
    if run.model.tied_embeddings and want.pipeline > 1:
        cannot.append("torchtitan does not tie the tables across a pipeline: they are two here.")
        columns["tied_embeddings"] = False
    return Ported(asked, dataclasses.replace(want, **changes), tuple(cannot), columns)


def _function(run: Run, one: Ported) -> str:
    """The function of one layout, with what was asked and what cannot be done as its docstring."""
    layout, batch = one.layout, run.training.global_batch_sequences
    shard = 1 if layout.sharding == "none" else (layout.shard_group or 1) // layout.context
    # without a pipeline a local batch is one micro-batch; with one it is split into those of the whole step
    local = layout.micro_batch if layout.pipeline == 1 else batch // layout.data
    again = layout.sharding == "zero3" and run.software.regather_in_backward
    parallelism = {
        "data_parallel_replicate_degree": layout.data // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": '"always"' if again else '"never"',
        "tensor_parallel_degree": layout.tensor,
        "enable_sequence_parallel": bool(layout.sequence_parallel),
        "context_parallel_degree": layout.context,
        "pipeline_parallel_degree": layout.pipeline,
    }
    if layout.pipeline > 1:
        parallelism |= {
            "pipeline_parallel_schedule": f'"{SCHEDULES[layout.schedule]}"',
            "pipeline_parallel_microbatch_size": layout.micro_batch,
            "module_fqns_per_model_part": f"chunks({_spelt(chunk_layers(run, layout))})",
        }
    lines = [
        *(f"# {line}" for line in told(one, "# ")),
        f"def {one.name}() -> Trainer.Config:",
        "    return training(",
        f'        "{one.name}",',
        f"        tied={one.columns.get('tied_embeddings', run.model.tied_embeddings)},",
        f"        local_batch_size={local},",
        f"        global_batch_size={batch},",
        f'        precision="{"float32" if run.training.precision == "fp32" else "bfloat16"}",',
        f"        recompute={RECOMPUTE[layout.recompute]},",
        "        parallelism=ParallelismConfig(",
        *(f"            {name}={value}," for name, value in parallelism.items()),
        "        ),",
        "    )",
    ]
    return "\n".join(lines)


def _spelt(layers: Sequence[int]) -> str:
    """A list of whole numbers, runs of equal ones shortened.

    >>> _spelt((9, 10, 10, 9))
    '[9] + 2 * [10] + [9]'
    """
    runs = [(value, len(list(same))) for value, same in groupby(layers)]
    return " + ".join(f"[{value}]" if count == 1 else f"{count} * [{value}]" for value, count in runs)
