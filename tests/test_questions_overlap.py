"""Answers of step 7 by independent arithmetic, and the published cases."""

from __future__ import annotations

import pytest

from course.grading import judge
from course.grading.answers import encode
from course.questions.kinds import Function, Number
from course.questions.registry import Registry

REGISTRY = Registry(["course.questions.overlap"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def function(name: str, *arguments: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Function)
    return question.answer(*arguments)


def test_by_hand():
    assert answer("overlap.1") == 24 + 8 + 60
    assert answer("overlap.2") == pytest.approx(5)
    assert answer("overlap.4") == 40 * 7 + 5 - 200
    assert answer("overlap.7") == pytest.approx(3.35 / 0.95)
    assert answer("overlap.8") == pytest.approx(6 / 4 * 8000, rel=1e-6)
    assert (answer("overlap.11"), answer("overlap.12")) == (17, 2)
    assert answer("overlap.14") == 2.5
    assert answer("overlap.15") == 7
    assert answer("overlap.16") == pytest.approx(100 * (438.97 / 417.08 - 1), rel=1e-3)
    assert answer("overlap.22") == pytest.approx(80)
    assert answer("overlap.28") == 100
    assert answer("overlap.28", exposed=60) == 60
    assert answer("overlap.30") == 4 + 4 + 6
    assert answer("overlap.31") == pytest.approx(38.98 + 400 * (1 - 0.99975**1024), rel=1e-3)
    assert answer("overlap.32") == pytest.approx(72)


def test_published_cases():
    assert answer("overlap.19", slow=293, fast=93) == pytest.approx(0.5119454, rel=1e-6)  # SCA-13
    assert answer("overlap.20", compute=80, sent=50, union=100) == pytest.approx(0.6)  # COM-21
    assert answer("overlap.9") == pytest.approx(61.8, abs=0.1)  # SCA-11, by the line through its four rates


def test_buckets_that_differ_by_hand():
    # ready at 10, 12, 14; sent until 11, 21, 22
    assert function("overlap.6", [10.0, 2.0, 2.0], [1.0, 9.0, 1.0]) == 8
    # ready at 2, 4, 24; sent until 11, 20, 25
    assert function("overlap.6", [2.0, 2.0, 20.0], [9.0, 9.0, 1.0]) == 1


def test_exposed_by_hand():
    assert function("overlap.21", [0.0, 50.0], [40.0, 90.0], [30.0, 55.0], [60.0, 80.0]) == 10
    assert function("overlap.21", [10.0, 0.0], [20.0, 15.0], [5.0], [25.0]) == 5


def test_a_sequence_for_each_device():
    def graded(value: object) -> tuple[str, str | None]:
        verdict = judge.grade(REGISTRY.get("overlap.10"), encode(value), None)
        return verdict.status, verdict.mistake

    best = {"data": 32, "tensor": 2, "sharding": "zero1", "micro_batch": 2}
    assert graded(best)[0] == "right"
    assert graded({"data": 64, "sharding": "zero1"}) == ("wrong", "far from the best")
    assert graded({**best, "micro_batch": 1}) == ("wrong", "far from the best")
    assert graded({"data": 8, "tensor": 8, "sharding": "zero1", "micro_batch": 8})[1] == "far from the best"
    assert graded({"data": 64, "sharding": "zero1", "micro_batch": 2})[1] == "illegal layout"
