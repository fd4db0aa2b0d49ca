"""One large plan, swept and answered: what is printed can be copied, reasons are true, goals out of reach are said."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from functools import cache
from typing import Any

import pytest

from course.answer import Facts, answer_from, gather
from course.answer.goals import impossible, least_accelerator_hours
from course.answer.published import above_published, highest_mfu
from course.commands import _text
from course.errors import UserError
from course.examples import path
from course.predict import predict
from course.predict.groups import fewest_on_a_node
from course.problem import Goal, Layout, Measured, Run, load, loads
from course.stops import with_devices
from course.sweep import described, search
from course.sweep.why import whys

QUESTION = """
model.preset = "llama-3.1-405b"
training = {tokens = 15.6e12, sequence_length = 8192, global_batch_sequences = 512}
cluster = {accelerator = "h100-sxm", devices = 1024, fabric = "h100-ib400"}
goal = {days = 50, budget_accelerator_hours = 1e6}
"""


@cache
def facts() -> Facts:
    return gather(loads(QUESTION))


@cache
def small() -> Run:
    """Two layers of Llama 3 8B, which fit on a device whatever is sharded."""
    run = load(path("llama-3-8b-8-h100"))
    return dataclasses.replace(run, model=dataclasses.replace(run.model, layers=2, dense_layers=2, vocabulary=32000))


def reason(found: Facts, name: str) -> str:
    return next(str(step["reason"]) for step in answer_from(found)["steps"] if step["name"] == name)


def value(name: str, written: str) -> str:
    """A cell of the table as a run file has it."""
    written = written.strip()
    if name == "sharding":
        return {"nothing sharded": '"none"'}.get(written, '"' + written.lower().replace("-", "") + '"')
    if name == "order":
        return "[" + ", ".join(f'"{axis}"' for axis in written.split(", ")) + "]"
    return {"yes": "true", "no": "false"}.get(written) or (
        written.replace(",", "") if written[0].isdigit() else f'"{written}"'
    )


FIELDS = (
    "data", "tensor", "pipeline", "context", "expert", "expert-tensor", "schedule", "interleave", "micro-batch",
    "sharding", "shard-group", "recomputation", "sequence-parallel", "order",
)  # fmt: skip


def copied(run: Run, layout: dict[str, Any], document: dict[str, Any]) -> str:
    """The lines of a layout as a reader copies them from the table, in a run file's spelling."""
    lines = []
    for line in _text.compared([("recommended", layout, document)], run.software.order).splitlines()[1:]:
        name, _, written = line.strip().partition("  ")
        if line.strip().startswith("order, recommended: "):
            name, written = "order", line.partition(": ")[2]
        if name in FIELDS:
            field = {"recomputation": "recompute"}.get(name, name.replace("-", "_"))
            lines.append(f"layout.{field} = {value(field, written)}")
    return "\n".join(lines)


def test_the_table_of_a_layout_can_be_copied() -> None:
    for entry in facts().swept["layouts"]:
        run = loads(QUESTION + copied(facts().run, entry["layout"], entry))
        assert predict(run)["step"] == entry["step"]


def test_the_table_holds_every_field_that_is_not_at_its_default() -> None:
    run = dataclasses.replace(
        small(), layout=Layout(data=2, tensor=2, context=2, sharding="zero1", shard_group=2, sequence_parallel=False,
                               order=("tensor", "data", "context", "pipeline"), recompute="full"),
    )  # fmt: skip
    assert run.layout is not None
    text = copied(run, vars(run.layout), predict(run))
    for line in ("context = 2", "shard_group = 2", "sequence_parallel = false", 'recompute = "full"',
                 'order = ["tensor", "data", "context", "pipeline"]'):  # fmt: skip
        assert f"layout.{line}" in text
    assert "expert" not in text and "schedule" not in text
    assert "in groups of 2" in _text.layout_name(vars(run.layout), run.software.order)


def test_a_layout_of_the_document_fed_back_is_that_layout() -> None:
    kinds = set()
    for entry in facts().swept["layouts"]:
        given = {name: item for name, item in entry["layout"].items() if item is not None}
        kinds.add(given["sharding"])
        lines = [
            f"layout.{name} = {json.dumps(list(item) if name == 'order' else item)}" for name, item in given.items()
        ]
        found = predict(loads(QUESTION + "\n".join(lines)))
        assert found["legal"] and found["step"] == entry["step"] and found["memory"] == entry["memory"]
    assert "none" in kinds


def test_a_shard_group_that_is_held_shards_something() -> None:
    run = dataclasses.replace(small(), layout=Layout(data=8, sharding="zero1", shard_group=4))
    found = search(run, ["shard_group"])
    assert found.fitting and set(found.columns["shard_group"]) == {4.0}
    assert found.columns["sharding"].min() > 0
    alone = dataclasses.replace(with_devices(run, 1), layout=Layout(data=1, sharding="zero1", shard_group=4))
    assert search(alone, ["shard_group"]).last_constraint == "shard_group"
    one = dataclasses.replace(run, layout=Layout(data=8, shard_group=1))
    assert search(one, ["shard_group"]).columns["sharding"].max() == 0


def test_no_value_is_for_speed_where_the_next_smaller_one_is_as_fast() -> None:
    found = facts().found
    rows = list(range(found.ties))
    contrasts = 0
    for row, why in zip(rows, whys(dataclasses.replace(facts().run, layout=None), found, rows), strict=True):
        time = float(found.values["time_s"][row])
        for said in why.values():
            smaller = re.search(r"at \d+ the best takes ([\d.]+) s", said)
            if smaller and float(smaller[1]) < time * 1.004:
                contrasts += 1
                assert not said.startswith("speed") and f"but {smaller[0]}" in said
    assert contrasts, "no tie has a smaller value that is as fast, so nothing was tested"


def test_replicas_do_not_make_a_layout_less_simple() -> None:
    best = facts().found.layout(0)
    ties = [facts().found.layout(row) for row in range(facts().found.ties)]
    assert any(layout.data == 1 for layout in ties)
    assert best.pipeline == min(layout.pipeline for layout in ties) and best.data > 1


def test_the_count_of_ties_is_said_where_few_are_described() -> None:
    document = described(facts().run, facts().found, top=1, counts=())
    assert len(document["ties"]) < facts().found.ties
    assert f"are ties (here {facts().found.ties})" in document["ranked_by"]


def test_goals_out_of_reach_are_said_first_and_remedies_agree() -> None:
    said = reason(facts(), "constrain")
    assert said.startswith("No layout on these 1,024 devices can meet the time goal: the FLOPs alone")
    assert "No layout on any number of these devices can meet the budget" in said
    assert said.count("Remedy for both: another plan") == 1
    assert "more replicas" not in said and "fewer devices" not in said
    hours = least_accelerator_hours(facts().run)
    # 6 x the 404 billion matmul parameters, and scores and values of half the square: 12 l a d S / 2
    flops = (6 * 403.7e9 + 6 * 126 * 16384 * 8192) * 15.6e12
    assert hours == pytest.approx(flops / 989.4e12 / 3600, rel=0.01)
    for goal, count in ((Goal(days=hours / 1024 / 24 * 1.01), 0), (Goal(days=hours / 1024 / 24 * 0.99), 1),
                        (Goal(budget_accelerator_hours=hours * 1.01), 0), (Goal(), 0)):  # fmt: skip
        assert len(impossible(dataclasses.replace(facts().run, goal=goal))) == count


def test_a_remedy_by_devices_is_a_count_that_suffices() -> None:
    slower = next(point for point in facts().counts if point.devices == 2048)
    run = dataclasses.replace(facts().run, goal=Goal(days=slower.days * 1.01))
    said = reason(dataclasses.replace(facts(), run=run), "constrain")
    assert "The time goal is not met" in said
    assert "Remedy: 2,048 devices, which suffice. Price: accelerator-hours" in said


def test_a_count_by_state_alone_is_called_so() -> None:
    document = answer_from(facts())
    assert "By the state alone at least 86 devices" in reason(facts(), "shard")
    assert "by state alone 86 devices at least" in document["four_questions"][0]["answer"]


def test_a_use_above_all_published_runs_is_said() -> None:
    highest = highest_mfu("h100-sxm", "bf16")["palm"]
    assert facts().best is not None and facts().best["mfu"]["palm"] > highest.mfu  # type: ignore[index]
    assert f"the highest has an MFU of {highest.mfu:.3f} (palm;" in reason(facts(), "mfu")
    assert above_published("h100-sxm", "H100", "bf16", {"palm": highest.mfu}) == ""
    assert above_published("no-such", "none", "bf16", {"palm": 0.99}) == ""


def test_gradients_of_context_ranks_are_placed_where_there_is_one_replica() -> None:
    run = dataclasses.replace(with_devices(small(), 2), layout=Layout(data=1, context=2))
    found = gather(run, ["data", "context"])
    assert found.sent_bytes()["data"] > 0
    assert "Data (2 ranks, the context ranks among them) runs inside a node" in reason(found, "place")
    numbers = next(step["numbers"] for step in answer_from(found)["steps"] if step["name"] == "place")
    assert numbers["data_link_gb_per_s"] > 0 and numbers["bytes_inside_node_share"] == pytest.approx(1)


# ------------------------------------------------------------------------------------------------ measured
def test_a_measured_peak_above_what_a_device_has_is_refused() -> None:
    with pytest.raises(UserError, match=r"\[measured\] peak_memory_gib = 90 is more GiB than the 79\.6"):
        gather(dataclasses.replace(small(), measured=Measured(peak_memory_gib=90)))


def test_one_rule_says_what_a_measurement_scales() -> None:
    plain = gather(small())
    assert plain.own is not None
    measured = Measured(peak_memory_gib=60, step_time_s=4 * plain.own["step"]["time_s"])
    run = dataclasses.replace(small(), measured=measured, goal=Goal(days=1e4))
    found = gather(run)
    document = answer_from(found)
    said = {step["name"]: step["reason"] for step in document["steps"]}
    assert "scaled by that ratio of 4.000; all other times, tables among them, are estimates" in said["mfu"]
    assert "find it first" in said["mfu"]
    # what is said of the goal agrees: a deadline that only the estimate meets is met by no count
    days = min(point.days for point in plain.counts) * 2
    late = gather(dataclasses.replace(run, goal=Goal(days=days)))
    late_said = {step["name"]: step["reason"] for step in answer_from(late)["steps"]}
    assert "no device count looked at meets it" in late_said["constrain"]
    assert "No device count looked at meets the time goal" in late_said["sweep"]
    assert "it fits" in said["constrain"] and "60.0 of 79.6 GiB, measured: it fits" in said["sweep"]
    assert "scaled by the measured step" in said["constrain"]
    bare = {step["name"]: step["reason"] for step in answer_from(plain)["steps"]}
    assert all(said[name] == bare[name] for name in ("shard", "place", "batch", "overlap"))
    assert "by the estimate that no measurement scales" in _text.answer(document, run, found.own)


# ------------------------------------------------------------------------------------------------ long groups
@pytest.mark.parametrize(
    ("node", "stride", "size", "between", "outer"),
    [(8, 3, 50, 1, 40), (8, 5, 1, 7, 60), (12, 1, 100, 2, 30), (6, 4, 41, 1, 1), (16, 10, 9, 3, 50), (72, 7, 20, 2, 9)],
)
def test_long_groups_have_on_a_node_what_counting_finds(
    node: int, stride: int, size: int, between: int, outer: int
) -> None:
    step = stride * size * between
    devices = step * outer * node // math.gcd(step * outer, node)
    least = size * outer
    for first in range(0, devices, 1):
        if first // stride % size or first // step % outer:
            continue
        homes = Counter((first + stride * i + step * j) // node for i in range(size) for j in range(outer))
        if len(homes) > 1:
            least = min(least, *homes.values())
    assert fewest_on_a_node(node, devices, stride, size, step, outer) == least
