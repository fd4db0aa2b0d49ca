"""What a candidate writes into a blank, read: `1.3 TB`, `70B`, `42 %`, a letter of a list, `tensor 4 8; data 1 2`.

Each reading ends in a value of the sheet or in one sentence that says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from course.errors import UserError
from course.fields import nearest
from course.grading.arithmetic import Unreadable
from course.grading.numbers import quantity
from course.interview.sheet import FATES, Field
from course.interview.study import AXES
from course.questions.quantities import UnknownUnit, parse

__all__ = ["letters", "read", "shown"]

WORDS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "k": 1e3, "m": 1e6, "b": 1e9, "bn": 1e9,
         "t": 1e12}  # fmt: skip
COUNTED = ("parameters", "tokens", "devices", "accelerator-hours", "")
POSSIBLE = {"%": (0.0, 100.0), "parameters": (1e6, 1e15), "bytes": (1.0, 100.0), "FLOP": (1e12, 1e32),
            "devices": (1.0, 1e8), "TFLOP/s": (1.0, 1e5)}  # fmt: skip
"""Unit -> the smallest and the largest value that anybody could mean."""
GRID = {
    "tensor": int, "pipeline": int, "context": int, "expert": int, "expert_tensor": int, "micro_batch": int,
    "interleave": int, "sharding": str, "recompute": str, "global_batch_sequences": int,
}  # fmt: skip
CODES = {"sharding": ("none", "zero1", "zero2", "zero3"), "recompute": ("none", "full")}
ORDERED = ("tensor", "context", "data", "pipeline")
"""The axes that have an order; expert ranks fold into them."""


def read(field: Field, text: str, choices: Mapping[str, str] | None = None) -> Any:
    """The value of a blank from what was written; None where nothing was.

    Args:
        field: the blank.
        text: what was written.
        choices: key -> words, in the order of the letters; those of the blank if None.

    Raises:
        UserError: it is no value of this blank; one sentence says what to write.

    >>> read(Field("state", "number", "State.", "GB"), "1.3 TB")
    1300.0
    >>> read(Field("parameters", "number", "Parameters.", "parameters"), "70B")
    70000000000.0
    """
    body = text.strip()
    options = choices if choices is not None else field.choices or {}
    if not body:
        return None
    if field.kind == "number":
        return _within(field, _number(field, body))
    if field.kind == "whole":
        return _whole(field.name, body)
    if field.kind == "choice":
        return _key(body, options)
    if field.kind in ("several", "reasons"):
        found = () if body.lower() in ("none", "nothing", "-") else tuple(
            dict.fromkeys(_key(part, options) for part in _parts(body)))  # fmt: skip
        if field.kind == "reasons" and len(found) > 2:
            raise UserError("Pick two reasons at most: those you would say aloud.")
        return found
    if field.kind == "order":
        found = tuple(_name(part, ORDERED) for part in _parts(body.replace(">", " ").replace("<", " ")))
        if len(set(found)) < len(found):
            raise UserError("Name each axis once, the innermost first.")
        return found
    if field.kind == "fates":
        return _fates(body)
    if field.kind == "grid":
        return _grid(body)
    return body


def letters(choices: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Letter, key and words of each choice.

    >>> letters({"yes": "yes, it fits", "no": "no"})
    [('a', 'yes', 'yes, it fits'), ('b', 'no', 'no')]
    """
    return [(chr(ord("a") + place), key, words) for place, (key, words) in enumerate(choices.items())]


def shown(field: Field, value: Any) -> str:
    """A value as it may be written again.

    >>> shown(Field("mfu", "number", "MFU.", "%"), 41.0), shown(Field("data", "whole", "Replicas."), None)
    ('41 %', '(blank)')
    """
    if value is None:
        return "(blank)"
    if field.kind == "number":
        size = f"{value:.4g}" if value < 1e4 or value >= 1e9 else f"{value:,.0f}"
        return f"{size} {field.unit}"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_joined(one)}" for name, one in value.items())
    return _joined(value) or "none"


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _number(field: Field, body: str) -> float:
    tail = re.fullmatch(r"([~≈]?\s*[\d.,eE+]+)\s*([A-Za-z]+)(?:\s+(?:params?|parameters|tokens?|devices?))?", body)
    if field.unit in COUNTED and tail and tail[2].lower() in WORDS:
        body = f"{tail[1]}"
        return _number(Field("", "number", "", ""), body) * WORDS[tail[2].lower()]
    try:
        value, unit = quantity(body)
        written = parse(unit) if unit else None
    except (Unreadable, UnknownUnit) as error:
        raise UserError(f"{str(error).rstrip('.')}. A number is asked for, such as {_example(field)}.") from None
    if value < 0:
        raise UserError(f"Nothing here is below zero: write a number such as {_example(field)}.")
    if written is None:
        return 100 * value if field.unit == "%" and 0 < value <= 1 else value
    asked = parse(field.unit) if field.unit else parse("1")
    if not written.measures(asked):
        raise UserError(f"{unit!r} does not measure this: write it in {field.unit or 'plain numbers'}.")
    return value * written.factor / asked.factor


def _within(field: Field, value: float) -> float:
    """The value, where it can be meant: a share above all, or a model of one parameter, is a slip of the pen."""
    least, most = POSSIBLE.get(field.unit, (0.0, 1e60))
    if least <= value <= most:
        return value
    said = f"between {least:g} and {most:g} {field.unit}" if most < 1e60 else f"at least {least:g} {field.unit}"
    raise UserError(f"That reads as {value:.4g} {field.unit}; here it is {said}, such as {_example(field)}.")


def _example(field: Field) -> str:
    return {"parameters": "70B", "FLOP": "6.3e24", "TFLOP/s": "989", "GB": "1.3 TB", "%": "42 %"}.get(
        field.unit, f"12.5 {field.unit}".strip()
    )


def _whole(name: str, body: str) -> int:
    text = body.replace(",", "")
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
        raise UserError(f"{name} is a whole number from 1, such as 8, not {body[:30]!r}.")
    return int(text)


def _parts(body: str) -> list[str]:
    if re.fullmatch(r"[a-z]{2,5}", body) and body not in AXES:
        return list(body)  # letters without commas: "ac"
    return [part for part in re.split(r"[\s,;+]+|\band\b", body) if part]


def _key(body: str, options: Mapping[str, str]) -> str:
    body = body.strip("() .")
    named = {letter: key for letter, key, _ in letters(options)}
    if body.lower() in named:
        return named[body.lower()]
    for key in options:
        if body.lower() == key.lower():
            return key
    last = list(named)[-1] if named else "a"
    raise UserError(f"Choose by letter, a to {last}, not {body[:30]!r}.")


def _name(body: str, names: tuple[str, ...]) -> str:
    body = body.lower().strip("() .")
    short = {"tp": "tensor", "pp": "pipeline", "cp": "context", "dp": "data", "ep": "expert"}
    if short.get(body, body) in names:
        return short.get(body, body)
    begun = [name for name in names if body and name.startswith(body)]
    if len(begun) == 1:
        return begun[0]
    hint = " Expert ranks fold into the others and have no place of their own." if body.startswith("exp") else (
        f" Did you mean {nearest(body, names)!r}?" if body else "")  # fmt: skip
    raise UserError(f"Name axes among {', '.join(names)}, not {body[:30]!r}.{hint}")


def _fates(body: str) -> dict[str, str]:
    found = {}
    for part in re.split(r"[,;]+", body):
        words = re.split(r"[\s=:]+", part.strip())
        if len(words) != 2:
            raise UserError("Write an axis and what happens to it, such as: tensor exposed, data hidden.")
        fates = [fate for fate in FATES if words[1] and fate.startswith(words[1].lower())]
        if len(fates) != 1:
            raise UserError(f"An axis is hidden, partly, exposed or none, not {words[1][:30]!r}.")
        found[_name(words[0], AXES)] = fates[0]
    return {axis: found[axis] for axis in AXES if axis in found}


def _grid(body: str) -> dict[str, list[Any]]:
    grid: dict[str, list[Any]] = {}
    body = re.sub(r",\s*(?=[A-Za-z_]+[\s=:]+[\w])(?!\s*(?:none|full|zero|ZeRO|fsdp))", ";", body)
    for part in re.split(r"[;\n]+", body):
        words = [word for word in re.split(r"[\s,=:]+", part.strip()) if word]
        if not words:
            continue
        name = _name(words[0].replace("-", "_"), tuple(GRID))
        if len(words) < 2:
            raise UserError(f"Give {name} its values, such as: tensor 4 8; micro_batch 1 2.")
        values: list[Any] = []
        for word in words[1:]:
            if GRID[name] is str:
                code = word.lower().replace("-", "").replace("fsdp", "zero3")
                if code not in CODES[name]:
                    raise UserError(f"{name} is one of {', '.join(CODES[name])}, not {word[:30]!r}.")
                values.append(code)
            else:
                values.append(_whole(name, word))
        grid[name] = list(dict.fromkeys(values))
    if not grid:
        raise UserError("Write fields with the values to try, such as: tensor 4 8; micro_batch 1 2.")
    return grid
