"""Explorers of step 7, waits: what to shorten next in a small step, and what the slowest of many ranks costs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from course import overlap
from course.errors import UserError
from course.explorers.base import Choice, Explorer, Number, View
from course.explorers.shared import powers, share
from course.pictures.overlap import Drawn, Streams
from course.pictures.place import Curves, Line
from course.simulators.critical import critical_path, slack
from course.simulators.engine import run
from course.simulators.small_step import GRAPH, RESOURCES, small_step

__all__ = ["critical", "critical_view", "graph_drawn", "tails", "tails_view"]

WIDTH = 5.8
KINDS: dict[Hashable, str] = {
    "input": "input", "F1": "forward", "F2": "forward", "B1": "backward", "B2": "backward", "R1": "reduction",
    "R2": "reduction", "update": "optimizer",
}  # fmt: skip
PIECES = {
    "input": ("input",), "F1": ("F1",), "F2": ("F2",), "B2": ("B2",), "B1": ("B1",), "R2": ("R2",), "R1": ("R1",),
    "both reductions": ("R1", "R2"), "all of compute": ("F1", "F2", "B1", "B2"), "update": ("update",),
}  # fmt: skip


def graph_drawn(factors: Mapping[str, float] | None = None, mark: bool = True) -> Drawn:
    """The small step as it is drawn, its critical path marked or not.

    >>> len(graph_drawn().marked)
    7
    """
    tasks = small_step(**(factors or {}))
    rows: dict[Hashable, str] = {resource: resource for resource in RESOURCES}
    labels: dict[Hashable, str] = {task.name: f"{task.name} {task.duration:g}" for task in tasks}
    return Drawn(run(tasks), tasks, rows, KINDS, labels, critical_path(tasks) if mark else ())


# ---------------------------------------------------------------- the critical path
def critical_view(piece: str, factor: float) -> View:
    """The small step with one piece made shorter or longer: its time, its critical path, what each piece can spare.

    Args:
        piece: a key of PIECES.
        factor: what its time is multiplied by.
    """
    if not factor >= 0:
        raise UserError(f"factor must be 0 or more; it is {factor:g}.")
    factors = dict.fromkeys(PIECES[piece], factor)
    before, tasks = run(GRAPH).makespan, small_step(**factors)
    after, spare, path = run(tasks).makespan, slack(tasks), critical_path(tasks)
    cut = sum(task.duration * (1 - factor) for task in GRAPH if task.name in factors)
    changed = (
        f"{abs(cut):.3g} ms {'less' if cut > 0 else 'more'} of {piece} make the step {abs(before - after):.3g} ms "
        f"{'shorter' if before > after else 'longer'}"
        if cut and before != after
        else f"{piece} changed by {abs(cut):.3g} ms, the step not at all"
        if cut
        else "Nothing is changed"
    )
    return View(
        f"{changed}: {after:g} ms. The path: {', '.join(map(str, path))}.",
        ("piece", "ms", "can spare (ms)"),
        tuple((str(task.name), f"{task.duration:g}", f"{spare[task.name]:g}") for task in tasks),
        {"finding": f"{after:g} ms: {', '.join(map(str, path))}", "panels": {"": graph_drawn(factors)}},
    )  # fmt: skip


def critical(*, ask: str | None = None, **values: Any) -> Explorer:
    """A small step and its critical path; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Choice("piece", "change", "both reductions", {name: name for name in PIECES}),
        Number("factor", "times", 1.0, 0, 3, step=0.125),
    )
    return Explorer(controls, critical_view, lambda: Streams(WIDTH + 1.2, 2.9), ask=ask, values=values)


# ---------------------------------------------------------------- rank tails
RANKS = tuple(2**power for power in range(15))


def tails_view(
    ranks: int, mean_ms: float, fresh: float, lasting: float, steps: int, stall: float, chance: float
) -> View:
    """How long a step waits for the slowest rank.

    Args:
        ranks: that wait for each other.
        mean_ms: mean time of a rank's step, in ms.
        fresh: spread that is drawn anew each step, in per cent of the mean.
        lasting: spread over ranks that stays, in per cent of the mean.
        steps: from one wait for all to the next.
        stall: how long a rare stall lasts, in ms.
        chance: chance of a stall for one rank and step, in per mille.
    """
    if not (mean_ms > 0 and min(fresh, lasting, stall) >= 0 and 0 <= chance <= 999 and steps >= 1):
        raise UserError(
            "mean_ms must be above 0, fresh, lasting and stall 0 or more, chance between 0 and 999 per mille, steps 1 "
            "or more."
        )

    def waits(count: int) -> tuple[float, float]:
        spread = overlap.slowest_wait(
            normal_maximum=overlap.expected_maximum(count), fresh_spread=fresh / 100 * mean_ms,
            lasting_spread=lasting / 100 * mean_ms, steps_between_waits=steps)  # fmt: skip
        return float(spread), float(overlap.stall_wait(ranks=count, stall_time=stall, stall_chance=chance / 1000))

    def of_step(wait: float) -> str:
        return share(wait, mean_ms + wait)

    spread, stalls = waits(ranks)
    both = [waits(count) for count in RANKS]
    return View(
        f"{ranks:,} ranks, {mean_ms:g} ms on the mean rank, spread {fresh:g} % drawn each step, {lasting:g} % lasting: "
        f"a step waits {spread:.3g} ms for the slowest, {of_step(spread)} of it. Stalls cost {stalls:.3g} ms a step by "
        "themselves.",
        ("ranks", "m_n", "wait (ms)", "of the step", "stalls (ms)"),
        tuple((f"{count:,}", f"{overlap.expected_maximum(count):.2f}", f"{waits(count)[0]:.3g}",
               of_step(waits(count)[0]), f"{waits(count)[1]:.3g}") for count in sorted({8, 64, 1024, 16384, ranks})),
        {"finding": f"{ranks:,} ranks wait {spread:.3g} ms for the slowest",
         "curves": {"spread": Line(np.array(RANKS[1:]), np.maximum([one for one, _ in both[1:]], 1e-3)),
                    "stalls": Line(np.array(RANKS[1:]), np.maximum([one for _, one in both[1:]], 1e-3))},
         "place": (ranks, f"{ranks:,} ranks")},
    )  # fmt: skip


def tails(*, ask: str | None = None, **values: Any) -> Explorer:
    """What the slowest of many ranks costs; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Choice("ranks", "ranks", 1024, dict(list(powers(16384).items())[1:])),
        Number("mean_ms", "mean rank's step (ms)", 1000, 1, 100000, logarithmic=True),
        Number("fresh", "drawn each step (%)", 2, 0, 20, step=0.5),
        Number("lasting", "lasting (%)", 0, 0, 20, step=0.5),
        Number("steps", "steps between waits", 1, 1, 256, whole=True, logarithmic=True),
        Number("stall", "a stall (ms)", 500, 0, 5000, step=50),
        Number("chance", "stalls (per mille)", 0.1, 0, 10, step=0.1),
    )
    return Explorer(controls, tails_view, lambda: Curves("ranks that wait for each other", "ms a step", WIDTH, 3.9),
                    ask=ask, values=values)  # fmt: skip
