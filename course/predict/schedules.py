"""How long all micro-batches take through a pipeline, by the schedule of each layout.

Under GPipe, 1F1B and interleaving backward is one piece of work. Under zero-bubble it is two, and what a stage makes
for its own weights holds up no other.
"""

from __future__ import annotations

import numpy as np

from course.batch import pipeline_time, zero_bubble_time
from course.legality import SCHEDULES
from course.predict.layers import Kind
from course.predict.stages import Stages

Columns = dict[str, np.ndarray]

SPLIT_NOTE = (
    "zero-bubble is ZB-H1 here, with a barrier at the end of a step: exact for even stages; for uneven ones an upper "
    "bound, which a heavy head or fewer micro-batches than stages may exceed by a percent or two. All of the weights' "
    "gradients wait, the head's too, and what they need is kept; exposed collectives and recomputation count to the "
    "input's gradient. ZB-H2, ZB-1p, ZB-2p and ZB-V are other orders, not predicted"
)
"""What a prediction of this schedule leaves out, or rounds up."""


def pipeline_seconds(
    columns: Columns, stages: Stages, kinds: list[Kind], stage_time: np.ndarray, slowest: np.ndarray
) -> np.ndarray:
    """Seconds from the first forward of a step to its last backward, of each layout.

    Args:
        columns: the layouts.
        stages: their representative stages.
        kinds: the kinds of layers, with their times.
        stage_time: seconds of one micro-batch, forward and backward, on each representative stage.
        slowest: the place of the slowest among them.
    """
    row = np.arange(len(slowest))
    paced, summed = stage_time[row, slowest], (stage_time * stages.stands_for).sum(axis=1)
    time = pipeline_time(
        micro_batches=columns["micro_batches"], slowest_stage_time=paced, sum_stage_times=summed,
        interleave=columns["interleave"],
    )  # fmt: skip
    split = columns["schedule"] == SCHEDULES.index("zero-bubble")
    if not split.any():
        return np.asarray(time)
    return np.where(split, _split_seconds(columns, stages, kinds, stage_time, slowest), time)


def _split_seconds(
    columns: Columns, stages: Stages, kinds: list[Kind], stage_time: np.ndarray, slowest: np.ndarray
) -> np.ndarray:
    """As if all stages were the slowest one, less what the others hand on sooner."""
    head = kinds[0].times
    forward = head.head_forward[:, None] * stages.has_head
    weight = head.head_weight[:, None] * stages.has_head
    for kind in kinds:
        forward = forward + kind.held * kind.cover[0][:, None]
        weight = weight + kind.held * kind.times.weight[:, None]
    inputs = stage_time - forward - weight
    row, m, p = np.arange(len(slowest)), columns["micro_batches"], columns["pipeline"]
    even = zero_bubble_time(
        micro_batches=m, pipeline=p, stage_forward_time=forward[row, slowest],
        input_gradient_time=inputs[row, slowest], weight_gradient_time=weight[row, slowest],
    )  # fmt: skip
    put_off = (np.minimum(m, p) - 1) / np.maximum(p - 1, 1)
    adds = forward + inputs - put_off[:, None] * weight  # what a stage adds to the time, however many micro-batches
    sooner = (adds[row, slowest][:, None] - adds) * stages.stands_for
    return np.asarray(even - sooner.sum(axis=1))
