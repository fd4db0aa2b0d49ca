"""Expressions, judgements and layouts: equivalence, the two parts of a judgement, the model as judge."""

from __future__ import annotations

import time
from typing import Any

import pytest
import sympy as sp

from course.estimate import six_ps_run
from course.grading.answers import encode
from course.grading.judge import grade
from course.grading.oracle import Oracle
from course.problem import Layout
from course.questions.registry import Registry
from course.symbols import symbols

P, S = symbols("parameters", "tokens")


@pytest.mark.parametrize(
    "answer",
    [
        6 * P * S,
        2 * P * S + 4 * P * S,
        "6*P*S",
        "P*S*6",
        "6 * parameters * tokens",
        "2*P*S + 4*P*S",
        "F = 6*P*S",
        "6·P·S",
        "$6*P*S$",
        "12*P*S/2",
        "P*S*(2+4)",
        "6*P**1*S",
        "6*(P*S)",
        "sqrt(36)*P*S",
        "6.0*P*S",
        "P^2*6*S/P",
        "max(6,2)*P*S",
        six_ps_run,
        sp.Symbol("P") * sp.Symbol("S") * 6,
        sp.Eq(sp.Symbol("F"), 6 * P * S),
        "exp(log(6*P*S))",
        "6e0*P*S",
        "((P+S)^2-(P-S)^2)*3/2",
    ],
)
def test_every_way_to_write_an_expression(demo: Registry, answer: Any):
    assert grade(demo.get("demo.2"), encode(answer)).status == "right"


@pytest.mark.parametrize(
    ("answer", "mistake", "said"),
    [
        ("2*P*S", "backward forgotten", "forward"),
        (2 * P * S, "backward forgotten", "forward"),
        ("3*P*S", None, "constant factor"),
        ("6*P", None, "does not depend on S"),
        ("6*P*S**2", None, "another combination"),
        ("6*P+S", None, "another combination"),
        ("6*N*S", None, "N"),
        (6e20, None, "one number"),
        ("6*P*S+1e-3*P*S", None, "constant factor"),
        ("-6*P*S", None, "constant factor"),
        ("0*P*S", None, ""),
        ("6*P*S/S", None, "depend"),
    ],
)
def test_a_wrong_expression_is_told_what_holds(demo: Registry, answer: Any, mistake: str | None, said: str):
    verdict = grade(demo.get("demo.2"), encode(answer))
    assert (verdict.status, verdict.mistake) == ("wrong", mistake), verdict
    assert said in verdict.message


HOSTILE = [
    "6P",
    "6*Q*S",
    "().__class__.__bases__[0]",
    "__import__('os').system('ls')",
    "lambda: 1",
    "[6*P*S]",
    "P if S else S",
    "P and S",
    "9**9**9**9",
    "P**(9**9)",
    "(" * 300 + "P" + ")" * 300,
    "P" + "+P" * 1500,
    "'P'",
    "P.x",
    "P[0]",
    "open('x')",
    "{P}",
    "P(S)",
    "1/0",
    "P//S",
    "P%S",
    "f'{P}'",
    "P;S",
    "x" * 5000,
    "max()",
    "sqrt(P, S, key=1)",
    "10**400*P",
    "1e400*P",
    "P\nS",
    "P==S",
]


@pytest.mark.parametrize("answer", HOSTILE, ids=[text[:20] for text in HOSTILE])
def test_what_is_no_formula_is_told_in_a_sentence(demo: Registry, answer: str):
    start = time.monotonic()
    verdict = grade(demo.get("demo.2"), encode(answer))
    assert verdict.status in ("error", "wrong")
    assert 10 < len(verdict.message) < 400 and "Traceback" not in verdict.message
    assert time.monotonic() - start < 5


def test_an_expression_of_many_thousand_parts_is_refused(demo: Registry):
    huge = sp.Add(*[sp.Pow(P, n) for n in range(5000)], evaluate=False)
    verdict = grade(demo.get("demo.2"), encode(huge))
    assert verdict.status == "error" and "too large" in verdict.message


def test_grading_that_hangs_is_stopped_and_the_next_one_works(oracle: Oracle):
    nested = "6*P*S"
    for _ in range(60):
        nested = f"sqrt({nested}+P**64)*log(exp(P)+S)"
    quick = Oracle(seconds=0.05)
    with quick:
        quick.ask({"do": "list"}, seconds=60)
        reply = quick.ask(
            {"do": "check", "id": "demo.2", "answer": {"kind": "text", "text": nested}, "seed": None}, 0.0001
        )
        assert reply == {"failed": reply["failed"], "slow": True}
        again = quick.ask(
            {"do": "check", "id": "demo.2", "answer": {"kind": "text", "text": "6*P*S"}, "seed": None}, 20
        )
        assert again["status"] == "right"


# ---------------------------------------------------------------- judgements
@pytest.mark.parametrize(
    "answer",
    [
        ("b", 2),
        ["b", "2"],
        "b2",
        "b, 2",
        "B 2",
        "(b) (2)",
        "b because 2",
        ("2", "b"),
        {"choice": "b", "reason": 2},
        ("b", 2.0),
    ],
)
def test_a_judgement_in_every_form(demo: Registry, answer: Any):
    assert grade(demo.get("demo.4"), encode(answer)).status == "right"


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (("a", 2), "wrong", "Another choice"),
        (("b", 1), "wrong", "Not so."),
        (("a", 1), "wrong", "Another choice"),
        ("b", "error", "reason is missing"),
        (2, "error", "choice is missing"),
        ("c2", "error", "none of the choices"),
        (("b", 2, 1), "error", ""),
        (True, "error", "True and False"),
        ((None, None), "unanswered", ""),
        (("b", None), "error", "reason is missing"),
        ([], "unanswered", ""),
        (3.5, "error", ""),
        (len, "error", "function"),
        ("this is long", "error", "none of the choices"),
        ({"b": [1, 2]}, "error", ""),
    ],
)
def test_a_judgement_needs_both_parts(demo: Registry, answer: Any, status: str, said: str):
    verdict = grade(demo.get("demo.4"), encode(answer))
    assert verdict.status == status, verdict
    assert said in verdict.message


# ---------------------------------------------------------------- layouts
@pytest.mark.parametrize(
    ("answer", "status", "mistake"),
    [
        ({"data": 8, "sharding": "zero2", "recompute": "none"}, "right", None),
        (Layout(data=8, sharding="zero2"), "right", None),
        ({"data": 8}, "wrong", "does not fit"),
        ({"data": 4}, "wrong", "illegal layout"),
        ({"data": 1, "tensor": 8}, "wrong", "far from the best"),
        ({"data": 8, "sharding": "zero9"}, "error", None),
        ({"datas": 8}, "error", None),
        ({"data": -8}, "error", None),
        ({"data": "eight"}, "error", None),
        ({"data": [8]}, "error", None),
        ({}, "wrong", "illegal layout"),
        (8, "error", None),
        ("data 8", "error", None),
    ],
)
def test_a_layout_is_judged_by_the_model(demo: Registry, answer: Any, status: str, mistake: str | None):
    verdict = grade(demo.get("demo.5"), encode(answer))
    assert (verdict.status, verdict.mistake) == (status, mistake), verdict
    assert verdict.status == "right" or len(verdict.message) > 20
