"""The figures of the lab: what one's own devices did, from a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.batch import bubble_share
from course.lab.figures import curve
from course.lab.report import Report
from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, figure, style

__all__ = ["PARTS", "bands", "collectives", "efficiency", "exposed", "layouts", "overview", "pipeline"]

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
MARKS = "osD^vP"
PARTS = {"overhead": GREY, "compute": GREEN, "communication": VERMILION, "weights": BLUE, "gradients": ORANGE}
"""What a fitted step, or a rank's memory, is made of, and its colour."""


def overview(report: Report, engine: str | None = None) -> Figure:
    """Everything a report holds of one engine (its first one's when None): only panels that have data are drawn.

    >>> len(overview(Report({"accelerator": "A"}, [])).axes)
    1
    """
    engine = engine or next((str(cell["engine"]) for cell in report), "torch")
    panels = [panel for panel in (_efficiency, _exposed, _pipeline, _collectives, _layouts, _matmuls)
              if panel(None, report, engine)]  # fmt: skip
    rows = max(1, -(-len(panels) // 2))
    made, axes = figure(11, 3.6 * rows, rows, 2 if len(panels) > 1 else 1)
    with style():
        for panel, one in zip(panels, axes, strict=False):
            panel(one, report, engine)
        for one in axes[len(panels) :]:
            one.set_axis_off()
        if not panels:
            axes[0].text(0.5, 0.5, "nothing was measured", ha="center", va="center")
            axes[0].set_axis_off()
        made.suptitle(_where(report, engine), x=0.01, ha="left", fontsize=11)
    return made


def efficiency(report: Report, engine: str = "torch") -> Figure:
    """Strong-scaling efficiency over the global batch, a line for each number of devices."""
    return _alone(_efficiency, report, engine)


def exposed(report: Report, engine: str = "torch") -> Figure:
    """The share of a step that waits for communication, over the global batch."""
    return _alone(_exposed, report, engine)


def pipeline(report: Report, engine: str = "torch") -> Figure:
    """The idle share of a pipeline over its micro-batches, beside the formula."""
    return _alone(_pipeline, report, engine)


def collectives(report: Report, engine: str = "torch") -> Figure:
    """Time of each collective over its bytes."""
    return _alone(_collectives, report, engine)


def layouts(report: Report, engine: str = "torch") -> Figure:
    """Bytes held and step time of each layout; times of ranks that share cores are hatched."""
    return _alone(_layouts, report, engine)


def bands(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Predicted steps with their bands beside the measured ones.

    Args:
        rows: `name`, `time_s`, `low_s`, `high_s`, and `measured_s` (None where it was not measured), one a step.
        title: what is found.
    """
    made, (axes,) = figure(8.5, 1.2 + 0.42 * len(rows))
    with style():
        for place, row in enumerate(rows):
            axes.plot([1e3 * row["low_s"], 1e3 * row["high_s"]], [place, place], color=SKY, linewidth=8,
                      solid_capstyle="butt", label="band" if not place else None)  # fmt: skip
            axes.plot(1e3 * row["time_s"], place, "|", color=BLUE, markersize=16, markeredgewidth=3,
                      label="predicted" if not place else None)  # fmt: skip
            if row.get("measured_s") is not None:
                axes.plot(1e3 * row["measured_s"], place, "o", color=VERMILION, label="measured" if not place else None)
        axes.set_yticks(range(len(rows)), [str(row["name"]) for row in rows])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("step time, ms")
        axes.set_title(title)
        axes.legend(loc="best")
    return made


def _alone(panel: Any, report: Report, engine: str) -> Figure:
    made, (axes,) = figure()
    with style():
        if not panel(axes, report, engine):
            axes.text(0.5, 0.5, "the report has no such cells", ha="center", va="center")
            axes.set_axis_off()
    return made


def _where(report: Report, engine: str) -> str:
    machine = report.machine
    hosts = int(machine.get("hosts") or 1)
    what = (
        f"{machine.get('accelerator')}, {machine.get('cores')} cores" if hosts == 1 else f"{hosts} hosts, side by side"
    )
    return f"{what}; {engine}" + ("; one host, no network between hosts" if hosts == 1 else "")


def _efficiency(axes: Axes | None, report: Report, engine: str) -> bool:
    rows = [row for row in curve(report, "strong", engine) if row["devices"] > 1 and row["efficiency"] is not None]
    if axes is None or not rows:
        return bool(rows)
    counts = sorted({row["devices"] for row in rows})
    for count, colour, mark in zip(counts, COLOURS, MARKS, strict=False):
        points = [row for row in rows if row["devices"] == count]
        axes.plot([row["batch"] for row in points], [row["efficiency"] for row in points], color=colour, marker=mark,
                  label=f"{count} devices")  # fmt: skip
        noisy = [row for row in points if row["status"] == "noisy"]
        axes.plot([row["batch"] for row in noisy], [row["efficiency"] for row in noisy], "o", color="white",
                  markersize=4, zorder=3)  # fmt: skip
    axes.axhline(1, color=GREY, linewidth=1, linestyle="--")
    _powers(axes, [row["batch"] for row in rows], "global batch, sequences")
    axes.set_ylim(0, max(1.1, 1.05 * max(row["efficiency"] for row in rows)))
    axes.set_title("Strong scaling: efficiency" + (" (white dots: noisy)" if _noisy(rows) else ""))
    axes.legend()
    return True


def _exposed(axes: Axes | None, report: Report, engine: str) -> bool:
    rows = [row for row in curve(report, "strong", engine) if row["devices"] > 1 and row["exposed_share"] is not None]
    if axes is None or not rows:
        return bool(rows)
    for count, colour, mark in zip(sorted({row["devices"] for row in rows}), COLOURS, MARKS, strict=False):
        points = [row for row in rows if row["devices"] == count]
        axes.plot([row["batch"] for row in points], [100 * row["exposed_share"] for row in points], color=colour,
                  marker=mark, label=f"{count} devices")  # fmt: skip
    _powers(axes, [row["batch"] for row in rows], "global batch, sequences")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("% of the step")
    axes.set_title("Exposed communication")
    axes.legend()
    return True


def _pipeline(axes: Axes | None, report: Report, engine: str) -> bool:
    cells = [cell for cell in report.of("pipeline", engine) if cell["idle_share"] is not None]
    if axes is None or not cells:
        return bool(cells)
    stages = int(cells[0]["layout"]["pipeline"])
    for schedule, colour, mark in (("gpipe", BLUE, "o"), ("1f1b", ORANGE, "s")):
        points = sorted(
            (cell["micro_batches"], 100 * cell["idle_share"])
            for cell in cells
            if cell["layout"]["schedule"] == schedule
        )
        if points:
            label = {"gpipe": "GPipe", "1f1b": "1F1B"}[schedule]
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=label)
    several = sorted({int(cell["micro_batches"]) for cell in cells})
    formula = [100 * float(bubble_share(pipeline=stages, interleave=1, micro_batches=count)) for count in several]
    axes.plot(several, formula, color=BLACK, linestyle=":", label="formula")
    _powers(axes, several, "micro-batches")
    axes.set_ylim(0, 100)
    axes.set_ylabel("% idle")
    axes.set_title(f"The bubble of {stages} stages")
    axes.legend()
    return True


def _collectives(axes: Axes | None, report: Report, engine: str) -> bool:
    cells = [cell for family in ("collective", "p2p") for cell in report.of(family, engine) if cell["step_time_s"]]
    if axes is None or not cells:
        return bool(cells)
    operations = sorted({(str(cell["request"]["operation"]), int(cell["devices"])) for cell in cells})
    for (operation, count), colour, mark in zip(operations, COLOURS, MARKS, strict=False):
        points = sorted(
            (cell["payload_bytes"], 1e3 * (cell["step_time_s"].get("p10") or cell["step_time_s"]["p50"]))
            for cell in cells
            if (cell["request"]["operation"], cell["devices"]) == (operation, count) and cell["payload_bytes"]
        )
        axes.plot(
            *zip(*points, strict=True), color=colour, marker=mark, label=f"{operation.replace('_', '-')}, {count}"
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes on each rank")
    axes.set_ylabel("ms (10th percentile)")
    axes.set_title("Messages")
    axes.legend(fontsize=9)
    return True


def _layouts(axes: Axes | None, report: Report, engine: str) -> bool:
    cells = [cell for cell in report.of("layout", engine) if cell["step_time_s"]]
    if axes is None or not cells:
        return bool(cells)
    names = [str(cell["id"]).split(".", 3)[-1] for cell in cells]
    times = [1e3 * cell["step_time_s"]["p50"] for cell in cells]
    shared = [bool((cell["placement"] or {}).get("shared_cores")) for cell in cells]
    drawn = axes.barh(names, times, color=[SKY if one else BLUE for one in shared], height=0.7)
    for bar, one in zip(drawn, shared, strict=True):
        bar.set_hatch("//" if one else "")
    axes.tick_params(axis="y", labelsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("step time, ms" + (" (hatched: ranks share cores)" if any(shared) else ""))
    axes.set_title("The same step, cut in other ways")
    return True


def _matmuls(axes: Axes | None, report: Report, engine: str) -> bool:
    cells = [cell for cell in report.of("matmul", engine) if cell["matmul_flops_per_s"]]
    if axes is None or not cells:
        return bool(cells)
    names = [f"{'x'.join(map(str, cell['request']['shape']))}, {cell['devices']}" for cell in cells]
    axes.barh(names, [1e-9 * cell["matmul_flops_per_s"] for cell in cells], color=GREEN, height=0.7)
    axes.tick_params(axis="y", labelsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("GFLOP/s of one device")
    axes.set_title("Matmuls: shape, devices at once")
    return True


def _powers(axes: Axes, values: Sequence[int], label: str) -> None:
    axes.set_xscale("log", base=2)
    ticks = sorted(set(values))
    axes.set_xticks(ticks, [str(value) for value in ticks])
    axes.minorticks_off()
    axes.set_xlabel(label)


def _noisy(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["status"] == "noisy" for row in rows)
