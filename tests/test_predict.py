"""A prediction adds up, has one path for one layout and for many, and agrees with pipelines really scheduled."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import catalog
from course.examples import names, path
from course.predict import evaluate, predict
from course.predict.columns import derived, from_layout
from course.predict.compute import layer_times
from course.predict.constants import constants_for
from course.predict.memory import PARTS, memory
from course.predict.report import AXES
from course.predict.stages import stages
from course.problem import Layout, Run, load, loads
from course.sweep import search

GIB = 2.0**30


@cache
def example(name: str) -> Run:
    return load(path(name))


@cache
def found(name: str):
    """The layouts of an example that fit; their columns are legal by the rules of `test_sweep`."""
    return search(example(name))


def with_layout(run: Run, **fields: object) -> Run:
    return dataclasses.replace(run, layout=Layout(**fields))


def with_cluster(run: Run, part: str | None = None, **fields: object) -> Run:
    if part is None:
        return dataclasses.replace(run, cluster=dataclasses.replace(run.cluster, **fields))
    changed = dataclasses.replace(getattr(run.cluster, part), **fields)
    return dataclasses.replace(run, cluster=dataclasses.replace(run.cluster, **{part: changed}))


rows = st.tuples(st.sampled_from(names()), st.integers(0, 10**9))


@settings(max_examples=30, deadline=None)
@given(rows)
def test_one_layout_and_a_column_of_layouts_take_one_path(where: tuple[str, int]) -> None:
    run, columns = example(where[0]), found(where[0])
    row = where[1] % columns.fitting
    layout = columns.layout(row)
    alone = predict(dataclasses.replace(run, layout=layout))
    assert alone["legal"], alone["reasons"]
    for key, value in (("time_s", alone["step"]["time_s"]), ("compute_s", alone["step"]["compute_s"])):
        assert value == pytest.approx(float(columns.values[key][row]), rel=1e-12)
    assert alone["memory"]["peak_gib"] == pytest.approx(float(columns.values["peak_bytes"][row]) / GIB, rel=1e-12)
    assert alone["run"]["accelerator_hours"] == pytest.approx(
        float(columns.values["accelerator_hours"][row]), rel=1e-12
    )


@settings(max_examples=30, deadline=None)
@given(rows)
def test_the_step_and_the_memory_are_the_sums_of_their_parts(where: tuple[str, int]) -> None:
    run, columns = example(where[0]), found(where[0])
    layout = columns.layout(where[1] % columns.fitting)
    document = predict(dataclasses.replace(run, layout=layout))
    step, memory = document["step"], document["memory"]
    exposed = [axis["exposed_s"] for axis in step["communication"].values()]
    assert step["time_s"] == pytest.approx(step["compute_s"] + step["bubble_s"] + step["other_s"] + sum(exposed))
    assert all(value >= -1e-12 for value in (step["compute_s"], step["bubble_s"], step["other_s"], *exposed))
    for axis in step["communication"].values():
        assert axis["exposed_s"] <= axis["total_s"] * (1 + 1e-12)
    assert sum(memory["parts_gib"].values()) == pytest.approx(memory["peak_gib"])
    assert set(memory["parts_gib"]) == set(PARTS)
    assert memory["fits"] is (memory["peak_gib"] <= memory["capacity_gib"])
    seconds = step["time_s"] * run.training.tokens / run.training.tokens_per_step
    assert document["run"]["days"] == pytest.approx(seconds / run.cluster.goodput / 86400)
    assert document["tokens_per_s"] == pytest.approx(run.training.tokens_per_step / step["time_s"])


@pytest.mark.parametrize(("factor", "fits"), [(1 - 1e-9, False), (1 + 1e-9, True)])
def test_it_fits_up_to_the_last_byte(factor: float, fits: bool) -> None:
    run = example("llama-3-8b-8-h100")
    peak = predict(run)["memory"]["peak_gib"] * GIB
    # 1 % of the memory is margin, so the limit is where capacity = peak without that share / 0.99
    margin = 0.01 * run.cluster.accelerator.memory_bytes
    document = predict(with_cluster(run, "accelerator", memory_bytes=factor * (peak - margin) / 0.99))
    assert document["memory"]["fits"] is fits


@pytest.mark.parametrize(("share", "warned"), [(0.87, False), (0.89, True), (0.999, True), (1.02, False)])
def test_a_nearly_full_device_is_warned_of(share: float, warned: bool) -> None:
    """What does not fit has a stronger sentence."""
    run = example("llama-3-8b-8-h100")
    counted = predict(run)["memory"]["peak_gib"] * GIB - 0.01 * run.cluster.accelerator.memory_bytes
    full = with_cluster(run, "accelerator", memory_bytes=counted / (share - 0.01))  # 1 % of the memory is margin
    assert any(f"{share:.0%} of capacity" in line for line in predict(full)["assumptions"]) is warned


def test_the_published_layout_by_hand() -> None:
    """Llama 3.1 405B, TP 8, PP 16, one layer a chunk: the second stage holds 8 layers of the shapes below."""
    document = predict(example("llama-3.1-405b-16384-h100"))
    h, f = 16384, 53248
    layer = 2 * h * h + 2 * h * (8 * 128) + 3 * h * f + 2 * h
    memory = document["memory"]
    assert memory["stage"] == 1
    assert memory["parts_gib"]["weights"] * GIB == pytest.approx(8 * layer / 8 * 2)
    assert memory["parts_gib"]["gradients"] * GIB == pytest.approx(8 * layer / 8 * 4 / 128)
    assert memory["parts_gib"]["optimizer"] * GIB == pytest.approx(8 * layer / 8 * 12 / 128)
    saved = 8192 / 8 * 2 * (4 * h + 2 * h + 2 * 8 * 128 + 3 * f)  # bytes of one layer and micro-batch
    chunks = min(8 * 16, 2 * (16 - 1 - 1) + 7 * 16 + 1)  # all chunks of all micro-batches, or the warm-up and one
    assert memory["parts_gib"]["activations"] * GIB == pytest.approx(chunks * saved)
    assert document["micro_batches"] == 16
    assert document["tokens_per_step"] == 2048 * 8192
    flops = document["flops_per_token"]["full_attention"]
    rate = 16_777_216 / document["step"]["time_s"]
    assert document["mfu"]["full_attention"] == pytest.approx(flops * rate / 16384 / 989.4e12)


def test_the_published_rates_are_missed_by_what_is_said() -> None:
    """400 and 430 TFLOP/s a device, read as `full_attention`; constants come from other runs.

    ZeRO-2 reduces gradients after each micro-batch, in messages that grow with the replicas: a million numbers each.
    Messages of 160 MB on every number of devices put the larger run below what was published, not above.
    """
    for name, published, points in (
        ("llama-3.1-405b-16384-h100", 400 / 989.4, 2.1), ("llama-3.1-405b-8192-h100", 430 / 989.4, 2.4),
    ):  # fmt: skip
        ours = predict(example(name))["mfu"]["full_attention"]
        assert 100 * (ours - published) == pytest.approx(points, abs=0.1)
    run = example("llama-3.1-405b-16384-h100")
    fixed = dataclasses.replace(run, software=dataclasses.replace(run.software, bucket_given=True))
    assert 100 * (predict(fixed)["mfu"]["full_attention"] - 400 / 989.4) == pytest.approx(-4.3, abs=0.1)


def test_an_illegal_layout_has_reasons_and_nulls() -> None:
    document = predict(with_layout(example("llama-3-8b-8-h100"), data=4, tensor=3))
    assert document["legal"] is False
    assert len(document["reasons"]) == 5  # devices, heads, key/value heads, feed-forward width, sequence
    assert document["step"]["time_s"] is None
    assert document["memory"]["peak_gib"] is None
    assert document["mfu"]["six_ps"] is None
    assert document["run"]["meets_goal"] is None
    assert document["parameters"]["total"] == 8_030_261_248


def test_a_convention_that_would_exceed_the_peak_has_no_number() -> None:
    """A wide vocabulary on a narrow model: 6P counts the input table, which multiplies nothing."""
    run = example("llama-3-8b-8-h100")
    tiny = dataclasses.replace(
        run.model, layers=1, hidden=65536, vocabulary=2_000_000, dense_layers=1, tied_embeddings=False
    )
    best = dataclasses.replace(catalog.accelerator("b200-sxm"), measured_matmul_share=0.95)
    fast = dataclasses.replace(run.cluster, accelerator=best)
    many = dataclasses.replace(run.training, global_batch_sequences=256 * run.training.global_batch_sequences)
    document = predict(dataclasses.replace(run, model=tiny, cluster=fast, training=many))
    assert document["mfu"]["full_attention"] is not None
    assert document["mfu"]["six_ps"] is None
    assert any("no MFU by six_ps" in line for line in document["assumptions"])


@pytest.mark.parametrize("name", names())
def test_a_faster_machine_is_never_slower(name: str) -> None:
    run = example(name)
    unmeasured = with_cluster(run, "fabric", scale_up_measured_bytes_per_s=None, scale_out_measured_bytes_per_s=None)
    accelerator, fabric = run.cluster.accelerator, run.cluster.fabric
    base = evaluate(dataclasses.replace(unmeasured, layout=None), found(name).columns, found(name).order)["time_s"]
    for part, field, value in (
        ("fabric", "scale_up_bytes_per_s", 2 * fabric.scale_up_bytes_per_s),
        ("fabric", "scale_out_bytes_per_s", 2 * fabric.scale_out_bytes_per_s),
        ("fabric", "scale_out_latency_s", fabric.scale_out_latency_s / 2),
        ("fabric", "scale_up_latency_s", fabric.scale_up_latency_s / 2),
        ("accelerator", "memory_bytes_per_s", 2 * accelerator.memory_bytes_per_s),
        ("accelerator", "peak_flops_per_s", 2 * accelerator.peak_flops_per_s),
    ):
        faster = dataclasses.replace(with_cluster(unmeasured, part, **{field: value}), layout=None)
        time = evaluate(faster, found(name).columns, found(name).order)["time_s"]
        assert (time <= base * (1 + 1e-12)).all(), field
        assert (time < base).any() or (run.cluster.devices == 8 and "scale_out" in field), field


def test_more_of_the_ladder_never_holds_more_state() -> None:
    run = example("llama-3-8b-8-h100")
    held = []
    for sharding in ("none", "zero1", "zero2", "zero3"):
        parts = predict(with_layout(run, data=8, sharding=sharding))["memory"]["parts_gib"]
        held.append(parts["weights"] + parts["gradients"] + parts["optimizer"])
    assert held == sorted(held, reverse=True)
    assert held[0] == pytest.approx(18 * 8_030_261_248 / GIB)
    assert held[3] == pytest.approx(18 * 8_030_261_248 / 8 / GIB)


def test_gpipe_keeps_the_softmax_of_every_micro_batch() -> None:
    run = with_layout(with_cluster(example("llama-3-8b-8-h100"), devices=2), pipeline=2, schedule="gpipe")
    columns = from_layout(run.layout, run)
    held = memory(run, columns, stages(run, columns))
    one = 8192 * 128256
    assert held.stage[0] == 1
    assert held.parts["logits"][0] == one * (6 + 4 * 127)  # one at work, 127 that wait for their backward


def test_a_vocabulary_table_is_gathered_and_reduced_whole() -> None:
    """Llama 3 8B: a table of 525 million numbers is larger than a layer of 218 million."""
    table, layer = 128256 * 4096, 218_112_000
    for sharding, expected in (("zero1", 0), ("zero2", 4 * table), ("zero3", 4 * table + 2 * (layer + table))):
        parts = predict(with_layout(example("llama-3-8b-8-h100"), data=8, sharding=sharding))["memory"]["parts_gib"]
        assert parts["buffers"] * GIB == pytest.approx(expected * 7 / 8)


def test_recomputation_saves_memory_and_costs_a_forward() -> None:
    run = example("llama-3-8b-8-h100")
    kept = predict(with_layout(run, data=8, sharding="zero2"))
    again = predict(with_layout(run, data=8, sharding="zero2", recompute="full"))
    assert again["memory"]["parts_gib"]["activations"] < 0.1 * kept["memory"]["parts_gib"]["activations"]
    assert 1.2 < again["step"]["compute_s"] / kept["step"]["compute_s"] < 4 / 3
    assert again["hfu"] > again["mfu"]["full_attention"]
    assert kept["hfu"] == pytest.approx(kept["mfu"]["full_attention"])


def test_columns_derive_the_micro_batches() -> None:
    run = example("llama-3.1-405b-16384-h100")
    assert derived(from_layout(run.layout, run), run)["micro_batches"].tolist() == [16.0]


OVERLAPS = ("overlap_tensor", "overlap_tensor_backward", "overlap_context", "overlap_expert", "overlap_pipeline")
SPLIT = ("qwen3-30b-a3b-16-h100", "llama-3-8b-8-h100")


def programs(run: Run) -> dict[str, Run]:
    """The run by every recipe, and by a program that overlaps all it can."""
    every = {name: catalog.software(name, run.training.state) for name in catalog.names("software")}
    every["all"] = dataclasses.replace(every["maxtext"], **dict.fromkeys(OVERLAPS, True))
    return {name: dataclasses.replace(run, software=one, layout=None) for name, one in every.items()}


@pytest.mark.parametrize("name", SPLIT)
def test_no_more_is_hidden_than_is_computed(name: str) -> None:
    """What runs beside a layer's compute runs beside it once, whatever the axis."""
    columns, order = found(name).columns, found(name).order
    slow = with_cluster(example(name), "fabric", scale_up_measured_bytes_per_s=None, scale_up_bytes_per_s=5e10)
    for program, run in programs(slow).items():
        values = evaluate(run, columns, order)
        hidden = {axis: values[f"{axis}_total_s"] - values[f"{axis}_exposed_s"] for axis in AXES}
        sends = hidden.pop("pipeline")
        del hidden["data"]  # it may run beside the others' collectives
        assert (sum(hidden.values()) <= values["compute_s"] * (1 + 1e-12)).all(), program
        assert (sends <= (values["time_s"] - values["pipeline_exposed_s"]) * (1 + 1e-12)).all(), program


@pytest.mark.parametrize("name", SPLIT)
def test_a_faster_chip_is_never_slower_under_any_program(name: str) -> None:
    columns, order = found(name).columns, found(name).order
    for program, run in programs(with_cluster(example(name), "fabric", scale_up_measured_bytes_per_s=5e10)).items():
        before = None
        for speed in (0.5, 1, 2, 8, 64):
            chip = run.cluster.accelerator
            fields = {
                key: speed * getattr(chip, key)
                for key in ("peak_flops_per_s", "peak_16_bit_flops_per_s", "memory_bytes_per_s")
            }
            time = evaluate(with_cluster(run, "accelerator", **fields), columns, order)["time_s"]
            assert before is None or (time <= before * (1 + 1e-12)).all(), (program, speed)
            before = time


def test_collective_products_take_the_longer_of_compute_and_traffic() -> None:
    """Data 128 inside, tensor 8 across nodes: slower than the compute, forward and backward."""
    run = with_cluster(example("llama-3-8b-8-h100"), devices=1024)
    batch = dataclasses.replace(run.training, global_batch_sequences=1024)
    run = dataclasses.replace(run, software=catalog.software("maxtext"), training=batch)
    run = with_layout(run, data=128, tensor=8, sharding="zero3", order=("data", "tensor", "context", "pipeline"))
    bare = layer_times(run, from_layout(run.layout, run), constants_for(run))
    step, count = predict(run)["step"], 8
    tensor = step["communication"]["tensor"]
    unit = tensor["total_s"] / (count * 32) / 10  # four gathers or scatters forward, six backward
    layer = max(4 * unit, float(bare.forward[0])) + max(6 * unit, float(bare.backward[0]))
    head = float(bare.head_forward[0] + bare.head_backward[0])
    assert 6 * unit > float(bare.backward[0])
    assert step["compute_s"] + tensor["exposed_s"] == pytest.approx(count * (32 * layer + head))


OWN = """
[model]
preset = "llama-3-8b"
[training]
tokens = 1e12
sequence_length = 8192
global_batch_sequences = 128
precision = "{precision}"
[software]
recipe = "megatron"
[cluster]
{chip}
devices = 8
[layout]
data = 8
sharding = "zero1"
"""
BY_NUMBERS = """peak_flops_per_s = {peak}
memory_bytes = {memory}
memory_bytes_per_s = {rate}
node_size = 8
scale_up_bytes_per_s = 4.5e11
scale_out_bytes_per_s = 5e10"""


def by_numbers(name: str, precision: str) -> Run:
    chip = catalog.accelerator(name, precision)
    numbers = {"peak": chip.peak_flops_per_s, "memory": chip.memory_bytes, "rate": chip.memory_bytes_per_s}
    return loads(OWN.format(precision=precision, chip=BY_NUMBERS.format(**numbers)))


@pytest.mark.parametrize(
    ("name", "precision", "part", "word"),
    [("h100-sxm", "bf16", 1, ""), ("h100-sxm", "fp8", 2, "half of the fp8"), ("b200-sxm", "fp4", 4, "a quarter of")],
)
def test_sixteen_bit_work_does_not_run_at_a_narrow_peak(name: str, precision: str, part: int, word: str) -> None:
    """Attention and head of a chip given by numbers take as long as by a 16-bit peak that is known."""
    own = by_numbers(name, precision)
    known = with_cluster(own, "accelerator", peak_16_bit_flops_per_s=own.cluster.accelerator.peak_flops_per_s / part)
    document = predict(own)
    assert document["step"] == predict(known)["step"]
    said = [line for line in document["assumptions"] if "compute in 16 bits" in line]
    assert len(said) == bool(word) and all(word in line for line in said)
    fast = with_cluster(own, "accelerator", peak_16_bit_flops_per_s=own.cluster.accelerator.peak_flops_per_s)
    assert (document["step"]["compute_s"] > predict(fast)["step"]["compute_s"]) == bool(word)


def test_a_chip_given_by_numbers_says_that_no_shares_were_measured() -> None:
    named = loads(OWN.format(precision="bf16", chip='accelerator = "h100-sxm"\nfabric = "h100-ib400"'))
    line = "no shares were measured for an accelerator given by numbers"
    assert any(line in one for one in predict(by_numbers("h100-sxm", "bf16"))["assumptions"])
    assert not any(line in one for one in predict(named)["assumptions"])
