"""A sheet without what is no value of its blank: whatever was written, grading meets numbers, known keys and names.

>>> cleaned({"shard": {"tensor": 8, "sharding": "zero9", "pipeline": {}}, "place": None})
{'shard': {'tensor': 8}}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from course.interview.sheet import FATES, SHEET, Answers, Field
from course.interview.study import AXES

__all__ = ["cleaned"]

LARGEST = 1e60
"""What is more than this counts nothing that is asked for here."""
MOST = 10**9
"""No degree is larger."""


def cleaned(answers: Answers) -> dict[str, dict[str, Any]]:
    """The answers that are values of their blanks; all others are left out.

    Args:
        answers: step -> field -> whatever was written.
    """
    found: dict[str, dict[str, Any]] = {}
    for step in SHEET:
        fields = answers.get(step.name) if isinstance(answers, Mapping) else None
        if isinstance(fields, Mapping):
            kept = {field.name: _value(field, fields.get(field.name)) for field in step.fields}
            found[step.name] = {name: value for name, value in kept.items() if value is not None}
    return found


def _value(field: Field, said: Any) -> Any:
    if field.kind in ("number", "whole"):
        if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said < LARGEST or math.isnan(said):
            return None
        if field.kind == "number":
            return float(said)
        return int(said) if said == int(said) and 1 <= said <= MOST else None
    if field.kind == "choice":
        return said if isinstance(said, str) and said in (field.choices or {}) else None
    if field.kind in ("several", "reasons", "order"):
        names = (said,) if isinstance(said, str) else said if isinstance(said, list | tuple) else None
        known = field.choices if field.kind == "several" else AXES if field.kind == "order" else None
        if names is None:
            return None
        kept = (one for one in names if isinstance(one, str) and (known is None or one in known))
        return tuple(dict.fromkeys(kept))
    if field.kind == "fates":
        return None if not isinstance(said, Mapping) else {
            axis: said[axis] for axis in AXES if isinstance(said.get(axis), str) and said[axis] in FATES}  # fmt: skip
    if field.kind == "grid":
        return _grid(said) if isinstance(said, Mapping) else None
    return said if isinstance(said, str) else None


def _grid(said: Mapping[Any, Any]) -> dict[str, list[Any]]:
    grid = {}
    for name, values in said.items():
        listed = values if isinstance(values, list | tuple) else [values]
        kept = [one for one in listed if isinstance(one, str) or (
            isinstance(one, int) and not isinstance(one, bool) and 1 <= one <= MOST)]  # fmt: skip
        if isinstance(name, str) and kept:
            grid[name] = kept
    return grid
