"""Every source of measured runs beside our prediction and one utilisation for all, with errors and regrets.

The utilisation is the median of the source's other runs, so it knows the source as our constants do at best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from course import catalog, records
from course.compare.gates import constant_mfu
from course.compare.playbook import first_rows, random_ranking
from course.compare.scores import TOP
from course.compare.trials import Trial, trial

__all__ = ["CALIBRATES", "Source", "calibrated_on", "sources"]

CALIBRATES = {
    "usp": "playbook", "mpt": "llm-foundry", "nemo": "NeMo", "mbr": "Megatron-Bridge", "nar": "Narayanan",
    "kor": "Korthikanti",
}  # fmt: skip
"""What the table of constants calls a source whose runs calibrated one."""


@dataclass(frozen=True)
class Source:
    """A source's runs that can be predicted, a measurement made several times counted once; arrays over the runs.

    `ours` and `constant` are step times in s by our prediction and by one utilisation for all.
    """

    key: str
    rows: Trial
    ours: np.ndarray
    constant: np.ndarray
    peak_gib: np.ndarray

    @property
    def scored(self) -> np.ndarray:
        """The runs with a measured time and a prediction."""
        return np.asarray(np.isfinite(self.ours) & np.isfinite(self.rows.time_s))

    def ratio(self, times: np.ndarray) -> np.ndarray:
        """Measured over predicted time of the scored runs, by these predictions."""
        return np.asarray((self.rows.time_s / times)[self.scored])

    def questions(self) -> Iterator[tuple[object, np.ndarray]]:
        """Runs of one model, cluster, program, batch and sequence, measured with several layouts."""
        together: dict[object, list[int]] = defaultdict(list)
        for place in np.flatnonzero(self.scored):
            run = self.rows.runs[place]
            together[run.model, run.training, run.software, run.cluster].append(int(place))
        for question, places in together.items():
            if len({self.rows.runs[place].layout for place in places}) > 1:
                yield question, np.array(places)

    def regrets(self) -> dict[str, tuple[float, float]] | None:
        """Mean over the questions of the time of the first choice over the best, minus 1, and of the best of three.

        By ours, by one utilisation and by a random pick; None where no question was measured with several layouts.
        """
        asked = [places for _, places in self.questions()]
        if not asked:
            return None
        times = self.rows.time_s
        both = {"ours": self.ours, "constant": self.constant}
        found = {label: _regrets(own, times, asked) for label, own in both.items()}
        drawn = random_ranking(times, ((None, places) for places in asked))
        return {**found, "random": (drawn["regret_mean"], drawn["three_mean"])}


def _regrets(predicted: np.ndarray, measured: np.ndarray, asked: list[np.ndarray]) -> tuple[float, float]:
    first, three = [], []
    draw = np.random.default_rng(0)  # a source may list its best first: ties must not be broken by that order
    for listed in asked:
        places = draw.permutation(listed)
        times = measured[places[np.argsort(predicted[places], kind="stable")]]
        first.append(times[0] / times.min() - 1)
        three.append(times[:TOP].min() / times.min() - 1)
    return float(np.mean(first)), float(np.mean(three))


def calibrated_on(key: str) -> bool:
    """True where a constant in the catalog was chosen on runs of this source: its scores are in-sample.

    >>> calibrated_on("usp"), calibrated_on("mxt")
    (True, False)
    """
    called = CALIBRATES.get(key)
    return called is not None and any(called in row["calibrated_on"] for row in catalog.constant_rows())


@cache
def sources() -> tuple[Source, ...]:
    """Every source with at least one measured run that can be predicted, the one with most of them first.

    >>> sources()[0].key
    'usp'
    """
    found = []
    for key in dict.fromkeys(map(records.key, records.runs())):
        rows = trial(first_rows(key))
        if not rows.rows:
            continue
        predicted = rows.predict()
        known = np.isfinite(rows.time_s)
        constant = constant_mfu(rows, np.arange(len(rows.rows)), known) if len(rows.rows) > 1 else rows.time_s * np.nan
        found.append(Source(key, rows, predicted["time_s"], constant, predicted["peak_gib"]))
    kept = [one for one in found if one.scored.any()]
    return tuple(sorted(kept, key=lambda one: -int(one.scored.sum())))
