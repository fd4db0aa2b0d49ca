"""The reference sheet: what the library itself would write into every blank of a question.

Nothing is typed here that can be computed: counts, limits, the layout and its prediction come from the library.
"""

from __future__ import annotations

from typing import Any

from course import batch, mfu
from course.interview.prompts import Prompt
from course.interview.rough import grid_around, rough_parameters
from course.interview.sheet import SHEET, asked_fields
from course.interview.statements import offered
from course.interview.study import AXES, GIB, Study, study
from course.problem import Layout

__all__ = ["fate", "reference", "verdict"]

NOTED = 0.01
"""Share of the step from which an axis is worth naming."""
SHOWS = 0.03
"""Share of the step from which what is exposed of an axis counts, however much of it hides."""


def reference(prompt: Prompt, whole: bool = False) -> dict[str, dict[str, Any]]:
    """The sheet a strong answer fills in, every number from the library.

    Args:
        prompt: the question.
        whole: every blank of the sheet, those that this interview does not ask for among them.

    >>> from course.interview.prompts import generate
    >>> sheet = reference(generate(7))
    >>> sheet["shard"]["feasible"], sheet["batch"]["data"] >= 1
    ('yes', True)
    """
    known = study(prompt)
    sheet: dict[str, dict[str, Any]] = {"estimate": _estimate(known), "constrain": _constrain(known)}
    if not known.feasible:
        sheet["shard"] = {"feasible": "no", "why_shard": _sound(known, "shard", Layout())}
    else:
        best = known.best
        sheet |= {
            "shard": _shard(known, best), "place": _place(known, best), "batch": _batch(known, best),
            "mfu": _mfu(known, best), "overlap": _overlap(known, best), "sweep": _sweep(known, best),
        }  # fmt: skip
    if whole:
        return sheet
    return {
        step.name: {field.name: sheet.get(step.name, {}).get(field.name) for field in
                    asked_fields(known, step, known.feasible)}
        for step in SHEET
    }  # fmt: skip


def _sound(known: Study, step: str, layout: Layout) -> tuple[str, ...]:
    return tuple(statement.key for statement in offered(known, step, layout) if not statement.mistake)[:2]


def _estimate(known: Study) -> dict[str, Any]:
    run = known.run
    total = known.parameters["total"]
    doubt = known.prompt.claim or ("deadline" if verdict(known) == "impossible" else "nothing")
    return {
        "doubt": doubt, "parameters": total, "check_route": "shapes", "check_parameters": rough_parameters(run.model),
        "flops": known.flops["full_attention"], "peak": run.cluster.accelerator.peak_flops_per_s / 1e12,
        "state_bytes": float(run.training.state.total), "state": total * run.training.state.total / 1e9,
        "activations": known.limits["activations"] / GIB, "why_estimate": _sound(known, "estimate", Layout()),
    }  # fmt: skip


def _constrain(known: Study) -> dict[str, Any]:
    first, far = known.first_limit()
    state = known.parameters["total"] * known.run.training.state.total
    return {
        "capacity": known.capacity / GIB, "first_limit": first, "how_far": far,
        "least_devices": float(-(-state // known.capacity)),
        "one_layer": "yes" if known.limits["one layer"] <= known.capacity else "no",
        "why_constrain": _sound(known, "constrain", Layout()),
    }  # fmt: skip


def _shard(known: Study, best: Layout) -> dict[str, Any]:
    names = ("tensor", "pipeline", "context", "expert", "expert_tensor", "sharding", "recompute")
    return {
        "feasible": "yes", **{name: getattr(best, name) for name in names}, "smallest_group": known.smallest[0],
        "why_shard": _sound(known, "shard", best),
    }  # fmt: skip


def _place(known: Study, best: Layout) -> dict[str, Any]:
    fabric, sent = known.run.cluster.fabric, known.sent(best)
    busiest = max(sent, key=lambda axis: sent[axis])
    return {
        "order": best.order, "crosses": tuple(axis for axis, out in known.crosses(best).items() if out),
        "inside_rate": fabric.scale_up_bytes_per_s / 1e9, "between_rate": fabric.scale_out_bytes_per_s / 1e9,
        "busiest": busiest, "busiest_bytes": sent[busiest] / 1e9, "why_place": _sound(known, "place", best),
    }  # fmt: skip


def _batch(known: Study, best: Layout) -> dict[str, Any]:
    count = known.run.training.global_batch_sequences // (best.data * best.micro_batch)
    share = batch.bubble_share(pipeline=best.pipeline, interleave=best.interleave, micro_batches=count)
    return {
        "data": best.data, "micro_batch": best.micro_batch, "accumulation": count, "interleave": best.interleave,
        "tokens_per_step": float(known.run.training.tokens_per_step), "bubble": 100 * float(share),
        "why_batch": _sound(known, "batch", best),
    }  # fmt: skip


def _mfu(known: Study, best: Layout) -> dict[str, Any]:
    found, run = known.predicted(best), known.run
    share, days, hours = known.claim(best)
    steps = run.training.tokens / run.training.tokens_per_step
    check = mfu.wall_time(time=steps * round(found["step"]["time_s"], 2), goodput=run.cluster.goodput) / 86400
    return {
        "mfu": 100 * share, "convention": "full_attention", "days": days, "hours": hours, "check_route": "steps",
        "check_days": float(check), "verdict": verdict(known, days, hours), "why_mfu": _sound(known, "mfu", best),
    }  # fmt: skip


def verdict(known: Study, days: float | None = None, hours: float | None = None) -> str:
    """Whether deadline and budget are met: "met", "missed", or "impossible" where even full peak takes longer.

    Args:
        known: the question.
        days: wall time of the plan; if None only what is impossible is told apart.
        hours: its accelerator-hours.
    """
    goal = known.run.goal
    least_hours = known.least_days * 24 * known.run.cluster.devices
    if (goal.days and known.least_days > goal.days) or (
        goal.budget_accelerator_hours and least_hours > goal.budget_accelerator_hours
    ):
        return "impossible"
    late = goal.days is not None and days is not None and days > goal.days
    dear = goal.budget_accelerator_hours is not None and hours is not None and hours > goal.budget_accelerator_hours
    return "missed" if late or dear else "met"


def _overlap(known: Study, best: Layout) -> dict[str, Any]:
    step = known.predicted(best)["step"]
    exposed = sum(part["exposed_s"] for part in step["communication"].values())
    return {
        "fates": {axis: fate(step, axis, best)[0] for axis in AXES}, "exposed": 100 * exposed / step["time_s"],
        "why_overlap": _sound(known, "overlap", best),
    }  # fmt: skip


def fate(step: dict[str, Any], axis: str, layout: Layout | None = None) -> tuple[str, ...]:
    """What may be said of an axis, the most fitting first: hidden, partly, exposed, none.

    Args:
        step: the `step` of a prediction.
        axis: one of `AXES`.
        layout: the layout; without expert ranks what cut experts exchange may be counted with tensor.

    It is hidden if it adds less than `SHOWS` of the step, whatever its own share. What takes less than a hundredth of
    the step may be called anything; near a limit both sides are right.
    """
    part = step["communication"][axis]
    total, exposed = part["total_s"] or 0.0, part["exposed_s"] or 0.0
    if total <= 0:
        return ("none",)
    share, adds = exposed / total, exposed / step["time_s"]
    best = "hidden" if adds < SHOWS else "exposed" if share > 0.6 else "partly"
    right = [best]
    if total < NOTED * step["time_s"]:
        right += ["hidden", "partly", "exposed", "none"]
    elif best == "hidden":
        right += ["partly"] + (["exposed"] if share > 0.5 else [])
    else:
        right += ["partly"] + (["exposed"] if share > 0.5 else []) + (["hidden"] if adds < 1.5 * SHOWS else [])
    if axis == "expert" and layout is not None and layout.expert == 1:
        right += ["none"]
    return tuple(dict.fromkeys(right))


def _sweep(known: Study, best: Layout) -> dict[str, Any]:
    return {
        "grid": grid_around(known, best),
        "record": ("peak memory", "tokens/s", "MFU", "variance", "communication", "numerics"),
        "held": "work", "stop": "price", "why_sweep": _sound(known, "sweep", best),
    }  # fmt: skip
