"""The two streams against closed forms written as maxima, sums over all chains, and steps worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.simulators.engine import Task
from course.simulators.timeline import COMMUNICATION, COMPUTE, bucketed_step, sharded_step, two_streams

SMALL = settings(max_examples=30, deadline=None)
times = st.integers(0, 9)


@st.composite
def layered(draw):
    """Times of forward, backward, gather and reduction for one to six layers."""
    layers = draw(st.integers(1, 6))
    column = st.lists(times, min_size=layers, max_size=layers)
    return [draw(column) for _ in range(4)]


def per_layer_buckets(reduce):
    return [(layer, reduce[layer]) for layer in reversed(range(len(reduce)))]


def test_recorded_case():
    """COM-21: compute covers 80 ms, collectives 50, both together 100: 30 hidden, 20 exposed."""
    result = two_streams([Task("a", COMPUTE, 50), Task("b", COMPUTE, 30), Task("c", COMMUNICATION, 50, ("a",))])
    assert (result.step_time, result.compute_time, result.communication_time) == (100, 80, 50)
    assert (result.exposed_time, result.hidden_time) == (20, 30)


@SMALL
@given(layered(), st.integers(1, 3), times)
def test_buckets_are_sent_one_behind_the_other_as_they_fill(case, micro_batches, optimizer):
    """The last reduction ends at the latest of: a bucket is ready, and it and all after it are sent."""
    forward, backward, reduce, _ = case
    result = bucketed_step(forward, backward, per_layer_buckets(reduce), micro_batches, optimizer=optimizer)
    compute = micro_batches * (sum(forward) + sum(backward))
    chains = [compute - sum(backward[:layer]) + sum(reduce[: layer + 1]) for layer in range(len(forward))]
    assert result.step_time == max([compute, *chains]) + optimizer
    assert result.compute_time == compute + optimizer
    assert result.communication_time == sum(reduce)


@SMALL
@given(layered(), st.integers(1, 3))
def test_without_overlap_everything_is_exposed(case, micro_batches):
    forward, backward, reduce, _ = case
    buckets = per_layer_buckets(reduce)
    result = bucketed_step(forward, backward, buckets, micro_batches, overlap_gradients=False)
    assert result.exposed_time == sum(reduce)
    assert result.hidden_time == 0


def test_one_bucket_of_several_layers_waits_for_the_lowest():
    result = bucketed_step([1, 1, 1], [2, 2, 2], [(1, 3), (0, 1)])
    assert result.schedule.start["reduce", 0, 1] == 3 + 4
    assert result.schedule.start["reduce", 0, 0] == 10  # the first bucket is still under way when layer 0 is done
    assert result.step_time == 11


def test_reducing_in_every_micro_batch():
    """ZeRO-2 by hand: three micro-batches of 1 + 2, a reduction of 4 each: from 3, back to back, to 15."""
    every = bucketed_step([1], [2], [(0, 4)], micro_batches=3, reduce_every=True)
    assert (every.step_time, every.communication_time, every.exposed_time) == (15, 12, 6)
    last = bucketed_step([1], [2], [(0, 4)], micro_batches=3)
    assert (last.step_time, last.communication_time, last.exposed_time) == (13, 4, 4)


@SMALL
@given(layered(), times)
def test_new_parameters_gathered_at_the_end_or_while_the_forward_goes(case, optimizer):
    """ZeRO-1: at the end they are exposed whole; before the layers they make a flow shop of two machines."""
    forward, backward, _, gather = case
    end = bucketed_step(forward, backward, [], gather=gather, optimizer=optimizer)
    assert end.exposed_time == sum(gather)
    begin = bucketed_step(forward, backward, [], gather=gather, optimizer=optimizer, overlap_parameters=True)
    flow_shop = max(sum(gather[: layer + 1]) + sum(forward[layer:]) for layer in range(len(forward)))
    assert begin.step_time == flow_shop + sum(backward) + optimizer


def sharded_by_maxima(forward, backward, gather, reduce):
    """One micro-batch, one layer ahead: each gather (and reduction) goes on beside one layer, and the longer counts."""
    top = len(forward) - 1
    time = gather[0] + forward[top] + gather[top] + reduce[0]
    time += sum(max(forward[layer], gather[layer + 1]) for layer in range(top))
    for layer in range(top + 1):
        beside = (reduce[layer + 1] if layer < top else 0) + (gather[layer - 1] if layer > 0 else 0)
        time += max(backward[layer], beside)
    return time


@SMALL
@given(layered(), st.integers(1, 3))
def test_sharded_parameters_cost_a_maximum_a_layer(case, micro_batches):
    forward, backward, gather, reduce = case
    result = sharded_step(forward, backward, gather, reduce, micro_batches)
    assert result.step_time == micro_batches * sharded_by_maxima(forward, backward, gather, reduce)
    assert result.communication_time == micro_batches * (2 * sum(gather) + sum(reduce))
    assert result.hidden_time >= 0


@SMALL
@given(layered())
def test_the_last_layer_need_not_be_gathered_again(case):
    forward, backward, gather, reduce = case
    result = sharded_step(forward, backward, gather, reduce, regather_last=False)
    assert result.step_time == sharded_by_maxima(forward, backward, gather, reduce) - gather[-1]


@SMALL
@given(layered())
def test_without_gathering_again_the_backward_only_reduces(case):
    forward, backward, gather, reduce = case
    result = sharded_step(forward, backward, gather, reduce, regather_in_backward=False)
    assert result.communication_time == sum(gather) + sum(reduce)
    ahead = sharded_by_maxima(forward, [0] * len(forward), gather, [0] * len(forward))
    forward_time = ahead - gather[-1] - sum(gather[:-1])
    backward_time = bucketed_step([0] * len(forward), backward, per_layer_buckets(reduce)).step_time
    assert result.step_time == forward_time + backward_time


@SMALL
@given(layered())
def test_without_prefetch_nothing_gathered_is_hidden(case):
    """Only the very last reduction apart, each stands between two layers."""
    forward, backward, gather, reduce = case
    result = sharded_step(forward, backward, gather, reduce, prefetch=0)
    assert result.exposed_time == 2 * sum(gather) + sum(reduce)


@SMALL
@given(layered(), st.integers(0, 3), st.integers(1, 2), times, times)
def test_looking_further_ahead_in_the_forward_never_hurts(case, prefetch, micro_batches, blocking, optimizer):
    forward, backward, gather, _ = case
    more = {"micro_batches": micro_batches, "blocking_forward": blocking, "optimizer": optimizer}
    near = sharded_step(forward, backward, gather, 0, prefetch=prefetch, **more)
    far = sharded_step(forward, backward, gather, 0, prefetch=prefetch + 1, **more)
    assert far.step_time <= near.step_time
    least = max(near.compute_time + micro_batches * blocking * len(forward), 2 * sum(gather) * micro_batches)
    assert far.step_time >= least


def test_the_gather_ahead_goes_before_the_reduction():
    """By hand, three layers: during the backward of layer 2 layer 1 is gathered; then layer 2 is reduced."""
    start = sharded_step([1, 1, 1], [4, 4, 4], [1, 1, 1], [2, 2, 2]).schedule.start
    assert start["gather", 0, 0] == 0
    assert start["gather", 0, 2] == 2  # not before layer 0 has made room
    assert start["gather again", 0, 2] == 4
    assert start["gather again", 0, 1] == start["backward", 0, 2] == 5
    assert start["reduce", 0, 2] == start["backward", 0, 1] == 9
    assert start["gather again", 0, 0] == 11
    assert start["reduce", 0, 1] == start["backward", 0, 0] == 13
    assert start["reduce", 0, 0] == 17


def test_reducing_in_the_last_micro_batch_only():
    every = sharded_step([1, 1], [1, 1], 0, 5, micro_batches=2)
    last = sharded_step([1, 1], [1, 1], 0, 5, micro_batches=2, reduce_every=False)
    assert every.communication_time == 20
    assert last.communication_time == 10
    assert last.step_time == 4 + 2 + 1 + 5 + 5


@SMALL
@given(layered(), times, times, st.integers(1, 3))
def test_blocking_collectives_are_exposed_whole(case, in_forward, in_backward, micro_batches):
    forward, backward, _, _ = case
    result = bucketed_step(
        forward, backward, [], micro_batches, blocking_forward=in_forward, blocking_backward=in_backward
    )
    blocked = micro_batches * len(forward) * (in_forward + in_backward)
    assert result.exposed_time == result.communication_time == blocked
    assert result.step_time == micro_batches * (sum(forward) + sum(backward)) + blocked


def test_gradients_are_reduced_behind_collectives_that_block():
    """Two links: while the blocking one holds up computing, the other goes on."""
    result = bucketed_step([2, 2], [4, 4], [(1, 10), (0, 1)], blocking_backward=3)
    assert result.schedule.start["reduce", 0, 1] == 4 + 4 + 3
    assert result.step_time == 22
    assert (result.compute_time, result.communication_time) == (12, 17)
    assert (result.exposed_time, result.hidden_time) == (10, 7)


@SMALL
@given(layered(), st.integers(1, 3), st.booleans(), times)
def test_a_step_lies_between_the_longer_stream_and_the_sum(case, micro_batches, every, blocking):
    forward, backward, gather, reduce = case
    more = {"micro_batches": micro_batches, "reduce_every": every, "blocking_backward": blocking}
    steps = [
        sharded_step(forward, backward, gather, reduce, **more),
        bucketed_step(forward, backward, per_layer_buckets(reduce), gather=gather, **more),
        bucketed_step(forward, backward, per_layer_buckets(reduce), gather=gather, overlap_parameters=True, **more),
    ]
    for step in steps:
        blocked = micro_batches * len(forward) * blocking
        assert max(step.compute_time + blocked, step.communication_time - blocked) <= step.step_time
        assert step.step_time <= step.compute_time + step.communication_time
        assert step.hidden_time + step.exposed_time == step.communication_time


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bucketed_step([1, 1], [1], []), "backward has 1 times for 2 layers"),
        (lambda: bucketed_step([1, 1], [1, 1], [(0, 1), (1, 1)]), "buckets name the layers"),
        (lambda: bucketed_step([1, 1], [1, 1], [(2, 1)]), "buckets name the layers"),
        (lambda: bucketed_step([], [], []), "0 layers"),
        (lambda: bucketed_step([1], [1], [], micro_batches=0), "micro_batches = 0"),
        (lambda: sharded_step([1], [1], 1, 1, prefetch=-1), "prefetch is -1"),
        (lambda: sharded_step([1], [1], [1, 1], 1), "gather has 2 times for 1 layers"),
        (lambda: two_streams([Task("a", "gpu", 1)]), "task 'a' runs on 'gpu'"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
