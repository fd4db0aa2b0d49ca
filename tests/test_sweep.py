"""A sweep finds exactly the legal layouts, ranks them as it says, and its reasons are true."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from functools import cache
from typing import Any

import pytest

from course.answer import answer
from course.errors import UserError
from course.examples import names, path
from course.predict import predict
from course.predict.columns import to_layout
from course.problem import Layout, Run, load, loads
from course.stops import stops, with_devices
from course.sweep import MOST_CANDIDATES, PROPOSED, TIE, search, sweep
from course.sweep.search import LARGEST_MICRO_BATCH, LARGEST_TENSOR, MOST_CHUNKS

SMALL = """
[model]
layers = {layers}
hidden = 64
heads = {heads}
kv_heads = {kv_heads}
ffn = 96
vocabulary = 1000
[training]
tokens = 1e9
sequence_length = 96
global_batch_sequences = {batch}
[software]
recipe = "{recipe}"
[cluster]
peak_flops_per_s = 1e14
memory_bytes = {memory}
memory_bytes_per_s = 1e12
node_size = 4
scale_up_bytes_per_s = 1e11
scale_out_bytes_per_s = 1e10
devices = {devices}
{rest}
"""
DEFAULTS = {"layers": 6, "heads": 4, "kv_heads": 2, "batch": 24, "recipe": "megatron", "memory": "1e12", "devices": 12}


def small(**changes: Any) -> Run:
    return loads(SMALL.format(**{**DEFAULTS, "rest": "", **changes}))


@cache
def example(name: str) -> Run:
    return load(path(name))


@cache
def swept(name: str) -> dict[str, Any]:
    return sweep(example(name))


# ------------------------------------------------------------------------------------------------ legality
AXES = ("data", "tensor", "pipeline", "interleave", "micro_batch", "sharding", "recompute", "schedule")


def legal_layouts(run: Run) -> set[tuple[Any, ...]]:
    """All legal layouts by plain rules, one spelling of each: written from the rules' meaning, not from the code."""
    model, batch, devices = run.model, run.training.global_batch_sequences, run.cluster.devices
    recipe = run.software.recipe
    recomputes = ("none", "full") if run.software.flash_attention else ("none", "selective", "full")
    found = set()
    for tensor, pipeline in itertools.product(range(1, 65), range(1, model.layers + 3)):
        if devices % (tensor * pipeline):
            continue
        data = devices // (tensor * pipeline)
        if model.heads % tensor or model.kv_heads % tensor or model.ffn % tensor:
            continue
        if tensor > 1 and run.training.sequence_length % tensor:
            continue
        for micro, chunks in itertools.product(range(1, LARGEST_MICRO_BATCH + 1), range(1, MOST_CHUNKS + 1)):
            if batch % micro or batch % (data * micro):
                continue
            steps = batch // (data * micro)
            if chunks > 1 and (pipeline == 1 or (recipe.startswith("megatron") and steps % pipeline)):
                continue
            parts = pipeline * chunks
            even = model.layers % parts == 0 or (model.layers + 2) % parts == 0
            if not even and not (recipe == "nanotron-2025" and chunks == 1 and pipeline <= model.layers):
                continue
            if recipe == "nanotron-2025" and pipeline > 1 and steps < pipeline - 1:
                continue
            schedules = ("interleaved",) if chunks > 1 else ("1f1b",) if pipeline == 1 else ("gpipe", "1f1b")
            shardings = ("none", "zero1", "zero2", "zero3") if data > 1 else ("none",)
            for tail in itertools.product(shardings, recomputes, schedules):
                found.add((data, tensor, pipeline, chunks, micro, *tail))
    return found


@pytest.mark.parametrize(
    "changes",
    [{}, {"devices": 8, "layers": 8, "kv_heads": 4}, {"devices": 6, "layers": 4, "recipe": "megatron-2021"},
     {"devices": 16, "layers": 14, "batch": 32}, {"devices": 1}, {"devices": 7, "batch": 14},
     {"devices": 12, "layers": 7, "recipe": "nanotron-2025", "batch": 12}, {"devices": 4, "heads": 16, "kv_heads": 1}],
    ids=str,
)  # fmt: skip
def test_the_search_finds_exactly_the_legal_layouts(changes: dict[str, Any]) -> None:
    run = small(**changes)
    found = search(run)
    assert found.legal == found.fitting  # a terabyte holds every one
    layouts = [to_layout(found.columns, row, found.order) for row in range(found.fitting)]
    ours = [tuple(getattr(layout, axis) for axis in AXES) for layout in layouts]
    assert len(set(ours)) == len(ours)
    assert set(ours) == legal_layouts(run)


def test_every_legal_layout_is_legal_for_predict_and_every_rejection_is_counted() -> None:
    run = small()
    found = search(run)
    for row in range(0, found.fitting, 7):
        assert predict(dataclasses.replace(run, layout=to_layout(found.columns, row, found.order)))["legal"]
    assert found.candidates == found.fitting + sum(found.rejected.values())


@pytest.mark.parametrize(
    ("layout", "word"),
    [({"data": 5}, "must equal the 12 devices"), ({"data": 4, "tensor": 3}, "heads do not split"),
     ({"data": 12, "micro_batch": 4}, "does not split into micro-batches"),
     ({"data": 3, "pipeline": 4, "schedule": "interleaved", "interleave": 3},
      "do not spread over 4 stages of 3 chunks"),
     ({"data": 12, "shard_group": 5, "sharding": "zero1"}, "a shard group of 5 does not divide"),
     ({"data": 4, "pipeline": 3, "schedule": "interleaved", "interleave": 2, "micro_batch": 3},
      "no multiple of 3 stages")],
)  # fmt: skip
def test_an_illegal_layout_says_which_rule(layout: dict[str, Any], word: str) -> None:
    document = predict(dataclasses.replace(small(), layout=Layout(**layout)))
    assert document["legal"] is False
    assert any(word in reason for reason in document["reasons"]), document["reasons"]


def test_too_few_micro_batches_say_how_many_it_takes() -> None:
    run = small(recipe="nanotron-2025", batch=12)
    document = predict(dataclasses.replace(run, layout=Layout(data=2, pipeline=6, micro_batch=3)))
    assert document["reasons"] == ["2 micro-batches are fewer than the 5 with which nanotron-2025 starts 6 stages"]


# ------------------------------------------------------------------------------------------------ ranking
def simplicity(document: dict[str, Any]) -> tuple[float, ...]:
    layout = document["layout"]
    axes = sum(layout[name] > 1 for name in ("data", "tensor", "pipeline", "context"))
    rung = ("none", "zero1", "zero2", "zero3").index(layout["sharding"])
    return axes, layout["tensor"] * layout["pipeline"], rung, layout["interleave"], document["step"]["time_s"]


@pytest.mark.parametrize("name", names())
def test_near_ties_come_simplest_first_and_the_rest_by_time(name: str) -> None:
    document = sweep(example(name), top=400)
    layouts, ties = document["layouts"], document["ties"]
    times = [entry["step"]["time_s"] for entry in layouts]
    best = min(times)
    assert ties == [place for place, time in enumerate(times) if time <= best * (1 + TIE)]
    assert ties == list(range(len(ties)))
    tied = [simplicity(entry) for entry in layouts[: len(ties)]]
    assert tied == sorted(tied)
    assert times[len(ties) :] == sorted(times[len(ties) :])
    assert all(entry["memory"]["fits"] and entry["legal"] for entry in layouts)


def test_the_documents_of_the_sweep_are_those_of_predict() -> None:
    run = example("llama-3.1-405b-16384-h100")
    for entry in swept("llama-3.1-405b-16384-h100")["layouts"][:3]:
        alone = predict(dataclasses.replace(run, layout=Layout(**entry["layout"])))
        for key in ("memory", "step", "mfu", "run", "flops_per_token", "micro_batches", "tokens_per_s"):
            assert alone[key] == entry[key]


def test_top_is_a_prefix_and_the_sweep_is_the_same_each_time() -> None:
    run = small()
    whole, again, short = sweep(run, top=50), sweep(run, top=50), sweep(run, top=3)
    assert json.dumps(whole) == json.dumps(again)
    assert short["layouts"][:3] == whole["layouts"][:3]
    assert len(short["layouts"]) == len({*range(3), *whole["proposal"]})
    assert len(sweep(run, top=10**6)["layouts"]) == whole["fitting"]


def test_the_proposal_covers_different_ways_to_split_best_first() -> None:
    for name in names():
        document = swept(name)
        proposal, layouts = document["proposal"], document["layouts"]
        assert proposal == sorted(set(proposal))
        assert proposal[0] == 0
        assert len(proposal) == min(PROPOSED, len(layouts))
        way = [tuple(entry["layout"][axis] for axis in ("tensor", "pipeline", "sharding")) for entry in layouts]
        assert len({way[place] for place in proposal}) == min(PROPOSED, len(set(way)))


@pytest.mark.parametrize("top", [1, 4, 40])
def test_the_proposal_does_not_depend_on_how_many_are_shown(top: int) -> None:
    for name in ("llama-3-8b-8-h100", "llama-2-70b-64-a100"):
        document = sweep(example(name), top=top)
        proposed = [{"layout": document["layouts"][place]["layout"]} for place in document["proposal"]]
        assert proposed == answer(example(name))["proposal"]
        whole = sweep(example(name), top=400)["layouts"]
        assert [entry for entry in whole if entry in document["layouts"]] == document["layouts"]  # whys, order and all


def test_no_other_shown_layout_beats_a_pareto_one_in_time_and_memory() -> None:
    document = sweep(example("llama-3-8b-8-h100"), top=40)
    points = [(entry["step"]["time_s"], entry["memory"]["peak_gib"]) for entry in document["layouts"]]
    beaten = [
        place
        for place, (time, peak) in enumerate(points)
        if any(t <= time and p <= peak and (t < time or p < peak) for t, p in points)
    ]
    assert document["pareto"] == [place for place in range(len(points)) if place not in beaten]
    assert len(document["pareto"]) > 1


# ------------------------------------------------------------------------------------------------ fix
@pytest.mark.parametrize(
    ("field", "value"),
    [("data", 6), ("tensor", 2), ("pipeline", 2), ("sharding", "zero2"), ("micro_batch", 2), ("recompute", "full"),
     ("schedule", "gpipe"), ("interleave", 3), ("shard_group", 3), ("sequence_parallel", False),
     ("order", ("data", "tensor", "context", "pipeline"))],
)  # fmt: skip
def test_a_fixed_field_holds(field: str, value: Any) -> None:
    written = {"schedule": "interleaved", "interleave": value} if field == "interleave" else {field: value}
    layout = Layout(**{"pipeline": 2, "tensor": 2, "data": 3, "sharding": "zero1", **written})
    run = dataclasses.replace(small(), layout=layout)
    document = sweep(run, fix=[field], top=1000)
    held = {json.dumps(entry["layout"][field]) for entry in document["layouts"]}
    assert document["fitting"] > 0
    if field == "sequence_parallel":
        assert held == {"false"}
    else:
        assert held == {json.dumps(value)}


def test_fixing_everything_leaves_one_layout() -> None:
    layout = Layout(data=3, tensor=2, pipeline=2, sharding="zero1", micro_batch=2)
    run = dataclasses.replace(small(), layout=layout)
    document = sweep(
        run, fix=["data", "tensor", "pipeline", "sharding", "micro_batch", "recompute", "schedule", "interleave"]
    )
    assert (document["candidates"], document["fitting"]) == (1, 1)
    assert document["layouts"][0]["step"] == predict(run)["step"]


@pytest.mark.parametrize(
    ("layout", "fix", "words"),
    [(None, ["tensor"], ["has none"]), (Layout(), ["tensr"], ["tensr", "nearest name is tensor"]),
     (Layout(), ["stage_layers"], ["Fix pipeline instead"]), (Layout(), [""], ["no such field"])],
)  # fmt: skip
def test_what_cannot_be_fixed_is_a_sentence(layout: Layout | None, fix: list[str], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        sweep(dataclasses.replace(small(), layout=layout), fix=fix)
    for word in words:
        assert word in str(caught.value)


# ------------------------------------------------------------------------------------------------ nothing, too much
def test_nothing_fits() -> None:
    document = sweep(small(memory="2e6"))
    assert (document["fitting"], document["last_constraint"], document["layouts"]) == (0, "memory", [])
    assert document["rejected"]["memory"] == document["legal"] > 0
    assert document["ties"] == document["pareto"] == document["proposal"] == []
    assert document["stops"]["deadline_devices"] is None


@pytest.mark.parametrize(
    ("changes", "layout", "fix", "last"),
    [({"devices": 11, "batch": 1}, None, [], "batch"),
     ({"devices": 7, "batch": 1}, None, [], "layers"), ({}, Layout(tensor=5), ["tensor"], "devices"),
     ({}, Layout(tensor=4, data=3), ["tensor"], "kv_heads"),
     ({"layers": 7}, Layout(pipeline=6, data=2), ["pipeline"], "layers"),
     ({}, Layout(pipeline=3, data=4, schedule="interleaved", interleave=2, micro_batch=6),
      ["pipeline", "tensor", "interleave", "micro_batch"], "rounds")],
)  # fmt: skip
def test_the_last_constraint_is_the_rule_that_took_the_last_candidate(
    changes: dict[str, Any], layout: Layout | None, fix: list[str], last: str
) -> None:
    document = sweep(dataclasses.replace(small(**changes), layout=layout), fix=fix)
    assert document["legal"] == 0
    assert document["last_constraint"] == last, document["rejected"]


def test_a_search_that_is_too_large_says_so_and_what_to_do() -> None:
    run = small(devices=720720, batch=720720, recipe="megatron-2021")
    many = {"layers": 998, "dense_layers": 998, "heads": 55440, "kv_heads": 55440, "head_size": 1}
    whole = dataclasses.replace(run, model=dataclasses.replace(run.model, **many))
    with pytest.raises(UserError) as caught:
        sweep(whole)
    said = str(caught.value)
    assert f"more than {MOST_CANDIDATES:,}" in said
    assert "--fix" in said
    fixed = dataclasses.replace(whole, layout=Layout(tensor=1, micro_batch=1))
    assert sweep(fixed, fix=["tensor", "micro_batch", "sharding"])["candidates"] < MOST_CANDIDATES


def test_the_bounds_of_the_search_are_those_it_says() -> None:
    assert (LARGEST_TENSOR, MOST_CHUNKS, LARGEST_MICRO_BATCH) == (64, 16, 16)


# ------------------------------------------------------------------------------------------------ reasons
def test_every_axis_above_one_has_its_reason() -> None:
    for name in names():
        for entry in swept(name)["layouts"]:
            layout, why = entry["layout"], entry["why"]
            above = {axis for axis in ("data", "tensor", "pipeline", "interleave", "micro_batch") if layout[axis] > 1}
            above |= {axis for axis in ("sharding", "recompute") if layout[axis] != "none"}
            assert set(why) == above
            assert all(re.match(r"(fit|speed|legality|no gain): ", reason) for reason in why.values())


def test_a_reason_by_sharding_is_true_of_the_same_layout_one_rung_lower() -> None:
    rungs = ("none", "zero1", "zero2", "zero3")
    kinds = set()
    for name in names():
        run = example(name)
        for entry in swept(name)["layouts"][:5]:
            if "sharding" not in entry["why"]:
                continue
            lower = rungs[rungs.index(entry["layout"]["sharding"]) - 1]
            same = predict(dataclasses.replace(run, layout=Layout(**{**entry["layout"], "sharding": lower})))
            kind = entry["why"]["sharding"].partition(":")[0]
            kinds.add(kind)
            slower = same["step"]["time_s"] > entry["step"]["time_s"] * 1.005
            assert kind == ("fit" if not same["memory"]["fits"] else "speed" if slower else "no gain")
            assert f"{same['memory']['peak_gib']:.1f}" in entry["why"]["sharding"] or kind == "speed"
    assert {"fit", "no gain"} <= kinds


def test_the_best_on_lower_rungs_is_that_of_searches_on_each() -> None:
    run, entry = example("llama-2-70b-64-a100"), swept("llama-2-70b-64-a100")["layouts"][0]
    assert entry["layout"]["sharding"] == "zero3"
    best = math.inf
    for rung in ("none", "zero1", "zero2"):
        found = search(dataclasses.replace(run, layout=Layout(data=64, sharding=rung)), fix=["sharding"])
        best = min(best, float(found.values["time_s"].min(initial=math.inf)))
    assert entry["why"]["sharding"].endswith(f"the best that fits there or below takes {best:.4g} s")


@pytest.mark.parametrize("name", ["llama-3.1-405b-16384-h100", "llama-2-70b-64-a100"])
@pytest.mark.parametrize("axis", ["tensor", "pipeline"])
def test_a_reason_by_degree_is_the_best_that_a_search_without_it_finds(name: str, axis: str) -> None:
    run, entry = example(name), swept(name)["layouts"][0]
    without = search(dataclasses.replace(run, layout=Layout(**{axis: 1})), fix=[axis])
    if axis not in entry["why"]:
        assert entry["layout"][axis] == 1
        return
    best = float(without.values["time_s"].min()) if without.fitting else math.inf
    reason = entry["why"][axis]
    assert reason.startswith("speed: " if best > entry["step"]["time_s"] * 1.005 else "no gain: ")
    assert f"{best:.4g} s a step" in reason


def test_fit_is_the_reason_where_nothing_fits_without_the_axis() -> None:
    """70 billion parameters at 18 bytes, nothing sharded: 16 stages alone leave 77 GiB of state a device."""
    run = dataclasses.replace(example("llama-2-70b-64-a100"), layout=Layout())
    document = sweep(run, fix=["sharding"])
    why = document["layouts"][0]["why"]
    without = search(dataclasses.replace(run, layout=Layout(tensor=1)), fix=["sharding", "tensor"])
    assert without.legal > without.fitting == 0
    least = without.best["tensor"][1].peak_bytes / 2**30
    assert why["tensor"].startswith(f"fit: without it the smallest needs {least:.1f} of 79.2 GiB")


# ------------------------------------------------------------------------------------------------ when to stop
def test_stops_are_those_of_sweeps_on_each_count() -> None:
    name = "llama-3.1-405b-8192-h100"
    run, document = example(name), swept(name)
    counts = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    best = {}
    for count in counts:
        found = search(with_devices(run, count))
        if found.fitting:
            place = int(found.values["time_s"].argmin())
            best[count] = (float(found.values["time_s"][place]), float(found.values["compute_s"][place]))
    days = {
        n: time * run.training.tokens / run.training.tokens_per_step / 0.95 / 86400 for n, (time, _) in best.items()
    }
    assert document["stops"]["deadline_devices"] == min(n for n in best if days[n] <= run.goal.days)
    slower = [n for n in counts if n in best and 2 * n in best and best[2 * n][0] > best[n][0]]
    assert document["stops"]["break_even_devices"] == (slower[0] if slower else None)


def test_a_doubling_beyond_what_a_cluster_can_be_is_no_error() -> None:
    run = small(devices=10_000_000, batch=10_000_000, rest="[goal]\ndays = 1e6")
    assert stops(run, lambda _: (1.0, 1.0))["break_even_devices"] is None


def test_no_goal_no_deadline() -> None:
    assert sweep(small())["stops"]["deadline_devices"] is None
