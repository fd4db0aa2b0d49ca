"""Answers of the interview's questions by independent arithmetic."""

from __future__ import annotations

import pytest

from course.questions.kinds import Number
from course.questions.registry import Registry

REGISTRY = Registry(["course.questions.interview"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def test_by_hand():
    assert answer("interview.1") == pytest.approx(8.4e23)
    assert answer("interview.2") == pytest.approx(1260)
    assert answer("interview.3") == 16
    assert answer("interview.4") == pytest.approx(8.4e23 / (512 * 989e12 * 0.4 * 0.9 * 86400))
    assert answer("interview.5") == pytest.approx(0.4 * 989e12 / 420e9)
    assert answer("interview.6") == pytest.approx(30.84 * 70 * 5 / (405 * 15.6))
    assert answer("interview.7") == pytest.approx(2 * 63 / 64 * 4 * 70e9 / 8 / 50e9)
    assert answer("interview.8") == pytest.approx(100 * 7 / 39)


@pytest.mark.parametrize(
    ("devices", "days", "pair"), [(8192, 45, ("a", "1")), (16384, 45, ("b", "2")), (16384, 120, ("c", "3"))]
)
def test_whether_it_can_be_done(devices: int, days: int, pair: tuple[str, str]):
    question = REGISTRY.get("interview.10")
    at_peak = 6 * 405.85e9 * 15e12 / (devices * 989.4e12 * 86400)
    assert {"a": at_peak > days, "b": 0.55 * days < at_peak < days, "c": at_peak < 0.55 * days}[pair[0]]
    assert question.answer({**question.numbers(), "devices": devices, "days": days}) == pair
