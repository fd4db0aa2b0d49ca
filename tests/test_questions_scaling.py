"""Answers of step 9 by independent arithmetic, and the published cases."""

from __future__ import annotations

import math

import pytest

from course.questions.kinds import BugHunt, Number
from course.questions.registry import Registry

REGISTRY = Registry(["course.questions.scaling"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def test_by_hand():
    assert answer("scaling.1") == 1000  # SCA-07
    assert answer("scaling.3") == pytest.approx(0.8006466)  # SCA-11
    assert answer("scaling.4") == pytest.approx(1 / 0.5943775)  # SCA-17
    assert answer("scaling.6") == pytest.approx(0.3571429)  # SCA-05
    matmul = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256
    square = 6 * 32 * 4096
    long, short = (6 * matmul + square * length for length in (131072, 8192))
    assert answer("scaling.7") == pytest.approx(long / short, rel=1e-6)
    assert answer("scaling.8") == 1.75  # SCA-19
    assert answer("scaling.9") == pytest.approx(2534.4 / 67.2)
    assert answer("scaling.11") == pytest.approx((67 + 316.75) / (67 + 19.796875) * 0.99)
    assert answer("scaling.15") == pytest.approx((2.499 / 17.47 - 1 / 8) * 8 / 7)
    assert answer("scaling.16") == pytest.approx(8 * math.sqrt(900))
    assert answer("scaling.22") == pytest.approx(0.4 + 254 * 4 * 2.6 / 128 / 60)
    assert answer("scaling.25") == pytest.approx(40 / 100) and answer("scaling.25", large=8) == pytest.approx(40 / 1600)
    assert answer("scaling.23") == pytest.approx(120)  # 0.5 + 60/2 = 30.5, 0.5 + 60/32 = 2.375


def test_a_larger_model_does_more_with_as_many_tokens():
    given = REGISTRY.get("scaling.24").numbers()
    work = [6 * billions * given["tokens"] for billions in (given["billions"], given["times"] * given["billions"])]
    assert work[1] == given["times"] * work[0]  # of one GPU in a step: so it is not weak scaling, neither a nor b
    assert work[1] / given["times"] == work[0]  # by the seconds of a step: the ratio is 1, not d
    assert REGISTRY.get("scaling.24").answer(given) == ("c", "2")


@pytest.mark.parametrize(("share", "pair"), [(0.021, ("a", "1")), (0.055, ("b", "2"))])
def test_a_share_that_stays_or_not(share, pair):
    question = REGISTRY.get("scaling.17")
    assert question.answer({**question.numbers(), "c": share}) == pair


def test_what_the_next_limit_is():
    # seconds exposed, by a timeline done by hand: 128 devices keep one micro-batch, 256 half of one
    exposed = {128: max(0, 0.16 - 0.20), 256: max(0, 0.16 - 0.10)}
    waits = {devices: "input" if hidden < 0.030 else "reduction" for devices, hidden in exposed.items()}
    assert waits == {128: "input", 256: "reduction"}
    assert REGISTRY.get("scaling.18").answer({}) == ("a", "2")


def _function(question: BugHunt, source: str):
    namespace: dict[str, object] = {}
    exec(source, namespace)
    return namespace[question.function]


def test_good_versions_of_the_hunts_by_hand():
    report = _function(REGISTRY.get("scaling.19"), REGISTRY.get("scaling.19").good)
    base = {"devices": 64, "sequences": 512, "length": 2048, "seconds": 10}
    assert report(base, {**base, "devices": 128, "seconds": 6.25}) == ("strong", 0.8)
    assert report(base, {**base, "devices": 128, "sequences": 1024, "seconds": 12.5}) == ("weak", 0.8)
    with pytest.raises(ValueError, match="different work"):
        report(base, {**base, "devices": 128, "length": 4096})
    rate = _function(REGISTRY.get("scaling.20"), REGISTRY.get("scaling.20").good)
    assert rate([(1, True, 8, 2), (2, False, 8, 2), (1, True, 8, 4)]) == 1
    predict = _function(REGISTRY.get("scaling.21"), REGISTRY.get("scaling.21").good)
    assert predict(8, 10, 16, 5.5, 80) == pytest.approx(1 + 9 / 10)
