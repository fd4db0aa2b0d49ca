"""A page of paper: text, mathematics and rules put at places in points, from the top left corner.

A page is as wide as A4 and as high as Letter, so it prints on either at its own size. The same calls with the same
Matplotlib make the same bytes: no date is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.mathtext import MathTextParser
from matplotlib.patches import Rectangle

from course.pictures import BLACK, BLUE, GREY

__all__ = ["HEIGHT", "MARGIN", "TYPE", "WIDTH", "Page", "digest", "fitting", "measured", "on_paper", "save",
           "width", "wrapped"]  # fmt: skip

WIDTH, HEIGHT = 595.0, 792.0
"""Points: 210 mm, as A4, by 11 inches, as Letter."""
MARGIN = 40.0
TYPE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"], "text.usetex": False, "pdf.fonttype": 42,
    "pdf.compression": 9, "pdf.use14corefonts": False, "text.parse_math": True, "savefig.bbox": None,
}  # fmt: skip
POINTS = 72.0
MATHEMATICS = "stix"
_MATHEMATICS: Any = MathTextParser("path")


@lru_cache(maxsize=20000)
def _hundred(text: str, weight: str) -> tuple[float, float, float]:
    """What `measured` says at a size of 100 points, at which nothing is rounded that shows."""
    letters = FontProperties(family="DejaVu Sans", weight=weight, size=100, math_fontfamily=MATHEMATICS)
    if "$" in text:
        across, above, below, *_ = _MATHEMATICS.parse(text, POINTS, letters)
        return float(across), float(above) - float(below), float(below)
    font = get_font(findfont(letters))
    font.set_size(100, POINTS)
    font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
    across, above = font.get_width_height()
    return across / 64, above / 64, font.get_descent() / 64


def measured(text: str, size: float, weight: str = "normal") -> tuple[float, float, float]:
    """Points a line takes: across, above its baseline, below it. Mathematics stands between dollars.

    >>> measured("two words", 10)[0] > measured("two", 10)[0] > 0
    True
    >>> measured(r"$\\dfrac{a}{b}$", 10)[2] > measured("$a$", 10)[2]
    True
    """
    if not text.strip():
        return 0.0, 0.0, 0.0
    across, above, below = _hundred(text, weight)
    return across * size / 100, above * size / 100, below * size / 100


def width(text: str, size: float, weight: str = "normal") -> float:
    """Points that a line takes from left to right.

    >>> width("two words", 10) > width("two", 10) > 0
    True
    """
    return measured(text, size, weight)[0]


def fitting(text: str, size: float, room: float) -> float:
    """The size, or the smaller one at which the text takes `room` points.

    >>> fitting("short", 10, 500), fitting("far too long", 10, 10) < 10
    (10, True)
    """
    taken = width(text, size)
    return size if taken <= room else size * room / taken


def wrapped(text: str, size: float, room: float, weight: str = "normal") -> list[str]:
    """Lines of at most `room` points.

    >>> wrapped("one two", 10, 1000), len(wrapped("one two", 10, 30))
    (['one two'], 2)
    """
    lines: list[str] = []
    space, used = width("a b", size, weight) - width("ab", size, weight), 0.0
    for word in text.split():  # words are measured alone: they come again, lines do not
        taken = width(word, size, weight)
        if lines and used + space + taken <= room:
            lines[-1], used = f"{lines[-1]} {word}", used + space + taken
        else:
            lines.append(word)
            used = taken
    return lines


class Page:
    """One page; `y` grows downwards."""

    def __init__(self, across: float = WIDTH, down: float = HEIGHT) -> None:
        self.figure = Figure(figsize=(across / POINTS, down / POINTS), dpi=POINTS)
        self.across, self.down = across, down
        self.texts: list[tuple[float, float, str]] = []
        self.drawn: list[tuple[object, ...]] = []
        """All that was put on the page, in words and rounded places: what `digest` is made of."""

    def text(
        self, x: float, y: float, text: str, size: float = 9, *, weight: str = "normal", colour: str = BLACK,
        align: str = "left",
    ) -> float:  # fmt: skip
        """One line whose baseline is at `y`; returns where it ends."""
        self.figure.text(x / self.across, 1 - y / self.down, text, fontsize=size, fontweight=weight, color=colour,
                         ha=align, va="baseline", math_fontfamily=MATHEMATICS)  # fmt: skip
        self.texts.append((x, y, text))
        self.drawn.append((round(x, 2), round(y, 2), text, round(size, 2), weight, colour, align))
        return x + width(text, size, weight)

    def lines(self, x: float, y: float, text: str, size: float, room: float, *, leading: float = 1.3,
              colour: str = BLACK, weight: str = "normal") -> float:  # fmt: skip
        """Text in lines of at most `room` points, the first baseline at `y`; returns the next line's."""
        for line in wrapped(text, size, room, weight):
            self.text(x, y, line, size, colour=colour, weight=weight)
            y += size * leading
        return y

    def rule(self, x: float, y: float, end: float, colour: str = GREY, thick: float = 0.5) -> None:
        """A horizontal line."""
        self.box(x, y, end - x, 0, colour, thick)

    def box(self, x: float, y: float, across: float, down: float, colour: str = GREY, thick: float = 0.6,
            fill: str = "none") -> None:  # fmt: skip
        """A frame whose top left corner is at (x, y)."""
        self.drawn.append((round(x, 2), round(y, 2), round(across, 2), round(down, 2), colour, thick, fill))
        self.figure.add_artist(Rectangle(
            (x / self.across, 1 - (y + down) / self.down), across / self.across, down / self.down,
            edgecolor=colour, facecolor=fill, linewidth=thick, transform=self.figure.transFigure, zorder=0,
        ))  # fmt: skip

    def squares(self, x: float, y: float, across: float, down: float, step: float = 14.2) -> None:
        """Squared paper to derive on: lines half a centimetre apart, cut to whole squares."""
        columns, rows = int(across // step), int(down // step)
        for column in range(columns + 1):
            self.box(x + column * step, y, 0, rows * step, "#DDDDDD", 0.3)
        for row in range(rows + 1):
            self.box(x, y + row * step, columns * step, 0, "#DDDDDD", 0.3)

    def heading(self, text: str, beside: str = "", y: float = MARGIN + 14) -> float:
        """The head of a page; returns where what follows may start."""
        self.text(MARGIN, y, text, 15, weight="bold", colour=BLUE)
        if beside:
            self.text(self.across - MARGIN, y, beside, 8, colour="#555555", align="right")
        self.rule(MARGIN, y + 6, self.across - MARGIN, BLUE, 1.0)
        return y + 24

    def foot(self, text: str) -> None:
        """One small line at the bottom."""
        self.text(MARGIN, self.down - 20, text, 6.5, colour="#555555")


def digest(drawn: object) -> str:
    """A short name of all that is on some pages; it stands in the file, so that a stale one is told without drawing."""
    return hashlib.sha256(repr(drawn).encode()).hexdigest()


def on_paper(pages: Sequence[Page]) -> str:
    """The digest of pages of paper."""
    return digest([page.drawn for page in pages])


def save(pages: Sequence[Page] | Sequence[Figure], path: Path, title: str, holds: str) -> None:
    """Write pages as one PDF without a date, so that the same pages are the same bytes.

    Args:
        pages: of paper, or figures; a figure's attribute `page` may say which part of it is the page.
        path: the file.
        title: what a reader's window shows.
        holds: the digest of what is on the pages.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"Title": title, "Subject": holds, "Author": "the Strong Scaling Course authors",
            "CreationDate": None, "ModDate": None}  # fmt: skip
    with rc_context(TYPE), PdfPages(path, metadata=said) as file:
        for page in pages:
            figure = page.figure if isinstance(page, Page) else page
            figure.savefig(file, format="pdf", bbox_inches=getattr(figure, "page", None))
