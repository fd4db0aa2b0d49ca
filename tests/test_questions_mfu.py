"""Answers of step 6 by independent arithmetic, and the published cases."""

from __future__ import annotations

import pytest

from course.grading import judge
from course.grading.answers import encode
from course.questions.kinds import Number
from course.questions.registry import Registry

REGISTRY = Registry(["course.questions.mfu"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def test_by_hand():
    assert answer("mfu.1") == pytest.approx(16 * 4 * 8192 * 57.9e9 / (16 * 989.5e12 * 4.2))
    assert answer("mfu.2") == pytest.approx(129 / 312)
    assert answer("mfu.3") == pytest.approx(0.2728)
    assert answer("mfu.4") == pytest.approx(16 * 8 * 2 * 4096 / 3.1 / 64)
    assert answer("mfu.5") == pytest.approx(4.35 * 312 / 2516.6)
    assert answer("mfu.6") == pytest.approx(6 * 12.879e9 * 4200 / 989.4e12, rel=1e-3)
    square = 6 * 32 * 4096 * 65536
    assert answer("mfu.8") == pytest.approx(0.55 * (6 * 6.607e9 + square) / (6 * 6.607e9 + 2 * square), rel=1e-4)
    assert answer("mfu.9") == pytest.approx(512 * (8.2 - 5.5) / 5760)
    assert answer("mfu.11") == pytest.approx(1400e6 / 380 / 3600 / 0.92)
    assert answer("mfu.12") == pytest.approx(0.07 * 40 * 1440 / 310)
    assert answer("mfu.14") == pytest.approx((512 * 6.6 - 256 * 7.6) * 2)
    assert answer("mfu.15") == pytest.approx(9.4 / 5.4 / 2)


def test_published_cases():
    assert answer("mfu.2", logged=180.0) == pytest.approx(0.4326923)  # MFU-31
    assert answer("mfu.3", logged=0.4, real=0.337) == pytest.approx(0.1348)  # MFU-35
    assert answer("mfu.5", logged=5.63) == pytest.approx(0.702624, rel=0.01)  # MFU-05, its peak rounded to 2,500
    # MFU-41: 8 devices, micro-batch 4, 4,096 tokens, 1.93 s
    one = answer("mfu.4", devices=8, data=8, rounds=1, batch=4, length=4096, seconds=1.93)
    assert one == pytest.approx(8489.119)
    assert answer("mfu.8", length=129024, claimed=1.0) == pytest.approx(0.5817094, rel=1e-5)  # MFU-21
    hours = answer("mfu.11", goodput=1.0)
    assert hours == pytest.approx(1022.362, rel=2e-3)  # LLaMA 65B
    assert answer("mfu.12", days=54, stops=419, goodput=0.9) == pytest.approx(18.56, abs=0.01)


@pytest.mark.parametrize(
    ("tera", "rate", "pair"),
    [(688.0, 11883.0, ("c", "3")), (744.0, 14451.0, ("b", "2")), (48.2, 1000.0, ("a", "1"))],
)
def test_what_a_table_counted(tera, rate, pair):
    question = REGISTRY.get("mfu.7")
    assert question.answer({**question.numbers(), "tera": tera, "rate": rate}) == pair


@pytest.mark.parametrize(("measured", "choice"), [(1.5, "a"), (1.55, "b"), (1.75, "c"), (1.83, "d")])
def test_chunks_by_what_was_measured(measured, choice):
    # 8 stages, 16 to 8 micro-batches: 23/15, 39/23, 71/39
    question = REGISTRY.get("mfu.19")
    assert question.answer({**question.numbers(), "measured": measured}) == (choice, "2")


def graded(name: str, value: object) -> tuple[str, str | None]:
    verdict = judge.grade(REGISTRY.get(name), encode(value), None)
    return verdict.status, verdict.mistake


def test_layouts_with_and_without_repetition():
    assert graded("mfu.21", {"data": 8, "sharding": "zero2", "micro_batch": 1})[0] == "right"
    again = {"data": 8, "sharding": "zero2", "micro_batch": 1, "recompute": "full"}
    assert graded("mfu.21", again) == ("wrong", "far from the best")
    assert graded("mfu.21", {"data": 8})[1] == "does not fit"
