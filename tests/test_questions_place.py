"""Answers of step 4 by independent arithmetic, and the published cases."""

from __future__ import annotations

import pytest

from course.grading import judge
from course.grading.answers import encode
from course.questions.kinds import Number
from course.questions.registry import Registry

REGISTRY = Registry(["course.questions.place"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def test_by_hand():
    assert answer("place.1") == 300
    assert answer("place.2") == pytest.approx(90 / 200)
    assert answer("place.3") == pytest.approx(3 / 0.055)
    assert answer("place.4") == 100  # two ranks of the group on a node: two cards
    assert answer("place.5") == pytest.approx(2 * 31 / 32 * 8 / 4)
    assert answer("place.6") == 8 * 6 * 3 / 4
    assert answer("place.9") == pytest.approx(2 * 15 / 16 * 4 * 2**30 / 0.047 / 1e9)
    assert answer("place.10") == pytest.approx(15 * 1.5 / 0.052)
    assert answer("place.11") == pytest.approx(2 * 63 * (9.6e-3 + 1e6 / 50e9 * 1e3))
    assert answer("place.13") == pytest.approx(9.6e-6 * 50e9 * 57 / (6 - 63 / 64) / 1e6)
    assert answer("place.15") == pytest.approx(2500 * 63 / 64 / 540)
    assert answer("place.18") == pytest.approx(989.4e12 / 4 / 100e9, rel=1e-6)
    assert answer("place.20") == pytest.approx(8 * 2 * 4096 * 7 / 300e9 * 312e12 / (72 * 4096**2))
    assert answer("place.21") == pytest.approx(100 * 4 * 8192 / 12.5e9 * 312e12 / (2 * 72 * 8192**2))
    assert answer("place.22") == pytest.approx((72 * 8192**2 / 360e9 / (16 * 8192 * 1024 / 180e9)) ** 0.5)
    assert answer("place.23") == 8
    assert answer("place.30") == pytest.approx(8 * 2 * 16384 * 15 / 200e9 * 312e12 / (72 * 16384**2))
    assert answer("place.31") == pytest.approx(2 * 255 / 256 * 140 / 8 / 64)  # 64 ranks of a group in a pod
    assert answer("place.32") == pytest.approx(600 * 2 / 180)  # two hops on average, two links
    assert answer("place.24") == pytest.approx(2 * 8 / 64 * 989.4e12 / 50e9)


def test_published_cases():
    assert answer("place.9", gibibytes=8, ranks=8, milliseconds=158.07) == pytest.approx(95.09955, rel=5e-3)  # COM-01
    assert answer("place.10", ranks=8, gigabytes=1.0, milliseconds=25.0) == pytest.approx(280)  # COM-03
    assert answer("place.2", cards=8, gigabits=100, reached=600 / 8) == 0.75  # COM-09
    assert answer("place.6", nodes=2, per_node=8, rate=4.0) == 16  # COM-13
    assert answer("place.3", gigabytes=1.0, milliseconds=40.0) == 25  # ROF-07


def graded(name: str, value: object, seed: int | None = None) -> str:
    return judge.grade(REGISTRY.get(name), encode(value), seed).status


def test_a_layout_with_fast_and_with_slow_axes():
    # eight stages send little; eight tensor ranks over PCIe send much
    assert graded("place.27", {"pipeline": 8, "micro_batch": 1}) == "right"
    question = REGISTRY.get("place.27")
    verdict = judge.grade(question, encode({"tensor": 8, "micro_batch": 1}), None)
    assert (verdict.status, verdict.mistake) == ("wrong", "far from the best")
    assert judge.grade(question, encode({"data": 8}), None).mistake == "does not fit"


@pytest.mark.parametrize(("width", "pair"), [(1024, ("c", "3")), (2048, ("a", "1")), (30000, ("b", "2"))])
def test_experts_by_their_width(width, pair):
    question = REGISTRY.get("place.26")
    # 4 C / (9 beta) x 63/64: 1,215 in the rack, 21,875 over a card
    assert question.answer({**question.numbers(), "width": width}) == pair


def test_whole_degrees_are_neither_rounded_nor_nearest():
    question = REGISTRY.get("place.23")
    for seed in range(20):
        given = question.numbers(seed)
        falls, rises = 72 * given["hidden"] ** 2 / 360e9, 16 * given["hidden"] * given["tokens"] / 180e9
        legal = [size for size in range(1, 129) if given["heads"] % size == 0 and 1024 % size == 0]
        assert question.answer(given) == min(legal, key=lambda size: falls / size + rises * size)
