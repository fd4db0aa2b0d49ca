"""The figures of step 3: the ladder's state and traffic, activations cut along two axes, what each axis sends.

Also `layer_cuts`, what tensor, sequence and context ranks cut in a layer, and `fold`, which ranks hold which experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, STYLE, VERMILION, figure
from course.pictures.estimate import short
from course.pictures.live import Section, Stacks

__all__ = [
    "AXIS_COLOURS", "DIVISION_COLOURS", "LADDER_COLOURS", "LATENT_COLOURS", "SEQUENCE_COLOURS", "axis_traffic", "fold",
    "ladder", "layer_cuts", "sequence",
]  # fmt: skip

LADDER_COLOURS = {
    "weights": BLUE, "gradients": VERMILION, "optimizer state": PURPLE, "gradients sent": ORANGE, "weights sent": SKY,
}  # fmt: skip
SEQUENCE_COLOURS = {"norms, residuals, inputs": ORANGE, "attention": BLUE, "MLP": GREEN}
AXIS_COLOURS = {
    "data": VERMILION, "expert data": ORANGE, "tensor": BLUE, "context": SKY, "pipeline": GREEN, "expert": PURPLE,
}  # fmt: skip
LATENT_COLOURS = {"wide keys and values": VERMILION, "latent": BLUE, "plain heads": GREEN}
DIVISION_COLOURS = {
    "devices": VERMILION, "sequences": ORANGE, "layers": GREEN, "query heads": BLUE, "key/value heads": SKY,
    "MLP width": PURPLE, "tokens": GREY,
}  # fmt: skip
DEVICES = (BLUE, ORANGE, GREEN, VERMILION)
ZONES = ("norms, residuals", "attention", "MLP")
LAYER_CUTS = (
    ("tensor 4", ((1, 1), (1, 4), (1, 4))),
    ("tensor 4,\nsequence parallel", ((4, 1), (1, 4), (1, 4))),
    ("tensor 2, context 2,\nsequence parallel", ((4, 1), (2, 2), (2, 2))),
)
"""A layout, and into how many (rows of tokens, columns of heads or widths) it cuts each zone."""


def ladder(
    state: Mapping[str, Mapping[str, float]], sent: Mapping[str, Mapping[str, float]], finding: str, *,
    room: tuple[float, str] | None = None,
) -> Figure:  # fmt: skip
    """State on a device and bytes it sends, one bar a rung in each section.

    Args:
        state: rung to its parts ("weights", "gradients", "optimizer state") in bytes.
        sent: rung to its parts ("gradients sent", "weights sent") in bytes a step.
        finding: the title.
        room: bytes of a device to mark, and their label.
    """
    picture = Stacks(LADDER_COLOURS, height=1.9 + 0.42 * (len(state) + len(sent)))
    picture.update(
        finding=finding,
        sections=[
            Section("state on a device", state, lambda value: short(value, "B"), room),
            Section("sent by a device in a step", sent, lambda value: short(value, "B")),
        ],
    )
    return picture.figure


def sequence(rows: Mapping[str, Mapping[str, float]], finding: str) -> Figure:
    """Activations of one layer on one device, one bar a way to cut the sequence; parts are `SEQUENCE_COLOURS`' names.

    Args:
        rows: label of each bar to its parts in bytes.
        finding: the title.
    """
    picture = Stacks(SEQUENCE_COLOURS, height=1.5 + 0.5 * len(rows), labels=2.2)
    picture.update(finding=finding, sections=[Section("kept by one layer", rows, lambda value: short(value, "B"))])
    return picture.figure


def axis_traffic(rows: Mapping[str, Mapping[str, float]], finding: str) -> Figure:
    """Bytes a device sends in a step, one bar a layout; parts are the axes.

    Args:
        rows: label of each layout to bytes by axis.
        finding: the title.
    """
    picture = Stacks(AXIS_COLOURS, height=1.7 + 0.5 * len(rows), labels=2.2)
    sections = [Section("sent by a device in a step", rows, lambda value: short(value, "B"))]
    picture.update(finding=finding, sections=sections)
    return picture.figure


def fold(groups: Sequence[Sequence[int]], finding: str, *, columns: int) -> Figure:
    """The ranks of a stage as a grid; ranks of one colour and letter hold the same experts.

    Args:
        groups: lists of ranks, one a share of the experts.
        finding: the title.
        columns: ranks in a row of the grid.
    """
    colours = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, GREY, BLACK)
    ranks = sum(map(len, groups))
    rows = -(-ranks // columns)
    made, (axes,) = figure(7.4, 0.9 + 0.62 * rows)
    with rc_context(dict(STYLE)):
        axes.set_axis_off()
        axes.set_title(finding)
        axes.set_xlim(0, columns)
        axes.set_ylim(rows, 0)
        for number, group in enumerate(groups):
            for rank in group:
                row, column = divmod(rank, columns)
                colour = colours[number % len(colours)]
                axes.add_patch(Rectangle((column + 0.04, row + 0.06), 0.92, 0.88, facecolor=colour, alpha=0.35))
                axes.text(column + 0.5, row + 0.5, f"rank {rank}\nexperts {chr(65 + number)}", ha="center", va="center",
                          fontsize=10)
    return made


def layer_cuts() -> Figure:
    """One layer on four devices, cut three ways: tokens downwards, widths and heads across, a colour a device."""
    made, panels = figure(8.5, 4.3, rows=len(LAYER_CUTS), columns=len(ZONES))
    with rc_context(dict(STYLE)):
        for number, panel in enumerate(panels):
            row, column = divmod(number, len(ZONES))
            name, zones = LAYER_CUTS[row]
            panel.set_xlim(0, 1)
            panel.set_ylim(1, 0)
            panel.set_xticks([])
            panel.set_yticks([])
            for side in panel.spines.values():
                side.set_visible(False)
            if row == 0:
                panel.set_title(ZONES[column], loc="center", fontsize=12, fontweight="normal")
            if column == 0:
                panel.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
            _cut(panel, *zones[column])
        made.suptitle("Only context ranks cut the tokens of attention", x=0.02, ha="left", fontsize=13,
                      fontweight="bold")
    return made


def _cut(panel: Axes, rows: int, columns: int) -> None:
    """A zone cut into rows of tokens and columns of heads or widths; uncut it is whole on every device."""
    if rows * columns == 1:
        panel.add_patch(Rectangle((0, 0), 0.98, 0.95, facecolor=GREY, alpha=0.35))
        panel.text(0.49, 0.48, "whole on every device", ha="center", va="center", fontsize=10)
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        box = (column / columns, row / rows, 0.98 / columns, 0.95 / rows)
        if rows * columns > 1:
            panel.add_patch(Rectangle(box[:2], box[2], box[3], facecolor=DEVICES[place], alpha=0.45))
