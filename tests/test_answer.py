"""The answer goes through the eight steps in the published shape of reasoning, and says so when there is none."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from typing import Any

import pytest

from course.answer import STEPS, answer, answer_from, gather
from course.answer.facts import sent_bytes
from course.errors import UserError
from course.examples import names, path
from course.predict import predict
from course.predict.columns import from_layout
from course.problem import Goal, Layout, Measured, Run, load
from course.stops import with_devices
from course.sweep import sweep

ORDER = ["estimate", "constrain", "shard", "place", "batch", "mfu", "overlap", "sweep"]
BIG = "llama-3.1-405b-16384-h100"


@cache
def example(name: str) -> Run:
    return load(path(name))


@cache
def answered(name: str) -> dict[str, Any]:
    return answer(example(name))


def step(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in document["steps"] if entry["name"] == name)


def tiny_memory(run: Run) -> Run:
    accelerator = dataclasses.replace(run.cluster.accelerator, memory_bytes=1e9)
    return dataclasses.replace(run, cluster=dataclasses.replace(run.cluster, accelerator=accelerator))


@pytest.mark.parametrize("name", names())
def test_eight_steps_four_questions_and_a_recommendation(name: str) -> None:
    document = answered(name)
    assert [entry["name"] for entry in document["steps"]] == ORDER == [one.__name__ for one in STEPS]
    assert list(document) == ["steps", "recommended", "proposal", "four_questions"]
    assert document["recommended"]["legal"] and document["recommended"]["memory"]["fits"]
    assert document["recommended"] == sweep(example(name))["layouts"][0]
    assert document["proposal"][0]["layout"] == document["recommended"]["layout"]
    assert 6 <= len(document["proposal"]) <= 10
    assert len({json.dumps(entry) for entry in document["proposal"]}) == len(document["proposal"])
    for entry in document["steps"]:
        assert set(entry) == {"name", "numbers", "reason"}
        assert entry["reason"].endswith(".")
        assert not re.search(r"\bnan\b|\binf\b|None|\.\.|  ", entry["reason"]), entry["reason"]
        for key, value in entry["numbers"].items():
            assert re.fullmatch(r"[a-z0-9_]+", key)
            assert value is None or isinstance(value, (int, float)), (key, value)


@pytest.mark.parametrize("name", names())
def test_each_question_has_one_sentence_and_one_number(name: str) -> None:
    questions = answered(name)["four_questions"]
    assert len(questions) == 4
    for question in questions:
        assert set(question) == {"question", "answer", "number", "unit"}
        assert question["question"].endswith("?")
        assert len(re.findall(r"\.(?=\s|$)", question["answer"])) == 1
        assert isinstance(question["number"], float)
        assert question["unit"]


def test_405b_in_the_published_shape_of_reasoning() -> None:
    document = answered(BIG)
    assert step(document, "constrain")["reason"].startswith("The first limit is the optimizer state")
    numbers = step(document, "constrain")["numbers"]
    total = 405_853_388_800
    assert numbers["optimizer_state_need_gib"] == pytest.approx(18 * total / 2**30)
    assert numbers["gradients_need_gib"] == pytest.approx(6 * total / 2**30)
    assert numbers["weights_need_gib"] == pytest.approx(2 * total / 2**30)
    layout = document["recommended"]["layout"]
    assert layout["tensor"] == 8
    assert layout["pipeline"] > 1 and layout["data"] > 1
    place = step(document, "place")
    assert place["numbers"]["tensor_crosses_nodes"] is False
    assert place["numbers"]["pipeline_crosses_nodes"] is True
    assert "tensor inside the node" in place["reason"] and "pipeline across nodes" in place["reason"]
    batch = step(document, "batch")["numbers"]
    held = batch["data"] * batch["micro_batch_sequences"] * batch["accumulation_micro_batches"] * 8192
    assert held == batch["tokens_per_step"] == 16_777_216
    assert "MFU 0." in step(document, "mfu")["reason"] and "(full_attention)" in step(document, "mfu")["reason"]
    assert "Exposed: tensor" in step(document, "overlap")["reason"]
    # the published layout stands beside the recommended one
    own = predict(example(BIG))
    swept = step(document, "sweep")
    assert swept["numbers"]["file_layout_step_time_s"] == own["step"]["time_s"]
    assert "DP 128, TP 8, PP 16, interleaved x8, ZeRO-2" in swept["reason"]


def test_8b_on_8_devices_takes_neither_tensor_nor_pipeline_parallelism() -> None:
    document = answered("llama-3-8b-8-h100")
    layout = document["recommended"]["layout"]
    assert (layout["tensor"], layout["pipeline"], layout["data"]) == (1, 1, 8)
    assert "No tensor and no pipeline parallelism" in step(document, "shard")["reason"]
    if layout["sharding"] == "zero3":
        assert "zero2" in step(document, "shard")["reason"]
    else:
        assert "ZeRO-3 would gather weights for every micro-batch" in step(document, "shard")["reason"]


def test_zero3_is_recommended_only_with_what_its_gathers_improve() -> None:
    seen = 0
    for name in names():
        best = answered(name)["recommended"]
        if best["layout"]["sharding"] == "zero3":
            seen += 1
            reason = step(answered(name), "shard")["reason"]
            instead = "(under sharding zero2|without recomputation)"
            assert re.search(rf"ZeRO-3 over [\d,]+ ranks: for (fit|speed), {instead} the same layout", reason), reason
            assert "the best that fits there or below takes" in reason
    assert seen, "no example recommends ZeRO-3, so nothing was tested"


def test_the_fourth_number_is_device_hours_against_half_the_devices() -> None:
    run = example(BIG)
    here = answered(BIG)["recommended"]["step"]["time_s"]
    half = sweep(with_devices(run, 8192))["layouts"][0]["step"]["time_s"]
    number = answered(BIG)["four_questions"][3]["number"]
    assert number == pytest.approx(2 * here / half)
    assert answered(BIG)["four_questions"][3]["answer"].startswith("Only faster" if number > 1.005 else "Faster")


def test_the_first_three_numbers_by_hand() -> None:
    questions = answered("llama-3-8b-8-h100")["four_questions"]
    assert questions[0]["number"] == 2  # 144.5 GB of state, 85.5 GB a device
    # ZeRO-2 over 8: gradients in 4 bytes scattered for each of 16 micro-batches, weights in 2 bytes gathered once
    assert questions[1]["number"] == pytest.approx((16 * 4 + 2) * 8_030_261_248 * 7 / 8 / 1e9)
    assert questions[2]["number"] == 1.0  # one node


def test_bytes_sent_by_hand() -> None:
    """TP 2, PP 2, DP 2 of Llama 3 8B: 16 layers a stage and a table, 16 units a layer with the gather again."""
    run = example("llama-3-8b-8-h100")
    layout = Layout(data=2, tensor=2, pipeline=2)
    sent = sent_bytes(dataclasses.replace(run, layout=None), from_layout(layout, run))
    h, kv, f, vocabulary, tokens, steps = 4096, 1024, 14336, 128256, 8192, 64
    layer = 2 * h * h + 2 * h * kv + 3 * h * f + 2 * h
    last = 16 * layer + vocabulary * h + h
    assert sent["data"] == pytest.approx(2 * 4 * (last / 2) * (1 / 2))
    assert sent["tensor"] == pytest.approx(10 * 16 * steps * (2 * h * tokens) / 2)
    assert sent["pipeline"] == pytest.approx(steps * 2 * h * tokens / 2)  # of two stages each sends one way


@pytest.mark.parametrize(("sharding", "times"), [("zero1", 1), ("zero2", 16)])
def test_bytes_sent_under_hybrid_sharding(sharding: str, times: int) -> None:
    """Shards of 4 on 8 replicas: fp32 gradients scattered in a group, then a fourth of them summed over the two."""
    run = example("llama-3-8b-8-h100")
    layout = Layout(data=8, sharding=sharding, shard_group=4)
    sent = sent_bytes(dataclasses.replace(run, layout=None), from_layout(layout, run))
    count = 8_030_261_248
    assert sent["data"] == pytest.approx(count * (times * (4 * 3 / 4 + 2 * 4 / 4 * 1 / 2) + 2 * 3 / 4))


def place_of(name: str, **software: object) -> str:
    run = example(name)
    changed = dataclasses.replace(run, software=dataclasses.replace(run.software, **software))
    return str(step(answer(changed), "place")["reason"])


def test_what_covers_traffic_is_what_the_program_overlaps() -> None:
    assert "gradients and weights that backward and forward can cover" in place_of("llama-3-8b-8-h100")
    assert "that backward can cover" in place_of("llama-3-8b-8-h100", overlap_parameters=False)
    waits = place_of("llama-3-8b-8-h100", overlap_parameters=False, overlap_gradients=False)
    assert "gradients and weights that this program waits for" in waits
    assert "collectives that every layer waits for" in place_of(BIG)
    assert "run beside the matmuls" in place_of(BIG, overlap_tensor=True)


def test_what_is_not_sharded_is_not_said_to_be() -> None:
    """Two layers of Llama 3 8B fit whole on each of 8 H100: gradients travel, weights do not."""
    run = example("llama-3-8b-8-h100")
    small = dataclasses.replace(run.model, layers=2, dense_layers=2, vocabulary=32000)
    document = answer(dataclasses.replace(run, model=small, layout=None))
    assert document["recommended"]["layout"]["sharding"] == "none"
    assert "the model fits with its state whole on every device" in step(document, "shard")["reason"]
    assert "weights" not in document["four_questions"][1]["answer"] + step(document, "place")["reason"]


def test_a_difference_that_counts_as_equal_is_not_called_cheaper() -> None:
    cheaper = answered("llama-3-8b-8-h100")["four_questions"][3]
    assert 0.95 < cheaper["number"] < 1
    assert cheaper["answer"].startswith("Faster at about the same price (less than 5 % apart counts as equal)")


def test_held_fields_are_said_where_they_leave_nothing_on_half_the_devices() -> None:
    run = example("llama-3-8b-8-h100")
    held = answer(run, ["data", "tensor", "pipeline"])["four_questions"][3]
    assert held["answer"] == "More devices are the only way: on 4 no layout with the fields held is legal and fits."


def test_one_device_too_small() -> None:
    document = answer(with_devices(example("llama-3-8b-8-h100"), 1))
    assert "No layout is left on 1 device:" in step(document, "constrain")["reason"]


def test_nothing_fits() -> None:
    document = answer(tiny_memory(example(BIG)))
    assert document["recommended"] is None
    assert document["proposal"] == []
    assert [entry["name"] for entry in document["steps"]] == ORDER
    for name in ("constrain", "shard", "sweep"):
        assert "memory removed the last ones" in step(document, name)["reason"]
    assert [question["number"] for question in document["four_questions"]][1:] == [None, None, None]
    for entry in document["steps"]:
        # a quantity that cannot be computed is null, never absent
        assert set(entry["numbers"]) == set(step(answered(BIG), entry["name"])["numbers"])
    assert step(document, "mfu")["numbers"]["step_time_s"] is None


def test_nothing_is_legal() -> None:
    run = example("llama-3-8b-8-h100")
    training = dataclasses.replace(run.training, global_batch_sequences=1)
    changed = dataclasses.replace(with_devices(run, 37), training=training)
    document = answer(changed)
    assert document["recommended"] is None
    assert "the rule `batch` removed the last ones" in step(document, "constrain")["reason"]
    assert document["four_questions"][3]["number"] is None


def test_measured_values_are_used_and_the_estimate_stands_beside() -> None:
    run = example(BIG)
    own = predict(run)["step"]["time_s"]
    measured = dataclasses.replace(run, measured=Measured(peak_memory_gib=71.5, step_time_s=1.1 * own))
    document, plain = answer(measured), answered(BIG)
    numbers, bare = step(document, "mfu")["numbers"], step(plain, "mfu")["numbers"]
    assert numbers["measured_over_estimate"] == pytest.approx(1.1)
    assert numbers["measured_step_time_s"] == 1.1 * own
    assert numbers["estimated_step_time_s"] == bare["step_time_s"]
    assert numbers["step_time_s"] == pytest.approx(1.1 * bare["step_time_s"])
    assert numbers["wall_days"] == pytest.approx(1.1 * bare["wall_days"])
    assert numbers["mfu_full_attention"] == pytest.approx(bare["mfu_full_attention"] / 1.1)
    assert "is used" in step(document, "mfu")["reason"]
    memory = step(document, "estimate")
    assert (memory["numbers"]["measured_peak_gib"], memory["numbers"]["estimated_peak_gib"]) == (
        71.5, predict(run)["memory"]["peak_gib"],
    )  # fmt: skip
    assert "71.5 GiB" in memory["reason"] and "the estimate is 73.3 GiB" in memory["reason"]


def test_without_a_layout_the_measurement_is_that_of_the_recommended_one() -> None:
    run = dataclasses.replace(example("llama-3-8b-8-h100"), layout=None)
    document = answer(dataclasses.replace(run, measured=Measured(step_time_s=13.0)))
    assert step(document, "mfu")["numbers"]["step_time_s"] == pytest.approx(13.0)


def test_a_measured_step_that_no_machine_can_reach_is_refused() -> None:
    run = dataclasses.replace(example(BIG), measured=Measured(step_time_s=0.5))
    with pytest.raises(UserError, match=r"\[measured\] step_time_s: MFU = \d+% of peak cannot be"):
        answer(run)


def test_goals_are_the_last_limits() -> None:
    run = example("llama-3-8b-8-h100")
    # three minutes: less than all the counts looked at, which go on doubling past the device count of the question
    tight = answer(dataclasses.replace(run, goal=Goal(days=0.002, budget_accelerator_hours=1e9)))
    reason = step(tight, "constrain")["reason"]
    assert "The time goal is not met" in reason and "The budget is met" in reason
    assert reason.index("The first limit") < reason.index("The time goal")
    assert "no device count looked at meets the time goal" in step(tight, "sweep")["reason"].lower()
    free = answer(dataclasses.replace(run, goal=Goal()))
    assert "No time goal and no budget are given." in step(free, "constrain")["reason"]
    assert step(free, "mfu")["numbers"]["cost"] is None


def test_one_device_sends_nothing() -> None:
    run = example("llama-3-8b-8-h100")
    small = dataclasses.replace(run.model, layers=2, dense_layers=2)
    document = answer(dataclasses.replace(with_devices(run, 1), model=small))
    layout = document["recommended"]["layout"]
    assert (layout["data"], layout["tensor"], layout["pipeline"]) == (1, 1, 1)
    assert document["four_questions"][0]["answer"].startswith("Nothing must be split")
    assert document["four_questions"][1]["number"] == 0
    assert document["four_questions"][3]["answer"] == "One device has no half to compare with."
    assert "Memory is no limit" in step(document, "constrain")["reason"]


def test_fix_holds_a_field_and_half_the_devices_hold_it_too() -> None:
    run = dataclasses.replace(example("llama-3-8b-8-h100"), layout=Layout(tensor=2, data=4))
    facts = gather(run, ["tensor"])
    document = answer_from(facts)
    assert document["recommended"]["layout"]["tensor"] == 2
    assert facts.half is not None
    assert set(facts.half.columns["tensor"]) == {2.0}
