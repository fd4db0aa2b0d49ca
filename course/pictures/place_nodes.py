"""Two nodes, their devices and cards, and the rings of one group: which ring leaves by which card."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from course.pictures import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, style
from course.pictures.live import Shown
from course.pictures.place import LIGHT

__all__ = ["two_nodes"]

COLOURS = (VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY, BLACK, "#8c6d31")
TOP, BOTTOM, CARDS = 3.0, 0.0, (2.3, 0.7)
"""Heights of the devices of both nodes, and of their cards."""


def two_nodes(tensors: Sequence[int], finding: str, node_size: int = 8) -> Figure:
    """Rings of data-parallel groups over two nodes, one panel for each tensor degree (innermost).

    Group 0 of each panel is drawn in full: it has k = node_size / tensor ranks on a node and runs k rings, each with a
    k-th of the buffer. The device of ring r that hands over to the other node is its r-th, by its own card.

    Args:
        tensors: tensor degree of each panel.
        finding: the title.
        node_size: devices of a node, each with a card.
    """
    with style():
        made = Shown(figsize=(8.5, 3.5), dpi=100, facecolor="white")
        made.text(0.01, 0.93, finding, fontsize=13, fontweight="bold")
        for number, tensor in enumerate(tensors):
            share = 1 / len(tensors)
            _panel(made.add_axes((number * share, 0.0, share, 0.9)), tensor, node_size)
    return made


def _panel(axes: Axes, tensor: int, size: int) -> None:
    mine = list(range(0, size, tensor))
    many = len(mine)
    axes.set_axis_off()
    axes.set_xlim(-0.9, size - 0.1)
    axes.set_ylim(-0.95, 4.6)
    rings = "1 ring, all of X" if many == 1 else f"{many} rings, X/{many} each"
    axes.text(-0.8, 4.3, f"k = {many}: {rings}", fontsize=11)
    for row, card in zip((TOP, BOTTOM), CARDS, strict=True):
        low = min(row, card) - 0.36
        axes.add_patch(FancyBboxPatch((-0.5, low), size, abs(row - card) + 0.72, boxstyle="round,pad=0.08", fc="none",
                                      ec="#777777"))  # fmt: skip
        for device in range(size):
            inside = device in mine
            axes.plot(device, row, "o", markersize=17, mfc="#ffffff" if inside else LIGHT, mew=1.2,
                      mec=BLACK if inside else LIGHT)  # fmt: skip
            number = device + (0 if row == TOP else size)
            axes.text(device, row, str(number), ha="center", va="center", fontsize=8.5,
                      color=BLACK if inside else "#999999")  # fmt: skip
            axes.add_patch(Rectangle((device - 0.26, card - 0.16), 0.52, 0.32, fc="#ffffff" if inside else LIGHT,
                                     ec=BLACK if inside else LIGHT))  # fmt: skip
    for ring, device in enumerate(mine):
        colour = COLOURS[ring % len(COLOURS)]
        back = mine[(ring + 1) % many]  # the ring comes home by the next card
        for start, end, column, shift in ((CARDS[0], CARDS[1], device, -0.1), (CARDS[1], CARDS[0], back, 0.1)):
            way = 1 if end > start else -1
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
            x = column + shift
            axes.annotate("", (x, end - 0.17 * way), (x, start + 0.17 * way), arrowprops=arrow)
    if many > 1:  # inside the nodes: ring 0, from where it comes in, through all its ranks, to where it leaves
        order = [*mine[1:], mine[0]]
        _inside(axes, order, TOP, 0.44)
        _inside(axes, [mine[0], *mine[1:][::-1]], BOTTOM, -0.44)


def _inside(axes: Axes, order: Sequence[int], row: float, lift: float) -> None:
    """Ring 0 through its devices, in this order."""
    for one, other in pairwise(order):
        bend = (-0.35 if (other > one) == (lift > 0) else 0.35) * (1 if abs(other - one) < 3 else 0.5)
        axes.annotate("", (other, row + lift * 0.72), (one, row + lift * 0.72),
                      arrowprops={"arrowstyle": "-|>", "color": COLOURS[0], "lw": 1.3, "shrinkA": 2, "shrinkB": 2,
                                  "connectionstyle": f"arc3,rad={bend}"})  # fmt: skip
