"""The figures of step 9: measured series beside what laws predict of them, and what a step waits for at each size.

Each function takes data and returns a `Figure`; the classes behind them redraw the same figure for an explorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from course.pictures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from course.pictures.live import Section, Stacks
from course.pictures.place import Curves, Line

__all__ = ["PART_COLOURS", "Bands", "bands", "step_parts"]

PART_COLOURS = {
    "compute": GREEN, "bubble": PURPLE, "tensor": VERMILION, "data": ORANGE, "pipeline": SKY, "other": GREY,
}  # fmt: skip
"""What a step spends its time on, and its colour; communication is the exposed part of it."""

Band = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]
"""Places on the horizontal axis, the lower edge there and the upper edge."""


class Bands(Curves):
    """Lines and marks over two logarithmic axes, with a band behind them that says how far a prediction spreads."""

    def __init__(self, across: str, upwards: str, width: float = 7.4, height: float = 4.2) -> None:
        super().__init__(across, upwards, width, height)
        self.band = Polygon(np.zeros((3, 2)), closed=True, facecolor=BLUE, alpha=0.16, linewidth=0, zorder=0)
        self.axes.add_patch(self.band)

    def update(
        self, *, finding: str, curves: Mapping[str, Line], level: tuple[float, str] | None = None,
        place: tuple[float, str] | None = None, band: Band | None = None,
    ) -> None:  # fmt: skip
        """Show other lines and another band; the arguments are those of `bands`."""
        super().update(finding=finding, curves=curves, level=level, place=place)
        self.band.set_visible(band is not None)
        if band is not None:
            x, low, high = (np.asarray(part, float) for part in band)
            self.band.set_xy(np.column_stack([np.r_[x, x[::-1]], np.r_[low, high[::-1]]]))

    def _draw(self) -> None:
        every = [self.band, self.level, self.place]
        every += [artist for line, handle, _ in self.curves for artist in (line, handle)]
        self._draw_over([artist for artist in every if artist.get_visible()])


def bands(
    curves: Mapping[str, Line], finding: str, across: str, upwards: str, *, band: Band | None = None,
    level: tuple[float, str] | None = None, place: tuple[float, str] | None = None,
) -> Figure:  # fmt: skip
    """Lines and marks over two logarithmic axes, a band behind them.

    Args:
        curves: label to line.
        finding: the title.
        across: what the horizontal axis measures, with its unit.
        upwards: what the vertical axis measures, with its unit.
        band: places, lower edge, upper edge.
        level: a height to mark, and its label.
        place: a place on the horizontal axis to mark, and its label.
    """
    picture = Bands(across, upwards)
    picture.update(finding=finding, curves=curves, level=level, place=place, band=band)
    return picture.figure


def step_parts(rows: Mapping[str, Mapping[str, float]], finding: str) -> Figure:
    """What a step spends its time on, one bar a number of devices, each as a share of its own step.

    Args:
        rows: label to parts (keys of `PART_COLOURS`) in seconds.
        finding: the title.
    """
    picture = Stacks(PART_COLOURS, height=1.36 + 0.46 * len(rows))
    shares = {name: {part: value / sum(parts.values()) for part, value in parts.items() if value > 0}
              for name, parts in rows.items()}  # fmt: skip
    totals = {f"{name}, {sum(rows[name].values()):.3g} s": parts for name, parts in shares.items()}
    picture.update(finding=finding, sections=[Section("share of the step", totals, lambda share: f"{share:.0%}")])
    return picture.figure
