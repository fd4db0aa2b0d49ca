"""What `answer`, `predict` and `sweep` share: the run file read, one JSON document, rows of CSV, files written."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.fields import LAYOUT_FIELDS
from course.files import write_atomically
from course.formula import FormulaError
from course.problem import Run, load


def add_run_file(parser: argparse.ArgumentParser, *, fix: bool) -> None:
    """Declare RUN.toml and --json, and --fix where the command searches."""
    run_file = parser.add_argument("run_file", metavar="RUN.toml", help="the question; course/examples holds some")
    if fix:
        parser.add_argument(
            "--fix",
            nargs="+",
            action=_Fix,
            run_file=run_file,
            default=[],
            metavar="FIELD",
            help="fields of [layout] to hold as they are, apart by blanks or commas",
        )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


class _Fix(argparse.Action):
    """Collects the fields to hold; a run file that stands right after them is not taken for one of them."""

    def __init__(self, *arguments: Any, run_file: argparse.Action, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.run_file = run_file

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _: str | None = None
    ) -> None:
        *before, last = values
        if namespace.run_file is None and last not in LAYOUT_FIELDS and (last.endswith(".toml") or Path(last).exists()):
            if not before:
                parser.error("argument --fix: it names no field of [layout], for instance --fix tensor")
            namespace.run_file, values = last, before
            self.run_file.required = False
        names = [name for value in values for name in value.strip(",").split(",")]
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *names])


@contextmanager
def question(arguments: argparse.Namespace) -> Iterator[Run]:
    """The run of the named file; a number that leaves a formula's range becomes a sentence about the run file.

    Raises:
        UserError: the file is wrong, or a quantity that follows from it cannot be computed with.
    """
    try:
        yield load(arguments.run_file)
    except FormulaError as error:
        raise UserError(f"The numbers of this run file leave the range a formula takes. {error}") from None


def json_text(document: Any) -> str:
    """A document as JSON: what has no finite value is null, never NaN or Infinity.

    >>> json_text({"a": float("inf"), "b": (1, True)}).split()
    ['{', '"a":', 'null,', '"b":', '[', '1,', 'true', ']', '}']
    """
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """The value in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def flat(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The leaves of a document, keys joined by dots; a list is one cell, its items apart by `; `.

    >>> flat({"a": {"b": 1, "c": None}, "d": ["x", "y"]})
    {'a.b': 1, 'a.c': None, 'd': 'x; y'}
    """
    cells: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            cells |= flat(value, f"{above}{key}.")
        else:
            cells[above + key] = "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return cells


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """Rows as CSV; a cell that is missing or null is blank, yes and no are true and false."""
    columns = list(columns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = flat(plain(row))
        writer.writerow([_cell(cells.get(column)) for column in columns])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def check_target(name: str, suffixes: Iterable[str] = (), read: str | Path | None = None) -> Path:
    """The path of a file to be written, looked at before any work is done.

    Raises:
        UserError: its folder is missing, it is a folder, its ending is none of `suffixes`, or it is the file `read`.
    """
    if not name:
        raise UserError("The name of a file to write is empty. Give its path.")
    path = Path(name)
    try:
        folder, there = path.is_dir(), path.parent.is_dir()
    except (OSError, ValueError):
        folder = there = False
    if folder or not there:
        wrong = "is a folder" if folder else f"has no folder {str(path.parent)[:120]} to stand in"
        raise UserError(f"{name[:120]} {wrong}. Give the path of a file to write.")
    known = list(suffixes)
    if known and path.suffix.casefold() not in known:
        raise UserError(f"{name[:120]} must end in {' or '.join(known)}.")
    if read is not None and same_file(path, Path(read)):
        raise UserError(f"{name[:120]} is the file that is read, and would be lost. Give the path of another one.")
    return path


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths name one file, there already or not yet."""
    try:
        return one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve()
    except (OSError, ValueError):
        return False


def write(path: Path, data: bytes) -> str:
    """Write a file whole or not at all; returns the sentence that says so.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        write_atomically(path, data)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be written: {reason}. Choose another place.") from None
    return f"Wrote {path}."
