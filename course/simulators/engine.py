"""One idea: a task starts when its resource is free and everything it waits for has happened.

A *resource* (a stream, a link, a device) runs one task at a time, either in the order in which its tasks were
given or, where named in `by_priority`, whichever ready task has the lowest priority number. Times may be integers,
floats or fractions: the engine only adds and compares them, so integer durations give exact answers.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

Time = Any  # int, float or fractions.Fraction


class DeadlockError(ValueError):
    """Tasks that wait for each other in a circle, named in the message."""


@dataclass(frozen=True)
class After:
    """Something a task waits for: the finish of `task`, and then `delay` seconds that occupy no resource."""

    task: Hashable
    delay: Time = 0


@dataclass(frozen=True)
class Task:
    """One piece of work: a unique name, what it occupies (None: nothing), for how long, and what it waits for.

    `after` holds names of tasks, or `After(name, delay)` for a wait with a delay. `priority` counts only on
    resources run by priority: the lowest number goes first, equals in the order given.
    """

    name: Hashable
    resource: Hashable | None
    duration: Time
    after: tuple[Hashable | After, ...] = ()
    priority: Time = 0


@dataclass(frozen=True)
class Schedule:
    """What happened: start and finish of every task, in seconds from 0."""

    start: dict[Hashable, Time]
    finish: dict[Hashable, Time]
    makespan: Time
    order: dict[Hashable, tuple[Hashable, ...]]
    """For each resource, its tasks in the order in which they ran."""

    def busy(self, resource: Hashable) -> Time:
        """Seconds in which `resource` worked."""
        return sum(self.finish[name] - self.start[name] for name in self.order[resource])

    def gaps(self, resource: Hashable) -> list[tuple[Time, Time]]:
        """The intervals (from, to) between 0 and the makespan in which `resource` stood idle."""
        gaps, free = [], 0
        for name in self.order[resource]:
            if self.start[name] > free:
                gaps.append((free, self.start[name]))
            free = self.finish[name]
        if self.makespan > free:
            gaps.append((free, self.makespan))
        return gaps


def run(tasks: Iterable[Task], by_priority: Collection[Hashable] = ()) -> Schedule:
    """Run all tasks as early as their resources and their dependencies allow.

    Arguments: the tasks (those of one resource in the order in which it should run them), and the resources that
    choose by priority among what is ready instead. Returns the Schedule. Raises DeadlockError when tasks wait for
    each other in a circle, ValueError for a name given twice, an unknown name, or a time that is negative or no number.

    >>> schedule = run([Task("a", "stream", 2), Task("b", "link", 3, ("a",)), Task("c", "stream", 1, ("b",))])
    >>> schedule.start["c"], schedule.makespan, schedule.busy("stream"), schedule.gaps("stream")
    (5, 6, 3, [(2, 5)])
    """
    listed = list(tasks)
    waits = _waits(listed)
    number = {task.name: index for index, task in enumerate(listed)}
    followers: dict[Hashable, list[tuple[int, Time]]] = defaultdict(list)
    for index, task in enumerate(listed):
        for wait in waits[task.name]:
            followers[wait.task].append((index, wait.delay))
    open_waits = [len(waits[task.name]) for task in listed]
    ready_at: list[Time] = [0] * len(listed)

    queue: dict[Hashable, list[int]] = defaultdict(list)  # given order: still to run, the next one last
    for index in reversed(range(len(listed))):
        queue[listed[index].resource].append(index)
    ready: dict[Hashable, list[tuple[Time, int]]] = defaultdict(list)  # priority: ready, lowest first
    is_ready = [False] * len(listed)
    occupied: set[Hashable] = set()
    ran: dict[Hashable, list[Hashable]] = {task.resource: [] for task in listed if task.resource is not None}
    start: dict[Hashable, Time] = {}
    finish: dict[Hashable, Time] = {}
    # an event is (time, 0, index): the task has finished, or (time, 1, index): all it waits for has happened
    events: list[tuple[Time, int, int]] = [(0, 1, index) for index in range(len(listed)) if open_waits[index] == 0]
    heapq.heapify(events)

    def launch(index: int, now: Time) -> None:
        task = listed[index]
        start[task.name] = now
        if task.resource is not None:
            occupied.add(task.resource)
            ran[task.resource].append(task.name)
        heapq.heappush(events, (now + task.duration, 0, index))

    def start_next(resource: Hashable, now: Time) -> None:
        """Let a free resource begin its next task, if that one may begin."""
        if resource in occupied:
            return
        if resource in by_priority:
            if ready[resource]:
                launch(heapq.heappop(ready[resource])[1], now)
        elif queue[resource] and is_ready[queue[resource][-1]]:
            launch(queue[resource].pop(), now)

    while events:
        now = events[0][0]
        touched: dict[Hashable, None] = {}  # a dict keeps the order of arrival, so every run is the same
        while events and events[0][0] == now:
            _, kind, index = heapq.heappop(events)
            task = listed[index]
            if kind == 0:
                finish[task.name] = now
                occupied.discard(task.resource)
                for follower, delay in followers[task.name]:
                    open_waits[follower] -= 1
                    ready_at[follower] = max(ready_at[follower], now + delay)
                    if open_waits[follower] == 0:
                        heapq.heappush(events, (ready_at[follower], 1, follower))
            elif task.resource is None:
                launch(index, now)
            else:
                is_ready[index] = True
                heapq.heappush(ready[task.resource], (task.priority, index))
            touched[task.resource] = None
        for resource in touched:
            if resource is not None:
                start_next(resource, now)

    if len(finish) < len(listed):
        raise DeadlockError(_circle(listed, waits, number, finish, by_priority))
    return Schedule(start, finish, max(finish.values(), default=0), {key: tuple(names) for key, names in ran.items()})


def _waits(tasks: list[Task]) -> dict[Hashable, list[After]]:
    """The dependencies of each task, checked."""
    waits: dict[Hashable, list[After]] = {}
    for task in tasks:
        if task.name in waits:
            raise ValueError(f"two tasks are named {task.name!r}; give each task its own name")
        _check_time(task.duration, f"duration of task {task.name!r}")
        waits[task.name] = [wait if isinstance(wait, After) else After(wait) for wait in task.after]
    for name, listed in waits.items():
        for wait in listed:
            if wait.task not in waits:
                raise ValueError(
                    f"task {name!r} waits for {wait.task!r}, which is not among the tasks; add it or drop the wait"
                )
            _check_time(wait.delay, f"delay between {wait.task!r} and {name!r}")
    return waits


def _check_time(value: Time, what: str) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"the {what} is {value!r}; a time in seconds must be finite and at least 0")


def _circle(
    tasks: list[Task],
    waits: dict[Hashable, list[After]],
    number: dict[Hashable, int],
    finish: dict[Hashable, Time],
    by_priority: Collection[Hashable],
) -> str:
    """Follow what is unfinished from cause to cause until a task comes again; say the circle in words."""
    before: dict[Hashable, Hashable] = {}  # the task that must run before this one on the same resource
    last: dict[Hashable, Hashable] = {}
    for task in tasks:
        if task.resource is not None and task.resource not in by_priority:
            if task.resource in last:
                before[task.name] = last[task.resource]
            last[task.resource] = task.name

    path: list[Hashable] = []
    reasons: list[str] = []
    name = next(task.name for task in tasks if task.name not in finish)
    while name not in path:
        path.append(name)
        cause = next((wait.task for wait in waits[name] if wait.task not in finish), None)
        if cause is not None:
            reasons.append(f"{name!r} waits for {cause!r}")
        else:
            cause = before[name]
            reasons.append(f"{name!r} comes after {cause!r} on {tasks[number[name]].resource!r}")
        name = cause
    return "deadlock: " + ", ".join(reasons[path.index(name) :])
