"""Run and score the notebooks of one learner, or of a folder with a sub-folder for each learner."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from course.commands.notebook_runner import Limits
from course.commands.notebook_runner import run as run_notebook
from course.files import write_atomically
from course.grading import folder as folders
from course.questions.mistakes import MISTAKES
from course.workspace import material

__all__ = ["add_arguments", "run"]

COLUMNS = ("folder", "notebook", "question", "status", "mistake", "message", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course grade`."""
    parser.add_argument("folder", type=Path, help="a learner's folder, or one that holds a folder for each learner")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write one row a question to FILE as well")
    parser.add_argument("--seconds", type=float, default=180.0, help="time one notebook may take (default 180)")
    parser.add_argument("--memory-gib", type=float, default=4.0, help="memory its kernel may take (default 4)")
    parser.add_argument("--parallel", type=int, default=2, metavar="N", help="notebooks at once (default 2)")


def run(arguments: argparse.Namespace) -> int:
    """Grade; 0 when every notebook ran to its end, 1 when one did not."""
    limits = Limits(seconds=arguments.seconds, memory_gib=arguments.memory_gib)
    expected = {
        Path(name).stem: folders.questions_in(data)
        for name, data in material().items()
        if name.startswith("exercises/")
    }

    def tell(line: str) -> None:
        if sys.stderr.isatty() and not arguments.json:
            print(line, file=sys.stderr, flush=True)

    document = folders.grade(
        arguments.folder, lambda path, variables: run_notebook(path, variables, limits), expected,
        max(1, arguments.parallel), tell,
    )  # fmt: skip
    if arguments.csv:
        write_atomically(arguments.csv, _table(document).encode())
    print(json.dumps(document, indent=1) if arguments.json else _text(document))
    return int(any(book["error"] for learner in document["learners"] for book in learner["notebooks"]))


def _table(document: dict[str, Any]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for learner in document["learners"]:
        for book in learner["notebooks"]:
            rows = book["questions"] or [{"id": "", "status": "", "mistake": None, "message": ""}]
            for row in rows:
                values = (
                    learner["folder"],
                    book["name"],
                    row["id"],
                    row["status"],
                    row["mistake"] or "",
                    row["message"],
                )
                writer.writerow([_safe(str(value)) for value in (*values, book["error"] or "")])
    return out.getvalue()


def _safe(value: str) -> str:
    """A folder's name must not become a formula in a spreadsheet."""
    return "'" + value if value[:1] in ("=", "+", "-", "@", "\t") else value


def _text(document: dict[str, Any]) -> str:
    lines = []
    width = max([len(learner["folder"]) for learner in document["learners"]], default=0)
    for learner in document["learners"]:
        rows = [row for book in learner["notebooks"] for row in book["questions"]]
        counts = ", ".join(
            f"{number} {status}"
            for status in folders.STATUSES
            if (number := sum(row["status"] == status for row in rows))
        )
        lines.append(f"{learner['folder']:<{width}}  {learner['score']:>4.0%}  {counts or 'no question'}")
        lines += [f"{'':<{width}}        {b['name']}: {b['error']}" for b in learner["notebooks"] if b["error"]]
    if document["questions"]:
        lines += ["", "question".ljust(16) + "".join(f"{status:>12}" for status in folders.STATUSES)]
        lines += [
            name.ljust(16) + "".join(f"{counts[status]:>12}" for status in folders.STATUSES)
            for name, counts in document["questions"].items()
        ]
    if document["mistakes"]:
        lines += ["", "mistakes, most common first:"]
        lines += [f"{count:>4}  {name}: {MISTAKES.get(name, '')}" for name, count in document["mistakes"].items()]
    return "\n".join(lines)
