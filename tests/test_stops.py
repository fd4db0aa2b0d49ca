"""When to stop adding devices: the front over device counts, and the two stops."""

from __future__ import annotations

import dataclasses

import pytest
from small_runs import small

from course.errors import UserError
from course.examples import path
from course.problem import Goal, Run, load
from course.stops import Fastest, Point, front, points, stops, with_devices
from course.sweep import across_devices, search, sweep


def line(*steps: tuple[int, float, float], goodput: float = 1.0) -> list[Point]:
    """Points of given (devices, step time in s, compute in s) for a run of 86,400 steps: a second a step is a day."""
    return [
        Point(n, Fastest(time, compute), time / goodput, 24 * n * time / goodput, None) for n, time, compute in steps
    ]


def test_points_hold_the_wall_time_and_hours_of_the_whole_run() -> None:
    run = small(devices=8, rest="goodput = 0.5\n[goal]\nprice_per_accelerator_hour = 3")
    steps = run.training.tokens / (24 * 96)
    asked = []

    def best(other: Run) -> Fastest | None:
        asked.append(other.cluster.devices)
        return None if other.cluster.devices == 2 else Fastest(16 / other.cluster.devices, 1 / other.cluster.devices)

    found = points(run, best, Fastest(2.0, 0.125))
    assert asked == [1, 2, 4, 16, 32, 64, 128]  # the run's own is known
    assert [point.devices for point in found] == [1, 4, 8, 16, 32, 64, 128]
    own = found[2]
    assert own.days == pytest.approx(2.0 * steps / 0.5 / 86400)
    assert own.accelerator_hours == pytest.approx(8 * 2.0 * steps / 0.5 / 3600)
    assert own.cost == pytest.approx(3 * own.accelerator_hours)


def test_an_odd_count_has_no_halves_and_a_count_too_large_no_answer() -> None:
    def best(other: Run) -> Fastest | None:
        if other.cluster.devices > 40:
            raise UserError("too large")
        return Fastest(1.0, 1.0)

    assert [point.devices for point in points(small(devices=5), best)] == [5, 10, 20, 40]
    assert [point.devices for point in points(small(devices=10), best)] == [5, 10, 20, 40]


def test_the_front_leaves_out_what_is_slower_and_dearer() -> None:
    # twice the devices at a third of the time: one device is slower and dearer than two
    found = line((1, 9.0, 9.0), (2, 3.0, 3.0), (4, 2.0, 1.5), (8, 2.5, 0.8))
    assert [point.devices for point in front(found)] == [2, 4]
    twins = line((1, 4.0, 4.0), (2, 2.0, 2.0), (4, 1.0, 1.0))  # the same hours: only the fastest is not beaten
    assert [point.devices for point in front(twins)] == [4]
    assert front([]) == []


def test_break_even_is_where_a_doubling_adds_more_than_it_saves() -> None:
    # compute 8, 4, 2, 1; the rest 1, 2, 3.9, 5.2: the doubling to 4 saves 2 and adds 1.9, that to 8 saves 1, adds 1.3
    found = line((1, 9.0, 8.0), (2, 6.0, 4.0), (4, 5.9, 2.0), (8, 6.2, 1.0))
    assert stops(Goal(), found) == {"break_even_devices": 4, "deadline_devices": None}
    assert stops(Goal(), found[:3])["break_even_devices"] is None
    assert stops(Goal(), [found[0], found[3]])["break_even_devices"] is None  # no doubling among them
    assert stops(Goal(), [])["break_even_devices"] is None


@pytest.mark.parametrize(
    ("goal", "stop"),
    [
        (Goal(days=10), 1), (Goal(days=6), 2), (Goal(days=3.5), 4), (Goal(days=1), None), (Goal(), None),
        (Goal(budget_accelerator_hours=1e9), None),
        # hours: 216, 288, 336, 480
        (Goal(days=6, budget_accelerator_hours=288), 2), (Goal(days=6, budget_accelerator_hours=287), None),
        (Goal(days=3.5, budget_accelerator_hours=400), 4), (Goal(days=2.6, budget_accelerator_hours=400), None),
    ],
)  # fmt: skip
def test_the_deadline_is_worth_the_budget_and_nothing_beyond_itself(goal: Goal, stop: int | None) -> None:
    found = line((1, 9.0, 8.0), (2, 6.0, 5.0), (4, 3.5, 2.0), (8, 2.5, 1.0))
    assert stops(goal, found)["deadline_devices"] == stop


def test_a_doubling_that_costs_no_more_is_taken_although_the_deadline_is_met() -> None:
    found = line((1, 9.0, 9.0), (2, 4.5, 4.5), (4, 2.0, 2.0), (8, 1.5, 1.5))  # hours 216, 216, 192, 288
    assert stops(Goal(days=10), found)["deadline_devices"] == 4


def test_the_two_stops_are_apart() -> None:
    found = line((1, 9.0, 8.0), (2, 6.0, 4.0), (4, 5.9, 2.0), (8, 6.2, 1.0))
    assert stops(Goal(days=7), found) == {"break_even_devices": 4, "deadline_devices": 2}


def test_the_stops_of_a_sweep_are_those_of_sweeps_on_each_count() -> None:
    run = load(path("llama-2-70b-64-a100"))
    counts = [8, 16, 32, 64, 128, 256, 512, 1024]
    best = {}
    for count in counts:
        found = search(with_devices(run, count))
        if found.fitting:
            best[count] = float(found.values["time_s"].min())
    steps = run.training.tokens / run.training.tokens_per_step
    days = {n: time * steps / run.cluster.goodput / 86400 for n, time in best.items()}
    deadline = sorted(days.values())[2] * 1.01
    run = dataclasses.replace(run, goal=Goal(days=deadline))
    slower = [n for n in best if 2 * n in best and best[2 * n] > best[n]]
    met = min(n for n in best if days[n] <= deadline)
    while 2 * met in best and 2 * best[2 * met] <= best[met]:
        met *= 2
    assert sweep(run)["stops"] == {
        "break_even_devices": slower[0] if slower else None, "deadline_devices": met,
    }  # fmt: skip
    shown = across_devices(run)
    assert [point.devices for point in shown] == list(best)
    assert [point.days for point in shown] == pytest.approx(list(days.values()))
    assert all(point.fastest.layout is not None and point.fastest.layout.devices == point.devices for point in shown)


def test_a_doubling_beyond_what_a_cluster_can_be_is_no_error() -> None:
    run = small(devices=10_000_000, batch=10_000_000, rest="[goal]\ndays = 1e6")
    found = points(run, lambda _: Fastest(1.0, 1.0))
    assert max(point.devices for point in found) == 10_000_000
    assert stops(run.goal, found)["break_even_devices"] is None


def test_no_goal_no_deadline() -> None:
    assert sweep(small(devices=2))["stops"]["deadline_devices"] is None
