"""An expression is graded by equivalence: by algebra first, then by its value at random points of the ranges."""

from __future__ import annotations

import cmath
import random
from typing import Any

import sympy as sp

from course.grading.answers import Encoded
from course.grading.arithmetic import Unreadable, read
from course.grading.verdict import Verdict, refused, right, wrong
from course.questions.kinds import Expression, Given
from course.symbols import BY_SYMBOL, SYMBOLS

__all__ = ["equivalent", "judge", "points"]

POINTS = 16
SAME = 1e-9
ALGEBRA_UP_TO = 120
"""Above this many operations the points alone decide: simplification may take minutes."""


def judge(question: Expression, given: Given, answer: Encoded) -> Verdict:
    """Grade an encoded expression: a text such as `"6*P*S"`, or what SymPy wrote."""
    allowed = {SYMBOLS[key].symbol for key in question.symbols}
    names = ", ".join(f"{SYMBOLS[key].symbol} ({SYMBOLS[key].meaning.partition(':')[0]})" for key in question.symbols)
    if answer["kind"] == "refused":
        return refused(answer["why"])
    if answer["kind"] == "number":
        return wrong(f"A formula is asked for, not one number. Its symbols are {names}.")
    if answer["kind"] != "text":
        return refused(
            f'A formula is asked for: a SymPy expression, or a text such as "6*P*S". Its symbols are {names}.'
        )
    try:
        given_expression = read(answer["text"])
    except (Unreadable, RecursionError) as error:
        return refused(str(error) if isinstance(error, Unreadable) else "This formula is nested too deeply.")
    strange = sorted(str(symbol) for symbol in given_expression.free_symbols - allowed)
    if strange:
        return wrong(f"It holds {', '.join(strange)}, which the question does not give. The symbols are {names}.")
    target = _plain(question.answer(given))
    grid = points(question, POINTS)
    if equivalent(given_expression, target, grid):
        return right()
    for mistake in question.mistakes:
        if equivalent(given_expression, _plain(mistake.value(given)), grid, algebra=False):
            return wrong(mistake.sentence(), mistake.name)
    return wrong(_shape(given_expression, target, grid))


def _plain(expression: Any) -> sp.Expr:
    """A formula of the course, or an expression, without unit literals."""
    return sp.sympify(getattr(expression, "value_expression", expression))


def points(question: Expression, count: int) -> list[dict[sp.Symbol, sp.Number]]:
    """Random values of the symbols within their ranges, spread over magnitudes; the same ones each time."""
    source = random.Random(question.id)
    rows = []
    for _ in range(count):
        row = {}
        for key in question.symbols:
            entry = SYMBOLS[key]
            low = max(entry.low, 1e-3 if entry.high <= 1 else 0.5)
            high = min(entry.high, 1e4)
            value = low * (high / low) ** source.random()
            if (entry.low, entry.high) == (0, 1) and entry.unit == "1":
                value = float(source.randint(0, 1))  # a switch
            row[entry.symbol] = sp.Integer(max(round(value), 1)) if entry.whole else sp.Float(value, 20)
        rows.append(row)
    return rows


def equivalent(one: sp.Expr, two: sp.Expr, grid: list[dict[sp.Symbol, sp.Number]], algebra: bool = True) -> bool:
    """Whether two expressions are the same: by algebra where that is cheap, else at every point of the grid."""
    if one == two:
        return True
    small = algebra and one.count_ops() + two.count_ops() <= ALGEBRA_UP_TO
    if small and not (one - two).has(sp.Max, sp.Min, sp.ceiling) and sp.expand(one - two) == 0:
        return True
    ratios = [_compare(one, two, row) for row in grid]
    known = [ratio for ratio in ratios if ratio is not None]
    return len(known) >= len(grid) // 2 and all(abs(ratio - 1) < SAME for ratio in known)


def _compare(one: sp.Expr, two: sp.Expr, row: dict[sp.Symbol, sp.Number]) -> complex | None:
    """The ratio of two expressions at a point; None where neither has a value there, 1 where both are 0."""
    first, second = _value(one, row), _value(two, row)
    if first is None and second is None:
        return None
    if first is None or second is None:
        return 0j
    if abs(second) < 1e-12:
        return 1 + 0j if abs(first) < 1e-9 else 0j
    return first / second


def _value(expression: sp.Expr, row: dict[sp.Symbol, sp.Number]) -> complex | None:
    try:
        value = complex(expression.evalf(17, subs=row) if expression.free_symbols else expression.evalf(17))
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return None
    return value if cmath.isfinite(value) else None


def _shape(one: sp.Expr, two: sp.Expr, grid: list[dict[sp.Symbol, sp.Number]]) -> str:
    """What can be said without giving the formula away."""
    ratios = [ratio for ratio in (_compare(one, two, row) for row in grid) if ratio is not None]
    if ratios and abs(ratios[0]) > 1e-9 and all(abs(ratio / ratios[0] - 1) < 1e-6 for ratio in ratios):
        return "Its dependence on every symbol is right; a constant factor is not."
    missing = sorted(str(symbol) for symbol in two.free_symbols - one.free_symbols)
    if missing:
        return f"It does not depend on {', '.join(missing)} ({', '.join(_meaning(name) for name in missing)})."
    return "It has the right symbols, in another combination."


def _meaning(notation: str) -> str:
    return next(entry.meaning.partition(":")[0] for symbol, entry in BY_SYMBOL.items() if str(symbol) == notation)
