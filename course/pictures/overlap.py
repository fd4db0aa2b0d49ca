"""The figures of step 7: what two streams do and what waits for what, and the slowest of many ranks.

`Streams` redraws one figure for an explorer; `timeline` and `slowest` take data and return a `Figure`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from course.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, figure, style
from course.pictures.live import DARK
from course.pictures.place import DASHES, LINES, Line
from course.pictures.rows import DIGIT, IDLE, Rows, corners
from course.simulators.engine import After, Schedule, Task
from course.simulators.timeline import COMMUNICATION, COMPUTE, OPTIMIZER, START, Timeline

__all__ = ["COLOURS", "Drawn", "Streams", "drawn", "slowest", "timeline"]

COLOURS = {
    "forward": BLUE, "backward": SKY, "compute": BLUE, "optimizer": GREEN, "reduction": ORANGE, "gather": PURPLE,
    "communication": ORANGE, "host": GREEN, "input": PURPLE,
}  # fmt: skip
"""Kind of work to its colour."""


@dataclass(frozen=True)
class Drawn:
    """What is drawn of a schedule.

    `rows` names each resource, from top to bottom; `kinds` gives each task a key of COLOURS, `labels` what is written
    on it; tasks without a kind are left out. Those in `marked`, a path, get a thick edge, and its waits are red.
    `exposed` fills what the first resource lacks of the whole time with red instead of grey.
    """

    schedule: Schedule
    tasks: Sequence[Task]
    rows: Mapping[Hashable, str]
    kinds: Mapping[Hashable, str]
    labels: Mapping[Hashable, str]
    marked: Sequence[Hashable] = ()
    exposed: Hashable | None = None


_KINDS = {"forward": "forward", "backward": "backward", "reduce": "reduction", "gather": "gather",
          "gather again": "gather"}  # fmt: skip


def drawn(step: Timeline, marked: Sequence[Hashable] = ()) -> Drawn:
    """A step of `course.simulators.timeline` as it is drawn: layers counted from 1, exposed time in red.

    >>> from course.simulators.timeline import bucketed_step
    >>> drawn(bucketed_step([1], [2], [(0, 3)])).labels["reduce", 0, 0]
    '1'
    """
    kinds: dict[Hashable, str] = {}
    labels: dict[Hashable, str] = {}
    for task in step.tasks:
        if isinstance(task.name, tuple) and task.name[0] in _KINDS:
            kinds[task.name], labels[task.name] = _KINDS[task.name[0]], str(task.name[-1] + 1)
        elif task.name == OPTIMIZER and task.duration:
            kinds[task.name], labels[task.name] = "optimizer", ""
        elif task.name not in (START, OPTIMIZER):
            kinds[task.name] = "compute" if task.resource == COMPUTE else "communication"
            labels[task.name] = str(task.name)
    rows: dict[Hashable, str] = {COMPUTE: "compute", COMMUNICATION: "communication"}
    return Drawn(step.schedule, step.tasks, rows, kinds, labels, marked, COMPUTE)


class Streams(Rows):
    """Panels below each other, one time axis: a row for each resource, a bar for each task, an arrow for each wait."""

    def __init__(self, width: float = 8.5, height: float = 3.0) -> None:
        super().__init__(width, height, 1.3, width - 0.3)
        self.bars = PolyCollection([], linewidths=0.8)
        self.waits = LineCollection([], linewidths=1.1)
        self.heads = PolyCollection([], linewidths=0)
        for artist in (self.bars, self.waits, self.heads):
            self.axes.add_collection(artist, autolim=False)

    def update(self, *, finding: str, panels: Mapping[str, Drawn], unit: str = "ms") -> None:
        """Show these schedules, label to what is drawn, below the title `finding`; times are in `unit`."""
        self._boxes: list[Any] = []
        self._faces: list[str] = []
        self._edges: list[str] = []
        self._thick: list[float] = []
        self._lines: list[Any] = []
        self._arrows: list[Any] = []
        self._inks: list[str] = []
        self._begin(finding)
        self._legend(panels.values())
        end = max(float(panel.schedule.makespan) for panel in panels.values())
        rows = sum(len(panel.rows) for panel in panels.values())
        head = 0.3 if len(panels) > 1 else 0.05
        high = min(0.62, (self.height - 1.05 - head * len(panels)) / rows)
        scale, top = (self.right - self.left) / max(end, 1e-300), 0.72
        for label, panel in panels.items():
            if len(panels) > 1:
                self._text(0.12, top + 0.15, label, size=11.5, colour="#444444")
            top = self._panel(panel, top + head, high, scale)
        self._end(top, f"{end:.4g} {unit}")
        self.bars.set_verts(self._boxes)
        self.bars.set(facecolor=self._faces, edgecolor=self._edges, linewidth=self._thick)
        self.waits.set_segments(self._lines)
        self.waits.set_color(self._inks)
        self.heads.set_verts(self._arrows)
        self.heads.set_facecolor(self._inks)

    def _legend(self, panels: Collection[Drawn]) -> None:
        seen = {kind for panel in panels for kind in panel.kinds.values()}
        entries = [(COLOURS[kind], kind) for kind in COLOURS if kind in seen]
        if any(panel.exposed is not None for panel in panels):
            entries.append((VERMILION, "exposed"))
        entries.append((IDLE, "idle"))
        x = 0.14
        for colour, name in entries:
            self._box(x, 0.51, 0.16, 0.14, colour, "white")
            self._text(x + 0.22, 0.58, name, size=10.5)
            x += 0.5 + 0.085 * len(name)

    def _panel(self, panel: Drawn, top: float, high: float, scale: float) -> float:
        schedule = panel.schedule
        middles: dict[Hashable, float] = {}
        for number, (resource, name) in enumerate(panel.rows.items()):
            y = top + number * high
            middles[resource] = y + high / 2
            self._text(self.left - 0.08, y + high / 2, name, size=10, align="right")
            self._box(self.left, y + 0.06, float(schedule.makespan) * scale, high - 0.12, IDLE, IDLE)
            if resource == panel.exposed:
                for start, finish in schedule.gaps(resource):
                    self._box(self.left + float(start) * scale, y + 0.06, float(finish - start) * scale, high - 0.12,
                              VERMILION, VERMILION)  # fmt: skip
        for task in panel.tasks:
            if task.name in panel.kinds and task.resource in middles and task.duration:
                self._bar(panel, task, middles[task.resource], high - 0.12, scale)
        shown = {task.name: task for task in panel.tasks if task.name in panel.kinds and task.resource in middles}
        for task in shown.values():
            for one in task.after:
                before = shown.get(one.task if isinstance(one, After) else one)
                if before is not None and before.resource != task.resource:
                    self._wait(panel, before, task, middles, high - 0.12, scale)
        return top + high * len(panel.rows)

    def _bar(self, panel: Drawn, task: Task, middle: float, height: float, scale: float) -> None:
        start = self.left + float(panel.schedule.start[task.name]) * scale
        length = float(panel.schedule.finish[task.name] - panel.schedule.start[task.name]) * scale
        colour = COLOURS[panel.kinds[task.name]]
        marked = task.name in panel.marked
        inset = 0.02 if marked else 0.0
        self._box(start + inset, middle - height / 2 + inset, length - 2 * inset, height - 2 * inset, colour,
                  BLACK if marked else "white")  # fmt: skip
        words = panel.labels.get(task.name, "")
        if length > DIGIT * len(words) + 0.03 and height > 0.13:
            self._text(start + length / 2, middle, words, size=9.5, align="center",
                       colour="white" if colour in DARK else BLACK)  # fmt: skip

    def _wait(
        self, panel: Drawn, before: Task, task: Task, middles: Mapping[Hashable, float], height: float, scale: float
    ) -> None:
        """An arrow from the end of one bar to the start of the other."""
        down = 1 if middles[task.resource] > middles[before.resource] else -1
        start = (self.left + float(panel.schedule.finish[before.name]) * scale,
                 middles[before.resource] + down * height * 0.3)  # fmt: skip
        end = (self.left + float(panel.schedule.start[task.name]) * scale, middles[task.resource] - down * height * 0.4)
        both = (before.name, task.name) in pairwise(panel.marked)
        self._lines.append([start, end])
        self._inks.append(VERMILION if both else BLACK)
        tip = np.array(end)
        along = tip - np.array(start)
        along = along / max(float(np.hypot(*along)), 1e-9) * 0.09
        across = np.array([-along[1], along[0]]) * 0.45
        self._arrows.append(np.array([tip, tip - along + across, tip - along - across]))

    def _box(self, x: float, y: float, length: float, height: float, colour: str, edge: str) -> None:
        self._boxes.append(corners(x, y, length, height))
        self._faces.append(colour)
        self._edges.append(edge)
        self._thick.append(2.4 if edge == BLACK else 0.8)


def timeline(panels: Mapping[str, Drawn | Timeline], finding: str, unit: str = "ms") -> Figure:
    """What ran when and what waited for what: one panel a schedule, one row a stream.

    Args:
        panels: label to a simulated step, or to what `Drawn` says of another schedule.
        finding: the title.
        unit: of the times.
    """
    made = {label: drawn(one) if isinstance(one, Timeline) else one for label, one in panels.items()}
    rows = sum(len(panel.rows) for panel in made.values())
    picture = Streams(8.5, 1.1 + (0.3 if len(made) > 1 else 0.05) * len(made) + 0.55 * rows)
    picture.update(finding=finding, panels=made, unit=unit)
    return picture.figure


def slowest(
    curves: Mapping[str, Line], means: Mapping[str, float], finding: str, across: str = "spreads above the mean rank"
) -> Figure:
    """Densities of the slowest of several numbers of ranks, with their means below as marks.

    Args:
        curves: label to density.
        means: label to the mean of that density.
        finding: the title.
        across: what the horizontal axis measures.
    """
    made, (axes,) = figure(7.6, 3.2)
    with style():
        for number, (label, line) in enumerate(curves.items()):
            axes.plot(line.x, line.y, color=LINES[number], linestyle=DASHES[number],
                      label=f"{label}: {means[label]:.2f}")  # fmt: skip
            axes.plot([means[label]], [0], marker="^", markersize=9, color=LINES[number], clip_on=False)
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_ylim(0, None)
        axes.set_yticks([])
        axes.set_xlabel(across)
        axes.set_ylabel("density")
        axes.set_title(finding, loc="left")
        axes.legend(title="mean of the slowest", title_fontsize=11, loc="upper left")
    return made
