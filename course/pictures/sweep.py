"""The layouts of a sweep: step time against peak memory, the limit of the device, the ones worth measuring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from course.pictures import BLUE, GREY, ORANGE, STYLE, VERMILION, figure


def time_against_memory(document: Mapping[str, Any]) -> Figure:
    """One point a layout; those to be measured carry their rank.

    Args:
        document: what `course.sweep.sweep` gives; its `layouts`, `ties` and `proposal` are drawn.

    >>> empty = {"layouts": [], "ties": [], "proposal": [], "last_constraint": "memory"}
    >>> time_against_memory(empty).axes[0].get_title(loc="left")
    'No layout is legal and fits: the last constraint was memory'
    """
    made, (axes,) = figure(8.5, 4.6)
    layouts = document["layouts"]
    with rc_context(dict(STYLE)):
        axes.set_xlabel("peak memory of the fullest stage (GiB)")
        axes.set_ylabel("step time (s)")
        if not layouts:
            axes.set_title(f"No layout is legal and fits: the last constraint was {document['last_constraint']}")
            return made
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
            ("within the tie rule of the best", BLUE, "o", "white"),
            ("slower", GREY, "o", "white"),
            ("to be measured", "white", "s", ORANGE),
        ):
            axes.plot([], [], marker, color=color, markeredgecolor=edge, markeredgewidth=2, markersize=9, label=label)
        axes.margins(x=0.08, y=0.2)
        first = layouts[0]["step"]["time_s"]
        axes.set_title(f"{document['fitting']:,} layouts fit; the recommended one takes {first:.3g} s a step")
        made.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=11)
    return made
