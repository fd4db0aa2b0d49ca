"""Grading steps 6 to 8: MFU, days and hours; what is hidden; the sweep. All given the layout chosen before."""

from __future__ import annotations

import itertools
from typing import Any

from course.interview.judge_layout import why_not
from course.interview.judge_needs import _route
from course.interview.marks import Mark, Own, copied, measured, near, noted, reasons, ruled
from course.interview.reference import fate, verdict
from course.interview.rough import FEWEST_RUNS, MOST_RUNS, grid_layouts
from course.interview.study import AXES, DEGREES, Study
from course.problem import Layout

__all__ = ["mfu", "overlap", "sweep"]

USUAL = (0.25, 0.5)
"""MFU of most published runs on GPUs with 16-bit matmuls."""
DIFFERENT = 1.3
"""Factor from which days that follow from an earlier mistake are set beside the true ones."""
CONVENTIONS = ("six_ps", "full_attention", "causal_attention")


def mfu(known: Study, own: Own, layouts: list[Layout]) -> list[Mark]:
    """Marks of step 6."""
    said = own.get("mfu", "convention")
    counted = said if said in CONVENTIONS else "full_attention"
    documents = [known.predicted(layout) for layout in layouts]
    claims = [claim for layout in layouts for claim in (known.claim(layout, counted), known.most(layout, counted))]
    marks = [_claim(known, own, layouts, counted)]
    if said is None:
        marks.append(ruled("mfu", "convention", 0.0, "unanswered"))
    else:
        marks.append(
            ruled("mfu", "convention", float(said in CONVENTIONS), "" if said in CONVENTIONS else "HFU as MFU")
        )
    days = _days_right(
        known, own, [*(one[1] for one in claims), *(d["run"]["days"] for d in documents)], claims, counted
    )
    goodput, devices = known.run.cluster.goodput, known.run.cluster.devices
    wrong = {
        "goodput forgotten": [one * goodput for one in days],
        "goodput upside down": [one * goodput**2 for one in days],
        "one device's peak for many": [one * devices for one in days],
        "other unit of time": [one * 24 for one in days],
    }
    marks.append(measured(own, "mfu", "days", days, 1.15, wrong, 1.3))
    mine = own.number("mfu", "days")
    hours = [one * 24 * devices for one in ([mine] if mine else days)]
    hours += [one[2] for one in claims]
    wrong = {"per device for total": [one / devices for one in hours],
             "other unit of time": [one / 24 for one in hours],
             "goodput upside down": [one * goodput for one in hours]}  # fmt: skip
    marks.append(measured(own, "mfu", "hours", hours, 1.15, wrong, 1.3))
    marks += [
        _route(own, "mfu", ("steps", "records")),
        _check(own, [*days, *(d["run"]["days"] for d in documents), *(one[1] for one in claims)]),
        _verdict(known, own, claims),
    ]
    marks += _followed(known, own, claims, marks)
    return [*marks, reasons(known, own, "mfu", layouts[0])]


def _followed(known: Study, own: Own, claims: list[tuple[float, float, float]], marks: list[Mark]) -> list[Mark]:
    """What the right FLOPs and peak would have given, where the days follow from wrong ones and are right by them."""
    mine, right = own.number("mfu", "days"), [one[1] for one in claims]
    judged = {mark.name: mark.credit for mark in marks}
    if not mine or judged.get("days") != 1.0 or any(near(mine, one, DIFFERENT) for one in right):
        return []
    peak, flops = known.run.cluster.accelerator.peak_flops_per_s / 1e12, known.flops["full_attention"]
    said = f"{mine:.3g} days follow from your "
    said += f"{own.number('estimate', 'flops') or flops:.2g} FLOP and {own.number('estimate', 'peak') or peak:,.0f} "
    said += f"TFLOP/s, so they count. With {flops:.2g} and {peak:,.0f} it is about {right[0]:.3g} days: "
    words = {"met": "yes, in time.", "missed": "no, too late.", "impossible": "no, and no layout could."}
    return [noted("mfu", "days", said + words[verdict(known, right[0], claims[0][2])])]


def _claim(known: Study, own: Own, layouts: list[Layout], counted: str) -> Mark:
    value = own.number("mfu", "mfu")
    if value is None:
        return ruled("mfu", "mfu", 0.0, "unanswered")
    right = [
        100 * claim(layout, one)[0] for layout in layouts for claim in (known.claim, known.most)
        for one in dict.fromkeys((counted, "full_attention"))
    ]  # fmt: skip
    documents = [known.predicted(layout) for layout in layouts]
    done = [100 * one["hfu"] for one in documents if one["hfu"] and one["hfu"] > 1.05 * one["mfu"]["full_attention"]]
    highest = 100 * known.highest_mfu
    about = (f"Plan with about {100 * known.claim(layouts[0], counted)[0]:.0f} %, and with no more than "
             f"{100 * known.most(layouts[0], counted)[0]:.0f} %; you claim {value:.0f} %.")  # fmt: skip
    twice = any(abs(value / one - 1) < 0.01 for one in done) and all(abs(value / one - 1) > 0.04 for one in right)
    if twice:
        return ruled("mfu", "mfu", 0.0, "HFU as MFU", about)
    if value > 1.03 * highest:
        about = f"The highest is {highest:.0f} %; the model predicts {100 * documents[0]['mfu'][counted]:.0f} %."
        return ruled("mfu", "mfu", 0.0, "above all published", about)
    if any(near(value, one, 1.35) for one in right):
        return ruled("mfu", "mfu", 1.0)
    usual = 100 * USUAL[0] <= value <= 100 * USUAL[1]
    if (usual and any(near(value, one, 2.5) for one in right)) or any(near(value, one, 1.6) for one in right):
        return ruled("mfu", "mfu", 0.5, "", f"Plausible in general. {about}")
    return ruled("mfu", "mfu", 0.0, "implausible MFU", about)


def _days_right(
    known: Study, own: Own, predicted: list[float], claims: list[tuple[float, float, float]], counted: str
) -> list[float]:
    """Days that follow from the truth, and from any of the candidate's own FLOPs, peak and MFU."""
    run = known.run
    flops = own.either("estimate", "flops", known.flops[counted])
    peaks = own.either("estimate", "peak", run.cluster.accelerator.peak_flops_per_s / 1e12)
    mine = own.number("mfu", "mfu")
    shares = [mine / 100] if mine else [one[0] for one in claims]
    rate = run.cluster.devices * run.cluster.goodput * 1e12 * 86400
    kept = [] if mine else predicted
    return kept + [work / (rate * peak * share) for work, peak, share in itertools.product(flops, peaks, shares)]


def _check(own: Own, days: list[float]) -> Mark:
    mine, second = own.number("mfu", "days"), own.number("mfu", "check_days")
    if copied(mine, second):
        return ruled("mfu", "check_days", 0.0, "same route twice")
    return measured(own, "mfu", "check_days", [*([mine] if mine else []), *days], 1.5, None, 2.0)


def _verdict(known: Study, own: Own, claims: list[tuple[float, float, float]]) -> Mark:
    said = own.get("mfu", "verdict")
    if said is None:
        return ruled("mfu", "verdict", 0.0, "unanswered")
    _, plan_days, plan_hours = claims[0]
    truth = verdict(known, plan_days, plan_hours)
    right = {verdict(known, one[1], one[2]) for one in claims}
    days, hours = own.number("mfu", "days"), own.number("mfu", "hours")
    right.add(verdict(known, days, hours) if days or hours else truth)
    if days and known.run.goal.days and known.least_days <= known.run.goal.days:
        claim, peak = own.number("estimate", "flops"), own.number("estimate", "peak")
        if claim and peak:  # the candidate's own FLOPs at the candidate's own peak
            whole = known.run.cluster.devices * known.run.cluster.goodput * peak * 1e12 * 86400
            right |= {"impossible"} if claim / whole > known.run.goal.days else set()
    goal = known.run.goal
    wants = f"{goal.days:g} days" if goal.days else "no deadline"
    wants += f", {goal.budget_accelerator_hours:,.0f} accelerator-hours" if goal.budget_accelerator_hours else ""
    about = f"Asked: {wants}. Your layout: {plan_days:.3g} days, {plan_hours:,.0f} accelerator-hours; at full peak "
    about += f"{known.least_days:.3g} days."
    if said in right and said != truth and not days:
        return ruled("mfu", "verdict", 1.0, "", about)
    if said in right:
        return ruled("mfu", "verdict", 1.0)
    if said == "missed" and truth == "impossible":
        return ruled("mfu", "verdict", 0.5, "", f"It is worse: no layout could. {about}")
    return ruled("mfu", "verdict", 0.0, "missed for impossible" if said == "impossible" else "goal not compared", about)


def overlap(known: Study, own: Own, layouts: list[Layout]) -> list[Mark]:
    """Marks of step 7."""
    steps = [known.predicted(layout)["step"] for layout in layouts]
    shares = [100 * sum(part["exposed_s"] for part in step["communication"].values()) / step["time_s"]
              for step in steps]  # fmt: skip
    mark = measured(own, "overlap", "exposed", shares, 2.0, None, 4.0, absolute=5.0)
    return [_fates(own, layouts, steps), mark, reasons(known, own, "overlap", layouts[0])]


def _fates(own: Own, layouts: list[Layout], steps: list[dict[str, Any]]) -> Mark:
    said = own.get("overlap", "fates")
    if not isinstance(said, dict) or not said:
        return ruled("overlap", "fates", 0.0, "unanswered")
    wrong = [
        {axis: right[0] for axis in AXES if said.get(axis, "none") not in (right := fate(step, axis, layout))}
        for step, layout in zip(steps, layouts, strict=True)
    ]
    least = min(wrong, key=len)
    if not least:
        return ruled("overlap", "fates", 1.0)
    there = [axis for axis in AXES if fate(steps[0], axis)[0] != "none"]
    called = {said.get(axis, "none") for axis in there}
    words = {"none": "not there", "partly": "partly hidden"}
    about = "; ".join(f"{axis} is {words.get(right, right)}{_share(steps[0], axis)}" for axis, right in least.items())
    left = [axis for axis in least if axis not in said]
    about += f" (you left out {', '.join(left)})" if left else ""
    if called == {"hidden"}:
        name = "all traffic hidden"
    elif called == {"exposed"}:
        name = "all traffic exposed"
    else:
        name = "axis not there" if set(least.values()) == {"none"} else "fate missed"
    counted = max(len(there), 1)
    return ruled("overlap", "fates", max(0.0, 1 - len(least) / counted) / 2, name, f"In this layout {about}.")


def _share(step: dict[str, Any], axis: str) -> str:
    part, whole = step["communication"][axis], step["time_s"]
    total, exposed = part["total_s"] or 0.0, part["exposed_s"] or 0.0
    return f" (takes {total / whole:.0%} of the step's time, adds {exposed / whole:.0%})" if total else ""


def sweep(known: Study, own: Own, layouts: list[Layout]) -> list[Mark]:
    """Marks of step 8."""
    marks = [_grid(known, own, layouts), _record(own)]
    for name, right, mistake in (("held", "work", "another global batch"), ("stop", "price", "stop rule missing")):
        said = own.get("sweep", name)
        wrong = "unanswered" if said is None else mistake
        marks.append(ruled("sweep", name, float(said == right), "" if said == right else wrong))
    return [*marks, reasons(known, own, "sweep", layouts[0])]


def _grid(known: Study, own: Own, layouts: list[Layout]) -> Mark:
    said = own.get("sweep", "grid")
    if not isinstance(said, dict) or not said:
        return ruled("sweep", "grid", 0.0, "unanswered")
    grid = {name: list(values) for name, values in said.items()}
    if "global_batch_sequences" in grid and len(set(grid["global_batch_sequences"])) > 1:
        return ruled("sweep", "grid", 0.0, "another global batch")
    best: Mark | None = None
    for layout in layouts:
        mark = _grid_of(known, grid, layout)
        best = mark if best is None or mark.credit > best.credit else best
    return best if best is not None else ruled("sweep", "grid", 0.0, "unanswered")


def _grid_of(known: Study, grid: dict[str, list[Any]], layout: Layout) -> Mark:
    count, kept, time = grid_layouts(known, grid, layout)
    if count > MOST_RUNS:
        return ruled(
            "sweep", "grid", 0.0, "whole space swept", f"{count:,} runs; {FEWEST_RUNS} to {MOST_RUNS} will do."
        )
    if count < FEWEST_RUNS:
        return ruled("sweep", "grid", 0.0, "nothing left to measure", f"The grid has {count}.")
    about = f"{len(kept)} of {count} are legal and fit."
    if len(kept) < FEWEST_RUNS or 2 * len(kept) < count:
        return ruled("sweep", "grid", 0.0, "illegal grid", f"{about} {_failing(known, grid, layout)}")
    if any(hasattr(layout, name) and getattr(layout, name) not in values for name, values in grid.items()):
        return ruled("sweep", "grid", 0.5, "own layout left out", about)
    held = known.fastest({name: getattr(layout, name) for name in DEGREES})  # a slow split is marked at step 3 already
    if time > 1.25 * max(known.least_time_s, held[0] if held else 0.0):
        return ruled("sweep", "grid", 0.5, "", f"The best of the grid takes {time / known.least_time_s - 1:.0%} longer "
                     "than the best there is.")  # fmt: skip
    return ruled("sweep", "grid", 1.0)


def _failing(known: Study, grid: dict[str, list[Any]], layout: Layout) -> str:
    """The first combination of a grid that is illegal or does not fit, and why."""
    base = {name: getattr(layout, name) for name in (*DEGREES, "micro_batch", "interleave")}
    names = [name for name in grid if name in base]
    for values in itertools.islice(itertools.product(*(grid[name] for name in names)), MOST_RUNS):
        change = dict(zip(names, values, strict=True))
        if known.fastest({**base, **change}) is None:
            said = ", ".join(f"{name} {value}" for name, value in change.items())
            return f"Not {said}: {why_not(known, {**base, **change})[0]}"
    return ""


def _record(own: Own) -> Mark:
    said = own.get("sweep", "record")
    named = {said} if isinstance(said, str) else set(said or ())
    useless, useful = named & {"busy", "final loss"}, named - {"busy", "final loss"}
    if not named:
        return ruled("sweep", "record", 0.0, "unanswered")
    if useless:
        about = "How busy a device is says nothing of useful work; a final loss comes after the decision."
        return ruled("sweep", "record", 0.0, "wrong thing recorded", about)
    if len(useful) < 3 or "tokens/s" not in useful:
        return ruled("sweep", "record", 0.0, "too little recorded", "Peak memory, tokens/s, MFU, spread, "
                     "communication, and whether the loss changes.")  # fmt: skip
    return ruled("sweep", "record", 1.0 if len(useful) >= 4 else 0.5)
