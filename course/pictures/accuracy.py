"""Predicted beside measured: every run a dot, every source a colour; and two panels of them that the README shows.

`python -m course.pictures.accuracy docs/accuracy.png` writes that one again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, figure, style

__all__ = ["NAMES", "beside", "by_micro_batch", "overview", "spreads", "write_overview"]

NAMES = {
    "usp": "Ultra-Scale Playbook", "mpt": "llm-foundry", "mbr": "Megatron-Bridge", "nemo": "NeMo", "mxt": "MaxText",
    "mlp": "MLPerf GPT-3", "kor": "Korthikanti 2022", "nar": "Narayanan 2021", "big": "large single runs",
    "mle": "ml-engineering", "nfl": "NeMo launcher", "uspfig": "playbook figures",
}  # fmt: skip
"""What the keys of the records stand for."""

COLOURS = {
    "usp": SKY, "mpt": ORANGE, "mbr": BLUE, "nemo": VERMILION, "mxt": PURPLE, "mlp": BLACK, "kor": GREEN,
    "nar": "#8c6d31", "big": "#444444", "nfl": "#882255", "mle": "#117733", "uspfig": "#88ccee",
}  # fmt: skip
MARKS = {"usp": ".", "mpt": "o", "mbr": "s", "nemo": "D", "mxt": "^", "mlp": "X", "kor": "P", "nar": "v"}
CLOSE, DOUBLE = 0.1, 2.0
"""Half width of the inner band, as a share, and the factor of the outer one."""
MANY = 500
"""From so many runs on a source is drawn in small dots."""

Pairs = Sequence[tuple[float, float]]
Spread = tuple[float, float, float]


def beside(points: Mapping[str, Pairs], what: str, finding: str) -> Figure:
    """Measured against predicted on logarithmic axes, with the diagonal, a band of 10 % and one of a factor of two.

    Args:
        points: key of each source, as in `NAMES` or one's own, to its pairs of (predicted, measured), all above 0.
        what: quantity and unit.
        finding: the title.
    """
    made, (axes,) = figure(8.5, 6.0)
    with style():
        _beside(axes, points, what, finding)
    return made


def spreads(ratios: Mapping[str, Mapping[str, Spread]], finding: str) -> Figure:
    """Measured over predicted: of each row the middle eight tenths as a bar and the median as a mark.

    Args:
        ratios: label of each prediction to its rows, name of a row to (tenth percentile, median, ninetieth).
        finding: the title.
    """
    rows = len(next(iter(ratios.values())))
    made, (axes,) = figure(8.5, 0.42 * rows + 1.8)
    with style():
        _spreads(axes, ratios, finding)
    return made


def by_micro_batch(measured: Mapping[str, Pairs], predicted: Mapping[str, Pairs], what: str, finding: str) -> Figure:
    """A quantity against the micro-batch: measured as marks, predicted as lines.

    Args:
        measured: label to pairs of (sequences in a micro-batch, quantity).
        predicted: label to such pairs.
        what: the quantity and its unit.
        finding: the title.
    """
    made, (axes,) = figure(8.5, 4.0)
    with style():
        for (label, pairs), mark, colour in zip(
            measured.items(), "osD^", (BLUE, VERMILION, GREEN, PURPLE), strict=False
        ):
            axes.plot(*_columns(pairs), mark, color=colour, markersize=9, label=label)
        for (label, pairs), dash, colour in zip(
            predicted.items(), ("-", "--", ":", "-."), (BLACK, GREY, ORANGE, SKY), strict=False
        ):
            axes.plot(*_columns(pairs), dash, color=colour, label=label)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("sequences in a micro-batch")
        axes.set_ylabel(what)
        axes.set_title(finding)
        axes.legend()
    return made


def overview(
    times: Mapping[str, Pairs], ratios: Mapping[str, Mapping[str, Spread]], findings: Sequence[str]
) -> Figure:
    """What `beside` and `spreads` draw, in one figure; `findings` are the two titles."""
    made, panels = figure(15, 6.2, columns=2)
    with style():
        _beside(panels[0], times, "time of a step (s)", findings[0])
        _spreads(panels[1], ratios, findings[1])
    return made


def _columns(pairs: Pairs) -> tuple[list[float], list[float]]:
    ordered = sorted(pairs)
    return [one[0] for one in ordered], [one[1] for one in ordered]


def _beside(axes: Axes, points: Mapping[str, Pairs], what: str, finding: str) -> None:
    values = np.array([pair for pairs in points.values() for pair in pairs])
    low, high = float(values.min()) / 1.3, float(values.max()) * 1.3
    ends = np.array([low, high])
    axes.fill_between(ends, ends / DOUBLE, ends * DOUBLE, color=GREY, alpha=0.12, linewidth=0)
    axes.fill_between(ends, ends * (1 - CLOSE), ends * (1 + CLOSE), color=GREY, alpha=0.3, linewidth=0)
    axes.plot(ends, ends, color=BLACK, linewidth=1)
    for key, pairs in sorted(points.items(), key=lambda item: -len(item[1])):  # the many first, so the few lie on top
        x, y = _columns(pairs)
        many = len(pairs) > MANY
        axes.plot(x, y, MARKS.get(key, "o"), color=COLOURS.get(key, BLACK), markersize=5 if many else 6,
                  markeredgewidth=0 if many else 0.5, markeredgecolor="white", alpha=0.7 if many else 0.9,
                  label=f"{NAMES.get(key, key)} ({len(pairs):,})")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_xlabel(f"predicted {what}")
    axes.set_ylabel(f"measured {what}")
    axes.legend(loc="upper left", fontsize=10, handletextpad=0.2, borderaxespad=0.2)
    axes.set_title(finding)


def _spreads(axes: Axes, ratios: Mapping[str, Mapping[str, Spread]], finding: str) -> None:
    names = list(next(iter(ratios.values())))
    handles = []
    for number, ((label, rows), colour, mark) in enumerate(
        zip(ratios.items(), (BLUE, GREY, ORANGE), "osD", strict=False)
    ):
        shift = 0.36 * (number / (len(ratios) - 1) - 0.5) if len(ratios) > 1 else 0.0
        for place, name in enumerate(names):
            low, middle, high = rows[name]
            axes.plot([low, high], [place + shift] * 2, color=colour, linewidth=5, alpha=0.55, solid_capstyle="butt")
            axes.plot([middle], [place + shift], mark, color=colour, markersize=8, markeredgecolor="white")
        handles.append(Line2D([], [], color=colour, marker=mark, linewidth=4, label=label))
    axes.axvline(1, color=BLACK, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}")
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("measured over predicted time: median, and the middle eight tenths")
    axes.legend(handles=handles, loc="lower right", fontsize=10)
    axes.set_title(finding)


def write_overview(path: Path) -> None:
    """Predict every run of the records that can be predicted, and draw what `overview` shows into a PNG."""
    from course.compare.sources import calibrated_on, sources

    found = sources()
    times, ratios = {}, {"ours": {}, "one utilisation for all": {}}  # type: ignore[var-annotated]
    for one in found:
        kept = one.scored
        times[one.key] = list(zip(one.ours[kept].tolist(), one.rows.time_s[kept].tolist(), strict=True))
        name = f"{NAMES.get(one.key, one.key)}{' *' if calibrated_on(one.key) else ''}"
        for label, predicted in zip(ratios, (one.ours, one.constant), strict=True):
            ratio = one.ratio(predicted)
            if np.isfinite(ratio).any():
                ratios[label][name] = tuple(float(np.nanquantile(ratio, share)) for share in (0.1, 0.5, 0.9))
    count = sum(int(one.scored.sum()) for one in found)
    findings = (
        f"{count:,} published runs beside what we say of them",
        "Ours, and one utilisation for all (* chose a constant)",
    )
    overview(times, ratios, findings).savefig(path, dpi=100)


if __name__ == "__main__":
    write_overview(Path(sys.argv[1]))
