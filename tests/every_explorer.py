"""Every explorer of every step, by the name `step.explorer`; what has a lesson is found by itself."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import course.explorers
from course.explorers import Explorer
from course.questions.registry import default


def _steps() -> dict[str, ModuleType]:
    there = {module.name for module in pkgutil.iter_modules(course.explorers.__path__)}
    return {step: importlib.import_module(f"course.explorers.{step}") for step in default().steps() if step in there}


STEPS = _steps()
NAMES = [
    f"{step}.{name}"
    for step, module in STEPS.items()
    for name in module.__all__
    if "ask" in inspect.signature(getattr(module, name)).parameters
]


def made(name: str, **values: object) -> Explorer:
    """The explorer of that name, at its start or with other values."""
    step, _, function = name.partition(".")
    explorer: Explorer = getattr(STEPS[step], function)(**values)
    return explorer
