"""The source of a learner's function with what it needs from the notebook, to run in another process.

Modules are imported again; plain values and other functions of the notebook come along. Nothing is pickled.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["NoSource", "portable"]

NAME = "_answer"


class NoSource(Exception):
    """The function cannot be written down; the message says why."""


def portable(function: Callable[..., Any]) -> dict[str, Any]:
    """Return `before`, statements to execute in order, and `name`, what the function is then called.

    Raises:
        NoSource: it has no source, or holds a value that cannot be written down.

    >>> import math
    >>> def area(radius):
    ...     return math.pi * radius**2
    >>> portable(area)["before"][0]
    'import math as math'
    """
    if not isinstance(function, FunctionType):
        raise NoSource("write it with def in a cell, not as an object that can be called.")
    seen: dict[str, str] = {}
    _add(function, NAME, seen)
    return {"before": list(seen.values()), "name": NAME}


def _add(function: FunctionType, name: str, seen: dict[str, str]) -> None:
    if name in seen:
        return
    seen[name] = ""  # holds the place while its needs are found; a function may call itself
    closed = inspect.getclosurevars(function) if function.__closure__ else None
    reach = {**function.__globals__, **(dict(closed.nonlocals) if closed else {})}
    for used in sorted(_names(function.__code__)):
        if used in reach and used not in seen:
            _bring(used, reach[used], seen)
    text = _text(function, name)
    del seen[name]
    seen[name] = text


def _bring(name: str, value: Any, seen: dict[str, str]) -> None:
    if isinstance(value, ModuleType):
        seen[name] = (
            f"import {value.__name__} as {name}" if "." not in value.__name__ else _dotted(name, value.__name__)
        )
    elif isinstance(value, FunctionType) and value.__module__ in ("__main__", "builtins"):
        _add(value, name, seen)
    elif isinstance(value, type) and value.__module__ == "__main__":
        try:
            seen[name] = textwrap.dedent(inspect.getsource(value))
        except (OSError, TypeError):
            return
    elif hasattr(value, "__module__") and hasattr(value, "__qualname__") and value.__module__ not in (None, "__main__"):
        seen[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    elif isinstance(value, FunctionType):
        _add(value, name, seen)
    elif _plain(value):
        seen[name] = f"{name} = {value!r}"
    # else: the name stays unknown, and the learner reads NameError with it


def _dotted(name: str, module: str) -> str:
    parent, _, child = module.rpartition(".")
    return f"from {parent} import {child} as {name}"


def _plain(value: Any) -> bool:
    if value is None or isinstance(value, bool | int | float | str):
        return len(repr(value)) < 10_000
    if isinstance(value, list | tuple | set):
        return len(value) < 1000 and all(_plain(item) for item in value)
    return isinstance(value, dict) and len(value) < 1000 and all(_plain(k) and _plain(v) for k, v in value.items())


def _names(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names) | set(code.co_freevars) | {name for part in inner for name in _names(part)}


def _text(function: FunctionType, name: str) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise NoSource("its source cannot be found; define it with def in a cell.") from error
    if function.__name__ != "<lambda>":
        return f"{text}\n{name} = {function.__name__}\n"
    try:
        tree = ast.parse(text.strip())
    except SyntaxError as error:
        raise NoSource("its source is part of a larger expression; define it with def in a cell.") from error
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    if len(found) != 1:
        raise NoSource("several lambdas share its line; define it with def in a cell.")
    return f"{name} = {ast.unparse(found[0])}"
