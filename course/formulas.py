"""Every formula of the course by its full name, found in the modules of the steps, so that nothing forgets one.

>>> print(find("shard.all_gather_bytes"))
X_AG = X*(n - 1)/n
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from course.errors import UserError
from course.fields import nearest, show
from course.formula import Formula

__all__ = ["STEPS", "find", "formulas"]

STEPS = ("estimate", "constrain", "shard", "place", "batch", "mfu", "overlap", "predict", "scaling")
"""Modules in the order of the course; a formula that a later step imports belongs to the earlier one."""


@cache
def formulas() -> dict[str, Formula]:
    """Formulas by full name, such as `shard.zero3_traffic`, in the order of the steps.

    >>> list(formulas())[0].split(".")[0], "predict.compute.attention_flops" in formulas()
    ('estimate', True)
    """
    found: dict[str, Formula] = {}
    known: set[int] = set()
    for step in STEPS:
        package = importlib.import_module(f"course.{step}")
        inner = [f"{step}.{module.name}" for module in pkgutil.iter_modules(getattr(package, "__path__", []))]
        for name in (step, *inner):
            for attribute, value in vars(importlib.import_module(f"course.{name}")).items():
                if isinstance(value, Formula) and id(value) not in known:
                    known.add(id(value))
                    found[f"{name}.{attribute}"] = value
    return found


def find(name: str) -> Formula:
    """The formula of a full name, or of a last name that only one formula has.

    Raises:
        UserError: there is none, or several; the message holds the nearest name, or all of them.

    >>> find("zero3_traffic").result
    'X_Z3'
    """
    every = formulas()
    if name in every:
        return every[name]
    full = [known for known in every if known.rpartition(".")[2] == name]
    if len(full) == 1:
        return every[full[0]]
    if full:
        raise UserError(f"Several formulas are called {show(name)}: {', '.join(full)}. Give the full name.")
    lasts = {known.rpartition(".")[2]: known for known in every}
    near = nearest(name, every) if "." in name else lasts[nearest(name, lasts)]
    raise UserError(
        f"There is no formula {show(name)}; the nearest name is {near}. `course show formulas` lists them all."
    )
