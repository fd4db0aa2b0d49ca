"""The figures of step 5: who works when in a pipeline. Lines are those of `pictures.place`.

`Timeline` redraws one figure for an explorer; `timelines` takes data and returns a `Figure`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from course.pictures import BLACK, BLUE, GREEN, ORANGE
from course.pictures.rows import DIGIT, IDLE, Rows, corners
from course.simulators.pipeline import BACKWARD, FORWARD, WEIGHT, Pipeline

__all__ = ["COLOURS", "Timeline", "timelines"]

COLOURS = {FORWARD: BLUE, BACKWARD: ORANGE, WEIGHT: GREEN}
PALE = {FORWARD: "#7fb8d8", BACKWARD: "#f2cf80", WEIGHT: "#7fceb9"}
"""Of every second chunk of a stage."""
NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "gradient of the weights"}


class Timeline(Rows):
    """Panels below each other, one time axis: a row for each stage, a bar for each piece of work, grey where idle."""

    def __init__(self, width: float = 8.5, height: float = 3.8) -> None:
        super().__init__(width, height, 0.95, width - 0.2)
        self.bars = PolyCollection([], linewidths=0.6, edgecolors="white")
        self.axes.add_collection(self.bars, autolim=False)
        self._step: int | None = None

    def update(self, *, finding: str, runs: Mapping[str, Pipeline], step: int | None = None) -> None:
        """Show these simulated pipelines below the title `finding`; after `step` micro-batches a paler step begins."""
        self._step = step
        self._boxes: list[Any] = []
        self._colours: list[str] = []
        self._begin(finding)
        kinds = [kind for kind in COLOURS
                 if any(work.kind == kind for run in runs.values() for work in run.orders[0])]  # fmt: skip
        self._legend(kinds)
        rows = sum(len(run.orders) for run in runs.values())
        end = max(float(run.makespan) for run in runs.values())
        high = min(0.42, (self.height - 1.02 - 0.3 * len(runs)) / rows)
        scale, top = (self.right - self.left) / max(end, 1e-300), 0.72
        for label, run in runs.items():
            self._text(0.12, top + 0.15, label, size=11.5, colour="#444444")
            top += 0.3
            for stage in range(len(run.orders)):
                self._row(run, stage, top, high, scale)
                top += high
        self._end(top, f"{end:.4g}")
        self.bars.set_verts(self._boxes)
        self.bars.set_facecolor(self._colours)

    def _legend(self, kinds: Sequence[str]) -> None:
        x = 0.14
        for colour, name in (*((COLOURS[kind], NAMES[kind]) for kind in kinds), (IDLE, "idle")):
            self._box(x, 0.51, 0.16, 0.14, colour)
            self._text(x + 0.22, 0.58, name, size=10.5)
            x += 0.5 + 0.085 * len(name)

    def _row(self, run: Pipeline, stage: int, top: float, high: float, scale: float) -> None:
        self._text(self.left - 0.08, top + high / 2, f"stage {stage}", size=10 if high > 0.15 else 7, align="right")
        self._box(self.left, top, float(run.makespan) * scale, high, IDLE)
        for work in run.orders[stage]:
            start = float(run.start(stage, work))
            length = (float(run.finish(stage, work)) - start) * scale
            later, number = divmod(work.micro_batch, self._step) if self._step else (0, work.micro_batch)
            colour = (PALE if (work.chunk + later) % 2 else COLOURS)[work.kind]
            self._box(self.left + start * scale, top, length, high, colour)
            words = str(number + 1)
            if length > DIGIT * len(words) + 0.03 and high > 0.13:
                self._text(self.left + start * scale + length / 2, top + high / 2, words, size=9, align="center",
                           colour="white" if colour in (BLUE, GREEN) else BLACK)  # fmt: skip

    def _box(self, x: float, y: float, length: float, height: float, colour: str) -> None:
        self._boxes.append(corners(x, y, length, height))
        self._colours.append(colour)


def timelines(runs: Mapping[str, Pipeline], finding: str, step: int | None = None) -> Figure:
    """Who works when: one panel a schedule, one row a stage.

    Args:
        runs: label of each schedule to its simulated pipeline, all on one time axis.
        finding: the title.
        step: micro-batches of one step, where the runs hold more than one; every second step is paler, and its
            numbers begin again.
    """
    rows = sum(len(run.orders) for run in runs.values())
    picture = Timeline(8.5, 1.05 + 0.3 * len(runs) + 0.3 * rows)
    picture.update(finding=finding, runs=runs, step=step)
    return picture.figure
