"""The explorers of step 5: `plan`, `schedule`, `bubble` and `memory`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course import batch as step
from course.errors import UserError
from course.explorers.base import GIB, Choice, Explorer, Number, View
from course.explorers.shared import device_named, powers, share
from course.pictures import BLUE, ORANGE
from course.pictures.batch import Timeline
from course.pictures.live import Section, Stacks
from course.pictures.place import Curves, Line
from course.simulators import pipeline as simulator

__all__ = [
    "bubble", "bubble_view", "memory", "memory_view", "ordered", "plan", "plan_view", "schedule", "schedule_view",
]  # fmt: skip

WIDTH = 5.8
POWERS = powers(4096)
SCHEDULES = {"GPipe": "gpipe", "1F1B": "1f1b", "interleaved": "interleaved", "zero-bubble (ZB-H1)": "zero-bubble"}


def _least(least: float, **numbers: float) -> None:
    for name, value in numbers.items():
        if not value >= least:
            raise UserError(f"{name} must be {least:g} or more; it is {value:g}.")


# ---------------------------------------------------------------- tokens of a step
def plan_view(batch: int, sequence_length: int, devices: int, group: int, micro_batch: int) -> View:
    """What a step holds: replicas, micro-batches each, and whether the intended batch comes out.

    Args:
        batch: sequences of one step that are intended.
        sequence_length: tokens of a sequence.
        devices: of the cluster.
        group: devices of one replica.
        micro_batch: sequences a replica works on at once.
    """
    _least(1, batch=batch, sequence_length=sequence_length, micro_batch=micro_batch)
    if group > devices:
        raise UserError(f"One replica takes {group:,} devices and there are {devices:,}; choose a smaller group.")
    replicas = devices // group
    wanted = step.accumulation(global_batch_sequences=batch, data=replicas, micro_batch=micro_batch)
    whole = max(1, round(wanted))
    common = {"data": replicas, "micro_batch": micro_batch, "sequence_length": sequence_length}
    tokens = {"intended": batch * sequence_length, "held": step.tokens_per_step(**common, accumulation=whole)}
    holds = wanted == whole
    said = (
        f"each accumulates {whole:,} and the batch is held"
        if holds
        else f"the batch would need {wanted:.4g} micro-batches each: not a whole number, so this plan does other work"
    )
    return View(
        f"{replicas:,} replicas, {replicas * micro_batch:,} sequences at once: {said}.",
        ("", "sequences", "tokens"),
        tuple((name, f"{value / sequence_length:,.0f}", f"{value:,.0f}") for name, value in tokens.items()),
        {
            "finding": "Held" if holds else "Not the intended batch",
            "sections": [
                Section("millions of tokens in one step", {name: {name: value} for name, value in tokens.items()},
                        lambda value: f"{value / 1e6:,.3g}"),
            ],
        },
    )  # fmt: skip


def plan(*, ask: str | None = None, **values: Any) -> Explorer:
    """The tokens of a step while devices change; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Number("batch", "global batch (sequences)", 512, 8, 4096, whole=True, logarithmic=True),
        Number("sequence_length", "sequence (tokens)", 4096, 256, 131072, whole=True, logarithmic=True),
        Choice("devices", "devices", 64, dict(list(POWERS.items())[:12]) | {"24": 24, "48": 48, "96": 96}),
        Choice("group", "devices of a replica", 8, dict(list(POWERS.items())[:8])),
        Number("micro_batch", "micro-batch", 2, 1, 64, whole=True, logarithmic=True),
    )
    colours = {"intended": BLUE, "held": ORANGE}
    return Explorer(controls, plan_view, lambda: Stacks(colours, WIDTH, 2.3, labels=1.1), ask=ask, values=values)


# ---------------------------------------------------------------- who works when
def ordered(kind: str, stages: int, micro_batches: int, chunks: int) -> simulator.Orders:
    """The lists of a schedule by name.

    >>> len(ordered("1f1b", 3, 4, 1))
    3
    """
    if kind == "interleaved":
        return simulator.interleaved(stages, micro_batches, chunks)
    made = {"gpipe": simulator.gpipe, "1f1b": simulator.one_forward_one_backward, "zero-bubble": simulator.zero_bubble}
    return made[kind](stages, micro_batches)


def schedule_view(
    kind: str, stages: int, micro_batches: int, chunks: int, backward: float, send: float, slow: float
) -> View:
    """A simulated pipeline: its time, its idle share and the most that each stage holds, beside the formula.

    Args:
        kind: "gpipe", "1f1b", "interleaved" or "zero-bubble".
        stages: of the pipeline.
        micro_batches: of one step.
        chunks: of a stage, for the interleaved schedule.
        backward: time of a backward; a forward takes 1. Zero-bubble splits it in two halves.
        send: time of a send between stages.
        slow: how many times as long the last stage takes.
    """
    _least(0, backward=backward, send=send)
    _least(0.01, slow=slow)
    orders = ordered(kind, stages, micro_batches, chunks)
    forward = [1.0] * (stages - 1) + [float(slow)]
    back = [backward * time for time in forward]
    halves = {"weight": [time / 2 for time in back]} if kind == "zero-bubble" else {}
    run = simulator.simulate(orders, forward, [time / 2 for time in back] if halves else back, send, **halves)
    each = 1 + backward
    if kind == "zero-bubble":
        formula = step.zero_bubble_time(
            micro_batches=micro_batches,
            pipeline=stages,
            stage_forward_time=1,
            input_gradient_time=backward / 2,
            weight_gradient_time=backward / 2,
        )
    elif kind == "gpipe":
        longest = max(1, slow)
        formula = step.gpipe_time(
            sum_stage_times=each * (stages - 1 + slow),
            micro_batches=micro_batches,
            slowest_forward_time=longest,
            slowest_backward_time=backward * longest,
            pipeline=stages,
            send_time=send,
        )
    else:
        formula = step.pipeline_time(
            micro_batches=micro_batches,
            interleave=chunks if kind == "interleaved" else 1,
            slowest_stage_time=each * max(1, slow),
            sum_stage_times=each * (stages - 1 + slow),
        )
    most, parts = run.peak_in_flight(), chunks if kind == "interleaved" else 1
    agree = abs(float(run.makespan) - formula) < 1e-9 * formula
    idle = float(run.idle_share)
    return View(
        f"{micro_batches} micro-batches through {stages} stages take {float(run.makespan):.4g}, a forward taking 1; "
        f"{share(idle, 1)} of it idle. The formula says {formula:.4g}: "
        f"{'the same' if agree else 'outside its range of validity'}.",
        ("stage", "idle", "most micro-batches held"),
        tuple((str(place), share(float(run.makespan - run.schedule.busy(place)), float(run.makespan)),
               f"{held / parts:.4g}") for place, held in enumerate(most)),
        {"finding": f"{share(idle, 1)} idle, at most {max(most) / parts:.4g} micro-batches on a stage",
         "runs": {next(name for name, value in SCHEDULES.items() if value == kind): run}},
    )  # fmt: skip


def schedule(*, ask: str | None = None, **values: Any) -> Explorer:
    """A pipeline drawn by the event simulator; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Choice("kind", "schedule", "1f1b", SCHEDULES),
        Choice("stages", "stages", 4, {str(count): count for count in range(1, 9)}),
        Choice("micro_batches", "micro-batches", 8,
               lambda now: {str(count): count for count in range(1, 17)
                            if now["kind"] != "interleaved" or count % now["stages"] == 0}),
        Choice("chunks", "chunks of a stage", 2, {str(count): count for count in (2, 3)}),
        Number("backward", "backward / forward", 2.0, 0.5, 4, step=0.25),
        Number("send", "send / forward", 0.0, 0, 2, step=0.125),
        Number("slow", "last stage / others", 1.0, 0.5, 3, step=0.25),
    )  # fmt: skip
    return Explorer(controls, schedule_view, lambda: Timeline(WIDTH + 1.2, 3.9), ask=ask, values=values)


# ---------------------------------------------------------------- the bubble over micro-batches
COUNTS = np.array(sorted({round(2 ** (place / 4)) for place in range(41)}), dtype=float)


def bubble_view(stages: int, micro_batches: int, chunks: int) -> View:
    """Both published bubbles against the micro-batches, with one chunk a stage and with several.

    Args:
        stages: of the pipeline.
        micro_batches: of one step, marked.
        chunks: of a stage under interleaving.
    """
    _least(1, micro_batches=micro_batches)

    def both(count: Any, interleave: int) -> tuple[Any, Any]:
        given = {"pipeline": stages, "micro_batches": count, "interleave": interleave}
        return step.bubble_share(**given), step.bubble_overhead(**given)

    names = {1: "1 chunk", chunks: f"{chunks} chunks"}
    now = {name: both(micro_batches, number) for number, name in names.items()}
    curves: dict[str, Line] = {}
    for number, name in names.items():
        of_total, of_ideal = both(COUNTS, number)
        curves |= {f"{name}, of total": Line(COUNTS, of_total), f"{name}, of ideal": Line(COUNTS, of_ideal)}
    total, ideal = now["1 chunk"]
    return View(
        f"{stages} stages and {micro_batches} micro-batches, one chunk a stage: {share(total, 1)} of the time is idle, "
        f"which is {share(ideal, 1)} on top of the work. With {chunks} chunks {share(now[names[chunks]][0], 1)}.",
        ("chunks a stage", "idle / total", "idle / ideal"),
        tuple((name, share(pair[0], 1), share(pair[1], 1)) for name, pair in now.items()),
        {"finding": f"Idle: {share(total, 1)} of the total, {share(ideal, 1)} of the ideal",
         "curves": curves, "place": (micro_batches, f"{micro_batches} micro-batches")},
    )  # fmt: skip


def bubble(*, ask: str | None = None, **values: Any) -> Explorer:
    """The two published bubbles; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Choice("stages", "stages", 8, {str(count): count for count in (2, 4, 8, 12, 16, 32, 64)}),
        Number("micro_batches", "micro-batches", 32, 1, 1024, whole=True, logarithmic=True),
        Choice("chunks", "chunks when interleaved", 4, {str(count): count for count in (2, 4, 8)}),
    )
    return Explorer(
        controls, bubble_view, lambda: Curves("micro-batches of one step", "idle time", WIDTH, 3.9), ask=ask,
        values=values,
    )  # fmt: skip


# ---------------------------------------------------------------- memory at a fixed global batch
MEMORY_COLOURS = {"activations": BLUE}


def memory_view(replica_batch: int, micro_batch: int, stages: int, chunks: int, sequence_gib: float) -> View:
    """Activations of the first stage by schedule, while the replica's share of the global batch stays the same.

    Args:
        replica_batch: sequences of one step that one replica takes.
        micro_batch: sequences at once.
        stages: of the pipeline.
        chunks: of a stage when interleaved.
        sequence_gib: GiB that one sequence leaves on one stage.
    """
    _least(1, replica_batch=replica_batch, micro_batch=micro_batch)
    if replica_batch % micro_batch:
        raise UserError(
            f"{replica_batch} sequences are not cut into micro-batches of {micro_batch}; change one of them."
        )
    count = replica_batch // micro_batch
    held = {
        "GPipe": step.gpipe_in_flight(micro_batches=count),
        "1F1B": step.one_f_one_b_in_flight(micro_batches=count, pipeline=stages, stage=0),
        "ZB-H1": step.zero_bubble_in_flight(micro_batches=count, pipeline=stages),
    }
    if count % stages == 0 and stages > 1:
        held["interleaved"] = step.interleaved_in_flight(
            micro_batches=count, pipeline=stages, stage=0, interleave=chunks
        )
    size = {name: float(number) * micro_batch * sequence_gib * GIB for name, number in held.items()}
    idle = step.bubble_share(pipeline=stages, interleave=1, micro_batches=count)
    room = device_named("h100-sxm").memory_bytes
    return View(
        f"{count} micro-batches of {micro_batch}: GPipe keeps {held['GPipe'] * micro_batch:,.0f} sequences on stage 0 "
        f"and 1F1B {held['1F1B'] * micro_batch:,.0f}; both idle {share(idle, 1)}. "
        f"Interleaved: {chunks} chunks a stage.",
        ("schedule", "micro-batches held", "GiB on stage 0"),
        tuple((f"interleaved, {chunks} chunks" if name == "interleaved" else name, f"{held[name]:.4g}",
               f"{value / GIB:,.4g}") for name, value in size.items()),
        {
            "finding": f"Stage 0, {replica_batch} sequences a replica in micro-batches of {micro_batch}",
            "sections": [
                Section("GiB of activations", {name: {"activations": value} for name, value in size.items()},
                        lambda value: f"{value / GIB:,.3g}", (room, f"an H100: {room / GIB:.1f}")),
            ],
        },
    )  # fmt: skip


def memory(*, ask: str | None = None, **values: Any) -> Explorer:
    """What the first stage holds, by schedule; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Number("replica_batch", "sequences of a replica", 64, 1, 512, whole=True, logarithmic=True),
        Number("micro_batch", "micro-batch", 2, 1, 64, whole=True, logarithmic=True),
        Choice("stages", "stages", 8, {str(count): count for count in (1, 2, 4, 8, 16)}),
        Choice("chunks", "chunks when interleaved", 2, {str(count): count for count in (2, 4, 8)}),
        Number("sequence_gib", "a sequence on a stage (GiB)", 1.0, 0.05, 10, logarithmic=True),
    )
    return Explorer(
        controls, memory_view, lambda: Stacks(MEMORY_COLOURS, WIDTH, 3.1, labels=1.2), ask=ask, values=values
    )
