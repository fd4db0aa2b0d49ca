"""The engine against answers worked out by hand and against properties that every schedule must have."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.simulators.engine import After, DeadlockError, Task, run


def test_an_empty_list_takes_no_time():
    assert run([]).makespan == 0


def test_one_resource_runs_its_tasks_in_the_order_given():
    schedule = run([Task("a", "r", 2), Task("b", "r", 3), Task("c", "r", 4)])
    assert schedule.start == {"a": 0, "b": 2, "c": 5}
    assert schedule.finish == {"a": 2, "b": 5, "c": 9}
    assert schedule.busy("r") == 9 and schedule.gaps("r") == []


def test_a_later_task_never_overtakes_in_the_order_given():
    # b waits until 10, so c, which could run at once, waits behind it
    schedule = run([Task("x", "other", 10), Task("b", "r", 1, after=("x",)), Task("c", "r", 1)])
    assert schedule.start["c"] == 11
    assert schedule.gaps("r") == [(0, 10)]
    assert schedule.gaps("other") == [(10, 12)]


def test_by_priority_the_ready_task_overtakes():
    tasks = [Task("x", "other", 10), Task("b", "r", 1, after=("x",), priority=0), Task("c", "r", 4, priority=5)]
    schedule = run(tasks, by_priority={"r"})
    assert schedule.start["c"] == 0 and schedule.start["b"] == 10
    assert schedule.order["r"] == ("c", "b")


def test_lowest_priority_number_first_and_equals_as_given():
    tasks = [Task("a", "r", 1, priority=2), Task("b", "r", 1, priority=1), Task("c", "r", 1, priority=1)]
    assert run(tasks, by_priority={"r"}).order["r"] == ("b", "c", "a")


def test_delay_occupies_nothing():
    schedule = run([Task("a", "r", 1), Task("b", "s", 1, after=(After("a", 5),)), Task("c", "r", 2)])
    assert schedule.start["b"] == 6 and schedule.start["c"] == 1


def test_the_latest_dependency_decides_even_when_it_finishes_first():
    schedule = run([Task("a", "r", 1), Task("b", "s", 3), Task("c", "t", 1, after=(After("a", 7), "b"))])
    assert schedule.start["c"] == 8


def test_a_task_without_a_resource_occupies_nothing():
    schedule = run([Task("a", None, 5), Task("b", None, 5), Task("c", "r", 0, after=("a", "b"))])
    assert schedule.makespan == 5 and schedule.start["c"] == 5


def test_fractions_stay_exact():
    third = Fraction(1, 3)
    assert run([Task(index, "r", third) for index in range(6)]).makespan == 2


def test_a_circle_of_dependencies_is_named():
    tasks = [
        Task("a", "r", 1, after=("c",)),
        Task("b", "s", 1, after=("a",)),
        Task("c", "t", 1, after=("b",)),
        Task("free", "u", 1),
    ]
    with pytest.raises(DeadlockError) as error:
        run(tasks)
    assert str(error.value) == "deadlock: 'a' waits for 'c', 'c' waits for 'b', 'b' waits for 'a'"


def test_resource_order_against_dependencies_is_a_deadlock_but_not_by_priority():
    tasks = [Task("second", "r", 1, after=("other",)), Task("first", "r", 1), Task("other", "s", 1, after=("first",))]
    with pytest.raises(DeadlockError, match="'first' comes after 'second' on 'r'") as error:
        run(tasks)
    assert "'second' waits for 'other'" in str(error.value) and "'other' waits for 'first'" in str(error.value)
    assert run(tasks, by_priority={"r"}).start["second"] == 2


def test_only_the_circle_is_named_not_who_waits_for_it():
    tasks = [Task("victim", "v", 1, after=("a",)), Task("a", "r", 1, after=("b",)), Task("b", "s", 1, after=("a",))]
    with pytest.raises(DeadlockError) as error:
        run(tasks)
    assert "victim" not in str(error.value)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([Task("a", "r", 1), Task("a", "r", 1)], "two tasks are named 'a'"),
        ([Task("a", "r", 1, after=("z",))], "waits for 'z', which is not among the tasks"),
        ([Task("a", "r", -1)], "duration of task 'a' is -1"),
        ([Task("a", "r", float("nan"))], "duration of task 'a' is nan"),
        ([Task("a", "r", float("inf"))], "duration of task 'a' is inf"),
        ([Task("a", "r", 1), Task("b", "r", 1, after=(After("a", -2),))], "delay between 'a' and 'b' is -2"),
    ],
)
def test_wrong_input_is_named(tasks, message):
    with pytest.raises(ValueError, match=message):
        run(tasks)


@st.composite
def graphs(draw):
    """Tasks that wait only for earlier ones, so every resource order is possible."""
    count = draw(st.integers(1, 14))
    tasks = []
    for index in range(count):
        earlier = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True)) if index else []
        waits = tuple(After(name, draw(st.integers(0, 3))) for name in earlier)
        resource = draw(st.sampled_from(["r", "s", "t", None]))
        tasks.append(Task(index, resource, draw(st.integers(0, 5)), waits, draw(st.integers(0, 3))))
    return tasks


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sets(st.sampled_from(["r", "s", "t"])))
def test_every_schedule_is_legal_and_no_task_waits_without_reason(tasks, by_priority):
    schedule = run(tasks, by_priority)
    assert schedule == run(tasks, by_priority)
    ready = {t.name: max([schedule.finish[w.task] + w.delay for w in t.after], default=0) for t in tasks}
    for task in tasks:
        start = schedule.start[task.name]
        assert schedule.finish[task.name] == start + task.duration
        assert start >= ready[task.name]
        others = [t for t in tasks if t.resource == task.resource and t.resource is not None and t is not task]
        for other in others:  # one at a time
            assert schedule.finish[other.name] <= start or schedule.start[other.name] >= schedule.finish[task.name]
        # a start has a cause: the last thing waited for, or a task of the same resource that ended just then
        assert start == ready[task.name] or any(schedule.finish[other.name] == start for other in others)
    for resource in schedule.order:
        idle = sum(end - begin for begin, end in schedule.gaps(resource))
        assert idle + schedule.busy(resource) == schedule.makespan
        if resource not in by_priority:
            assert list(schedule.order[resource]) == [t.name for t in tasks if t.resource == resource]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_in_the_order_given_each_start_is_the_longest_path_to_it(tasks):
    """An independent answer: in the given order a resource is one more dependency, and a start is a longest path."""
    schedule = run(tasks)
    finish: dict[int, int] = {}
    last: dict[str, int] = {}
    for task in tasks:  # the given order is a topological one
        start = max(
            [finish[w.task] + w.delay for w in task.after] + [last.get(task.resource, 0) if task.resource else 0]
        )
        finish[task.name] = start + task.duration
        last[task.resource] = finish[task.name]
        assert schedule.start[task.name] == start
