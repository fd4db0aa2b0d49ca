"""An answer as the learner gave it, turned into plain data that another process can grade.

This runs beside the learner's code, so it leans on nothing of theirs: it calls no method of an object it does not know,
and imports nothing. What cannot be graded is named in one sentence.

>>> encode(3.6e25), encode("3,600 GB"), encode(None)
({'kind': 'number', 'value': '3.6e+25'}, {'kind': 'text', 'text': '3,600 GB'}, {'kind': 'unanswered'})
>>> encode(True)["why"]
'True and False are no numbers.'
"""

from __future__ import annotations

import dataclasses
import dis
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import FunctionType
from typing import Any

__all__ = ["Encoded", "encode"]

Encoded = dict[str, Any]

LONGEST_TEXT = 4000
MOST_ITEMS = 200
MOST_NODES = 3000


def encode(answer: Any, depth: int = 0) -> Encoded:
    """Return plain data for any answer: a dictionary with `kind`.

    Kinds: unanswered, number, text, sequence, mapping, function, refused (with `why`, a sentence).
    """
    try:
        return _encode(answer, depth)
    except RecursionError:
        return _refused("This answer is nested too deeply.")
    except Exception as error:  # an object of the learner's that misbehaves
        return _refused(f"This answer, a {_name(answer)}, cannot be read ({type(error).__name__}).")


def _encode(answer: Any, depth: int) -> Encoded:
    if answer is None or answer is Ellipsis:
        return {"kind": "unanswered"}
    if isinstance(answer, bool):
        return _refused("True and False are no numbers.")
    if isinstance(answer, str):
        return _text(str.__str__(answer))
    if isinstance(answer, int):
        return _whole(int(answer))
    if isinstance(answer, float | Fraction | Decimal):
        return _real(float(answer))
    if isinstance(answer, complex):
        return _refused("A complex number is no answer here.")
    if isinstance(answer, bytes | bytearray):
        return _refused("Bytes were given; write a number or a text.")
    for special in (_sympy, _array, _formula, _layout):
        found = special(answer)
        if found is not None:
            return found
    if isinstance(answer, tuple | list):
        if depth > 1 or len(answer) > MOST_ITEMS:
            return _refused(f"A {_name(answer)} of {len(answer)} parts is no answer here.")
        return {"kind": "sequence", "type": _name(answer), "items": [encode(item, depth + 1) for item in answer]}
    if isinstance(answer, dict):
        if depth > 1 or len(answer) > MOST_ITEMS:
            return _refused(f"A dictionary of {len(answer)} parts is no answer here.")
        return {"kind": "mapping", "items": [[str(key)[:100], encode(answer[key], depth + 1)] for key in answer]}
    if callable(answer):
        if _untouched(answer):
            return {"kind": "unanswered"}
        return {"kind": "function", "name": str(getattr(answer, "__name__", _name(answer)))[:100]}
    return _refused(f"A {_name(answer)} is no answer here.")


def _untouched(answer: Any) -> bool:
    """Whether a function's body is still the ellipsis of the exercise: it does nothing but return None."""
    if type(answer) is not FunctionType:
        return False
    passed_over = ("RESUME", "NOP", "CACHE", "COPY_FREE_VARS", "MAKE_CELL")
    work = [step for step in dis.get_instructions(answer.__code__) if step.opname not in passed_over]
    names = [step.opname for step in work]
    return work[0].argval is None and names in (["LOAD_CONST", "RETURN_VALUE"], ["RETURN_CONST"])


def _refused(why: str) -> Encoded:
    return {"kind": "refused", "why": why}


def _name(answer: Any) -> str:
    return str(type(answer).__name__)[:60]


def _text(text: str) -> Encoded:
    if not text.strip() or text.strip() in ("...", "…", "None"):
        return {"kind": "unanswered"}
    if len(text) > LONGEST_TEXT:
        return _refused(f"This text has {len(text):,} characters; an answer is shorter.")
    return {"kind": "text", "text": text}


def _whole(number: int) -> Encoded:
    if number.bit_length() > 1000:
        return _refused("This number is larger than any answer of the course.")
    return {"kind": "number", "value": repr(number)}


def _real(number: float) -> Encoded:
    if math.isnan(number):
        return _refused("NaN is not a number: somewhere before, 0 was divided by 0 or a value is missing.")
    if math.isinf(number):
        return _refused("The answer is infinite: somewhere before, a number became too large or was divided by 0.")
    return {"kind": "number", "value": repr(number)}


def _array(answer: Any) -> Encoded | None:
    """NumPy scalars and arrays, and those of other libraries that look like them."""
    kind = type(answer)
    if not (hasattr(kind, "shape") and hasattr(kind, "item") and hasattr(kind, "dtype")):
        return None
    shape = tuple(int(n) for n in answer.shape)
    if shape == ():
        return encode(answer.item(), depth=2)
    if math.prod(shape) == 1:
        return _refused("An array that holds one number was given; take the number out, as in answer[0].")
    words = " x ".join(map(str, shape))
    return _refused(f"An array of {words} numbers was given; one number is asked for.")


def _sympy(answer: Any) -> Encoded | None:
    basic: Any = getattr(sys.modules.get("sympy"), "Basic", None)
    return _expression(answer) if isinstance(basic, type) and isinstance(answer, basic) else None


def _expression(answer: Any) -> Encoded:
    nodes, stack = 0, [answer]
    while stack:
        nodes += 1
        if nodes > MOST_NODES:
            return _refused("This expression is too large to be graded; simplify it.")
        stack.extend(stack.pop().args)
    if getattr(answer, "is_Boolean", False) or getattr(answer, "is_Relational", False):
        if type(answer).__name__ == "Equality":  # F = 6PS, given whole: its right side is the answer
            return _expression(answer.args[1])
        return _refused("A comparison was given; give the formula alone.")
    if not getattr(answer, "free_symbols", None) and nodes < 20 and getattr(answer, "is_number", False):
        value = answer.evalf(17, maxn=40)
        if not value.is_real:
            return _refused("A complex number is no answer here." if value.is_finite else "The answer is not finite.")
        return _real(float(value))
    return _text(str(answer))


def _formula(answer: Any) -> Encoded | None:
    """A Formula of the course counts as its expression."""
    if type(answer).__name__ == "Formula" and type(answer).__module__ == "course.formula":
        return _sympy(answer.value_expression)
    return None


def _layout(answer: Any) -> Encoded | None:
    if dataclasses.is_dataclass(answer) and type(answer).__module__ == "course.problem":
        fields = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
        plain: dict[str, Callable[[Any], Any]] = {
            "order": list,
            "stage_layers": lambda v: None if v is None else list(v),
        }
        items = [[name, _plain(plain.get(name, lambda v: v)(value))] for name, value in fields.items()]
        return {"kind": "mapping", "items": items}
    return None


def _plain(value: Any) -> Encoded:
    return {"kind": "flag", "value": value} if isinstance(value, bool) else encode(value, depth=1)
