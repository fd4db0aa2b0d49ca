"""Paper to work on: the eight-step sheet of the interview with its blanks, then one page a step with room to derive.

What a blank asks stands in `course.interview.sheet`, what is to be derived in `course.printed.spine`: the left side is
given, and the symbols the right side is made of.
"""

from __future__ import annotations

from pathlib import Path

from course.formulas import find
from course.interview.sheet import SHEET, Field, Step
from course.pictures import BLUE, GREY
from course.printed.notation import left, notation, prose, unit
from course.printed.pages import MARGIN, Page, fitting, on_paper, save, width, wrapped
from course.printed.spine import SPINE, STEPS

__all__ = ["pages", "write"]

TITLE = "Worksheets of the strong scaling course"
SIZE, SMALL, LEADING = 7.4, 6.8, 9.4
BOX = 6.5
GAP = 16.0
ASKED = {
    "scaling": "Which work is fixed, that of the cluster or that of a device? Against which baseline?",
}


def pages() -> list[Page]:
    """The interview's sheet, then a page for each step."""
    sheet = _interview()
    return [*sheet, *(_derive(step) for step in SPINE)]


# ---------------------------------------------------------------- the sheet of the interview
def _interview() -> list[Page]:
    """Two pages of two columns, two steps in each: a step is never broken."""
    made = [_front("The interview in eight steps"), _front("The interview, 5 to 8")]
    tops = (_given(made[0]), 76.0)
    column = (made[0].across - 2 * MARGIN - GAP) / 2
    y = 0.0
    for number, step in enumerate(SHEET):
        page, x = made[number // 4], MARGIN + number % 4 // 2 * (column + GAP)
        y = _step_head(page, number + 1, step, x, tops[number // 4] if number % 2 == 0 else y + 10, column)
        for field in step.fields:
            if field.kind != "text":
                y = _blank(page, field, x, y, column, lines=3 if number < 4 else 9)
    for page in made:
        page.foot("Ask for what is missing and doubt what is said before step 1. Every number gets a second route, "
                  "every choice a reason said aloud.")  # fmt: skip
    return made


def _front(title: str) -> Page:
    page = Page()
    minutes = sum(step.minutes for step in SHEET)
    page.heading(title, f"name, date  ....................................................     {minutes} minutes")
    return page


def _given(page: Page) -> float:
    y = 72.0
    for text in ("model", "tokens, sequence, batch", "devices, links", "deadline, budget"):
        end = page.text(MARGIN, y, text, SIZE, colour="#444444")
        page.rule(max(end, MARGIN + 100) + 4, y + 2, page.across - MARGIN)
        y += 18
    return y + 8


def _step_head(page: Page, number: int, step: Step, x: float, y: float, column: float) -> float:
    page.text(x, y, f"{number}  {step.name}", 9, weight="bold", colour=BLUE)
    page.text(x + column, y, f"{step.minutes} min, began at __:__", 6.5, colour="#444444", align="right")
    page.rule(x, y + 3, x + column, GREY, 0.4)
    return y + 14


def _choices(field: Field) -> list[str]:
    if field.kind == "reasons":
        return []
    return list(dict(field.choices or {}).values())


def _asks(field: Field) -> str:
    asks = field.asks.replace("up to two of these, those you would say aloud.", "the two reasons you would give first.")
    return f"{asks} [{field.unit}]" if field.unit else asks


def _ticks(field: Field, column: float) -> list[list[tuple[str, bool]]]:
    """Choices in lines, each part with whether a box stands before it: a long choice goes on below its box."""
    lines: list[list[tuple[str, bool]]] = []
    used = column
    for choice in _choices(field):
        parts = wrapped(choice, SMALL, column - BOX - 9)
        taken = BOX + 11 + width(parts[0], SMALL)
        if used + taken > column + 2:
            lines.append([])
            used = 0.0
        lines[-1].append((parts[0], True))
        used = used + taken if len(parts) == 1 else column
        lines += [[(part, False)] for part in parts[1:]]
    return lines


def _short(field: Field, column: float) -> bool:
    """Whether the answer has room beside the words."""
    return field.kind in ("number", "whole") and width(_asks(field), SIZE) < column - 62


def _blank(page: Page, field: Field, x: float, y: float, column: float, lines: int) -> float:
    """One blank; `lines` to write reasons on. Returns where the next one may start."""
    if _short(field, column):
        end = page.text(x, y, _asks(field), SIZE)
        page.rule(end + 5, y + 2, x + column)
        return y + 14
    y = page.lines(x, y, _asks(field), SIZE, column, leading=LEADING / SIZE)
    if field.kind == "fates":
        return _fates(page, field, x, y, column)
    for line in _ticks(field, column):
        at = x + 4
        for part, boxed in line:
            if boxed:
                page.box(at, y - BOX + 0.8, BOX, BOX, "#555555", 0.5)
            at = page.text(at + BOX + 3, y, part, SMALL, colour="#222222") + 8
        y += 9.5
    written = {"choice": 0, "several": 0, "reasons": lines, "grid": 3}.get(field.kind, 1)
    for number in range(written):
        page.rule(x + 4, y + 5 + 14 * number, x + column)
    return y + 14 * written + 3


def _fates(page: Page, field: Field, x: float, y: float, column: float) -> float:
    """A blank for each axis."""
    marks = f"({', '.join(_choices(field))})"
    page.text(x, y, marks, fitting(marks, SMALL, column), colour="#444444")
    y += 6
    for line, axes in enumerate((("data", "tensor", "pipeline"), ("context", "expert"))):
        for place, axis in enumerate(axes):
            at = x + place * column / 3
            end = page.text(at, y + 10 + 16 * line, axis, SMALL, colour="#444444")
            page.rule(end + 3, y + 12 + 16 * line, at + column / 3 - 6)
    return y + 42


# ---------------------------------------------------------------- a page a step
def _derive(step: str) -> Page:
    page = Page()
    asked = {one.name: one for one in SHEET}.get(step)
    minutes = f"{asked.minutes} minutes of the interview" if asked else ""
    y = page.heading(STEPS[step], minutes)
    y = page.lines(MARGIN, y, asked.asks if asked else ASKED[step], 9.5, page.across - 2 * MARGIN) + 4
    end = page.text(MARGIN, y, "your question, in numbers", SIZE, colour="#444444")
    page.rule(end + 5, y + 2, page.across - MARGIN)
    page.rule(MARGIN, y + 18, page.across - MARGIN)
    y += 32
    rows = SPINE[step]
    columns = 1 if len(rows) < 3 else 2
    column = (page.across - 2 * MARGIN - GAP * (columns - 1)) / columns
    lines = -(-len(rows) // columns)
    bottom = page.down - MARGIN - 56
    tall = (bottom - y) / lines
    for number, row in enumerate(rows):
        last = columns == 2 and number == len(rows) - 1 and number % 2 == 0  # alone in its line
        _box(page, row.name, row.notebook, MARGIN + number % columns * (column + GAP),
             y + number // columns * tall, column * (1 + last) + GAP * last, tall - 8)  # fmt: skip
    for number, text in enumerate(("the second route, and what it gave", "what is soft in it, and by how much",
                                   "one sentence, as you would say it")):  # fmt: skip
        at = bottom + 16 + 18 * number
        end = page.text(MARGIN, at, text, SIZE, colour="#444444")
        page.rule(end + 5, at + 2, page.across - MARGIN)
    page.foot("Derive it from shapes first; the one-page sheet has the answer, course show formulas NAME the steps.")
    return page


def _box(page: Page, name: str, notebook: str, x: float, y: float, column: float, tall: float) -> None:
    formula = find(name)
    of = unit(formula.unit)
    page.text(x, y + 8, f"${left(formula)} = $", 11)
    page.text(x + column, y + 8, " ".join(filter(None, (f"[{of}]" if of else "", notebook.partition("_")[0]))), 6.5,
              colour="#444444", align="right")  # fmt: skip
    at = y + 20
    for line in wrapped(prose(formula.meaning), 6.8, column):
        page.text(x, at, line, 6.8, colour="#444444")
        at += 8.4
    made_of = ", ".join(f"${notation(entry.symbol.name)}$" for entry in formula.inputs)
    page.text(x, at, f"from {made_of}", fitting(f"from {made_of}", 7.5, column), colour="#444444")
    page.squares(x, at + 5, column, y + tall - at - 5)


def write(path: Path) -> None:
    """Write the worksheets as a PDF."""
    made = pages()
    save(made, path, TITLE, on_paper(made))
