"""How good predictions are: errors by source, ranking within groups, refusals of runs that failed and that ran.

Each source weighs the same overall: its figure is the mean of the sources' figures. Quantiles are interpolated.

A run noted ANOMALY is in no score of time: neither in a source's throughput errors nor in a group, for both come of the
same time; it is counted among `inferred`. Its memory counts. An ANOMALY that begins with MFU, as those of the packaged
records do, doubts only the printed utilisation: the printed time or rate of such a run counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from course.compare.mapping import precision_of
from course.compare.predictions import Compared
from course.compare.words import anomalous

__all__ = ["Duplicate", "document", "duplicates", "fit", "groups", "spearman"]

Duplicate = dict[str, Any]
TOP = 3


@np.errstate(all="ignore")  # a table may hold 1e300; what has no finite score is null
def document(compared: Sequence[Compared]) -> dict[str, Any]:
    """The document of `course compare --json`: sources, overall, groups, fit, skipped, and what was filled in.

    >>> document([])["fit"]["ran"]
    {'rows': 0, 'refused': 0}
    """
    again = duplicates(compared)
    scored = _first(compared)
    own, counting = _by_source(compared), _by_source(scored)
    sources = [_source(name, rows, counting.get(name, ())) for name, rows in own.items()]
    return {
        "sources": sources,
        "overall": _overall(sources),
        "groups": groups(scored),
        "fit": fit(compared),
        "skipped": dict(Counter(one.kind or one.skipped for one in compared if one.skipped).most_common()),
        "duplicates": again,
        "inferred": dict(Counter(said for one in compared if one.run for said in one.run.assumptions).most_common()),
    }


def _by_source(compared: Iterable[Compared]) -> dict[str, list[Compared]]:
    found: dict[str, list[Compared]] = defaultdict(list)
    for one in compared:
        found[one.source].append(one)
    return found


def _first(compared: Iterable[Compared]) -> list[Compared]:
    """The rows that count: of the same measurement made several times, the first that is no anomaly, else the first."""
    kept: dict[object, Compared] = {}
    for place, one in enumerate(compared):
        key = one.measurement if one.run is not None else place
        if key not in kept or (anomalous(kept[key].row) and not anomalous(one.row)):
            kept[key] = one
    return list(kept.values())


def duplicates(compared: Iterable[Compared]) -> list[Duplicate]:
    """Measurements made several times: the ids, and the `spread`, the longest measured time over the shortest."""
    same: dict[object, list[Compared]] = defaultdict(list)
    for one in compared:
        if one.run is not None and not one.failed:
            same[one.measurement].append(one)
    found = []
    for rows in same.values():
        times = [one.time_s for one in rows if one.time_s]
        if len(rows) > 1:
            spread = max(times) / min(times) if len(times) > 1 else None
            found.append({"ids": [str(one.row.get("id") or "") for one in rows], "spread": spread})
    return found


def _quantiles(errors: Iterable[float | None]) -> dict[str, float | None]:
    known = [error for error in errors if error is not None]
    if not known:
        return {"median": None, "p90": None}
    return {"median": float(np.median(known)), "p90": float(np.quantile(known, 0.9))}


def _source(name: str, own: Sequence[Compared], counting: Sequence[Compared]) -> dict[str, Any]:
    return {
        "name": name,
        "rows": len(own),
        "predicted": sum(one.skipped is None for one in own),
        "throughput": _quantiles(one.time_error for one in counting),
        "memory": _quantiles(one.memory_error for one in counting),
    }


def _overall(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sources together, each weighing the same: the means of their medians and of their ninetieth percentiles."""

    def mean(what: str, figure: str) -> float | None:
        known = [source[what][figure] for source in sources if source[what][figure] is not None]
        return float(np.mean(known)) if known else None

    return {
        "name": "overall",
        "rows": sum(source["rows"] for source in sources),
        "predicted": sum(source["predicted"] for source in sources),
        **{what: {figure: mean(what, figure) for figure in ("median", "p90")} for what in ("throughput", "memory")},
    }


def groups(scored: Iterable[Compared]) -> list[dict[str, Any]]:
    """Ranking within one question measured with several layouts.

    `regret` is the measured time of the layout we would choose over the best measured, minus 1: the fastest of those we
    say fit, or of all where we say that none does. `regret_top3` is that of the best of our three best.
    """
    together: dict[tuple[object, ...], list[Compared]] = defaultdict(list)
    for one in scored:
        if one.run is None or one.scored_time_s is None or one.predicted_time_s is None:
            continue
        run, row = one.run, one.row
        asked = (
            one.source, row.get("model") or run.model.name, run.cluster.accelerator.id, precision_of(row),
            run.software.recipe, run.cluster.devices, run.training.global_batch_sequences, run.training.sequence_length,
        )  # fmt: skip
        together[asked].append(one)
    several = {asked: rows for asked, rows in together.items() if len({one.run and one.run.layout for one in rows}) > 1}
    return [_group(asked, rows) for asked, rows in several.items()]


def _group(asked: tuple[object, ...], rows: Sequence[Compared]) -> dict[str, Any]:
    source, model, accelerator, precision, software, devices, batch, sequence = asked
    measured = np.array([one.time_s for one in rows], float)
    predicted = np.array([one.predicted_time_s for one in rows], float)
    refused = np.array([not one.fits for one in rows])
    order = np.lexsort((predicted, refused))
    best = measured.min()
    return {
        "id": f"{source}: {model}, {devices} x {accelerator}, {precision}, {software}, {batch} x {sequence}",
        "rows": len(rows),
        "spearman": spearman(predicted, measured),
        "regret": float(measured[order[0]] / best - 1),
        "regret_top3": float(measured[order[:TOP]].min() / best - 1),
    }


def spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    """Rank correlation, ties at their mean rank; None where either has no order at all.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 3.0]))
    0.5
    """
    a, b = _ranks(one), _ranks(other)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else None


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank of each value from 0, equal values at the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]


def fit(compared: Iterable[Compared]) -> dict[str, dict[str, int]]:
    """Of the runs we have an opinion on: failed ones refused for memory or as illegal, and ran ones refused."""
    judged = [one for one in compared if one.fits is not None]
    lost = [one for one in judged if one.failed]
    ran = [one for one in judged if not one.failed]
    return {
        "failed": {
            "rows": len(lost),
            "refused_memory": sum(one.refused == "memory" for one in lost),
            "refused_legal": sum(one.refused == "legal" for one in lost),
        },
        "ran": {"rows": len(ran), "refused": sum(one.refused is not None for one in ran)},
    }
