"""The time goal and the budget: whether any layout could meet them, whether the recommended one does, what would."""

from __future__ import annotations

import math

from course.answer.facts import Facts
from course.answer.words import LONGER, number
from course.constrain import Limit
from course.estimate import flops_per_token
from course.mfu import accelerator_hours
from course.problem import Run

__all__ = ["goal_limits", "impossible", "least_accelerator_hours", "verdicts"]


def least_accelerator_hours(run: Run) -> float:
    """Accelerator-hours of the run if every device did nothing but the model's FLOPs, at its dense peak.

    Of the conventions the one that counts least is taken, so that no layout could take fewer.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> run = load(path("llama-3.1-405b-16384-h100"))
    >>> 9e6 < least_accelerator_hours(run) < 12e6  # at an MFU near 0.4 the published run took 30.8 million
    True
    """
    cluster, training = run.cluster, run.training
    per_token = flops_per_token(run.model, training.sequence_length)
    flops = min(per_token["causal_attention"], per_token["executed"]) * training.tokens
    time = flops / cluster.devices / cluster.accelerator.peak_flops_per_s
    return float(accelerator_hours(devices=cluster.devices, time=time, goodput=cluster.goodput))


def impossible(run: Run) -> list[str]:
    """Sentences about the goals that no layout could meet, for the FLOPs alone take more."""
    goal, devices, hours = run.goal, run.cluster.devices, least_accelerator_hours(run)
    lost = "" if run.cluster.goodput == 1 else f" and a goodput of {run.cluster.goodput:g}"
    said = []
    if goal.days is not None and hours / devices / 24 > goal.days:
        enough = math.ceil(hours / 24 / goal.days)
        said.append(
            f"No layout on these {devices:,} devices can meet the time goal: the FLOPs alone, at 100 % of peak{lost}, "
            f"take {number(hours / devices / 24)} of {number(goal.days)} days; by them alone it takes {enough:,} "
            "devices at least."
        )
    if goal.budget_accelerator_hours is not None and hours > goal.budget_accelerator_hours:
        said.append(
            f"No layout on any number of these devices can meet the budget: the FLOPs alone, at 100 % of peak{lost}, "
            f"take {number(hours)} of {number(goal.budget_accelerator_hours)} accelerator-hours."
        )
    return said


def goal_limits(facts: Facts) -> list[Limit]:
    """The time goal and the budget, as far as they are given and something fits, with one remedy for what fails."""
    goal, found = facts.run.goal, []
    remedy, price = _remedy(facts)
    for name, need, have, unit in (
        ("time goal", facts.days, goal.days, "days"),
        ("budget", facts.hours, goal.budget_accelerator_hours, "accelerator-hours"),
    ):
        if need is not None and have is not None:
            found.append(Limit(name, need, have, unit, need <= have, remedy, price))
    return found


def _remedy(facts: Facts) -> tuple[str, str]:
    """What meets all goals that are given, and its price: another number of devices, or else another plan."""
    goal, here = facts.run.goal, facts.run.cluster.devices
    enough = [
        point.devices
        for point in facts.scaled_counts
        if (goal.days is None or point.days <= goal.days)
        and (goal.budget_accelerator_hours is None or point.accelerator_hours <= goal.budget_accelerator_hours)
    ]
    both = goal.days is not None and goal.budget_accelerator_hours is not None
    if not enough:
        met = "both goals" if both else "it"
        wider = "more time or budget" if both else "more time" if goal.days is not None else "a larger budget"
        return (
            f"another plan, for no device count looked at meets {met}: fewer tokens, a smaller model, faster "
            f"devices, or {wider}",
            "what the plan was to reach",
        )
    nearest = min(enough, key=lambda count: abs(math.log(count / here)))
    if nearest == here:
        return "the fields that are held, left free", "none: the layout is another one"
    met = " and meet both goals" if both else ""
    return f"{nearest:,} devices, which suffice{met}", "accelerator-hours" if nearest > here else "wall time"


def verdicts(facts: Facts, goals: list[Limit]) -> list[str]:
    """Sentences: which goal the recommended layout meets, and what would meet those it does not."""
    said, failing = [], [limit for limit in goals if not limit.fits]
    for limit in goals:
        met = "is met by the recommended layout" if limit.fits else "is not met"
        said.append(f"The {limit.name} {met}: {number(limit.need)} of {number(limit.have)} {limit.unit}.")
    if failing:
        what = "Remedy for both" if len(failing) > 1 else "Remedy"
        said.append(f"{what}: {failing[0].remedy}. Price: {failing[0].cost}.")
    if said:
        scaled = "These are scaled by the measured step, as the sixth step says."
        said.append(LONGER if facts.measured_over_estimate is None else scaled)
    return said or ["No time goal and no budget are given."]
