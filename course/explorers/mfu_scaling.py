"""The explorers of step 6 about many sizes: a measured `scaling` series and its hours, and `replicas` of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from course import mfu as step
from course import records
from course.errors import UserError
from course.explorers.base import Choice, Explorer, Number, View
from course.pictures.place import Curves, Line

__all__ = ["replicas", "replicas_view", "scaling", "scaling_view", "series_named"]

WIDTH = 5.8


# ---------------------------------------------------------------- measured series
@cache
def _series() -> dict[str, tuple[tuple[int, float], ...]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in records.strong_series():
        found.setdefault(str(row["group_id"]), []).append((int(row["n_devices"] or 0), float(row["throughput"] or 0)))
    return {name: tuple(sorted(pairs)) for name, pairs in found.items()}


def series_named() -> dict[str, str]:
    """The measured strong-scaling series with three sizes or more, in words, to their group."""
    said = {}
    for row in records.strong_series():
        group = str(row["group_id"])
        if len(_series()[group]) >= 3:
            said[f"{row['model']}, {row['global_batch_seqs']} sequences a step"] = group
    return said


def _sizes(values: Mapping[str, Any]) -> dict[str, int]:
    return {f"{devices}": devices for devices, _ in _series()[values["series"]]}


def scaling_view(series: str, baseline: int, billions: float, price: float) -> View:
    """Speedup, efficiency, days, accelerator-hours and the price of an hour saved, of one measured series.

    Args:
        series: group of the records; every size has the same model and global batch.
        baseline: the devices all others are compared with.
        billions: tokens to train, in billions.
        price: of one accelerator for an hour.
    """
    if not billions > 0 or not price >= 0:
        raise UserError("tokens must be above 0 and the price 0 or more.")
    rates = dict(_series()[series])
    time = {devices: billions * 1e9 / rate for devices, rate in rates.items()}
    base = {"baseline_devices": baseline, "baseline_time": time[baseline]}
    speedup, rows = {}, []
    previous: int | None = None
    for devices, seconds in time.items():
        now = {"scaled_devices": devices, "scaled_time": seconds}
        speedup[devices] = float(step.speedup(baseline_time=time[baseline], scaled_time=seconds))
        hours = step.accelerator_hours(devices=devices, time=seconds, goodput=1)
        saved = "–"
        if previous is not None:
            faster = seconds < time[previous]
            before = {"baseline_devices": previous, "baseline_time": time[previous]}
            saved = f"{step.price_of_an_hour(**before, **now) * price:,.0f}" if faster else "slower"
        rows.append((f"{devices}", f"{speedup[devices]:.3g} of {devices / baseline:g}",
                     f"{step.scaling_efficiency(**base, **now):.2f}", f"{seconds / 86400:,.1f}",
                     f"{hours * price / 1000:,.0f}", saved))  # fmt: skip
        previous = devices
    fastest = min(time, key=lambda devices: time[devices])
    cheapest = min(time, key=lambda devices: time[devices] * devices)
    sizes = list(time)
    ideal = [devices / baseline for devices in sizes]
    return View(
        f"Fastest on {fastest} devices, {time[fastest] / 86400:,.1f} days; cheapest on {cheapest}, "
        f"{time[cheapest] / 86400:,.1f} days, at {time[cheapest] * cheapest / time[fastest] / fastest:.0%} of that "
        "price.",
        ("devices", "speedup", "efficiency", "days", "cost (thousands)", "an hour saved costs"),
        rows,
        {
            "finding": f"Speedup against {baseline} devices",
            "curves": {"ideal": Line(sizes, ideal), "measured": Line(sizes, list(speedup.values()), marks=True)},
            "place": (float(baseline), "baseline"),
        },
    )


def scaling(*, ask: str | None = None, **values: Any) -> Explorer:
    """A measured strong-scaling series: choose the baseline, the tokens and the price.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    named = series_named()

    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        return {"baseline": _series()[now["series"]][0][0]} if name == "series" else {}

    controls = (
        Choice("series", "run", "G0005", named),
        Choice("baseline", "baseline", 8, _sizes),
        Number("billions", "tokens (billions)", 1000.0, 1, 1e4, logarithmic=True),
        Number("price", "price of a device-hour", 2.0, 0, 10, step=0.25),
    )
    return Explorer(
        controls, scaling_view, lambda: Curves("devices", "speedup", WIDTH, 4.0), follow=follow, ask=ask, values=values
    )  # fmt: skip


# ---------------------------------------------------------------- replicas of a pipeline
CHUNKS = (1, 2, 4, 8)
AFTER = np.geomspace(1, 256, 97)


def replicas_view(pipeline: int, micro_batches: int, times: int) -> View:
    """The most that more replicas of a pipeline can bring, by chunks a stage.

    Args:
        pipeline: stages.
        micro_batches: of a pipeline in one step, before.
        times: replicas after, over replicas before.
    """
    if micro_batches < 1 or micro_batches % times:
        raise UserError(f"micro_batches must be a multiple of {times}, so that each pipeline gets a whole number.")
    common = {"pipeline": pipeline, "baseline_devices": 1, "scaled_devices": times}
    after = micro_batches // times
    most = {v: float(step.pipeline_speedup(**common, micro_batches=after, interleave=v)) for v in CHUNKS}
    curves = {
        f"{v} chunk{'s' if v > 1 else ''}": Line(
            AFTER * times, step.pipeline_speedup(**common, micro_batches=AFTER, interleave=v))
        for v in CHUNKS
    }  # fmt: skip
    return View(
        f"From {micro_batches} micro-batches to {after} in each pipeline of {pipeline} stages: {times} times the "
        f"devices bring at most {most[1]:.2f} with one chunk a stage, {most[CHUNKS[-1]]:.2f} with {CHUNKS[-1]}.",
        ("chunks a stage", "speedup at most", f"of {times}"),
        tuple((str(v), f"{value:.3f}", f"{value / times:.0%}") for v, value in most.items()),
        {
            "finding": "The bubble stays while micro-batches get fewer",
            "curves": curves,
            "level": (float(times), f"ideal: {times}"),
            "place": (float(micro_batches), f"{micro_batches}"),
        },
    )


def replicas(*, ask: str | None = None, **values: Any) -> Explorer:
    """More replicas of a pipeline at the same global batch.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("pipeline", "stages", 16, {str(size): size for size in (2, 4, 8, 16, 32, 64)}),
        Number("micro_batches", "micro-batches before", 32, 2, 256, whole=True, logarithmic=True),
        Choice("times", "times the devices", 2, {str(size): size for size in (2, 4, 8)}),
    )
    picture = ("micro-batches of a pipeline before", "speedup at most")
    return Explorer(controls, replicas_view, lambda: Curves(*picture, WIDTH, 4.0), ask=ask, values=values)
