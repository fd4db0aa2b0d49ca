"""Pipeline schedules against published closed forms for even stages, measured cases and orders written by hand."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.simulators.engine import DeadlockError
from course.simulators.pipeline import (
    BACKWARD,
    FORWARD,
    Work,
    gpipe,
    interleaved,
    one_forward_one_backward,
    simulate,
)

SMALL = settings(max_examples=30, deadline=None)
stage_counts = st.integers(1, 6)
durations = st.integers(1, 7)


def schedule(name: str, stages: int, micro_batches: int, chunks: int):
    if name == "interleaved":
        return interleaved(stages, micro_batches, chunks)
    return {"gpipe": gpipe, "1f1b": one_forward_one_backward}[name](stages, micro_batches)


def written(order: list[Work]) -> str:
    return " ".join(f"{work.kind[0].upper()}{work.micro_batch}" for work in order)


def test_1f1b_on_four_stages_is_the_textbook_picture():
    orders = one_forward_one_backward(4, 5)
    assert written(orders[0]) == "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4"
    assert written(orders[1]) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4"
    assert written(orders[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"


@SMALL
@given(st.sampled_from(["gpipe", "1f1b"]), stage_counts, st.integers(1, 12), durations, durations)
def test_even_stages_take_micro_batches_plus_stages_minus_one(name, stages, micro_batches, forward, backward):
    """GPipe and 1F1B are equal in time, whatever forward and backward take (Narayanan 2021, section 2.2)."""
    result = simulate(schedule(name, stages, micro_batches, 1), forward, backward)
    assert result.makespan == (micro_batches + stages - 1) * (forward + backward)
    assert result.idle_share == pytest.approx((stages - 1) / (micro_batches + stages - 1), abs=1e-12)


@SMALL
@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 5), durations, durations)
def test_interleaving_divides_the_bubble_by_the_chunks(stages, groups, chunks, forward, backward):
    """Bubble over ideal time is (p - 1) / (v m) (Narayanan 2021, section 2.2): the idle time is that of 1F1B over v."""
    micro_batches = groups * stages
    result = simulate(interleaved(stages, micro_batches, chunks), Fraction(forward), Fraction(backward))
    ideal = micro_batches * (forward + backward)
    assert result.makespan - ideal == Fraction((stages - 1) * (forward + backward), chunks)
    assert result.idle_share == Fraction(stages - 1, chunks * micro_batches + stages - 1)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "chunks", "share"),
    [(8, 32, 1, 0.1794872), (8, 32, 4, 0.05185185), (5, 8, 1, 1 / 3), (4, 2, 1, 0.6), (5, 16, 1, 0.2)],
)
def test_idle_shares_of_recorded_cases(stages, micro_batches, chunks, share):
    """Cases PIP-01, PIP-03, PIP-07 (twice) and LAY-21 of the table of real questions."""
    orders = schedule("interleaved" if chunks > 1 else "1f1b", stages, micro_batches, chunks)
    assert simulate(orders, 1, 2).idle_share == pytest.approx(share, rel=1e-6)


def test_fifteen_micro_batches_on_five_stages_miss_a_bubble_of_a_fifth():
    assert simulate(one_forward_one_backward(5, 15), 1, 2).idle_share > 0.2  # PIP-07: 16 is the smallest


@SMALL
@given(stage_counts, st.integers(1, 12), durations, durations, st.integers(0, 3))
def test_in_flight_of_gpipe_and_1f1b(stages, micro_batches, forward, backward, send):
    everything = simulate(gpipe(stages, micro_batches), forward, backward, send)
    assert everything.peak_in_flight() == [micro_batches] * stages
    few = simulate(one_forward_one_backward(stages, micro_batches), forward, backward, send)
    assert few.peak_in_flight() == [min(micro_batches, stages - stage) for stage in range(stages)]


@SMALL
@given(stage_counts, st.integers(1, 4), st.integers(2, 5), durations, durations)
def test_in_flight_of_interleaving(stages, groups, chunks, forward, backward):
    micro_batches = groups * stages
    result = simulate(interleaved(stages, micro_batches, chunks), forward, backward)
    assert result.peak_in_flight() == [
        min(chunks * micro_batches, 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1) for stage in range(stages)
    ]


def test_interleaving_holds_more_than_1f1b():
    """Case MEM-15: 11 chunks on the first of 4 stages with 2 chunks each, 1.375 times plain 1F1B."""
    chunks = simulate(interleaved(4, 8, 2), 1, 2).peak_in_flight()[0]
    stage_activations = simulate(one_forward_one_backward(4, 8), 1, 2).peak_in_flight()[0]
    assert chunks == 11
    assert chunks / 2 / stage_activations == 1.375


def test_in_flight_over_time_matches_a_count_at_each_instant():
    """A second way to count: who is between forward start and backward end at that instant."""
    result = simulate(interleaved(4, 8, 2), Fraction(3), Fraction(4), Fraction(1, 3))
    for stage in range(4):
        spans = [
            (result.start(stage, Work(FORWARD, m, c)), result.finish(stage, Work(BACKWARD, m, c)))
            for m in range(8)
            for c in range(2)
        ]
        for time in {time for time, _ in result.in_flight(stage)}:
            held = [count for when, count in result.in_flight(stage) if when <= time][-1]
            assert held == sum(begin <= time < end for begin, end in spans)


def test_the_slow_last_stage_paces_1f1b():
    """Case PIP-09: stage times 3, 3, 3, 4.5 and 16 micro-batches."""
    result = simulate(one_forward_one_backward(4, 16), [1, 1, 1, 1.5], [2, 2, 2, 3])
    assert result.makespan == 81
    assert 1 - result.idle_share == pytest.approx(2 / 3)


@pytest.mark.parametrize(("slow", "expected"), [(3, 81), (2, 79.5), (1, 78), (0, 76.5)])
def test_where_the_slow_stage_stands_matters(slow, expected):
    """Published with the case: M t_max + (sum of stages - t_max) is exact only with the slow stage last."""
    forward = [1.5 if stage == slow else 1 for stage in range(4)]
    backward = [2 * time for time in forward]
    makespan = simulate(one_forward_one_backward(4, 16), forward, backward).makespan
    assert makespan == expected
    assert makespan <= 16 * 4.5 + 9


@SMALL
@given(st.lists(st.tuples(durations, durations), min_size=1, max_size=6), st.integers(1, 8))
def test_uneven_gpipe_is_two_flow_shops(times, micro_batches):
    """All forwards, then all backwards: each phase is the sum of the stages plus (M - 1) of the slowest."""
    forward, backward = [list(column) for column in zip(*times, strict=True)]
    result = simulate(gpipe(len(times), micro_batches), forward, backward)
    assert result.makespan == sum(forward) + sum(backward) + (micro_batches - 1) * (max(forward) + max(backward))


@SMALL
@given(st.lists(st.tuples(durations, durations), min_size=1, max_size=6), st.integers(1, 8), st.integers(0, 4))
def test_a_step_is_never_shorter_than_its_longest_chain(times, micro_batches, send):
    """Bounds that hold for any schedule: the busiest stage, its way in and out; one micro-batch there and back."""
    forward, backward = [list(column) for column in zip(*times, strict=True)]
    stages = len(times)
    result = simulate(one_forward_one_backward(stages, micro_batches), forward, backward, send)
    for stage in range(stages):
        way = sum(forward[:stage]) + sum(backward[:stage]) + 2 * stage * send
        assert result.makespan >= way + micro_batches * (forward[stage] + backward[stage])
    assert result.makespan >= sum(forward) + sum(backward) + 2 * (stages - 1) * send


@SMALL
@given(stage_counts, st.integers(1, 10), durations, durations, st.integers(0, 5))
def test_a_send_is_paid_going_in_and_coming_out_by_gpipe(stages, micro_batches, forward, backward, send):
    result = simulate(gpipe(stages, micro_batches), forward, backward, send)
    assert result.makespan == (micro_batches + stages - 1) * (forward + backward) + 2 * (stages - 1) * send


def test_interleaving_sends_from_the_last_stage_to_the_first():
    # one micro-batch on 1 stage: chunks stay; on 2 stages with 2 chunks: 3 hops each way, of which one wraps round
    assert simulate(interleaved(1, 1, 2), 2, 4, send=10).makespan == 6
    # micro-batch 1 follows 0 one chunk time behind: 4 chunk forwards of 1 with 3 hops, the same back, plus one of each
    free = simulate(interleaved(2, 2, 2), 2, 2, send=0)
    dear = simulate(interleaved(2, 2, 2), 2, 2, send=[0, 10])  # only the way out of the last stage costs
    assert free.start(0, Work(FORWARD, 0, 1)) == 2
    assert dear.start(0, Work(FORWARD, 0, 1)) == 12
    assert dear.start(1, Work(FORWARD, 0, 0)) == free.start(1, Work(FORWARD, 0, 0)) == 1
    wrapped_back = dear.start(1, Work(BACKWARD, 0, 0)) - dear.finish(0, Work(BACKWARD, 0, 1))
    assert wrapped_back == 10


def test_times_for_each_chunk_or_for_the_whole_stage():
    orders = interleaved(2, 4, 2)
    assert simulate(orders, 4, 8).makespan == simulate(orders, [[2, 2], [2, 2]], [[4, 4], [4, 4]]).makespan
    assert simulate(orders, [[1, 3], [2, 2]], 8).schedule.busy(0) == 4 * (4 + 8)


def test_earliest_backward_by_dependencies_and_in_1f1b():
    """Case PIP-11: four stages, eight micro-batches, forward = backward = 1, the fourth micro-batch on stage 0."""
    hurried = [[Work(FORWARD, m) for m in range(4)] + [Work(BACKWARD, 3)] for _ in range(4)]
    rest = [Work(FORWARD, m) for m in range(4, 8)] + [Work(BACKWARD, m) for m in (0, 1, 2, 4, 5, 6, 7)]
    assert simulate([order + rest for order in hurried], 1, 1).start(0, Work(BACKWARD, 3)) == 10
    assert simulate(one_forward_one_backward(4, 8), 1, 1).start(0, Work(BACKWARD, 3)) == 13


@SMALL
@given(st.sampled_from(["gpipe", "1f1b", "interleaved"]), st.integers(1, 5), st.integers(1, 3), st.integers(2, 3))
def test_no_stage_begins_before_its_input_is_there(name, stages, groups, chunks):
    micro_batches = groups * stages
    chunks = chunks if name == "interleaved" else 1
    result = simulate(schedule(name, stages, micro_batches, chunks), Fraction(2), Fraction(3), Fraction(1, 2))
    for m in range(micro_batches):
        places = [(c, i) for c in range(chunks) for i in range(stages)]
        for (c, i), (d, j) in itertools.pairwise(places):
            hop = Fraction(1, 2) if stages > 1 else 0
            assert result.start(j, Work(FORWARD, m, d)) >= result.finish(i, Work(FORWARD, m, c)) + hop
            assert result.start(i, Work(BACKWARD, m, c)) >= result.finish(j, Work(BACKWARD, m, d)) + hop
        c, i = places[-1]
        assert result.start(i, Work(BACKWARD, m, c)) >= result.finish(i, Work(FORWARD, m, c))


def test_a_schedule_that_waits_for_itself_is_refused():
    orders = one_forward_one_backward(2, 2)
    orders[1] = [Work(FORWARD, 1), Work(BACKWARD, 1), Work(FORWARD, 0), Work(BACKWARD, 0)]
    orders[0] = [Work(FORWARD, 0), Work(BACKWARD, 0), Work(FORWARD, 1), Work(BACKWARD, 1)]
    with pytest.raises(DeadlockError, match=r"deadlock: .*micro_batch=1.*on 1"):
        simulate(orders, 1, 1)


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="needs a multiple of stages"):
        interleaved(4, 6, 2)
    with pytest.raises(ValueError, match="with 1 use 1F1B"):
        interleaved(4, 8, 1)
    with pytest.raises(ValueError, match="stages is 0"):
        gpipe(0, 4)
    with pytest.raises(ValueError, match="micro_batches is 0"):
        one_forward_one_backward(4, 0)
    with pytest.raises(ValueError, match="forward has 3 numbers for 4 stages"):
        simulate(gpipe(4, 4), [1, 1, 1], 1)
    with pytest.raises(ValueError, match="backward has 1 numbers for 2 chunks"):
        simulate(interleaved(2, 2, 2), 1, [[1], [1]])
    with pytest.raises(ValueError, match="the kind of work is 'forward' or 'backward'"):
        simulate([[Work("forwards", 0)]], 1, 1)
    with pytest.raises(ValueError, match="stage 1 lacks Work"):
        simulate([gpipe(1, 2)[0], gpipe(1, 2)[0][:-1]], 1, 1)
