"""For every formula, answers found without it: simulators, loops written from the definition, published figures."""

from __future__ import annotations

import importlib
import pkgutil

from oracles.checking import Check

ORACLES: dict[str, list[Check]] = {}
for _found in pkgutil.iter_modules(__path__):
    ORACLES |= getattr(importlib.import_module(f"{__name__}.{_found.name}"), "ORACLES", {})
