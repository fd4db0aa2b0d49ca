"""Layouts as Megatron-LM reads them: a file of options a layout, for its entry point `pretrain_gpt.py`.

Names and meanings are those of `megatron/training/arguments.py` (commit 000c4ac of NVIDIA/Megatron-LM). Its distributed
optimizer is ZeRO-1; ZeRO-2 and ZeRO-3 are strategies of its own FSDP, used here without a pipeline only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from course.errors import UserError
from course.export.port import LOG_EVERY, STEPS, Asked, Ported, Settings, chunk_layers, distinct, inner_to_outer, told
from course.problem import Layout, Model, Run

__all__ = ["RECIPE", "options", "settings"]

RECIPE = "megatron"
COMMIT = "000c4ac"
DEFAULT_ORDER = ("tensor", "context", "data", "pipeline")
STAGES_INSIDE = ("tensor", "context", "pipeline", "data")
"""The order that --use-tp-pp-dp-mapping gives."""

STRATEGIES = {"zero2": "optim_grads", "zero3": "optim_grads_params"}
HELD = {16: "bf16-16", 18: "bf16-18"}
"""Bytes a parameter that Megatron can hold -> the recipe of the catalog."""

Options = dict[str, Any]


def settings(run: Run, asked: Sequence[Asked]) -> Settings:
    """A file `layout_N.args` for every layout.

    Raises:
        UserError: the model is none that Megatron's options describe.
    """
    _check(run.model)
    ported, same = distinct([_ported(run, one) for one in asked])
    return Settings(
        engine=f"Megatron-LM (options as of commit {COMMIT})",
        recipe=RECIPE,
        files={f"{one.name}.args": _file(run, one) for one in ported},
        ported=ported,
        launch='"${MEGATRON:?set it to the folder of your Megatron-LM checkout}/pretrain_gpt.py" $options',
        needs="MEGATRON (the folder of a Megatron-LM checkout); data and tokenizer are made up by --mock-data",
        said=(*_said(run), *same),
    )


def _said(run: Run) -> tuple[str, ...]:
    held = _held(run)
    if run.training.state.id == held:
        return ()
    return (
        f"The sweep holds {run.training.state.total} bytes a parameter ({run.training.state.id}); Megatron-LM holds "
        f"those of {held}.",
    )


def _held(run: Run) -> str:
    """The model state that the options give: gradients in fp32, or as wide as the weights where the sweep says so."""
    state = run.training.state
    return HELD[16 if run.training.precision == "fp16" or state.all_gradients == 2 else 18]


def _check(model: Model) -> None:
    """Refuse a model that the options cannot describe, naming everything that they lack."""
    biases = (model.attention_bias, model.mlp_bias)
    lacks = [
        what
        for what, has in (
            ("no norms at all", model.norm_size == 0), ("other than two norms a layer", model.norms_per_layer != 2),
            ("no last norm", not model.final_norm), ("a norm of the embedding", model.embedding_norm),
            ("one norm over all of query and key", model.qk_norm == "width"), ("parallel blocks", model.parallel_block),
            ("sliding windows", model.sliding_window > 0), ("attention sinks", model.attention_sinks),
            ("this choice of biases", biases not in (("none", False), ("qkv", False), ("qkvo", True))),
        )
        if has
    ]  # fmt: skip
    if lacks:
        raise UserError(
            f"{model.name} has {', '.join(lacks)}, for which these settings of Megatron-LM know no option. "
            "Change [model], or write the options by hand."
        )


def _ported(run: Run, asked: Asked) -> Ported:
    """The layout as Megatron runs it, and what it cannot do of the one asked."""
    want = asked.layout
    cannot: list[str] = []
    changes: dict[str, Any] = {}
    if want.sharding in STRATEGIES and want.pipeline > 1:
        rung = want.sharding.replace("zero", "ZeRO-")
        cannot.append(
            f"{rung} across a pipeline is not set up here for Megatron's FSDP: the distributed optimizer, ZeRO-1, runs "
            "in its place."
        )
        changes["sharding"] = "zero1"
    if want.schedule in ("gpipe", "zero-bubble"):
        instead = "interleaved" if want.interleave > 1 else "1f1b"
        cannot.append(f"Megatron-LM has no {want.schedule} schedule: {instead} runs in its place.")
        changes["schedule"] = instead
    found, order = inner_to_outer(want), DEFAULT_ORDER
    if found != _only(want, DEFAULT_ORDER):
        if found == _only(want, STAGES_INSIDE):
            order = STAGES_INSIDE
        else:
            cannot.append(
                f"Megatron-LM cannot place {', '.join(found)} in this order from neighbouring devices outwards: "
                "tensor, context, data, pipeline is taken."
            )
    changes["order"] = order
    columns = {"state": _held(run), "dtype": run.training.precision}
    return Ported(asked, dataclasses.replace(want, **changes), tuple(cannot), columns)


def _only(layout: Layout, order: Sequence[str]) -> tuple[str, ...]:
    return tuple(axis for axis in order if getattr(layout, axis) > 1)


def _file(run: Run, one: Ported) -> str:
    """The options of one layout, one a line, under what was asked and what cannot be done."""
    given = options(run, one.layout)
    lines = [name if value is True else f"{name} {value}" for name, value in given.items() if value is not False]
    return "\n".join([*(f"# {line}" for line in told(one, "# ")), *lines]) + "\n"


def options(run: Run, layout: Layout) -> Options:
    """Megatron's options for one layout by name; True is a switch that is set, False one that is left out."""
    return {
        **_model(run), **_batch(run, layout), **_split(layout), **_stages(run, layout), **_sharding(run, layout),
        **_memory(run, layout), **_program(run, layout),
    }  # fmt: skip


def _model(run: Run) -> Options:
    model, sequence = run.model, run.training.sequence_length
    found: Options = {
        "--num-layers": model.layers,
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": model.ffn,
        "--num-attention-heads": model.heads,
        "--kv-channels": model.head_size,
        "--group-query-attention": model.kv_heads < model.heads,
        "--swiglu": model.gated_mlp,
        "--normalization": "RMSNorm" if model.norm_size == 1 else "LayerNorm",
        "--disable-bias-linear": model.attention_bias != "qkvo",
        "--add-qkv-bias": model.attention_bias == "qkv",
        "--qk-layernorm": model.qk_norm == "head",
        "--position-embedding-type": "learned_absolute" if model.learned_positions else "rope",
        "--max-position-embeddings": max(sequence, model.learned_positions),
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        # the null tokenizer adds one token to those it is told, and padding is to the tensor ranks alone
        "--tokenizer-type": "NullTokenizer",
        "--vocab-size": model.vocabulary - 1,
        "--make-vocab-size-divisible-by": 1,
    }
    if model.kv_heads < model.heads:
        found["--num-query-groups"] = model.kv_heads
    if model.experts:
        found |= {
            "--num-experts": model.experts,
            "--moe-router-topk": model.experts_per_token,
            "--moe-ffn-hidden-size": model.expert_ffn or model.ffn,
            "--moe-layer-freq": f"[0]*{model.dense_layers}+[1]*{model.layers - (model.dense_layers or 0)}",
            "--moe-grouped-gemm": True,
            "--moe-token-dispatcher-type": "alltoall",
        }
        if model.shared_experts:
            found["--moe-shared-expert-intermediate-size"] = model.shared_experts * (model.expert_ffn or model.ffn)
    if model.kv_lora:
        found |= {"--multi-latent-attention": True, "--kv-lora-rank": model.kv_lora}
        found |= {"--q-lora-rank": model.q_lora} if model.q_lora else {}
        found |= {
            "--qk-head-dim": model.nope_head_size,
            "--qk-pos-emb-head-dim": model.rope_head_size,
            "--v-head-dim": model.v_head_size,
        }
    return found


def _batch(run: Run, layout: Layout) -> Options:
    return {
        "--seq-length": run.training.sequence_length,
        "--micro-batch-size": layout.micro_batch,
        "--global-batch-size": run.training.global_batch_sequences,
    }


def _split(layout: Layout) -> Options:
    found: Options = {
        "--tensor-model-parallel-size": layout.tensor,
        "--sequence-parallel": bool(layout.sequence_parallel),
        "--pipeline-model-parallel-size": layout.pipeline,
        "--context-parallel-size": layout.context,
        "--use-tp-pp-dp-mapping": layout.order == STAGES_INSIDE,
    }
    if layout.expert > 1 or layout.expert_tensor > 1:
        found |= {"--expert-model-parallel-size": layout.expert, "--expert-tensor-parallel-size": layout.expert_tensor}
    return found


def _stages(run: Run, layout: Layout) -> Options:
    """Even stages by their usual options, one layer fewer at both ends by two switches, any other split in full."""
    if layout.pipeline == 1:
        return {}
    layers = chunk_layers(run, layout)
    chunks = len(layers)
    ends = len(set(layers)) > 1 and layers == ((e := layers[0] + 1) - 1, *[e] * (chunks - 2), e - 1)
    if len(set(layers)) > 1 and not ends:
        stages = ["t" * held for held in layers]
        stages[0], stages[-1] = f"E{stages[0]}", f"{stages[-1]}L"
        return {"--pipeline-model-parallel-layout": "|".join(stages)}
    found: Options = dict.fromkeys(ACCOUNTED, ends)
    if layout.interleave > 1:
        found["--num-layers-per-virtual-pipeline-stage"] = layers[0] + ends
        # without overlap the interleaved schedule wants more than two stages
        found["--no-overlap-p2p-communication"] = not run.software.overlap_pipeline and layout.pipeline > 2
    return found


ACCOUNTED = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")


def _sharding(run: Run, layout: Layout) -> Options:
    group = layout.data * layout.context
    if group == 1 or layout.sharding == "none":
        return {"--overlap-grad-reduce": run.software.overlap_gradients and group > 1}
    fully = layout.sharding in STRATEGIES
    found: Options = {
        "--use-distributed-optimizer": True,
        "--overlap-grad-reduce": run.software.overlap_gradients,
        "--overlap-param-gather": run.software.overlap_parameters and run.software.overlap_gradients,
    }
    if fully:
        found |= {
            "--use-megatron-fsdp": True,
            "--data-parallel-sharding-strategy": STRATEGIES[layout.sharding],
            "--ckpt-format": "fsdp_dtensor",
            "--no-gradient-accumulation-fusion": True,
        }
    if layout.shard_group and layout.shard_group < group:
        found["--num-distributed-optimizer-instances"] = group // layout.shard_group
    return found


def _memory(run: Run, layout: Layout) -> Options:
    found: Options = {"none": {}, "selective": {"--recompute-granularity": "selective"}}.get(
        layout.recompute,
        {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1},
    )
    return {
        **found,
        "--use-flash-attn": run.software.flash_attention,
        **({} if run.software.flash_attention else {"--attention-backend": "unfused"}),
        "--cross-entropy-loss-fusion": run.software.fused_loss,
    }


def _program(run: Run, layout: Layout) -> Options:
    """What all layouts share: precision, data made up, steps and what is logged."""
    precision, dropout = run.training.precision, 0.1 if run.software.dropout else 0.0
    found: Options = {f"--{'fp16' if precision == 'fp16' else 'bf16'}": precision != "fp32"}
    found |= {"--fp8-format": "hybrid"} if precision == "fp8" else {}
    found |= {"--fp4-format": "e2m1"} if precision == "fp4" else {}
    return {
        **found,
        "--grad-reduce-in-bf16": precision == "bf16" and _held(run) == HELD[16],
        "--tp-comm-overlap": run.software.overlap_tensor and bool(layout.sequence_parallel),
        "--attention-dropout": dropout,
        "--hidden-dropout": dropout,
        "--mock-data": True,
        "--train-iters": STEPS,
        "--lr": 1e-4,
        "--lr-decay-style": "constant",
        "--eval-iters": 0,
        "--log-interval": LOG_EVERY,
        "--log-throughput": True,
    }
