"""Oracles of uneven stages, sends and split backwards: pipelines run event by event."""

from __future__ import annotations

from itertools import product

from course.simulators.pipeline import BACKWARD, FORWARD, WEIGHT, Work, gpipe, simulate, zero_bubble
from oracles.checking import Answers, Check, agrees

UNEVEN = (
    ((1, 1, 1, 2), (2, 2, 2, 3)), ((3, 1), (1, 5)), ((2, 7, 1, 4, 3), (6, 1, 2, 2, 9)), ((4,), (5,)),
    ((1, 2, 3), (3, 2, 1)),
)  # fmt: skip
"""Times of the stages in forward, and in backward."""


def two_flows() -> Answers:
    for (forward, backward), count, send in product(UNEVEN, (1, 2, 5, 9), (0, 1, 4)):
        yield (
            {
                "sum_stage_times": sum(forward) + sum(backward),
                "micro_batches": count,
                "slowest_forward_time": max(forward),
                "slowest_backward_time": max(backward),
                "pipeline": len(forward),
                "send_time": send,
            },
            simulate(gpipe(len(forward), count), forward, backward, send).makespan,
        )


TIMES = ((1, 1, 1), (3, 2, 1), (5, 9, 4), (2, 7, 2), (6, 3, 3))
"""Forward, gradient of the input, gradient of the weights: the last is the shortest."""


def delayed_weights() -> Answers:
    for (forward, inputs, weights), stages, count in product(TIMES, (1, 2, 3, 5), (1, 2, 4, 7)):
        yield (
            {
                "micro_batches": count,
                "pipeline": stages,
                "stage_forward_time": forward,
                "input_gradient_time": inputs,
                "weight_gradient_time": weights,
            },
            simulate(zero_bubble(stages, count), forward, inputs, weight=weights).makespan,
        )


def the_last_stage_alone() -> Answers:
    """Only the last stage has work in backward: what it waits for is forwards, and nothing it does is delayed."""
    for (forward, inputs, weights), stages, count in product((*TIMES, (1, 2, 8)), (1, 2, 4), (1, 3, 6)):
        order = [Work(kind, m) for kind in (FORWARD, BACKWARD, WEIGHT) for m in range(count)]
        others = [0] * (stages - 1)
        run = simulate([order] * stages, [forward] * stages, [*others, inputs], weight=[*others, weights])
        yield (
            {
                "micro_batches": count,
                "pipeline": stages,
                "stage_forward_time": forward,
                "input_gradient_time": inputs,
                "weight_gradient_time": weights,
            },
            run.makespan,
        )


def held_until_the_weights_are_done() -> Answers:
    for stages, count in product((1, 2, 4, 7), (1, 3, 4, 9)):
        for peak in simulate(zero_bubble(stages, count), 1, 1, weight=1).peak_in_flight():
            yield {"micro_batches": count, "pipeline": stages}, peak


ORACLES: dict[str, list[Check]] = {
    "batch.gpipe_time": [agrees(two_flows)],
    "batch.zero_bubble_time": [agrees(delayed_weights)],
    "batch.synchronous_floor": [agrees(the_last_stage_alone)],
    "batch.zero_bubble_in_flight": [agrees(held_until_the_weights_are_done)],
}
