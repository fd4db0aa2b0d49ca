"""Numbers with units: every way to write a right one, and the name of each usual wrong one."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

from course.grading.answers import encode
from course.grading.judge import grade
from course.questions.quantities import parse
from course.questions.registry import Registry

RIGHT: dict[str, list[Any]] = {
    "demo.1": [  # 14 GB
        14,
        14.0,
        "14",
        "14 GB",
        "14GB",
        "14.0 gigabytes",
        "14,000 MB",
        "14 000 MB",
        "14_000 MB",
        "1.4e10 bytes",
        "1.4e10 B",
        "1.4 x 10^10 bytes",
        "1.4×10^10 bytes",
        "1.4*10**10 byte",
        "0.014 TB",
        "13.04 GiB",
        "13.0385 gib",
        "112 Gbit",
        "112 Gb",
        "112 gigabits",
        "~14 GB",
        "≈ 14 GB",
        "= 14 GB",
        "2*7 GB",
        "28/2 GB",
        "(2*7e9)/1e9 GB",
        "2 * 7e9 bytes",
        np.float64(14),
        np.float32(14),
        np.int64(14),
        np.array(14.0),
        np.array(14),
        sp.Integer(14),
        sp.Float(14),
        sp.Rational(28, 2),
        sp.sqrt(196),
        Fraction(28, 2),
        Decimal("14.0"),
        14.05,
        "14.1 GB",
        "13352 MiB",
        "+14 GB",
        "14 GB/GPU",
        "14 GB per device",
        "14\u00a0GB",
        "14,000,000,000 bytes",
    ],
    "demo.7": [0, 0.0, "0", "0 %", 1e-12, -1e-12, np.float64(0), "0.0", sp.Integer(0)],
    "demo.8": [
        0.5,
        "0.5 TFLOP/s",
        "500 GFLOP/s",
        "5e11 FLOP/s",
        "0.5 TFLOPS",
        "0.5 TFLOPs",
        "500 GFLOPS",
        ".5",
        "1/2",
        "0.5 TFLOP per second",
        "0.5 tflop/s",
        "0.5 TFLOP/s per GPU",
        "500e9 flops/s",
        Fraction(1, 2),
    ],
    "demo.9": [
        90,
        "90 s",
        "1.5 min",
        "90000 ms",
        "0.025 h",
        "0.025 hours",
        "90 seconds",
        "1.5 minutes",
        "9e7 us",
        "9e7 µs",
    ],
    "demo.10": [
        2.5e6,
        "2.5e6 GPU-hours",
        "2.5 million GPU-hours",
        "2,500,000 GPU hours",
        "2.5e6 accelerator-hours",
        "104166.7 GPU-days",
        "9e9 GPU-s",
        "2.5e6 device·hours",
        "2.5e6 hours",
    ],
    "demo.11": [
        0.4,
        "40 %",
        "40%",
        "0.4",
        "40 percent",
        "2/5",
        np.float32(0.4),
        "4e-1",
        Fraction(2, 5),
        "−0.4".replace("−", ""),
    ],
    "demo.12": [
        50,
        "50 GB/s",
        "400 Gbit/s",
        "400 Gb/s",
        "0.05 TB/s",
        "5e10 B/s",
        "50 GB per second",
        "46.57 GiB/s",
        "50 gb/s",
        "50e9 bytes/s",
        "50 GB/second",
    ],
}

WRONG: dict[str, list[tuple[Any, str | None]]] = {
    "demo.1": [
        (13.04, "GiB for GB"),
        (112, "bits for bytes"),
        (1.4e10, "wrong prefix"),
        (14000, "wrong prefix"),
        (0.014, "wrong prefix"),
        (1.12e11, "bits for bytes"),
        (7, "weights alone"),
        ("7 GB", "weights alone"),
        (42, "optimizer forgotten"),
        ("42e9 bytes", "optimizer forgotten"),
        (140, "wrong power of ten"),
        (1.4, "wrong power of ten"),
        (-14, "sign"),
        ("14 GiB", "GiB for GB"),
        ("14 Gbit", "bits for bytes"),
        ("14 TFLOP", "other quantity"),
        ("14 s", "other quantity"),
        ("14 GB/s", "other quantity"),
        (15, None),
        (0, None),
        (1e300, None),
        ("14 %", "other quantity"),
        (13, "GiB for GB"),
        ("14 MB", "wrong prefix"),
        ("14 TB", "wrong prefix"),
    ],
    "demo.7": [(0.1, None), (1, None), ("5 %", None), (1e-3, None)],
    "demo.8": [
        (1, "sparse peak"),
        (500, "wrong prefix"),
        (5e11, "wrong prefix"),
        (5e-4, "wrong prefix"),
        (0.05, "wrong power of ten"),
        ("0.5 GB/s", "other quantity"),
        ("1e12 FLOP/s", "sparse peak"),
        (0.7, None),
    ],
    "demo.9": [
        (1.5, "other unit of time"),
        (0.025, "other unit of time"),
        (90000, "other unit of time"),
        ("90 h", "other unit of time"),
        ("90 GB", "other quantity"),
        (91.5, None),
    ],
    "demo.10": [
        (2.5, "wrong power of ten"),
        (104166.7, "other unit of time"),
        (9e9, "other unit of time"),
        ("2.5 GPU-hours", "wrong power of ten"),
    ],
    "demo.11": [
        (40, "percent for share"),
        ("0.4 %", "percent for share"),
        (0.6, None),
        (-0.4, "sign"),
        ("0.4 GB", "other quantity"),
    ],
    "demo.12": [
        (400, "bits for bytes"),
        (46.57, "GiB for GB"),
        (6.25, None),
        ("50 Gbit/s", "bits for bytes"),
        (100, None),
        ("50 GB", "other quantity"),
        (50e9, "wrong prefix"),
    ],
}

ERRORS: list[tuple[Any, str]] = [
    (True, "no numbers"),
    (np.True_, "no numbers"),
    (1 + 2j, "complex"),
    (sp.I, "complex"),
    (float("nan"), "NaN"),
    (np.float64("nan"), "NaN"),
    (math.inf, "infinite"),
    ([14], "several values"),
    ((14,), "several values"),
    ({"a": 14}, "dictionary"),
    (np.array([14.0]), "answer[0]"),
    (np.array([1.0, 2.0]), "array of 2"),
    ("fourteen", "begin with a number"),
    ("14 bananas", "'bananas' is no unit"),
    ("1,4 GB", "two ways"),
    ("GB 14", "begin with a number"),
    (object(), "object"),
    (b"14", "Bytes"),
    (10**400, "larger"),
    (len, "function"),
    (lambda: 14, "function"),
    ("14 GB; import os", "no unit"),
    ("__import__('os').system('x')", "begin with a number"),
    ("9**9**9**9", "too large"),
    ("1e999", "finite"),
    ({14}, "set"),
    (sp.Symbol("x"), "begin with a number"),
    ("14 GB\x00", "no unit"),
    ("x" * 5000, "5,000 characters"),
    (range(3), "range"),
]


@pytest.mark.parametrize("name", RIGHT)
def test_every_way_to_write_a_right_answer(demo: Registry, name: str):
    verdicts = [(answer, grade(demo.get(name), encode(answer))) for answer in RIGHT[name]]
    assert [pair for pair in verdicts if pair[1].status != "right"] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_wrong_and_named(demo: Registry, name: str):
    verdicts = [(answer, mistake, grade(demo.get(name), encode(answer))) for answer, mistake in WRONG[name]]
    assert [row for row in verdicts if (row[2].status, row[2].mistake) != ("wrong", row[1])] == []
    assert all("unit expected is" in row[2].message or "plain number" in row[2].message for row in verdicts)


def test_a_rate_is_no_amount_and_only_the_plural_stands_for_both(demo: Registry):
    said = {text: parse(text).measures(parse(asked)) for asked, text in (
        ("FLOP", "FLOP/s"), ("FLOP/s", "TFLOP"), ("FLOP", "PFLOP per second"), ("FLOP/byte", "FLOPs"))}  # fmt: skip
    assert not any(said.values()), said
    assert all(parse(text).measures(parse(asked)) for asked in ("FLOP", "TFLOP/s") for text in ("TFLOPs", "GFLOPS"))
    verdict = grade(demo.get("demo.8"), encode("0.5 TFLOP"))
    assert (verdict.status, verdict.mistake) == ("wrong", "other quantity")


@pytest.mark.parametrize("value", [13.65, 13.8, 14.2, 14.35])
def test_a_value_beside_the_right_one_is_called_close(demo: Registry, value: float):
    assert grade(demo.get("demo.1"), encode(value)).message == (
        "Close: it is accepted within 1 %. The unit expected is GB."
    )


@pytest.mark.parametrize("value", [9.1, 13.5, 14.5, 77])
def test_a_value_far_from_the_right_one_is_called_off_without_a_side(demo: Registry, value: float):
    assert grade(demo.get("demo.1"), encode(value)).message == "The value is off. The unit expected is GB."


@pytest.mark.parametrize(("answer", "said"), ERRORS, ids=[repr(answer)[:20] for answer, _ in ERRORS])
def test_what_is_no_number_is_told_in_a_sentence(demo: Registry, answer: Any, said: str):
    verdict = grade(demo.get("demo.1"), encode(answer))
    assert verdict.status == "error", verdict
    assert said in verdict.message
    assert len(verdict.message) < 300 and "Traceback" not in verdict.message


@pytest.mark.parametrize("answer", [None, ..., "", "  ", "...", "None"])
def test_nothing_is_not_answered(demo: Registry, answer: Any):
    for question in demo.all():
        assert grade(question, encode(answer)).status == "unanswered"


class Hostile:
    def __float__(self) -> float:
        raise SystemError("no")

    def __repr__(self) -> str:
        raise SystemError("no")

    @property
    def shape(self) -> tuple[int, ...]:
        raise SystemError("no")

    item = dtype = tolist = ravel = shape


def test_an_object_that_misbehaves_is_told_in_a_sentence(demo: Registry):
    verdict = grade(demo.get("demo.1"), encode(Hostile()))
    assert verdict.status == "error" and "Hostile" in verdict.message


def test_fresh_numbers_are_graded_by_their_seed(demo: Registry):
    question = demo.get("demo.1")
    for seed in range(20):
        number = 2 * question.numbers(seed)["n"] / 1e9
        assert grade(question, encode(number), seed).status == "right"
        assert question.text(seed) == question.text(seed)
    assert len({question.text(seed) for seed in range(20)}) == 3
