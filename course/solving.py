"""Solve a formula for one of its symbols: in closed form where SymPy can, else by bisection on the same expression."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy as sp

from course.symbols import BY_SYMBOL, HUGE, Entry

if TYPE_CHECKING:
    from course.formula import Formula

_STEPPED = (sp.Max, sp.Min, sp.ceiling, sp.floor, sp.Mod, sp.Piecewise)


class NoSolution(ValueError):
    """No value of the symbol in its range meets the equation."""


@dataclass(frozen=True)
class Solution:
    """What `Formula.solve` returns.

    `value` is the number (None when symbols were left open), `how` says how it was found, and `expression` holds the
    closed form where there is one.
    """

    value: float | None
    how: str
    expression: sp.Expr | None = None

    def __str__(self) -> str:
        return f"{self.expression if self.value is None else self.value} ({self.how})"


def solve(formula: Formula, key: str, equals: Any, others: Mapping[str, Any]) -> Solution:
    """Solve `formula = equals` for `key`; see `Formula.solve`."""
    from course.formula import FormulaError

    known = {entry.key: entry for entry in formula.inputs}
    if key not in known:
        raise FormulaError(f"{formula.name} cannot be solved for {key}: it takes {', '.join(known)}.")
    unknown = known[key]
    if isinstance(equals, str | bool) or not _is_finite(equals):
        raise FormulaError(f"{formula.name}: equals must be a finite number, not {equals!r}.")
    given = {name: value for name, value in others.items() if name != key}
    left_open = {name: entry.symbol for name, entry in known.items() if name not in given}
    expression = formula(**{**given, **left_open})  # checks names and ranges of what was given
    # the decimal as written: a ratio found by nsimplify would lose its last digits
    goal = sp.nsimplify(equals, rational=True) if isinstance(equals, sp.Basic) else sp.Rational(repr(float(equals)))
    equation = sp.sympify(expression) - goal
    closed = None if equation.has(*_STEPPED) else _closed_form(equation, unknown)
    if len(left_open) > 1:
        if closed is None:
            missing = ", ".join(name for name in left_open if name != key)
            raise FormulaError(f"{formula.name} has no closed form for {key}: give a number for {missing} as well.")
        return Solution(None, "closed form", closed)
    if closed is not None:
        value = float(closed)
        if not unknown.whole:
            return Solution(value, "closed form", closed)
        near = abs(value - round(value)) < 1e-9 * max(1.0, abs(value))
        if closed.is_Integer or (near and not closed.is_Rational):  # a ratio says exactly whether it is whole
            return Solution(float(round(value)), "closed form", closed)
    function = sp.lambdify([unknown.symbol], equation, "math")
    if unknown.whole:
        rounding = 1e-12 * abs(float(goal))  # a count that meets the goal but for the last digits meets it

        def reached(count: float) -> float:
            value = float(function(count))
            return 0.0 if abs(value) <= rounding else value

        return Solution(float(_first_whole(reached, unknown)), "bisection over the integers", closed)
    return Solution(_bisect(function, unknown), "bisection", closed)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _closed_form(equation: sp.Expr, unknown: Entry) -> sp.Expr | None:
    try:
        roots = sp.solve(equation, unknown.symbol)
    except NotImplementedError:
        return None
    for root in roots:
        if root.free_symbols or (root.is_real and unknown.low <= float(root) <= unknown.high):
            return sp.simplify(root)
    return None


def _bracket(function: Callable[[float], float], points: list[float], entry: Entry) -> tuple[float, float]:
    """Two neighbouring points between which the function changes sign."""
    previous: tuple[float, float] | None = None
    for point in points:
        try:
            value = function(point)
        except (ZeroDivisionError, OverflowError, ValueError):
            continue
        if value == 0:  # where a whole range meets the equation, its start lies after the point before
            return (point if previous is None else previous[0]), point
        if previous is not None and (value > 0) != (previous[1] > 0):
            return previous[0], point
        previous = (point, value)
    raise NoSolution(
        f"No {entry.key} between {entry.low:g} and {entry.high:g} meets the equation: it never gets there."
    )


def _bisect(function: Callable[[float], float], entry: Entry) -> float:
    lowest = max(entry.low, 1e-12)
    ratio = (entry.high / lowest) ** (1 / 400)
    points = ([0.0] if entry.low <= 0 else []) + [lowest * ratio**i for i in range(401)]
    low, high = _bracket(function, points, entry)
    started_positive = function(low) > 0
    while low < (middle := (low + high) / 2) < high:
        value = function(middle)
        if value != 0 and (value > 0) == started_positive:
            low = middle
        else:
            high = middle
    return high


def _first_whole(function: Callable[[float], float], entry: Entry) -> int:
    """The smallest integer at which the function has reached zero or crossed it."""
    points = [float(n) for n in range(int(entry.low), int(entry.low) + 64)]
    while points[-1] < min(entry.high, 1e15):
        points.append(float(int(points[-1] * 1.3)))
    low, high = _bracket(function, points, entry)
    first, last = int(low), int(high)
    started_positive = function(low) > 0
    while last - first > 1:
        middle = (first + last) // 2
        value = function(float(middle))
        if value != 0 and (value > 0) == started_positive:
            first = middle
        else:
            last = middle
    return last


def same_expression(left: sp.Expr, right: sp.Expr) -> bool:
    """Are two expressions equal? By algebra; with Max, Min or steps, at random rational points, exactly.

    >>> x = sp.Symbol("x", positive=True)
    >>> same_expression((x + 1) ** 2, x**2 + 2 * x + 1), same_expression(sp.Max(x, 1), sp.Max(x, 2))
    (True, False)
    """
    difference = sp.sympify(left) - sp.sympify(right)
    if not difference.has(*_STEPPED):
        return bool(sp.simplify(difference) == 0)
    draw = random.Random(0)
    free = sorted(difference.free_symbols, key=str)
    at = sp.lambdify(free, difference, "sympy")  # exact, and a hundred times faster than substitution
    return all(at(*(_rational(symbol, draw) for symbol in free)) == 0 for _ in range(60))


def _rational(symbol: sp.Symbol, draw: random.Random) -> sp.Rational:
    """A random rational inside the symbol's declared range."""
    entry = BY_SYMBOL.get(symbol)
    low, high = (entry.low, entry.high) if entry else (0.0, HUGE)
    if high < 1000:
        return sp.Rational(low) + sp.Rational(draw.randint(0, 60), 60) * sp.Rational(high - low)
    return sp.nsimplify(low, rational=True) + sp.Rational(draw.randint(0, 400), draw.choice((1, 3, 7, 50)))
