"""One function a figure: data in, a Matplotlib `Figure` out, and nothing computed on the way.

Figures are made without pyplot, so none stays open and none is shown twice. Colours are those of Okabe and Ito, which
colour-blind readers tell apart; what a colour says is also written beside it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY, BLACK = "#56B4E9", "#CC79A7", "#999999", "#000000"

STYLE: dict[Any, Any] = {
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 2.5,
}


def style() -> AbstractContextManager[None]:
    """The course's type and lines, for whatever is drawn inside `with style():`."""
    return rc_context(STYLE)


def figure(width: float = 8.5, height: float = 3.8, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure in the course's style, with its axes in reading order; sizes in inches.

    >>> made, axes = figure(rows=1, columns=2)
    >>> len(axes)
    2
    """
    with style():
        made = Figure(figsize=(width, height), dpi=100, layout=ConstrainedLayoutEngine(hspace=0.08, wspace=0.05))
        made.set_facecolor("white")
        axes = made.subplots(rows, columns, squeeze=False)
        return made, list(axes.ravel())
