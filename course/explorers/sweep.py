"""The explorers of step 8: `devices` and `doubling` over device counts, `choose` against a measured panel.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
Sweeps are done once for each run and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from course import examples
from course.compare.panel import Panel, names, panel
from course.errors import UserError
from course.explorers.base import Choice, Explorer, Number, View
from course.mfu import hours_ratio, price_of_an_hour, scaling_efficiency
from course.pictures.place import Curves, Line
from course.problem import Goal, Layout, Run, load
from course.stops import Point, front, stops
from course.sweep import across_devices

__all__ = ["choose", "choose_view", "counts", "devices", "devices_view", "doubling", "doubling_view", "question"]

WIDTH = 5.8
RUNS = {
    "8.86B, 256 sequences a step": "8.86B",
    "1.34B, 256 sequences a step": "1.34B",
    "Llama 3 8B, 128 sequences a step": "llama-3-8b-8-h100",
}
STEPS_TRIED = 50
"""Steps of a trial: enough for a median without the first ones."""
START_S = 600
"""Seconds from asking for devices to the first step of a start: allocation, communicators, compilation, data."""


@cache
def question(run: str) -> Run:
    """A question without a layout: a panel of the playbook, or an example, to train a trillion tokens.

    >>> question("8.86B").training.global_batch_sequences
    256
    """
    asked = panel(run, 64).run if run in ("1.34B", "8.86B") else load(examples.path(run))
    return replace(asked, layout=None, goal=Goal(), training=replace(asked.training, tokens=1e12))


@cache
def counts(run: str) -> tuple[Point, ...]:
    """The fastest layout of each device count of a question, swept once."""
    return tuple(across_devices(question(run)))


def _split(layout: Layout | None) -> str:
    """The axes of a layout in words."""
    if layout is None:
        return "–"
    axes = ("data", "tensor", "pipeline", "context")
    shown = [f"{axis} {getattr(layout, axis)}" for axis in axes if getattr(layout, axis) > 1]
    return ", ".join([*shown, layout.sharding] if layout.sharding != "none" else shown)


# ---------------------------------------------------------------- how many devices
def devices_view(run: str, chosen: int, days: float, budget: float, price: float) -> View:
    """Days, accelerator-hours and cost of each device count, the front, and the two stops.

    Args:
        run: a value of `RUNS`.
        chosen: the device count you would take.
        days: the deadline.
        budget: what meeting it is worth, in thousands of accelerator-hours; 0 for whatever it takes.
        price: of one accelerator for an hour.
    """
    if not days > 0 or not budget >= 0 or not price >= 0:
        raise UserError("days must be above 0; budget and price 0 or more.")
    found = counts(run)
    goal = Goal(days=days, budget_accelerator_hours=1000 * budget or None)
    stop, best = stops(goal, found), front(found)
    yours = next(point for point in found if point.devices == chosen)
    rows, before = [], None
    for point in found:
        saved = "–"
        if before is not None:
            faster = point.days < before.days
            saved = f"{_price(before, point) * price:,.0f}" if faster else "slower"
        rows.append((
            f"{point.devices:,}{' <' if point is yours else ''}", _split(point.fastest.layout),
            f"{point.days:,.1f}", f"{point.accelerator_hours / 1000:,.1f}",
            f"{point.accelerator_hours * price / 1000:,.0f}", saved, "yes" if point in best else "no",
        ))  # fmt: skip
        before = point
    return View(
        _said(yours, stop, found, days),
        ("devices", "fastest layout", "days", "thousand hours", "cost (thousands)", "an hour saved costs", "front"),
        rows,
        {
            "finding": "Faster is dearer",
            "curves": {
                "the front": _line(best, False),
                "beaten": _line([point for point in found if point not in best] or [yours], True),
                "yours": _line([yours], True),
            },
            "place": (days, "deadline"),
        },
    )


def _price(before: Point, point: Point) -> float:
    return float(price_of_an_hour(
        baseline_devices=before.devices, baseline_time=before.days, scaled_devices=point.devices,
        scaled_time=point.days))  # fmt: skip


def _line(points: list[Point], marks: bool) -> Line:
    ordered = sorted(points, key=lambda point: point.days)
    return Line([point.days for point in ordered], [point.accelerator_hours for point in ordered], marks=marks)


def _said(yours: Point, stop: Mapping[str, int | None], found: tuple[Point, ...], days: float) -> str:
    cheapest = min(found, key=lambda point: point.accelerator_hours)
    more = yours.accelerator_hours / cheapest.accelerator_hours - 1
    meets = "meets" if yours.days <= days else "misses"
    deadline, even = stop["deadline_devices"], stop["break_even_devices"]
    return (
        f"{yours.devices:,} devices take {yours.days:,.1f} days and {yours.accelerator_hours:,.0f} accelerator-hours, "
        f"{more:.0%} more than {cheapest.devices:,}; that {meets} the deadline. "
        + (f"The deadline stops at {deadline:,}; " if deadline else "No count meets the deadline for its budget; ")
        + (f"the break-even at {even:,}: twice as many are slower." if even else "no doubling looked at is slower.")
    )


def devices(*, ask: str | None = None, **values: Any) -> Explorer:
    """How many devices: time against accelerator-hours, with a deadline and what it is worth.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("run", "run", "8.86B", RUNS),
        Choice("chosen", "devices", 128, _chosen),
        Number("days", "deadline (days)", 20.0, 1, 200, logarithmic=True),
        Number("budget", "worth (thousand hours)", 0.0, 0, 200, step=5),
        Number("price", "price of a device-hour", 2.0, 0, 10, step=0.25),
    )
    picture = ("wall time (days)", "accelerator-hours")
    return Explorer(controls, devices_view, lambda: Curves(*picture, WIDTH, 4.0), ask=ask, values=values)


def _chosen(values: Mapping[str, Any]) -> dict[str, int]:
    return {f"{point.devices:,}": point.devices for point in counts(values["run"])}


# ---------------------------------------------------------------- one doubling
def doubling_view(run: str, baseline: int) -> View:
    """What twice the devices save in compute and add in everything else.

    Args:
        run: a value of `RUNS`.
        baseline: devices before the doubling.
    """
    at = {point.devices: point for point in counts(run)}
    if 2 * baseline not in at:
        raise UserError(f"devices: nothing fits on {2 * baseline:,}, or it was not swept; take fewer.")
    now, then = at[baseline].fastest, at[2 * baseline].fastest
    times = {"baseline_devices": baseline, "scaled_devices": 2 * baseline, "baseline_time": now.time_s,
             "scaled_time": then.time_s}  # fmt: skip
    saved, added = now.compute_s - then.compute_s, (then.time_s - then.compute_s) - (now.time_s - now.compute_s)
    sizes = sorted(at)
    lines = {
        "step": [at[n].fastest.time_s for n in sizes], "compute": [at[n].fastest.compute_s for n in sizes],
        "all the rest": [at[n].fastest.time_s - at[n].fastest.compute_s for n in sizes],
    }  # fmt: skip
    rows = [
        (name, f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}")
        for name, before, after in (
            ("compute (s)", now.compute_s, then.compute_s),
            ("all the rest (s)", now.time_s - now.compute_s, then.time_s - then.compute_s),
            ("step (s)", now.time_s, then.time_s),
        )
    ]
    return View(
        f"From {baseline:,} to {2 * baseline:,} devices compute takes {saved:.3f} s less and the rest {added:+.3f} s: "
        f"efficiency {scaling_efficiency(**times):.2f}, {hours_ratio(**times) - 1:+.0%} accelerator-hours. "
        + ("The doubling is slower: stop before." if saved < added else "The doubling is faster."),
        ("part", f"{baseline:,}", f"{2 * baseline:,}", "change"),
        rows,
        {
            "finding": "Compute halves, the rest does not",
            "curves": {name: Line(sizes, column) for name, column in lines.items()},
            "place": (float(baseline), f"{baseline:,}"),
        },
    )


def _doubled(values: Mapping[str, Any]) -> dict[str, int]:
    there = {point.devices for point in counts(values["run"])}
    return {f"{n:,}": n for n in sorted(there) if 2 * n in there}


def doubling(*, ask: str | None = None, **values: Any) -> Explorer:
    """Twice the devices: what compute saves and what the rest adds.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (Choice("run", "run", "8.86B", RUNS), Choice("baseline", "devices", 128, _doubled))
    return Explorer(
        controls, doubling_view, lambda: Curves("devices", "seconds of a step", WIDTH, 4.0), ask=ask, values=values
    )  # fmt: skip


# ---------------------------------------------------------------- choose, and be judged
FIELDS = ("tensor", "pipeline", "micro_batch", "sharding")


def choose_view(
    model: str, devices: int, tensor: int, pipeline: int, micro_batch: int, sharding: str, days: float
) -> View:
    """What a layout of a measured panel really did, beside our first choice and a trial among our first three.

    Args:
        model: 1.34B, 8.86B or 80B.
        devices: of the panel.
        tensor: ranks.
        pipeline: stages.
        micro_batch: sequences.
        sharding: none or zero1.
        days: length of the run that the choice is for, with the best layout.
    """
    if not days > 0:
        raise UserError("days must be above 0.")
    asked = panel(model, devices)
    place = asked.find(tensor=tensor, pipeline=pipeline, micro_batch=micro_batch, sharding=sharding)
    steps, first = 86400 * days / asked.best_s, int(asked.order[0])
    best = int(np.nanargmin(asked.time_s))
    rows = [_judged(asked, name, at, steps) for name, at in (("yours", place), ("our first", first), ("best", best))]
    trial = asked.trial_hours(STEPS_TRIED, start_s=START_S)
    after = int(min(asked.order[:3], key=lambda at: asked.time_s[at]))
    rows.insert(2, _judged(asked, "best of our three", after, steps, trial))
    known = asked.order
    guess = Line(asked.predicted_s[known], asked.time_s[known], marks=True)
    ends = [float(np.min(asked.predicted_s[known])), float(np.max(asked.predicted_s[known]))]
    curves = {"as predicted": Line(ends, ends), f"{len(known)} layouts": guess}
    mark = place if place in known else first
    curves["yours" if mark == place else "our first"] = Line(
        [float(asked.predicted_s[mark])], [float(asked.time_s[mark])], marks=True)  # fmt: skip
    return View(
        _verdict(asked, place, trial, steps),
        ("", "layout", "predicted (s)", "measured (s)", "regret", "hours lost"),
        rows,
        {"finding": f"{model} on {devices} devices", "curves": curves, "level": (asked.best_s, "best measured")},
    )


def _judged(asked: Panel, name: str, place: int, steps: float, trial: float = 0.0) -> tuple[str, ...]:
    layout = asked.layouts[place]
    if not asked.ran[place]:
        return name, _named(layout), "–", "failed", "–", "–"
    guess = asked.predicted_s[place]
    return (
        name, _named(layout), f"{guess:.2f}" if np.isfinite(guess) else "–", f"{asked.time_s[place]:.2f}",
        f"{asked.regret(place):.0%}", f"{asked.wasted_hours(place, steps) + trial:,.0f}",
    )  # fmt: skip


def _named(layout: Layout) -> str:
    return f"{layout.data} x {layout.tensor} x {layout.pipeline}, mb {layout.micro_batch}, {layout.sharding}"


def _verdict(asked: Panel, place: int, trial: float, steps: float) -> str:
    first, three = asked.regret(int(asked.order[0])), asked.after_trial()
    mine = (
        "Yours failed: it crashed or ran out of memory (its source does not say which)."
        if not asked.ran[place]
        else f"Yours is {asked.regret(place):.0%} slower than the best measured."
    )
    length = asked.devices * steps * asked.best_s / 3600
    failed = asked.failed_starts()
    more = f" ({failed} failed among them)" if failed else ""
    return (
        f"{mine} Our first choice was {first:.0%} slower, the best of our first three {three:.0%}; trying those for "
        f"{STEPS_TRIED} steps each, with {START_S / 60:g} minutes for every start{more}, takes {trial:,.0f} "
        "accelerator-hours, "
        f"{trial / length:.1%} of the run."
    )


def _tried(field: str) -> Any:
    """The values of a field among the layouts of the panel that agree in the fields before it."""
    before = FIELDS[: FIELDS.index(field)]

    def options(values: Mapping[str, Any]) -> dict[str, Any]:
        asked = panel(values["model"], values["devices"])
        there = {
            getattr(one, field) for one in asked.layouts if all(getattr(one, name) == values[name] for name in before)
        }
        return {str(value): value for value in sorted(there)}

    return options


def choose(*, ask: str | None = None, **values: Any) -> Explorer:
    """Choose a layout for a measured panel: what it really did, and what a trial would have cost.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("model", "model", "8.86B", {model: model for model in dict.fromkeys(model for model, _ in names())}),
        Choice("devices", "devices", 64, lambda now: {str(n): n for model, n in names() if model == now["model"]}),
        Choice("tensor", "tensor ranks", 2, _tried("tensor")),
        Choice("pipeline", "stages", 2, _tried("pipeline")),
        Choice("micro_batch", "micro-batch", 1, _tried("micro_batch")),
        Choice("sharding", "sharding", "zero1", _tried("sharding")),
        Number("days", "days of the run", 10.0, 0.1, 100, logarithmic=True),
    )
    picture = ("predicted step (s)", "measured step (s)")
    return Explorer(controls, choose_view, lambda: Curves(*picture, WIDTH, 4.4), ask=ask, values=values)
