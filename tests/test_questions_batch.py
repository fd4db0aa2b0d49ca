"""Answers of step 5 by independent arithmetic, and the published cases."""

from __future__ import annotations

import numpy as np
import pytest

from course.grading import judge
from course.grading.answers import encode
from course.questions.batch_programs import _program
from course.questions.kinds import Number
from course.questions.registry import Registry
from course.simulators.stages import Stages, compare, expected

REGISTRY = Registry(["course.questions.batch"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def graded(name: str, value: object) -> judge.Verdict:
    return judge.grade(REGISTRY.get(name), encode(value), None)


def test_by_hand():
    assert answer("batch.1") == 8 * 2 * 16 * 8192 / 1e6
    assert answer("batch.6") == pytest.approx(7 / 39)
    assert answer("batch.7") == pytest.approx(7 / 128)
    assert answer("batch.14") == 6 * 2 * 1.5
    assert answer("batch.18") == 31 * 30 - 14 * 9


@pytest.mark.parametrize(("percent", "stages"), [(10, 5), (20, 9), (25, 16), (10, 16)])
def test_the_least_number_of_micro_batches_by_trying(percent, stages):
    least = next(m for m in range(1, 1000) if 100 * (stages - 1) <= percent * (m + stages - 1))
    assert answer("batch.8", percent=percent, stages=stages) == least


def test_published_cases():
    assert answer("batch.2") == 64  # LAY-25
    assert answer("batch.3") == 8 * answer("batch.3", accumulation=1) == 64  # LAY-23: 8 replicas
    assert answer("batch.5") == pytest.approx((440.8 - 430.6) / 3)  # COM-17
    assert answer("batch.6") == pytest.approx(0.1794872, rel=1e-6)  # PIP-01
    overhead = answer("batch.7")
    assert overhead / (1 + overhead) == pytest.approx(0.05185185, rel=1e-6)  # PIP-03
    assert answer("batch.8") == 16  # PIP-07
    assert answer("batch.10") == 81  # PIP-09
    assert answer("batch.12") == 13  # PIP-11
    assert answer("batch.16") == 1.375  # MEM-15
    assert (answer("batch.21", together=3), answer("batch.21")) == (6, 4.5)  # PIP-05


def test_the_backward_of_1f1b_by_counting():
    question = REGISTRY.get("batch.12")
    for seed in range(12):
        given = question.numbers(seed)
        first = given["stages"] - 1 + 2 * (given["which"] - 1) + 1
        assert question.answer(given) == first + given["stages"] - 1


def test_a_layout_that_keeps_a_small_batch_busy():
    best = {"data": 2, "tensor": 4, "pipeline": 4, "sharding": "zero1", "schedule": "interleaved", "interleave": 10}
    assert graded("batch.17", best).status == "right"
    plain = {name: value for name, value in best.items() if name not in ("schedule", "interleave")}
    assert graded("batch.17", plain).mistake == "far from the best"
    assert graded("batch.17", {"data": 4, "tensor": 8}).mistake == "does not fit"
    assert graded("batch.17", {"data": 32, "sharding": "zero3"}).mistake == "illegal layout"


# ---------------------------------------------------------------- programs
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "count", "width"), [(1, 3, 2), (2, 1, 4), (3, 5, 2), (4, 2, 3)])
def test_programs_reach_the_serial_weights(schedule, stages, count, width):
    assert _program(schedule)(stages, count, width) == pytest.approx(expected(schedule, stages, count, width), rel=1e-9)


def test_the_expected_gradient_is_that_of_the_loss():
    """By differences: the update of one weight of the first stage."""
    world = Stages(2, 3, 2)

    def loss(weights: list[np.ndarray]) -> float:
        out = world.examples[0].reshape(-1, 2)
        for one in weights:
            out = np.tanh(out @ one)
        return float(((out - world.examples[1].reshape(-1, 2)) ** 2).sum() / 2 / len(out))

    for place in range(4):
        moved = [world.start[0].copy(), world.start[1]]
        moved[0].flat[place] += 1e-6
        slope = (loss(moved) - loss([*world.start])) / 1e-6
        assert expected("gpipe", 2, 3, 2)[place] == pytest.approx(world.start[0].flat[place] - 0.1 * slope, abs=1e-6)


def test_compare_says_what_is_missing():
    assert "time:    36; 18 expected" in compare(_program("one"), "gpipe")
    assert "not those of the serial program" in compare(_program("gpipe", divide=False), "gpipe")
    assert "[4, 4, 4] micro-batches at most; [3, 2, 1] expected" in compare(_program("gpipe"), "1f1b")
    assert compare(lambda *_: np.zeros(3), "gpipe").startswith("It reports 3 numbers")


def test_what_has_not_arrived_is_named():
    world = Stages(2, 1, 2)
    world.forward(0, 0)
    with pytest.raises(KeyError, match="stage 1 holds no 'x0'"):
        world.forward(1, 0)
    with pytest.raises(KeyError, match="stage 0 holds no 'dy0'"):
        world.backward(0, 0)
