"""Strong scaling: the same work on more devices, against a baseline that is named, and what the hours saved cost."""

from __future__ import annotations

from typing import Any

from course.formula import Formula, Step
from course.symbols import symbols

t_0, t_D, D_0, D, P_p, v, M = symbols(
    "baseline_time", "scaled_time", "baseline_devices", "scaled_devices", "pipeline", "interleave", "micro_batches",
)  # fmt: skip

speedup = Formula(
    "speedup",
    "s",
    t_0 / t_D,
    "1",
    "speedup of the same work",
    assumptions=("both times are for the same work unit",),
    source="the first source document",
)

scaling_efficiency = Formula(
    "scaling_efficiency",
    "E",
    t_0 * D_0 / (t_D * D),
    "1",
    "strong-scaling efficiency against any feasible baseline: speedup over the ideal D/D_0",
    source="both source documents",
    derivation=(
        Step("speedup over D/D_0: device time of the baseline, over device time of the run",
             speedup.expression / (D / D_0)),
    ),
)


def _idle(micro_batches: Any) -> Any:
    """Bubble share of a pipeline with so many micro-batches (step 5), as a sympy expression."""
    return (P_p - 1) / (v * micro_batches + P_p - 1)


pipeline_speedup = Formula(
    "pipeline_speedup",
    "s_max",
    (v * M * D / D_0 + P_p - 1) / (v * M + P_p - 1),
    "1",
    "most that more replicas of a pipeline can speed up the same batch: micro-batches get fewer, the bubble does not",
    assumptions=(
        "equal stages, free sends, everything else scaling perfectly",
        "D/D_0 times as many replicas: each pipeline has M micro-batches after, and had M D/D_0 before",
    ),
    derivation=(
        Step("the ideal, times the share of a step in which a stage works after, over that before",
             (D / D_0) * (1 - _idle(M)) / (1 - _idle(M * D / D_0))),
    ),
)  # fmt: skip

hours_ratio = Formula(
    "hours_ratio",
    "q_H",
    t_D * D / (t_0 * D_0),
    "1",
    "accelerator-hours of the same work against those of the baseline: one over the efficiency",
    derivation=(Step("one over the efficiency", 1 / scaling_efficiency.expression),),
)

price_of_an_hour = Formula(
    "price_of_an_hour",
    "p_t",
    (D * t_D - D_0 * t_0) / (t_0 - t_D),
    "device",
    "accelerator-hours paid for each hour of wall time saved; below 0 the larger cluster is cheaper as well",
    assumptions=("the larger cluster is faster",),
    derivation=(Step("more device time, over less time", (t_D * D - t_0 * D_0) / (t_0 - t_D)),),
)


def ideal_speedup(baseline_devices: float, devices: float) -> float:
    """What perfect strong scaling would give: D/D_0.

    >>> ideal_speedup(64, 128)
    2.0
    """
    return devices / baseline_devices
