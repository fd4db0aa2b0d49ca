"""Tree, two-level and torus collectives against plain sums, and against their formulas over random shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import place, shard
from course.simulators import ring
from course.simulators.torus import hops, torus_all_gather, torus_all_reduce, torus_all_to_all
from course.simulators.tree import parents, tree_all_reduce
from course.simulators.two_level import two_level_all_reduce

SMALL = settings(max_examples=25, deadline=None)
rates = st.floats(1, 1e3)
waits = st.floats(0, 10)


def whole_numbers(ranks: int, length: int, seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(-50, 50, size=(ranks, length)))


@SMALL
@given(st.integers(1, 12), st.integers(0, 9), st.integers(0, 99))
def test_a_tree_sums(ranks, length, seed):
    arrays = whole_numbers(ranks, length, seed)
    for result in tree_all_reduce(arrays).arrays:
        np.testing.assert_array_equal(result, np.sum(arrays, axis=0))


@SMALL
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 13), st.integers(0, 99))
def test_two_levels_sum(node_size, nodes, length, seed):
    arrays = whole_numbers(node_size * nodes, length, seed)
    links = ring.Links(1.0)
    for result in two_level_all_reduce(arrays, node_size, links, links).arrays:
        np.testing.assert_array_equal(result, np.sum(arrays, axis=0))


@SMALL
@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 7), st.integers(0, 99))
def test_a_torus_gathers(side, axes, length, seed):
    arrays = whole_numbers(side**axes, length, seed)
    parts = [np.concatenate(np.array_split(array, axes)) for array in arrays]
    for result in torus_all_gather(arrays, side, axes).arrays:
        np.testing.assert_array_equal(result, np.concatenate(parts))


@SMALL
@given(st.integers(0, 4), st.integers(1, 99), rates, waits)
def test_time_of_a_tree(levels, size, bandwidth, latency):
    arrays = [np.zeros(size, np.uint8)] * 2**levels
    time = tree_all_reduce(arrays, ring.Links(bandwidth, latency)).time
    formula = place.tree_all_reduce_time(levels=levels, payload_bytes=size, latency=latency, bandwidth=bandwidth)
    assert time == pytest.approx(formula)


@SMALL
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), rates, waits, rates, waits)
def test_time_and_bytes_of_two_levels(node_size, nodes, chunk, fast, near, slow, far):
    ranks = node_size * nodes
    arrays = [np.zeros(chunk * ranks, np.uint8)] * ranks
    done = two_level_all_reduce(arrays, node_size, ring.Links(fast, near), ring.Links(slow, far))
    assert done.time == pytest.approx(
        place.hierarchical_all_reduce_time(
            ranks_per_node=node_size, nodes=nodes, payload_bytes=chunk * ranks, scale_up_bytes_per_s=fast,
            scale_up_latency_s=near, scale_out_bytes_per_s=slow, scale_out_latency_s=far,
        )
    )  # fmt: skip
    # two levels move no byte more than one ring: 2X(n-1)/n
    assert done.bytes_sent == [shard.all_reduce_bytes(ranks=ranks, payload_bytes=chunk * ranks)] * ranks


@SMALL
@given(st.integers(1, 5), st.integers(1, 2), st.integers(1, 5), rates, waits)
def test_time_and_bytes_of_a_torus(side, axes, chunk, bandwidth, latency):
    ranks, mine = side**axes, 2 * axes * chunk
    done = torus_all_gather([np.zeros(mine, np.uint8)] * ranks, side, axes, bandwidth, latency)
    formula = place.torus_all_gather_time(
        torus_side=side, torus_axes=axes, payload_bytes=mine * ranks, latency=latency, link_bytes_per_s=bandwidth
    )
    assert done.time == pytest.approx(formula)
    assert done.bytes_sent == [(ranks - 1) * mine] * ranks


@SMALL
@given(st.integers(1, 8), st.integers(1, 9), rates, waits)
def test_time_of_rings_and_of_an_all_to_all(ranks, chunk, bandwidth, latency):
    arrays, links = [np.zeros(chunk * ranks, np.uint8)] * ranks, ring.Links(bandwidth, latency)
    message = {"ranks": ranks, "payload_bytes": chunk * ranks, "latency": latency, "bandwidth": bandwidth}
    assert ring.all_reduce(arrays, links).time == pytest.approx(place.ring_all_reduce_time(**message))
    assert ring.reduce_scatter(arrays, links).time == pytest.approx(place.ring_all_gather_time(**message))
    assert ring.all_to_all(arrays, links).time == pytest.approx(place.all_to_all_time(**message))


def test_every_rank_but_one_has_one_parent():
    for ranks in range(1, 20):
        assert sorted(child for child, _ in parents(ranks)) == list(range(1, ranks))
        assert all(parent < child for child, parent in parents(ranks))


def test_a_piece_reaches_everybody_once():
    for side in range(1, 9):
        reached: dict[int, float] = {}
        for way, hop, share in hops(side):
            target = way * (hop + 1) % side
            reached[target] = reached.get(target, 0) + share
        assert reached == dict.fromkeys(range(1, side), 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torus_all_gather([np.ones(1)] * 3, 2, 2), "3 arrays do not fill a torus of 2 axes of 2"),
        (lambda: torus_all_reduce([np.ones(4)] * 3, 2, 2), "3 arrays do not fill a torus of 2 axes of 2"),
        (lambda: torus_all_to_all([np.ones(4)] * 3, 2, 2), "3 arrays do not fill a torus of 2 axes of 2"),
        (lambda: two_level_all_reduce([np.ones(1)] * 3, 2, ring.Links(), ring.Links()), "3 ranks do not fill"),
        (lambda: tree_all_reduce([np.ones(1)] * 2, ring.Links(0)), "bandwidth of rank 1 is 0"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@SMALL
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 7), st.integers(0, 99))
def test_a_torus_sums_and_exchanges_whatever_the_length(side, axes, length, seed):
    ranks = side**axes
    if ranks > 64:
        return
    arrays = whole_numbers(ranks, ranks * length, seed)
    for result in torus_all_reduce(arrays, side, axes).arrays:
        assert (result == sum(arrays)).all()
    for rank, result in enumerate(torus_all_to_all(arrays, side, axes).arrays):
        assert (result == np.concatenate([array[rank * length : (rank + 1) * length] for array in arrays])).all()


@pytest.mark.parametrize(("side", "axes"), [(4, 1), (5, 1), (3, 2), (4, 2), (2, 3)])
def test_bytes_on_the_links_of_a_torus(side, axes):
    """Sums send what a gather does, once each way; parts of an all-to-all send each byte as often as it hops."""
    ranks = side**axes
    arrays = [np.zeros(2 * axes * ranks, np.uint8)] * ranks
    size = arrays[0].nbytes
    assert sum(torus_all_reduce(arrays, side, axes).bytes_sent) == 2 * size * (ranks - 1)
    hops_of_all = sum(min(way, side - way) for way in range(side)) * axes * ranks // side
    assert sum(torus_all_to_all(arrays, side, axes).bytes_sent) == ranks * size // ranks * hops_of_all
