"""The questions of step 2 by hand, and by the real confusions they come from."""

from __future__ import annotations

import math

import pytest

from course.questions.kinds import Number
from course.questions.registry import default

QUESTIONS = default().steps()["constrain"]


def answer(number: int) -> float:
    question = default().get(f"constrain.{number}")
    assert isinstance(question, Number)
    return question.answer(question.numbers())


@pytest.mark.parametrize(
    ("number", "by_hand"),
    [
        (1, 81559 * 1048576 / 1e9 - 85),  # MEM-21
        (3, 7.5),  # MEM-01: 6 + 12/8
        (4, 28),  # 156 over 83.7 - 78
        (5, 16),  # MEM-25: 16 x 8 / 8
        (7, 6),  # 64e9 over 8192 x (262,144 + 139,264 + 769,536)
        (10, 205302),  # MEM-17
        (12, 80 * 34304 * 8192 / 2**30),
        (14, 11 / 8),  # MEM-15
        (18, 45.1 / 8 * 12 + 1.6 * 6.75),
        (20, 41.088),  # 2 (3,072 + 1,024 + 16,384 + 64)
        (21, math.ceil(6 * 70e9 * 15e12 / (400e12 * 60 * 86400 * 0.9))),
        (23, 2048 * (12 * 8 * 24576 / 8 + 417792 / 8) / 2**30),  # 12 layers, 8 in flight, eighths
    ],
)
def test_numbers_by_hand(number: int, by_hand: float) -> None:
    assert answer(number) == pytest.approx(by_hand, rel=1e-5)


def test_what_leaves_first_follows_from_the_sums() -> None:
    question = default().get("constrain.2")
    for billions, memory, part in ((8, 83, "a"), (20, 83, "b"), (70, 83, "c"), (8, 42, "b"), (34, 42, "c")):
        assert question.answer({"billions": billions, "memory": memory})[0] == part  # type: ignore[attr-defined]
