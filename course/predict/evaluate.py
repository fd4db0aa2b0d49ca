"""Every quantity of a prediction for a column of layouts, through the same formula objects the reader sees."""

from __future__ import annotations

import numpy as np

from course.estimate import operation_time
from course.mfu import accelerator_hours, wall_time
from course.predict import layers
from course.predict.compute import optimizer_bytes_moved
from course.predict.constants import Constants, constants_for
from course.predict.experts import routed_parameters
from course.predict.memory import PARTS, memory
from course.predict.schedules import pipeline_seconds
from course.predict.stages import Stages, stage_parameters, stages
from course.predict.traffic import data_traffic, links, pipeline_traffic
from course.problem import Run

Columns = dict[str, np.ndarray]


def evaluate(
    run: Run, columns: Columns, order: tuple[str, ...], constants: Constants | None = None, held: bool = True
) -> Columns:
    """Memory, time and cost of each layout.

    Args:
        run: the question.
        columns: layouts as `course.predict.columns.derived` makes them.
        order: the axes of the layouts, innermost first.
        constants: shares and rates; those of the run's cluster by default.
        held: evaluate memory too; a search that has done so leaves it out.

    Returns:
        Columns: `peak_bytes`, `part_<name>`, `stage`, `fits` where `held`; `compute_s`, `bubble_s`, `other_s`,
        `time_s`; `<axis>_total_s`, `<axis>_exposed_s`, `<axis>_crosses`; `run_s`, `wall_s`, `accelerator_hours`.
    """
    constants = constants or constants_for(run)
    layout = stages(run, columns)
    link = links(run, columns, constants, order)
    kinds = layers.kinds(run, columns, layout, link, constants)
    one = kinds[0].times
    head = (one.head_forward + one.head_backward)[:, None] * layout.has_head
    stage_compute = layers.on_stages(kinds, "compute") + head
    stage_seen = {axis: layers.on_stages(kinds, "seen", axis) for axis in layers.AXES}
    stage_time = np.where(layout.stands_for > 0, stage_compute + sum(stage_seen.values()), 0.0)
    slowest = np.argmax(stage_time, axis=1)
    row = np.arange(len(slowest))
    m, paced = columns["micro_batches"], stage_time[row, slowest]
    piped = pipeline_seconds(columns, layout, kinds, stage_time, slowest)
    compute = m * stage_compute[row, slowest]
    data = data_traffic(run, columns, layout, *layers.cover(run, columns, kinds), link)
    pipeline = pipeline_traffic(run, columns, link["pipeline"], m * paced + data.exposed)
    other = _optimizer_time(run, columns, layout, constants)
    time = piped + other + data.exposed + pipeline.exposed

    steps = run.training.tokens / run.training.tokens_per_step
    cluster = run.cluster
    out: Columns = {
        "compute_s": compute, "bubble_s": piped - m * paced, "other_s": other, "time_s": time,
        "data_total_s": data.total, "data_exposed_s": data.exposed,
        "pipeline_total_s": pipeline.total, "pipeline_exposed_s": pipeline.exposed,
        "run_s": time * steps,
        "wall_s": np.asarray(wall_time(time=time * steps, goodput=cluster.goodput)),
        "accelerator_hours": np.asarray(
            accelerator_hours(devices=cluster.devices, time=time * steps, goodput=cluster.goodput)
        ),
    }  # fmt: skip
    for axis, seen in stage_seen.items():
        out[f"{axis}_total_s"] = m * layers.on_stages(kinds, "total", axis)[row, slowest]
        out[f"{axis}_exposed_s"] = m * seen[row, slowest]
    if held:
        need = memory(run, columns, layout)
        out |= {
            "peak_bytes": need.peak, "stage": need.stage, "fits": need.peak <= cluster.accelerator.memory_bytes,
        }  # fmt: skip
        out |= {f"part_{name}": need.parts[name] for name in PARTS}
    out |= {f"{axis}_crosses": link[axis].crosses for axis in ("tensor", "data", "pipeline", "context")}
    out["expert_crosses"] = np.zeros_like(out["data_crosses"])
    if run.model.experts:
        out["expert_crosses"] = link["expert"].crosses | link["expert_tensor"].crosses
        out["data_crosses"] = out["data_crosses"] | link["expert_data"].crosses
    return out


def _optimizer_time(run: Run, columns: Columns, layout: Stages, constants: Constants) -> np.ndarray:
    """The optimizer step: state of the device's own shard through memory once, on the stage with most parameters."""
    state = run.training.state
    sharded = np.where(columns["shard_optimizer"] > 0, columns["shard_group"], 1)
    held = stage_parameters(run, columns, layout) / (columns["tensor"] * sharded)[:, None]
    if run.model.experts:
        own = np.where(columns["shard_optimizer"] > 0, columns["expert_shards"], 1)
        copies = columns["expert"] * columns["expert_tensor"] * own
        held = held + routed_parameters(run.model, layout) / copies[:, None]
    moved = optimizer_bytes_moved(
        stage_parameters=held.max(axis=1), optimizer_bytes=float(state.optimizer),
gradient_bytes=float(state.extra_gradients or state.gradients), weight_bytes=float(state.weights),
    )  # fmt: skip
    accelerator = run.cluster.accelerator
    return np.asarray(
        operation_time(
            kernel_flops=np.zeros_like(moved), kernel_bytes=moved, peak_flops_per_s=accelerator.peak_flops_per_s,
            efficiency=1.0, memory_bytes_per_s=constants.memory_share * accelerator.memory_bytes_per_s,
        )
    )  # fmt: skip
