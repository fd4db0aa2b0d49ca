"""Published or own measured runs beside what we predict of them, with the errors and the ranking that follow.

`compare(rows)` takes rows as `course.records.runs()` gives them, `read(path)` reads them from a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from course.compare.mapping import Skipped, run_of
from course.compare.predictions import Compared, predicted, unmeasured
from course.compare.rows import Table, read
from course.compare.scores import document
from course.records.columns import Row

__all__ = ["Compared", "Comparison", "Skipped", "Table", "compare", "read", "run_of", "unmeasured"]


@dataclass(frozen=True)
class Comparison:
    """Each row with its prediction, and the document of `course compare --json` about them all."""

    rows: tuple[Compared, ...]
    document: dict[str, Any]

    def table(self) -> list[dict[str, Any]]:
        """Each measured row with the columns a comparison adds to it."""
        return [{**_plain(one.row), **_added(one)} for one in self.rows]


def compare(rows: Iterable[Row]) -> Comparison:
    """Hold measured runs against their predictions.

    >>> from course import records
    >>> compare(records.runs()[:20]).document["sources"][0]["name"]
    'mpt'
    """
    compared = tuple(predicted(rows))
    return Comparison(compared, document(compared))


def _plain(row: Row) -> dict[str, Any]:
    """The row as its file writes it: a switch is 1 or 0."""
    return {column: int(value) if isinstance(value, bool) else value for column, value in row.items()}


def _added(one: Compared) -> dict[str, Any]:
    return {
        "predicted_step_time_s": one.predicted_time_s,
        "predicted_tokens_per_s_per_device": one.tokens_per_s_per_device,
        "predicted_mfu": one.mfu,
        "predicted_peak_mem_gib": one.peak_gib,
        "predicted_fits": one.fits,
        "skipped": one.skipped,
        "inferred": "; ".join(one.run.assumptions) if one.run is not None else None,
    }
