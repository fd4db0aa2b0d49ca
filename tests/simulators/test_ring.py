"""Chunks round a ring against plain numpy sums, textbook costs and hand-made placements."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.simulators.ring import (
    COLLECTIVES,
    Links,
    all_gather,
    all_reduce,
    all_to_all,
    plan,
    reduce_scatter,
    rings_on_nodes,
    send,
)

SMALL = settings(max_examples=30, deadline=None)
ring_sizes = st.integers(1, 7)


def integers(ranks, length, seed):
    return list(np.random.default_rng(seed).integers(-50, 50, size=(ranks, length)))


@SMALL
@given(ring_sizes, st.integers(0, 23), st.integers(0, 99))
def test_every_collective_gives_what_it_says(ranks, length, seed):
    arrays = integers(ranks, length, seed)
    before = [array.copy() for array in arrays]
    total = np.sum(arrays, axis=0)
    pieces = np.array_split(total, ranks)
    for rank in range(ranks):
        np.testing.assert_array_equal(reduce_scatter(arrays).arrays[rank], pieces[rank])
        np.testing.assert_array_equal(all_reduce(arrays).arrays[rank], total)
        np.testing.assert_array_equal(all_gather(arrays).arrays[rank], np.concatenate(arrays))
        exchanged = np.concatenate([np.array_split(array, ranks)[rank] for array in arrays])
        np.testing.assert_array_equal(all_to_all(arrays).arrays[rank], exchanged)
    np.testing.assert_array_equal(arrays, before)


def test_all_reduce_keeps_the_shape_and_every_rank_has_the_same_bits():
    arrays = list(np.random.default_rng(0).normal(size=(5, 3, 4)))
    results = all_reduce(arrays).arrays
    assert results[0].shape == (3, 4)
    assert all((result == results[0]).all() for result in results)
    np.testing.assert_allclose(results[0], sum(arrays))


def test_arrays_of_different_lengths_can_be_gathered():
    assert all_gather([np.array([1, 2]), np.array([3])]).arrays[1].tolist() == [1, 2, 3]


@SMALL
@given(ring_sizes, st.integers(0, 5))
def test_bytes_and_steps_are_those_of_the_textbook(ranks, chunk):
    """(n-1)/n of the whole array for each half, twice that for an all-reduce; n-1 steps each."""
    arrays = [np.ones(ranks * chunk) for _ in range(ranks)]
    half = (ranks - 1) * chunk * 8
    assert reduce_scatter(arrays).bytes_sent == [half] * ranks
    assert all_gather([array[:chunk] for array in arrays]).bytes_sent == [half] * ranks
    assert all_to_all(arrays).bytes_sent == [half] * ranks
    assert all_reduce(arrays).bytes_sent == [2 * half] * ranks
    assert reduce_scatter(arrays).steps == ranks - 1
    assert all_reduce(arrays).steps == 2 * (ranks - 1)


@SMALL
@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 9))
def test_reduce_scatter_and_all_gather_are_an_all_reduce(ranks, length, seed):
    """Result and bytes, also where the ranks do not divide the array."""
    arrays = integers(ranks, length, seed)
    first = reduce_scatter(arrays)
    second = all_gather(first.arrays)
    whole = all_reduce(arrays)
    np.testing.assert_array_equal(second.arrays, whole.arrays)
    assert [a + b for a, b in zip(first.bytes_sent, second.bytes_sent, strict=True)] == whole.bytes_sent
    assert sum(whole.bytes_sent) == 2 * (ranks - 1) * arrays[0].nbytes


@SMALL
@given(st.integers(2, 7), st.integers(1, 4), st.integers(1, 9), st.integers(0, 3))
def test_equal_links_cost_alpha_and_beta(ranks, chunk, bandwidth, latency):
    arrays = [np.ones(ranks * chunk, dtype=np.int8) for _ in range(ranks)]
    links = Links(Fraction(bandwidth), latency)
    half = (ranks - 1) * (latency + Fraction(chunk, bandwidth))
    assert reduce_scatter(arrays, links).time == half
    assert all_gather([array[:chunk] for array in arrays], links).time == half
    assert all_to_all(arrays, links).time == half
    assert all_reduce(arrays, links).time == 2 * half
    assert send(arrays[0], links).time == latency + Fraction(ranks * chunk, bandwidth)


@SMALL
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 5))
def test_the_slowest_link_paces_the_ring(slowness, slow):
    """Every link carries 2(n-1) chunks, and the slowest is never kept waiting."""
    slow = slow % len(slowness)
    slowness[slow] = 10
    ranks = len(slowness)
    arrays = [np.ones(ranks, dtype=np.int8) for _ in range(ranks)]
    links = Links([Fraction(1, each) for each in slowness])
    assert all_reduce(arrays, links).time == 2 * (ranks - 1) * 10
    assert reduce_scatter(arrays, links).time == (ranks - 1) * 10


def test_one_rank_sends_nothing():
    for collective in (reduce_scatter, all_gather, all_reduce, all_to_all):
        result = collective([np.arange(3)], Links(1.0, 1.0))
        assert (result.bytes_sent, result.steps, result.time) == ([0], 0, 0)
        assert result.arrays[0].tolist() == [0, 1, 2]


def test_recorded_cases():
    """COM-15: of 2e9 bytes, 64 ranks send 3.9375e9. COM-23: 8 devices gather 1e9 bytes at 450e9 byte/s in 1.944 ms."""
    sent = all_reduce([np.ones(64, dtype=np.int8) for _ in range(64)]).bytes_sent[0]
    assert sent / 64 * 2e9 == 3.9375e9
    scale = 1e9 / 8
    links = Links(450e9 / scale)
    assert all_gather([np.ones(1, dtype=np.int8) for _ in range(8)], links).time == pytest.approx(1.944444e-3)


@SMALL
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_a_ring_in_order_crosses_each_node_once(nodes, node_size, chunk):
    ranks = nodes * node_size
    result = rings_on_nodes([range(ranks)], chunk * ranks, node_size, Links(1.0), Links(1.0))
    expected = 2 * (ranks - 1) * chunk if nodes > 1 else 0
    assert [result.bytes_out(node) for node in range(nodes)] == [expected] * nodes
    assert sum(result.crossing.values()) == nodes * expected


def test_a_ring_in_a_bad_order_crosses_at_every_hop():
    good = rings_on_nodes([[0, 1, 2, 3, 4, 5, 6, 7]], 8, 4, Links(100.0), Links(1.0))
    bad = rings_on_nodes([[0, 4, 1, 5, 2, 6, 3, 7]], 8, 4, Links(100.0), Links(1.0))
    assert good.crossing == {(0, 1): 14, (1, 0): 14}
    assert bad.crossing == {(0, 1): 56, (1, 0): 56}
    assert good.time == 14
    assert bad.time == pytest.approx(56, rel=0.01)


@SMALL
@given(st.integers(1, 4), st.integers(2, 4), st.sampled_from(["reduce_scatter", "all_gather", "all_reduce"]))
def test_rings_that_share_a_node_share_its_cards(groups, nodes, collective):
    """With tensor parallelism inside the node, as many data rings cross it, each with its share of the rate."""
    rings = [[node * groups + member for node in range(nodes)] for member in range(groups)]
    rate, device = Fraction(5), Links(Fraction(1000))
    shared = rings_on_nodes(rings, nodes * 10, groups, device, Links(rate), collective)
    alone = rings_on_nodes([range(nodes)], nodes * 10, 1, device, Links(rate / groups), collective)
    assert shared.time == alone.time
    assert shared.bytes_out(0) == groups * alone.bytes_out(0)
    assert max(shared.ring_times) == shared.time


def test_a_fast_node_is_paced_by_its_devices():
    result = rings_on_nodes([range(4)], 16, 2, Links(1.0), Links(1000.0))
    assert result.time == pytest.approx(6 * 4, rel=0.01)


def test_an_all_to_all_leaves_the_node_by_half():
    """COM-13: two nodes of eight; each device sends 1/16 to each, so eight of its sixteen parts leave the node."""
    result = rings_on_nodes([range(16)], 16, 8, Links(1.0), Links(1.0), "all_to_all")
    assert result.crossing == {(0, 1): 64, (1, 0): 64}


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_no_rank_sends_twice_or_receives_twice_in_a_step(collective, ranks):
    sends = plan(collective, ranks)
    assert len({(one.step, one.source) for one in sends}) == len(sends)
    assert len({(one.step, one.target) for one in sends}) == len(sends)
    assert all(one.source != one.target for one in sends)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: all_reduce([np.ones(2), np.ones(3)]), "shapes .* must be alike"),
        (lambda: all_reduce([]), "must be alike, and there must be one"),
        (lambda: all_gather([]), "ranks is 0"),
        (lambda: send(np.ones(2), Links(0)), "bandwidth of rank 0 is 0"),
        (lambda: send(np.ones(2), Links(float("nan"))), "bandwidth of rank 0 is nan"),
        (lambda: plan("broadcast", 2), "collective is 'broadcast'; it is one of reduce_scatter"),
        (lambda: rings_on_nodes([[0, 1], [1, 2]], 8, 2, Links(1), Links(1)), "device 1 stands twice"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
