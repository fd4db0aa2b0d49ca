"""Ranks on nodes by hand, bounds against published ones, and what the axes do to each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import catalog, place
from course.simulators.ring import Links, rings_on_nodes

AXES = ("tensor", "pipeline", "data")
degrees = st.fixed_dictionaries({axis: st.integers(1, 4) for axis in AXES})
BOOK = {"peak_flops_per_s": 4.59e14, "weight_bytes": 2, "reduced_gradient_bytes": 2}
"""TPU v5p of the JAX Scaling Book, chapter 5; bf16 throughout."""


@settings(max_examples=30, deadline=None)
@given(degrees, st.permutations(AXES))
def test_groups_of_every_axis_share_out_the_devices(degree, order):
    total = degree["tensor"] * degree["pipeline"] * degree["data"]
    for axis in AXES:
        groups = place.groups(degree, order, axis)
        assert all(len(group) == degree[axis] for group in groups)
        assert sorted(device for group in groups for device in group) == list(range(total))
    first = [place.groups(degree, order, axis)[0] for axis in AXES]
    for one in range(3):  # two axes meet in one device
        assert set(first[one]) & set(first[one - 1]) == {0}


def test_groups_by_hand():
    degree = {"tensor": 2, "data": 3, "pipeline": 2}
    assert place.groups(degree, ("tensor", "data", "pipeline"), "tensor")[:2] == [[0, 1], [2, 3]]
    assert place.groups(degree, ("tensor", "data", "pipeline"), "data")[0] == [0, 2, 4]
    assert place.groups(degree, ("tensor", "data", "pipeline"), "pipeline")[1] == [1, 7]
    assert place.groups(degree, ("pipeline", "tensor", "data"), "tensor")[0] == [0, 2]


@settings(max_examples=30, deadline=None)
@given(degrees, st.permutations(AXES), st.sampled_from([1, 2, 4, 8]))
def test_ranks_on_a_node_are_those_counted(degree, order, node_size):
    total = degree["tensor"] * degree["pipeline"] * degree["data"]
    for axis in AXES:
        stride = place.axis_strides(degree, order)[axis]
        if (node_size % (stride * degree[axis]) and (stride * degree[axis]) % node_size) or total % node_size:
            continue  # groups that straddle nodes unevenly
        if stride < node_size and node_size % stride:
            continue
        for group in place.groups(degree, order, axis):
            on_first = sum(device // node_size == group[0] // node_size for device in group)
            assert on_first == place.on_node(degree, order, axis, node_size)


def test_the_bounds_of_the_scaling_book():
    # chapter 5: 2550 tokens a chip for FSDP on one axis of a v5p (2 links of 90e9), a third of it on three
    for axes, tokens in ((1, 2550), (3, 850)):
        found = place.fsdp_ratio.solve(
            "tokens_per_device", equals=1, ranks=1e9, tensor=1, bandwidth=axes * 2 * 90e9, latency=0,
            layer_parameters=1e9, **BOOK,
        ).value
        assert found == pytest.approx(tokens, rel=1e-3)
    # an MLP of two matrices h x f: tensor parallelism up to f / 2550; two units forward, and twice that backward
    hidden, ffn = 8192, 30000
    degree = place.tensor_ratio.solve(
        "tensor", equals=1, latency=0, bandwidth=2 * 90e9, tensor_units=6, activation_bytes=2, hidden=hidden,
        layer_parameters=2 * hidden * ffn, peak_flops_per_s=4.59e14, tokens_per_device=1000,
    )  # fmt: skip
    assert float(degree.expression) - 1 == pytest.approx(ffn / 2550, rel=1e-3)


def test_the_mixed_optimum_of_the_scaling_book():
    # chapter 5: 64 chips, F = 32768, two axes for FSDP and one for tensor parallelism: no fewer than
    # 2 x 2550^2 / F = 396 tokens a chip when the two communications follow each other
    hidden, ffn, devices = 8192, 32768, 1e9
    layer = {
        "layer_parameters": 2 * hidden * ffn,
        "weight_bytes": 2,
        "reduced_gradient_bytes": 2,
        "hidden": hidden,
        "activation_bytes": 2,
        "tensor_units": 6,
        "scale_up_bytes_per_s": 180e9,
        "scale_out_bytes_per_s": 360e9,
    }
    tokens = 4 * (4.59e14 / 180e9) ** 2 / ffn / 2
    assert tokens == pytest.approx(396, rel=0.01)
    best = place.fsdp_tensor_optimum(tokens_per_device=tokens, **layer)
    moved = place.fsdp_tensor_time(tokens_per_device=tokens, tensor=best, devices=devices, **layer)
    unit = layer["tensor_units"] * 2 * hidden * tokens / 180e9  # T_p for T_p - 1, as the book counts
    assert moved + unit == pytest.approx(6 * layer["layer_parameters"] * tokens / 4.59e14, rel=1e-3)


def test_the_optimum_is_the_lowest_point():
    layer = {
        "layer_parameters": 3e9,
        "weight_bytes": 2,
        "reduced_gradient_bytes": 4,
        "hidden": 16384,
        "activation_bytes": 2,
        "tensor_units": 8,
        "scale_up_bytes_per_s": 450e9,
        "scale_out_bytes_per_s": 50e9,
        "tokens_per_device": 1024,
    }
    best = place.fsdp_tensor_optimum(**layer)
    times = [place.fsdp_tensor_time(tensor=best * by, devices=4096, **layer) for by in (0.9, 1, 1.1)]
    assert times[1] < min(times[0], times[2])


# ---------------------------------------------------------------- bytes by tier, run on rings
MODEL, FABRIC = catalog.model("llama-3-8b"), catalog.fabric("h100-ib400")
STEP = {"sequence_length": 1024, "micro_batches": 3}


def ran(degree: dict[str, int], order: tuple[str, ...], axis: str, payload: float) -> tuple[float, float]:
    """Bytes sent and bytes that left their node, each of one device, of an all-reduce in every group of an axis."""
    devices = degree["tensor"] * degree["pipeline"] * degree["data"]
    nodes = max(1, devices // FABRIC.node_size)
    rings = place.groups(degree, order, axis)
    links = Links(1.0)
    done = rings_on_nodes(rings, payload, FABRIC.node_size, links, links)
    left = sum(done.bytes_out(node) for node in range(nodes)) / devices
    return 2 * (degree[axis] - 1) / degree[axis] * payload, left


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(1, 1, 16), (2, 1, 8), (4, 2, 4), (8, 1, 4), (2, 4, 4), (1, 2, 16), (16, 1, 2), (4, 4, 2)]),
    st.permutations(AXES),
)
def test_traffic_by_tier_is_what_rings_send(sizes, order):
    degree = dict(zip(AXES, sizes, strict=True))
    order = tuple(order)
    sent = place.traffic(MODEL, degree, order, FABRIC, **STEP)
    tensor, pipeline, _ = sizes
    gradients = 2 * 8_030_261_248 / pipeline / tensor
    ring_bytes, left = ran(degree, order, "data", gradients)
    assert sent["data"].bytes == pytest.approx(ring_bytes)
    assert sent["data"].leaving == pytest.approx(left)
    # two units, a scatter and a gather, are an all-reduce of the group's 1,024 vectors: 4 of them a layer
    ring_bytes, left = ran(degree, order, "tensor", 2 * 4096 * 1024)
    times = 4 * 32 / pipeline * STEP["micro_batches"]
    assert sent["tensor"].bytes == pytest.approx(times * ring_bytes)
    assert sent["tensor"].leaving == pytest.approx(times * left)


def test_an_inner_stage_sends_a_share_of_its_vectors_both_ways():
    sent = place.traffic(MODEL, {"tensor": 8, "pipeline": 4, "data": 1}, AXES, FABRIC, **STEP)["pipeline"]
    assert sent.bytes == sent.leaving == 2 * 3 * 2 * 4096 * 1024 / 8
    assert sent.rate == 50e9
    assert sent.seconds == pytest.approx(2 * 3 * (9.6e-6 + 2 * 4096 * 1024 / 8 / 50e9))


def test_what_leaves_each_tier_is_what_rings_send_out_of_it():
    """Two pods of two nodes of four devices: every ring of every axis, simulated, node by node and pod by pod."""
    degree, order = {"tensor": 2, "pipeline": 1, "data": 8}, ("tensor", "pipeline", "data")
    sent = {axis: place.AxisTraffic(2.0 * (degree[axis] - 1) / degree[axis], 0, 0, 0, 0) for axis in ("tensor", "data")}
    out = place.climbing(sent, degree, order, {"node": 4, "pod": 8})
    for axis in sent:
        rings = place.groups(degree, order, axis)
        for tier, size in (("node", 4), ("pod", 8)):
            shared = rings_on_nodes(rings, 1.0, size, Links(1.0), Links(1.0))
            assert out[axis][tier] == pytest.approx(shared.bytes_out(0) / size)


def test_pods_that_do_not_divide_the_rings():
    """Three pods of six devices and a last one of two: the mean over the full ones of what simulated rings send out."""
    degree, order = {"tensor": 4, "data": 5}, ("data", "tensor")
    sent = {axis: place.AxisTraffic(2.0 * (degree[axis] - 1) / degree[axis], 0, 0, 0, 0) for axis in degree}
    out = place.climbing(sent, degree, order, {"pod": 6, "all": 20, "more": 64})
    for axis in degree:
        shared = rings_on_nodes(place.groups(degree, order, axis), 1.0, 6, Links(1.0), Links(1.0))
        assert out[axis]["pod"] == pytest.approx(sum(shared.bytes_out(pod) for pod in range(3)) / 18)
        assert out[axis]["all"] == out[axis]["more"] == 0


def test_units_and_chunks_multiply_what_they_move():
    degree = {"tensor": 8, "pipeline": 4, "data": 1}
    one = place.traffic(MODEL, degree, AXES, FABRIC, **STEP)
    other = place.traffic(MODEL, degree, AXES, FABRIC, **STEP, tensor_units=10, interleave=8)
    assert other["tensor"].bytes == pytest.approx(1.25 * one["tensor"].bytes)
    assert other["pipeline"].bytes == 8 * one["pipeline"].bytes


def test_latency_of_a_gather_over_one_rank_a_node_decides():
    """A layer of 405B, tensor 8, 2,048 ranks on one card each: 2,047 x 9.6 us beside 16 ms of bytes, by hand."""
    layer = 3.2e9
    needs = place.fsdp_ratio(
        tokens_per_device=1, ranks=2048, tensor=8, weight_bytes=2, reduced_gradient_bytes=2, latency=9.6e-6,
        layer_parameters=layer, bandwidth=50e9, peak_flops_per_s=989.4e12,
    )  # fmt: skip
    gather = 2047 * 9.6e-6 + 2047 / 2048 * 2 * layer / 8 / 50e9
    assert needs == pytest.approx(gather / (2 * layer / 989.4e12))
