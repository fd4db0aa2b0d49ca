"""The book of cases: rows of `data/cases.csv`, and one function for each that answers it with the course's formulas."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

with (Path(__file__).parent.parent / "data" / "cases.csv").open(encoding="utf-8", newline="") as _file:
    ROWS = {row["id"]: row for row in csv.DictReader(_file)}

Answer = dict[str, Any]
CASES: dict[str, Callable[..., Answer]] = {}
TRAPS: dict[str, dict[str, str]] = {}
TERA, GIGA = 1e12, 1e9


def case(name: str, **traps: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register the answer to a row; it takes the row's inputs. `traps` says which answer a known wrong value is for."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        CASES[name], TRAPS[name] = function, traps
        return function

    return register
