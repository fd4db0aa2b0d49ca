"""The ranking: by the goal, and among layouts the model cannot tell apart the simplest first.

Simple is what splits the model along few axes. Replicas are no such axis: each device runs the same program with one
of them or with a thousand, and the fewer devices a replica takes the more replicas there are. Counting them would rank
one replica of 64 stages above four of 16. So the axes that split a replica are counted, and then the devices it takes.
"""

from __future__ import annotations

import numpy as np

from course.legality import SCHEDULES
from course.predict.columns import Columns
from course.problem import Run

MODEL_ERROR = 0.05
"""Share by which a prediction and its measurement usually differ: the median over published runs, which
`course compare` prints. Layouts within it of the best are ties."""

TIE = MODEL_ERROR

SIMPLE_AXES = ("tensor", "pipeline", "context", "expert", "expert_tensor")
LEAST, MOST = 6, 10
"""Layouts of the short sweep to measure."""


def group_size(columns: Columns) -> np.ndarray:
    """The model-parallel group: ranks that work on one micro-batch together, experts folded into them.

    >>> one = {"tensor": 8, "context": 1, "pipeline": 4, "expert": 16, "expert_tensor": 1}
    >>> int(group_size({name: np.array([value]) for name, value in one.items()})[0])
    64
    """
    dense = columns["tensor"] * columns["context"]
    return np.asarray(columns["pipeline"] * np.maximum(dense, columns["expert"] * columns["expert_tensor"]))


def meets_goal(run: Run, values: Columns) -> np.ndarray:
    """Which rows meet every limit of the goal; without limits all do."""
    met = np.ones(len(values["time_s"]), bool)
    if run.goal.days is not None:
        met &= values["wall_s"] / 86400 <= run.goal.days
    if run.goal.budget_accelerator_hours is not None:
        met &= values["accelerator_hours"] <= run.goal.budget_accelerator_hours
    return met


def ranking(run: Run, columns: Columns, values: Columns) -> tuple[np.ndarray, int]:
    """Row numbers in ranked order, and how many of them tie with the best.

    All hold the same devices, so that time, accelerator-hours and cost rank alike. A tie is within the model's error of
    the best, and meets the goal if the best does.
    """
    time = values["time_s"]
    if not len(time):
        return np.arange(0), 0
    met = meets_goal(run, values)
    tied = (time <= time.min() * (1 + MODEL_ERROR)) & (met | ~met.any())
    axes = np.sum([columns[name] > 1 for name in SIMPLE_AXES], axis=0)
    split = columns["schedule"] == SCHEDULES.index("zero-bubble")
    simple = (axes, group_size(columns), columns["sharding"], columns["interleave"], split)
    keys = [np.where(tied, key, 0) for key in simple]
    return np.lexsort((values["peak_bytes"], time, *keys[::-1], ~tied)), int(tied.sum())


def ranked_by(run: Run, ties: int = 0) -> str:
    """The rule of the ranking in words, and how many of all that fit are `ties`, described or not."""
    goal = run.goal
    asked = [
        name
        for name, limit in (("wall time", goal.days), ("accelerator-hours", goal.budget_accelerator_hours),
                            ("cost", goal.price_per_accelerator_hour))
        if limit is not None
    ]  # fmt: skip
    what = " and ".join(asked) if asked else "accelerator-hours, then time"
    return (
        f"{what}, which on the {run.cluster.devices:,} devices held is step time; layouts within the model's error of "
        f"the best, {100 * MODEL_ERROR:g} %, "
        + ("that meet the goal where it does, " if goal.days or goal.budget_accelerator_hours else "")
        + f"are ties{f' (here {ties:,})' if ties else ''}: fewest axes above 1 first, replicas not counted, then the "
        "smallest model-parallel group, the least sharding, the fewest chunks a stage, "
        + ("a whole backward before a split one, " if run.software.split_backward else "")
        + "the shortest time, the least memory"
    )


def proposal(columns: Columns, ties: int) -> list[int]:
    """A short sweep to measure, of ranked rows: the best of each different way to split, best first.

    The ties fill up to ten places, for only a measurement tells them apart; others follow up to six.
    """
    rows = len(columns["data"])
    if not rows:
        return []
    ways = np.stack([columns[name] for name in ("tensor", "context", "pipeline", "expert", "sharding")], axis=1)
    _, first = np.unique(ways, axis=0, return_index=True)
    different = np.sort(first)
    wanted = max(LEAST, min(MOST, int((different < ties).sum())))
    chosen = [int(row) for row in different[:wanted]]
    rest = [row for row in range(min(rows, 2 * wanted)) if row not in chosen]
    return sorted(chosen + rest[: max(0, LEAST - len(chosen))])


def pareto(values: Columns) -> np.ndarray:
    """Which rows no other beats in wall time and accelerator-hours: better in one and no worse in the other.

    >>> pareto({"wall_s": np.array([2.0, 1.0, 2.0]), "accelerator_hours": np.array([1.0, 3.0, 2.0])}).tolist()
    [True, True, False]
    """
    points = np.stack([values["wall_s"], values["accelerator_hours"]])
    different, place = np.unique(points, axis=1, return_inverse=True)  # sorted by time, then by hours
    fewest = np.minimum.accumulate(np.append(np.inf, different[1]))[:-1]
    return np.asarray((different[1] < fewest)[place.ravel()])
