"""The explorers of step 9: `strong`, `weak` and `model_sizes` on measured series, `laws` fitted to them, and `batches`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from course import scaling as step
from course.errors import UserError
from course.explorers.base import Choice, Explorer, Number, View
from course.explorers.scaling_batches import batches, batches_view
from course.pictures.place import Line
from course.pictures.scaling import Bands
from course.scaling.fits import LINE, WEAK
from course.scaling.laws import gustafson_speedup, karp_flatt

__all__ = [
    "batches", "batches_view", "laws", "laws_view", "model_sizes", "model_sizes_view", "strong", "strong_view", "weak",
    "weak_view",
]  # fmt: skip

WIDTH, HEIGHT = 6.2, 4.2
_STRONG = ("Amdahl", LINE)
FAMILY = "G0155"
"""The one published family of growing models."""


@cache
def _series(name: str, baseline: int | None = None) -> step.Experiment:
    return step.published(name, baseline)


def _error(percent: float) -> float:
    if not 0 <= percent <= 50:
        raise UserError("error (per cent by which a fitted time may be off) must be from 0 to 50.")
    return percent / 100


def _local(row: step.Row) -> str:
    """What changed locally against the baseline, short."""
    short = {"micro_batch": "micro", "accumulation": "acc.", "sharding": "", "recompute": "recompute"}
    parts = [
        f"{short.get(key, key)} {value:g}".strip() if isinstance(value, int | float) else f"{short.get(key, key)} "
        f"{value}".strip() for key, value in row.changed.items() if value is not None
    ]  # fmt: skip
    return ", ".join(parts) or "nothing"


def _sizes(values: Mapping[str, Any]) -> dict[str, int]:
    return {f"{point.devices}": point.devices for point in _series(values["series"]).points}


def _counts(values: Mapping[str, Any]) -> dict[str, int]:
    points = len(_series(values["series"]).points)
    return {f"the first {count}": count for count in range(2, max(3, points))}


def _envelope(names: tuple[str, ...], points: step.fits.Measured, error: float, at: np.ndarray) -> tuple[Any, Any]:
    both = [step.band(name, points, error, at) for name in names]
    return np.min([low for low, _ in both], axis=0), np.max([high for _, high in both], axis=0)


def _inside(low: Any, high: Any, times: list[float]) -> int:
    return int(sum(bool(a <= time <= b) for a, b, time in zip(low, high, times, strict=True)))


# ---------------------------------------------------------------- strong
def strong_view(series: str, baseline: int, fitted: int, error: float) -> View:
    """A measured strong series: global work, time, device time, memory, efficiency, and what changed locally.

    Args:
        series: name of a published strong series.
        baseline: devices all others are compared with.
        fitted: how many of its smallest sizes the band is fitted to.
        error: per cent by which each fitted time may be off.
    """
    found = _series(series, baseline)
    rows = found.rows()
    points = [(row.devices, row.time_s) for row in rows]
    at = np.array([devices for devices, _ in points], float)
    low, high = _envelope(_STRONG, points[:fitted], _error(error), at)
    held = [time for _, time in points[fitted:]]
    inside = _inside(low[fitted:], high[fitted:], held)
    work = found.base().work
    worst = min(rows, key=lambda row: row.efficiency)
    wide = f", which on {rows[-1].devices} reaches from {low[-1]:.3g} to {high[-1]:.3g} s" if held else ""
    return View(
        f"Every size does {work.sequences:,} sequences of {work.sequence_length:,} tokens. Against {baseline} devices "
        f"the lowest efficiency is {worst.efficiency:.2f}, on {worst.devices}. Of {len(held)} sizes held out, "
        f"{inside} lie in the band{wide}.",
        ("devices", "time (s)", "device-s", "speedup", "efficiency", "GiB", "changed locally"),
        tuple((f"{row.devices}", f"{row.time_s:.3g}", f"{row.device_s:,.0f}", f"{row.speedup:.2f}",
               f"{row.efficiency:.2f}", "–" if row.memory_gib is None else f"{row.memory_gib:.0f}", _local(row))
              for row in rows),
        {
            "finding": f"The same work on {points[0][0]} to {points[-1][0]} devices",
            "curves": {
                "ideal": Line(at, found.base().time_s * baseline / at),
                "measured": Line(at, [time for _, time in points], marks=True),
            },
            "band": (at, low, high),
            "place": (float(baseline), "baseline"),
        },
    )  # fmt: skip


def strong(*, ask: str | None = None, **values: Any) -> Explorer:
    """A measured strong-scaling series: choose the baseline, and how many sizes a prediction may see.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        return {"baseline": _series(now["series"]).points[0].devices} if name == "series" else {}

    controls = (
        Choice("series", "run", "G0021", step.published_named("strong", 3)),
        Choice("baseline", "baseline", 8, _sizes),
        Choice("fitted", "band fitted to", 2, _counts),
        Number("error", "error of a time (%)", 2.0, 0, 10, step=0.5),
    )
    return Explorer(controls, strong_view, lambda: Bands("devices", "seconds of a step", WIDTH, HEIGHT), follow=follow,
                    ask=ask, values=values)  # fmt: skip


# ---------------------------------------------------------------- weak
def weak_view(series: str, fitted: int, error: float) -> View:
    """A measured weak series: each device keeps its work; global work and time stand beside the efficiency.

    Args:
        series: name of a published weak series.
        fitted: how many of its smallest sizes the band is fitted to.
        error: per cent by which each fitted time may be off.
    """
    found = _series(series)
    rows = found.rows()
    points = [(row.devices, row.time_s) for row in rows]
    at = np.array([devices for devices, _ in points], float)
    low, high = _envelope((WEAK, LINE), points[:fitted], _error(error), at)
    held = [time for _, time in points[fitted:]]
    last = rows[-1]
    wide = f", which on {last.devices:,} reaches from {low[-1]:.4g} to {high[-1]:.4g} s" if held else ""
    return View(
        f"From {rows[0].devices} to {last.devices} devices the global batch grows from {rows[0].sequences:,} to "
        f"{last.sequences:,} sequences; a step takes {last.time_s / rows[0].time_s - 1:+.0%}, efficiency "
        f"{last.efficiency:.2f}. Of {len(held)} sizes held out, {_inside(low[fitted:], high[fitted:], held)} lie in "
        f"the band{wide}.",
        ("devices", "sequences", "M tokens", "time (s)", "device-s", "efficiency"),
        tuple((f"{row.devices}", f"{row.sequences:,}", f"{row.tokens / 1e6:,.2f}", f"{row.time_s:.4g}",
               f"{row.device_s:,.0f}", f"{row.efficiency:.3f}") for row in rows),
        {
            "finding": "The same work on each device",
            "curves": {
                "ideal": Line(at, np.full_like(at, rows[0].time_s)),
                "measured": Line(at, [time for _, time in points], marks=True),
            },
            "band": (at, low, high),
        },
    )  # fmt: skip


def weak(*, ask: str | None = None, **values: Any) -> Explorer:
    """A measured weak-scaling series. `ask` is to be guessed first; `values` are those Reset comes back to."""
    controls = (
        Choice("series", "run", "G0105", step.published_named("weak", 3)),
        Choice("fitted", "band fitted to", 2, _counts),
        Number("error", "error of a time (%)", 0.5, 0, 10, step=0.5),
    )
    return Explorer(controls, weak_view, lambda: Bands("devices", "seconds of a step", WIDTH, HEIGHT), ask=ask,
                    values=values)  # fmt: skip


# ---------------------------------------------------------------- another model on each size
def model_sizes_view(baseline: int, fitted: int) -> View:
    """A family of models that grow with the devices, compared by model FLOPs for each device-second.

    Args:
        baseline: devices all others are compared with.
        fitted: how many of its smallest sizes give the rates that the band expects of all.
    """
    found = _series(FAMILY, baseline)
    rows = found.rows()
    at = np.array([row.devices for row in rows], float)
    flops = np.array([point.model_flops for point in found.points], float)
    rate = flops / at / np.array([row.time_s for row in rows])
    low, high = flops / at / rate[:fitted].max(), flops / at / rate[:fitted].min()
    held = [row.time_s for row in rows[fitted:]]
    return View(
        f"Each number of devices has a model of its own: {found.declared}. Efficiency is model FLOP/s of a device over "
        f"that on {baseline}, {rate[[row.devices for row in rows].index(baseline)] / 1e12:.0f} TFLOP/s. Of {len(held)} "
        f"sizes held out, {_inside(low[fitted:], high[fitted:], held)} lie in the band.",
        ("devices", "model", "sequences", "EFLOP a step", "time (s)", "device-s", "efficiency"),
        tuple((f"{row.devices}", point.work.model, f"{row.sequences:,}", f"{value / 1e18:,.2f}", f"{row.time_s:.3g}",
               f"{row.device_s:,.0f}", f"{row.efficiency:.2f}")
              for row, point, value in zip(rows, found.points, flops, strict=True)),
        {
            "finding": "Larger models on more devices: neither strong nor weak",
            "curves": {"measured": Line(at, [row.time_s for row in rows], marks=True)},
            "band": (at, low, high),
        },
    )  # fmt: skip


def model_sizes(*, ask: str | None = None, **values: Any) -> Explorer:
    """A family of growing models. `ask` is a question to be guessed first; `values` are those Reset comes back to."""
    controls = (
        Choice("baseline", "baseline", 32, _sizes({"series": FAMILY})),
        Choice("fitted", "band fitted to", 5, _counts({"series": FAMILY})),
    )
    return Explorer(controls, model_sizes_view, lambda: Bands("devices", "seconds of a step", WIDTH, HEIGHT), ask=ask,
                    values=values)  # fmt: skip


# ---------------------------------------------------------------- laws that disagree
def laws_view(series: str, first: int, second: int, predicted: int, error: float) -> View:
    """Laws through two measured sizes of a strong series, what they say of a third, and what was measured there.

    Args:
        series: name of a published strong series.
        first: devices of one fitted size, the baseline.
        second: devices of the other.
        predicted: devices to predict.
        error: per cent by which each of the two times may be off.
    """
    times = {point.devices: point.time_s for point in _series(series).points}
    if not first < second:
        raise UserError("second (devices of the larger fitted size) must be more than first.")
    two = [(first, times[first]), (second, times[second])]
    reach = np.geomspace(first, max(predicted, max(times)), 33)
    names = (LINE, "Amdahl", "growing part")
    curves = {name: Line(reach, step.fit(name, two).time(reach)) for name in names}
    low, high = _envelope(names, two, _error(error), reach)
    measured, ratio = times[predicted], second / first
    pair = karp_flatt(baseline_time=times[first], scaled_time=times[second], device_ratio=ratio)
    rows = [(name, f"{float(step.fit(name, two).time(predicted)):.3g}",
             f"{float(step.fit(name, two).time(predicted)) / measured - 1:+.0%}",
             "{:.3g} to {:.3g}".format(*map(float, step.band(name, two, _error(error), predicted)))) for name in names]
    share = min(1.0, max(0.0, float(pair)))  # what is fixed on `first` has the same share of the grown work's time
    scaled = gustafson_speedup(large_fixed_share=share, baseline_devices=first, scaled_devices=predicted)
    stays = karp_flatt(baseline_time=times[first], scaled_time=measured, device_ratio=max(predicted / first, 1.001))
    return View(
        f"Through {first} and {second} devices go all three. On {predicted} they say {rows[0][1]}, {rows[1][1]} and "
        f"{rows[2][1]} s; measured {measured:.3g} s. Gustafson's law answers another question: {scaled:.3g} times the "
        "work in the same time.",
        ("law", f"predicted on {predicted} (s)", "off by", f"times {error:g} % off"),
        (*rows, ("measured", f"{measured:.3g}", "", f"fixed share by Karp-Flatt {float(stays):.3f}")),
        {
            "finding": f"Two points, three laws, and {predicted} devices",
            "curves": {**curves, "measured": Line(list(times), list(times.values()), marks=True)},
            "band": (reach, low, high),
            "place": (float(predicted), "predicted"),
        },
    )  # fmt: skip


def laws(*, ask: str | None = None, **values: Any) -> Explorer:
    """Three laws through the same two points. `ask` is a question to be guessed first; Reset comes back to `values`."""
    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        if name != "series":
            return {}
        sizes = [point.devices for point in _series(now["series"]).points]
        return {"first": sizes[0], "second": sizes[1], "predicted": sizes[-2] if len(sizes) > 3 else sizes[-1]}

    def larger(now: Mapping[str, Any]) -> dict[str, int]:
        return {key: value for key, value in _sizes(now).items() if value > now["first"]}

    def all_but_last(now: Mapping[str, Any]) -> dict[str, int]:
        return dict(list(_sizes(now).items())[:-1])

    controls = (
        Choice("series", "run", "G0021", step.published_named("strong", 3)),
        Choice("first", "fitted: devices", 8, all_but_last),
        Choice("second", "and", 16, larger),
        Choice("predicted", "predict", 256, larger),
        Number("error", "error of a time (%)", 2.0, 0, 10, step=0.5),
    )
    return Explorer(controls, laws_view, lambda: Bands("devices", "seconds of a step", WIDTH, HEIGHT), follow=follow,
                    ask=ask, values=values)  # fmt: skip
