"""The figures of step 4: chunks on ranks, ranks on nodes or on a torus, times and ratios as lines.

Each function takes data and returns a `Figure`; the classes behind them redraw the same figure for an explorer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, STYLE, VERMILION
from course.pictures.live import DARK, Live

__all__ = ["Curves", "Grid", "Line", "Panel", "cells", "lines", "shades", "tint"]

LIGHT = "#e8e8e8"
LINES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 2)), (0, (8, 3)))
SHADES = ("#f2f2f2", "#cfe3f1", "#fff1c9", "#b9e4d6", "#f6dbe9", "#d9d9d9", "#e4f3fb", "#fde0cc")


def tint(share: float) -> str:
    """White at 0, green at 1: how much of a sum is there.

    >>> tint(1.0)
    '#009e73'
    """
    green = (0x00, 0x9E, 0x73)
    return "#" + "".join(f"{round(255 - (255 - part) * (0.75 * share if share < 1 else 1)):02x}" for part in green)


def shades(number: int, marked: int = 0) -> str:
    """A colour for group `number`: the marked one stands out, neighbours differ.

    >>> shades(0), shades(1) != shades(2)
    ('#D55E00', True)
    """
    return VERMILION if number == marked else SHADES[number % len(SHADES)]


@dataclass(frozen=True)
class Panel:
    """A table of coloured cells: `rows` of (colour, text), with names of rows and of columns where they help."""

    title: str
    rows: Sequence[Sequence[tuple[str, str]]]
    names: Sequence[str] = ()
    columns: Sequence[str] = ()


class Grid(Live):
    """Panels of coloured cells beside each other below a title."""

    def __init__(self, width: float = 8.5, height: float = 3.8) -> None:
        super().__init__(width, height)
        self.axes = self.inches()
        self.width, self.height = width, height
        self._bars: list[Rectangle] = []
        self._texts: list[Text] = []
        self._used = [0, 0]

    def update(self, *, finding: str, panels: Sequence[Panel]) -> None:
        """Show these panels below the title `finding`."""
        self._used = [0, 0]
        self._text(0.12, 0.24, finding, size=13, weight="bold")
        share = self.width / len(panels)
        for index, panel in enumerate(panels):
            self._panel(panel, index * share, share)
        for artist in (*self._bars[self._used[0] :], *self._texts[self._used[1] :]):
            artist.set_visible(False)

    def words(self) -> Sequence[Text]:
        """All of them: cells hold level texts only."""
        return self._texts

    def _panel(self, panel: Panel, left: float, share: float) -> None:
        self._text(left + 0.12, 0.62, panel.title, size=11.5, colour="#444444")
        margin = 0.14 + 0.085 * max((len(name) for name in panel.names), default=0)
        top = 0.86 + (0.22 if panel.columns else 0)
        count = max(len(row) for row in panel.rows)
        wide = min((share - margin - 0.16) / count, 1.3)
        high = min((self.height - top - 0.1) / len(panel.rows), 0.5)
        for column, name in enumerate(panel.columns):
            self._text(left + margin + wide * (column + 0.5), top - 0.13, name, size=10, align="center")
        for number, row in enumerate(panel.rows):
            y = top + number * high
            if panel.names:
                self._text(left + margin - 0.06, y + high / 2, panel.names[number], size=10, align="right")
            for column, (colour, words) in enumerate(row):
                x = left + margin + column * wide
                self._bar(x, y, wide, high, colour)
                white = colour in DARK or colour == tint(1.0)
                self._text(x + wide / 2, y + high / 2, words, size=10, align="center",
                           colour="white" if white else BLACK)  # fmt: skip

    def _bar(self, x: float, y: float, length: float, height: float, colour: str) -> None:
        if self._used[0] == len(self._bars):
            new = Rectangle((0, 0), 1, 1, linewidth=1.0, edgecolor="white")
            self.axes.add_patch(new)
            self._bars.append(new)
        bar = self._bars[self._used[0]]
        self._used[0] += 1
        bar.set_visible(True)
        bar.set_bounds(x, y, length, height)
        bar.set_facecolor(colour)

    def _text(
        self, x: float, y: float, words: str, *, size: float, weight: str = "normal", align: str = "left",
        colour: str = BLACK,
    ) -> None:  # fmt: skip
        if self._used[1] == len(self._texts):
            self._texts.append(self.axes.text(0, 0, "", va="center"))
        text = self._texts[self._used[1]]
        self._used[1] += 1
        text.set_visible(True)
        text.set(x=x, y=y, text=words, fontsize=size, fontweight=weight, ha=align, color=colour)


@dataclass(frozen=True)
class Line:
    """One line, or marks alone where `marks`; x and y rising in x."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    marks: bool = False


class Curves(Live):
    """Lines and marks over two logarithmic axes, with a level that matters and a place that is marked.

    Axes, ticks and grid are drawn once for each range, and ranges are whole half decades, so that they seldom change.
    """

    def __init__(self, across: str, upwards: str, width: float = 7.4, height: float = 4.2) -> None:
        super().__init__(width, height)
        self.width, self.height = width, height
        with rc_context(dict(STYLE)):
            self.axes = self.figure.add_axes((1.05 / width, 0.66 / height, 1 - 1.3 / width, 1 - 1.72 / height))
            self.axes.set_xscale("log")
            self.axes.set_yscale("log")
            self.axes.set_xlabel(across)
            self.axes.set_ylabel(upwards)
            self.axes.grid(color="#e4e4e4", linewidth=0.8)
            self.axes.minorticks_off()
            self.axes.xaxis.set_major_formatter(lambda value, _: _tick(value))
            self.axes.yaxis.set_major_formatter(lambda value, _: _tick(value))
            self.title = self.figure.text(0.02, 1 - 0.26 / height, "", fontsize=13, fontweight="bold", va="center")
            self.level = self.axes.axhline(1, color=GREY, linewidth=1.5)
            self.level_name = self.axes.text(0, 0, "", ha="right", va="bottom", fontsize=10.5, color="#555555")
            self.place = self.axes.axvline(1, color=GREY, linestyle=":", linewidth=1.5)
            self.place_name = self.axes.text(0, 0, "", va="top", fontsize=10.5)
            self.curves = [self._curve(index) for index in range(len(LINES))]
        self._range: tuple[float, ...] = ()

    def _curve(self, index: int) -> tuple[Any, Any, Text]:
        """A line, its short piece in the legend, and its name there."""
        (line,) = self.axes.plot([], [], color=LINES[index], markersize=7)
        handle = Line2D([], [], color=LINES[index], markersize=7, transform=self.figure.transFigure)
        self.figure.add_artist(handle)
        return line, handle, self.figure.text(0, 0, "", fontsize=10.5, va="center")

    def update(
        self, *, finding: str, curves: Mapping[str, Line], level: tuple[float, str] | None = None,
        place: tuple[float, str] | None = None,
    ) -> None:  # fmt: skip
        """Show other lines; the arguments are those of `lines`."""
        self.title.set_text(finding)
        xs = [value for line in curves.values() for value in line.x]
        ys = [value for line in curves.values() for value in line.y if value > 0] + ([level[0]] if level else [])
        wanted = (_half_decade(min(xs), -1), _half_decade(max(xs), 1), _half_decade(min(ys), -1),
                  _half_decade(1.5 * max(ys), 1))  # fmt: skip
        if wanted != self._range:
            self._range, self._background = wanted, None
            self.axes.set_xlim(wanted[0], wanted[1])
            self.axes.set_ylim(wanted[2], wanted[3])
        columns = 3 if len(curves) > 2 else 2
        for index, artists in enumerate(self.curves):
            for artist in artists:
                artist.set_visible(index < len(curves))
        for index, ((name, data), (line, handle, text)) in enumerate(zip(curves.items(), self.curves, strict=False)):
            how = ("none", "o") if data.marks else (DASHES[index], "")
            x = (0.14 + index % columns * (self.width - 0.2) / columns) / self.width
            y = 1 - (0.6 + 0.24 * (index // columns)) / self.height
            line.set_data(data.x, data.y)
            handle.set_data([x + 0.2 / self.width] if data.marks else [x, x + 0.4 / self.width],
                            [y] if data.marks else [y, y])  # fmt: skip
            for one in (line, handle):
                one.set(linestyle=how[0], marker=how[1])
            text.set(x=x + 0.48 / self.width, y=y, text=name)
        self._mark(level, place)

    def _mark(self, level: tuple[float, str] | None, place: tuple[float, str] | None) -> None:
        for artist in (self.level, self.level_name):
            artist.set_visible(level is not None)
        for artist in (self.place, self.place_name):
            artist.set_visible(place is not None)
        if level:
            self.level.set_ydata([level[0], level[0]])
            self.level_name.set(x=self._range[1] / 1.05, y=level[0] * 1.05, text=level[1])
        if place:
            self.place.set_xdata([place[0], place[0]])
            right = place[0] > (self._range[0] * self._range[1] ** 2) ** (1 / 3)
            self.place_name.set(x=place[0] / 1.06 if right else place[0] * 1.06, y=self._range[3] / 1.1, text=place[1],
                                ha="right" if right else "left")  # fmt: skip

    def words(self) -> Sequence[Text]:
        """Title, legend and marks; the axes' own letters are Matplotlib's."""
        return [self.title, self.level_name, self.place_name, *(text for _, _, text in self.curves)]

    def _draw(self) -> None:
        """Draw what moves onto the axes, ticks and grid of the last drawing with the same ranges."""
        every = [self.level, self.place, *(artist for line, handle, _ in self.curves for artist in (line, handle))]
        moving = [artist for artist in every if artist.get_visible()]
        self._draw_over(moving)


def _tick(value: float) -> str:
    """A number at an axis, short: 100k for 100,000."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _half_decade(value: float, way: int) -> float:
    """The next power of the root of ten, downwards or upwards."""
    power = 2 * math.log10(value)
    return float(10 ** ((math.ceil(power - 1e-9) if way > 0 else math.floor(power + 1e-9)) / 2))


def cells(panels: Sequence[Panel], finding: str, *, width: float = 8.5, height: float = 3.8) -> Figure:
    """Tables of coloured cells: chunks on ranks, ranks on nodes, ranks on a torus.

    Args:
        panels: from left to right.
        finding: the title.
        width: inches.
        height: inches.
    """
    picture = Grid(width, height)
    picture.update(finding=finding, panels=panels)
    return picture.figure


def lines(
    curves: Mapping[str, Line], finding: str, across: str, upwards: str, *, level: tuple[float, str] | None = None,
    place: tuple[float, str] | None = None,
) -> Figure:  # fmt: skip
    """Lines over two logarithmic axes.

    Args:
        curves: label to line.
        finding: the title.
        across: what the horizontal axis measures, with its unit.
        upwards: what the vertical axis measures, with its unit.
        level: a height to mark, and its label.
        place: a place on the horizontal axis to mark, and its label.
    """
    picture = Curves(across, upwards)
    picture.update(finding=finding, curves=curves, level=level, place=place)
    return picture.figure
