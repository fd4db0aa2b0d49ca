"""Strong scaling in eight steps: estimate, constrain, shard, place, batch, MFU, overlap, sweep.

`import course` loads nothing heavy. A step loads on first use:

>>> import course
>>> course.errors.UserError("say what to change")
UserError('say what to change')
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    if not name.startswith("_"):
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(module.name for module in iter_modules(__path__))})
