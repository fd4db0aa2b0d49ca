"""One idea: a step of two layers as a graph small enough to follow with a finger: input, two passes, two reductions.

The input is loaded, layers 1 and 2 go forward and back, each reduction waits for its backward, the update for all.
"""

from __future__ import annotations

from course.simulators.engine import Task

__all__ = ["GRAPH", "RESOURCES", "small_step"]

RESOURCES = ("loader", "compute", "network")
GRAPH: tuple[Task, ...] = (
    Task("input", "loader", 4),
    Task("F1", "compute", 3, ("input",)),
    Task("F2", "compute", 3),
    Task("B2", "compute", 6),
    Task("B1", "compute", 6),
    Task("R2", "network", 7, ("B2",)),
    Task("R1", "network", 7, ("B1",)),
    Task("update", "compute", 2, ("R2", "R1")),
)
"""Milliseconds; F forward, B backward, R reduction of the gradients."""


def small_step(**factors: float) -> list[Task]:
    """The graph with the durations of some tasks multiplied.

    >>> [task.duration for task in small_step(R1=0.5, R2=0.5) if task.resource == "network"]
    [3.5, 3.5]
    """
    names = {str(task.name) for task in GRAPH}
    for name in factors:
        if name not in names:
            raise ValueError(f"the step has no piece {name!r}; it has {', '.join(sorted(names))}")
    return [
        Task(task.name, task.resource, task.duration * factors.get(str(task.name), 1), task.after) for task in GRAPH
    ]
