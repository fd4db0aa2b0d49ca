"""The figures of step 1: the roofline, and stacked bars of parameters, FLOPs, model state and activations.

Each function takes data and returns a `Figure`; the classes behind them redraw the same figure for an explorer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text

from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, STYLE, VERMILION
from course.pictures.live import Live, Section, Stacks

__all__ = [
    "ACTIVATION_COLOURS", "FLOP_COLOURS", "PARAMETER_COLOURS", "STATE_COLOURS", "Roofline", "activation_parts",
    "flops_by_convention", "parameter_parts", "rate", "roofline", "short", "state_parts",
]  # fmt: skip

YELLOW = "#F0E442"
PARAMETER_COLOURS = {
    "attention": BLUE, "MLP": ORANGE, "experts": PURPLE, "router": BLACK, "tables": GREEN, "norms, biases": GREY,
}  # fmt: skip
FLOP_COLOURS = {"matrices": SKY, "attention scores": VERMILION, "recomputation": YELLOW}
STATE_COLOURS = {
    "weights": BLUE, "gradients": VERMILION, "extra gradients": ORANGE, "master weights": PURPLE, "moments": SKY,
}  # fmt: skip
ACTIVATION_COLOURS = {
    "norm and matmul inputs": ORANGE, "Q, attention output": BLUE, "K, V": SKY, "MLP": GREEN, "dropout masks": PURPLE,
    "scores": VERMILION, "layer input": GREY,
}  # fmt: skip
ROOF_LINES = ((BLUE, "-"), (VERMILION, "--"), (GREEN, "-."), (PURPLE, ":"))


def short(value: float, unit: str = "") -> str:
    """A number with three digits and a decimal prefix, as a label carries it.

    >>> short(405.85e9), short(4e11, "FLOP/s"), short(0.25)
    ('406 G', '400 GFLOP/s', '0.25')
    """
    for size, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{_digits(value / size)} {prefix}{unit}"
    return f"{_digits(value)} {unit}".rstrip()


def _digits(value: float) -> str:
    text = f"{value:#.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class Roofline(Live):
    """Attainable rate against arithmetic intensity, both logarithmic; what stands still is drawn once a range."""

    def __init__(self, width: float = 7.4, height: float = 4.2) -> None:
        super().__init__(width, height)
        with rc_context(dict(STYLE)):
            self.axes = self.figure.add_axes((1.4 / width, 0.15, 1 - 1.82 / width, 0.7))
            self.axes.set_xscale("log")
            self.axes.set_yscale("log")
            self.axes.set_xlabel("arithmetic intensity (FLOP/byte, logarithmic)")
            self.axes.grid(color="#e4e4e4", linewidth=0.8)
            self.axes.minorticks_off()
            self.axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
            self.axes.yaxis.set_major_formatter(lambda value, _: rate(value, tera=self._range[3] >= 2.6e13))
            self.title = self.figure.text(0.02, 0.93, "", fontsize=13, fontweight="bold", va="center")
            self.flat = self.axes.text(0, 0, "", fontsize=11, ha="right", va="bottom")
        self.roofs: list[tuple[Any, Text]] = []
        self.points: list[tuple[Any, Any, Text]] = []
        self._range: tuple[float, ...] = ()

    def update(
        self, *, intensities: Sequence[float], roofs: Mapping[str, Sequence[float]],
        points: Mapping[str, tuple[float, float]], finding: str, lowest: float | None = None, ceiling: str = "",
  ) -> None:  # fmt: skip
        """Show other roofs and points; the arguments are those of `roofline`."""
        top = max(max(rates) for rates in roofs.values())
        low = lowest or min(min(rates) for rates in roofs.values())
        wanted = (float(intensities[0]), float(intensities[-1]), low, top * 2.6)
        if wanted != self._range:
            self._range, self._background = wanted, None
            self.axes.set_xlim(wanted[0], wanted[1])
            self.axes.set_ylim(wanted[2], wanted[3])
        self.title.set_text(finding)
        self.flat.set(text=ceiling, x=wanted[1] * 0.93, y=top * 1.06)
        with rc_context(dict(STYLE)):
            self._set_roofs(intensities, roofs)
            self._set_points(points)

    def _set_roofs(self, intensities: Sequence[float], roofs: Mapping[str, Sequence[float]]) -> None:
        while len(self.roofs) < len(roofs):
            colour, dash = ROOF_LINES[len(self.roofs) % len(ROOF_LINES)]
            (line,) = self.axes.plot([], [], color=colour, linestyle=dash)
            label = self.axes.text(0, 0, "", color=colour, fontsize=11, rotation_mode="anchor", clip_on=True)
            self.roofs.append((line, label))
        (x0, y0), (x1, y1) = self.axes.transData.transform([(1.0, self._range[2]), (10.0, self._range[2] * 10)])
        slope = math.degrees(math.atan2(y1 - y0, x1 - x0))
        for index, (line, label) in enumerate(self.roofs):
            line.set_visible(index < len(roofs))
            label.set_visible(index < len(roofs))
        for (line, label), (name, rates) in zip(self.roofs, roofs.items(), strict=False):
            line.set_data(intensities, rates)
            visible = zip(intensities, rates, strict=True)
            start = next(i for i, (x, y) in enumerate(visible) if x >= 1.15 * self._range[0] and y > self._range[2])
            label.set(x=intensities[start], y=rates[start] * 1.13, text=name, rotation=slope)

    def _set_points(self, points: Mapping[str, tuple[float, float]]) -> None:
        while len(self.points) < len(points):
            (drop,) = self.axes.plot([], [], color=GREY, linestyle=":", linewidth=1.5)
            (dot,) = self.axes.plot([], [], "o", color=VERMILION, markersize=11, zorder=5)
            label = self.axes.text(0, 0, "", fontsize=12, fontweight="bold", va="top", zorder=6)
            self.points.append((drop, dot, label))
        for index, artists in enumerate(self.points):
            for artist in artists:
                artist.set_visible(index < len(points))
        written = math.inf  # labels keep a line's height between them, from the highest down
        line = (self._range[3] / self._range[2]) ** 0.065
        highest_first = sorted(points.items(), key=lambda item: -item[1][1])
        for (drop, dot, label), (name, (x, y)) in zip(self.points, highest_first, strict=False):
            written = min(y / line**0.4, written / line)
            drop.set_data([x, x], [self._range[2], y])
            dot.set_data([x], [y])
            left = math.log(x / self._range[0]) > 0.72 * math.log(self._range[1] / self._range[0])
            label.set(x=x / 1.2 if left else x * 1.2, y=written, text=name, ha="right" if left else "left")

    def words(self) -> Sequence[Text]:
        """The title, and the labels of the ceiling and of the points."""
        return [self.title, self.flat, *(label for _, _, label in self.points)]

    def _draw(self) -> None:
        """Draw what moves onto the axes, ticks and grid of the last drawing with the same ranges."""
        moving = [artist for group in (*self.roofs, *self.points) for artist in group if artist.get_visible()]
        self._draw_over(sorted(moving, key=lambda one: one.get_zorder()))


def rate(flops_per_s: float, tera: bool | None = None) -> str:
    """A rate as the roofline writes it: in GFLOP/s up to 10,000 of them, then in TFLOP/s, unless `tera` decides.

    >>> rate(4e11), rate(1e12), rate(989.4e12), rate(4e11, tera=True)
    ('400 GFLOP/s', '1,000 GFLOP/s', '989 TFLOP/s', '0.4 TFLOP/s')
    """
    if flops_per_s >= 9.9995e12 if tera is None else tera:
        return f"{_digits(flops_per_s / 1e12)} TFLOP/s"
    return f"{_digits(flops_per_s / 1e9)} GFLOP/s"


def roofline(
    intensities: Sequence[float], roofs: Mapping[str, Sequence[float]], points: Mapping[str, tuple[float, float]],
    finding: str, *, lowest: float | None = None, ceiling: str = "",
) -> Figure:  # fmt: skip
    """What a device can reach against how much work each byte brings.

    Args:
        intensities: the horizontal axis, in FLOP/byte, rising.
        roofs: label of each roof, such as its bandwidth, to its attainable rates at `intensities`, in FLOP/s.
        points: label of each marked operation to its intensity and its rate.
        finding: the title.
        lowest: foot of the vertical axis, in FLOP/s; default the lowest rate.
        ceiling: what to write above the flat part.
    """
    picture = Roofline()
    picture.update(intensities=intensities, roofs=roofs, points=points, finding=finding, lowest=lowest, ceiling=ceiling)
    return picture.figure


def parameter_parts(models: Mapping[str, Mapping[str, float]], finding: str) -> Figure:
    """Where the parameters are: one bar a model, each on its own scale, so that shares compare.

    Args:
        models: label of each model to its parts (keys of `PARAMETER_COLOURS`) in parameters.
        finding: the title.
    """
    picture = Stacks(PARAMETER_COLOURS, height=_height(len(models), 0))
    picture.update(finding=finding, sections=[Section("", {name: parts}, short) for name, parts in models.items()])
    return picture.figure


def flops_by_convention(conventions: Mapping[str, Mapping[str, float]], finding: str) -> Figure:
    """Training FLOPs of one token, one bar a convention.

    Args:
        conventions: name of each convention to its parts (keys of `FLOP_COLOURS`) in FLOP/token.
        finding: the title.
    """
    picture = Stacks(FLOP_COLOURS, height=_height(len(conventions), 1))
    picture.update(finding=finding, sections=[Section("FLOPs of one token", conventions, short)])
    return picture.figure


def state_parts(
    recipes: Mapping[str, Mapping[str, float]], finding: str, *, heading: str = "bytes a parameter",
    capacity: tuple[float, str] | None = None,
) -> Figure:  # fmt: skip
    """What must be kept between steps, one bar a recipe.

    Args:
        recipes: label of each recipe to its parts (keys of `STATE_COLOURS`), all in the unit that `heading` names.
        finding: the title.
        heading: what is shown, and its unit.
        capacity: a memory to mark, in the same unit, and its label.
    """
    return _stacked(STATE_COLOURS, recipes, finding, heading, capacity)


def activation_parts(
    layers: Mapping[str, Mapping[str, float]], finding: str, *, heading: str = "one layer, GiB",
    capacity: tuple[float, str] | None = None,
) -> Figure:  # fmt: skip
    """What forward keeps for backward, one bar a way to run the layer.

    Args:
        layers: label of each bar to its parts (keys of `ACTIVATION_COLOURS`), all in the unit that `heading` names.
        finding: the title.
        heading: what is shown, and its unit.
        capacity: a memory to mark, in the same unit, and its label.
    """
    return _stacked(ACTIVATION_COLOURS, layers, finding, heading, capacity)


def _stacked(
    colours: Mapping[str, str], rows: Mapping[str, Mapping[str, float]], finding: str, heading: str,
    capacity: tuple[float, str] | None,
) -> Figure:  # fmt: skip
    picture = Stacks(colours, height=_height(len(rows), 1 + (capacity is not None)))
    picture.update(finding=finding, sections=[Section(heading, rows, _digits, capacity)])
    return picture.figure


def _height(rows: int, heads: int) -> float:
    """Inches for a title, a legend, headings and rows."""
    return 1.0 + 0.36 * heads + 0.52 * rows
