"""Units by dimension: what may be added, compared and raised, and what a literal counts as."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
import sympy as sp

from course.symbols import SYMBOLS, symbols
from course.units import (
    BASES,
    BYTE,
    DEVICE,
    FLOP,
    HOUR,
    LITERALS,
    ONE,
    SECOND,
    SEQUENCE,
    TOKEN,
    Unit,
    UnitError,
    dimension_of,
    parse_unit,
    without_units,
)

P, S, T, B, R, t, beta, alpha, X, C = symbols(
    "parameters",
    "tokens",
    "sequence_length",
    "micro_batch",
    "devices",
    "time",
    "bandwidth",
    "latency",
    "payload_bytes",
    "peak_flops_per_s",
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("byte", "byte"),
        ("1", "1"),
        ("FLOP/s/device", "FLOP/device/s"),
        ("device*hour", "device*hour"),
        ("byte/byte", "1"),
        ("1/s", "1/s"),
        ("s^2/byte^2", "s^2/byte^2"),
        ("token/sequence*sequence", "token"),
        ("byte / s", "byte/s"),
    ],
)
def test_units_are_read_and_shown(text, shown):
    unit = parse_unit(text)
    assert str(unit) == shown
    assert parse_unit(str(unit)) == unit


@pytest.mark.parametrize("text", ["bit", "GB", "bytes", "FLOPs", "B/s", "byte/ms", "percent", "gpu"])
def test_other_units_are_refused_by_name(text):
    with pytest.raises(UnitError, match=r"is not a unit; the units are byte, FLOP, s, hour, device"):
        parse_unit(text)


def test_no_base_unit_equals_another():
    for first, second in combinations(BASES, 2):
        assert parse_unit(first) != parse_unit(second)
        with pytest.raises(UnitError):
            dimension_of(sp.Symbol(f"unit_{first}", positive=True) + sp.Symbol(f"unit_{second}", positive=True))
    assert {"byte", "FLOP", "s", "device", "token", "sequence", "currency"} <= set(BASES)


def test_units_multiply_and_cancel():
    rate = parse_unit("FLOP/s")
    assert rate * parse_unit("s") == parse_unit("FLOP")
    assert rate * rate ** Fraction(-1) == ONE == Unit()
    assert (parse_unit("byte^2") ** Fraction(1, 2)) == parse_unit("byte")


@pytest.mark.parametrize(
    ("expression", "unit"),
    [
        (6 * P * S * FLOP / TOKEN, "FLOP"),
        (B * T, "token"),
        (X / beta + alpha, "s"),
        (sp.Max(X / beta, alpha), "s"),
        (sp.Min(C, 3 * C), "FLOP/s/device"),
        (sp.ceiling(S / T), "sequence"),
        (sp.sqrt(X**2), "byte/device"),
        (t / (3600 * SECOND / HOUR) * R, "device*hour"),
        ((P - 1) / P, "1"),
        (2**P, "1"),
        (sp.Piecewise((X, P > 1), (2 * X, True)), "byte/device"),
        (sp.Abs(alpha - t), "s"),
        (sp.S.Half * BYTE, "byte"),
    ],
)
def test_dimension_of(expression, unit):
    assert dimension_of(expression) == parse_unit(unit)


@pytest.mark.parametrize("expression", [sp.Integer(0), sp.oo])
def test_zero_and_infinity_fit_any_unit(expression):
    assert dimension_of(expression) is None
    assert dimension_of(sp.Max(expression, X, evaluate=False)) == parse_unit("byte/device")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (P + S, "adds"),
        (X + 1, "adds"),
        (X * DEVICE + X, "adds"),
        (T + S, "adds"),
        (SEQUENCE + TOKEN, "adds"),
        (t + HOUR, "adds"),
        (sp.Max(X, t), "compares"),
        (sp.Min(C, C / FLOP), "compares"),
        (sp.Piecewise((X, P > 1), (t, True)), "chooses between"),
        (sp.Piecewise((X, t > X), (2 * X, True)), "compares"),
        (2**X, "raises a unit"),
        (X**P, "raises a unit"),
        (1 / (X + t), "adds"),
        (sp.log(X), "has no rule"),
        (sp.Symbol("stray") + 1, "not in the table"),
        (sp.Symbol("unit_bit") / SECOND, "not in the table"),
    ],
)
def test_mixed_units_are_refused(expression, message):
    with pytest.raises(UnitError, match=message):
        dimension_of(expression)


def test_literals_count_as_one():
    expression = 6 * P * S * FLOP / TOKEN + BYTE * 0
    assert without_units(expression) == 6 * P * S
    assert not without_units(sp.Add(*LITERALS)).free_symbols


def test_every_symbol_has_its_unit():
    for entry in SYMBOLS.values():
        assert dimension_of(entry.symbol) == parse_unit(entry.unit)
