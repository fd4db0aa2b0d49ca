"""Oracles of step 7: two streams of one device, run event by event."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from course.simulators.engine import Task, Time, run
from course.simulators.timeline import bucketed_step
from oracles.checking import Answers, Check, agrees

_TIMES = tuple((Fraction(c), Fraction(r)) for c, r in product((1, 2, 5), (1, 3, 7)))
_BUCKETS = (1, 2, 5, 9)


def buckets_sent_when_ready() -> Answers:
    """Backward computes a bucket; then it is sent, one after the other, beside the compute of the next."""
    for buckets, (compute, sent) in product(_BUCKETS, _TIMES):
        layers = range(buckets)
        step = bucketed_step(
            [Fraction(1)] * buckets, [compute] * buckets, [(layer, sent) for layer in reversed(layers)]
        )
        given = {"buckets": buckets, "compute_per_layer": compute, "communication_per_layer": sent}
        yield given, step.exposed_time


def buckets_of_every_micro_batch() -> Answers:
    for buckets, micro_batches, forward, backward, sent in product((1, 2, 5), (1, 2, 4), (1, 3), (2, 4), (1, 3, 6, 9)):
        reduced = [(layer, Fraction(sent)) for layer in reversed(range(buckets))]
        step = bucketed_step([forward] * buckets, [backward] * buckets, reduced, micro_batches, reduce_every=True)
        yield (
            {
                "buckets": buckets,
                "reductions": micro_batches,
                "forward_per_layer": forward,
                "backward_per_layer": backward,
                "communication_per_layer": sent,
            },
            step.exposed_time,
        )


def layers_gathered_one_ahead() -> Answers:
    """A layer is gathered from the moment at which the layer before it begins to compute."""
    for layers, (compute, gathered) in product(_BUCKETS, _TIMES):
        tasks = []
        for number in range(layers):
            begins = (("compute", number - 2),) if number >= 2 else ()  # the layer before begins when its own gather is
            begins += (("gather", number - 1),) if number >= 1 else ()  # done and the one before it has computed
            tasks.append(Task(("gather", number), "network", gathered, begins))
            tasks.append(Task(("compute", number), "compute", compute, (("gather", number),)))
        schedule = run(tasks)
        exposed = schedule.makespan - schedule.busy("compute")
        yield {"buckets": layers, "compute_per_layer": compute, "communication_per_layer": gathered}, exposed


def one_layer_more() -> Answers:
    """The host launches layers one after the other, far ahead; how much longer does one layer more take?"""

    def makespan(layers: int, device: Time, host: Time) -> Time:
        tasks = [Task(("launch", number), "host", host) for number in range(layers)]
        tasks += [Task(("layer", number), "device", device, (("launch", number),)) for number in range(layers)]
        return run(tasks).makespan

    for device, host in _TIMES:
        yield {"device_time": device, "host_time": host}, makespan(9, device, host) - makespan(8, device, host)


def _step(compute: Time, communication: Time, after: tuple[str, ...]) -> Time:
    return run([Task("compute", "compute", compute), Task("send", "network", communication, after)]).makespan


def nothing_beside_anything() -> Answers:
    for compute, communication in _TIMES:
        answer = _step(compute, communication, after=("compute",))
        yield {"compute_time": compute, "communication_time": communication}, answer


def everything_side_by_side() -> Answers:
    for compute, communication in _TIMES:
        yield {"compute_time": compute, "communication_time": communication}, _step(compute, communication, after=())


ORACLES: dict[str, list[Check]] = {
    "overlap.exposed_reduction": [agrees(buckets_sent_when_ready)],
    "overlap.exposed_every_reduction": [agrees(buckets_of_every_micro_batch)],
    "overlap.exposed_gather": [agrees(layers_gathered_one_ahead)],
    "overlap.layer_time": [agrees(one_layer_more)],
    "overlap.step_upper_bound": [agrees(nothing_beside_anything)],
    "overlap.step_lower_bound": [agrees(everything_side_by_side)],
}
