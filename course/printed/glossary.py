"""The glossary: every symbol with its meaning and unit, every formula's result, and the words of the course."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from course.formulas import formulas
from course.pictures import BLUE, GREY
from course.printed.notation import left, notation, prose, unit
from course.printed.pages import MARGIN, Page, fitting, on_paper, save, wrapped
from course.printed.terms import TERMS
from course.symbols import SYMBOLS

__all__ = ["pages", "write"]

SIZE, LEADING, GAP = 7.2, 9.0, 2.2
TITLE = "Glossary of the strong scaling course"
SAME = (
    "R and D count the same things. The first of the two source documents says R for accelerators, the second D on a "
    "run and D_0 on its baseline; here R stands where one run is meant, D and D_0 where two are compared. B is a "
    "micro-batch, T a length of sequences, t a time, C a rate and beta a bandwidth, one way for one device."
)
Row = Sequence[str]


class _Table:
    """Rows that flow over pages; the columns are (start, width) in points."""

    def __init__(self, columns: Sequence[tuple[float, float]]) -> None:
        self.columns, self.pages, self.y = columns, list[Page](), 0.0

    def turn(self, title: str) -> None:
        """Begin a page."""
        self.pages.append(Page())
        self.title = title
        self.y = self.pages[-1].heading(title, f"{TITLE}, page {len(self.pages)}")

    def room(self, needed: float) -> None:
        if self.y + needed > self.pages[-1].down - MARGIN:
            self.turn(self.title if self.title.endswith("continued") else f"{self.title}, continued")

    def say(self, text: str) -> None:
        """A paragraph across all columns."""
        page = self.pages[-1]
        self.y = page.lines(MARGIN, self.y, prose(text), 8, page.across - 2 * MARGIN) + 5

    def head(self, text: str) -> None:
        """A line of its own above rows."""
        self.room(40)
        self.y += 5
        self.pages[-1].text(MARGIN, self.y, text, 8.5, weight="bold", colour=BLUE)
        self.pages[-1].rule(MARGIN, self.y + 3, self.pages[-1].across - MARGIN, GREY, 0.4)
        self.y += 14

    def row(self, cells: Row) -> None:
        """One row; a cell takes as many lines as it needs, a word too long for it is set smaller."""
        lines = [wrapped(cell, SIZE, room) for cell, (_, room) in zip(cells, self.columns, strict=True)]
        tall = max(len(cell) for cell in lines) * LEADING + GAP
        self.room(tall)
        for cell, (start, room) in zip(lines, self.columns, strict=True):
            for number, line in enumerate(cell):
                size = fitting(line, SIZE + 1.5 * line.startswith("$"), room)
                self.pages[-1].text(MARGIN + start, self.y + number * LEADING, line, size)
        self.y += tall


def pages() -> list[Page]:
    """All pages: symbols, what formulas give, words."""
    table = _Table([(0, 40), (44, 276), (324, 84), (412, 103)])
    table.turn("Symbols")
    table.say(SAME)
    table.head("sign, meaning, unit, and the word that formulas and run files take")
    for entry in SYMBOLS.values():
        said = prose(entry.meaning)
        table.row((f"${notation(entry.symbol.name)}$", said, unit(entry.unit), entry.key))
    table.turn("What the formulas give")
    table.say("Every formula of the library, step by step. A sign may stand for several things of one kind; the name "
              "says which. The command course show formulas NAME prints one with its derivation.")
    step = ""
    for name, formula in formulas().items():
        if name.partition(".")[0] != step:
            step = name.partition(".")[0]
            table.head(step)
        table.row((f"${left(formula)}$", prose(formula.meaning), unit(formula.unit),
                   name.rpartition(".")[2]))  # fmt: skip
    table.columns = [(0, 105), (110, 330), (446, 70)]
    table.turn("Words")
    table.head("word, meaning, and the notebook that first explains it")
    for term in sorted(TERMS, key=lambda one: one.name.lower()):
        table.row((term.name, term.means, term.notebook.partition("_")[0]))
    return table.pages




def write(path: Path) -> None:
    """Write the glossary as a PDF."""
    made = pages()
    save(made, path, TITLE, on_paper(made))
