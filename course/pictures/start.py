"""The figures of the first notebook, and the four of them together that the README shows.

`python -m course.pictures.start docs/overview.png` writes that one again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, figure, style
from course.simulators.pipeline import FORWARD, Pipeline

PART_COLOURS = {
    "compute": BLUE, "tensor": ORANGE, "data": VERMILION, "bubble": GREY, "pipeline": PURPLE, "other": BLACK,
    "weights": BLUE, "gradients": VERMILION, "optimizer": PURPLE, "activations": SKY, "logits": BLACK,
    "buffers": ORANGE, "margin": GREY,
}  # fmt: skip
LIMITS = ("whole state", "weights and gradients", "weights", "one layer", "activations")
"""What each bar of `limits` holds, in the order of the questions; the first notebook names them so too."""
SMALL = 0.06
"""Parts below this share of the axis are named in the legend alone: their number would not fit in the bar."""


def limits(needs: Mapping[str, float], capacity: float, finding: str) -> Figure:
    """What must be held, beside what one device can hold, on a logarithmic axis.

    Args:
        needs: name of each question to its bytes, in GiB.
        capacity: memory of one device, in GiB.
        finding: the title.
    """
    made, (axes,) = figure(8.5, 3.4)
    with style():
        _limits(axes, needs, capacity, finding)
    return made


def schedules(runs: Mapping[str, Pipeline], finding: str) -> Figure:
    """Who works when: one panel a schedule, one row a stage, time in forward passes of one stage.

    Args:
        runs: label of each schedule to its simulated pipeline, all on one time axis.
        finding: the title.
    """
    made, panels = figure(9, 1.9 * len(runs) + 1.1, rows=len(runs))
    with style():
        for axes, (label, run) in zip(panels, runs.items(), strict=True):
            _schedule(axes, run, label)
        end = max(float(run.makespan) for run in runs.values())
        for axes in panels:
            axes.set_xlim(0, end)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[-1].set_xlabel("time (forward passes of one stage)")
        made.suptitle(finding, x=0.01, ha="left", fontsize=13, fontweight="bold")
        handles = [Patch(facecolor=BLUE, label="forward"), Patch(facecolor=ORANGE, label="backward"),
                   Patch(facecolor="white", edgecolor=GREY, label="idle")]  # fmt: skip
        made.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=11, frameon=False)
    return made


def bubbles(
    micro_batches: Sequence[float], shares: Mapping[str, Sequence[float]], marks: Sequence[float], finding: str
) -> Figure:
    """Idle share of a pipeline against its micro-batches.

    Args:
        micro_batches: the horizontal axis.
        shares: label of each schedule to its idle share (0 to 1) at each number of micro-batches.
        marks: numbers of micro-batches to mark.
        finding: the title.
    """
    made, (axes,) = figure(8.5, 3.8)
    with style():
        _bubbles(axes, micro_batches, shares, marks, finding)
    return made


def step_parts(steps: Mapping[str, Mapping[str, float]], published: Mapping[str, float], finding: str) -> Figure:
    """What one step's time is made of, with the published time marked.

    Args:
        steps: label of each run to the seconds of each part, in drawing order.
        published: label of each run to its published seconds.
        finding: the title.
    """
    made, (axes,) = figure(9, 3.4)
    with style():
        _stacks(axes, steps, "time of one step (s)", finding, published)
    return made


def memory_parts(runs: Mapping[str, Mapping[str, float]], capacity: float, finding: str) -> Figure:
    """What fills the fullest device, beside its capacity.

    Args:
        runs: label of each run to the GiB of each part, in drawing order.
        capacity: memory of one device, in GiB.
        finding: the title.
    """
    made, (axes,) = figure(9, 3.4)
    with style():
        _stacks(axes, runs, "memory of the fullest device (GiB)", finding, {})
        _capacity(axes, capacity)
    return made


def overview(
    needs: Mapping[str, float],
    capacity: float,
    micro_batches: Sequence[float],
    shares: Mapping[str, Sequence[float]],
    marks: Sequence[float],
    memory: Mapping[str, Mapping[str, float]],
    steps: Mapping[str, Mapping[str, float]],
    published: Mapping[str, float],
    findings: Sequence[str],
) -> Figure:
    """Four panels in the order of the argument: what does not fit, what idles, what a device holds, what a step takes.

    The arguments are those of `limits`, `bubbles`, `memory_parts` and `step_parts`; `findings` are the four titles.
    """
    made, panels = figure(15, 8.2, rows=2, columns=2)
    with style():
        _limits(panels[0], needs, capacity, findings[0])
        _bubbles(panels[1], micro_batches, shares, marks, findings[1])
        _stacks(panels[2], memory, "memory of the fullest device (GiB)", findings[2], {})
        _capacity(panels[2], capacity)
        _stacks(panels[3], steps, "time of one step (s)", findings[3], published)
    return made


# ---------------------------------------------------------------- one axes each
def _limits(axes: Axes, needs: Mapping[str, float], capacity: float, finding: str) -> None:
    names, values = list(needs), list(needs.values())
    fits = [value <= capacity for value in values]
    bars = axes.barh(names, values, color=[GREEN if good else VERMILION for good in fits], height=0.62)
    verdicts = ["fits" if good else "does not fit" for good in fits]
    axes.bar_label(bars, [f"{value:,.0f} {word}" for value, word in zip(values, verdicts, strict=True)], padding=5)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(1, max(values) * 12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.minorticks_off()
    _capacity(axes, capacity)
    axes.set_xlabel("memory needed (GiB, logarithmic)")
    axes.set_title(finding, pad=30)


def _schedule(axes: Axes, run: Pipeline, label: str) -> None:
    stages = len(run.orders)
    for stage, order in enumerate(run.orders):
        for work in order:
            start = float(run.start(stage, work))
            length = float(run.finish(stage, work)) - start
            forward = work.kind == FORWARD
            axes.barh(stage, length, left=start, height=0.86, color=BLUE if forward else ORANGE, edgecolor="white",
                      linewidth=1.2, alpha=1.0 if work.chunk == 0 else 0.62)  # fmt: skip
            axes.text(start + length / 2, stage, str(work.micro_batch + 1), ha="center", va="center", fontsize=10,
                      color="white" if forward and work.chunk == 0 else BLACK)  # fmt: skip
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    axes.invert_yaxis()
    axes.set_title(label, fontsize=12, fontweight="normal", pad=6)


def _bubbles(
    axes: Axes,
    micro_batches: Sequence[float],
    shares: Mapping[str, Sequence[float]],
    marks: Sequence[float],
    finding: str,
) -> None:
    lines = zip(shares.items(), (VERMILION, BLUE, GREEN, PURPLE), ("-", "--", ":", "-."), strict=False)
    for (label, column), colour, dash in lines:
        axes.plot(micro_batches, column, color=colour, linestyle=dash, label=label)
        for mark in marks:
            value = float(column[list(micro_batches).index(mark)])
            axes.plot([mark], [value], "o", color=colour, markersize=8)
            axes.annotate(f"{value:.1%}", (mark, value), textcoords="offset points", xytext=(6, 8), color=colour)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(micro_batches), [f"{number:g}" for number in micro_batches])
    axes.minorticks_off()
    axes.set_ylim(0, 1.05 * max(max(column) for column in shares.values()))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("micro-batches of one step in each pipeline")
    axes.set_ylabel("idle share of the time")
    axes.legend(loc="upper right")
    axes.set_title(finding)


def _stacks(
    axes: Axes, rows: Mapping[str, Mapping[str, float]], label: str, finding: str, marks: Mapping[str, float]
) -> None:
    longest = max([sum(parts.values()) for parts in rows.values()] + list(marks.values()))
    digits = 2 if longest < 20 else 1
    for row, parts in enumerate(rows.values()):
        left = 0.0
        for name, value in parts.items():
            axes.barh(row, value, left=left, color=PART_COLOURS[name], height=0.56, edgecolor="white", linewidth=0.8)
            if value >= SMALL * longest:
                dark = PART_COLOURS[name] in (BLUE, VERMILION, BLACK)
                axes.text(left + value / 2, row, f"{value:.{digits}f}", ha="center", va="center",
                          color="white" if dark else BLACK, fontsize=11)  # fmt: skip
            left += value
    for row, (name, parts) in enumerate(rows.items()):
        if name in marks:
            axes.plot([marks[name]] * 2, [row - 0.34, row + 0.34], color=BLACK, linewidth=3)
            beside = max(marks[name], sum(parts.values()))  # right of the bar, should it be longer
            axes.annotate(f"published\n{marks[name]:.{digits}f}", (beside, row), textcoords="offset points",
                          xytext=(7, 0), va="center", ha="left", fontsize=11)  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(0, longest * (1.16 if marks else 1.1))
    axes.set_xlabel(label)
    shown = [name for name in next(iter(rows.values())) if any(parts[name] > longest / 200 for parts in rows.values())]
    axes.legend(handles=[Patch(facecolor=PART_COLOURS[name], label=name) for name in shown], ncols=len(shown),
                loc="lower left", bbox_to_anchor=(-0.02, 0.985 if marks else 1.06), columnspacing=1.0,
                handlelength=1.0, handletextpad=0.4)  # fmt: skip
    axes.set_title(finding, pad=46 if not marks else 34)


def _capacity(axes: Axes, capacity: float) -> None:
    axes.axvline(capacity, color=BLACK, linestyle="--", linewidth=2)
    axes.annotate(f"one device: {capacity:.1f} GiB", (capacity, 1), xycoords=("data", "axes fraction"),
                  textcoords="offset points", xytext=(0, 4), ha="center", fontsize=11)  # fmt: skip


def write_overview(path: Path) -> None:
    """Predict the two published runs of Llama 3.1 405B and draw what `overview` shows into a PNG."""
    from course.batch import bubble_share
    from course.constrain import limits as constrain_limits
    from course.examples import path as example
    from course.examples import published
    from course.mfu import run_time
    from course.predict import predict
    from course.predict.report import GIB
    from course.problem import load

    names = {"8,192 H100": "llama-3.1-405b-8192-h100", "16,384 H100": "llama-3.1-405b-16384-h100"}
    runs = {label: load(example(name)) for label, name in names.items()}
    found = {label: predict(run) for label, run in runs.items()}
    last = runs["16,384 H100"]
    micro_batches = [2.0**power for power in range(4, 9)]  # interleaving wants a multiple of the 16 stages
    published_times = {
        label: float(
            run_time(
                model_flops=found[label]["flops_per_token"]["full_attention"] * run.training.tokens_per_step,
                mfu=float(published(names[label])["flops_per_s_per_device"]) / run.cluster.accelerator.peak_flops_per_s,
                devices=run.cluster.devices, peak_flops_per_s=run.cluster.accelerator.peak_flops_per_s,
            )
        )
        for label, run in runs.items()
    }  # fmt: skip
    made = overview(
        needs={name: limit.need / GIB for name, limit in zip(LIMITS, constrain_limits(last), strict=True)},
        capacity=last.cluster.accelerator.memory_bytes / GIB,
        micro_batches=micro_batches,
        shares={
            f"{chunks} chunk{'s' if chunks > 1 else ''} a stage": list(
                bubble_share(pipeline=16, interleave=chunks, micro_batches=micro_batches)
            )
            for chunks in (1, 8)
        },
        marks=[16.0, 32.0],
        memory={label: document["memory"]["parts_gib"] for label, document in found.items()},
        steps={label: time_parts(document) for label, document in found.items()},
        published=published_times,
        findings=(
            "1  Of Llama 3.1 405B only a layer fits on one device",
            "2  Chunks cut the idle time of 16 stages",
            "3  Split over 128, activations fill a device",
            "4  Exposed data traffic and idle time do not halve",
        ),
    )
    made.savefig(path, dpi=120)


def time_parts(document: Mapping[str, Mapping[str, object]]) -> dict[str, float]:
    """The parts of a predicted step in drawing order, in seconds: what `step_parts` draws; they add up to its time.

    >>> part = {"total_s": 2.0, "exposed_s": 1.0, "link": None}
    >>> time_parts({"step": {"compute_s": 3.0, "bubble_s": 0.5, "other_s": 0.0,
    ...     "communication": {"tensor": part, "data": part, "pipeline": part}}})["tensor"]
    1.0
    """
    step: Mapping[str, object] = document["step"]
    axes: Mapping[str, Mapping[str, float]] = step["communication"]  # type: ignore[assignment]
    seen = {name: axes[name]["exposed_s"] for name in ("tensor", "data", "pipeline")}
    own = {name: float(step[f"{name}_s"]) for name in ("compute", "bubble", "other")}  # type: ignore[arg-type]
    return {"compute": own["compute"], **seen, "bubble": own["bubble"], "other": own["other"]}


if __name__ == "__main__":
    write_overview(Path(sys.argv[1]))
