"""From some measured cells to the others: a link's latency and bandwidth, a device's rate and overhead, a prediction.

A step of data parallelism is taken to be

    t = overhead + FLOPs / (devices x rate) + visible x t_all_reduce(gradient bytes; latency, bandwidth)

Latency and bandwidth come from the messages that were measured alone; the other three from steps, by least squares on
relative residuals. `visible` is how many times the bare all-reduce shows in a step: below 1 compute hides a part of it,
above 1 the two compete. Where no step of several devices was seen, the rate is lowered by what matmuls lose when all
devices multiply at once. Held out, a step is predicted with a band: what the fit leaves open, and what steps vary by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.errors import UserError
from course.lab.figures import flops_per_step, loader_s
from course.lab.report import Cell, Report

__all__ = ["Fit", "Link", "Prediction", "at_once", "fit", "link", "matmul_rates", "predict"]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
BAND = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)
"""Student's t that leaves 5 % on either side, for 1 to 10 degrees of freedom: nine steps of ten lie inside."""

BAND_OF_MANY = 1.65
LEAST_SPREAD = 0.03
"""Relative spread of a step from launch to launch that no fit of one launch can see."""

P10_TO_P90 = 2.56
"""Standard deviations between the 10th and the 90th percentile of a normal distribution."""


@dataclass(frozen=True)
class Link:
    """What messages of one operation told: latency in s, bandwidth in byte/s (one way), relative residual."""

    operation: str
    latency_s: float
    bytes_per_s: float
    spread: float
    cells: tuple[str, ...] = ()

    def time_s(self, ranks: int, payload_bytes: float) -> float:
        """Seconds of one operation over so many ranks.

        >>> round(Link("all_reduce", 1e-4, 1e9, 0.0).time_s(2, 1e6), 6)
        0.0012
        """
        waits, share = _coefficients(self.operation, ranks)
        return waits * self.latency_s + share * payload_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Fit:
    """What steps told: overhead in s, FLOP/s of one device, how visible the all-reduce is; and how sure that is."""

    overhead_s: float
    flops_per_s: float
    visible: float
    link: Link | None
    spread: float
    freedom: int
    gradient_bytes: float
    cells: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...]
    knows_visible: bool
    at_once: Mapping[int, float]
    """By devices: a matmul's rate while all of them multiply, over its rate alone; used for want of their steps."""


@dataclass(frozen=True)
class Prediction:
    """A step that was not measured: seconds with a band, and the parts that sum to it."""

    time_s: float
    low_s: float
    high_s: float
    parts: Mapping[str, float]

    def holds(self, measured_s: float) -> bool:
        """Whether a measured time lies inside the band.

        >>> Prediction(1.0, 0.9, 1.1, {}).holds(1.05)
        True
        """
        return self.low_s <= measured_s <= self.high_s

    def largest(self) -> str:
        """The part that takes most of the step.

        >>> Prediction(1.0, 0.9, 1.1, {"compute": 0.7, "overhead": 0.3}).largest()
        'compute'
        """
        return max(self.parts, key=lambda name: self.parts[name])


def link(report: Report, operation: str = "all_reduce", engine: str = "torch", leave_out: Collection[str] = ()) -> Link:
    """Latency and bandwidth of an operation, from its measured cells of all sizes and ranks.

    Fitted on the 10th percentile, for a message that was disturbed once says nothing about the link, and on relative
    residuals, so that small messages count as much as large ones.
    Raises UserError where fewer than two sizes were measured.
    """
    family = "p2p" if operation == "send" else "collective"
    found = [
        cell for cell in report.of(family, engine)
        if _operation(cell) == operation and cell["id"] not in leave_out and cell["payload_bytes"]
    ]  # fmt: skip
    if len({cell["payload_bytes"] for cell in found}) < 2:
        raise UserError(
            f"The report has fewer than two sizes of {operation} by {engine}: measure the family {family!r} for a link."
        )
    rows, times = [], []
    for cell in found:
        waits, share = _coefficients(operation, int(cell["devices"]))
        rows.append([waits, share * float(cell["payload_bytes"])])
        times.append(_low(cell))
    values, spread, _, _ = _least_squares(np.array(rows), np.array(times))
    return Link(operation, values[0], 1 / max(values[1], 1e-15), spread, tuple(str(cell["id"]) for cell in found))


def matmul_rates(
    report: Report, engine: str = "torch", usual: bool = False
) -> dict[tuple[int, int, int, int], float]:  # fmt: skip
    """FLOP/s of one device by (m, k, n, devices that multiply at once), from the matmul cells.

    Args:
        usual: the rate of the median step, where the cell tells it, not of the best.
    """
    found = {}
    for cell in report.of("matmul", engine):
        shape = (cell.get("request") or {}).get("shape")
        median = (cell.get("extra") or {}).get("matmul_median_flops_per_s") if usual else None
        rate = median or cell["matmul_flops_per_s"]
        if shape and rate:
            found[shape[0], shape[1], shape[2], int(cell["devices"])] = float(rate)
    return found


def at_once(report: Report, engine: str = "torch") -> dict[int, float]:
    """By devices: what is left of a device's matmul rate when all multiply at once; the median over shapes.

    Medians of the steps on both sides, for a training step is taken at its median too.
    """
    rates = matmul_rates(report, engine, usual=True)
    found: dict[int, list[float]] = {}
    for (m, k, n, devices), rate in rates.items():
        if devices > 1 and (m, k, n, 1) in rates:
            found.setdefault(devices, []).append(rate / rates[m, k, n, 1])
    return {devices: float(np.median(ratios)) for devices, ratios in found.items()}


def fit(
    report: Report, engine: str = "torch", leave_out: Collection[str] = (), devices: Collection[int] | None = None
) -> Fit:
    """Fit the step of data parallelism to the strong and weak cells of a report.

    Args:
        report: with cells of at least two batches.
        engine: whose cells.
        leave_out: ids of the cells that are to be predicted; they are not looked at.
        devices: only cells of these device counts; None for all that do not share cores.

    Without a cell of several devices nothing is known of what hides the all-reduce: it is taken to be wholly visible.
    Then the matmuls measured at once tell what a neighbour takes.
    Raises UserError where there are too few cells.
    """
    found = [cell for cell in _steps(report, engine) if cell["id"] not in leave_out
             and (devices is None or cell["devices"] in devices)]  # fmt: skip
    several = any(cell["devices"] > 1 for cell in found)
    per_device = {cell["global_batch_sequences"] / cell["devices"] for cell in found}
    if len(per_device) < 2 or len(found) < 2 + several:
        raise UserError(
            f"A fit needs steps of at least {2 + several} cells with two batches a device; there are {len(found)}."
        )
    try:
        bare: Link | None = link(report, engine=engine, leave_out=leave_out)
    except UserError:
        bare = None
    gradients = _gradient_bytes(found)
    rows = [_row(flops_per_step(cell["request"]), int(cell["devices"]), bare, gradients, several) for cell in found]
    values, spread, freedom, covariance = _least_squares(np.array(rows), np.array([_median(cell) for cell in found]))
    noise = float(np.median([_variation(cell) for cell in found]))
    return Fit(
        values[0], 1 / max(values[1], 1e-18), values[2] if several else 1.0, bare,
        float(np.hypot(spread, np.hypot(0.5 * noise, LEAST_SPREAD))), freedom, gradients,
        tuple(str(cell["id"]) for cell in found), tuple(map(tuple, covariance)), several,
        {} if several else at_once(report, engine),
    )  # fmt: skip


def predict(fitted: Fit, request: Mapping[str, Any]) -> Prediction:
    """The step of a cell that was not measured, by a fit of others.

    Args:
        fitted: as `fit` gives it.
        request: a cell, or a request: `model`, `sequence_length`, `global_batch_sequences` and `devices` are read.

    Raises UserError where messages would be needed and none were measured.
    """
    devices = int(request["devices"])
    asked = request.get("request") or request
    if devices > 1 and fitted.link is None and not fitted.knows_visible:
        raise UserError("The report has no measured all-reduce, so several devices cannot be predicted from one.")
    row = _row(flops_per_step(asked), devices, fitted.link, fitted.gradient_bytes, fitted.knows_visible)
    message = 0.0
    if devices > 1:
        message = fitted.link.time_s(devices, fitted.gradient_bytes) if fitted.link is not None else row[-1]
    parts = {
        "overhead": fitted.overhead_s,
        "compute": row[1] / fitted.flops_per_s / _at_once(fitted, devices),
        "communication": fitted.visible * message,
    }
    time = sum(parts.values())
    open_s = float(np.sqrt(max(0.0, np.array(row) @ np.array(fitted.covariance) @ np.array(row))))
    unknown = 0.0 if fitted.knows_visible else message  # nothing hidden or as much again lost: nobody has measured it
    students = BAND[fitted.freedom - 1] if 1 <= fitted.freedom <= len(BAND) else BAND_OF_MANY
    half = students * float(np.hypot(open_s, fitted.spread * time)) + unknown
    return Prediction(time, max(0.0, time - half), time + half, parts)


def _at_once(fitted: Fit, devices: int) -> float:
    """What is left of the rate with so many devices; of the nearest lower count where this one was not measured."""
    known = [count for count in fitted.at_once if count <= devices]
    return fitted.at_once[max(known)] if known else 1.0


def _steps(report: Report, engine: str) -> list[Cell]:
    """Undisturbed data-parallel steps: no slowed loader, no accumulation, no shared cores."""
    return [
        cell for family in ("strong", "weak") for cell in report.of(family, engine)
        if not loader_s(cell) and (cell["step_time_s"] or {}).get("p50") and cell.get("request")
        and cell["layout"]["data"] == cell["devices"] and cell["micro_batches"] in (None, 1)
        and not (cell["placement"] or {}).get("shared_cores")
    ]  # fmt: skip


def _row(flops: float, devices: int, bare: Link | None, gradients: float, several: bool) -> list[float]:
    """What overhead, seconds a FLOP and visibility are multiplied by."""
    if not several:
        return [1.0, flops / devices]
    message = 0.0
    if devices > 1:
        message = bare.time_s(devices, gradients) if bare is not None else 1e-3
    return [1.0, flops / devices, message]


def _least_squares(rows: np.ndarray, times: np.ndarray) -> tuple[list[float], float, int, np.ndarray]:
    """Values not below 0, relative residual (by the freedom left), degrees of freedom, covariance of the values."""
    weighed = rows / times[:, None]
    scale = np.maximum(np.abs(weighed).max(axis=0), 1e-300)
    kept = list(range(rows.shape[1]))
    values = np.zeros(rows.shape[1])
    while kept:
        part, *_ = np.linalg.lstsq(weighed[:, kept] / scale[kept], np.ones(len(times)), rcond=None)
        worst = int(np.argmin(part))
        if part[worst] >= 0:
            values[kept] = part / scale[kept]
            break
        del kept[worst]  # a negative latency or overhead is noise: the best fit has none
    freedom = max(len(times) - len(kept), 0)
    residual = weighed @ values - 1
    spread = float(np.sqrt((residual**2).sum() / freedom)) if freedom else float(np.sqrt((residual**2).mean()))
    covariance = np.zeros((rows.shape[1],) * 2)
    inside = np.ix_(kept, kept)
    covariance[inside] = spread**2 * np.linalg.pinv(weighed[:, kept].T @ weighed[:, kept])
    return [float(value) for value in values], spread, freedom, covariance


def _coefficients(operation: str, ranks: int) -> tuple[float, float]:
    """How many latencies an operation waits for, and which share of its bytes crosses the link: step 4's formulas."""
    from course import place

    formula = {
        "all_reduce": place.ring_all_reduce_time, "all_gather": place.ring_all_gather_time,
        "reduce_scatter": place.ring_all_gather_time, "all_to_all": place.all_to_all_time,
        "send": place.point_to_point_time,
    }[operation]  # fmt: skip
    shared = {} if operation == "send" else {"ranks": ranks}
    both = float(formula(payload_bytes=1.0, latency=1.0, bandwidth=1.0, **shared))
    doubled = float(formula(payload_bytes=1.0, latency=2.0, bandwidth=1.0, **shared))
    return doubled - both, 2 * both - doubled


def _operation(cell: Cell) -> str | None:
    operation: str | None = (cell.get("request") or {}).get("operation")
    return operation


def _gradient_bytes(cells: Sequence[Cell]) -> float:
    for cell in cells:
        if cell["devices"] > 1 and cell["payload_bytes"]:
            return float(cell["payload_bytes"])
    model = cells[0]["request"]["model"]
    weights = model["layers"] * (4 * model["hidden"] ** 2 + 2 * model["hidden"] * model["ffn"])
    return float(4 * (weights + 2 * model["hidden"] * model["vocabulary"]))


def _median(cell: Cell) -> float:
    return float(cell["step_time_s"]["p50"])


def _low(cell: Cell) -> float:
    return float(cell["step_time_s"].get("p10") or cell["step_time_s"]["p50"])


def _variation(cell: Cell) -> float:
    """Relative standard deviation of a cell's steps, from its percentiles."""
    time = cell["step_time_s"]
    if not time.get("p10") or not time.get("p90"):
        return 0.0
    return float((time["p90"] - time["p10"]) / P10_TO_P90 / time["p50"])
