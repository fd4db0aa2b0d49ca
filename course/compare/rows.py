"""Reading runs from a file: a CSV with the columns of the records, or a report of the lab.

Whatever is wrong with the file becomes one sentence that names the line and the column. A column that is not there is a
blank one, so long as accelerator, devices, batch and model can be found at all. An empty line holds no run, nor does
one of as many cells as the header has, all blank; any other number of cells is an error, whatever they hold.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from course.compare import lab
from course.errors import UserError
from course.fields import nearest, show
from course.files import read_text
from course.records.columns import OPTIONAL, RUN_COLUMNS, Row, Value, cell

__all__ = ["Table", "loads", "read"]

NEEDED = ("accelerator", "n_devices", "seq_len", "global_batch_seqs")
ADDED = (
    "predicted_step_time_s", "predicted_tokens_per_s_per_device", "predicted_mfu", "predicted_peak_mem_gib",
    "predicted_fits", "skipped", "inferred",
)  # fmt: skip
"""Columns a comparison adds; where a file has them already they are replaced."""


@dataclass(frozen=True)
class Table:
    """Runs as typed rows, their columns in the order of the file, and whether they come from the lab."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def read(path: str | Path) -> Table:
    """Read a file of runs. Raises UserError in one sentence, whatever is wrong.

    >>> read("no such file.csv")
    Traceback (most recent call last):
        ...
    course.errors.UserError: There is no file "no such file.csv". Check the path.
    """
    instead = " in UTF-8. Save it as a CSV in UTF-8, or give a lab report."
    text = read_text(path, "file of runs", "a CSV or of a lab report", instead)
    return loads(text, Path(path).name)


def loads(text: str, name: str = "runs") -> Table:
    """Read runs from their text; what starts with a brace is a lab report. Raises UserError as `read` does.

    >>> loads("id;model;accelerator;n_devices\\n")
    Traceback (most recent call last):
        ...
    course.errors.UserError: runs is separated by semicolons. Save it with commas between the columns.
    """
    if not text.strip():
        raise UserError(f"{name} is empty. A table of runs needs a header and a row for each run.")
    if "\0" in text:
        raise UserError(f"{name} is not text. Save it as a CSV in UTF-8.")
    if text.lstrip().startswith("{") or name.casefold().endswith(".json"):
        columns, rows = lab.rows(text, name)
        return Table(name, columns, rows)
    try:
        return _table(text, name)
    except csv.Error as error:
        raise UserError(f"{name} is no CSV: {error}. Mend that line.") from None


_cell = lru_cache(100_000)(cell)  # cells repeat down a column


def _table(text: str, name: str) -> Table:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines = ((reader.line_num, line) for line in reader if line and (len(line) > 1 or line[0].strip()))
    header = next((line for _, line in lines if any(part.strip() for part in line)), None)
    if header is None:
        raise UserError(f"{name} is empty: it holds commas and nothing else. Add a header and a row for each run.")
    columns = tuple(part.strip() for part in header)
    _check(columns, name)
    keep = tuple(column for column in columns if column not in ADDED)
    rows = tuple(_rows(lines, columns, keep, name))
    if not rows:
        raise UserError(f"{name} has a header and no rows. Add a row for each run.")
    return Table(name, keep, rows)


def _check(columns: tuple[str, ...], name: str) -> None:
    """The header names columns once each, and among them those without which no run can be asked about."""
    if len(columns) == 1:
        for mark, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in columns[0]:
                raise UserError(f"{name} is separated by {called}. Save it with commas between the columns.")
    twice = next((column for place, column in enumerate(columns) if column in columns[:place]), None)
    if twice is not None:
        raise UserError(f"The header of {name} names the column {show(twice)} twice. Rename one of them.")
    missing = [column for column in NEEDED if column not in columns]
    if "model" not in columns and "n_layers" not in columns:
        missing.append("model")
    if missing:
        near = nearest(missing[0], columns)
        hint = "" if near in (*RUN_COLUMNS, *OPTIONAL) else f"; the nearest is {show(near)}"
        raise UserError(
            f"{name} has no column {missing[0]}{hint}. A table of runs has the columns of the packaged records, at "
            f"least model, {', '.join(NEEDED)}."
        )


def _rows(
    lines: Iterator[tuple[int, list[str]]], columns: tuple[str, ...], keep: tuple[str, ...], name: str
) -> Iterator[Row]:
    for number, line in lines:
        if len(line) != len(columns):
            raise UserError(
                f"Line {number} of {name} has {len(line)} cells and the header {len(columns)}. "
                "Put a cell that holds a comma in quotes."
            )
        if not any(part.strip() for part in line):
            continue
        row: dict[str, Value] = {}
        for column, text in zip(columns, line, strict=True):
            if column not in keep:
                continue
            try:
                row[column] = _cell(column, text) if text else None
            except ValueError as error:
                raise UserError(f"Line {number} of {name}: {column} = {show(text)} {error}, or blank.") from None
        yield row
