"""One change at a time: every coefficient, sign and exponent of an expression, and Max for Min.

A mutant is *equivalent* when it has the same value everywhere in the range of the formula, as s² has for a flag s that
is 0 or 1. It is *relevant* when it moves an output of an example run by more than 1 %. An oracle must find every one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from course.formula import Formula
from course.symbols import Entry

THRESHOLD = 0.01
"""An output has moved when it differs by more than this share."""


@dataclass(frozen=True)
class Mutant:
    """An expression that differs from that of a formula in one place, and what was done there."""

    name: str
    change: str
    expression: sp.Expr

    def __str__(self) -> str:
        return f"{self.name}: {self.change} gives {self.expression}"


def mutants(formula: Formula) -> list[Mutant]:
    """All mutants of a formula, without those SymPy itself finds equal to it or to each other."""
    original = formula.value_expression
    found: dict[sp.Expr, Mutant] = {}
    for change, expression in _everywhere(original):
        if expression != original and expression not in found and not expression.has(sp.nan, sp.zoo, sp.oo):
            found[expression] = Mutant(formula.name, change, expression)
    return list(found.values())


def _everywhere(expression: sp.Expr) -> Iterator[tuple[str, sp.Expr]]:
    """Changes of the whole, of its parts, and inside its parts."""
    yield from _here(expression)
    for place, part in enumerate(expression.args):
        for change, mutated in _everywhere(part):
            arguments = list(expression.args)
            arguments[place] = mutated
            yield change, expression.func(*arguments)


def _here(expression: sp.Expr) -> Iterator[tuple[str, sp.Expr]]:
    if expression.is_Number:  # a coefficient, a lone number, or an exponent
        yield f"{expression} doubled", 2 * expression
        yield f"{expression} increased", expression + 1
        yield f"{expression} negated", -expression
        return
    if isinstance(expression, sp.Add):
        for place, term in enumerate(expression.args):
            others = [*expression.args[:place], *expression.args[place + 1 :]]
            yield f"sign of {term}", sp.Add(*others, -term)
            yield f"coefficient of {term}", sp.Add(*others, 2 * term)
    elif isinstance(expression, sp.Max):
        yield "Max for Min", sp.Min(*expression.args)
    elif isinstance(expression, sp.Min):
        yield "Min for Max", sp.Max(*expression.args)
    if isinstance(expression, sp.Symbol | sp.Add | sp.Max | sp.Min):  # whose exponent is 1, unsaid
        yield f"exponent of {expression}", expression**2
        yield f"exponent of {expression}", expression**-1
    yield f"coefficient of {expression}", 2 * expression


# ---------------------------------------------------------------- equivalence
def _draw(entry: Entry, draw: random.Random) -> float:
    if entry.meaning.startswith("1 when "):
        return float(draw.randint(0, 1))
    high = entry.high if entry.high < 100 else max(entry.low, 0.0) + 60
    value = draw.uniform(entry.low, high)
    return float(round(value)) if entry.whole else value


def sample(formula: Formula, rows: int = 400) -> dict[str, np.ndarray]:
    """Columns of arguments in the range of a formula; flags are 0 or 1."""
    draw = random.Random(formula.name)
    return {entry.key: np.array([_draw(entry, draw) for _ in range(rows)]) for entry in formula.inputs}


def _largest_change(before: np.ndarray, after: np.ndarray) -> float:
    """The largest relative change among numbers of which some may be 0, infinite or undefined."""
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    with np.errstate(all="ignore"):
        change = np.abs(after - before) / np.maximum(np.abs(before), 1e-300)
    return float(np.max(np.where(same, 0.0, np.where(np.isfinite(change), change, np.inf)), initial=0.0))


def is_equivalent(formula: Formula, mutant: Mutant) -> bool:
    """Has the mutant the formula's value at every point of the sample?"""
    columns = sample(formula)
    with np.errstate(all="ignore"):
        before = np.asarray(formula(**columns))
        with formula.replaced(mutant.expression):
            return _largest_change(before, np.asarray(formula(**columns))) < 1e-9


# ---------------------------------------------------------------- relevance
Document = Callable[[], Any]
"""Computes what an example run puts out: numbers in dictionaries and lists."""


def flatten(document: Any, at: str = "") -> dict[str, Any]:
    """Every leaf of a document by its place.

    >>> flatten({"a": {"b": 1}, "c": [2, None]})
    {'a.b': 1, 'c.0': 2, 'c.1': None}
    """
    if isinstance(document, dict):
        pairs = document.items()
    elif isinstance(document, list | tuple):
        pairs = ((str(place), one) for place, one in enumerate(document))
    else:
        return {at: document}
    return {key: leaf for name, one in pairs for key, leaf in flatten(one, f"{at}.{name}".lstrip(".")).items()}


def moved(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Does any output differ by more than 1 %, or is it there in one and not in the other?

    >>> moved({"a": 100.0, "b": "x"}, {"a": 100.9, "b": "y"}), moved({"a": 100.0}, {"a": 101.1})
    (False, True)
    """
    if before.keys() != after.keys():
        return True
    for key, value in before.items():
        other = after[key]
        if isinstance(value, str) and isinstance(other, str):
            continue  # sentences quote the numbers
        if isinstance(value, int | float) and isinstance(other, int | float):
            if abs(other - value) > THRESHOLD * abs(value):
                return True
        elif value != other:
            return True
    return False


ROWS, CALLS = 64, 30
"""Of a long column the first rows are kept, and of many calls of a formula the first ones."""


class Examples:
    """The example runs: what they put out, and which values they ask each formula for."""

    def __init__(self, documents: dict[str, Document]) -> None:
        self._documents = documents
        self._calls: dict[int, list[dict[str, Any]]] = {}
        with self._recording():
            self._outputs = {name: flatten(document()) for name, document in documents.items()}

    @contextmanager
    def _recording(self) -> Iterator[None]:
        original = Formula.__call__

        def recording(formula: Formula, **arguments: Any) -> Any:
            calls = self._calls.setdefault(id(formula), [])
            if len(calls) < CALLS:
                calls.append({key: _first_rows(value) for key, value in arguments.items()})
            return original(formula, **arguments)

        Formula.__call__ = recording  # type: ignore[method-assign]
        try:
            yield
        finally:
            Formula.__call__ = original  # type: ignore[method-assign]

    def values(self, formula: Formula) -> list[np.ndarray]:
        """What a formula answers the examples."""
        return [np.asarray(formula(**arguments)) for arguments in self._calls.get(id(formula), [])]

    def moved(self, formula: Formula, before: list[np.ndarray]) -> bool:
        """Does the formula, as it is now, answer an example otherwise than before, by more than 1 %?"""
        return any(
            _largest_change(value, np.asarray(formula(**arguments))) > THRESHOLD
            for value, arguments in zip(before, self._calls.get(id(formula), []), strict=True)
        )

    def asked(self, formula: Formula, mutant: Mutant) -> bool:
        """Does the mutant move a value that an example asks its formula for by more than 1 %?"""
        before = self.values(formula)
        with formula.replaced(mutant.expression), np.errstate(all="ignore"):
            return self.moved(formula, before)

    def relevant(self, formula: Formula, mutant: Mutant) -> str:
        """The first example with an output that the mutant moves by more than 1 %, or ""; a refusal is one too."""
        with formula.replaced(mutant.expression), np.errstate(all="ignore"):
            for name, document in self._documents.items():
                try:
                    after = flatten(document())
                except Exception:
                    return name
                if moved(self._outputs[name], after):
                    return name
        return ""


def _first_rows(value: Any) -> Any:
    return value[:ROWS] if isinstance(value, np.ndarray) and value.ndim else value


# ---------------------------------------------------------------- the count
def is_found(formula: Formula, mutant: Mutant, checks: list[Callable[[Formula], None]]) -> bool:
    """Does any of the formula's oracles object?"""
    with formula.replaced(mutant.expression), np.errstate(all="ignore"):
        return _object(checks, formula)


def _object(checks: list[Callable[[Formula], None]], formula: Formula) -> bool:
    """Does any check object to the formula as it is now?"""
    for check in checks:
        try:
            check(formula)
        except AssertionError:
            return True
    return False


@dataclass
class Count:
    """What became of the mutants of some formulas."""

    mutants: int = 0
    equivalent: int = 0
    asked: int = 0
    found: int = 0
    survivors: dict[str, str] = field(default_factory=dict)
    """Mutants no oracle finds, each with the example it moves, or "" where it moves none."""

    def __str__(self) -> str:
        return (
            f"{self.mutants:5} changes, {self.equivalent:3} of them equal in its range; {self.found:5} found, "
            f"{len(self.survivors):3} not; {self.asked:5} change a value the examples ask for"
        )

    def __add__(self, other: Count) -> Count:
        return Count(
            self.mutants + other.mutants,
            self.equivalent + other.equivalent,
            self.asked + other.asked,
            self.found + other.found,
            self.survivors | other.survivors,
        )


def count(formula: Formula, checks: list[Callable[[Formula], None]], examples: Examples) -> Count:
    """Make every mutant of a formula and say what becomes of it."""
    result = Count()
    before = examples.values(formula)
    for mutant in mutants(formula):
        result.mutants += 1
        with formula.replaced(mutant.expression), np.errstate(all="ignore"):  # once: making it callable takes longest
            result.asked += examples.moved(formula, before)
            found = _object(checks, formula)
        if found:
            result.found += 1
        elif is_equivalent(formula, mutant):
            result.equivalent += 1
        else:
            result.survivors[str(mutant)] = examples.relevant(formula, mutant)
    return result
