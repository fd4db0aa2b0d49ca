"""The explorers of step 6: `conventions`, `losses`, `faults`, `scaling` and `replicas`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from course.explorers.mfu_scaling import replicas, replicas_view, scaling, scaling_view, series_named
from course.explorers.mfu_use import conventions, conventions_view, faults, faults_view, losses, losses_view

__all__ = [
    "conventions", "conventions_view", "faults", "faults_view", "losses", "losses_view", "replicas", "replicas_view",
    "scaling", "scaling_view", "series_named",
]  # fmt: skip
