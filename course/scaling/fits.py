"""Laws fitted to measured times, and how far measurement errors let their predictions spread.

>>> amdahl = fit("Amdahl", [(8, 10.0), (16, 5.5)])
>>> [round(float(part), 6) for part in (amdahl.fixed_time, amdahl.divisible_time)], round(float(amdahl.time(64)), 3)
([1.0, 9.0], 2.125)
>>> low, high = band("Amdahl", [(8, 10.0), (16, 5.5)], 0.01, 64)
>>> bool(low < 2.125 < high)
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from course.errors import UserError
from course.scaling.laws import strong_time

__all__ = ["LAWS", "LINE", "WEAK", "Fit", "Measured", "band", "fit"]

Measured = Sequence[tuple[int, float]]
"""Devices and seconds of one work unit; the first is the baseline."""

PARTS = ("fixed_time", "divisible_time", "growing_time")
LINE, WEAK = "straight line", "growing work"
LAWS: dict[str, tuple[str, ...]] = {
    LINE: (),
    "Amdahl": ("fixed_time", "divisible_time"),
    "growing part": ("divisible_time", "growing_time"),
    "universal": PARTS,
    WEAK: ("fixed_time", "growing_time"),
}
"""Law to the parts of the time model it uses; the straight line of a plot with two logarithmic axes uses none. Where
the work grows with the devices, what they share is as long as before, so it counts to the fixed part."""


@dataclass(frozen=True)
class Fit:
    """A law with its parts in s, or the slope of the straight line."""

    law: str
    baseline_devices: int
    fixed_time: float = 0.0
    divisible_time: float = 0.0
    growing_time: float = 0.0
    slope: float = 0.0

    def time(self, devices: Any) -> Any:
        """Seconds of one work unit on `devices`, a number or an array."""
        if self.law == LINE:
            return self.divisible_time * (np.asarray(devices, float) / self.baseline_devices) ** self.slope
        return strong_time(
            fixed_time=self.fixed_time, divisible_time=self.divisible_time, growing_time=self.growing_time,
            baseline_devices=self.baseline_devices, scaled_devices=devices,
        )  # fmt: skip


def fit(law: str, points: Measured) -> Fit:
    """The law that comes closest to the points: least squares of relative errors, no part below 0.

    Args:
        law: a key of `LAWS`.
        points: at least as many as the law has parts, two for the straight line; the first is the baseline.

    Raises:
        UserError: no such law, or too few points to tell its parts apart.
    """
    if law not in LAWS:
        raise UserError(f"law must be one of {', '.join(LAWS)}, not {law!r}.")
    needed = max(2, len(LAWS[law]))
    if len({devices for devices, _ in points}) < needed:
        raise UserError(f"points: {law} needs {needed} different numbers of devices, not {len(points)}.")
    base = points[0][0]
    ratio = np.array([devices / base for devices, _ in points])
    times = np.array([time for _, time in points])
    if law == LINE:
        slope, offset = np.polyfit(np.log(ratio), np.log(times), 1)
        return Fit(law, base, divisible_time=float(np.exp(offset)), slope=float(slope))
    columns = {"fixed_time": np.ones_like(ratio), "divisible_time": 1 / ratio, "growing_time": ratio - 1}
    best, found = math.inf, dict.fromkeys(PARTS, 0.0)
    for size in range(len(LAWS[law]), 0, -1):  # a part that would come out below 0 is left out
        for names in combinations(LAWS[law], size):
            matrix = np.column_stack([columns[name] / times for name in names])
            values = np.linalg.lstsq(matrix, np.ones_like(times), rcond=None)[0]
            error = float(np.sum((matrix @ values - 1) ** 2))
            if (values >= 0).all() and error < best - 1e-15:
                best = error
                found = dict.fromkeys(PARTS, 0.0) | dict(zip(names, map(float, values), strict=True))
    found["divisible_time"] = max(found["divisible_time"], 1e-15)
    return Fit(law, base, **found)


def band(law: str, points: Measured, error: float, devices: Any) -> tuple[Any, Any]:
    """The lowest and the highest prediction when each fitted time may be off by a share `error`, either way.

    Args:
        law: a key of `LAWS`.
        points: as `fit` takes them; every combination of errors is fitted.
        error: share, such as 0.03.
        devices: where to predict, a number or an array.
    """
    if not 0 <= error < 1:
        raise UserError(f"error (share by which a time may be off) must be from 0 to below 1, not {error!r}.")
    tried = [
        fit(law, [(n, time * (1 + sign * error)) for (n, time), sign in zip(points, signs, strict=True)]).time(devices)
        for signs in product((-1, 1), repeat=len(points))
    ]
    return np.min(tried, axis=0), np.max(tried, axis=0)
