"""Units by dimension: byte, FLOP, second, device, token, sequence and currency never mix.

A number in a formula may carry a unit by a *unit literal*: `6 * FLOP / TOKEN * P * S`. Literals count as 1 when the
formula is computed or shown, and as their unit when it is checked.

>>> from course.symbols import symbols
>>> P, S = symbols("parameters", "tokens")
>>> print(dimension_of(6 * FLOP / TOKEN * P * S))
FLOP
>>> dimension_of(P + S)
Traceback (most recent call last):
...
course.units.UnitError: P + S adds 1 to token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from course.symbols import BY_SYMBOL

BASES = ("byte", "FLOP", "s", "hour", "device", "token", "sequence", "currency")
# hour stands beside s so that a forgotten 3600 is found as well


class UnitError(ValueError):
    """An expression mixes units, or a unit is not one of the base units."""


@dataclass(frozen=True)
class Unit:
    """A product of base units; `exponents` holds only the non-zero ones, sorted by name."""

    exponents: tuple[tuple[str, Fraction], ...] = ()

    def __mul__(self, other: Unit) -> Unit:
        total = dict(self.exponents)
        for base, exponent in other.exponents:
            total[base] = total.get(base, Fraction(0)) + exponent
        return Unit(tuple(sorted((b, e) for b, e in total.items() if e)))

    def __pow__(self, power: Fraction) -> Unit:
        return Unit(tuple((base, exponent * power) for base, exponent in self.exponents if exponent * power))

    def __str__(self) -> str:
        top = [b if e == 1 else f"{b}^{e}" for b, e in self.exponents if e > 0]
        bottom = [b if e == -1 else f"{b}^{-e}" for b, e in self.exponents if e < 0]
        return "/".join(["*".join(top) or "1", *bottom])


ONE = Unit()


def parse_unit(text: str) -> Unit:
    """Read `"FLOP/s/device"` or `"device*hour"`.

    Raises:
        UnitError: a part is not a base unit.
    """
    unit, sign = ONE, 1
    for part in text.replace("*", " * ").replace("/", " / ").split():
        if part in "*/":
            sign = 1 if part == "*" else -1
            continue
        base, _, power = part.partition("^")
        if base == "1":
            continue
        if base not in BASES:
            raise UnitError(f"{base!r} in {text!r} is not a unit; the units are {', '.join(BASES)}.")
        unit = unit * Unit(((base, Fraction(power or 1) * sign),))
    return unit


def _literal(name: str) -> sp.Symbol:
    return sp.Symbol(f"unit_{name}", positive=True)


FLOP, BYTE, SECOND, HOUR = _literal("FLOP"), _literal("byte"), _literal("s"), _literal("hour")
DEVICE, TOKEN, SEQUENCE, CURRENCY = (_literal(name) for name in ("device", "token", "sequence", "currency"))
LITERALS: dict[sp.Symbol, Unit] = {_literal(base): parse_unit(base) for base in BASES}


def without_units(expression: sp.Expr) -> sp.Expr:
    """The expression with every unit literal read as 1."""
    return sp.sympify(expression).xreplace(dict.fromkeys(LITERALS, sp.Integer(1)))


def dimension_of(expression: sp.Expr) -> Unit | None:
    """The unit of an expression; None for 0 and infinity, which fit any unit.

    Raises:
        UnitError: the expression adds or compares different units, or takes a power of one that is not a number.
    """
    expression = sp.sympify(expression)
    if expression.is_Number:
        return None if expression.is_zero or expression.is_infinite else ONE
    if isinstance(expression, sp.Symbol):
        if expression in LITERALS:
            return LITERALS[expression]
        if expression in BY_SYMBOL:
            return parse_unit(BY_SYMBOL[expression].unit)
        raise UnitError(f"{expression} has no unit: it is not in the table of symbols.")
    if isinstance(expression, sp.Add):
        return _same(expression, expression.args, "adds", "to")
    if isinstance(expression, sp.Max | sp.Min):
        return _same(expression, expression.args, "compares", "with")
    if isinstance(expression, sp.Mul):
        unit = ONE
        for argument in expression.args:
            unit = unit * (dimension_of(argument) or ONE)
        return unit
    if isinstance(expression, sp.Pow):
        return _power(expression)
    if isinstance(expression, sp.ceiling | sp.floor | sp.Abs):
        return dimension_of(expression.args[0])
    if isinstance(expression, sp.Piecewise):
        for _, condition in expression.args:
            for relation in condition.atoms(sp.core.relational.Relational):
                _same(relation, relation.args, "compares", "with")
        return _same(expression, [value for value, _ in expression.args], "chooses between", "and")
    raise UnitError(f"{type(expression).__name__} has no rule for units.")


def _same(whole: sp.Basic, parts: Iterable[sp.Expr], verb: str, joint: str) -> Unit | None:
    found: Unit | None = None
    for part in parts:
        unit = dimension_of(part)
        if unit is None:
            continue
        if found is not None and unit != found:
            raise UnitError(f"{whole} {verb} {found} {joint} {unit}.")
        found = unit
    return found


def _power(expression: sp.Pow) -> Unit:
    base, power = expression.args
    unit = dimension_of(base) or ONE
    if power.is_Rational:
        return unit ** Fraction(int(power.p), int(power.q))
    if unit != ONE or (dimension_of(power) or ONE) != ONE:
        raise UnitError(f"{expression} raises a unit to a power that is no plain number.")
    return ONE
