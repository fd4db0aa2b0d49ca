"""What a recorded trace looks like: streams as rows, below them exposed communication and idle time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course.pictures import BLACK, BLUE, GREY, ORANGE, PURPLE, VERMILION, figure, style
from course.traces import Trace
from course.traces.intervals import Intervals

__all__ = ["streams"]

MILLI = 1e3
_HEIGHT = 0.72
_LETTER = 0.007
"""A letter's share of the axis: a collective is named where its name fits into it."""


def streams(trace: Trace, finding: str, window_s: tuple[float, float] | None = None) -> Figure:
    """Who ran when: one row a stream, and two rows that sum up the device.

    Args:
        trace: as `course.traces.read_trace` gives it.
        finding: the title.
        window_s: the first and the last second that is shown, after the start of what is counted; all where left out,
            and then the legend has the shares of the span.
    """
    first, last = window_s or (0.0, trace.span_s)
    named = [*(stream.name for stream in trace.streams), "exposed", "idle"]
    made, (axes,) = figure(9, 1.5 + 0.42 * len(named))
    with style():
        for row, stream in enumerate(trace.streams):
            _bars(axes, row, stream.compute, BLUE)
            _bars(axes, row, stream.copies, PURPLE)
            _bars(axes, row, stream.communication, ORANGE)
        rows = {stream.name: row for row, stream in enumerate(trace.streams)}
        for one in trace.collectives:
            start, end = max(one.start_s, first), min(one.start_s + one.seconds, last)
            if end - start > _LETTER * len(one.kind) * (last - first):
                axes.text(MILLI * (start + end) / 2, rows[one.stream], one.kind, ha="center", va="center", fontsize=8.5,
                          color=BLACK)  # fmt: skip
        _bars(axes, len(named) - 2, trace.exposed, VERMILION)
        _bars(axes, len(named) - 1, trace.idle, GREY)
        axes.axhline(len(named) - 2.5, color=BLACK, linewidth=0.8)
        axes.set_yticks(range(len(named)), _short(named))
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(named) - 0.5, -0.5)
        axes.set_xlim(MILLI * first, MILLI * last)
        axes.set_xlabel("time after the start of what is counted (ms)")
        axes.set_title(finding, loc="left")
        shares = [f" {100 * one:.1f} %" if window_s is None else "" for one in (trace.exposed_share, trace.idle_share)]
        handles = [
            Patch(facecolor=BLUE, label="compute"), Patch(facecolor=PURPLE, label="copies"),
            Patch(facecolor=ORANGE, label="collectives"),
            Patch(facecolor=VERMILION, label="exposed" + shares[0]), Patch(facecolor=GREY, label="idle" + shares[1]),
        ]  # fmt: skip
        made.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=11, frameon=False)
    return made


def _bars(axes: Axes, row: int, when: Intervals, colour: str) -> None:
    """One artist for a whole row: a trace has thousands of kernels. Without edges, so that what is shorter than a pixel
    shows as a shade and not as a whole pixel: edges would paint a row of gaps of 1 % solid."""
    if not len(when):
        return
    low, high = row - _HEIGHT / 2, row + _HEIGHT / 2
    left, right = MILLI * when[:, 0], MILLI * when[:, 1]
    below, above = np.full_like(left, low), np.full_like(left, high)
    corners = np.stack([[left, below], [left, above], [right, above], [right, below]]).transpose(2, 0, 1)
    axes.add_collection(PolyCollection(list(corners), facecolor=colour, linewidth=0, snap=False), autolim=False)


def _short(names: Sequence[str], most: int = 24) -> list[str]:
    """Names that leave room for the picture; threads of a host have long ones."""
    return [name if len(name) <= most else name[: most - 1] + "…" for name in names]
