"""One idea: rows of bars below each other on one time axis, in inches, with the texts kept for the next drawing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.text import Text

from course.pictures import BLACK
from course.pictures.live import Live

__all__ = ["DIGIT", "IDLE", "Rows", "corners"]

IDLE = "#ececec"
DIGIT = 0.085
"""Inches that a figure of 9 points takes."""


def corners(x: float, y: float, length: float, height: float) -> np.ndarray:
    """The corners of a bar.

    >>> corners(0, 1, 2, 0.5).tolist()
    [[0.0, 1.0], [2.0, 1.0], [2.0, 1.5], [0.0, 1.5]]
    """
    return np.array([(x, y), (x + length, y), (x + length, y + height), (x, y + height)])


class Rows(Live):
    """A figure with a time axis from `left` to `right`; a subclass draws the bars between `_begin` and `_end`."""

    def __init__(self, width: float, height: float, left: float, right: float) -> None:
        super().__init__(width, height)
        self.axes = self.inches()
        self.width, self.height, self.left, self.right = width, height, left, right
        self._texts: list[Text] = []
        self._used = 0

    def words(self) -> Sequence[Text]:
        """All of them: bars hold level numbers and names only."""
        return self._texts

    def _begin(self, finding: str) -> None:
        self._used = 0
        self._text(0.12, 0.26, finding, size=13, weight="bold")

    def _end(self, top: float, end: str) -> None:
        """The time axis below the rows, which ends at the time `end`; texts not written this time vanish."""
        self._text(self.left, top + 0.14, "0", size=10, align="center")
        self._text(self.right, top + 0.14, end, size=10, align="center")
        self._text((self.left + self.right) / 2, top + 0.14, "time", size=10, align="center")
        for text in self._texts[self._used :]:
            text.set_visible(False)

    def _text(
        self, x: float, y: float, words: str, *, size: float, weight: str = "normal", align: str = "left",
        colour: str = BLACK,
    ) -> None:  # fmt: skip
        if self._used == len(self._texts):
            self._texts.append(self.axes.text(0, 0, "", va="center"))
        text = self._texts[self._used]
        self._used += 1
        text.set_visible(True)
        text.set(x=x, y=y, text=words, fontsize=size, fontweight=weight, ha=align, color=colour)
