"""Step 9, strong and weak scaling: what a scaling claim means, which limits it meets, and what a larger batch costs.

A `WorkUnit` is declared first. An `Experiment` of measured points is strong, weak, or one of growing models; it refuses
to compare what is not comparable, and always prints global work and time. The laws are cases of one time model.

>>> step = WorkUnit("llama-2-7b", 512, 4096)
>>> run = Experiment.strong([Point(64, 9.0, step), Point(128, 5.0, step)])
>>> [round(row.efficiency, 2) for row in run.rows()]
[1.0, 0.9]
"""

from __future__ import annotations

from course.scaling.experiment import Experiment, Point, Row
from course.scaling.families import weak_efficiency, work_efficiency
from course.scaling.fits import LAWS, Fit, band, fit
from course.scaling.laws import (
    amdahl_speedup,
    fastest_devices,
    gustafson_speedup,
    karp_flatt,
    strong_time,
    universal_speedup,
    weak_time,
)
from course.scaling.published import batches_to_target, published, published_named
from course.scaling.target import (
    critical_batch,
    device_time_to_target,
    gain_share,
    sequences_to_target,
    steps_to_target,
    time_to_target,
)
from course.scaling.work import DifferentWork, WorkUnit, differences, same_work

__all__ = [
    "LAWS", "DifferentWork", "Experiment", "Fit", "Point", "Row", "WorkUnit", "amdahl_speedup", "band",
    "batches_to_target", "critical_batch", "device_time_to_target", "differences", "fastest_devices", "fit",
    "gain_share", "gustafson_speedup", "karp_flatt", "published", "published_named", "same_work",
    "sequences_to_target", "steps_to_target", "strong_time", "time_to_target", "universal_speedup", "weak_efficiency",
    "weak_time", "work_efficiency",
]  # fmt: skip
