"""The explorers of the lab, on the report at hand: the curve, a step left out, the next limit, bytes of a layout.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from course.errors import UserError
from course.explorers.base import Choice, Explorer, Number, View
from course.lab.at_hand import at_hand
from course.lab.figures import curve, median_s
from course.lab.fitting import Fit, Prediction, fit, predict
from course.lab.held import held_bytes, parameters_held
from course.lab.legality import refusal
from course.lab.points import scaled, twins, unseen
from course.lab.protocol import CPU_MODEL, training
from course.lab.report import Cell, Report
from course.pictures.lab import PARTS
from course.pictures.live import Section, Stacks
from course.pictures.place import Curves, Line
from course.pictures.scaling import Bands

__all__ = [
    "held_bytes_of", "held_bytes_view", "held_out", "held_out_view", "next_limit", "next_limit_view", "strong_curve",
    "strong_curve_view",
]  # fmt: skip

ALL, ONE = "all", "one"
BARE = 1.5
"""Above so many bare all-reduces, what several devices pay is no message: they wait for each other or for memory."""

KNOWN = {"all other steps and messages": ALL, "steps of one device, messages and matmuls": ONE}


STATISTICS = {"median": "p50", "fast steps (P10)": "p10", "slow steps (P90)": "p90"}


def strong_curve_view(statistic: str, overhead: float) -> View:
    """The strong curve of the most devices in the report at hand, by a statistic, with more overhead a step.

    The batch that is predicted later is left out.

    Args:
        statistic: "p10", "p50" or "p90" of the steps, on both sides.
        overhead: ms added to every step on both sides.
    """
    if overhead < 0:
        raise UserError("overhead (ms added to every step) must be 0 or more.")
    report = unseen(at_hand())
    alone = {row["batch"]: report[row["id"]] for row in curve(report) if row["devices"] == 1}
    points = [row for row in scaled(report) if row["batch"] in alone]
    devices = points[0]["devices"]
    batches = [row["batch"] for row in points]
    few = [1e3 * alone[batch]["step_time_s"][statistic] + overhead for batch in batches]
    many = [1e3 * report[row["id"]]["step_time_s"][statistic] + overhead for row in points]
    efficiency = [one / (devices * several) for one, several in zip(few, many, strict=True)]
    rows = tuple(
        (f"{batch}", f"{batch / devices:g}", f"{one:.1f}", f"{several:.1f}", f"{one / several:.2f}", f"{share:.2f}",
         f"{1 / share - 1:+.0%}")
        for batch, one, several, share in zip(batches, few, many, efficiency, strict=True)
    )  # fmt: skip
    return View(
        f"Efficiency {efficiency[0]:.2f} at {batches[0]} sequences and {efficiency[-1]:.2f} at {batches[-1]}: the same "
        f"update costs {1 / efficiency[0] - 1:+.0%} and {1 / efficiency[-1] - 1:+.0%} device time.",
        ("batch", "a device", "one device, ms", f"{devices} devices, ms", "speedup", "efficiency", "device time"),
        rows,
        {
            "finding": "The same batch on one device and on several",
            "curves": {"one device": Line(batches, few), f"{devices} devices": Line(batches, many),
                       "ideal": Line(batches, [one / devices for one in few])},
        },
    )  # fmt: skip


def strong_curve(*, ask: str | None = None, **values: Any) -> Explorer:
    """The strong curve by statistic and overhead. `ask` is to be guessed first; Reset comes back to `values`."""

    controls = (
        Choice("statistic", "of its steps, the", "p50", STATISTICS),
        Number("overhead", "more overhead (ms a step)", 0, 0, 50),
    )
    return Explorer(controls, strong_curve_view, lambda: Curves("global batch (sequences)", "step time (ms)", 6.2, 4.2),
                    ask=ask, values=values)  # fmt: skip


def _steps(report: Report) -> dict[str, str]:
    """Steps that can be left out, by words: those on several devices that a curve may use."""
    rows = [row for row in curve(report) if row["devices"] > 1 and row["efficiency"] is not None]
    return {f"{row['batch']} sequences on {row['devices']} devices": row["id"] for row in rows}


def _fitted(report: Report, known: str, without: str) -> Fit:
    return fit(report, leave_out=twins(report, without), devices=(1,) if known == ONE else None)


def held_out_view(cell: str, known: str) -> View:
    """A measured step beside its prediction by a fit that has not seen it.

    Args:
        cell: id of a step on several devices in the report at hand.
        known: "all" other steps, or those of "one" device; messages in both.
    """
    report = at_hand()
    left_out = report[cell]
    fitted = _fitted(report, known, cell)
    found = predict(fitted, left_out)
    measured, devices = median_s(left_out), int(left_out["devices"])
    batches = np.array(sorted({row["batch"] for row in curve(report) if row["devices"] == devices}), float)
    line = [_at(fitted, left_out, batch) for batch in batches]
    seen = [row for row in curve(report) if row["devices"] == devices and row["id"] != cell]
    miss = measured / found.time_s - 1
    rows = [(name, f"{1e3 * value:.2f}", f"{value / found.time_s:.0%}") for name, value in found.parts.items()]
    rows.append(("predicted", f"{1e3 * found.time_s:.2f}", "100%"))
    rows.append(("measured", f"{1e3 * measured:.2f}", f"{1 + miss:.0%}"))
    return View(
        f"Predicted {1e3 * found.time_s:.1f} ms, band {1e3 * found.low_s:.1f} to {1e3 * found.high_s:.1f}; measured "
        f"{1e3 * measured:.1f}, {miss:+.0%}: {'inside' if found.holds(measured) else 'outside'} the band.",
        ("part", "ms", "of the prediction"),
        tuple(rows),
        {
            "finding": "A step left out, and the fit of the others",
            "curves": {
                "fit": Line(batches, [1e3 * one.time_s for one in line]),
                "fitted" if known == ALL else "not seen": Line(
                    [row["batch"] for row in seen], [1e3 * row["time_s"] for row in seen], marks=True
                ),
                "left out": Line([left_out["global_batch_sequences"]], [1e3 * measured], marks=True),
            },
            "band": (batches, [max(1e3 * one.low_s, 0.05 * 1e3 * one.time_s) for one in line],
                     [1e3 * one.high_s for one in line]),
        },
    )  # fmt: skip


def _at(fitted: Fit, cell: Cell, batch: float, devices: int | None = None) -> Prediction:
    request = {**cell["request"], "global_batch_sequences": batch, "devices": devices or cell["devices"]}
    return predict(fitted, request)


def held_out(*, ask: str | None = None, **values: Any) -> Explorer:
    """A step left out and predicted, with its band. `ask` is to be guessed first; Reset comes back to `values`."""

    def cells(_: Mapping[str, Any]) -> dict[str, str]:
        return _steps(at_hand())

    controls = (
        Choice("cell", "left out", next(iter(_steps(at_hand()).values())), cells),
        Choice("known", "fitted to", ALL, KNOWN),
    )
    return Explorer(controls, held_out_view, lambda: Bands("global batch (sequences)", "step time (ms)", 6.2, 4.2),
                    ask=ask, values=values)  # fmt: skip


def next_limit_view(
    batch: float, devices: float, overhead: float, rate: float, latency: float, bandwidth: float
) -> View:
    """The fitted step, with one of its terms made better or worse.

    Args:
        batch: sequences of a step; devices: how many share them.
        overhead: what is left of it; rate, latency, bandwidth: times the measured ones.
    """
    if min(batch, devices, rate, latency, bandwidth) <= 0 or overhead < 0:
        raise UserError("batch, devices, rate, latency and bandwidth must be above 0, and overhead not below.")
    report = at_hand()
    cell = report[next(iter(_steps(report).values()))]
    fitted = fit(report)
    changed = replace(
        fitted,
        overhead_s=fitted.overhead_s * overhead,
        flops_per_s=fitted.flops_per_s * rate,
        link=None if fitted.link is None else replace(
            fitted.link, latency_s=fitted.link.latency_s * latency, bytes_per_s=fitted.link.bytes_per_s * bandwidth
        ),
    )  # fmt: skip
    count = int(devices)
    before, after = (_at(one, cell, batch, count) for one in (fitted, changed))
    alone = _at(changed, cell, batch, 1)
    names = {"measured, fitted": before, "changed": after}
    efficiency = alone.time_s / (count * after.time_s)
    largest = after.largest()
    told = max(row["devices"] for row in curve(report))
    beyond = f" No more than {told} devices were measured: this is drawn beyond the data." if count > told else ""
    named = "is the next limit"
    if largest == "communication" and fitted.visible > BARE:
        named = f"holds waiting too (s is {fitted.visible:.1f}), so no limit is named"
    return View(
        f"{1e3 * before.time_s:.1f} ms become {1e3 * after.time_s:.1f}, efficiency {efficiency:.2f} against one "
        f"device; {largest} takes {after.parts[largest] / after.time_s:.0%} of the step and {named}.{beyond}",
        ("part", "fitted, ms", "changed, ms", "of the step"),
        tuple(
            (part, f"{1e3 * value:.2f}", f"{1e3 * after.parts[part]:.2f}", f"{after.parts[part] / after.time_s:.0%}")
            for part, value in before.parts.items()
        ),
        {
            "finding": "One term at a time",
            "sections": [
                Section(
                    "ms of a step",
                    {name: {part: 1e3 * value for part, value in one.parts.items()} for name, one in names.items()},
                )
            ],
        },
    )


def next_limit(*, ask: str | None = None, **values: Any) -> Explorer:
    """Which term limits, and what its change brings. `ask` is to be guessed first; Reset comes back to `values`."""

    def times(name: str, label: str) -> Number:
        return Number(name, label, 1, 0.01, 100, logarithmic=True)

    controls = (
        Number("batch", "global batch", 8, 1, 256, whole=True, logarithmic=True),
        Number("devices", "devices", 2, 1, 64, whole=True, logarithmic=True),
        times("overhead", "overhead, times"),
        times("rate", "matmul rate, times"),
        times("latency", "latency, times"),
        times("bandwidth", "bandwidth, times"),
    )
    return Explorer(controls, next_limit_view, _parts, ask=ask, values=values)


def held_bytes_view(data: int, tensor: int, pipeline: int, sharding: str) -> View:
    """What a rank holds between steps, by the formula, beside the cell of the report at hand that has this layout.

    Args:
        data, tensor, pipeline: degrees.
        sharding: "none", "zero2" or "zero3".
    """
    layout = {"data": data, "tensor": tensor, "pipeline": pipeline, "context": 1, "sharding": sharding}
    devices = data * tensor * pipeline
    request = training({"kind": "cpu", "cores": devices}, "torch", "layout", devices, 16, layout=layout,
                       micro_batches=4 if pipeline > 1 else 1)  # fmt: skip
    why = refusal(request, {"kind": "cpu", "cores": devices})
    if why:
        raise UserError(f"This layout is refused: {why}.")
    held = held_bytes({"model": CPU_MODEL, "layout": layout, "engine": "torch"})
    same = [cell for cell in at_hand().of("layout", "torch") if _same(cell, layout)]
    counted = f"{same[0]['held_bytes']:,} counted" if same else "no such cell in the report"
    weights = 4 * parameters_held(CPU_MODEL, layout)
    whole = 4 * parameters_held(CPU_MODEL, {"data": 1})
    return View(
        f"A rank holds {held:,} bytes by the formula; {counted}. Cut evenly it would be {2 * whole // devices:,}.",
        ("part", "one device, bytes", "a rank, bytes"),
        (("weights", f"{whole:,}", f"{weights:,}"), ("gradients", f"{whole:,}", f"{held - weights:,}")),
        {
            "finding": "What a rank holds between steps",
            "sections": [Section("MB", {
                "one device": {"weights": whole / 1e6, "gradients": whole / 1e6},
                "a rank": {"weights": weights / 1e6, "gradients": (held - weights) / 1e6},
            }, "{:.2f}".format)],
        },
    )  # fmt: skip


def _parts() -> Stacks:
    return Stacks(PARTS, 6.2, 2.3)


def _same(cell: Cell, layout: Mapping[str, Any]) -> bool:
    own = cell["layout"]
    return cell["request"]["model"] == CPU_MODEL and not own["sequence_parallel"] and all(
        own.get(key, 1) == value for key, value in layout.items()
    )  # fmt: skip


def held_bytes_of(*, ask: str | None = None, **values: Any) -> Explorer:
    """Bytes that a rank holds, by layout. `ask` is to be guessed first; Reset comes back to `values`."""
    degrees = {"1": 1, "2": 2, "4": 4}
    controls = (
        Choice("data", "data", 1, degrees),
        Choice("tensor", "tensor", 2, degrees),
        Choice("pipeline", "pipeline", 1, degrees),
        Choice("sharding", "sharding", "none", {"none": "none", "ZeRO-2": "zero2", "ZeRO-3": "zero3"}),
    )
    return Explorer(controls, held_bytes_view, _parts, ask=ask, values=values)
