"""What is done, by step: a table in a terminal, a table and a picture in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Progress"]

COLUMNS = ("step", "questions", "right", "tried", "hints", "minutes left")


@dataclass(frozen=True)
class Progress:
    """Progress by step.

    Attributes:
        questions: rows of id, step, title, kind, difficulty, minutes.
        entries: what the store holds, by id.
        note: what must be said about the file.

    >>> Progress((("demo.1", "demo", "One", "number", 1, 3),), {"demo.1": {"status": "right", "attempts": 2}}, "")
    step  questions  right  tried  hints  minutes left
    demo          1      1      0      0             0
    """

    questions: tuple[Any, ...]
    entries: dict[str, dict[str, Any]]
    note: str

    def rows(self) -> list[dict[str, Any]]:
        """One row a step: questions, right, tried (and not right), hints taken, minutes of what is not right."""
        rows: dict[str, dict[str, Any]] = {}
        for name, step, _title, _kind, _difficulty, minutes in self.questions:
            row = rows.setdefault(step, dict.fromkeys(COLUMNS, 0) | {"step": step})
            entry = self.entries.get(name, {})
            row["questions"] += 1
            row["hints"] += entry.get("hints", 0)
            if entry.get("status") == "right":
                row["right"] += 1
            else:
                row["tried"] += bool(entry.get("attempts"))
                row["minutes left"] += minutes
        return list(rows.values())

    def figure(self) -> Figure:
        """A picture of the same."""
        from course.pictures.progress import progress

        return progress([(row["step"], row["right"], row["tried"], row["questions"]) for row in self.rows()])

    def __repr__(self) -> str:
        rows = [COLUMNS, *[tuple(str(row[column]) for column in COLUMNS) for row in self.rows()]]
        widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_markdown_(self) -> str:
        head = "| " + " | ".join(COLUMNS) + " |\n|---" + "|---:" * (len(COLUMNS) - 1) + "|"
        body = "\n".join("| " + " | ".join(str(row[column]) for column in COLUMNS) + " |" for row in self.rows())
        return f"{head}\n{body}\n\n{self.note}".rstrip()

    def _ipython_display_(self) -> None:
        from IPython import display as shown

        from course.pictures.live import png

        display: Any = shown.display
        display({"text/plain": repr(self), "text/markdown": self._repr_markdown_()}, raw=True)
        if self.questions:  # as bytes, so that it is seen whether or not pyplot was ever loaded
            display({"image/png": png(self.figure()), "text/plain": "(the same as a picture)"}, raw=True)
