"""The points of a strong curve that a prediction may be tested on: left out together with whatever repeats them."""

from __future__ import annotations

from typing import Any

from course.errors import UserError
from course.lab.figures import curve
from course.lab.report import Cell, Report

__all__ = ["held_out", "scaled", "twins", "unseen"]


def scaled(report: Report, engine: str = "torch") -> list[dict[str, Any]]:
    """Rows of `figures.curve` on the most devices whose efficiency may be formed, by rising batch.

    Raises UserError where there are fewer than two.
    """
    rows = [row for row in curve(report, "strong", engine) if row["devices"] > 1 and row["efficiency"] is not None]
    most = max((row["devices"] for row in rows), default=0)
    found = [row for row in rows if row["devices"] == most]
    if len(found) < 2:
        raise UserError("The report has no strong curve on several devices: measure 'strong' with two batches or more.")
    return found


def twins(report: Report, name: str) -> list[str]:
    """The cell, and those that ran the same step: a weak cell of the same batch on as many devices tells its time."""
    one = report[name]
    same = ("engine", "devices", "global_batch_sequences", "layout", "micro_batches", "model")
    return [
        str(cell["id"]) for family in ("strong", "weak") for cell in report.of(family)
        if all(cell[key] == one[key] for key in same)
    ]  # fmt: skip


def held_out(report: Report, engine: str = "torch") -> Cell:
    """The step to be predicted: on the most devices, the largest batch but the last, so that it lies between others."""
    rows = scaled(report, engine)
    return report[(rows[:-1] if len(rows) > 2 else rows)[-1]["id"]]


def unseen(report: Report, engine: str = "torch") -> Report:
    """The report without the step to be predicted and its repeats: what may be looked at before."""
    one = held_out(report, engine)
    same = ("engine", "devices", "global_batch_sequences", "layout", "micro_batches", "model")
    hidden = {cell["id"] for cell in report if all(cell[key] == one[key] for key in same)}
    return Report(report.machine, [cell for cell in report if cell["id"] not in hidden])
