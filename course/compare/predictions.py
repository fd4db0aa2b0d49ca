"""Predictions beside measurements: rows of one question are columns of one evaluation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from course import records
from course.compare.mapping import OUT_OF_RANGE, Skipped, run_of
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

    `refused` is "memory", "legal" or None; `skipped` the reason where no step time is predicted; `time_s` the measured
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

    @property
    def failed(self) -> bool:
        """True for a run that crashed or ran out of memory."""
        return records.failed(self.row)

    @property
    def time_error(self) -> float | None:
        """|measured time / predicted time - 1|, None where either is missing."""
        return _error(self.time_s, self.predicted_time_s)

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
    for place, row in enumerate(listed):
        run = run_of(row)
        if isinstance(run, Skipped):
            found[place] = Compared(row, None, source_of(row), run.reason)
            continue
        assert run.layout is not None
        runs[place] = run
        same = (run.model, run.training, run.software, run.cluster, run.layout.order, run.layout.stage_layers)
        together[same].append(place)
    for places in together.values():
        compared = _evaluated([listed[place] for place in places], [runs[place] for place in places])
        for place, one in zip(places, compared, strict=True):
            found[place] = one
    return [one for one in found if one is not None]


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
    try:
        with np.errstate(all="ignore"):
            columns = columns_of(layouts, question)
            broken = violations(question, columns)
            codes = [next((code for code in broken if broken[code][place]), None) for place in range(len(rows))]
            legal = [place for place, code in enumerate(codes) if code is None]
            kept = {name: column[legal] for name, column in columns.items()}
            values = evaluate(question, kept, layouts[0].order) if legal else {}
        seat = {place: at for at, place in enumerate(legal)}
        return [
            _compared(row, run, code, {} if code else {name: column[seat[place]] for name, column in values.items()})
            for place, (row, run, code) in enumerate(zip(rows, runs, codes, strict=True))
        ]
    except FormulaError:
        if len(rows) > 1:  # one row's numbers must not cost the others their prediction
            return [_evaluated([row], [run])[0] for row, run in zip(rows, runs, strict=True)]
        return [Compared(rows[0], runs[0], source_of(rows[0]), OUT_OF_RANGE)]


def _compared(row: Row, run: Run, broken: str | None, values: dict[str, np.ndarray]) -> Compared:
    """One row with its values; `broken` the rule it breaks."""
    layout, training, cluster = run.layout, run.training, run.cluster
    assert layout is not None
    convention = row.get("mfu_convention_code")
    flops = _flops(run.model, training.sequence_length, layout.recompute).get(str(convention))
    measured = None if records.failed(row) else _measured(row, run, flops)
    if broken:
        return Compared(row, run, source_of(row), f"illegal: {broken}", "legal", False, time_s=measured)
    time = float(values["time_s"])
    fits = bool(values["fits"])
    peak = float(values["peak_bytes"] - values["part_margin"]) / GIB
    if not (np.isfinite(time) and time > 0 and np.isfinite(peak)):
        return Compared(row, run, source_of(row), OUT_OF_RANGE)
    use = None
    if flops is not None:
        use = float(
            step_mfu(
                flops_per_token=flops, tokens_per_step=training.tokens_per_step, devices=cluster.devices,
                peak_flops_per_s=cluster.accelerator.peak_flops_per_s, step_time=time,
            )
        )  # fmt: skip
    use = use if use is not None and use <= 1 else None
    rate = training.tokens_per_step / time / cluster.devices
    return Compared(
        row, run, source_of(row), None, None if fits else "memory", fits, time, rate, use, peak, measured,
    )  # fmt: skip


@cache
def _flops(model: Model, sequence_length: int, recompute: str) -> dict[str, float]:
    return flops_per_token(model, sequence_length, recompute)


def measured_time(row: Row, run: Run) -> float | None:
    """The step time a row measured, in s; None for a failed row, and where nothing gives it."""
    assert run.layout is not None
    if records.failed(row):
        return None
    conventions = _flops(run.model, run.training.sequence_length, run.layout.recompute)
    return _measured(row, run, conventions.get(str(row.get("mfu_convention_code"))))


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
    if flops is None or "ANOMALY" in str(row.get("notes") or ""):
        return None
    rate = float(row.get("tflops_per_device") or 0) * 1e12
    if rate <= 0:
        use = row.get("hfu_reported" if row.get("mfu_convention_code") == "executed" else "mfu_reported")
        rate = float(use or 0) * run.cluster.accelerator.peak_flops_per_s
    return flops * tokens / devices / rate if rate > 0 else None
