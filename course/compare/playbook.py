"""Which rows of the playbook's grid are fit to be scored: rules by what was measured, never by a prediction.

The grid mixes three regimes: normal runs, pipelines bound by the host, and runs that stalled. The rules below tell them
apart by memory, rate and neighbours; a figure over all rows always stands beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from course import records
from course.compare.scores import spearman
from course.compare.trials import Trial, trial

__all__ = ["Panels", "first_rows", "panels", "random_ranking", "ranking"]

COMPETITIVE, FULL_GIB, FASTER, LEAST_GROUP = 0.5, 70.0, 1.25, 8


def first_rows(*keys: str) -> list[records.Row]:
    """The rows of some sources; of a measurement made several times, the first.

    >>> len(first_rows("kor"))
    10
    """
    seen: dict[object, records.Row] = {}
    for row in records.runs():
        if records.key(row) in keys:
            seen.setdefault(records.duplicate_key(row), row)
    return list(seen.values())


@dataclass(frozen=True)
class Panels:
    """The playbook's rows with their rules; arrays over `trial.rows`."""

    trial: Trial

    def _number(self, name: str) -> np.ndarray:
        return np.array([value if value is not None else np.nan for value in self.trial.column(name)], float)

    @cached_property
    def model(self) -> np.ndarray:
        """Name of the panel."""
        return self.trial.column("model").astype(str)

    @cached_property
    def devices(self) -> np.ndarray:
        """Devices of the run."""
        return self._number("n_devices")

    @cached_property
    def pipeline(self) -> np.ndarray:
        """Stages of the run."""
        return self._number("pp")

    @cached_property
    def ran(self) -> np.ndarray:
        """True for the rows that did not fail."""
        return np.array([records.ran(row) for row in self.trial.rows])

    @cached_property
    def rate(self) -> np.ndarray:
        """Steps a second and device; 0 where the row failed."""
        rate: np.ndarray = np.nan_to_num(1 / self.trial.time_s / self.devices)
        return np.asarray(rate * self.ran)

    @cached_property
    def competitive(self) -> np.ndarray:
        """R1: at least half as fast as the best of the same model and devices."""
        fast = np.zeros(len(self.model), bool)
        for _, places in self.groups(self.ran):
            fast[places] = self.rate[places] >= COMPETITIVE * self.rate[places].max()
        return fast

    @cached_property
    def unstalled(self) -> np.ndarray:
        """R2: under 70 GiB, and not replicated state together with data parallelism and a pipeline."""
        whole = self.trial.column("sharding").astype(str) == "none"
        stalls = whole & (self._number("dp") > 1) & (self.pipeline > 1)
        return np.asarray(self.ran & (self.trial.peak_gib < FULL_GIB) & ~stalls)

    @cached_property
    def consistent(self) -> np.ndarray:
        """R3: no run of the same model, tensor and pipeline degree and micro-batch on as many or more devices is over
        1.25 x faster a device."""
        tensor, micro_batch = self._number("tp"), self._number("micro_batch")
        kept = self.ran.copy()
        for place in np.flatnonzero(self.ran):
            same = self.ran & (self.model == self.model[place]) & (tensor == tensor[place])
            same &= (self.pipeline == self.pipeline[place]) & (micro_batch == micro_batch[place])
            same &= self.devices >= self.devices[place]
            kept[place] = self.rate[same].max() <= FASTER * self.rate[place]
        return kept

    def groups(self, mask: np.ndarray) -> Iterator[tuple[tuple[str, float], np.ndarray]]:
        """(model, devices) and the places of its rows under a mask."""
        for model in sorted(set(self.model)):
            for devices in sorted(set(self.devices)):
                places = np.flatnonzero(mask & (self.model == model) & (self.devices == devices))
                if len(places):
                    yield (model, devices), places


def panels() -> Panels:
    """The playbook's rows, read once.

    >>> one = panels()
    >>> int(one.ran.sum()), bool(one.competitive.sum() < one.ran.sum())
    (1151, True)
    """
    return Panels(trial(first_rows("usp")))


def ranking(
    predicted: np.ndarray, measured: np.ndarray, groups: Iterator[tuple[object, np.ndarray]]
) -> dict[str, float]:
    """How a ranking does within groups: Spearman (groups of eight or more), regret of the first and the best of three.

    `predicted` orders the rows; all shares are fractions.
    """
    ranks, regret, of_three = [], [], []
    draw = np.random.default_rng(0)  # the source lists its best first: ties must not be broken by that order
    for _, listed in groups:
        places = draw.permutation(listed)
        order, times = np.argsort(predicted[places], kind="stable"), measured[places]
        regret.append(times[order[0]] / times.min() - 1)
        of_three.append(times[order[:3]].min() / times.min() - 1)
        if len(places) >= LEAST_GROUP:
            ranks.append(spearman(predicted[places], times) or 0.0)  # a prediction that ranks nothing is worth nothing
    return {
        "spearman_median": float(np.median(ranks)), "spearman_worst": float(np.min(ranks)),
        "regret_median": float(np.median(regret)), "regret_mean": float(np.mean(regret)),
        "three_mean": float(np.mean(of_three)), "three_max": float(np.max(of_three)),
    }  # fmt: skip


def random_ranking(measured: np.ndarray, groups: Iterator[tuple[object, np.ndarray]]) -> dict[str, float]:
    """What a random pick is expected to reach in the same figures.

    >>> times, places = np.array([1.0, 2.0, 3.0, 6.0]), iter([("", np.arange(4))])
    >>> random_ranking(times, places)["regret_mean"], random_ranking(times, iter([("", np.arange(4))]))["three_mean"]
    (2.0, 0.25)
    """
    regret, of_three = [], []
    for _, places in groups:
        times = np.sort(measured[places])
        regret.append(times.mean() / times[0] - 1)
        # the best of three drawn without order is the k-th fastest when the two others are among the slower ones
        count, drawn = len(times), min(3, len(times))
        slower = np.arange(count - 1, -1, -1.0)
        ways = {1: np.ones(count), 2: slower, 3: slower * (slower - 1) / 2}[drawn]
        of_three.append(float(times @ ways / ways.sum()) / times[0] - 1)
    return {
        "spearman_median": 0.0, "spearman_worst": 0.0,
        "regret_median": float(np.median(regret)), "regret_mean": float(np.mean(regret)),
        "three_mean": float(np.mean(of_three)), "three_max": float(np.max(of_three)),
    }  # fmt: skip
