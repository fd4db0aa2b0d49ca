"""The scaling laws as cases of one time model: a fixed part, a part that devices share, and a part that grows.

>>> given = {"fixed_time": 1, "divisible_time": 9, "baseline_devices": 8, "scaled_devices": 64}
>>> strong_time(**given, growing_time=0), strong_time(**given, growing_time=0.5)
(2.125, 5.625)
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols

t_fix, t_div, t_grow, sigma, kappa, sigma_D, x, D_0, D, t_0, t_D = symbols(
    "fixed_time", "divisible_time", "growing_time", "fixed_share", "growing_share", "large_fixed_share",
    "device_ratio", "baseline_devices", "scaled_devices", "baseline_time", "scaled_time",
)  # fmt: skip
_x = D / D_0
_MODEL = "three parts that add up; their sizes stay as they are while devices are added"

strong_time = Formula(
    "strong_time",
    "t(D)",
    t_fix + t_div * D_0 / D + t_grow * (D / D_0 - 1),
    "s",
    "time of one fixed work unit on D devices",
    assumptions=(
        _MODEL,
        "fixed: host time, filling a pipeline, an exposed collective whose bytes no longer depend on the ranks",
        "growing: latencies of a ring, one for each rank more",
    ),
)

weak_time = Formula(
    "weak_time",
    "t(D)",
    t_fix + t_div + t_grow * (D / D_0 - 1),
    "s",
    "time of a work unit that grows with the devices",
    assumptions=(_MODEL, "the work of a device is held, so the divisible part is D/D_0 times as large"),
    derivation=(
        Step("the fixed-work time with D/D_0 times as much to share",
             strong_time.expression.subs(t_div, t_div * D / D_0)),
    ),
)  # fmt: skip

_speedup = strong_time.expression.subs(D, D_0) / strong_time.expression  # baseline over D devices
_shares = {t_fix: sigma * t_0, t_div: (1 - sigma) * t_0, t_grow: kappa * t_0}

universal_speedup = Formula(
    "universal_speedup",
    "s_USL",
    _x / (1 + sigma * (_x - 1) + kappa * _x * (_x - 1)),
    "1",
    "speedup of fixed work by the universal scalability law: a fixed share and a growing one",
    assumptions=(_MODEL,),
    source="Gunther 1993; derived here from the time model",
    derivation=(
        Step("time on D_0 over time on D, with the parts as shares of the baseline's time",
             _speedup.subs(_shares, simultaneous=True)),
    ),
)  # fmt: skip

amdahl_speedup = Formula(
    "amdahl_speedup",
    "s_A",
    1 / (sigma + (1 - sigma) * D_0 / D),
    "1",
    "speedup of fixed work by Amdahl's law: a share of the baseline's time stays",
    assumptions=(_MODEL, "nothing grows with the devices"),
    source="Amdahl 1967; derived here from the time model",
    derivation=(
        Step("the same ratio of times, with nothing that grows",
             _speedup.subs({t_fix: sigma * t_0, t_div: (1 - sigma) * t_0, t_grow: 0}, simultaneous=True)),
        Step("the universal law as its growing share goes to 0", universal_speedup.expression, limit=(kappa, 0)),
    ),
)  # fmt: skip

karp_flatt = Formula(
    "karp_flatt",
    "sigma_KF",
    (t_D / t_0 - 1 / x) / (1 - 1 / x),
    "1",
    "the fixed share that Amdahl's law needs to give one measured pair of times (Karp-Flatt)",
    assumptions=("both times are for the same work unit",),
    source="Karp and Flatt 1990; derived here",
    derivation=(
        Step("Amdahl's law with D = x D_0, t_D/t_0 = sigma + (1 - sigma)/x, solved for sigma",
             sp.solve(sp.Eq(t_D / t_0, 1 / amdahl_speedup.expression.subs(D, x * D_0)), sigma)[0]),
    ),
)  # fmt: skip

gustafson_speedup = Formula(
    "gustafson_speedup",
    "s_G",
    _x - sigma_D * (_x - 1),
    "1",
    "scaled speedup by Gustafson's law: time the grown work would take on D_0 devices over its time on D",
    assumptions=(
        _MODEL,
        "the divisible work grows with the devices, nothing else does",
        "the share is measured on D devices, not on the baseline",
    ),
    source="Gustafson 1988; derived here from the time model",
    derivation=(
        Step("on D_0 devices: the fixed part and D/D_0 times the divisible one, over both as they are on D",
             ((t_fix + _x * t_div) / weak_time.expression).subs(
                 {t_fix: sigma_D * t_D, t_div: (1 - sigma_D) * t_D, t_grow: 0}, simultaneous=True)),
    ),
)  # fmt: skip

fastest_devices = Formula(
    "fastest_devices",
    "D_max",
    D_0 * sp.sqrt(t_div / t_grow),
    "device",
    "devices beyond which the same work takes longer",
    assumptions=(_MODEL, "something grows; a number below D_0 means that D_0 are too many already"),
    derivation=(
        Step("the slope of the time is 0: what a device saves, t_div D_0/D^2, is what it adds, t_grow/D_0",
             sp.sqrt(t_div * D_0 / (t_grow / D_0))),
    ),
)  # fmt: skip
