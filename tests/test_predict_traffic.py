"""Communication of a step: links of the worst-placed group, what is carried, what is covered."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import catalog
from course.predict import predict
from course.predict.columns import from_layout
from course.predict.compute import layer_times
from course.predict.constants import constants_for
from course.predict.groups import fewest_on_a_node
from course.predict.layers import cover, kinds
from course.predict.stages import stages
from course.predict.traffic import bucket_bytes, links
from course.problem import Layout, Run
from course.simulators.timeline import bucketed_step
from tests.test_predict import example, with_cluster, with_layout

GIB = 2.0**30




# ------------------------------------------------------------------------------------------------ traffic
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("sequence", "hidden_behind"), [(256, "all"), (2304, "some"), (65536, "nothing")])
def test_host_time_is_a_floor_under_compute_and_collectives_together(
    sequence: int, hidden_behind: str, recompute: str
) -> None:
    """A layer takes the longer of the host's time and of the device's, collectives included; never their sum."""
    base = example("llama-3-8b-8-h100")
    run = dataclasses.replace(base, training=dataclasses.replace(base.training, sequence_length=sequence))
    run = with_layout(run, data=4, tensor=2, recompute=recompute)
    document, columns, constants = predict(run), from_layout(run.layout, run), constants_for(run)
    bare = layer_times(run, columns, dataclasses.replace(constants, host_forward_s=0.0, host_backward_s=0.0))
    start = max(constants.collective_s, run.cluster.fabric.scale_up_latency_s)
    unit = start + 2 * 4096 * sequence / 2 / constants.scale_up_bytes_per_s
    # in backward the second gather and the scatter of column-split matrices run beside these matrices' two gradients
    hidden = min(4 * unit, float(bare.column_split[0]))
    once, both = float(bare.forward[0]), float(bare.backward[0])  # under full recomputation `both` holds a forward too
    again, own, units = (once, both - once, 10) if recompute == "full" else (0.0, both, 6)
    forward = max(once + 4 * unit, 1.0e-3)
    backward = max(both + units * unit - hidden, max(own, 1.5e-3) + (max(again, 1.0e-3) if again else 0.0))
    layers = document["micro_batches"] * 32 * (forward + backward)
    head = document["micro_batches"] * float(bare.head_forward[0] + bare.head_backward[0])
    step, tensor = document["step"], document["step"]["communication"]["tensor"]
    assert step["compute_s"] + tensor["exposed_s"] == pytest.approx(layers + head)
    shown = tensor["total_s"] - document["micro_batches"] * 32 * hidden
    kinds = {"all": tensor["exposed_s"] == 0, "nothing": tensor["exposed_s"] == pytest.approx(shown)}
    assert kinds.get(hidden_behind, 0 < tensor["exposed_s"] < tensor["total_s"])


def test_data_traffic_carries_every_parameter_once() -> None:
    """ZeRO-1 on one node of 8: fp32 gradients scattered, bf16 weights gathered, tables included."""
    run = with_layout(example("llama-3-8b-8-h100"), data=8, sharding="zero1")
    traffic = predict(run)["step"]["communication"]["data"]
    rate = constants_for(run).scale_up_bytes_per_s
    total = 8_030_261_248
    bytes_sent = (4 + 2) * total * 7 / 8
    # two rings of 7 steps for each bucket of gradients, and the layers are rounded up by one
    messages = 2 * 7 * run.cluster.fabric.scale_up_latency_s * (4 * total / run.software.bucket_bytes + 32)
    assert bytes_sent / rate < traffic["total_s"] < bytes_sent / rate + messages
    assert traffic["link"] == "inside a node"


def thinnest(devices: int, node: int, stride: int, size: int) -> int | None:
    """The fewest ranks a group has on one node, over all groups that lie on several; None where none does."""
    fewest = []
    for block in range(devices // (stride * size)):
        for offset in range(stride):
            ranks = [block * stride * size + offset + stride * place for place in range(size)]
            on = [sum(rank // node == home for rank in ranks) for home in {rank // node for rank in ranks}]
            fewest += [min(on)] if len(on) > 1 else []
    return min(fewest, default=None)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=3, max_size=3), st.sampled_from([1, 2, 4, 6, 8, 9, 72]),
    st.permutations(["tensor", "context", "data", "pipeline"]), st.integers(1, 6),
)  # fmt: skip
def test_links_are_those_of_the_worst_placed_group(
    degrees: list[int], node: int, order: list[str], replicas: int
) -> None:
    tensor, pipeline, group = degrees
    data = group * replicas
    devices = tensor * pipeline * data
    run = with_cluster(with_cluster(example("llama-3-8b-8-h100"), devices=devices), "fabric", node_size=node)
    layout = Layout(data=data, tensor=tensor, pipeline=pipeline, shard_group=group, sharding="zero3")
    constants = constants_for(run)
    found_links = links(run, from_layout(layout, run), constants, tuple(order))
    at, step = {}, 1
    for axis in order:
        at[axis], step = step, step * getattr(layout, axis)
    cut = [(axis, at[axis], getattr(layout, axis)) for axis in order]
    cut += [("shard", at["data"], group), ("replica", at["data"] * group, replicas)]
    for axis, stride, size in cut:
        fewest = thinnest(devices, node, stride, size)
        assert bool(found_links[axis].crosses[0]) is (fewest is not None), axis
        cards = constants.scale_out_bytes_per_s * (1 if axis == "pipeline" else fewest or 0)
        expected = constants.scale_up_bytes_per_s if fewest is None else min(constants.scale_up_bytes_per_s, cards)
        assert found_links[axis].bytes_per_s[0] == expected, axis


@pytest.mark.parametrize("node", [1, 4, 6, 8, 12])
def test_the_fewest_ranks_on_a_node_by_listing_every_group(node: int) -> None:
    """Groups of two steps, where nodes tile the pattern and where they do not."""
    for stride, size, between, outer in itertools.product((1, 2, 3, 4, 8), (1, 2, 3, 4), (1, 2, 3), (1, 2, 4)):
        outer_stride = stride * size * between
        block = outer_stride * outer
        devices = block * node
        groups: dict[tuple[int, int, int], list[int]] = {}
        for device in range(devices):
            key = device // block, device % outer_stride // (stride * size), device % stride
            groups.setdefault(key, []).append(device // node)
        least = [min(Counter(homes).values()) for homes in groups.values() if len(set(homes)) > 1]
        found = fewest_on_a_node(node, devices, stride, size, outer_stride, outer)
        assert found == min(least, default=size * outer), (stride, size, outer_stride, outer)


def test_hybrid_sharding_gathers_inside_the_node_and_sums_shards_between_nodes() -> None:
    """8B on 8 nodes, shards of 8: weights gathered twice, fp32 gradients scattered and an eighth of them summed."""
    run = with_cluster(example("llama-3-8b-8-h100"), devices=64)
    run = with_layout(run, data=64, sharding="zero3", shard_group=8, micro_batch=1)
    traffic, constants = predict(run)["step"]["communication"]["data"], constants_for(run)
    inside, between = constants.scale_up_bytes_per_s, constants.scale_out_bytes_per_s
    count, passes, fabric = 8_030_261_248, 128 / 64, run.cluster.fabric
    by_bytes = passes * count * 7 / 8 * ((2 + 2 + 4) / inside + 2 * 4 / 8 / between)
    by_hops = passes * 32 * (3 * 7 * fabric.scale_up_latency_s + 2 * 7 * fabric.scale_out_latency_s)
    assert traffic["total_s"] == pytest.approx(by_bytes + by_hops)
    assert traffic["link"] == "between nodes"


def test_a_send_between_nodes_uses_one_network_card() -> None:
    run = example("llama-3.1-405b-16384-h100")
    layout = Layout(pipeline=16, data=1024, order=("pipeline", "tensor", "context", "data"))
    constants = constants_for(run)
    found_links = links(run, from_layout(layout, run), constants, layout.order)
    assert found_links["pipeline"].crosses[0]
    assert found_links["pipeline"].bytes_per_s[0] == constants.scale_out_bytes_per_s


PARAMETERS = 8_030_261_248


def replicated(devices: int, recipe: str, sharding: str = "zero1", **software: object) -> Run:
    run = with_cluster(example("llama-3-8b-8-h100"), devices=devices)
    batch = dataclasses.replace(run.training, global_batch_sequences=devices)
    program = dataclasses.replace(catalog.software(recipe, run.training.state), **software)
    run = dataclasses.replace(run, training=batch, software=program)
    return with_layout(run, data=devices, sharding=sharding)


def sent(run: Run, messages: float) -> float:
    """One scatter and one gather of every parameter in so many messages, each round the ring."""
    link = links(run, from_layout(run.layout, run), constants_for(run), run.layout.order)["data"]
    ranks, software = run.layout.data, run.software
    numbers = PARAMETERS * (software.gradient_reduction_bytes + software.weight_gather_bytes)
    by_hops = 2 * (ranks - 1) * float(link.latency_s[0]) * messages
    return numbers * (ranks - 1) / ranks / float(link.bytes_per_s[0]) + by_hops


@pytest.mark.parametrize("devices", [8, 32, 64, 1024, 4096, 16384])
@pytest.mark.parametrize("width", [2, 4])
def test_megatron_reduces_a_million_numbers_for_each_replica(devices: int, width: int) -> None:
    """max(40e6, 1e6 x replicas) gradients a bucket, whatever their width; all of them at most."""
    run = replicated(devices, "megatron", gradient_reduction_bytes=width)
    messages = max(PARAMETERS / max(40e6, 1e6 * devices), 1)
    assert predict(run)["step"]["communication"]["data"]["total_s"] == pytest.approx(sent(run, messages))


@pytest.mark.parametrize("devices", [8, 1024])
@pytest.mark.parametrize("recipe", ["megatron", "torch-fsdp", "maxtext"])
def test_a_bucket_of_the_run_file_stays_as_it_is(devices: int, recipe: str) -> None:
    run = replicated(devices, recipe, bucket_bytes=100_000_000)
    messages = PARAMETERS * run.software.gradient_reduction_bytes / 100e6
    assert predict(run)["step"]["communication"]["data"]["total_s"] == pytest.approx(sent(run, messages))


@pytest.mark.parametrize("recipe", ["torch-fsdp", "maxtext"])
@pytest.mark.parametrize("devices", [8, 1024])
def test_programs_that_reduce_a_layer_at_a_time(recipe: str, devices: int) -> None:
    run = replicated(devices, recipe)
    assert predict(run)["step"]["communication"]["data"]["total_s"] == pytest.approx(sent(run, 32))


def test_context_ranks_do_not_widen_a_bucket() -> None:
    """Megatron's rule counts replicas; the ranks of a context group hold parts of the same sequences."""
    run = with_layout(with_cluster(example("llama-3-8b-8-h100"), devices=512), data=64, context=8)
    columns = from_layout(run.layout, run)
    assert bucket_bytes(run, columns, columns["data"] * 1e9).tolist() == [4 * 64e6]


@pytest.mark.parametrize("layers", [1, 2, 8, 32])
def test_a_bucket_of_several_layers_waits_for_the_lowest(layers: int) -> None:
    """Plain data parallelism against a timeline of tasks: what is reduced late has less to hide behind."""
    run = replicated(1024, "megatron", "none", bucket_bytes=int(layers * 4 * PARAMETERS / 32))
    columns = from_layout(run.layout, run)
    constants, shape = constants_for(run), stages(run, columns)
    link = links(run, columns, constants, run.layout.order)
    forward, backward = (float(one[0]) for one in cover(run, columns, kinds(run, columns, shape, link, constants)))
    traffic = predict(run)["step"]["communication"]["data"]
    one = traffic["total_s"] * layers / 32
    step = bucketed_step(
        [forward] * 32, [backward] * 32, [(layer, one) for layer in range(32 - layers, -1, -layers)]
    )  # fmt: skip
    assert traffic["exposed_s"] == pytest.approx(step.step_time - 32 * (forward + backward))
