"""The course's spine on one page: what each formula gives, its unit, the notebook that derives it, and every letter."""

from __future__ import annotations

from pathlib import Path

from course.formula import Formula
from course.formulas import find
from course.pictures import BLUE, GREY
from course.printed.notation import left, notation, prose, right, unit
from course.printed.pages import MARGIN, Page, fitting, measured, on_paper, save, width, wrapped
from course.printed.spine import SPINE, STEPS, Derived, brief

__all__ = ["page", "write"]

GAP = 22.0
TOP = 34.0
HEAD, UNDER, BETWEEN = 15.0, 5.8, 4.2
LETTERS, SMALL, LEGEND = 9.0, 6.0, 5.5
LEADING = 6.7
CLOSE = 6.4
DARK = "#444444"
TITLE = "Strong scaling in thirty formulas"


def page() -> Page:
    """The sheet: formulas in two columns, the legend of their symbols below."""
    made = Page()
    made.text(MARGIN, TOP, TITLE, 13, weight="bold", colour=BLUE)
    made.text(made.across - MARGIN, TOP, "at the right of each its notebook; below it what it gives, and its unit", 7,
              colour=DARK, align="right")  # fmt: skip
    made.rule(MARGIN, TOP + 5, made.across - MARGIN, BLUE, 1.0)
    column = (made.across - 2 * MARGIN - GAP) / 2
    rows = {step: [_Row(one, column) for one in ones] for step, ones in SPINE.items()}
    heights = [HEAD + sum(row.height for row in ones) for ones in rows.values()]
    first = min(range(len(heights)), key=lambda count: max(sum(heights[:count]), sum(heights[count:])))
    for number, (step, ones) in enumerate(rows.items()):
        x = MARGIN + (column + GAP) * (number >= first)
        y = TOP + 18 + sum(heights[first * (number >= first) : number])
        made.text(x, y, STEPS[step], 8.5, weight="bold", colour=BLUE)
        made.rule(x, y + 3, x + column, GREY, 0.4)
        y += HEAD - 8
        for row in ones:
            row.put(made, x, y, column)
            y += row.height
    lowest = TOP + 10 + max(sum(heights[:first]), sum(heights[first:]))
    _legend(made, lowest + 4)
    return made


class _Row:
    """One formula with what stands below it, measured before it is put anywhere."""

    def __init__(self, one: Derived, column: float) -> None:
        formula = find(one.name)
        self.where = one.notebook.partition("_")[0]
        line = f"${left(formula)} = {right(formula)}$"
        self.line, self.size = line, fitting(line, LETTERS, column - width(self.where, SMALL) - 6)
        _, self.above, self.below = measured(line, self.size)
        self.said = _meaning(formula, column)
        self.height = self.above + self.below + UNDER + LEADING * (len(self.said) - 1) + BETWEEN

    def put(self, made: Page, x: float, y: float, column: float) -> None:
        base = y + self.above
        made.text(x, base, self.line, self.size)
        made.text(x + column, base, self.where, SMALL, colour=DARK, align="right")
        for number, part in enumerate(self.said):
            made.text(x, base + self.below + UNDER + LEADING * number, part, SMALL, colour=DARK)


def _meaning(formula: Formula, column: float) -> list[str]:
    """The meaning and unit: whole where that takes one line, else its first part, if that says enough."""
    unit_of = f" [{unit(formula.unit)}]" if unit(formula.unit) else ""
    whole, first = (wrapped(prose(text) + unit_of, SMALL, column) for text in (formula.meaning, brief(formula.meaning)))
    return whole if len(whole) == 1 or len(brief(formula.meaning)) < 18 else first


def _legend(made: Page, y: float) -> None:
    """Every symbol on the page with its meaning, in three columns."""
    entries = {entry.key: entry for rows in SPINE.values() for row in rows for entry in find(row.name).inputs}
    made.rule(MARGIN, y - 2, made.across - MARGIN)
    y += 7
    columns = 3
    room = (made.across - 2 * MARGIN) / columns
    blocks = []
    for entry in sorted(entries.values(), key=lambda one: (one.symbol.name.lower(), one.symbol.name)):
        sign = f"${notation(entry.symbol.name)}$"
        indent = max(17.0, width(sign, LEGEND + 1) + 4)
        parts = wrapped(prose(brief(entry.meaning)), LEGEND, room - indent - 4)
        blocks.append((sign, indent, parts))
    rows, column, row = -(-sum(len(parts) for *_, parts in blocks) // columns), 0, 0
    for sign, indent, parts in blocks:
        if row + len(parts) > rows + 1 and column < columns - 1:  # a symbol and its lines stay together
            column, row = column + 1, 0
        x = MARGIN + column * room
        made.text(x, y + row * CLOSE, sign, LEGEND + 1, colour=DARK)
        for number, part in enumerate(parts):
            made.text(x + (17.0 if number else indent), y + row * CLOSE, part, LEGEND, colour=DARK)
            row += 1
    made.foot("Bandwidth is one way, per device; peaks are dense; GB are decimal. R and D count the same things: "
              "accelerators.")  # fmt: skip


def write(path: Path) -> None:
    """Write the page as a PDF."""
    made = [page()]
    save(made, path, TITLE, on_paper(made))
