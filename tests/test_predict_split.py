"""A pipeline with a split backward, predicted: its parts, its time, what it keeps, and what was measured of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import legal, small, spellings

from course import records
from course.predict import predict
from course.predict.columns import from_layout
from course.predict.compute import layer_times
from course.predict.constants import constants_for
from course.predict.report import GIB
from course.problem import Layout, Run, loads
from course.simulators.pipeline import simulate, zero_bubble
from course.sweep import search, sweep
from tests.test_predict import example, with_cluster

GPT = """
[model]
layers = {n_layers}
hidden = {hidden}
heads = {n_heads}
kv_heads = {n_heads}
ffn = {ffn}
vocabulary = 50304
gated_mlp = false
tied_embeddings = true
attention_bias = "qkvo"
mlp_bias = true
norm_size = 2
learned_positions = {seq_len}
[training]
tokens = 1e9
sequence_length = {seq_len}
global_batch_sequences = {batch}
[software]
recipe = "megatron-2021"
[cluster]
accelerator = "a100-sxm-80gb"
fabric = "a100-ib200"
devices = {pp}
[layout]
pipeline = {pp}
micro_batch = {micro_batch}
schedule = "{schedule}"
"""


def on_stages(run: Run, layers: tuple[int, ...], **fields: object) -> Run:
    """Llama 3 8B with these layers on these stages, one device a stage."""
    model = dataclasses.replace(run.model, layers=sum(layers), dense_layers=sum(layers))
    layout = Layout(pipeline=len(layers), schedule="zero-bubble", stage_layers=layers, **fields)
    return dataclasses.replace(with_cluster(run, devices=len(layers)), model=model, layout=layout)


def simulated(run: Run, count: int) -> float:
    assert run.layout is not None and run.layout.stage_layers is not None
    layer, layers = layer_times(run, from_layout(run.layout, run), constants_for(run)), run.layout.stage_layers
    head = np.eye(len(layers))[-1]
    forward = np.array(layers) * layer.forward + head * layer.head_forward
    weights = np.array(layers) * layer.weight + head * layer.head_weight
    inputs = np.array(layers) * layer.backward + head * layer.head_backward - weights
    orders = zero_bubble(len(layers), count)
    return float(simulate(orders, forward.tolist(), inputs.tolist(), weight=weights.tolist()).makespan)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_weights_part_is_the_matmuls_of_their_gradients(recompute: str) -> None:
    """2 FLOPs a weight and token, none for attention's scores; all that is computed again belongs to the input's."""
    run = example("llama-3-8b-8-h100")
    columns, constants = from_layout(Layout(data=8, recompute=recompute), run), constants_for(run)
    layer = layer_times(run, columns, constants)
    rate = run.cluster.accelerator.peak_flops_per_s * constants.matmul_share
    matrices = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert float(layer.weight[0]) == pytest.approx(2 * matrices * 8192 / rate, rel=1e-9)
    wide = run.cluster.accelerator.peak_flops_per_s * constants.wide_share
    assert float(layer.head_weight[0]) == pytest.approx(2 * 4096 * 128256 * 8192 / wide, rel=1e-9)
    assert float(layer.weight[0]) < float(layer.forward[0]) < float((layer.backward - layer.weight)[0])


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 8), st.integers(1, 3), st.sampled_from([1, 2, 3, 5, 16, 64]), st.sampled_from(["none", "full"]))
def test_even_stages_take_what_the_simulated_ones_take(stages: int, layers: int, count: int, recompute: str) -> None:
    """With next to no vocabulary, so that the last stage is as the others; more micro-batches than stages or fewer."""
    base = example("llama-3-8b-8-h100")
    base = dataclasses.replace(
        base, model=dataclasses.replace(base.model, vocabulary=1),
        training=dataclasses.replace(base.training, global_batch_sequences=count),
    )  # fmt: skip
    run = on_stages(base, (layers,) * stages, recompute=recompute)
    document = predict(run)
    assert document["legal"], document["reasons"]
    step = document["step"]
    assert step["compute_s"] + step["bubble_s"] == pytest.approx(simulated(run, count), rel=1e-3)
    assert any("zero-bubble is ZB-H1" in said for said in document["assumptions"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=7), st.sampled_from([2, 4, 8, 16, 32]))
def test_uneven_stages_and_a_head_take_no_longer_but_for_a_percent(layers: list[int], count: int) -> None:
    base = example("llama-3-8b-8-h100")
    base = dataclasses.replace(base, training=dataclasses.replace(base.training, global_batch_sequences=count))
    run = on_stages(base, tuple(layers))
    step = predict(run)["step"]
    ours, real = step["compute_s"] + step["bubble_s"], simulated(run, count)
    assert real * 0.98 <= ours <= real * 1.25
    plain = predict(dataclasses.replace(run, layout=dataclasses.replace(run.layout, schedule="1f1b")))["step"]
    assert ours <= plain["compute_s"] + plain["bubble_s"]


def parts(run: Run) -> dict[str, float]:
    return {name: value * GIB for name, value in predict(run)["memory"]["parts_gib"].items()}


def test_what_the_weights_gradients_need_is_as_much_as_a_layer_saves() -> None:
    """Inputs of the five matmuls and gradients of their outputs, in 2 bytes: what Megatron's fused layer saves."""
    run = on_stages(example("llama-3-8b-8-h100"), (8, 8, 8, 8))
    h, q, kv, f, tokens = 4096, 4096, 1024, 14336, 8192
    inputs, outputs = h + q + h + f, (q + 2 * kv) + h + 2 * f + h
    found = parts(run)
    assert found["activations"] == pytest.approx(4 * 8 * tokens * 2 * (inputs + outputs), rel=1e-9)
    # the last stage is the fullest: three micro-batches whose logits' gradients wait for the head's turn
    assert predict(run)["memory"]["stage"] == 3
    plain = dataclasses.replace(run, layout=dataclasses.replace(run.layout, schedule="1f1b", pipeline=4))
    waiting = 3 * tokens * 128256 * 2
    alone = dataclasses.replace(plain, layout=dataclasses.replace(plain.layout, stage_layers=(1, 1, 1, 29)))
    assert found["logits"] - waiting == pytest.approx(parts(alone)["logits"], rel=1e-9)


def test_what_was_computed_again_waits_whole() -> None:
    """Full recomputation, stages of 2, 3, 3 and 2 layers: of 4 micro-batches on stage 2 three wait whole."""
    base = example("llama-3-8b-8-h100")
    base = dataclasses.replace(base, model=dataclasses.replace(base.model, vocabulary=1, tied_embeddings=True))
    run = on_stages(base, (2, 3, 3, 2), recompute="full")
    run = dataclasses.replace(run, layout=dataclasses.replace(run.layout, stage_layers=None))
    h, q, kv, f, tokens = 4096, 4096, 1024, 14336, 8192
    layer = 8 * h + 4 * q + 4 * kv + 6 * f
    assert predict(run)["memory"]["stage"] == 2
    assert parts(run)["activations"] == pytest.approx(3 * tokens * (1 * 2 * h + 3 * layer), rel=1e-9)
    one = dataclasses.replace(run, layout=dataclasses.replace(run.layout, schedule="1f1b"))
    assert predict(one)["memory"]["stage"] == 1
    assert parts(one)["activations"] == pytest.approx(tokens * (3 * 3 * 2 * h + layer), rel=1e-9)


def test_measured_gains_and_memory() -> None:
    """ZB-1p, which keeps ZB-H1's memory and whose printed bubbles are ZB-H1's, over 1F1B: no constant was fitted."""
    for row in records.pipelines():
        found = {}
        for schedule in ("1f1b", "zero-bubble"):
            batch = row["micro_batches"] * row["micro_batch"]
            values = {**row, "ffn": 4 * row["hidden"], "batch": batch, "schedule": schedule}
            found[schedule] = predict(loads(GPT.format(**values)))
        gain = found["1f1b"]["step"]["time_s"] / found["zero-bubble"]["step"]["time_s"]
        measured = row["samples_per_s_per_device_zb_1p"] / row["samples_per_s_per_device_1f1b"]
        assert gain == pytest.approx(measured, abs=0.03)
        for schedule, column in (("1f1b", "memory_gb_1f1b"), ("zero-bubble", "memory_gb_zb_1p")):
            memory = found[schedule]["memory"]
            assert memory["peak_gib"] - memory["parts_gib"]["margin"] == pytest.approx(row[column], rel=0.1)


# ---------------------------------------------------------------- legal, and searched
def test_one_stage_has_no_waits_to_fill() -> None:
    run = dataclasses.replace(example("llama-3-8b-8-h100"), layout=Layout(data=8, schedule="zero-bubble"))
    document = predict(run)
    assert not document["legal"]
    assert document["reasons"] == ["the zero-bubble schedule fills the waits between stages, and pipeline is 1"]


def test_a_sweep_tries_it_where_the_program_splits_backward() -> None:
    plain, split = small(), small(software="split_backward = true")
    before, after = search(plain), search(split)
    assert "zero-bubble" not in {before.layout(row).schedule for row in range(before.fitting)}
    found = [after.layout(row) for row in range(after.fitting)]
    placed = {"order": ("tensor",), "shard_group": None}
    ours = {dataclasses.replace(layout, **placed) for layout in found if layout.schedule == "zero-bubble"}
    staged = [layout for layout in spellings(plain) if layout.pipeline > 1 and layout.schedule == "1f1b"]
    more = {dataclasses.replace(layout, schedule="zero-bubble", **placed) for layout in staged if legal(plain, layout)}
    assert ours == more and len(found) == before.fitting + len(more)


def test_its_reason_is_the_same_layout_under_1f1b() -> None:
    run = example("gpt-3-175b-1024-a100")
    run = dataclasses.replace(run, software=dataclasses.replace(run.software, split_backward=True))
    found = sweep(run, top=5)
    entry = next(entry for entry in found["layouts"] if entry["layout"]["schedule"] == "zero-bubble")
    assert entry["why"]["schedule"].startswith("speed: under 1F1B the same layout takes ")
    fields = {**entry["layout"], "schedule": "1f1b"}
    time = predict(dataclasses.replace(run, layout=Layout(**fields)))["step"]["time_s"]
    assert f"takes {time:.4g} s a step" in entry["why"]["schedule"]
    assert all("schedule" not in other["why"] for other in found["layouts"]
               if other["layout"]["schedule"] != "zero-bubble")  # fmt: skip
