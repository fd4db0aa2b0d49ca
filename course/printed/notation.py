"""A formula as Matplotlib's mathtext: the same SymPy expression that the notebooks show, set without LaTeX.

>>> from course.formulas import find
>>> left(find("mfu.mfu")), right(find("mfu.run_time"))
('\\\\mathrm{MFU}', '\\\\dfrac{F_{\\\\mathrm{model}}}{C\\\\,\\\\mathrm{MFU}\\\\,R}')
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import sympy as sp
from sympy.printing.latex import LatexPrinter

from course.formula import Formula

__all__ = ["left", "notation", "prose", "right", "unit"]

GREEK = {"alpha", "beta", "gamma", "delta", "eta", "tau", "sigma", "kappa", "epsilon"}


@cache
def notation(symbol: str) -> str:
    """A symbol's letters as mathtext: words upright, single letters slanted, `_` a subscript.

    >>> notation("P_p"), notation("t(D_0)"), notation("beta_out")
    ('P_{p}', 't(D_{0})', '\\\\beta_{\\\\mathrm{out}}')
    """
    called = re.fullmatch(r"(\w+)\((\w+)\)", symbol)
    if called:
        return f"{notation(called[1])}({notation(called[2])})"
    head, _, below = symbol.partition("_")
    return _word(head) + (f"_{{{_word(below)}}}" if below else "")


def _word(letters: str) -> str:
    if letters in GREEK:
        return f"\\{letters}"
    return letters if len(letters) == 1 else f"\\mathrm{{{letters}}}"


class _Printer(LatexPrinter):  # type: ignore[misc]
    """SymPy's own, but a sum begins with what is added: `1 - z`, not `-z + 1`."""

    def _print_Add(self, expr: sp.Add, order: Any = None) -> str:
        terms = self._as_ordered_terms(expr, order=order)
        terms = sorted(terms, key=lambda term: term.could_extract_minus_sign())
        printed = [self._print(term) for term in terms]
        return " ".join([printed[0], *(f"- {text[1:].lstrip()}" if text.startswith("-") else f"+ {text}"
                                       for text in printed[1:])])  # fmt: skip


def _set(expression: sp.Expr) -> str:
    names = {symbol: notation(symbol.name) for symbol in expression.free_symbols}
    text = str(_Printer({"symbol_names": names, "mul_symbol": r"\,"}).doprint(expression))
    return _large(text)


def _large(text: str) -> str:
    """Fractions in no bracket of another one at full size, which mathtext calls `dfrac`.

    >>> _large(r"\\frac{a}{\\frac{b}{c}}")
    '\\\\dfrac{a}{\\\\frac{b}{c}}'
    """
    depth, made = 0, []
    for part in re.split(r"(\\frac|[{}])", text):
        depth += {"{": 1, "}": -1}.get(part, 0)
        made.append("\\dfrac" if part == "\\frac" and depth == 0 else part)
    return "".join(made)


def prose(text: str) -> str:
    """A meaning in which symbols such as D_0 are set as mathematics.

    >>> prose("time on D_0 devices")
    'time on $D_{0}$ devices'
    """
    return re.sub(r"\b[A-Za-z]+_\w+\b", lambda found: f"${notation(found[0])}$", text)


def left(formula: Formula) -> str:
    """What stands on the left of the equals sign."""
    return notation(formula.result)


def right(formula: Formula) -> str:
    """What stands on its right."""
    return _set(formula.value_expression)


def unit(written: str) -> str:
    """A unit as a reader sees it: nothing for a ratio.

    >>> unit("1"), unit("byte/device")
    ('', 'byte/device')
    """
    return "" if written == "1" else written
