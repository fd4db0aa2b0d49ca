"""One idea: a step takes as long as its longest chain of waits; only what lies on that chain is worth shortening.

A task waits for what it names and for the task before it on its resource. The chain that ends last, followed back from
wait to wait that held it up, is the critical path; how much longer another task may take unnoticed is its slack.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from itertools import pairwise

from course.simulators.engine import After, Schedule, Task, Time, run

__all__ = ["critical_path", "scaled", "slack"]


def critical_path(tasks: Iterable[Task]) -> list[Hashable]:
    """The names on the chain that decides the time, the first first; of chains equally long, one.

    >>> tasks = [Task("a", "stream", 2), Task("b", "link", 3, ("a",)), Task("c", "stream", 4)]
    >>> critical_path([*tasks, Task("d", "stream", 1, ("b",))])
    ['a', 'c', 'd']
    """
    listed = list(tasks)
    schedule = run(listed)
    waits = _waits(listed, schedule)
    if not listed:
        return []
    path = [max(schedule.finish, key=lambda name: schedule.finish[name])]
    while waits[path[-1]]:
        task, delay = max(waits[path[-1]], key=lambda wait: schedule.finish[wait[0]] + wait[1])
        if schedule.finish[task] + delay < schedule.start[path[-1]]:
            break
        path.append(task)
    return path[::-1]


def slack(tasks: Iterable[Task]) -> dict[Hashable, Time]:
    """How much longer each task may take, alone, without the whole taking longer; 0 on the critical path.

    >>> slack([Task("a", "stream", 2), Task("b", "link", 3, ("a",)), Task("c", "stream", 4)])
    {'a': 0, 'b': 1, 'c': 0}
    """
    listed = list(tasks)
    schedule = run(listed)
    latest: dict[Hashable, Time] = dict.fromkeys(schedule.finish, schedule.makespan)
    waits = _waits(listed, schedule)
    # starts rise along every wait; where they are equal, the task named later in a chain of zeros comes later
    for name in reversed(_in_order(waits)):
        took = schedule.finish[name] - schedule.start[name]
        for task, delay in waits[name]:
            latest[task] = min(latest[task], latest[name] - took - delay)
    return {task.name: latest[task.name] - schedule.finish[task.name] for task in listed}


def scaled(tasks: Iterable[Task], factor: Time, *names: Hashable) -> list[Task]:
    """The tasks with the duration of those named multiplied.

    >>> scaled([Task("a", "stream", 2), Task("b", "stream", 3)], 2, "a")[0].duration
    4
    """
    listed = list(tasks)
    unknown = set(names) - {task.name for task in listed}
    if unknown:
        raise ValueError(f"there is no task {sorted(map(str, unknown))[0]!r} to scale; name one of the tasks")
    return [replace(task, duration=task.duration * factor) if task.name in names else task for task in listed]


def _waits(tasks: list[Task], schedule: Schedule) -> dict[Hashable, list[tuple[Hashable, Time]]]:
    """What each task waited for, with the delay: what it names, and the task before it on its resource."""
    waits: dict[Hashable, list[tuple[Hashable, Time]]] = {}
    for task in tasks:
        named = (one if isinstance(one, After) else After(one) for one in task.after)
        waits[task.name] = [(one.task, one.delay) for one in named]
    for names in schedule.order.values():
        for before, name in pairwise(names):
            waits[name].append((before, 0))
    return waits


def _in_order(waits: dict[Hashable, list[tuple[Hashable, Time]]]) -> list[Hashable]:
    """The names, each after all that it waits for."""
    done: dict[Hashable, None] = {}
    for root in waits:
        stack = [root]
        while stack:
            left = [task for task, _ in waits[stack[-1]] if task not in done]
            if left:
                stack.extend(left)
            else:
                done[stack.pop()] = None
    return list(done)
