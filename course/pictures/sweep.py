"""The layouts of a sweep, and of the sweeps on other device counts: what is fast, what is cheap, where to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from course.pictures import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, VERMILION, figure
from course.problem import Goal
from course.stops import Point, front, stops


def time_against_memory(document: Mapping[str, Any]) -> Figure:
    """One point a layout; those to be measured carry their rank.

    Args:
        document: what `course.sweep.sweep` gives; its `layouts`, `ties` and `proposal` are drawn.

    >>> empty = {"layouts": [], "ties": [], "proposal": [], "last_constraint": "memory"}
    >>> time_against_memory(empty).axes[0].get_title(loc="left")
    'No layout is legal and fits: the last constraint was memory'
    """
    made, (axes,) = figure(8.5, 4.6)
    with rc_context(dict(STYLE)):
        _memory(axes, document)
    return made


def time_against_hours(counts: Sequence[Point], goal: Goal) -> Figure:
    """Wall time against accelerator-hours, one point a device count, with the front and the two stops.

    Args:
        counts: the best of each device count, as `course.sweep.across_devices` gives them.
        goal: its days and its budget are drawn as limits.

    >>> time_against_hours([], Goal()).axes[0].get_title(loc="left")
    'No device count has a layout that fits'
    """
    made, (axes,) = figure(8.5, 4.6)
    with rc_context(dict(STYLE)):
        _hours(axes, counts, goal)
    return made


def sweep(document: Mapping[str, Any], counts: Sequence[Point], goal: Goal) -> Figure:
    """Both pictures, one above the other; arguments as above."""
    made, (above, below) = figure(8.5, 10, rows=2)
    with rc_context(dict(STYLE)):
        _memory(above, document)
        _hours(below, counts, goal)
    return made


def further_axes(bought: Sequence[Sequence[float]], finding: str) -> Figure:
    """What each further axis buys: one thin line a question, and the median of those in which something fits.

    Args:
        bought: for each question the best step time with at most 0, 1, 2, … axes over the best of all; NaN: none fits.
        finding: the title.

    >>> further_axes([[1.3, 1.0], [float("nan"), 1.0]], "One axis is enough").axes[0].get_xlabel()
    'axes that split a replica, at most'
    """
    made, (axes,) = figure(8.5, 4.2)
    table = np.array(bought, float)
    with rc_context(dict(STYLE)):
        for line in table:
            axes.plot(100 * (line - 1), color=GREY, alpha=0.5, linewidth=1, marker=".")
        axes.plot(100 * (np.nanmedian(table, axis=0) - 1), color=BLUE, linewidth=3, marker="o", label="median")
        axes.plot([], [], color=GREY, marker=".", label="one question")
        axes.set_xticks(range(table.shape[1]))
        axes.set_xlabel("axes that split a replica, at most")
        axes.set_ylabel("step time over the best (% more)")
        axes.set_title(finding)
        axes.legend()
    return made


def ordered_rightly(edges: Sequence[float], shares: Sequence[float], finding: str) -> Figure:
    """How often a prediction orders two layouts rightly, by how far apart it says they are.

    Args:
        edges: of the gaps predicted, one more than `shares`.
        shares: of the pairs in each gap that were ordered as measured.
        finding: the title.

    >>> ordered_rightly([0, 0.1, 0.5], [0.5, 0.9], "Wide gaps are safe").axes[0].get_ylabel()
    'pairs ordered rightly (%)'
    """
    made, (axes,) = figure(8.5, 3.8)
    names = [f"{100 * low:g} to {100 * high:g}" for low, high in pairwise(edges)]
    with rc_context(dict(STYLE)):
        axes.bar(names, [100 * share for share in shares], color=BLUE, width=0.6)
        axes.axhline(50, color=VERMILION, linestyle="--", label="a coin")
        axes.set_ylim(0, 110)
        axes.set_xlabel("predicted to be so many per cent apart")
        axes.set_ylabel("pairs ordered rightly (%)")
        axes.set_title(finding)
        axes.legend(loc="upper left")
    return made


def _memory(axes: Axes, document: Mapping[str, Any]) -> None:
    axes.set_xlabel("peak memory of the fullest stage (GiB)")
    axes.set_ylabel("step time (s)")
    layouts = document["layouts"]
    if not layouts:
        axes.set_title(f"No layout is legal and fits: the last constraint was {document['last_constraint']}")
        return
    for place, entry in enumerate(layouts):
        tied, proposed = place in document["ties"], place in document["proposal"]
        at = entry["memory"]["peak_gib"], entry["step"]["time_s"]
        axes.plot(
            *at, marker="s" if proposed else "o", color=BLUE if tied else GREY, linestyle="none", markersize=9,
            markeredgecolor=ORANGE if proposed else "white", markeredgewidth=2,
        )  # fmt: skip
        if proposed:
            axes.annotate(str(place + 1), at, xytext=(0, 10), textcoords="offset points", ha="center")
    axes.axvline(layouts[0]["memory"]["capacity_gib"], color=VERMILION, label="memory of a device")
    for label, color, marker, edge in (
        ("within the model's error of the best", BLUE, "o", "white"),
        ("slower", GREY, "o", "white"),
        ("to be measured", "white", "s", ORANGE),
    ):
        axes.plot([], [], marker, color=color, markeredgecolor=edge, markeredgewidth=2, markersize=9, label=label)
    axes.margins(x=0.08, y=0.2)
    first = layouts[0]["step"]["time_s"]
    axes.set_title(f"{document['fitting']:,} layouts fit; the recommended one takes {first:.3g} s a step")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _hours(axes: Axes, counts: Sequence[Point], goal: Goal) -> None:
    axes.set_xlabel("wall time (days)")
    axes.set_ylabel("accelerator-hours")
    if not counts:
        axes.set_title("No device count has a layout that fits")
        return
    axes.set_xscale("log")
    best = front(counts)
    axes.set_xticks([point.days for point in best], [f"{point.days:.3g}" for point in best])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.plot([p.days for p in best], [p.accelerator_hours for p in best], color=BLUE, label="no other count beats it")
    found = stops(goal, counts)
    drawn = {
        "break_even_devices": (VERMILION, "^", "break-even: a doubling adds more than it saves"),
        "deadline_devices": (GREEN, "s", "deadline: a doubling costs more than it is worth"),
    }
    for point in counts:
        at = point.days, point.accelerator_hours
        axes.plot(*at, "o", color=BLUE if point in best else GREY, markersize=8, markeredgecolor="white")
        axes.annotate(f"{point.devices:,}", at, xytext=(0, 10), textcoords="offset points", ha="center")
    for place, (key, (color, marker, label)) in enumerate(drawn.items()):
        stop = next((point for point in counts if point.devices == found[key]), None)
        if stop is not None:  # one marker inside the other, where both stop at the same count
            axes.plot(
                stop.days, stop.accelerator_hours, marker, color="none", markeredgecolor=color, markeredgewidth=2.5,
                markersize=20 - 5 * place, label=label,
            )  # fmt: skip
    if goal.days is not None:
        axes.axvline(goal.days, color=PURPLE, linestyle="--", label="the deadline")
    if goal.budget_accelerator_hours is not None:
        axes.axhline(goal.budget_accelerator_hours, color=ORANGE, linestyle=":", label="the budget")
    axes.margins(x=0.08, y=0.25)
    axes.set_title("The fastest layout of each device count, the global batch held")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, markerscale=0.7)
