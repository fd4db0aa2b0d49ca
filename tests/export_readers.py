"""Layouts to export, and readers of what is written for an engine that share no code with the writers."""

from __future__ import annotations

import argparse
import builtins
import csv
import dataclasses
import io
from typing import Any

from course.examples import path
from course.problem import Layout, Run, load
from course.records.columns import typed

SEVERAL = {
    "llama-3-8b-8-h100": [
        Layout(data=8, sharding="zero3"),
        Layout(data=8, sharding="zero3", recompute="full", micro_batch=2),
        Layout(data=8),
        Layout(data=8, sharding="zero3", shard_group=4),
        Layout(tensor=4, data=2, sharding="zero3"),
        Layout(tensor=4, data=2, sequence_parallel=False),
        Layout(pipeline=4, data=2),
        Layout(pipeline=2, data=4, schedule="interleaved", interleave=4),
        Layout(tensor=2, pipeline=2, context=2),
        Layout(pipeline=2, data=4, stage_layers=(15, 17)),
    ],
    "llama-3.1-405b-16384-h100": [
        Layout(tensor=8, pipeline=16, data=128, schedule="interleaved", interleave=8),
        Layout(tensor=8, pipeline=16, data=128),
        Layout(tensor=8, pipeline=8, data=16, context=16, recompute="full"),
    ],
}


EXACT = [(name, layout) for name, layouts in SEVERAL.items() for layout in layouts]
"""Layouts that both engines can run as they are."""


def question(name: str) -> Run:
    return dataclasses.replace(load(path(name)), layout=None)


def document(*layouts: Layout) -> dict[str, Any]:
    """What a sweep that proposes these layouts returns, as far as an export reads it."""
    described = [
        {"layout": dataclasses.asdict(one), "step": {"time_s": 10.0 + n}, "memory": {"peak_gib": 60.0}}
        for n, one in enumerate(layouts)
    ]
    return {"layouts": described, "proposal": list(range(len(layouts)))}


def rows(text: str) -> list[dict[str, Any]]:
    return [typed(row) for row in csv.DictReader(io.StringIO(text))]


# Names and kinds as megatron/training/arguments.py of NVIDIA/Megatron-LM declares them (commit 000c4ac).
WHOLE = [
    "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "kv-channels", "num-query-groups",
    "seq-length", "max-position-embeddings", "micro-batch-size", "global-batch-size",
    "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
    "expert-model-parallel-size", "expert-tensor-parallel-size", "num-layers-per-virtual-pipeline-stage",
    "num-distributed-optimizer-instances", "recompute-num-layers", "train-iters", "eval-iters", "log-interval",
    "vocab-size", "make-vocab-size-divisible-by", "num-experts", "moe-router-topk", "moe-ffn-hidden-size",
    "moe-shared-expert-intermediate-size", "q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim",
    "v-head-dim",
]  # fmt: skip


NUMBERS = ["lr", "attention-dropout", "hidden-dropout"]


SWITCHES = [
    "group-query-attention", "swiglu", "disable-bias-linear", "add-qkv-bias", "qk-layernorm",
    "sequence-parallel", "untie-embeddings-and-output-weights", "use-distributed-optimizer",
    "overlap-grad-reduce", "overlap-param-gather", "use-megatron-fsdp", "no-gradient-accumulation-fusion",
    "use-flash-attn", "cross-entropy-loss-fusion", "bf16", "fp16", "grad-reduce-in-bf16", "tp-comm-overlap",
    "mock-data", "log-throughput", "use-tp-pp-dp-mapping", "no-overlap-p2p-communication",
    "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split", "moe-grouped-gemm",
    "multi-latent-attention",
]  # fmt: skip


CHOICES = {
    "normalization": ["LayerNorm", "RMSNorm"],
    "position-embedding-type": ["learned_absolute", "rope", "mrope", "relative", "none"],
    "recompute-granularity": ["full", "selective"],
    "recompute-method": ["uniform", "block"],
    "data-parallel-sharding-strategy": ["no_shard", "optim", "optim_grads", "optim_grads_params"],
    "ckpt-format": ["torch", "torch_dist", "zarr", "torch_dcp", "fsdp_dtensor"],
    "attention-backend": ["flash", "fused", "unfused", "local", "auto"],
    "fp8-format": ["e4m3", "hybrid"],
    "fp4-format": ["e2m1"],
    "moe-token-dispatcher-type": ["allgather", "alltoall", "flex"],
    "tokenizer-type": ["NullTokenizer"],
    "lr-decay-style": ["constant", "linear", "cosine"],
}


TEXTS = ["pipeline-model-parallel-layout", "moe-layer-freq"]


def megatron_arguments(text: str) -> argparse.Namespace:
    """The options of a file as Megatron's parser would take them: an unknown name or a wrong kind ends the test."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in WHOLE:
        parser.add_argument(f"--{name}", type=int)
    for name in NUMBERS:
        parser.add_argument(f"--{name}", type=float)
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    for name, choices in CHOICES.items():
        parser.add_argument(f"--{name}", choices=choices)
    for name in TEXTS:
        parser.add_argument(f"--{name}")
    words = [word for line in text.splitlines() if not line.startswith("#") for word in line.split()]
    return parser.parse_args(words)


def megatron_chunks(found: argparse.Namespace) -> tuple[int, tuple[int, ...] | None]:
    """Chunks a stage and, where given in full, the layers of each chunk: the rules of validate_args."""
    if found.pipeline_model_parallel_layout:
        stages = found.pipeline_model_parallel_layout.split("|")
        assert stages[0].startswith("E") and stages[-1].endswith("L")
        return len(stages) // found.pipeline_model_parallel_size, tuple(stage.count("t") for stage in stages)
    counted = found.num_layers
    counted += found.account_for_embedding_in_pipeline_split + found.account_for_loss_in_pipeline_split
    assert counted % found.pipeline_model_parallel_size == 0
    each = counted // found.pipeline_model_parallel_size
    if found.num_layers_per_virtual_pipeline_stage is None:
        return 1, None
    assert each % found.num_layers_per_virtual_pipeline_stage == 0
    return each // found.num_layers_per_virtual_pipeline_stage, None


def megatron_layout(text: str, devices: int) -> tuple[Layout, int]:
    """The layout and the global batch that a file of options asks for on so many devices."""
    found = megatron_arguments(text)
    tensor, pipeline = found.tensor_model_parallel_size, found.pipeline_model_parallel_size
    context = found.context_parallel_size
    assert devices % (tensor * pipeline * context) == 0
    data = devices // (tensor * pipeline * context)
    interleave, layers = megatron_chunks(found)
    sharding = {None: "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3"}[
        found.data_parallel_sharding_strategy
    ]
    layout = Layout(
        data=data, tensor=tensor, pipeline=pipeline, context=context, interleave=interleave,
        sharding=sharding if found.use_distributed_optimizer else "none",
        shard_group=data * context // (found.num_distributed_optimizer_instances or 1),
        micro_batch=found.micro_batch_size, recompute=found.recompute_granularity or "none",
        schedule="interleaved" if interleave > 1 else "1f1b", sequence_parallel=found.sequence_parallel,
        stage_layers=layers,
    )  # fmt: skip
    return layout, found.global_batch_size


class Kept:
    """Stands in for any class of the engine: attributes are stand-ins too, a call keeps its arguments."""

    def __init__(self, name: str = "", arguments: dict[str, Any] | None = None) -> None:
        self.name, self.arguments = name, arguments

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.arguments is not None and name in self.arguments:
            return self.arguments[name]
        return Kept(f"{self.name}.{name}".strip("."))

    def __call__(self, *_: Any, **arguments: Any) -> Kept:
        return Kept(self.name, arguments)


def titan(text: str) -> dict[str, Any]:
    """What `torchtitan_layouts.py` defines, torch and torchtitan replaced by stand-ins."""

    def stand_in(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] in ("torch", "torchtitan"):
            return Kept()
        return builtins.__import__(name, *arguments)

    module: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": stand_in}, "__name__": "read_back"}
    exec(compile(text, "torchtitan_layouts.py", "exec"), module)
    return module


def titan_layout(config: Kept, devices: int) -> tuple[Layout, int]:
    """The layout and the global batch of one configuration, by the rules of torchtitan's trainer and ParallelDims."""
    parallel, training = config.parallelism.arguments, config.training.arguments
    replicate, shard = parallel["data_parallel_replicate_degree"], parallel["data_parallel_shard_degree"]
    tensor, pipeline = parallel["tensor_parallel_degree"], parallel["pipeline_parallel_degree"]
    context = parallel["context_parallel_degree"]
    assert replicate * shard * tensor * pipeline * context == devices
    data = replicate * shard
    batch, local = training["global_batch_size"], training["local_batch_size"]
    assert batch % (local * data) == 0
    chunks = parallel.get("module_fqns_per_model_part") or [["all"]]
    sharding = {"always": "zero3", "never": "zero2"}[parallel["fsdp_reshard_after_forward"]]
    names = {"GPipe": "gpipe", "1F1B": "1f1b", "Interleaved1F1B": "interleaved"}
    recompute = config.activation_checkpoint
    layout = Layout(
        data=data, tensor=tensor, pipeline=pipeline, context=context, interleave=len(chunks) // pipeline,
        sharding="none" if shard * context == 1 else sharding, shard_group=shard * context if shard > 1 else None,
        micro_batch=parallel["pipeline_parallel_microbatch_size"] if pipeline > 1 else local,
        recompute="none" if recompute is None else {"FullAC": "full"}[recompute.name.split(".")[0]],
        schedule=names[parallel.get("pipeline_parallel_schedule", "1F1B")],
        sequence_parallel=parallel["enable_sequence_parallel"],
    )  # fmt: skip
    return layout, batch


def stand_ins(folder, **programs: str) -> dict[str, str]:
    """A PATH on which these programs are small shell scripts."""
    place = folder / "bin"
    place.mkdir()
    for name, body in programs.items():
        (place / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (place / name).chmod(0o755)
    return {"PATH": f"{place}:/usr/bin:/bin", "MEGATRON": "/src/megatron"}
