"""Change every formula in one place at a time: an oracle must notice. The counts are printed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from functools import partial

import pytest
import sympy as sp
from formulas import FORMULAS
from mutation import Count, Document, Examples, count, is_equivalent, is_found, mutants
from oracles import ORACLES
from oracles.checking import agrees

from course.examples import names, path
from course.formula import Formula
from course.problem import load
from course.symbols import symbols

n, X, s_p, P, S = symbols("ranks", "payload_bytes", "sequence_sharded", "parameters", "tokens")


def _documents() -> Iterator[tuple[str, Document]]:
    """What `predict`, `sweep` and `answer` put out for every example."""
    for module in ("predict", "sweep", "answer"):
        if importlib.util.find_spec(f"course.{module}") is None:
            continue
        function = getattr(importlib.import_module(f"course.{module}"), module)
        for name in names():
            yield f"{module} {name}", partial(function, load(path(name)))


def test_an_oracle_notices_every_change(capsys):
    examples = Examples(dict(_documents()))
    counts = {name: count(formula, ORACLES.get(name, []), examples) for name, formula in FORMULAS.items()}
    total = sum(counts.values(), start=Count())
    with capsys.disabled():
        print("\n", *(f"{name:42}{one}" for name, one in counts.items()), f"{'all formulas':42}{total}", sep="\n")
        for mutant, example in total.survivors.items():
            print(f"not found{f', though it moves {example}' if example else ''}: {mutant}")
    assert total.mutants > 20 * len(FORMULAS)
    assert not [mutant for mutant, example in total.survivors.items() if example]


# ---------------------------------------------------------------- the machine itself
def _formula(expression: sp.Expr) -> Formula:
    return Formula("some", "x", expression, "1", "something")


def _mutated(expression: sp.Expr) -> set[sp.Expr]:
    return {mutant.expression for mutant in mutants(_formula(expression))}


def test_coefficients_signs_and_exponents_change_one_at_a_time():
    found = _mutated(2 * X * (n - 1) / n)
    assert {
        4 * X * (n - 1) / n,  # coefficient
        3 * X * (n - 1) / n,
        2 * X * (n + 1) / n,  # sign
        2 * X * (n - 2) / n,  # the 1 that is subtracted
        2 * X * (2 * n - 1) / n,
        2 * X**2 * (n - 1) / n,  # exponents that are 1, unsaid
        2 * X * (n - 1) ** 2 / n,
        2 * X * (n - 1) / n**2,  # and the one that is -1
        2 * X * (n - 1) * n,
    } <= found
    assert 2 * X * (n - 1) / n not in found


def test_maximum_and_minimum_are_exchanged():
    assert sp.Min(X, P) in _mutated(sp.Max(X, P)) and sp.Max(X, P) in _mutated(sp.Min(X, P))
    assert sp.Max(X, 2 * P) in _mutated(sp.Max(X, P))


def test_a_change_that_changes_nothing_is_seen():
    sharded = _formula(X * (1 - s_p))
    by_expression = {mutant.expression: mutant for mutant in mutants(sharded)}
    assert is_equivalent(sharded, by_expression[X * (1 - s_p**2)])  # a flag is 0 or 1
    assert not is_equivalent(sharded, by_expression[X * (1 + s_p)])
    assert not is_equivalent(sharded, by_expression[X**2 * (1 - s_p)])


def test_a_blunt_oracle_lets_changes_pass():
    product = _formula(6 * P * S)

    def one_point_alone():
        return [({"parameters": 1, "tokens": 1}, 6)]

    passed = {one.expression for one in mutants(product) if not is_found(product, one, [agrees(one_point_alone)])}
    assert passed == {6 * P**2 * S, 6 * S / P, 6 * P * S**2, 6 * P / S}
    assert not any(is_found(product, one, []) for one in mutants(product))


def test_relevance_is_what_moves_an_output_by_more_than_one_per_cent():
    small = _formula(1000 * P + S)
    examples = Examples(
        {"run": lambda: {"a": [small(parameters=1, tokens=1)], "text": f"{small(parameters=2, tokens=1)}"}}
    )
    by_expression = {one.expression: one for one in mutants(small)}
    assert examples.relevant(small, by_expression[2000 * P + S]) == "run"
    assert examples.relevant(small, by_expression[1000 * P - S]) == ""
    assert examples.asked(small, by_expression[2000 * P + S]) and not examples.asked(small, by_expression[1000 * P - S])
    refusing = Examples({"run": lambda: 1 / (small(parameters=1, tokens=1) - 2001)})
    assert refusing.relevant(small, by_expression[2000 * P + S]) == "run"


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_has_mutants(name):
    assert len(mutants(FORMULAS[name])) >= 3
