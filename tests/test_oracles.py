"""Every formula agrees with answers that were found without it."""

from __future__ import annotations

import pytest
from formulas import FORMULAS
from oracles import ORACLES
from oracles.checking import agrees

from course.formula import FormulaError


def test_every_formula_has_an_oracle():
    assert set(FORMULAS) == set(ORACLES)


@pytest.mark.parametrize(
    ("name", "check"),
    [pytest.param(name, check, id=f"{name}-{check.__name__}") for name in ORACLES for check in ORACLES[name]],
)
def test_formula_agrees_with(name, check):
    check(FORMULAS[name])


def test_a_check_finds_a_wrong_answer_and_a_missing_argument():
    formula = FORMULAS["mfu.speedup"]
    agrees(lambda: [({"baseline_time": 6, "scaled_time": 2}, 3)])(formula)
    with pytest.raises(AssertionError, match=r"gives 3\.0 where"):
        agrees(lambda: [({"baseline_time": 6, "scaled_time": 2}, 3.1)])(formula)
    with pytest.raises(FormulaError, match="needs scaled_time"):
        agrees(lambda: [({"baseline_time": 6}, 3)])(formula)
    with pytest.raises(AssertionError, match="no answer"):
        agrees(list)(formula)
