"""The ranking of a sweep is that of its layouts predicted one at a time; ties, simplest first; the proposal."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any

import pytest
from small_runs import MIXTURE, document, key, legal, placements, small, spellings

from course.answer import answer
from course.examples import names, path
from course.predict import predict
from course.problem import Layout, Run, load
from course.sweep import LEAST, MODEL_ERROR, MOST, search, sweep
from course.sweep.placement import NOTICED

RUNGS = ("none", "zero1", "zero2", "zero3")
AXES = ("tensor", "pipeline", "context", "expert", "expert_tensor")
BIG = "llama-3.1-405b-16384-h100"


@cache
def example(name: str) -> Run:
    return load(path(name))


@cache
def swept(name: str, top: int = 10) -> dict[str, Any]:
    return sweep(example(name), top=top)


def simplicity(layout: dict[str, Any]) -> tuple[int, ...]:
    """Fewest axes above 1 that split a replica, the smallest group of ranks on one micro-batch, the least sharding."""
    dense, experts = layout["tensor"] * layout["context"], layout["expert"] * layout["expert_tensor"]
    group = layout["pipeline"] * max(dense, experts)
    return sum(layout[axis] > 1 for axis in AXES), group, RUNGS.index(layout["sharding"])


# ------------------------------------------------------------------------------------------------ brute force
def best_placement(run: Run, layout: Layout) -> dict[str, Any] | None:
    """The fastest placement that fits; the plain one unless another is faster by more than what is noticed."""
    whole = layout.data * layout.context
    found = []
    for placed in placements(run, layout):
        one = document(run, placed)
        if one["memory"]["fits"]:
            plain = placed.shard_group == whole and placed.order == tuple(run.software.order)
            found.append((one["step"]["time_s"] * (1 if plain else 1 + NOTICED), placed, one))
    if not found:
        return None
    _, placed, one = min(found, key=lambda entry: entry[0])
    return {"layout": dataclasses.asdict(placed), "time": one["step"]["time_s"], "peak": one["memory"]["peak_gib"],
            "key": key(placed)}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": 4, "layers": 2, "batch": 2, "heads": 2, "node": 2, "hidden": 512},
        {"devices": 4, "layers": 2, "batch": 1, "heads": 2, "node": 2, "sequence_length": 8192, "hidden": 256},
        {"devices": 4, "layers": 2, "batch": 1, "heads": 2, "node": 2, "hidden": 256, "experts": MIXTURE},
        {"devices": 4, "layers": 1, "batch": 4, "heads": 2, "node": 2, "hidden": 2048, "ffn": 8192, "memory": "1.49e9"},
    ],
    ids=["dense", "context", "experts", "tight"],
)
def test_a_small_space_ranks_as_its_layouts_do_one_at_a_time(changes: dict[str, Any]) -> None:
    run = small(**changes)
    allowed = [layout for layout in spellings(run) if legal(run, layout)]
    alone = [entry for entry in (best_placement(run, layout) for layout in allowed) if entry is not None]
    found = search(run)
    assert (found.legal, found.fitting) == (len(allowed), len(alone))
    if "memory" in changes:
        assert 0 < found.fitting < found.legal == found.fitting + found.rejected["memory"]
    else:
        assert "memory" not in found.rejected
    best = min(entry["time"] for entry in alone)
    for entry in alone:
        entry["tied"] = entry["time"] <= best * (1 + MODEL_ERROR)
    alone.sort(
        key=lambda entry: (
            not entry["tied"], (*simplicity(entry["layout"]), entry["layout"]["interleave"]) if entry["tied"] else (),
            entry["time"], entry["peak"],
        )
    )  # fmt: skip
    assert found.ties == sum(entry["tied"] for entry in alone)
    times, peaks = found.values["time_s"].tolist(), found.values["peak_bytes"] / 2**30
    assert times == pytest.approx([entry["time"] for entry in alone], rel=1e-12)
    assert peaks.tolist() == pytest.approx([entry["peak"] for entry in alone], rel=1e-12)
    layouts = [found.layout(row) for row in range(found.fitting)]
    assert {key(layout) for layout in layouts} == {entry["key"] for entry in alone}
    # where no two are alike in time and memory, row by row the same layouts in the same places
    for row, (layout, entry) in enumerate(zip(layouts, alone, strict=True)):
        twins = [other for other in alone if abs(other["time"] - entry["time"]) <= 1e-12 * entry["time"]]
        if len(twins) == 1:
            assert key(layout) == entry["key"], row
        assert document(run, layout)["step"]["time_s"] == pytest.approx(times[row], rel=1e-12)


def test_a_placement_of_its_own_is_chosen_where_it_is_faster() -> None:
    found = search(small(devices=4, layers=2, batch=2, heads=2, node=2, hidden=256, sequence_length=8192))
    orders = {found.layout(row).order for row in range(found.fitting)}
    assert ("tensor", "context", "pipeline", "data") in orders and len(orders) > 1
    wide = search(example(BIG))
    assert (wide.columns["shard_group"] < wide.columns["data"] * wide.columns["context"]).any()


# ------------------------------------------------------------------------------------------------ ties
@pytest.mark.parametrize("name", names())
def test_near_ties_come_simplest_first_and_the_rest_by_time(name: str) -> None:
    run, found = example(name), swept(name, 400)
    layouts, ties = found["layouts"], found["ties"]
    times = [entry["step"]["time_s"] for entry in layouts]
    met = [entry["run"]["meets_goal"] is not False for entry in layouts]
    best = min(search(run).values["time_s"])
    near = [time <= best * (1 + MODEL_ERROR) for time in times]
    assert ties == list(range(len(ties)))
    assert ties == [row for row in range(len(times)) if near[row] and (met[row] or not any(met))]
    tied = [(*simplicity(entry["layout"]), entry["layout"]["interleave"], entry["step"]["time_s"])
            for entry in layouts[: len(ties)]]  # fmt: skip
    assert tied == sorted(tied)
    rest = times[len(ties) :]
    assert rest == sorted(rest)
    assert all(entry["memory"]["fits"] and entry["legal"] for entry in layouts)


def test_a_tie_that_misses_the_goal_stands_behind_those_that_meet_it() -> None:
    run = example("llama-2-70b-64-a100")
    days = sorted(entry["run"]["days"] for entry in swept("llama-2-70b-64-a100", 60)["layouts"])
    goal = dataclasses.replace(run.goal, days=days[2] * 1.0001, budget_accelerator_hours=None)
    found = sweep(dataclasses.replace(run, goal=goal), top=60)
    met = [entry["run"]["meets_goal"] for entry in found["layouts"]]
    assert 0 < len(found["ties"]) == met.count(True) < len(met)
    assert all(met[: len(found["ties"])])
    assert "that meet the goal" in found["ranked_by"] and "wall time" in found["ranked_by"]
    none = dataclasses.replace(run, goal=dataclasses.replace(goal, days=days[0] / 2))
    assert len(sweep(none, top=60)["ties"]) > len(found["ties"])  # where none meets it, it sorts nothing out


@pytest.mark.parametrize(
    ("goal", "words"),
    [("", "accelerator-hours, then time,"), ("[goal]\ndays = 3", "wall time,"),
     ("[goal]\nbudget_accelerator_hours = 3", "accelerator-hours,"),
     ("[goal]\ndays = 1\nprice_per_accelerator_hour = 2", "wall time and cost,")],
)  # fmt: skip
def test_the_rule_of_the_ranking_names_the_goal(goal: str, words: str) -> None:
    said = sweep(small(devices=2, rest=goal))["ranked_by"]
    assert said.startswith(words)
    assert f"{100 * MODEL_ERROR:g} %" in said


def test_the_documents_of_the_sweep_are_those_of_predict() -> None:
    run = example(BIG)
    for entry in swept(BIG)["layouts"][:3]:
        alone = predict(dataclasses.replace(run, layout=Layout(**entry["layout"])))
        for part in ("memory", "step", "mfu", "run", "flops_per_token", "micro_batches", "tokens_per_s"):
            assert alone[part] == entry[part]


def test_top_is_a_prefix_and_the_sweep_is_the_same_each_time() -> None:
    run = small(devices=4)
    whole, again, short = sweep(run, top=50), sweep(run, top=50), sweep(run, top=3)
    assert json.dumps(whole) == json.dumps(again)
    assert short["layouts"][:3] == whole["layouts"][:3]
    assert len(short["layouts"]) == len({*range(3), *search_proposal(run)})
    assert len(sweep(run, top=10**6)["layouts"]) == whole["fitting"]


def search_proposal(run: Run) -> list[int]:
    from course.sweep import proposal

    return proposal(search(run))


# ------------------------------------------------------------------------------------------------ proposal
def test_the_proposal_covers_different_ways_to_split_best_first() -> None:
    for name in names():
        found = swept(name)
        proposal, layouts = found["proposal"], found["layouts"]
        assert proposal == sorted(set(proposal))
        assert proposal[0] == 0
        assert LEAST <= len(proposal) <= MOST
        way = [
            tuple(entry["layout"][axis] for axis in ("tensor", "context", "pipeline", "expert", "sharding"))
            for entry in layouts
        ]
        assert len({way[place] for place in proposal}) == len(proposal)
        # the best of each way: none of the same way stands before it
        assert all(way.index(way[place]) == place for place in proposal)


def test_more_than_six_are_proposed_where_more_ways_tie() -> None:
    sizes = set()
    for name in names():
        found = search(example(name))
        ways = {
            tuple(float(found.columns[axis][row]) for axis in ("tensor", "context", "pipeline", "expert", "sharding"))
            for row in range(found.ties)
        }
        size = len(search_proposal(example(name)))
        assert size == max(LEAST, min(MOST, len(ways)))
        sizes.add(size)
    assert len(sizes) > 1, "every example proposes equally many, so the rule is not tested"


def test_few_layouts_are_all_proposed() -> None:
    run = dataclasses.replace(small(devices=2, batch=2), layout=Layout(data=2))
    found = sweep(run, fix=["tensor", "pipeline", "micro_batch", "recompute"])
    assert len(found["proposal"]) == found["fitting"] < LEAST


@pytest.mark.parametrize("top", [1, 4, 40])
def test_the_proposal_does_not_depend_on_how_many_are_shown(top: int) -> None:
    for name in ("llama-3-8b-8-h100", "llama-2-70b-64-a100"):
        found = swept(name, top)
        proposed = [{"layout": found["layouts"][place]["layout"]} for place in found["proposal"]]
        assert proposed == answer(example(name))["proposal"]
        whole = swept(name, 400)["layouts"]
        assert [entry for entry in whole if entry in found["layouts"]] == found["layouts"]  # whys, order and all


# ------------------------------------------------------------------------------------------------ pareto
def test_no_other_layout_beats_a_pareto_one_in_wall_time_and_hours() -> None:
    for name in names():
        found = swept(name, 40)
        points = [(entry["run"]["days"], entry["run"]["accelerator_hours"]) for entry in found["layouts"]]
        beaten = [
            place
            for place, (days, hours) in enumerate(points)
            if any(d <= days and h <= hours and (d < days or h < hours) for d, h in points)
        ]
        assert found["pareto"] == [place for place in range(len(points)) if place not in beaten]
        assert found["pareto"]
