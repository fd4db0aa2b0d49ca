"""Efficiency of the three families: fixed work, growing work, growing model; each against a baseline that is named.

>>> weak_efficiency(time_on_baseline=1.5, time_on_devices=2.0)
0.75
"""

from __future__ import annotations

from course.formula import Formula, Step
from course.mfu import scaling_efficiency
from course.symbols import symbols

t_b, t_s, W_0, W, D_0, D, t_0, t_D = symbols(
    "time_on_baseline", "time_on_devices", "baseline_work", "scaled_work", "baseline_devices", "scaled_devices",
    "baseline_time", "scaled_time",
)  # fmt: skip

work_efficiency = Formula(
    "work_efficiency",
    "E_W",
    W * t_b * D_0 / (W_0 * t_s * D),
    "1",
    "work for each device-second, over that of the baseline",
    assumptions=("both numbers count the same kind of work, model FLOPs by one convention",),
    derivation=(Step("work over device time, of the run and of the baseline", (W / (D * t_s)) / (W_0 / (D_0 * t_b))),),
)

weak_efficiency = Formula(
    "weak_efficiency",
    "E_weak",
    t_b / t_s,
    "1",
    "weak-scaling efficiency: the baseline's time over that on D devices, each with the work it had; ideal is 1",
    assumptions=("the declared work of a device is the same: global work grows as D/D_0",),
    source="the second source document",
    derivation=(Step("work for each device-second, with D/D_0 times the work", work_efficiency.expression.subs(
        W, W_0 * D / D_0)),),
)  # fmt: skip

STRONG_CASE = (work_efficiency.expression.subs({W: W_0, t_b: t_0, t_s: t_D}), scaling_efficiency.expression)
"""The general efficiency with equal work, and step 6's strong-scaling efficiency: the same expression."""
