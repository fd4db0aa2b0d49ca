"""Predictions beside measurements: rows of one question are columns of one evaluation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from course import records
from course.compare.mapping import MEASURED, OUT_OF_RANGE, Skipped, run_of
from course.compare.words import anomalous, doubted, failed, notes_say, spelt, word
from course.estimate import flops_per_token
from course.formula import FormulaError
from course.legality import violations
from course.mfu import step_mfu
from course.predict import evaluate
from course.predict.columns import CODES, DEGREES, derived
from course.problem import Layout, Model, Run
from course.records.columns import Row

__all__ = ["Compared", "columns_of", "measured_time", "predicted", "source_of", "unmeasured"]

GIB = 2.0**30
PRINTED = ("peak_mem_gib", "mfu_reported", "hfu_reported", "tflops_per_device")
"""What a row may have measured besides a time or a rate."""


@dataclass(frozen=True)
class Compared:
    """A measured row and what we say of it. Times in s, memory in GiB; None where there is nothing to say.

    `refused` is "memory", "legal" or None; `skipped` the reason where no step time is predicted, `kind` the few words
    of it that rows share; `time_s` the measured
    step time, printed or worked out from the printed rate; `peak_gib` the prediction without the margin.
    """

    row: Row
    run: Run | None
    source: str
    skipped: str | None
    refused: str | None = None
    fits: bool | None = None
    predicted_time_s: float | None = None
    tokens_per_s_per_device: float | None = None
    mfu: float | None = None
    peak_gib: float | None = None
    time_s: float | None = None
    kind: str | None = None

    @property
    def failed(self) -> bool:
        """True for a run that crashed or ran out of memory."""
        return failed(self.row)

    @cached_property
    def measurement(self) -> tuple[object, ...]:
        """What two rows share that are the same measurement made twice."""
        return self.source, self.failed, *records.duplicate_key(spelt(self.row))

    @property
    def scored_time_s(self) -> float | None:
        """The measured time where it may be scored: None for a run noted ANOMALY."""
        return None if anomalous(self.row) else self.time_s

    @property
    def time_error(self) -> float | None:
        """|measured time / predicted time - 1|, None where either is missing or the run is noted ANOMALY."""
        return _error(self.scored_time_s, self.predicted_time_s)

    @property
    def memory_error(self) -> float | None:
        """|measured peak / predicted peak - 1|, the prediction without its margin."""
        measured = None if self.failed else self.row.get("peak_mem_gib")
        return _error(measured, self.peak_gib)  # type: ignore[arg-type]  # the column holds numbers


def _error(measured: float | None, predicted: float | None) -> float | None:
    return abs(measured / predicted - 1) if measured and predicted else None


def source_of(row: Row) -> str:
    """The source of a row: the key in its id, "lab" for a cell of a lab report.

    >>> source_of({"id": "usp-0001"}), source_of({"id": "a-b-c", "family": "strong"})
    ('usp', 'lab')
    """
    return "lab" if row.get("family") else records.key(row)


def predicted(rows: Iterable[Row]) -> list[Compared]:
    """Each row with its prediction, in the order given. Rows of one model, batch and cluster are evaluated at once.

    >>> found = predicted(records.runs()[:1])[0]
    >>> found.skipped, found.fits, 10 < found.predicted_time_s < 30
    (None, True, True)
    """
    listed = list(rows)
    found: list[Compared | None] = [None] * len(listed)
    together: dict[object, list[int]] = defaultdict(list)
    runs: dict[int, Run] = {}
    known: dict[object, Run | Skipped] = {}
    questions: dict[object, int] = {}
    numbers: dict[object, int] = {}
    for place, row in enumerate(listed):
        asked = _asked(row)
        if asked not in known:
            known[asked] = run_of(row)
        run = known[asked]
        if isinstance(run, Skipped):
            found[place] = Compared(row, None, source_of(row), run.reason, kind=run.kind)
            continue
        assert run.layout is not None
        runs[place] = replace(run, name=str(row.get("id") or run.name))
        if asked not in questions:  # hashing a whole model for every row is slow
            same = (run.model, run.training, run.software, run.cluster, run.layout.order, run.layout.stage_layers)
            questions[asked] = numbers.setdefault(same, len(numbers))
        together[questions[asked]].append(place)
    for places in together.values():
        compared = _evaluated([listed[place] for place in places], [runs[place] for place in places])
        for place, one in zip(places, compared, strict=True):
            found[place] = one
    return [one for one in found if one is not None]


_CHECKED = frozenset({"mfu_reported", "hfu_reported", "tflops_per_device"})
_ANSWERS = frozenset(
    {*MEASURED, "id", "source", "year", "gpu_hours", "tokens_trained_b", "attn", "mfu_convention", "notes"}
)


def _asked(row: Row) -> object:
    """What a row asks, apart from what it answers: rows equal in it are read into a Run once."""
    checked = tuple(
        (column, value) for column in MEASURED
        if isinstance(value := row.get(column), (int, float)) and (value < 0 or (column in _CHECKED and value > 1))
    )  # fmt: skip
    names = _asking(tuple(row))
    return names, tuple(map(row.get, names)), notes_say(row.get("notes")), checked


@lru_cache(256)
def _asking(columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column for column in columns if column not in _ANSWERS)


def unmeasured(compared: Iterable[Compared]) -> int:
    """How many rows could be asked about and hold nothing measured: no time, no rate, no memory, no failure.

    >>> row = {"id": "own-1", "model": "mpt-7b", "accelerator": "A100-80GB", "n_devices": 8, "dp": 8, "seq_len": 2048,
    ...        "global_batch_seqs": 64, "sharding": "zero3"}
    >>> unmeasured(predicted([row])), unmeasured(predicted([{**row, "step_time_s": 4.0}]))
    (1, 0)
    """
    return sum(
        one.run is not None and not one.failed and one.time_s is None and not any(one.row.get(cell) for cell in PRINTED)
        for one in compared
    )


def columns_of(layouts: Sequence[Layout], run: Run) -> dict[str, np.ndarray]:
    """Layouts of one question as columns."""
    columns = {name: np.array([float(getattr(one, name)) for one in layouts]) for name in DEGREES}
    columns |= {
        name: np.array([float(codes.index(getattr(one, name))) for one in layouts]) for name, codes in CODES.items()
    }
    columns["sequence_parallel"] = np.array([float(bool(one.sequence_parallel)) for one in layouts])
    return derived(columns, run)


def _evaluated(rows: Sequence[Row], runs: Sequence[Run]) -> list[Compared]:
    """Rows that ask the same question with different layouts."""
    layouts = [run.layout for run in runs if run.layout is not None]
    uneven = layouts[0].stage_layers is not None
    question = replace(runs[0], layout=layouts[0] if uneven else None)
    conventions = [_by_convention(row, run) for row, run in zip(rows, runs, strict=True)]
    try:
        with np.errstate(all="ignore"):
            columns = columns_of(layouts, question)
            broken = violations(question, columns)
            codes = [next((code for code in broken if broken[code][place]), None) for place in range(len(rows))]
            legal = [place for place, code in enumerate(codes) if code is None]
            kept = {name: column[legal] for name, column in columns.items()}
            values = evaluate(question, kept, layouts[0].order) if legal else {}
        seat = {place: at for at, place in enumerate(legal)}
        said = _said(question, values, legal, conventions) if legal else {}
        return [
            _compared(
                row, run, code, flops, {name: column[seat[place]] for name, column in said.items()} if not code else {}
            )
            for place, (row, run, code, flops) in enumerate(zip(rows, runs, codes, conventions, strict=True))
        ]
    except FormulaError:
        if len(rows) > 1:  # one row's numbers must not cost the others their prediction
            return [_evaluated([row], [run])[0] for row, run in zip(rows, runs, strict=True)]
        return [Compared(rows[0], runs[0], source_of(rows[0]), OUT_OF_RANGE, kind=OUT_OF_RANGE)]


def _said(
    run: Run, values: Mapping[str, np.ndarray], legal: Sequence[int], conventions: Sequence[float | None]
) -> dict[str, list[Any]]:
    """Of the legal rows: whether each fits, its time in s, peak in GiB without the margin, and use of the peak."""
    shape = len(legal)
    flops = np.array([np.nan if (one := conventions[place]) is None else one for place in legal])
    time = np.broadcast_to(np.asarray(values["time_s"], float), shape)
    use = np.full(shape, np.nan)
    asked = np.isfinite(flops) & np.isfinite(time) & (time > 0)
    if asked.any():
        use[asked] = step_mfu(
            flops_per_token=flops[asked], tokens_per_step=run.training.tokens_per_step, devices=run.cluster.devices,
            peak_flops_per_s=run.cluster.accelerator.peak_flops_per_s, step_time=time[asked],
        )  # fmt: skip
    peak = (values["peak_bytes"] - values["part_margin"]) / GIB
    return {
        "fits": np.broadcast_to(values["fits"], shape).tolist(), "time": time.tolist(),
        "peak": np.broadcast_to(peak, shape).tolist(), "use": use.tolist(),
    }  # fmt: skip


def _compared(row: Row, run: Run, broken: str | None, flops: float | None, said: Mapping[str, Any]) -> Compared:
    """One row with what is said of it; `broken` the rule it breaks."""
    training, source = run.training, source_of(row)
    measured = None if failed(row) else _measured(row, run, flops)
    if broken:
        reason = f"illegal: {broken}"
        return Compared(row, run, source, reason, "legal", False, time_s=measured, kind=reason)
    time, peak, fits = said["time"], said["peak"], bool(said["fits"])
    if not (math.isfinite(time) and time > 0 and math.isfinite(peak)):
        return Compared(row, run, source, OUT_OF_RANGE, kind=OUT_OF_RANGE)
    use = said["use"] if said["use"] <= 1 else None
    rate = training.tokens_per_step / time / run.cluster.devices
    return Compared(row, run, source, None, None if fits else "memory", fits, time, rate, use, peak, measured)


def _by_convention(row: Row, run: Run) -> float | None:
    """FLOPs of a token by the row's convention; None where it has none."""
    assert run.layout is not None
    name = word("mfu_convention_code", row.get("mfu_convention_code"))
    if name is None:
        return None
    return _flops(run.model, run.training.sequence_length, run.layout.recompute).get(str(name))


@cache
def _flops(model: Model, sequence_length: int, recompute: str) -> dict[str, float]:
    return flops_per_token(model, sequence_length, recompute)


def measured_time(row: Row, run: Run) -> float | None:
    """The step time a row measured, in s; None for a failed row, and where nothing gives it."""
    if failed(row):
        return None
    return _measured(row, run, _by_convention(row, run))


def _measured(row: Row, run: Run, flops: float | None) -> float | None:
    """The measured step time: printed, else from tokens a second, else from the printed utilisation by its convention.

    A row noted ANOMALY has no good utilisation, so its time is never worked out from one.
    """
    tokens, devices = float(run.training.tokens_per_step), run.cluster.devices
    time, rate = row.get("step_time_s"), row.get("tokens_per_s_per_device")
    if time:
        return float(time) if float(time) > 0 else None
    if rate:
        return tokens / devices / float(rate) if float(rate) > 0 else None
    if flops is None or doubted(row):
        return None
    rate = float(row.get("tflops_per_device") or 0) * 1e12
    if rate <= 0:
        use = row.get(
            "hfu_reported"
            if word("mfu_convention_code", row.get("mfu_convention_code")) == "executed"
            else "mfu_reported"
        )
        rate = float(use or 0) * run.cluster.accelerator.peak_flops_per_s
    return flops * tokens / devices / rate if rate > 0 else None
