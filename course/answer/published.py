"""The highest utilisation that published runs reached on an accelerator: what a prediction should not exceed unnoticed.

>>> from course import catalog
>>> highest = highest_mfu(catalog.accelerator("h100-sxm").id, "bf16")
>>> sorted(highest), highest["palm"].runs > 500
(['palm'], True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from course import catalog, records
from course.compare.mapping import precision_of
from course.predict.report import CONVENTIONS

__all__ = ["Highest", "above_published", "highest_mfu"]


@dataclass(frozen=True)
class Highest:
    """The highest MFU by one convention, and of how many runs."""

    mfu: float
    runs: int


@lru_cache(maxsize=64)
def highest_mfu(accelerator: str, precision: str) -> Mapping[str, Highest]:
    """Convention -> the highest MFU that a source printed for this accelerator (its catalog id) in this precision.

    Runs that failed and those noted ANOMALY are left out, and those whose convention the source does not name.
    """
    found: dict[str, list[float]] = {}
    for row in records.runs():
        notes, use, code = str(row["notes"] or ""), row["mfu_reported"], str(row["mfu_convention_code"] or "")
        if not isinstance(use, float) or code not in CONVENTIONS or "ANOMALY" in notes or records.failed(row):
            continue
        try:
            same = catalog.find("accelerators", str(row["accelerator"])) == accelerator
        except catalog.UnknownName:
            continue
        if same and precision_of(row) == precision:
            found.setdefault(code, []).append(use)
    return {code: Highest(max(values), len(values)) for code, values in found.items()}


def above_published(accelerator: str, name: str, precision: str, use: Mapping[str, float | bool | None]) -> str:
    """A sentence where `use`, MFU by convention, is above all published runs; else nothing.

    >>> above_published("h100-sxm", "H100", "bf16", {"palm": 0.3})
    ''
    """
    highest = highest_mfu(accelerator, precision)
    if not highest:
        return ""
    code = max(highest, key=lambda convention: highest[convention].runs)
    have, here = highest[code], use.get(code)
    if here is None or here <= have.mfu:
        return ""
    several = f"{have.runs:,} published runs" if have.runs > 1 else "the one published run"
    return (
        f"That is above {several} on {name} in {precision}, of which the highest has an "
        f"MFU of {have.mfu:.3f} ({code}; here {here:.3f}): measure before you rely on it."
    )
