"""Formulas and numbers read from text, by a small list of what may stand in them: nothing is ever executed.

>>> print(read("6*P*S"))
6*P*S
>>> read("__import__('os')")
Traceback (most recent call last):
    ...
course.grading.arithmetic.Unreadable: "__import__('os')" holds a call of something other than max, min, sqrt, log, \
exp, ceil, floor or abs.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import sympy as sp

from course.symbols import BY_SYMBOL, SYMBOLS

__all__ = ["Unreadable", "read"]

LONGEST = 4000
DEEPEST = 150
LARGEST_POWER = 64

_FUNCTIONS: dict[str, Any] = {
    "max": sp.Max, "min": sp.Min, "sqrt": sp.sqrt, "log": sp.log, "ln": sp.log, "exp": sp.exp, "ceil": sp.ceiling,
    "ceiling": sp.ceiling, "floor": sp.floor, "abs": sp.Abs, "log2": lambda x: sp.log(x, 2),
}  # fmt: skip
_NAMES: dict[str, sp.Symbol] = {
    **{key: entry.symbol for key, entry in SYMBOLS.items()},
    **{str(symbol): symbol for symbol in BY_SYMBOL},
}


class Unreadable(ValueError):
    """A text that is no formula; the message is a sentence."""


def read(text: str) -> sp.Expr:
    """Read a formula in the symbols of the course, by notation (`P`) or by key (`parameters`).

    `^` is a power, and what stands before a single `=` is passed over.

    Raises:
        Unreadable: something in it is neither a number, a symbol, arithmetic, nor one of a few functions.
    """
    if len(text) > LONGEST:
        raise Unreadable(f"A formula of {len(text):,} characters is too long to be graded.")
    body = text.strip()
    if body.count("=") == 1 and not re.search(r"[<>!]=", body):
        body = body.partition("=")[2]
    body = body.replace("^", "**").replace("×", "*").replace("·", "*").replace("−", "-").strip().strip("$").strip()
    try:
        tree = ast.parse(body, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Unreadable(
            f"{_short(text)} is no formula that can be read; write products with *, as in 6*P*S."
        ) from None
    return sp.sympify(_node(tree.body, _short(text), 0))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return '"' + (text if len(text) <= 60 else text[:57] + "...") + '"'


def _node(node: ast.AST, text: str, depth: int) -> sp.Expr:
    if depth > DEEPEST:
        raise Unreadable(f"{text} is nested too deeply to be graded.")
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return _number(node.value, text)
    if isinstance(node, ast.Name):
        if node.id not in _NAMES:
            raise Unreadable(
                f"{text} holds {node.id!r}, which is no symbol of the course. Write products with *, as in 6*P*S."
            )
        return _NAMES[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _node(node.operand, text, depth + 1)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _binary(node, text, depth)
    if isinstance(node, ast.Call):
        name = node.func.id.lower() if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS or node.keywords or not 1 <= len(node.args) <= 8:
            raise Unreadable(
                f"{text} holds a call of something other than max, min, sqrt, log, exp, ceil, floor or abs."
            )
        return _FUNCTIONS[name](*(_node(argument, text, depth + 1) for argument in node.args))
    raise Unreadable(f"{text} holds {_WORDS.get(type(node).__name__, 'something')} that is no arithmetic.")


_WORDS = {
    "Attribute": "a dot",
    "Subscript": "an index",
    "List": "a list",
    "Tuple": "several parts",
    "Compare": "a comparison",
}


def _number(value: float, text: str) -> sp.Expr:
    if isinstance(value, int):
        if value.bit_length() > 400:
            raise Unreadable(f"{text} holds a number that is too large.")
        return sp.Integer(value)
    if not abs(value) < 1e120:
        raise Unreadable(f"{text} holds a number that is too large.")
    # 0.5 is meant exactly; 6e0 as well
    return sp.Rational(repr(value))


def _binary(node: ast.BinOp, text: str, depth: int) -> sp.Expr:
    left, right = _node(node.left, text, depth + 1), _node(node.right, text, depth + 1)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Div):
        if right == 0:
            raise Unreadable(f"{text} divides by 0.")
        return left / right
    if isinstance(node.op, ast.Pow):
        if right.is_number and not abs(float(right)) <= LARGEST_POWER:
            raise Unreadable(f"{text} holds a power that is too large.")
        if left.is_number and right.is_number and abs(float(left)) > 1e30:
            raise Unreadable(f"{text} holds a power that is too large.")
        return left**right
    raise Unreadable(f"{text} holds an operation other than + - * / and powers.")
