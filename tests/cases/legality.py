"""Cases about layouts that cannot be."""

from __future__ import annotations

import math
from typing import Any

from cases.book import case
from cases.runs import run_with
from course import batch, shard
from course.legality import violations
from course.predict.columns import from_layout
from course.predict.stages import stages
from course.problem import Run


def _broken(run: Run) -> set[str]:
    """The rules that the layout of a run breaks."""
    return {code for code, column in violations(run, from_layout(run.layout, run)).items() if column.any()}


def _tensor_rules(tensor: int, **shape: Any) -> set[str]:
    return _broken(run_with(devices=tensor, layout=f"tensor = {tensor}\nsequence_parallel = false", **shape))


@case("LAY-01")
def _(given):
    heads = {"heads": given["heads"], "kv_heads": given["kv"]}
    legal = [tensor for tensor in range(1, given["heads"] + 1) if not _tensor_rules(tensor, **heads)]
    assert _tensor_rules(given["tp"], **heads) == {"kv_heads"}
    return {"legal": given["tp"] in legal, "max_tp": max(legal)}


@case("LAY-05")
def _(given):
    shape = {"heads": given["heads"], "kv_heads": given["kv"], "ffn": math.lcm(*range(1, 17))}
    return {"legal": [tensor for tensor in range(1, given["max_tp"] + 1) if not _tensor_rules(tensor, **shape)]}


def _stage_layers(recipe: str, layers: int, pipeline: int) -> list[float]:
    run = run_with(devices=pipeline, layout=f"pipeline = {pipeline}", layers=layers, recipe=recipe)
    found = stages(run, from_layout(run.layout, run))
    pairs = zip(found.index[0], found.layers[0], found.stands_for[0], strict=True)
    sizes = [size for _, size, alike in sorted(pairs) for _ in range(int(alike))]
    assert sum(sizes) == layers  # none is lost
    return sizes


@case("LAY-07", lost="not one of ours")
def _(given):
    return {"max_stage": max(_stage_layers("megatron", given["L"], given["pp"]))}


@case("LAY-09")
def _(given):
    return {"sizes": _stage_layers("nanotron-2025", given["L"], given["ranks"])}


@case("LAY-13")
def _(given):
    def legal(world: int) -> bool:
        return not _broken(run_with(devices=world, layout=f"data = {world}", global_batch=given["accum"]))

    return {"legal": legal(given["world"]), "legal_worlds_to_8": [world for world in range(1, 9) if legal(world)]}


@case("LAY-15")
def _(given):
    def rules(data: int) -> set[str]:
        layout = f"data = {data}\ntensor = {given['tp']}\npipeline = {given['pp']}"
        return _broken(run_with(devices=given["world"], layout=layout))

    assert rules(given["dp"]) == {"devices"}
    fits = next(data for data in range(1, 9) if not rules(data))
    return {
        "product": fits and given["dp"] * given["tp"] * given["pp"],
        "legal": not rules(given["dp"]),
        "dp_that_fits": fits,
    }


@case("LAY-19")
def _(given):
    def rules(length: int) -> set[str]:
        return _broken(run_with(devices=given["tp"], layout=f"tensor = {given['tp']}", sequence_length=length))

    assert rules(given["T"]) == {"sequence"}
    pad = next(length for length in range(given["T"], 4096) if not rules(length))
    return {"legal": not rules(given["T"]), "pad_to": pad}


@case("LAY-21")
def _(given):
    layout = f"pipeline = {given['pp']}"
    run = {"devices": given["pp"], "layout": layout, "global_batch": given["M"]}
    # one program refuses, another only idles
    assert "few_micro_batches" in _broken(run_with(**run, recipe="torch-fsdp"))
    assert "few_micro_batches" not in _broken(run_with(**run, recipe="megatron"))
    return {"bubble": batch.bubble_share(pipeline=given["pp"], interleave=1, micro_batches=given["M"])}


@case("LAY-23")
def _(given):
    def rules(data: int) -> set[str]:
        group = f'shard_group = {given["sharding"]}\nsharding = "zero1"'
        return _broken(
            run_with(given["world"], f"data = {data}\ntensor = {given['tp']}\npipeline = {given['pp']}\n{group}")
        )

    replicas = next(data for data in range(1, 65) if not rules(data))
    return {"dp": replicas // given["sharding"], "batch_replicas": replicas}


@case("LAY-25")
def _(given):
    def rules(data: int) -> set[str]:
        return _broken(run_with(data, f"data = {data}\nmicro_batch = {given['mb']}", global_batch=given["gbs"]))

    two, three = given["gpus"]
    assert not rules(two)
    steps = batch.accumulation(global_batch_sequences=given["gbs"], data=two, micro_batch=given["mb"])
    return {"accum_2": steps, "legal_3": not rules(three)}


@case("LAY-17")
def _(given):
    def copies(world: int, expert_tensor: int) -> float:
        data = world // (given["tp"] * given["pp"])
        fold = {"tensor": given["tp"], "context": 1, "data": data, "expert": given["ep"]}
        return shard.expert_data_ranks(**fold, expert_tensor=expert_tensor)

    said = 8  # ranks, in the message
    return {
        "grid": given["etp"] * given["ep"] * given["pp"],
        "expert_dp": copies(given["world"], given["etp"]),
        "etp_for_8": next(degree for degree in (1, 2, 4) if copies(said, degree) == 1),
    }
