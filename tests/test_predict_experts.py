"""Experts, latent attention and context ranks in a prediction: conserved state and work, walked stages and groups."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import catalog, records
from course.answer.facts import sent_bytes
from course.compare import Skipped, run_of
from course.legality import violations
from course.predict import evaluate, predict
from course.predict.columns import from_layout, to_layout
from course.predict.constants import constants_for
from course.predict.memory import memory
from course.predict.stages import stages
from course.predict.traffic import links
from course.problem import Layout, Model, Run, loads
from tests.test_predict import example, with_cluster, with_layout

GIB = 2.0**30


def mixture(preset: str, devices: int, batch: int = 1024, length: int = 4096, fabric: str = "h100-ib400") -> Run:
    return loads(
        f"""
        [model]
        preset = "{preset}"
        [training]
        tokens = 1e12
        sequence_length = {length}
        global_batch_sequences = {batch}
        [cluster]
        accelerator = "h100-sxm"
        devices = {devices}
        fabric = "{fabric}"
        """
    )


def small(**fields: int) -> Model:
    shape = {"layers": 12, "hidden": 1024, "heads": 8, "kv_heads": 4, "head_size": 128, "ffn": 4096}
    shape["vocabulary"] = 32000
    experts = {"experts": 16, "experts_per_token": 4, "expert_ffn": 512}
    return Model("small", **{**shape, **experts, **fields})


def with_model(run: Run, model: Model) -> Run:
    return dataclasses.replace(run, model=model)


# ------------------------------------------------------------------------------------------------ published counts
@pytest.mark.parametrize(
    ("preset", "total", "active"), [("mixtral-8x7b", 46.7e9, 12.9e9), ("deepseek-v3", 671e9, 37.5e9)]
)
def test_a_document_counts_what_was_published(preset: str, total: float, active: float) -> None:
    found = predict(with_layout(mixture(preset, 64), data=64))["parameters"]
    assert found["total"] == pytest.approx(total, rel=1e-3)
    assert found["active"] == pytest.approx(active, rel=3e-3)  # DeepSeek prints 37e9, without the input table: 36.6e9
    if preset == "deepseek-v3":
        assert found["active"] - 129280 * 7168 == pytest.approx(36.6e9, rel=2e-3)


# ------------------------------------------------------------------------------------------------ state
FOLDS = st.tuples(*(st.sampled_from([1, 2, 4]) for _ in range(4)), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))


@settings(max_examples=40, deadline=None)
@given(FOLDS, st.sampled_from(["none", "zero1", "zero2", "zero3"]), st.sampled_from([0, 2, 12]))
def test_no_byte_of_state_is_lost_or_invented(fold: tuple[int, ...], sharding: str, dense: int) -> None:
    """Over all devices, shards add up to the state, and what is not sharded to its copies."""
    data, tensor, pipeline, context, expert, expert_tensor = fold
    run = with_model(mixture("mixtral-8x7b", data * tensor * pipeline * context), small(dense_layers=dense))
    layout = Layout(
        data=data, tensor=tensor, pipeline=pipeline, context=context, expert=expert, expert_tensor=expert_tensor,
        sharding=sharding,
    )  # fmt: skip
    run = dataclasses.replace(run, layout=layout)
    columns = from_layout(layout, run)
    if any(column.any() for column in violations(run, columns).values()):
        return
    # every stage in turn as the fullest: all others are hidden from the search for it
    every = stages(run, columns)
    held = dict.fromkeys(("weights", "gradients", "optimizer"), 0.0)
    for place in range(every.layers.shape[1]):
        if every.stands_for[0, place] == 0:
            continue
        alone = dataclasses.replace(
            every, stands_for=np.where(np.arange(every.layers.shape[1]) == place, every.stands_for, 0.0)
        )
        parts = memory(run, columns, alone).parts
        for name in held:
            held[name] += float(parts[name][0] * every.stands_for[0, place]) * data * tensor * context
    routed = (12 - dense) * 16 * 3 * 1024 * 512
    attention = 12 * (2 * 1024 * 1024 + 2 * 1024 * 512 + 2 * 1024)
    rest = attention + dense * 3 * 1024 * 4096 + (12 - dense) * 1024 * 16 + 2 * 32000 * 1024 + 1024
    for name, width, from_rung in (("weights", 2, 3), ("gradients", 4, 2), ("optimizer", 12, 1)):
        sharded = ("none", "zero1", "zero2", "zero3").index(sharding) >= from_rung
        copies = 1 if sharded else data * context
        expert_copies = 1 if sharded else tensor * context * data / (expert * expert_tensor)
        assert held[name] == pytest.approx(width * (rest * copies + routed * expert_copies)), name


def test_mixtral_by_hand() -> None:
    """TP 2, EP 8 on 64 devices: each holds half of what is shared, and one expert of every layer whole."""
    document = predict(with_layout(mixture("mixtral-8x7b", 64, 256), data=32, tensor=2, expert=8, sharding="zero1"))
    h, f, layers, tokens = 4096, 14336, 32, 4096
    shared = layers * (2 * h * h + 2 * h * 1024 + 8 * h + 2 * h) + 2 * 32000 * h + h
    routed = layers * 3 * h * f * 8
    parts = document["memory"]["parts_gib"]
    assert parts["weights"] * GIB == pytest.approx(2 * (shared / 2 + routed / 8))
    # what is shared has 32 replicas; of an expert there are 64 / 8 copies
    assert parts["optimizer"] * GIB == pytest.approx(12 * (shared / 2 / 32 + routed / 8 / 8))
    around, inside = 4 * 2 * h / 2, 2 * (2 * h + 2 * 1024 + 2 * 3 * f) / 2  # norms and inputs; Q, K, V, output, experts
    copies = 2 * 2 * h / 2  # two of each token, on one of two tensor ranks
    assert parts["activations"] * GIB == pytest.approx(tokens * layers * (around + inside + copies))
    expert = document["step"]["communication"]["expert"]
    run = mixture("mixtral-8x7b", 64, 256)
    rate, latency = constants_for(run).scale_up_bytes_per_s, run.cluster.fabric.scale_up_latency_s
    one = latency + 2 * tokens / 2 * 2 * h * 7 / 8 / rate
    assert expert["total_s"] == pytest.approx(8 * layers * 4 * one)  # 256 sequences on 32 replicas
    assert expert["link"] == "inside a node"


def test_bytes_sent_by_hand() -> None:
    """Mixtral with TP 2, CP 2, EP 8 on 64 devices: 16 replicas take 16 micro-batches each."""
    run = mixture("mixtral-8x7b", 64, 256)
    layout = Layout(data=16, tensor=2, context=2, expert=8, sharding="zero1")
    sent = sent_bytes(run, from_layout(layout, run))
    h, f, passes, tokens = 4096, 14336, 16 * 32, 4096
    assert sent["expert"] == pytest.approx(4 * passes * 2 * (tokens / 2 / 2) * 2 * h * 7 / 8)
    assert sent["context"] == pytest.approx(3 * passes * 2 * 2 * (8 * 128 / 2) * tokens / 2)
    assert sent["tensor"] == pytest.approx(5 * passes * 2 * h * (tokens / 2) / 2)  # attention's half of 10 units
    shared = 32 * (2 * h * h + 2 * h * 1024 + 8 * h + 2 * h) + 2 * 32000 * h + h
    routed = 32 * 3 * h * f * 8
    # fp32 gradients scattered, bf16 weights gathered: 32 ranks share what is shared, 8 ranks hold the same expert
    assert sent["data"] == pytest.approx((4 + 2) * (shared / 2 * 31 / 32 + routed / 8 * 7 / 8))


def test_deepseek_by_hand() -> None:
    """PP 16, EP 64: the second stage holds 4 layers, of which all have experts; latents beside wide Q, K, V, O."""
    run = mixture("deepseek-v3", 2048, 15360)
    layout = {"stage_layers": (4,) * 14 + (3, 2), "expert": 64, "sharding": "zero1"}
    document = predict(with_layout(run, data=128, pipeline=16, **layout))
    h, a = 7168, 128
    attention = h * 1536 + 1536 * a * 192 + h * 576 + 512 * a * 256 + a * 128 * h + 1536 + 512 + 2 * h
    mixed = attention + 256 * h + 256 + 3 * h * 2048
    memory = document["memory"]
    assert memory["stage"] == 1
    assert memory["parts_gib"]["weights"] * GIB == pytest.approx(2 * 4 * (mixed + 256 / 64 * 3 * h * 2048))
    wide = a * 192 + a * 192 + a * 128 + a * 128
    saved = 2 * (4 * h + wide + 2 * 1536 + 2 * 512 + 3 * 9 * 2048 + 8 * h)
    assert memory["parts_gib"]["activations"] * GIB == pytest.approx(4096 * 4 * saved * 15)  # 1F1B: 15 in flight
    assert document["step"]["communication"]["expert"]["link"] == "between nodes"


# ------------------------------------------------------------------------------------------------ stages
@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(0, 40), st.sampled_from(["even", "ends"]))
def test_stages_know_how_many_of_their_layers_have_experts(p: int, v: int, size: int, dense: int, kind: str) -> None:
    v = 1 if p == 1 else v
    layers = p * v * size - (2 if kind == "ends" and p > 1 else 0)
    dense = min(dense, layers - 1)
    if layers < 2 or dense < 1:
        return
    run = with_model(mixture("mixtral-8x7b", p), small(layers=layers, dense_layers=dense))
    rule = "ends-one-fewer" if kind == "ends" else "even"
    run = dataclasses.replace(run, software=dataclasses.replace(run.software, stage_rule=rule))
    columns = {name: np.array([float(value)]) for name, value in (("pipeline", p), ("interleave", v))}
    ours = stages(run, columns)
    pieces = [*["dense"] * dense, *["mixture"] * (layers - dense)]
    if kind == "ends" and p > 1:
        pieces = ["table", *pieces, "table"]
    elif (layers % (p * v)) or (rule == "ends-one-fewer" and (layers + 2) % (p * v) == 0 and p > 1):
        return
    held = [[pieces[at] for at in range(len(pieces)) if at // size % p == stage] for stage in range(p)]
    real = [
        (stage_pieces.count("dense") + stage_pieces.count("mixture"), stage_pieces.count("mixture"), stage == 0,
         stage == p - 1)
        for stage, stage_pieces in enumerate(held)
    ]  # fmt: skip
    expected = {one: (real.index(one), real.count(one)) for one in real}
    found = {
        (int(ours.layers[0, at]), int(ours.mixture[0, at]), bool(ours.has_input[0, at]), bool(ours.has_head[0, at])): (
            int(ours.index[0, at]), int(ours.stands_for[0, at])
        )
        for at in range(ours.layers.shape[1]) if ours.stands_for[0, at] > 0
    }  # fmt: skip
    assert found == expected


# ------------------------------------------------------------------------------------------------ groups
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 4]), min_size=4, max_size=4), st.sampled_from([2, 4, 6, 8]),
    st.permutations(["tensor", "context", "data", "pipeline"]), st.integers(0, 10**6),
)  # fmt: skip
def test_expert_groups_are_cut_from_the_ranks_of_a_stage(
    degrees: list[int], node: int, order: list[str], draw: int
) -> None:
    at = dict(zip(("tensor", "context", "data", "pipeline"), degrees, strict=True))
    stage = at["tensor"] * at["context"] * at["data"]
    inside = 1
    for axis in order[: order.index("pipeline")]:
        inside *= at[axis]
    # groups that a pipeline in between cuts through the middle of are left out: programs refuse them
    fits = [
        (e, t) for t, e in itertools.product(range(1, stage + 1), repeat=2)
        if stage % (e * t) == 0 and all(inside % n == 0 or n % inside == 0 for n in (t, e * t))
    ]  # fmt: skip
    expert, expert_tensor = fits[draw % len(fits)]
    devices = stage * at["pipeline"]
    run = with_cluster(with_cluster(mixture("mixtral-8x7b", 8), devices=devices), "fabric", node_size=node)
    layout = Layout(**at, expert=expert, expert_tensor=expert_tensor)
    found = links(run, from_layout(layout, run), constants_for(run), tuple(order))

    numbered: dict[int, list[int]] = {}  # stage -> its devices in the order of the axes
    for device in range(devices):
        place, left = {}, device
        for axis in order:
            left, place[axis] = divmod(left, at[axis])
        numbered.setdefault(place["pipeline"], []).append(device)
    cut = {"expert_tensor": (1, expert_tensor), "expert": (expert_tensor, expert),
           "expert_data": (expert * expert_tensor, stage // (expert * expert_tensor))}  # fmt: skip
    for name, (stride, size) in cut.items():
        thin = []
        for ranks in numbered.values():
            for first in range(stage):
                if first // stride % size == 0:
                    homes = [ranks[first + stride * step] // node for step in range(size)]
                    thin += [min(homes.count(home) for home in homes)] if len(set(homes)) > 1 else []
        assert bool(found[name].crosses[0]) is bool(thin), name
        assert found[name].on_node[0] == (min(thin) if thin else size), name


def test_the_group_that_reduces_gradients_holds_context_ranks_too() -> None:
    run = mixture("llama-3-8b", 64)
    layout = Layout(data=4, context=4, pipeline=4, sharding="zero1")
    for order, near in ((("context", "data", "pipeline", "tensor"), 8), (("context", "pipeline", "data", "tensor"), 4)):
        found = links(run, from_layout(layout, run), constants_for(run), order)["data"]
        assert found.crosses[0] and found.on_node[0] == near


# ------------------------------------------------------------------------------------------------ legality
@pytest.mark.parametrize(
    ("preset", "layout", "code"),
    [
        ("llama-3-8b", {"data": 8, "expert": 2}, "no_experts"),
        ("mixtral-8x7b", {"data": 8, "expert": 3}, "experts"),
        ("mixtral-8x7b", {"data": 2, "pipeline": 4, "expert": 4}, "expert_fold"),
        ("mixtral-8x7b", {"data": 9, "expert_tensor": 9}, "expert_ffn"),
        ("mixtral-8x7b", {"data": 4, "tensor": 2, "expert": 8, "sequence_parallel": False}, "expert_tokens"),
        ("deepseek-v3", {"tensor": 3, "data": 1}, "shared_ffn"),
        ("llama-3-8b", {"context": 3, "data": 1}, "context"),
    ],
)
def test_what_experts_and_context_ranks_forbid(preset: str, layout: dict[str, int], code: str) -> None:
    one = Layout(**layout)
    run = with_layout(mixture(preset, one.devices, 72), **layout)
    assert {name for name, broken in violations(run, from_layout(one, run)).items() if broken.any()} >= {code}
    said = predict(run)["reasons"]
    assert said and all("{" not in sentence for sentence in said)


# ------------------------------------------------------------------------------------------------ the whole
LAYOUTS = [
    {"data": 16, "tensor": 2, "pipeline": 1, "context": 2, "expert": 8, "sharding": "zero1"},
    {"data": 8, "tensor": 2, "pipeline": 2, "context": 2, "expert": 4, "expert_tensor": 2, "sharding": "zero2"},
    {"data": 8, "tensor": 1, "pipeline": 4, "context": 2, "expert": 16, "sharding": "zero3", "recompute": "full"},
    {"data": 16, "tensor": 4, "pipeline": 1, "context": 1, "expert": 2, "expert_tensor": 4, "shard_group": 8,
     "sharding": "zero3"},
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dense", [0, 3])
def test_parts_add_up_and_one_layout_is_a_column(layout: dict[str, object], dense: int) -> None:
    run = with_model(mixture("mixtral-8x7b", 64), small(dense_layers=dense, shared_experts=1))
    document = predict(with_layout(run, **layout))
    assert document["legal"], document["reasons"]
    step, memory = document["step"], document["memory"]
    exposed = [axis["exposed_s"] for axis in step["communication"].values()]
    assert step["time_s"] == pytest.approx(step["compute_s"] + step["bubble_s"] + step["other_s"] + sum(exposed))
    for name, axis in step["communication"].items():
        assert 0 <= axis["exposed_s"] <= axis["total_s"] * (1 + 1e-12), name
    assert step["communication"]["expert"]["total_s"] > 0
    assert sum(memory["parts_gib"].values()) == pytest.approx(memory["peak_gib"])
    rows = [from_layout(Layout(**one), run) for one in LAYOUTS]
    columns = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    at = LAYOUTS.index(layout)
    together = evaluate(run, columns, run.software.order)
    assert float(together["time_s"][at]) == pytest.approx(step["time_s"], rel=1e-12)
    assert float(together["peak_bytes"][at]) / GIB == pytest.approx(memory["peak_gib"], rel=1e-12)
    back = to_layout(columns, at, run.software.order)
    assert (back.expert, back.expert_tensor, back.context) == tuple(
        layout.get(name, 1) for name in ("expert", "expert_tensor", "context")
    )


def test_tokens_beside_compute_show_less() -> None:
    run = with_layout(mixture("deepseek-v3", 512, 4096), data=64, tensor=1, pipeline=8, expert=64,
                      stage_layers=(8, 8, 8, 8, 8, 7, 7, 7))  # fmt: skip
    waits = predict(run)["step"]["communication"]["expert"]
    beside = dataclasses.replace(run, software=dataclasses.replace(run.software, overlap_expert=True))
    hides = predict(beside)["step"]["communication"]["expert"]
    assert waits["exposed_s"] == pytest.approx(waits["total_s"], rel=0.05)
    assert hides["total_s"] == pytest.approx(waits["total_s"])
    assert hides["exposed_s"] < waits["exposed_s"]


# ------------------------------------------------------------------------------------------------ published runs
def test_published_rows_with_experts_reach_a_prediction() -> None:
    by_id = {row["id"]: row for row in records.runs()}
    run = run_of(by_id["mbr-0276"])  # DeepSeek V3 on 1,024 H100: 61 layers on 32 chunks
    assert not isinstance(run, Skipped) and run.layout is not None
    assert (run.layout.expert, sum(run.layout.stage_layers or ())) == (64, 61)
    named = catalog.model("deepseek-v3")
    assert dataclasses.replace(run.model, name=named.name, router_bias=True) == named
    assert not isinstance(run_of(by_id["mbr-0039"]), Skipped)  # Llama 3.1 405B with 2 context ranks


def test_the_dense_examples_have_neither() -> None:
    document = predict(example("llama-3.1-405b-16384-h100"))
    for axis in ("context", "expert"):
        assert document["step"]["communication"][axis] == {"total_s": 0.0, "exposed_s": 0.0, "link": None}
