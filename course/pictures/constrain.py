"""The figures of step 2: what a device holds against what it has, and how far down the order a model must go.

Each function takes data and returns a `Figure`; explorers redraw the same stacked bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, figure, style
from course.pictures.estimate import YELLOW
from course.pictures.live import Section, Stacks

__all__ = [
    "EXPERT_COLOURS", "LAYER_COLOURS", "MEMORY_COLOURS", "checkpoints", "first_limits", "length", "memory", "stages",
]  # fmt: skip

MEMORY_COLOURS = {
    "weights": BLUE, "gradients": VERMILION, "optimizer": PURPLE, "activations": SKY,
    "logits": BLACK, "buffers": ORANGE, "margin": GREY, "measured": GREEN,
}  # fmt: skip
LAYER_COLOURS = {"around attention and MLP": ORANGE, "inside attention": BLUE, "inside the MLP": GREEN}
EXPERT_COLOURS = {"experts": PURPLE, "all else": BLUE}
MARKS = (("one layer", "v", GREEN), ("weights", "o", BLUE), ("with gradients", "s", VERMILION),
         ("with optimizer", "D", PURPLE), ("with activations", "X", YELLOW))  # fmt: skip


def memory(
    rows: Mapping[str, Mapping[str, float]], finding: str, *, capacity: tuple[float, str] | None = None,
    heading: str = "GiB on one device", labels: float = 1.9,
) -> Figure:  # fmt: skip
    """What a device holds by part, one bar a case.

    Args:
        rows: label of each bar to its parts (keys of `MEMORY_COLOURS`), in GiB.
        finding: the title.
        capacity: GiB of the device, and the label of its line.
        heading: what is shown.
        labels: inches for the labels of the rows.
    """
    return _bars(MEMORY_COLOURS, rows, finding, heading, capacity, labels)


def stages(
    rows: Mapping[str, Mapping[str, float]], finding: str, *, heading: str, capacity: tuple[float, str] | None = None
) -> Figure:
    """Activations of a device by where in the layer they arise, one bar a way to split.

    Args:
        rows: label of each bar to its parts (keys of `LAYER_COLOURS`), in GiB.
        finding: the title.
        heading: what is shown.
        capacity: GiB of the device, and the label of its line.
    """
    return _bars(LAYER_COLOURS, rows, finding, heading, capacity, 2.1)


def _bars(
    colours: Mapping[str, str], rows: Mapping[str, Mapping[str, float]], finding: str, heading: str,
    capacity: tuple[float, str] | None, labels: float,
) -> Figure:  # fmt: skip
    picture = Stacks(colours, height=1.36 + 0.36 * (capacity is not None) + 0.5 * len(rows), labels=labels)
    picture.update(finding=finding, sections=[Section(heading, rows, "{:,.1f}".format, capacity)])
    for text in picture.words():  # a total may lie on the dashed line of the capacity
        if text.get_fontweight() == "bold":
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})
    return picture.figure


def first_limits(shares: Mapping[str, Mapping[str, float]], verdicts: Mapping[str, str], finding: str) -> Figure:
    """How full each model makes its device, part by part, on a logarithmic axis; right of the line nothing fits.

    Args:
        shares: label of each case to its needs ("one layer", "weights", "with gradients", "with optimizer",
            "with activations") over the device's memory.
        verdicts: label of each case to the last part that must leave.
        finding: the title.
    """
    made, (axes,) = figure(9.2, 0.62 * len(shares) + 1.9)
    with style():
        rows = list(shares)
        for row, label in enumerate(rows):
            axes.axhline(row, color="#e4e4e4", linewidth=1, zorder=0)
            for name, marker, colour in MARKS:
                axes.plot(shares[label][name], row, marker, color=colour, markersize=10, markeredgecolor=BLACK,
                          markeredgewidth=0.6)  # fmt: skip
        axes.axvline(1, color=BLACK, linestyle="--", linewidth=2)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("need over the memory of the device (logarithmic; 1 is full)")
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        high = max(max(one.values()) for one in shares.values())
        axes.set_xlim(right=high * 40)
        for row, label in enumerate(rows):
            axes.text(high * 1.6, row, verdicts[label], va="center", fontsize=11, fontweight="bold")
        axes.set_title(finding, pad=34)
        handles = [axes.plot([], [], marker, color=colour, markersize=9, markeredgecolor=BLACK, label=name)[0]
                   for name, marker, colour in MARKS]  # fmt: skip
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=5, fontsize=10,
                    handletextpad=0.1, columnspacing=1.0)  # fmt: skip
    return made


def checkpoints(curves: Mapping[str, Mapping[int, float]], finding: str) -> Figure:
    """Memory of a recomputed model against the layers between two saved inputs; the least of each curve is marked.

    Args:
        curves: label of each model to its GiB at each interval, in layers.
        finding: the title.
    """
    made, (axes,) = figure(8.2, 3.8)
    with style():
        looks = zip((BLUE, VERMILION, GREEN), ("-", "--", "-."), strict=True)
        for (label, curve), (colour, dash) in zip(curves.items(), looks, strict=False):
            axes.plot(list(curve), list(curve.values()), dash, color=colour, marker="o", label=label)
            least = min(curve, key=lambda every: curve[every])
            axes.plot(least, curve[least], "o", color=colour, markersize=13, markeredgecolor=BLACK)
            axes.annotate(f"{curve[least]:,.1f} GiB at {least}", (least, curve[least]), textcoords="offset points",
                          xytext=(4, 14), fontsize=11, color=colour)  # fmt: skip
        axes.set_xscale("log", base=2)
        ticks = sorted({every for curve in curves.values() for every in curve})
        axes.set_xticks(ticks, [f"{one}" for one in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layers between two saved inputs")
        axes.set_ylabel("activations (GiB)")
        axes.set_title(finding)
        axes.legend()
    return made


def length(tokens: Sequence[float], measured: Sequence[float], counted: Sequence[float], finding: str) -> Figure:
    """Peak memory against the sequence length: measured points, and the line that was counted.

    Args:
        tokens: tokens of a sequence.
        measured: GiB printed at each.
        counted: GiB counted at each.
        finding: the title.
    """
    made, (axes,) = figure(8.2, 3.6)
    with style():
        axes.plot([one / 1024 for one in tokens], counted, "--", color=BLUE, label="counted")
        axes.plot([one / 1024 for one in tokens], measured, "o", color=GREEN, markersize=10, label="measured")
        axes.set_xlabel("tokens of a sequence (thousands of 1,024)")
        axes.set_ylabel("peak (GiB)")
        axes.set_ylim(bottom=0)
        axes.set_title(finding)
        axes.legend()
    return made
