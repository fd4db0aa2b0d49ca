"""A formula is one object: what is read, what is graded and what is computed are the same SymPy expression.

It carries its unit, its assumptions, its source and a derivation that SymPy verifies. It answers with a number, an
array or a symbol alike, and can be solved for its symbols.

>>> from course.symbols import symbols
>>> D_p, B, T, G = symbols("data", "micro_batch", "sequence_length", "accumulation")
>>> tokens = Formula("tokens_per_step", "S_step", D_p * B * T * G, "token", "tokens of one optimizer step")
>>> tokens(data=8, micro_batch=1, sequence_length=8192, accumulation=4)
262144.0
>>> tokens(data=D_p, micro_batch=1, sequence_length=8192, accumulation=4)
32768*D_p
>>> tokens.solve("accumulation", equals=262144, data=8, micro_batch=1, sequence_length=8192).value
4.0
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from course.symbols import BY_SYMBOL, SYMBOLS, Entry
from course.units import dimension_of, parse_unit, without_units


class FormulaError(ValueError):
    """An argument is missing, misnamed or out of range; the message names it, its meaning and its unit."""


class WrongFormula(AssertionError):
    """The unit of an expression is not the declared one, or a step of the derivation does not lead to it."""


@dataclass(frozen=True)
class Step:
    """One line of a derivation: `expression` must equal the formula, or become it in the `limit` (symbol, value)."""

    text: str
    expression: sp.Expr
    limit: tuple[sp.Symbol, Any] | None = None


@dataclass(frozen=True)
class Formula:
    """A formula of the course.

    Args:
        name: the attribute it is reached by in its module.
        result: notation of the quantity on the left side.
        expression: the right side, in the symbols of `course.symbols` and the unit literals of `course.units`.
        unit: unit of the result, such as `"FLOP/token"` or `"byte/device"`; `"1"` for a ratio.
        meaning: what the result is, in words.
        assumptions: what must hold, in words.
        source: where it is published, or "derived here".
        derivation: steps that each equal the expression; `verify` checks them.
    """

    name: str
    result: str
    expression: sp.Expr
    unit: str
    meaning: str
    assumptions: tuple[str, ...] = ()
    source: str = "derived here"
    derivation: tuple[Step, ...] = ()
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # ---------------------------------------------------------------- what it is made of
    @property
    def value_expression(self) -> sp.Expr:
        """The expression as computed and displayed: unit literals count as 1."""
        return self._once("value", lambda: without_units(self.expression))

    @property
    def inputs(self) -> tuple[Entry, ...]:
        """The symbols it takes, in the order of the symbol table."""
        found: tuple[Entry, ...] = self._once("inputs", self._find_inputs)
        return found

    def _find_inputs(self) -> tuple[Entry, ...]:
        free = self.value_expression.free_symbols
        unknown = free - BY_SYMBOL.keys()
        if unknown:
            raise FormulaError(f"{self.name} uses {sorted(map(str, unknown))}, which course.symbols does not list.")
        return tuple(entry for entry in SYMBOLS.values() if entry.symbol in free)

    @property
    def _function(self) -> Callable[..., Any]:
        names = [entry.symbol for entry in self.inputs]
        # no text of the expression in the docstring: printing it takes about as long as compiling it
        make: Callable[..., Any] = self._once(
            "function", lambda: sp.lambdify(names, self.value_expression, "numpy", cse=True, docstring_limit=0)
        )
        return make

    def _once(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    # ---------------------------------------------------------------- evaluation
    def __call__(self, **arguments: Any) -> Any:
        """Evaluate with one keyword a symbol: numbers give a float, arrays an array, SymPy symbols an expression.

        Raises:
            FormulaError: an argument is missing, misnamed, not a number, or outside its range.
        """
        self._check_names(arguments)
        symbolic = {
            key: value for key, value in arguments.items() if isinstance(value, sp.Basic) and not value.is_number
        }
        columns = {e.key: self._column(e, arguments[e.key]) for e in self.inputs if e.key not in symbolic}
        if symbolic:
            numbers = {SYMBOLS[key].symbol: _exact(column) for key, column in columns.items()}
            named = {SYMBOLS[key].symbol: value for key, value in symbolic.items()}
            return self.value_expression.subs({**numbers, **named}, simultaneous=True)
        try:
            shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
        except ValueError:
            sizes = ", ".join(f"{key} {column.shape}" for key, column in columns.items() if column.shape)
            raise FormulaError(f"{self.name}: these arrays do not fit beside each other: {sizes}.") from None
        result = self._function(*(columns[entry.key] for entry in self.inputs))
        # lambdify returns a scalar for a part that depends on no column: give every answer the common shape
        result = np.broadcast_to(np.asarray(result, dtype=float), shape)
        return float(result) if shape == () else result

    def _check_names(self, arguments: Mapping[str, Any]) -> None:
        known = {entry.key: entry for entry in self.inputs}
        for name in arguments:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"Did you mean {near[0]}?" if near else f"It takes {', '.join(known)}."
                raise FormulaError(f"{self.name} takes no {name}. {hint}")
        for key, entry in known.items():
            if key not in arguments:
                raise FormulaError(f"{self.name} needs {key}: {entry.meaning}{_unit_words(entry)}.")

    def _column(self, entry: Entry, value: Any) -> np.ndarray:
        """One argument as a float64 column (int64 would overflow silently at 6PS), checked against its range."""
        where = f"{self.name}: {entry.key} ({entry.meaning}{_unit_words(entry)})"
        if isinstance(value, str | bytes | bool | np.bool_ | complex) or value is None:
            raise FormulaError(f"{where} must be a number, not {value!r}.")
        try:
            raw = np.asarray(float(value) if isinstance(value, sp.Basic) else value)
            if raw.dtype.kind in "bSUc":  # NumPy would read "12" and True as numbers
                raise TypeError
            column = raw.astype(float)
        except (TypeError, ValueError):
            raise FormulaError(
                f"{where} must be a number or an array of numbers, not {type(value).__name__}."
            ) from None
        if column.size:
            low, high = float(column.min()), float(column.max())
            if not (np.isfinite(low) and np.isfinite(high)):
                raise FormulaError(f"{where} must be finite; it holds {high if np.isfinite(low) else low}.")
            if low < entry.low:
                raise FormulaError(f"{where} must be at least {entry.low:g}; it is {low:g}.")
            if high > entry.high:
                raise FormulaError(f"{where} must be at most {entry.high:g}; it is {high:g}.")
        return column

    # ---------------------------------------------------------------- solving
    def solve(self, symbol: str, *, equals: Any, **others: Any) -> Any:
        """Solve `formula = equals` for one symbol and return a `course.solving.Solution`.

        A closed form is used where SymPy finds one, else bisection on this expression over the symbol's range.
        A count is solved over the integers: the smallest one at which the formula has reached `equals`.

        Raises:
            FormulaError: an argument is misnamed or out of range.
            NoSolution: no value in the symbol's range meets the equation.
        """
        from course.solving import solve

        return solve(self, symbol, equals, others)

    # ---------------------------------------------------------------- proof
    def verify(self) -> None:
        """Check the unit and every step of the derivation.

        Raises:
            WrongFormula: the unit is not the declared one, or a step does not lead to the expression.
            UnitError: the expression mixes units.
        """
        from course.solving import same_expression

        found = dimension_of(self.expression)
        if found is not None and found != parse_unit(self.unit):
            raise WrongFormula(f"{self.name} is declared in {self.unit} but its expression is in {found}.")
        for step in self.derivation:
            claim = without_units(step.expression).doit()
            if step.limit is not None:
                claim = sp.limit(claim, *step.limit)
            if not same_expression(claim, self.value_expression):
                raise WrongFormula(f"{self.name}: the step {step.text!r} gives {claim}, not {self.value_expression}.")

    # ---------------------------------------------------------------- display
    def __str__(self) -> str:
        return f"{self.result} = {self.value_expression}"

    __repr__ = __str__  # what a notebook stores beside the Markdown

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {sp.latex(sp.Symbol(self.result))} = {sp.latex(self.value_expression)}$"

    def _repr_markdown_(self) -> str:
        unit = "" if self.unit == "1" else f" [{self.unit}]"
        rows = "\n".join(
            f"| ${sp.latex(e.symbol)}$ | {e.meaning} | {'' if e.unit == '1' else e.unit} |" for e in self.inputs
        )
        table = f"| symbol | meaning | unit |\n|---|---|---|\n{rows}"
        return f"{self._repr_latex_()}\n\n{self.meaning}{unit}\n\n{table}"

    def show_derivation(self) -> Derivation:
        """The steps one below the other, after `verify` has checked them."""
        self.verify()
        return Derivation(self)

    @contextmanager
    def replaced(self, expression: sp.Expr) -> Iterator[None]:
        """For tests: compute with another expression for a while, wherever this object is used; same inputs."""
        original, cache = self.expression, dict(self._cache)
        inputs = self.inputs
        object.__setattr__(self, "expression", expression)
        self._cache.clear()
        self._cache["inputs"] = inputs
        try:
            yield
        finally:
            object.__setattr__(self, "expression", original)
            self._cache.clear()
            self._cache.update(cache)


@dataclass(frozen=True)
class Derivation:
    """A derivation as text: plain in a terminal, Markdown in a notebook."""

    formula: Formula

    def _lines(self) -> list[tuple[str, sp.Expr, str]]:
        lines = []
        for step in self.formula.derivation:
            limit = ""
            if step.limit is not None:
                limit = rf"\quad ({sp.latex(step.limit[0])} \to {sp.latex(sp.sympify(step.limit[1]))})"
            lines.append((step.text, without_units(step.expression), limit))
        return [*lines, (self.formula.meaning, self.formula.value_expression, "")]

    def __str__(self) -> str:
        return "\n".join(f"{text}: {expression}" for text, expression, _ in self._lines())

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        name = sp.latex(sp.Symbol(self.formula.result))
        return "\n".join(
            f"1. {text}: $\\displaystyle {name} = {sp.latex(shown)}{limit}$" for text, shown, limit in self._lines()
        )


def _exact(column: np.ndarray) -> sp.Number:
    """A number as SymPy should see it: whole numbers stay whole, so that the answer reads 32768*D_p."""
    if column.shape != ():
        raise FormulaError("Symbols and arrays cannot be mixed: give single numbers beside the symbols.")
    value = float(column)
    return sp.Integer(int(value)) if value.is_integer() else sp.Float(value)


def _unit_words(entry: Entry) -> str:
    return "" if entry.unit == "1" else f", in {entry.unit}"
