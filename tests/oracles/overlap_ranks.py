"""Oracles of step 7 beyond one device's streams: hosts and loaders event by event, ranks drawn at random."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from course.simulators.engine import Task, Time, run
from oracles.checking import Answers, Check, agrees

_TIMES = tuple(product((1, 2, 5), (1, 3, 7)))
_KNOWN = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi)}
"""Means of the largest of so many normal numbers, in closed form."""


def gaps_of_one_layer_more() -> Answers:
    """Layers launched one after the other: the idle time of the device that one layer more adds."""

    def idle(layers: int, device: Time, host: Time) -> Time:
        tasks = [Task(("launch", number), "host", host) for number in range(layers)]
        tasks += [Task(("layer", number), "device", device, (("launch", number),)) for number in range(layers)]
        schedule = run(tasks)
        return schedule.makespan - schedule.busy("device")

    for device, host in _TIMES:
        yield {"device_time": device, "host_time": host}, idle(9, device, host) - idle(8, device, host)


def steps_that_wait_for_loaders() -> Answers:
    """Workers load in turn, far ahead; the time that a round of steps takes more than its work, for each step."""
    for (step, load), workers in product(((2, 3), (2, 7), (2, 12), (5, 12)), (1, 2, 3)):

        def makespan(rounds: int, step: Time = step, load: Time = load, workers: int = workers) -> Time:
            numbers = range(rounds * workers)
            tasks = [Task(("load", number), ("worker", number % workers), load) for number in numbers]
            tasks += [Task(("step", number), "device", step, (("load", number),)) for number in numbers]
            return run(tasks).makespan

        longer = (makespan(40) - makespan(20)) / (20 * workers)
        yield {"step_time": step, "loader_time": load, "loader_workers": workers}, longer - step


_DRAWS = 400_000


def _waits() -> Answers:
    """Two or three ranks draw the times of their steps; between two waits each rank's steps add up."""
    source = np.random.default_rng(7)
    for ranks, steps, fresh, lasting in ((2, 1, 1.0, 0.0), (3, 1, 2.0, 1.0), (2, 4, 2.0, 0.5), (3, 9, 3.0, 0.0)):
        own = source.normal(0, lasting, (_DRAWS, ranks)) if lasting else np.zeros((_DRAWS, ranks))
        together = steps * own
        for _ in range(steps):
            together = together + source.normal(0, fresh, (_DRAWS, ranks))
        given = {"normal_maximum": _KNOWN[ranks], "fresh_spread": fresh, "lasting_spread": lasting,
                 "steps_between_waits": steps}  # fmt: skip
        yield given, float(together.max(axis=1).mean()) / steps


def ranks_drawn_at_random() -> Answers:
    yield from _waits()


def one_rank_waits_for_nobody() -> Answers:
    yield {"normal_maximum": 0, "fresh_spread": 3, "lasting_spread": 2, "steps_between_waits": 5}, 0


def share_of_ranks_drawn_at_random() -> Answers:
    for given, wait in _waits():
        for mean in (1.0, 10.0):
            yield {**given, "mean_rank_time": mean}, wait / (mean + wait)


def stalls_of_every_set_of_ranks() -> Answers:
    """Sum over all sets of ranks that may stall: the chance of the set, times one stall where it is not empty."""
    for ranks, chance, time in product((1, 2, 5), (0.0, 0.2, 0.5, 0.9), (1.0, 4.0)):
        lost = 0.0
        for stalled in product((False, True), repeat=ranks):
            lost += math.prod(chance if one else 1 - chance for one in stalled) * time * any(stalled)
        yield {"ranks": ranks, "stall_chance": chance, "stall_time": time}, lost


ORACLES: dict[str, list[Check]] = {
    "overlap.launch_gap": [agrees(gaps_of_one_layer_more)],
    "overlap.input_wait": [agrees(steps_that_wait_for_loaders)],
    "overlap.slowest_wait": [agrees(ranks_drawn_at_random, 0.01), agrees(one_rank_waits_for_nobody)],
    "overlap.slowest_wait_share": [agrees(share_of_ranks_drawn_at_random, 0.01)],
    "overlap.stall_wait": [agrees(stalls_of_every_set_of_ranks)],
}
