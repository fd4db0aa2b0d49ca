"""Step 3's questions by independent answers: threads, published figures, and numbers done by hand."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from course.grading import judge
from course.grading.answers import encode
from course.legality import violations
from course.predict.columns import from_layout
from course.problem import Layout
from course.questions.kinds import Expression, Judgement, LayoutQuestion, Number
from course.questions.registry import default

QUESTIONS = default().steps()["shard"]
with (Path(__file__).parent / "data" / "cases.csv").open(encoding="utf-8", newline="") as _file:
    CASES = {row["id"]: row for row in csv.DictReader(_file)}


def answer(name: str, **given: object) -> float:
    question = default().get(f"shard.{name}")
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def test_by_hand():
    assert answer("4") == pytest.approx(8 * 8 * 31 / 32)
    assert answer("6") == pytest.approx(8 * 6 * 7 * 63 / 64)
    assert answer("9") == pytest.approx(8 * 2 * 8192 * 4096 * 7 / 8 * 80 * 16 / 1e9)
    # 7 hops of a 16,384-token block, in three rounds, 32 layers
    assert answer("12") == pytest.approx(32 * 3 * 7 * 16384 * 2 * 2 * 8 * 128 / 1e9)
    assert answer("14") == 8
    assert answer("15") == math.ceil(96e9 / (60 * 2**30 - 48e9))
    assert answer("18") == pytest.approx(45.1 / 8 * 9)
    # 15 hops of an 8,192-token block of 512 + 64 numbers, in three rounds, 61 layers, whatever the tensor ranks
    assert answer("28") == answer("28", tensor=8) == pytest.approx(61 * 3 * 15 * 8192 * 576 * 2 / 1e9)
    # 128 sequences on one replica: 8 units a layer, 7/8 of 4,096 x 8,192 numbers of 2 bytes
    assert answer("31") == pytest.approx(128 * 32 * 8 * 7 / 8 * 4096 * 8192 * 2 / 1e9)


def test_wide_keys_and_values_of_deepseek_v3_are_71_latents_wide():
    question = default().get("shard.29")
    assert isinstance(question, Expression)
    widths = {"a": 128, "T_p": 1, "d_n": 128, "d_r": 64, "d_v": 128, "r_kv": 512}
    by_name = {symbol: widths[symbol.name] for symbol in question.answer({}).free_symbols}
    assert float(question.answer({}).subs(by_name)) == pytest.approx(40960 / 576)


def test_published_cases_come_out():
    replicas = json.loads(CASES["LAY-23"]["answer_json"])["batch_replicas"]
    assert answer("2", devices=64, tensor=4, pipeline=2, shard=4) == replicas
    assert answer("3", heads=16, shared=2) == json.loads(CASES["LAY-01"]["answer_json"])["max_tp"]
    assert answer("8", shared=8, tensor=16) == 0.125  # vllm-project/vllm-ascend#11886
    assert answer("1", billions=1.0, ranks=64) == json.loads(CASES["COM-15"]["answer_json"])["GB"]
    given = json.loads(CASES["COM-25"]["input_json"])
    sent = answer("13", tokens=given["tokens"], hidden=given["h"], copies=given["k"], expert=given["ep"])
    assert sent == pytest.approx(json.loads(CASES["COM-25"]["answer_json"])["GB"], rel=1e-6)
    copies = answer("14", tensor=1, context=1, data=2, expert=2)
    assert copies == json.loads(CASES["LAY-17"]["answer_json"])["expert_dp"]
    # the same for many parameters: 8 bytes each (pytorch/pytorch#106395)
    assert answer("4", billions=1.0, ranks=10**9) == pytest.approx(8)


@pytest.mark.parametrize(
    ("wide", "thin", "choice"),
    [(15.0, 3.2, "a"), (3.2, 15.0, "b"), (15.0, 15.0, "c"), (13.9, 3.2, "d"), (14.1, 3.2, "a")],
)
def test_a_layer_of_84_gb_is_one_of_14_billion(wide: float, thin: float, choice: str):
    question = default().get("shard.32")
    assert isinstance(question, Judgement)
    assert question.answer({**question.numbers(), "wide": wide, "thin": thin}) == (choice, "2")


LAYOUTS = [question for question in QUESTIONS if isinstance(question, LayoutQuestion)]


@pytest.mark.parametrize("question", LAYOUTS, ids=lambda question: question.id)
def test_a_layout_is_graded_by_the_model(question: LayoutQuestion):
    run = question.run(question.numbers())

    def mistake(**layout: object) -> str | None:
        return judge.grade(question, encode(layout)).mistake

    devices = run.cluster.devices
    assert mistake(data=devices, tensor=2) == "illegal layout"
    # 512 sequences are not dealt out to 384 replicas
    assert mistake(data=devices) == ("illegal layout" if devices == 384 else "does not fit")
    slow = {"data": 2, "tensor": 8, "pipeline": 24} if devices == 384 else {"tensor": 8, "pipeline": devices // 8}
    expected = "illegal layout" if devices == 384 else "far from the best"  # 126 layers on 24 stages
    assert mistake(**slow, recompute="full", sharding="zero1") == expected
    assert any(column.any() for column in violations(run, from_layout(Layout(data=devices, tensor=2), run)).values())


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("shard.25", {"data": 8, "sharding": "zero2"}),
        ("shard.25", {"data": 8, "sharding": "zero3"}),
        ("shard.26", {"data": 32, "sharding": "zero3", "recompute": "full"}),
        ("shard.26", {"data": 4, "tensor": 8, "sharding": "zero2"}),
        ("shard.30", {"data": 16, "tensor": 8, "pipeline": 3, "sharding": "zero2", "recompute": "full"}),
        ("shard.30", {"data": 32, "tensor": 4, "pipeline": 3, "sharding": "zero3", "recompute": "full"}),
    ],
)
def test_more_than_one_layout_is_right(name: str, layout: dict[str, object]):
    assert judge.grade(default().get(name), encode(layout)).status == "right"
