"""A folder of notebooks, of one learner or of many, each run apart and scored.

What a notebook answered is recorded while it runs, and graded here afterwards in a clean process: nothing a notebook
says about itself counts. Nothing a notebook does stops the others.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.grading.oracle import Oracle
from course.grading.session import RECORD_FILE, RECORD_NONCE

__all__ = ["Graded", "Learner", "Ran", "grade", "learners", "questions_in"]

LARGEST_NOTEBOOK = 50_000_000
LARGEST_NEIGHBOUR = 5_000_000
LARGEST_RECORD = 20_000_000
STATUSES = ("right", "wrong", "unanswered", "error")

Document = dict[str, Any]


@dataclass(frozen=True)
class Learner:
    """One learner: the folder's name, and the notebooks in it."""

    folder: str
    notebooks: tuple[Path, ...]


@dataclass(frozen=True)
class Ran:
    """How running one notebook went: seconds, and what kept it from its end, in one sentence, or None."""

    seconds: float
    error: str | None


@dataclass
class Graded:
    """One notebook graded; `questions` are the rows of the document."""

    name: str
    seconds: float
    error: str | None
    questions: list[Document] = field(default_factory=list)


Runner = Callable[[Path, Mapping[str, str]], Ran]
"""Runs a notebook with some environment variables added; it must return whatever the notebook does."""


def learners(folder: Path) -> list[Learner]:
    """Return the learners of a folder: itself when it holds notebooks (or an `exercises` folder), else its sub-folders.

    Raises:
        UserError: there is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        raise UserError(
            f"There is no folder {folder}; name the folder of a learner, or one that holds a folder for each."
        )
    own = _notebooks(folder, deep=False)
    if own or (folder / "exercises").is_dir():
        return [Learner(folder.resolve().name, own or _notebooks(folder / "exercises", deep=True))]
    found = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    if not found:
        raise UserError(
            f"There is no notebook in {folder}; name the folder of a learner, or one that holds a folder for each."
        )
    return [
        Learner(path.name, _notebooks(path / "exercises" if (path / "exercises").is_dir() else path, deep=True))
        for path in found
    ]


def _notebooks(folder: Path, deep: bool) -> tuple[Path, ...]:
    found = []
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if deep and not name.startswith("."))
        found += [Path(place, n) for n in sorted(names) if n.endswith(".ipynb") and not n.startswith(".")]
    # `course open` lays a newer version beside a changed notebook; nobody has worked in that one
    return tuple(path for path in found if not path.name.endswith(".new.ipynb"))


def questions_in(notebook: bytes) -> list[str]:
    """Return the ids of the questions a notebook checks, in order, read from its source.

    >>> questions_in(b'{"cells": [{"cell_type": "code", "source": "check(\\\\"demo.1\\\\", x)"}]}')
    ['demo.1']
    """
    try:
        cells = json.loads(notebook)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    lines = [line for source in sources for line in source.splitlines() if not line.lstrip().startswith("#")]
    found = re.findall(r"""\bcheck\(\s*["']([A-Za-z_]\w*\.\d+)["']""", "\n".join(lines))
    return list(dict.fromkeys(found))


def grade(
    folder: Path,
    run: Runner,
    expected: Mapping[str, Sequence[str]] | None = None,
    parallel: int = 2,
    tell: Callable[[str], None] = lambda _: None,
) -> Document:
    """Run and grade every notebook of a folder; the document is that of `course grade --json`.

    Arguments: folder; run, how one notebook is run; expected, question ids by notebook name, that count even where a
    notebook has lost them; parallel, notebooks at once; tell, called with a line for each notebook that is done.
    """
    people = learners(folder)
    with Oracle() as oracle, ThreadPoolExecutor(max_workers=parallel) as pool:
        rows = oracle.ask({"do": "list"})
        known = {row[0] for row in rows.get("questions", ())}
        jobs = [
            [pool.submit(_one, path, run, oracle, known, expected or {}) for path in person.notebooks]
            for person in people
        ]
        graded = []
        for person, futures in zip(people, jobs, strict=True):
            books = []
            for future in futures:
                books.append(future.result())
                tell(f"{person.folder}/{books[-1].name}: {books[-1].error or 'done'}")
            graded.append(books)
    return _document(people, graded)


def _one(path: Path, run: Runner, oracle: Oracle, known: set[str], expected: Mapping[str, Sequence[str]]) -> Graded:
    start = time.monotonic()
    name = path.stem
    wanted = list(expected.get(name, ()))
    try:
        if path.stat().st_size > LARGEST_NOTEBOOK:
            return Graded(name, 0.0, "It is larger than 50 MB; clear its outputs.", _rows(wanted, {}))
        wanted += [question for question in questions_in(path.read_bytes()) if question not in wanted]
        wanted = [question for question in wanted if question in known]
        with tempfile.TemporaryDirectory(prefix="course-grade-", ignore_cleanup_errors=True) as scratch:
            room = Path(scratch, "notebook")
            room.mkdir()
            _copy(path, room)
            record, nonce = Path(scratch, "checks.jsonl"), secrets.randbelow(2**31)
            ran = run(room / path.name, {
                RECORD_FILE: str(record), RECORD_NONCE: str(nonce), "COURSE_DATA": str(Path(scratch, "data")),
            })  # fmt: skip
            found = _answers(record)
            verdicts = {
                question: _verdict(oracle, question, found[question], nonce) for question in found if question in known
            }
    except Exception as error:  # a folder that vanishes, a full disk: this notebook's trouble, not the others'
        return Graded(
            name, time.monotonic() - start, f"It could not be run ({type(error).__name__}: {error}).", _rows(wanted, {})
        )
    wanted += [question for question in verdicts if question not in wanted]
    return Graded(name, ran.seconds, ran.error, _rows(wanted, verdicts))


def _copy(path: Path, room: Path) -> None:
    """The notebook and the small files beside it: it may read them, and harm only the copies."""
    shutil.copyfile(path, room / path.name)
    for neighbour in sorted(path.parent.iterdir()):
        if neighbour.suffix != ".ipynb" and neighbour.is_file() and neighbour.stat().st_size <= LARGEST_NEIGHBOUR:
            shutil.copyfile(neighbour, room / neighbour.name)


def _answers(record: Path) -> dict[str, Document]:
    """The last answer to each question with its printed numbers. Lines are read as data; a bad one is passed over."""
    try:
        with record.open("rb") as file:
            data = file.read(LARGEST_RECORD)
    except OSError:
        return {}
    found: dict[str, Document] = {}
    for line in data.split(b"\n"):
        try:
            entry = json.loads(line)
            name, answer = entry["id"], entry["answer"]
            if isinstance(name, str) and isinstance(answer["kind"], str) and entry.get("seed") is None:
                found[name] = answer
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return found


def _verdict(oracle: Oracle, name: str, answer: Document, nonce: int) -> Document:
    reply = oracle.ask({"do": "check", "id": name, "answer": answer, "seed": None, "nonce": nonce})
    if reply.get("status") not in STATUSES:
        return {"status": "error", "mistake": None, "message": "The answer that was recorded cannot be graded."}
    return {key: reply[key] for key in ("status", "mistake", "message")}


def _rows(wanted: Sequence[str], verdicts: Mapping[str, Document]) -> list[Document]:
    none = {"status": "unanswered", "mistake": None, "message": ""}
    return [{"id": question, **verdicts.get(question, none)} for question in wanted]


def _document(people: Sequence[Learner], graded: Sequence[Sequence[Graded]]) -> Document:
    mistakes: Counter[str] = Counter()
    questions: dict[str, dict[str, int]] = {}
    rows = []
    for person, books in zip(people, graded, strict=True):
        right = total = 0
        for book in books:
            for row in book.questions:
                questions.setdefault(row["id"], dict.fromkeys(STATUSES, 0))[row["status"]] += 1
                mistakes.update([row["mistake"]] if row["mistake"] else [])
                right, total = right + (row["status"] == "right"), total + 1
        notebooks = [
            {"name": b.name, "seconds": round(b.seconds, 2), "error": b.error, "questions": b.questions} for b in books
        ]
        rows.append(
            {"folder": person.folder, "score": round(right / total, 4) if total else 0.0, "notebooks": notebooks}
        )
    order = sorted(questions, key=lambda name: (name.partition(".")[0], int(name.rpartition(".")[2])))
    return {
        "learners": rows,
        "mistakes": dict(mistakes.most_common()),
        "questions": {name: questions[name] for name in order},
    }
