"""The figures of step 6: from peak to MFU part by part, and utilisation by convention.

Each function takes data and returns a `Figure`; the classes behind them redraw the same figure for an explorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from course.pictures import BLACK, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from course.pictures.estimate import FLOP_COLOURS
from course.pictures.live import DARK, Live, Section, Stacks

__all__ = ["LOG_COLOURS", "LOSS_COLOURS", "Waterfall", "share_of_peak", "utilisations", "waterfall"]

LOSS_COLOURS = {
    "unused devices": GREY, "host and optimizer": "#555555", "communication": VERMILION, "bubbles": PURPLE,
    "slow kernels": ORANGE, "recomputation": SKY, "not told apart": "#dddddd",
}  # fmt: skip
"""What takes a part of the peak, and its colour."""

LOG_COLOURS = {"right": GREEN, "by this log": VERMILION}
"""A right MFU, and the one a log prints."""


def share_of_peak(value: float) -> str:
    """A share as these figures write it.

    >>> share_of_peak(0.4125), share_of_peak(0.0004)
    ('41.2 %', '0.0 %')
    """
    return f"{100 * value:.1f} %"


class Waterfall(Live):
    """Bars that begin where the one above ended: the peak of all held devices, what each part takes, and the MFU."""

    def __init__(self, width: float = 7.4, height: float = 3.8, labels: float = 1.85) -> None:
        super().__init__(width, height)
        self.axes = self.inches()
        self.width, self.height = width, height
        self.left, self.right = labels, width - 0.85
        rows = len(LOSS_COLOURS) + 2
        self._bars = [Rectangle((0, 0), 1, 1) for _ in range(rows)]
        for bar in self._bars:
            self.axes.add_patch(bar)
        self._names = [self.axes.text(0, 0, "", va="center", ha="right", fontsize=11) for _ in range(rows)]
        self._values = [self.axes.text(0, 0, "", va="center", fontsize=11) for _ in range(rows)]
        self.title = self.axes.text(0.12, 0.26, "", va="center", fontsize=13, fontweight="bold")

    def update(self, *, finding: str, losses: Mapping[str, float]) -> None:
        """Show these parts below the title; the arguments are those of `waterfall`."""
        self.title.set_text(finding)
        rows = [("peak of all held", 0.0, 1.0, BLACK)]
        left = 1.0
        for name, part in losses.items():
            left -= part
            rows.append((name, left, part, LOSS_COLOURS[name]))
        rows.append(("MFU", 0.0, left, GREEN))
        step = min(0.42, (self.height - 0.62) / len(rows))
        scale = self.right - self.left
        for index, (bar, label, written) in enumerate(zip(self._bars, self._names, self._values, strict=True)):
            for artist in (bar, label, written):
                artist.set_visible(index < len(rows))
            if index >= len(rows):
                continue
            name, start, part, colour = rows[index]
            middle = 0.55 + step * (index + 0.5)
            bar.set_bounds(self.left + start * scale, middle - 0.4 * step, max(part, 0.002) * scale, 0.8 * step)
            bar.set_facecolor(colour)
            bar.set_edgecolor("white")
            label.set(x=self.left - 0.1, y=middle, text=name)
            inside = part > 0.5
            x = self.left + (start + part) * scale + (-0.08 if inside else 0.08)
            written.set(x=x, y=middle, text=share_of_peak(part), ha="right" if inside else "left",
                        color="white" if inside and colour in DARK else BLACK)  # fmt: skip

    def words(self) -> Sequence[Text]:
        """All of them are level."""
        return [self.title, *self._names, *self._values]


def waterfall(losses: Mapping[str, float], finding: str) -> Figure:
    """From the peak of all held devices down to MFU.

    Args:
        losses: part (keys of `LOSS_COLOURS`) to its share of the peak, in drawing order; what is left is MFU.
        finding: the title.
    """
    picture = Waterfall(height=0.75 + 0.36 * (len(losses) + 2))
    picture.update(finding=finding, losses=losses)
    return picture.figure


def utilisations(rows: Mapping[str, Mapping[str, float]], finding: str, *, heading: str = "share of peak") -> Figure:
    """Utilisation of one run, one bar a convention.

    Args:
        rows: convention to its parts (keys of `FLOP_COLOURS`) as shares of the peak.
        finding: the title.
        heading: what is shown.
    """
    picture = Stacks(FLOP_COLOURS, height=1.36 + 0.52 * len(rows))
    picture.update(finding=finding, sections=[Section(heading, rows, share_of_peak)])
    return picture.figure
