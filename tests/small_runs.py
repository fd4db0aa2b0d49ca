"""Runs small enough that every one of their layouts can be looked at singly."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from course.legality import reasons
from course.predict import predict
from course.predict.columns import from_layout
from course.problem import Layout, Run, loads

SMALL = """
[model]
layers = {layers}
hidden = {hidden}
heads = {heads}
kv_heads = {kv_heads}
ffn = {ffn}
vocabulary = 1000
{experts}
[training]
tokens = 1e9
sequence_length = {sequence_length}
global_batch_sequences = {batch}
[software]
recipe = "{recipe}"
{software}
[cluster]
peak_flops_per_s = 1e14
memory_bytes = {memory}
memory_bytes_per_s = 1e12
node_size = {node}
scale_up_bytes_per_s = 1e11
scale_out_bytes_per_s = 1e10
devices = {devices}
{rest}
"""
DEFAULTS = {
    "layers": 6, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "batch": 24, "recipe": "megatron",
    "memory": "1e12", "devices": 12, "node": 4, "sequence_length": 96, "experts": "", "software": "", "rest": "",
}  # fmt: skip
MIXTURE = "experts = 4\nexperts_per_token = 2\nexpert_ffn = 32\ndense_layers = 0"

RECOMPUTES, SHARDINGS = ("none", "selective", "full"), ("none", "zero1", "zero2", "zero3")
ORDERS = [("tensor", *rest) for rest in itertools.permutations(("context", "data", "pipeline"))]


def small(**changes: Any) -> Run:
    return loads(SMALL.format(**{**DEFAULTS, **changes}))


def divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def spellings(run: Run) -> Iterator[Layout]:
    """Every layout, legal or not, within the bounds the sweep says it has, spelt in one way; placed plainly.

    Written from the meaning of the fields: degrees that multiply to the devices, one stage without a schedule, one rank
    with nobody to share with.
    """
    model, devices, software = run.model, run.cluster.devices, run.software
    contexts = divisors(devices, max(1, min(64, run.training.sequence_length // 4096)))
    recomputes = ("none", "full") if software.flash_attention else RECOMPUTES
    for tensor, pipeline, context in itertools.product(
        divisors(devices, 64), divisors(devices, model.layers + 2), contexts
    ):
        if devices % (tensor * pipeline * context):
            continue
        data = devices // (tensor * pipeline * context)
        schedules = [("1f1b", 1)]
        if pipeline > 1:
            schedules += [("gpipe", 1), *(("interleaved", v) for v in range(2, 1 + min(16, (model.layers + 2) // 2)))]
        for micro, (schedule, chunks), expert, expert_tensor, sharding, recompute, parallel in itertools.product(
            divisors(run.training.global_batch_sequences, 16), schedules,
            divisors(devices, model.experts) if model.experts else (1,),
            divisors(tensor, tensor) if model.experts else (1,),
            SHARDINGS if data * context > 1 else ("none",), recomputes, (True, False) if tensor > 1 else (False,),
        ):  # fmt: skip
            yield Layout(
                data=data, tensor=tensor, pipeline=pipeline, context=context, expert=expert,
                expert_tensor=expert_tensor, sharding=sharding, micro_batch=micro, recompute=recompute,
                schedule=schedule, interleave=chunks, sequence_parallel=parallel, order=tuple(software.order),
            )  # fmt: skip


def placements(run: Run, layout: Layout) -> Iterator[Layout]:
    """A layout placed in every way the sweep says it tries: tensor ranks innermost, groups of a node and of nodes."""
    whole, node, usual = layout.data * layout.context, run.cluster.fabric.node_size, tuple(run.software.order)
    sizes = {whole}
    if layout.sharding != "none":
        wanted = [node // layout.tensor, *(node**k for k in range(1, 12) if 1 < node**k < run.cluster.devices)]
        sizes |= {max(divisors(whole, size)) for size in wanted if size >= 1} - {1}
    split = [axis for axis in ("context", "data", "pipeline") if getattr(layout, axis) > 1]
    # orders that differ only in axes of one rank are the same; the recipe's stands for those like it
    orders = {tuple(axis for axis in order if axis in split): order for order in reversed([usual, *ORDERS])}
    for size, order in itertools.product(sorted(sizes), orders.values()):
        yield dataclasses.replace(layout, shard_group=size, order=order)


def legal(run: Run, layout: Layout) -> bool:
    """What `predict` says of one layout, without what it would cost."""
    return not reasons(run, from_layout(layout, run))


def document(run: Run, layout: Layout) -> dict[str, Any]:
    return predict(dataclasses.replace(run, layout=layout))


def key(layout: Layout) -> tuple[Any, ...]:
    """What makes a layout, whatever its placement."""
    return (
        layout.data, layout.tensor, layout.pipeline, layout.context, layout.expert, layout.expert_tensor,
        layout.micro_batch, layout.schedule, layout.interleave, layout.sharding, layout.recompute,
        layout.sequence_parallel,
    )  # fmt: skip
