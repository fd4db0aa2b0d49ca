"""Pictures that are redrawn by moving what is there: one figure, whatever the reader changes.

A new figure for every change costs several times as much. Stacked bars carry their numbers on them instead of an axis
with ticks.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image, ImageDraw, ImageFont

from course.pictures import BLACK, BLUE, GREEN, STYLE, VERMILION

__all__ = ["Live", "Section", "Shown", "Stacks"]

DARK = (BLUE, GREEN, VERMILION, BLACK, "#555555")
"""Colours on which a number is written in white."""


class Shown(Figure):
    """A figure that a notebook shows by itself, with no need of pyplot."""

    def _repr_png_(self) -> bytes:
        return png(self)


def png(figure: Figure) -> bytes:
    """The figure as a PNG, drawn by Matplotlib alone.

    >>> png(Shown(figsize=(1, 1)))[1:4]
    b'PNG'
    """
    out = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    with rc_context(dict(STYLE)):
        canvas.draw()
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(out, "png")
    return out.getvalue()


class Live:
    """A figure that is made once; `update`, which a subclass defines, moves its artists, `png` draws them.

    Letters take Matplotlib most of the time it needs, a millisecond and more for each word, so `png` writes the level
    ones with Pillow, in the same font and place, onto what Matplotlib has drawn.
    """

    update: Callable[..., None]

    def __init__(self, width: float, height: float) -> None:
        self.figure = Shown(figsize=(width, height), dpi=100)
        self.figure.set_facecolor("white")
        self.canvas: Any = FigureCanvasAgg(self.figure)
        self._background: Any = None

    def inches(self) -> Any:
        """Axes over the whole figure, in inches from its upper left corner: distances stay whatever the size."""
        width, height = self.figure.get_size_inches()
        with rc_context(dict(STYLE)):
            axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        return axes

    def words(self) -> Sequence[Text]:
        """The texts that Pillow may write: level ones, above everything else."""
        raise NotImplementedError

    def png(self) -> bytes:
        """The picture as it stands, drawn fast."""
        words = [text for text in self.words() if text.get_visible()]
        for text in words:
            text.set_visible(False)
        try:
            with rc_context(dict(STYLE)):
                self._draw()
        finally:
            for text in words:
                text.set_visible(True)
        size = self.canvas.get_width_height()
        image = Image.frombuffer("RGBA", size, self.canvas.buffer_rgba(), "raw", "RGBA", 0, 1)
        pen = ImageDraw.Draw(image)
        for text in words:
            x, y = text.get_transform().transform(text.get_position())
            anchor = _ACROSS[text.get_horizontalalignment()] + _DOWN[text.get_verticalalignment()]
            font = _font(str(text.get_fontweight()), round(float(text.get_fontsize()) * self.figure.dpi / 72))
            pen.text((x, size[1] - y), text.get_text(), fill=to_hex(text.get_color()), font=font, anchor=anchor)
        return _pack(np.asarray(image))

    def _draw(self) -> None:
        self.canvas.draw()

    def _draw_over(self, moving: Sequence[Any]) -> None:
        """Draw these artists, in this order, onto the rest as last drawn; `_background = None` draws that anew."""
        if self._background is None:
            for artist in moving:
                artist.set_visible(False)
            self.canvas.draw()
            self._background = self.canvas.copy_from_bbox(self.figure.bbox)
            for artist in moving:
                artist.set_visible(True)
        self.canvas.restore_region(self._background)
        renderer = self.canvas.get_renderer()
        for artist in moving:
            artist.draw(renderer)


_ACROSS = {"left": "l", "center": "m", "right": "r"}
_DOWN = {"center": "m", "top": "a", "bottom": "d"}


@cache
def _font(weight: str, pixels: int) -> ImageFont.FreeTypeFont:
    path = findfont(FontProperties(family="DejaVu Sans", weight=weight))
    return ImageFont.truetype(path, pixels, layout_engine=ImageFont.Layout.BASIC)


def _pack(pixels: np.ndarray) -> bytes:
    """Pixels as a PNG in a third of an encoder's time: every line is written as its difference from the one above."""
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    lines = np.empty((height, 1 + width * channels), np.uint8)
    lines[:, 0] = 2  # the filter "up"
    lines[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=lines[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.data, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@dataclass(frozen=True)
class Section:
    """Some rows on one scale: label of a row to its parts, part to value.

    `show` writes a value. `limit` draws a dashed line at a value, with its label. `compact` rows are told by share.
    """

    heading: str
    rows: Mapping[str, Mapping[str, float]]
    show: Callable[[float], str] = field(default="{:,.1f}".format)
    limit: tuple[float, str] | None = None


class Stacks(Live):
    """Stacked horizontal bars in sections, each section on a scale of its own.

    `colours` names every part that may appear; the legend lists those that do. Sizes are in inches, `labels` that of
    the column of row labels.
    """

    def __init__(
        self, colours: Mapping[str, str], width: float = 7.4, height: float = 4.2, labels: float = 1.5
    ) -> None:
        super().__init__(width, height)
        self.colours = colours
        self.axes = self.inches()
        self.width, self.height = width, height
        self.left, self.right = labels, width - 0.95
        self._lengths: dict[str, float] = {}
        self._bars: list[Rectangle] = []
        self._texts: list[Text] = []
        self._lines: list[Line2D] = []

    def update(self, *, finding: str, sections: Sequence[Section]) -> None:
        """Show these sections below the title `finding`."""
        self._used = [0, 0, 0]
        self._text(0.12, 0.26, finding, size=13, weight="bold")
        named = [{name for parts in section.rows.values() for name in parts} for section in sections]
        apart = len(sections) > 1 and not set.intersection(*named)
        lines = 1 if apart else self._legend(0.14, 0.59, sections, lines=2)
        rows = sum(len(section.rows) for section in sections)
        top = 0.5 if apart else 0.56 + 0.24 * lines
        heads = sum(0.36 if section.heading else 0.1 for section in sections)
        heads += sum(0.24 for section in sections if section.limit)
        step = min(0.52, (self.height - top - heads - 0.08) / max(rows, 1))
        for section in sections:
            top = self._section(section, top, step, legend=apart)
        pools: tuple[list[Any], ...] = (self._bars, self._texts, self._lines)
        for pool, used in zip(pools, self._used, strict=True):
            for artist in pool[used:]:
                artist.set_visible(False)

    def words(self) -> Sequence[Text]:
        """All of them: bars hold level numbers only."""
        return self._texts

    def _legend(self, left: float, middle: float, sections: Sequence[Section], lines: int = 1) -> int:
        """A square and a name for every part that can be seen, from `left` on; how many lines that took."""
        most = max(sum(parts.values()) for section in sections for parts in section.rows.values())
        shown = {
            name
            for section in sections
            for parts in section.rows.values()
            for name, value in parts.items()
            if value > most / 1000
        }
        ordered = [name for name in self.colours if name in shown]
        if not ordered:
            return 1
        one = lines == 1 or self._fitting(left, ordered) > 9.5
        first = len(ordered) if one else (len(ordered) + 1) // 2
        pieces = [piece for piece in (ordered[:first], ordered[first:]) if piece]
        size = min(self._fitting(left, piece) for piece in pieces)
        for piece in pieces:
            x = left
            for name in piece:
                self._bar(x, middle - 0.07, 0.14, 0.14, self.colours[name])
                self._text(x + 0.19, middle, name, size=size)
                x += 0.38 + self._length(name) * size / 11
            middle += 0.24
        return len(pieces)

    def _fitting(self, left: float, names: Sequence[str]) -> float:
        """The largest size of letters, in points, at which these names stand in one line."""
        room = self.width - left - 0.1 - 0.38 * len(names)
        return min(11.0, 11.0 * room / sum(map(self._length, names)))

    def _length(self, words: str) -> float:
        """Inches that words take at 11 points; measured once."""
        if words not in self._lengths:
            with rc_context(dict(STYLE)):
                text = self.figure.text(0, 0, words, fontsize=11)
                self._lengths[words] = text.get_window_extent(self.canvas.get_renderer()).width / self.figure.dpi
                text.remove()
        return self._lengths[words]

    def _section(self, section: Section, top: float, step: float, *, legend: bool) -> float:
        if section.heading:
            self._text(0.12, top + 0.18, section.heading, size=11.5, colour="#444444")
        if legend:
            self._legend(0.55 + self._length(section.heading), top + 0.18, [section])
        top += 0.36 if section.heading else 0.1
        totals = {label: sum(parts.values()) for label, parts in section.rows.items()}
        longest = max([*totals.values(), section.limit[0] if section.limit else 0.0, 1e-300])
        scale = (self.right - self.left) / longest
        if section.limit:
            top += 0.24
        for row, (label, parts) in enumerate(section.rows.items()):
            middle, x = top + step * (row + 0.5), self.left
            self._text(self.left - 0.1, middle, label, size=11, align="right")
            for name, value in parts.items():
                length = value * scale
                if length <= 0:
                    continue
                colour = self.colours[name]
                self._bar(x, middle - 0.4 * step, length, 0.8 * step, colour)
                written = section.show(value)
                if length > 0.12 + 0.088 * len(written) and value < totals[label]:
                    self._text(x + length / 2, middle, written, size=10.5, align="center",
                               colour="white" if colour in DARK else BLACK)  # fmt: skip
                x += length
            self._text(x + 0.08, middle, section.show(totals[label]), size=11, weight="bold")
        bottom = top + step * len(section.rows)
        if section.limit:
            value, label = section.limit
            x = self.left + value * scale
            self._line(x, top - 0.05, bottom)
            near = x > self.width - 1.7
            self._text(self.width - 0.1 if near else max(x, self.left + 0.3), top - 0.16, label, size=10.5,
                       align="right" if near else "center" if x > self.left + 1.6 else "left")  # fmt: skip
        return bottom

    def _bar(self, x: float, y: float, length: float, height: float, colour: str) -> None:
        bar = self._next(0, self._bars, lambda: self.axes.add_patch(Rectangle((0, 0), 1, 1, linewidth=0.8)))
        bar.set_bounds(x, y, length, height)
        bar.set_facecolor(colour)
        bar.set_edgecolor("white" if length > 0.05 else colour)

    def _line(self, x: float, top: float, bottom: float) -> None:
        line = self._next(
            2, self._lines, lambda: self.axes.add_line(Line2D([], [], color=BLACK, linestyle="--", linewidth=2))
        )
        line.set_data([x, x], [top, bottom])

    def _text(
        self, x: float, y: float, words: str, *, size: float, weight: str = "normal", align: str = "left",
        colour: str = BLACK,
    ) -> None:  # fmt: skip
        text = self._next(1, self._texts, lambda: self.axes.text(0, 0, "", va="center"))
        text.set(x=x, y=y, text=words, fontsize=size, fontweight=weight, ha=align, color=colour)

    def _next(self, kind: int, pool: list[Any], make: Callable[[], Any]) -> Any:
        """The next artist of a pool, made when the pool is empty."""
        if self._used[kind] == len(pool):
            pool.append(make())
        artist = pool[self._used[kind]]
        self._used[kind] += 1
        artist.set_visible(True)
        return artist
