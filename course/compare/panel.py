"""One measured panel as a judge: every layout somebody tried for one model on one number of devices.

Choose one, and the panel says what it really took, how far that is from the best measured, and what the first choice
of a prediction, or a trial among its first three, would have cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from course import records
from course.compare.playbook import panels
from course.legality import SHARDINGS
from course.mfu import accelerator_hours
from course.problem import Layout, Run
from course.sweep import MODEL_ERROR

__all__ = ["Panel", "names", "panel"]

SHORT = {"llama-like 1.34B": "1.34B", "llama-like 8.86B": "8.86B", "llama-like 80B": "80B"}


@dataclass(frozen=True)
class Panel:
    """The layouts of a panel, with what was measured and what we predict; arrays over `layouts`.

    `time_s` is NaN where a run failed (crashed or ran out of memory: its source does not say which), `predicted_s` NaN
    where no prediction is made.
    """

    model: str
    devices: int
    run: Run
    layouts: tuple[Layout, ...]
    rows: tuple[records.Row, ...]
    time_s: np.ndarray
    predicted_s: np.ndarray
    peak_gib: np.ndarray
    predicted_gib: np.ndarray

    @property
    def ran(self) -> np.ndarray:
        """True where the layout trained."""
        return np.asarray(np.isfinite(self.time_s))

    @cached_property
    def ranked(self) -> np.ndarray:
        """Places of the layouts that have a prediction, those that failed among them, as a sweep ranks them.

        Those held to fit come first; of these, layouts within the model's error of the shortest predicted step are
        ties, the simplest first: fewest axes, then the smallest group, then the least sharding. All others by time.
        """
        known = np.flatnonzero(np.isfinite(self.predicted_s))
        # the source lists its best first: equal predictions must not be ordered by that
        known = np.random.default_rng(0).permutation(known)
        time = self.predicted_s[known]
        fits = self.predicted_gib[known] * 2**30 <= self.run.cluster.accelerator.memory_bytes
        tied = fits & (time <= np.min(time, where=fits, initial=np.inf) * (1 + MODEL_ERROR))
        simple = np.array([
            ((one.tensor > 1) + (one.pipeline > 1), one.tensor * one.pipeline, SHARDINGS.index(one.sharding))
            for one in (self.layouts[place] for place in known)
        ])  # fmt: skip
        keys = np.where(tied[:, None], simple, 0)
        return np.asarray(known[np.lexsort((time, *keys.T[::-1], ~tied, ~fits))])

    @cached_property
    def order(self) -> np.ndarray:
        """Those of `ranked` that trained: a start that fails says so at once, and the next takes its place."""
        return np.asarray(self.ranked[self.ran[self.ranked]])

    def failed_starts(self, tried: int = 3) -> int:
        """How many layouts failed that are ranked before the last of the first `tried` that trained.

        >>> panel("80B", 512).failed_starts(1)
        1
        """
        last = self.order[min(tried, len(self.order)) - 1]
        return int(np.sum(~self.ran[self.ranked[: int(np.flatnonzero(self.ranked == last)[0])]]))

    @property
    def best_s(self) -> float:
        """Seconds of the best measured step, whether or not it has a prediction."""
        return float(np.nanmin(self.time_s))

    def regret(self, place: int) -> float:
        """Measured time of a layout over the best measured, minus 1; NaN where it failed.

        >>> one = panel("1.34B", 128)
        >>> round(one.regret(int(one.order[1])), 3)
        0.003
        """
        return float(self.time_s[place] / self.best_s - 1)

    def after_trial(self, tried: int = 3) -> float:
        """Regret of the best of the first `tried` layouts, once they are measured.

        The trial is taken to measure what the panel holds, so the winner's luck counts as its speed.
        """
        return float(self.time_s[self.order[:tried]].min() / self.best_s - 1)

    def trial_hours(self, steps: float, tried: int = 3, start_s: float = 0.0) -> float:
        """Accelerator-hours of a trial: `steps` of each of the first `tried` layouts, as measured.

        Args:
            steps: of each layout.
            tried: layouts.
            start_s: seconds that every start takes before its first step; a start that fails is one too.
        """
        seconds = steps * float(self.time_s[self.order[:tried]].sum())
        seconds += start_s * (min(tried, len(self.order)) + self.failed_starts(tried)) if start_s else 0.0
        return float(accelerator_hours(devices=self.devices, time=seconds, goodput=1))

    def wasted_hours(self, place: int, steps: float) -> float:
        """Accelerator-hours that a run of so many steps takes with this layout beyond what the best would take."""
        seconds = steps * (float(self.time_s[place]) - self.best_s)
        return float(accelerator_hours(devices=self.devices, time=seconds, goodput=1)) if seconds else 0.0

    def find(self, **fields: object) -> int:
        """The place of the layout with these fields; of one tried several times, its first run that trained.

        Raises:
            LookupError: none was tried.

        >>> panel("1.34B", 8).find(tensor=1, pipeline=1, micro_batch=2, sharding="none")
        0
        """
        found = [place for place, layout in enumerate(self.layouts)
                 if all(getattr(layout, name) == value for name, value in fields.items())]  # fmt: skip
        if not found:
            raise LookupError(f"Nobody tried {fields} in this panel: name tensor, pipeline, micro_batch and sharding "
                              "of a layout that was tried.")  # fmt: skip
        return next((place for place in found if self.ran[place]), found[0])


@cache
def _grouped() -> dict[tuple[str, int], Panel]:
    whole = panels()
    trial, says = whole.trial, whole.trial.predict()
    found = {}
    for (model, devices), places in whole.groups(np.ones(len(whole.model), bool)):
        if not whole.ran[places].any():
            continue
        layouts = [run.layout for place in places if (run := trial.runs[place]).layout is not None]
        found[SHORT[model], int(devices)] = Panel(
            SHORT[model], int(devices), trial.runs[places[0]], tuple(one for one in layouts if one is not None),
            tuple(trial.rows[place] for place in places),
            np.where(whole.ran[places], trial.time_s[places], np.nan), says["time_s"][places],
            trial.peak_gib[places], says["peak_gib"][places],
        )  # fmt: skip
    return found


def names() -> tuple[tuple[str, int], ...]:
    """Model and devices of every panel in which something trained.

    >>> names()[0], len(names())
    (('1.34B', 8), 19)
    """
    order = list(SHORT.values())
    return tuple(sorted(_grouped(), key=lambda one: (order.index(one[0]), one[1])))


def panel(model: str, devices: int) -> Panel:
    """The playbook's panel of a model (1.34B, 8.86B or 80B) on a number of devices, its steps 256 sequences of 4,096.

    Raises:
        KeyError: there is no such panel; `names` lists them.
    """
    return _grouped()[model, devices]
