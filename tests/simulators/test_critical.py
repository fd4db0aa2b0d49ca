"""The critical path and the slack against all chains of small graphs, and against running again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.simulators.critical import critical_path, scaled, slack
from course.simulators.engine import After, Task, run

SMALL = settings(max_examples=40, deadline=None)


@st.composite
def graphs(draw):
    """Up to eight tasks on two resources or none, each waiting for some before it."""
    tasks = []
    for number in range(draw(st.integers(1, 8))):
        after = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        delay = draw(st.integers(0, 2))
        resource = draw(st.sampled_from(["compute", "network", None]))
        tasks.append(Task(number, resource, draw(st.integers(0, 6)), tuple(After(one, delay) for one in sorted(after))))
    return tasks


def longest_chain(tasks):
    """By trying every chain: through what a task names, or the one before it on its resource."""

    def ends(task):
        before = [other for other in tasks[: task.name] if other.resource == task.resource and other.resource][-1:]
        lengths = [ends(tasks[wait.task]) + wait.delay for wait in task.after] + [ends(one) for one in before]
        return max(lengths, default=0) + task.duration

    return max(ends(task) for task in tasks)


@SMALL
@given(graphs())
def test_the_time_is_that_of_the_longest_chain(tasks):
    assert run(tasks).makespan == longest_chain(tasks)


@SMALL
@given(graphs())
def test_the_path_is_a_chain_without_a_pause_from_the_start_to_the_end(tasks):
    schedule, path = run(tasks), critical_path(tasks)
    assert schedule.start[path[0]] == 0
    assert schedule.finish[path[-1]] == schedule.makespan
    for before, name in pairwise(path):
        delays = [wait.delay for wait in tasks[name].after if wait.task == before] or [0]
        assert schedule.start[name] - schedule.finish[before] == max(delays)
    assert all(slack(tasks)[name] == 0 for name in path)


@SMALL
@given(graphs())
def test_slack_is_what_a_task_may_take_longer_and_no_more(tasks):
    time = run(tasks).makespan
    for name, room in slack(tasks).items():
        longer = [replace(one, duration=one.duration + room) if one.name == name else one for one in tasks]
        assert run(longer).makespan == time
        longer = [replace(one, duration=one.duration + room + 1) if one.name == name else one for one in tasks]
        assert run(longer).makespan == time + 1


def test_a_wrong_name_is_said():
    with pytest.raises(ValueError, match="there is no task 'x' to scale"):
        scaled([Task("a", None, 1)], 2, "x")
