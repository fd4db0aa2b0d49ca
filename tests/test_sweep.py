"""A sweep looks at exactly the legal layouts, holds what it is told to, and says why where it finds nothing."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import math
import re
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from small_runs import MIXTURE, document, key, legal, small, spellings

from course.errors import UserError
from course.examples import names, path
from course.legality import RULES
from course.predict import predict
from course.problem import Layout, Run, load
from course.sweep import MOST_CANDIDATES, across_devices, search, space, sweep
from course.sweep.advice import CHANGES, advice
from course.sweep.axes import FEWEST_TOKENS, LARGEST_CONTEXT, LARGEST_MICRO_BATCH, LARGEST_TENSOR, MOST_CHUNKS, axes

MODULE = importlib.import_module("course.sweep.search")  # the package has a function of the same name


@cache
def example(name: str) -> Run:
    return load(path(name))


@cache
def swept(name: str) -> dict[str, Any]:
    return sweep(example(name))


# ------------------------------------------------------------------------------------------------ legality
@pytest.mark.parametrize(
    "changes",
    [{"devices": 6, "layers": 4, "batch": 2, "recipe": "megatron-2021"}, {"devices": 8, "layers": 6, "batch": 2},
     {"devices": 1}, {"devices": 7, "batch": 14, "layers": 5}, {"devices": 4, "heads": 16, "kv_heads": 1, "batch": 4},
     {"devices": 6, "layers": 3, "recipe": "nanotron-2025", "batch": 6},
     {"devices": 4, "layers": 2, "batch": 2, "sequence_length": 16384},
     {"devices": 4, "layers": 2, "batch": 2, "experts": MIXTURE}],
    ids=str,
)  # fmt: skip
def test_the_search_finds_exactly_the_legal_layouts(changes: dict[str, Any]) -> None:
    run = small(**changes)
    found = search(run)
    assert found.legal == found.fitting  # a terabyte holds every one
    ours = [key(found.layout(row)) for row in range(found.fitting)]
    assert len(set(ours)) == len(ours)
    assert set(ours) == {key(layout) for layout in spellings(run) if legal(run, layout)}


@pytest.mark.parametrize("changes", [{}, {"devices": 8, "memory": "1.05e9"}, {"devices": 4, "experts": MIXTURE}])
def test_rejections_add_up_and_what_is_left_is_legal(changes: dict[str, Any]) -> None:
    run = small(**changes)
    found = search(run)
    assert found.candidates == found.fitting + sum(found.rejected.values())
    assert found.legal == found.fitting + found.rejected.get("memory", 0)
    for row in range(0, found.fitting, max(1, found.fitting // 20)):
        one = document(run, found.layout(row))
        assert one["legal"] and one["memory"]["fits"]


def test_candidates_are_the_whole_product_of_the_axes() -> None:
    """Two devices, two layers, heads that do not split three ways: counted by hand.

    tensor x pipeline x context: (1,1), (2,1), (1,2), (2,2); micro-batch 1, 2; one stage has 1F1B, two have GPipe, 1F1B
    and 2 chunks; recomputation none, full; (1,1) has 2 replicas and so 4 shardings, (2,2) breaks the device rule; a
    tensor group has sequence parallelism or not.
    """
    found = search(small(devices=2, layers=2, batch=2))
    single, tensor, stages, both = 2 * 1 * 4 * 2, 2 * 1 * 1 * 2 * 2, 2 * 3 * 1 * 2, 2 * 3 * 1 * 2 * 2
    assert found.candidates == single + tensor + stages + both
    assert found.rejected["devices"] == both


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = small(devices=8, memory="1.02e9")
    whole = search(run)
    monkeypatch.setattr(MODULE, "BLOCK", 50)
    parts = search(run)
    assert whole.rejected == parts.rejected and whole.best == parts.best
    assert [whole.layout(row) for row in range(whole.fitting)] == [parts.layout(row) for row in range(parts.fitting)]


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
    one = predict(dataclasses.replace(small(), layout=Layout(**layout)))
    assert one["legal"] is False
    assert any(word in reason for reason in one["reasons"]), one["reasons"]


def test_too_few_micro_batches_say_how_many_it_takes() -> None:
    run = small(recipe="nanotron-2025", batch=12)
    one = predict(dataclasses.replace(run, layout=Layout(data=2, pipeline=6, micro_batch=3)))
    assert one["reasons"] == ["2 micro-batches are fewer than the 5 with which nanotron-2025 starts 6 stages"]


# ------------------------------------------------------------------------------------------------ fix
@pytest.mark.parametrize(
    ("field", "value"),
    [("data", 6), ("tensor", 2), ("pipeline", 2), ("sharding", "zero2"), ("micro_batch", 2), ("recompute", "full"),
     ("schedule", "gpipe"), ("interleave", 3), ("shard_group", 3), ("sequence_parallel", False), ("context", 2),
     ("order", ("data", "tensor", "context", "pipeline"))],
)  # fmt: skip
def test_a_fixed_field_holds(field: str, value: Any) -> None:
    written = {"schedule": "interleaved", "interleave": value} if field == "interleave" else {field: value}
    layout = Layout(**{"pipeline": 2, "tensor": 2, "data": 3, "sharding": "zero1", **written})
    run = dataclasses.replace(small(), layout=layout)
    found = sweep(run, fix=[field], top=1000)
    held = {json.dumps(entry["layout"][field]) for entry in found["layouts"]}
    assert found["fitting"] > 0
    if field == "sequence_parallel":
        assert held == {"false"}
    else:
        assert held == {json.dumps(value)}


def test_fixing_everything_leaves_one_layout() -> None:
    layout = Layout(data=3, tensor=2, pipeline=2, sharding="zero1", micro_batch=2)
    run = dataclasses.replace(small(), layout=layout)
    found = sweep(
        run,
        fix=[
            "data",
            "tensor",
            "pipeline",
            "sharding",
            "micro_batch",
            "recompute",
            "schedule",
            "interleave",
            "context",
            "sequence_parallel",
            "shard_group",
            "order",
        ],
    )
    assert (found["candidates"], found["fitting"]) == (1, 1)
    assert found["layouts"][0]["step"] == predict(run)["step"]


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
    run = small(memory="2e6")
    found = sweep(run)
    assert (found["fitting"], found["last_constraint"], found["layouts"]) == (0, "memory", [])
    assert found["rejected"]["memory"] == found["legal"] > 0
    assert found["ties"] == found["pareto"] == found["proposal"] == []
    assert found["stops"]["deadline_devices"] is None


LAST = [
    ({"devices": 11, "batch": 1}, None, [], "batch", "global_batch_sequences = 11"),
    ({"devices": 7, "batch": 1}, None, [], "layers", "pipeline x interleave"),
    ({}, Layout(tensor=5), ["tensor"], "devices", "whose product divides the 12 devices"),
    ({}, Layout(tensor=4, data=3), ["tensor"], "kv_heads", "divides the 2 key/value heads"),
    ({"sequence_length": 90}, Layout(data=1, context=12), ["context"], "context", "multiple of 2 x context"),
    ({"layers": 7}, Layout(pipeline=6, data=2), ["pipeline"], "layers", "divides the 7 layers or 7 + 2"),
    ({}, Layout(pipeline=3, data=4, schedule="interleaved", interleave=2, micro_batch=6),
     ["pipeline", "tensor", "interleave", "micro_batch"], "rounds", "More micro-batches help"),
    ({"devices": 1}, Layout(schedule="interleaved", interleave=2), ["interleave"], "interleave", "or neither"),
    ({"devices": 1}, Layout(schedule="zero-bubble"), ["schedule"], "split_backward", "Hold pipeline above 1"),
    ({}, Layout(data=12, shard_group=5), ["shard_group"], "shard_group", "divides data x context"),
    ({}, Layout(data=6, expert=2), ["expert"], "no_experts", "Leave expert and expert_tensor at 1"),
    ({"memory": "1.0e9"}, None, [], "memory", "The smallest legal layout"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "layout", "fix", "last", "change"), LAST)
def test_the_last_constraint_took_the_last_candidate_and_the_change_is_named(
    changes: dict[str, Any], layout: Layout | None, fix: list[str], last: str, change: str
) -> None:
    run = dataclasses.replace(small(**changes), layout=layout)
    found = search(run, fix)
    assert found.fitting == 0
    assert found.last_constraint == last, found.rejected
    assert found.candidates == sum(found.rejected.values())
    said = " ".join(advice(run, found, fix))
    assert f"`{last}`" in said
    assert change in said, said
    assert advice(small(devices=2), search(small(devices=2))) == []


def test_the_named_change_helps() -> None:
    """Following the advice finds layouts: the global batch it names, the devices it names, the field it lets go."""
    assert search(small(devices=11, batch=11)).fitting
    tight = {"devices": 2, "batch": 8, "memory": "1.3e9", "hidden": 1024, "ffn": 4096}
    found = search(small(**tight))
    said = " ".join(advice(small(**tight), found, (), across_devices(small(**tight))))
    devices = re.search(r"devices = (\d+)", said)
    assert found.last_constraint == "memory" and devices is not None, said
    assert search(small(**{**tight, "devices": int(devices[1])})).fitting
    assert not search(small(**{**tight, "devices": int(devices[1]) // 2})).fitting
    held = dataclasses.replace(small(), layout=Layout(tensor=4, data=3))
    said = " ".join(advice(held, search(held, ["tensor"]), ["tensor"]))
    left = re.search(r"Without --fix tensor ([\d,]+) layouts are left", said)
    assert left is not None and int(left[1].replace(",", "")) == search(small()).fitting


def test_every_rule_has_a_change() -> None:
    assert set(CHANGES) == set(RULES)


def test_a_search_that_is_too_large_says_so_before_it_starts_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    run = dataclasses.replace(small(), layout=Layout(tensor=1, micro_batch=1))
    size = space.space(run, axes(run)).size

    def evaluated(*_: Any) -> None:
        raise AssertionError("a layout was evaluated")

    monkeypatch.setattr(MODULE, "memory", evaluated)
    monkeypatch.setattr(space, "MOST_CANDIDATES", size - 1)
    with pytest.raises(UserError) as caught:
        search(run)
    said = str(caught.value)
    assert f"This search has {size:,} candidates, more than the {size - 1:,}" in said and "was not started" in said
    field = re.search(r"--fix (\w+) leaves", said)
    assert field is not None
    assert space.space(run, axes(run, [field[1]])).size < size / 2
    monkeypatch.setattr(space, "MOST_CANDIDATES", 3)  # a space whose degrees alone are too many is not combined further
    with pytest.raises(UserError, match="was not started"):
        search(run)
    assert MOST_CANDIDATES >= 1_000_000


def test_the_bounds_of_the_search_are_those_it_says() -> None:
    assert (LARGEST_TENSOR, MOST_CHUNKS, LARGEST_MICRO_BATCH, LARGEST_CONTEXT) == (64, 16, 16, 64)
    rows = csv.DictReader(files("course.records").joinpath("runs.csv").read_text(encoding="utf-8").splitlines())
    split = [row for row in rows if row["cp"] and row["seq_len"] and float(row["cp"]) > 1]
    kept = [float(row["seq_len"]) / float(row["cp"]) for row in split]
    assert min(kept) == FEWEST_TOKENS


# ------------------------------------------------------------------------------------------------ reasons
def test_every_axis_above_one_has_its_reason() -> None:
    for name in names():
        for entry in swept(name)["layouts"]:
            layout, why = entry["layout"], entry["why"]
            degrees = ("data", "tensor", "pipeline", "context", "expert", "expert_tensor", "interleave", "micro_batch")
            above = {axis for axis in degrees if layout[axis] > 1}
            above |= {axis for axis in ("sharding", "recompute") if layout[axis] != "none"}
            if layout["shard_group"] != layout["data"] * layout["context"] and layout["sharding"] != "none":
                above.add("shard_group")
            if layout["order"] != example(name).software.order:
                above.add("order")
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
    rungs = ("none", "zero1", "zero2", "zero3")
    lower = rungs[: rungs.index(entry["layout"]["sharding"])]
    assert lower, "the first layout shards nothing, so nothing is tested"
    best = math.inf
    for rung in lower:
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
    found = sweep(run, fix=["sharding"])
    why = found["layouts"][0]["why"]
    without = search(dataclasses.replace(run, layout=Layout(tensor=1)), fix=["sharding", "tensor"])
    assert without.legal > without.fitting == 0
    least = without.best["tensor"][1].peak_bytes / 2**30
    assert why["tensor"].startswith(f"fit: without it the smallest needs {least:.1f} of 79.2 GiB")
