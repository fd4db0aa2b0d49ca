"""The lab: measure scaling on the devices that are there, in one report whatever they are.

`devices()` says what is there, `measure()` runs the protocol and leaves a report on disk after every cell, `load()`
and `merge()` read reports, `recorded()` gives those that came with the course. Nothing here imports torch or jax: the
engines are workers in processes of their own. Names load on first use, for a worker needs none of them.

>>> from course.lab import devices
>>> devices()["kind"] in ("cpu", "gpu")
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course.lab.fitting import fit, predict
    from course.lab.machine import devices
    from course.lab.measuring import measure
    from course.lab.protocol import cells, training
    from course.lab.report import Report, load, merge, recorded

__all__ = ["Report", "cells", "devices", "fit", "load", "measure", "merge", "predict", "recorded", "training"]

_HOMES = {
    "cells": "protocol", "devices": "machine", "fit": "fitting", "load": "report", "measure": "measuring",
    "merge": "report", "predict": "fitting", "recorded": "report", "Report": "report", "training": "protocol",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
