"""What is done by step: one bar a step, filled by right answers, hatched where something was tried."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from course.pictures import GREEN, GREY, ORANGE, figure, style

__all__ = ["progress"]


def progress(rows: Sequence[tuple[str, int, int, int]]) -> Figure:
    """Draw progress.

    Arguments: rows, one a step: its name, questions right, tried and not right, and all questions.
    Returns a Figure.

    >>> len(progress([("estimate", 3, 1, 20)]).axes)
    1
    """
    drawn, (axes,) = figure(7.4, 1.3 + 0.4 * max(len(rows), 1))
    places = range(len(rows))
    right = [row[1] for row in rows]
    tried = [row[2] for row in rows]
    rest = [row[3] - row[1] - row[2] for row in rows]
    axes.barh(places, right, color=GREEN, label="right")
    axes.barh(places, tried, left=right, color=ORANGE, hatch="//", edgecolor="white", label="tried")
    both = [a + b for a, b in zip(right, tried, strict=True)]
    axes.barh(places, rest, left=both, color="none", edgecolor=GREY, label="not tried")
    for place, row in zip(places, rows, strict=True):
        axes.text(row[3], place, f"  {row[1]} of {row[3]}", va="center")
    axes.set_yticks(list(places), [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max([row[3] for row in rows], default=1))
    axes.set_xlabel("questions")
    with style():
        drawn.legend(loc="outside lower center", ncols=3, fontsize=11, frameon=False)
    return drawn
