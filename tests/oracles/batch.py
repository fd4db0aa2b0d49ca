"""Oracles of step 5: tokens counted one by one, and pipelines run event by event."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product

from course.simulators.pipeline import Orders, Pipeline, gpipe, interleaved, one_forward_one_backward, simulate
from oracles.checking import Answers, Check, agrees


def tokens_counted() -> Answers:
    for data, sequences, length, accumulated in ((3, 2, 5, 4), (1, 7, 2, 3), (4, 1, 3, 1)):
        tokens = 0
        for _ in range(data):
            for _ in range(accumulated):
                for _ in range(sequences):
                    tokens += len(range(length))
        yield (
            {
                "data": data,
                "micro_batch": sequences,
                "sequence_length": length,
                "accumulation": accumulated,
            },
            tokens,
        )


def micro_batches_dealt_out() -> Answers:
    for total, data, size in ((48, 4, 2), (48, 1, 3), (60, 5, 1), (12, 2, 6)):
        rounds, left = 0, total
        while left > 0:
            left -= sum(size for _ in range(data))  # every replica takes a micro-batch
            rounds += 1
        assert left == 0
        yield {"global_batch_sequences": total, "data": data, "micro_batch": size}, rounds


# ---------------------------------------------------------------- pipelines
def _even() -> list[tuple[int, int, int, Orders]]:
    """(stages, micro-batches, chunks, orders) of every schedule."""
    found = []
    for stages, micro_batches in ((1, 3), (2, 2), (3, 7), (4, 4), (5, 12)):
        found.append((stages, micro_batches, 1, gpipe(stages, micro_batches)))
        found.append((stages, micro_batches, 1, one_forward_one_backward(stages, micro_batches)))
    for stages, rounds, chunks in ((2, 1, 2), (2, 3, 4), (3, 2, 3), (4, 1, 5), (4, 2, 2)):
        found.append((stages, stages * rounds, chunks, interleaved(stages, stages * rounds, chunks)))
    return found


def _run(orders: Orders) -> Pipeline:
    return simulate(orders, forward=Fraction(1), backward=Fraction(2))


def idle_share_of_the_events() -> Answers:
    for stages, micro_batches, chunks, orders in _even():
        given = {"pipeline": stages, "micro_batches": micro_batches, "interleave": chunks}
        yield given, _run(orders).idle_share


def idle_over_ideal_of_the_events() -> Answers:
    for stages, micro_batches, chunks, orders in _even():
        pipeline = _run(orders)
        busy = pipeline.schedule.busy(0)
        given = {"pipeline": stages, "micro_batches": micro_batches, "interleave": chunks}
        yield given, (pipeline.makespan - busy) / busy


def published_bubbles() -> Answers:
    # rohitg00/ai-engineering-from-scratch #66 and deepseek-ai/DualPipe #8
    yield {"pipeline": 8, "micro_batches": 32, "interleave": 1}, 0.1794872
    yield {"pipeline": 8, "micro_batches": 32, "interleave": 4}, 0.05185185


def makespan_of_even_stages() -> Answers:
    for stages, micro_batches, chunks, orders in _even():
        yield (
            {
                "micro_batches": micro_batches,
                "interleave": chunks,
                "slowest_stage_time": 3,
                "sum_stage_times": sum(3 for _ in range(stages)),
            },
            _run(orders).makespan,
        )


def makespan_with_the_slowest_stage_last() -> Answers:
    for times, micro_batches in (((1, 1, 1, 2), 8), ((2, 1, 3), 6), ((1, 4), 3), ((3, 3, 3, 3, 4), 9)):
        forward = [Fraction(time) for time in times]
        orders = one_forward_one_backward(len(times), micro_batches)
        yield (
            {
                "micro_batches": micro_batches,
                "interleave": 1,
                "slowest_stage_time": max(3 * time for time in times),
                "sum_stage_times": sum(3 * time for time in times),
            },
            simulate(orders, forward, [2 * time for time in forward]).makespan,
        )


def published_step_with_a_heavy_last_stage() -> Answers:
    # pytorch/torchtitan #1041: stages of 3, 3, 3 and 4.5, 16 micro-batches
    yield {"micro_batches": 16, "interleave": 1, "slowest_stage_time": 4.5, "sum_stage_times": 13.5}, 81


def _held(schedule: Callable[[int, int], Orders]) -> Callable[[], Answers]:
    def most_held_at_once() -> Answers:
        for stages, micro_batches in product((1, 2, 4, 7), (1, 3, 4, 9)):
            peaks = _run(schedule(stages, micro_batches)).peak_in_flight()
            for stage, peak in enumerate(peaks):
                yield {"micro_batches": micro_batches, "pipeline": stages, "stage": stage}, peak

    return most_held_at_once


def gpipe_holds() -> Answers:
    for given, peak in _held(gpipe)():
        yield {"micro_batches": given["micro_batches"]}, peak


def chunks_held_at_once() -> Answers:
    for stages, rounds, chunks in product((2, 3, 4), (1, 2, 4), (2, 3, 5)):
        micro_batches = stages * rounds
        peaks = _run(interleaved(stages, micro_batches, chunks)).peak_in_flight()
        for stage, peak in enumerate(peaks):
            yield (
                {
                    "micro_batches": micro_batches,
                    "pipeline": stages,
                    "interleave": chunks,
                    "stage": stage,
                },
                Fraction(peak, chunks),
            )


ORACLES: dict[str, list[Check]] = {
    "batch.tokens_per_step": [agrees(tokens_counted)],
    "batch.accumulation": [agrees(micro_batches_dealt_out)],
    "batch.bubble_share": [agrees(idle_share_of_the_events), agrees(published_bubbles, 1e-6)],
    "batch.bubble_overhead": [agrees(idle_over_ideal_of_the_events)],
    "batch.pipeline_time": [
        agrees(makespan_of_even_stages),
        agrees(makespan_with_the_slowest_stage_last),
        agrees(published_step_with_a_heavy_last_stage),
    ],
    "batch.gpipe_in_flight": [agrees(gpipe_holds)],
    "batch.one_f_one_b_in_flight": [agrees(_held(one_forward_one_backward))],
    "batch.interleaved_in_flight": [agrees(chunks_held_at_once)],
}
