"""A formula: its proof, its three kinds of answer, and what it says to a wrong argument."""

from __future__ import annotations

import ast
import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from formulas import FORMULAS

import course
from course import batch, estimate, mfu, overlap, place, shard
from course.formula import Formula, FormulaError, Step, WrongFormula
from course.symbols import HUGE, SYMBOLS, symbols
from course.units import BYTE, DEVICE, FLOP, HOUR, LITERALS, SECOND, SEQUENCE, TOKEN, UnitError, parse_unit

ALL = pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
P, S, T, X, B, D_p, t, alpha, beta = symbols(
    "parameters", "tokens", "sequence_length", "payload_bytes", "micro_batch", "data", "time", "latency", "bandwidth"
)
R, C, gamma, p_h, intensity, t_dev, t_0, t_D = symbols(
    "devices", "peak_flops_per_s", "goodput", "price_per_accelerator_hour", "intensity", "device_time", "baseline_time",
    "scaled_time",
)  # fmt: skip


def changed(formula: Formula, **changes) -> Formula:
    """A new formula that differs in the given fields."""
    kept = {one.name: getattr(formula, one.name) for one in dataclasses.fields(Formula) if one.name != "_cache"}
    return Formula(**(kept | changes))


def wrong(formula: Formula, expression: sp.Expr) -> Formula:
    """The formula with another expression, to be refused by its unit alone: the derivation is left out."""
    return changed(formula, expression=expression, derivation=())


def draw_inputs(formula: Formula, seed: int, count: int | None = None) -> dict:
    """Arguments inside the ranges of a formula: numbers, or columns of `count`."""
    draw = random.Random(f"{seed} {formula.name}")

    def one(entry):
        high = entry.low + 1 if entry.high == 1 else min(entry.high, 40)
        value = draw.uniform(max(entry.low, 0.01), min(high, entry.high))
        return float(round(value)) if entry.whole else value

    if count is None:
        return {entry.key: one(entry) for entry in formula.inputs}
    return {entry.key: np.array([one(entry) for _ in range(count)]) for entry in formula.inputs}


# ---------------------------------------------------------------- proof
@ALL
def test_unit_and_derivation_hold(formula):
    formula.verify()


@ALL
def test_every_symbol_is_listed_and_every_word_is_there(formula):
    assert formula.inputs
    assert formula.meaning and formula.source and formula.result
    parse_unit(formula.unit)


def test_no_formula_of_the_source_is_left_out():
    """Whatever the collection does, every `name = Formula(...)` of the package must be in it."""
    written = set()
    for file in Path(course.__file__).parent.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            value = getattr(node, "value", None)
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "Formula":
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                written.add(target.id)
    assert len(written) > 50
    assert written == {formula.name for formula in FORMULAS.values()}


def test_names_are_the_attributes_they_are_reached_by():
    assert {name: formula.name for name, formula in FORMULAS.items()} == {
        name: name.rpartition(".")[2] for name in FORMULAS
    }


@ALL
@pytest.mark.parametrize("literal", LITERALS, ids=str)
def test_one_unit_too_many_or_too_few_is_refused(formula, literal):
    for planted in (formula.expression * literal, formula.expression / literal):
        with pytest.raises((WrongFormula, UnitError)):
            wrong(formula, planted).verify()


@ALL
def test_a_wrong_step_is_refused(formula):
    more = formula.expression + LITERALS_OF[formula.unit]
    for planted in (2 * formula.expression, formula.expression / 3, -formula.expression, more):
        with pytest.raises(WrongFormula, match="the step 'planted' gives"):
            changed(formula, derivation=(Step("planted", planted),)).verify()


def _literal_of(unit: str) -> sp.Expr:
    """1 in a unit, as an expression."""
    by_name = {str(literal).removeprefix("unit_"): literal for literal in LITERALS}
    parts = [by_name[base] ** sp.Rational(power) for base, power in parse_unit(unit).exponents]
    return sp.Mul(*parts)


LITERALS_OF = {formula.unit: _literal_of(formula.unit) for formula in FORMULAS.values()}

BIT = sp.Symbol("unit_bit", positive=True)
PLANTS = {
    "bit for byte": (place.point_to_point_time, alpha + X * BIT / BYTE / beta),
    "bits a second for bytes a second": (place.algorithm_bandwidth, place.algorithm_bandwidth.expression * BIT / BYTE),
    "FLOP for FLOP/s": (mfu.mfu, mfu.mfu.expression * t),
    "FLOP/s for FLOP": (estimate.six_ps_run, estimate.six_ps_run.expression / t),
    "total for each device": (shard.data_parallel_traffic, shard.data_parallel_traffic.expression * DEVICE),
    "each device for total": (mfu.run_time, mfu.run_time.expression / DEVICE),
    "devices forgotten": (mfu.accelerator_hours, mfu.accelerator_hours.expression / R),
    "token for sequence": (batch.tokens_per_step, D_p * B * S / TOKEN),
    "sequence length forgotten": (batch.tokens_per_step, batch.tokens_per_step.expression / T),
    "sequence for token": (estimate.logits_bytes, estimate.logits_bytes.expression / T),
    "3600 forgotten": (mfu.accelerator_hours, R * t / gamma),
    "hours for seconds": (mfu.wall_time, t / gamma * HOUR / SECOND),
    "currency forgotten": (mfu.cost, mfu.cost.expression / p_h),
    "latency without its unit": (place.ring_all_gather_time, place.ring_all_gather_time.expression + 1),
    "bytes added to seconds": (place.point_to_point_time, alpha + X),
    "maximum of bytes and seconds": (overlap.layer_time, sp.Max(t_dev, X)),
    "minimum of FLOP/s and FLOP/byte": (estimate.attainable, sp.Min(C, intensity)),
    "parameters for FLOPs": (estimate.six_ps, 6 * P / TOKEN),
    "sequences for tokens": (estimate.palm, estimate.palm.expression * TOKEN / SEQUENCE),
    "tokens squared": (estimate.six_ps_run, 6 * P * S**2 * FLOP / TOKEN),
}


@pytest.mark.parametrize("name", PLANTS)
def test_planted_unit_errors_are_refused(name):
    formula, expression = PLANTS[name]
    with pytest.raises((WrongFormula, UnitError)):
        wrong(formula, expression).verify()


def test_a_wrong_number_in_the_right_unit_is_refused_by_the_derivation():
    for formula, expression in (
        (mfu.accelerator_hours, R * t / gamma * (3600 * HOUR / SECOND)),
        (shard.all_reduce_bytes, 8 * shard.all_reduce_bytes.expression),  # bits, unsaid
        (estimate.six_ps, 3 * P * FLOP / TOKEN),  # backward forgotten twice
    ):
        with pytest.raises(WrongFormula, match="the step"):
            changed(formula, expression=expression).verify()


def test_a_wrong_declared_unit_is_refused():
    for unit in ("byte", "FLOP/s", "FLOP/token/device", "FLOP/sequence", "1"):
        with pytest.raises(WrongFormula, match="six_ps is declared in"):
            changed(estimate.six_ps, unit=unit).verify()
    with pytest.raises(UnitError, match="'bit' in 'bit/s' is not a unit"):
        changed(estimate.six_ps, unit="bit/s").verify()


def test_a_limit_that_leads_elsewhere_is_refused():
    away = Step("long sequences", estimate.palm.expression, limit=(T, sp.oo))
    with pytest.raises(WrongFormula):
        changed(estimate.six_ps, derivation=(away,)).verify()


def test_show_derivation_verifies_first():
    planted = changed(estimate.six_ps, derivation=(Step("two", 2 * P * FLOP / TOKEN),))
    with pytest.raises(WrongFormula):
        planted.show_derivation()
    shown = str(estimate.six_ps.show_derivation())
    assert shown.count("\n") == 2 and "6*P" in shown and "unit_" not in shown
    assert estimate.six_ps.show_derivation()._repr_markdown_().startswith("1. ")


# ---------------------------------------------------------------- number, array, symbol
@ALL
def test_number_array_and_symbol_give_the_same(formula):
    columns = draw_inputs(formula, seed=1, count=3)
    together = formula(**columns)
    assert together.shape == (3,) and together.dtype == np.float64
    for row in range(3):
        numbers = {key: float(column[row]) for key, column in columns.items()}
        alone = formula(**numbers)
        assert type(alone) is float
        assert alone == pytest.approx(together[row], rel=1e-12)
        for key in numbers:  # one symbol left open at a time, then filled
            left_open = formula(**{**numbers, key: SYMBOLS[key].symbol})
            assert left_open.free_symbols <= {SYMBOLS[key].symbol}
            filled = float(left_open.subs(SYMBOLS[key].symbol, numbers[key]))
            assert filled == pytest.approx(alone, rel=1e-9, abs=1e-12)


@ALL
def test_left_open_altogether_it_is_its_expression(formula):
    assert formula(**{entry.key: entry.symbol for entry in formula.inputs}) == formula.value_expression
    assert not formula.value_expression.free_symbols & set(LITERALS)


@ALL
def test_a_constant_beside_a_column_takes_its_shape(formula):
    numbers = draw_inputs(formula, seed=2)
    for key in numbers:
        column = formula(**{**numbers, key: np.full((2, 3), numbers[key])})
        assert column.shape == (2, 3)
        assert np.ptp(column) == 0 and column[0, 0] == pytest.approx(formula(**numbers), rel=1e-12)


def test_columns_broadcast_against_each_other():
    grid = batch.bubble_share(pipeline=np.array([[2], [4]]), interleave=1, micro_batches=np.array([4, 8, 16]))
    assert grid.shape == (2, 3)
    assert grid[1].tolist() == [pytest.approx(3 / 7), pytest.approx(3 / 11), pytest.approx(3 / 19)]
    assert batch.bubble_share(pipeline=[1, 3], interleave=1, micro_batches=2).tolist() == [0, 0.5]
    assert batch.bubble_share(pipeline=np.array([]), interleave=1, micro_batches=2).shape == (0,)


def test_a_result_that_depends_on_no_column_takes_their_shape():
    with mfu.speedup.replaced(sp.Integer(7)):
        assert mfu.speedup(baseline_time=np.array([1.0, 9.0]), scaled_time=2).tolist() == [7, 7]
        assert mfu.speedup(baseline_time=1, scaled_time=2) == 7


def test_six_ps_does_not_overflow_on_integer_columns():
    parameters, tokens = np.array([405_853_388_800, 7]), np.array([15_600_000_000_000, 1])
    assert parameters.dtype == np.int64
    with np.errstate(over="ignore"):
        assert (6 * parameters * tokens)[0] != 6 * 405_853_388_800 * 15_600_000_000_000  # what NumPy would have said
    exact = [6 * int(p) * int(s) for p, s in zip(parameters, tokens, strict=True)]
    assert estimate.six_ps_run(parameters=parameters, tokens=tokens).tolist() == pytest.approx(exact, rel=1e-15)


@ALL
def test_the_ends_of_the_ranges_are_numbers_and_no_warning(formula):
    edges = {entry.key: entry.low or 1e-3 for entry in formula.inputs}
    assert np.isfinite(formula(**edges))


# ---------------------------------------------------------------- wrong arguments
@ALL
def test_a_missing_argument_is_named_with_its_meaning_and_unit(formula):
    numbers = draw_inputs(formula, seed=3)
    for entry in formula.inputs:
        with pytest.raises(FormulaError) as raised:
            formula(**{key: value for key, value in numbers.items() if key != entry.key})
        _one_sentence(raised.value, formula, entry, "needs")


NO_NUMBERS = ("12", True, False, None, 1j, [1, "a"], {}, ..., np.True_, np.array([True]), ["1", "2"], b"1")
NOT_FINITE = (float("nan"), float("inf"), float("-inf"), np.array([1.0, np.nan]), sp.nan, sp.oo, sp.zoo, sp.I)


@pytest.mark.parametrize("value", NO_NUMBERS + NOT_FINITE, ids=repr)
def test_what_is_no_finite_number_is_refused(value):
    entry = SYMBOLS["sequence_length"]
    with pytest.raises(FormulaError) as raised:
        batch.tokens_per_step(data=2, micro_batch=1, accumulation=1, sequence_length=value)
    _one_sentence(raised.value, batch.tokens_per_step, entry, "must be")


@ALL
def test_every_argument_outside_its_range_is_refused(formula):
    numbers = draw_inputs(formula, seed=4)
    for entry in formula.inputs:
        outside = [-1.0, np.array([entry.low, -3.0]), entry.low - 1e-3]
        outside += [entry.high * 1.01] if entry.high < HUGE else [1e40]
        for value in outside:
            with pytest.raises(FormulaError) as raised:
                formula(**{**numbers, entry.key: value})
            _one_sentence(raised.value, formula, entry, "must be at")


def _one_sentence(error, formula, entry, verb):
    text = str(error)
    assert text.startswith(formula.name) and verb in text and entry.key in text and entry.meaning in text
    assert entry.unit == "1" or f"in {entry.unit}" in text
    assert text.endswith(".") and "\n" not in text


def test_a_misnamed_argument_is_named_with_the_nearest_right_one():
    with pytest.raises(FormulaError, match=r"takes no micro_batchs\. Did you mean micro_batch\?"):
        batch.tokens_per_step(data=8, micro_batchs=1, sequence_length=4096, accumulation=4)
    with pytest.raises(FormulaError, match=r"takes no zzz\. It takes .*data"):
        batch.tokens_per_step(data=8, zzz=1, sequence_length=4096, accumulation=4)


def test_columns_that_do_not_fit_are_refused_by_name():
    with pytest.raises(FormulaError, match="data"):
        batch.tokens_per_step(data=[1, 2], micro_batch=[1, 2, 3], sequence_length=1, accumulation=1)


def test_symbols_and_columns_do_not_mix():
    with pytest.raises(FormulaError, match="cannot be mixed"):
        batch.tokens_per_step(data=D_p, micro_batch=[1, 2], sequence_length=1, accumulation=1)


def test_numbers_of_other_libraries_are_numbers():
    from decimal import Decimal
    from fractions import Fraction

    for two in (2, 2.0, np.int64(2), np.float32(2), sp.Integer(2), sp.Rational(2), Fraction(2), Decimal(2)):
        assert batch.tokens_per_step(data=two, micro_batch=3, sequence_length=5, accumulation=7) == 210


def test_a_symbol_the_table_does_not_list_is_refused():
    with pytest.raises(FormulaError, match=r"stray uses \['unlisted'\]"):
        _ = Formula("stray", "x", sp.Symbol("unlisted") + 1, "1", "nothing").inputs


# ---------------------------------------------------------------- display and replacement
@ALL
def test_it_shows_itself_without_unit_literals(formula):
    for text in (str(formula), formula._repr_latex_(), formula._repr_markdown_()):
        assert "unit_" not in text
    legend = formula._repr_markdown_()
    for entry in formula.inputs:
        assert sp.latex(entry.symbol) in legend and entry.meaning in legend


def test_replaced_computes_with_the_other_expression_and_restores():
    formula, given = mfu.speedup, {"baseline_time": 6.0, "scaled_time": 2.0}
    before = formula.expression
    assert formula(**given) == 3
    with formula.replaced(t_0 * t_D):
        assert formula(**given) == 12 and formula(baseline_time=t_0, scaled_time=2) == 2 * t_0
        with formula.replaced(t_0):  # inputs stay
            assert formula(**given) == 6
        assert formula(**given) == 12
    assert formula(**given) == 3 and formula.expression is before
    with pytest.raises(RuntimeError), formula.replaced(t_0):
        raise RuntimeError
    assert formula(**given) == 3 and str(formula) == "s = t_0/t_D"
    formula.verify()
