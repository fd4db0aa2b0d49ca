"""Step 7, overlap: what communication, the host, the input and the slowest rank add to a step of compute.

One device has two streams: one computes, one communicates. A bucket is sent when its gradients are ready, and the step
ends when both streams are done. That picture, and not an overlap fraction, gives the exposed time. Ranks that wait for
each other take as long as the slowest, which order statistics give.

>>> exposed_reduction(buckets=32, compute_per_layer=2e-3, communication_per_layer=1e-3)  # all but the last one hidden
0.001
>>> round(exposed_reduction(buckets=32, compute_per_layer=1e-3, communication_per_layer=2e-3), 6)
0.033
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols

K, c, c_f, c_b, r, G_r, t_dev, t_host, t_c, t_x = symbols(
    "buckets", "compute_per_layer", "forward_per_layer", "backward_per_layer", "communication_per_layer", "reductions",
    "device_time", "host_time", "compute_time", "communication_time",
)  # fmt: skip
t_step, t_load, N_load, t_mean, s_f, s_l, n_w, m_n, t_stall, p_stall, n = symbols(
    "step_time", "loader_time", "loader_workers", "mean_rank_time", "fresh_spread", "lasting_spread",
    "steps_between_waits", "normal_maximum", "stall_time", "stall_chance", "ranks",
)  # fmt: skip

exposed_reduction = Formula(
    "exposed_reduction",
    "t_exp",
    r + (K - 1) * sp.Max(0, r - c),
    "s",
    "time gradient reduction adds to backward: K equal buckets, each sent when its gradients are ready",
    assumptions=(
        "one communication stream, buckets in order, compute not slowed by communication",
        "equal buckets; where they differ, it is the last one that has nothing to hide behind",
        "with ZeRO-3, r is the gather and the reduction of a layer together: then an upper bound, by at most c, for "
        "beside the first backward runs a gather alone and beside the last a reduction alone",
    ),
    derivation=(
        Step("the step ends after all compute and one more bucket, or after the first compute and all buckets; "
             "what exceeds the compute is exposed",
             sp.Max(K * c + r, c + K * r) - K * c),
    ),
)  # fmt: skip

_step_compute = G_r * K * (c_f + c_b)

exposed_every_reduction = Formula(
    "exposed_every_reduction",
    "t_exp",
    r + (K - 1) * sp.Max(0, r - c_b) + (G_r - 1) * K * sp.Max(0, r - c_f - c_b),
    "s",
    "time gradient reduction adds when each of G_r micro-batches reduces all K buckets",
    assumptions=(
        "one communication stream, buckets in order; it also runs beside the next micro-batch's forward",
        "finished buckets may wait for their turn: memory for them is there",
    ),
    derivation=(
        Step("the stream ends after the last bucket it had to wait for: that is the first or the last bucket of the "
             "first or the last micro-batch, whose ready time and remaining buckets are added",
             sp.Max(
                 _step_compute + r,
                 _step_compute - K * c_b + c_b + K * r,
                 K * (c_f + c_b) + ((G_r - 1) * K + 1) * r,
                 K * c_f + c_b + G_r * K * r,
             ) - _step_compute),
    ),
)  # fmt: skip

exposed_gather = Formula(
    "exposed_gather",
    "t_exp",
    r + (K - 1) * sp.Max(0, r - c),
    "s",
    "time weight gathers add to forward: K layers, each gathered while the one before it computes",
    assumptions=(
        "the first gather has nothing to hide behind", "one layer is fetched ahead",
        "equal layers, compute not slowed by communication",
    ),
    derivation=(
        Step("the first gather, for every layer the longer of its compute and the next gather, the last compute",
             r + (K - 1) * sp.Max(c, r) + c - K * c),
    ),
)  # fmt: skip

layer_time = Formula(
    "layer_time",
    "t_L",
    sp.Max(t_dev, t_host),
    "s",
    "time of one layer: the device's, or the host's where it cannot launch fast enough",
    assumptions=("many equal layers follow each other", "the host runs ahead of the device, so the two do not add"),
)

step_upper_bound = Formula(
    "step_upper_bound",
    "t_hi",
    t_c + t_x,
    "s",
    "longest a step can take: nothing overlaps",
    assumptions=("nothing but the two streams holds either up: no host, no input, no other rank",),
)

step_lower_bound = Formula(
    "step_lower_bound",
    "t_lo",
    sp.Max(t_c, t_x),
    "s",
    "shortest a step can take: everything overlaps",
    assumptions=(
        "compute not slowed by the communication beside it, which takes units and memory bandwidth of its own",
    ),
)

# ---------------------------------------------------------------- the host and the input
launch_gap = Formula(
    "launch_gap",
    "t_gap",
    sp.Max(0, t_host - t_dev),
    "s",
    "time the device idles in each layer because the host has not launched the next one",
    assumptions=("many layers like this one follow each other: what the host was ahead by is used up",),
    derivation=(Step("a layer takes the longer of the two; the device works for its own part of that",
                     layer_time.expression - t_dev),),
)  # fmt: skip

input_wait = Formula(
    "input_wait",
    "t_in",
    sp.Max(0, t_load / N_load - t_step),
    "s",
    "time a step waits for its input, where workers load ahead",
    assumptions=(
        "workers load beside the step, and take equally long; what is ready ahead of time is used up",
        "the step time is that with input always ready",
    ),
    derivation=(Step("N_load workers finish an input every t_load / N_load; steps follow at the longer of the two",
                     sp.Max(t_step, t_load / N_load) - t_step),),
)  # fmt: skip

# ---------------------------------------------------------------- the slowest of n ranks
slowest_wait = Formula(
    "slowest_wait",
    "t_tail",
    m_n * sp.sqrt(s_l**2 + s_f**2 / n_w),
    "s",
    "time a step lasts beyond the mean rank's, because all wait for the slowest",
    assumptions=(
        "ranks are independent of each other and their times normal; what slows all alike makes nobody wait",
        "m_n is expected_maximum(n) for n ranks that wait for each other",
        "one meeting in n_w steps; q meetings within a step, its parts independent, cost up to sqrt(q) times as much",
    ),
    derivation=(
        Step("per step, the mean of n_w fresh draws spreads by the root of n_w less; a lasting difference stays; "
             "squares of independent spreads add",
             m_n * sp.sqrt(s_l**2 + (s_f / sp.sqrt(n_w)) ** 2)),
    ),
)  # fmt: skip

slowest_wait_share = Formula(
    "slowest_wait_share",
    "x_tail",
    slowest_wait.expression / (t_mean + slowest_wait.expression),
    "1",
    "share of a step in which the mean rank waits for the slowest",
    assumptions=slowest_wait.assumptions,
    derivation=(Step("of the slowest rank's time, what the mean rank has not worked",
                     1 - t_mean / (t_mean + slowest_wait.expression)),),
)  # fmt: skip

stall_wait = Formula(
    "stall_wait",
    "t_stalls",
    t_stall * (1 - (1 - p_stall) ** n),
    "s",
    "time a step loses to stalls, on average, where one rank that stalls holds up all",
    assumptions=(
        "ranks stall independently, at most once a step, all as long: two at once cost no more than one",
        "added to slowest_wait it is slightly too much: in a step with a stall the other tail hardly counts",
    ),
    derivation=(Step("all n ranks run through with chance (1 - p_stall)^n; else the stall is paid",
                     t_stall - t_stall * (1 - p_stall) ** n),),
)  # fmt: skip

_GRID = np.linspace(-13.0, 13.0, 5201)
_DENSITY = np.exp(-(_GRID**2) / 2) / math.sqrt(2 * math.pi)
_BELOW = np.array([math.erfc(-x / math.sqrt(2)) / 2 for x in _GRID])


@cache
def expected_maximum(ranks: int) -> float:
    """m_n, the mean of the largest of so many standard normal numbers, by the trapezoid rule in steps of 1/200.

    The largest is below x when all are, with chance Phi(x)^n; its density is the slope of that, n Phi^(n-1) phi. On the
    grid from -13 to 13 the integrand and all its slopes vanish at both ends, so the rule is exact to rounding. `ranks`
    is a whole number from 1 on; raises ValueError for anything else.

    >>> [round(expected_maximum(ranks), 2) for ranks in (1, 2, 8, 64, 1024)]
    [0.0, 0.56, 1.42, 2.34, 3.25]
    """
    count = _count(ranks)
    return float(np.sum(_GRID * count * _DENSITY * _BELOW ** (count - 1)) * (_GRID[1] - _GRID[0]))


def _count(ranks: int) -> int:
    if isinstance(ranks, bool) or int(ranks) != ranks or not 1 <= ranks <= 10**9:
        raise ValueError(f"ranks counts ranks that wait for each other, a whole number from 1 on; it is {ranks!r}.")
    return int(ranks)
