"""Answers of step 8 by independent arithmetic, and layouts judged by the model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from course.grading import judge
from course.grading.answers import encode
from course.questions.kinds import Function, Number
from course.questions.registry import Registry

REGISTRY = Registry(["course.questions.sweep"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def graded(name: str, value: object) -> tuple[str, str | None]:
    verdict = judge.grade(REGISTRY.get(name), encode(value), None)
    return verdict.status, verdict.mistake


def test_by_hand():
    assert answer("sweep.1") == 8  # 6 x 32/4 + 12 x 32/64 = 54 GB, and 30 at 8
    assert answer("sweep.1", billions=20.0) == 4  # 60 + 3.75 at 2, 30 + 3.75 at 4
    assert answer("sweep.8") == pytest.approx(512 * 5.4 / (128 * 13.7) - 1)
    assert [answer("sweep.9", days=days) for days in (8.0, 10.0, 20.0, 30.0)] == [512, 256, 128, 64]
    assert answer("sweep.10") == pytest.approx(1.24 / 0.78 / 2)
    # 8 replicas of single sequences: 32 and 128 micro-batches through 8 stages
    assert answer("sweep.14") == pytest.approx(4e5 * (32 / 39) * (135 / 128))
    assert answer("sweep.15") == pytest.approx(870 / 0.033)
    # a half of the parameters, 8 bytes, 32 ranks, 16 rounds; an eighth, 6 bytes, 8 ranks, once
    assert answer("sweep.23") == pytest.approx((4 * 31 / 32 * 16) / (6 / 8 * 7 / 8))


def test_a_front_by_brute_force():
    question = REGISTRY.get("sweep.11")
    assert isinstance(question, Function)
    for case in question.cases():
        pairs = list(zip(case["days"], case["hours"], strict=True))
        kept = [float(not any(o[0] <= one[0] and o[1] <= one[1] and o != one for o in pairs)) for one in pairs]
        assert np.array_equal(question.answer(**case), kept)


def test_regret_after_a_trial_by_brute_force():
    question = REGISTRY.get("sweep.18")
    assert isinstance(question, Function)
    for case in question.cases():
        ranked = sorted(zip(case["predicted"], case["measured"], strict=True))
        best = min(time for _, time in itertools.islice(ranked, case["tried"]))
        assert question.answer(**case) == pytest.approx(best / min(case["measured"]) - 1)


def test_a_replica_of_a_mixture():
    assert graded("sweep.6", "Max(P_p*T_p*C_p, P_p*E_p*E_tp)") == ("right", None)
    assert graded("sweep.6", "P_p*T_p*C_p*E_p*E_tp")[1] == "experts multiplied in"


def test_layouts():
    assert graded("sweep.3", {"data": 32, "tensor": 2, "sharding": "zero3", "micro_batch": 1})[0] == "right"
    three = {"data": 2, "tensor": 8, "pipeline": 4, "sharding": "zero1", "micro_batch": 1, "schedule": "1f1b"}
    assert graded("sweep.3", three) == ("wrong", "far from the best")
    assert graded("sweep.4", {"data": 32, "context": 2, "sharding": "zero3", "micro_batch": 1})[0] == "right"
    assert graded("sweep.5", {"data": 64, "sharding": "zero3", "micro_batch": 1})[1] == "does not fit"


@pytest.mark.parametrize(
    ("name", "pair", "mistake"),
    [
        ("sweep.2", ("a", "4"), "three axes first"),
        ("sweep.7", ("b", "3"), "recomputation as useful work"),
        ("sweep.12", ("a", "1"), "past the break-even"),
        ("sweep.16", ("b", "1"), "tie taken for a win"),
    ],
)
def test_judgements_name_the_mistake(name, pair, mistake):
    assert graded(name, pair) == ("wrong", mistake)


def test_wrong_numbers_are_diagnosed():
    assert graded("sweep.8", 1 - 5.4 / 13.7)[1] == "wall time alone"
    assert graded("sweep.14", 400_000)[1] == "another global batch"
    assert graded("sweep.23", (4 * 31 / 32) / (6 / 8 * 7 / 8))[1] == "accumulation forgotten"
