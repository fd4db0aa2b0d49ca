"""Step 6, MFU: useful work over peak, what takes the rest, accelerator-hours and cost, speedup and efficiency.

>>> round(mfu(model_flops=400e12, devices=1, peak_flops_per_s=989.4e12, time=1), 4)
0.4043
"""

from __future__ import annotations

from course.mfu.hours import accelerator_hours, cost, devices_for_deadline, goodput_of_stops, run_time, wall_time
from course.mfu.logs import FAULTS, Log, utilisation
from course.mfu.losses import mfu_of_parts, repeated_share, slow_kernels_share, unused_share, waiting_share
from course.mfu.scaling import (
    hours_ratio,
    ideal_speedup,
    pipeline_speedup,
    price_of_an_hour,
    scaling_efficiency,
    speedup,
)
from course.mfu.use import CAUSES_ABOVE_ONE, hfu, mfu, refuse_above_one, step_mfu, tokens_per_s

__all__ = [
    "CAUSES_ABOVE_ONE",
    "FAULTS",
    "Log",
    "accelerator_hours",
    "cost",
    "devices_for_deadline",
    "goodput_of_stops",
    "hfu",
    "hours_ratio",
    "ideal_speedup",
    "mfu",
    "mfu_of_parts",
    "pipeline_speedup",
    "price_of_an_hour",
    "refuse_above_one",
    "repeated_share",
    "run_time",
    "scaling_efficiency",
    "slow_kernels_share",
    "speedup",
    "step_mfu",
    "tokens_per_s",
    "unused_share",
    "utilisation",
    "waiting_share",
    "wall_time",
]
