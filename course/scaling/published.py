"""Published series as experiments: strong, weak and growing models, and what different batches took to one target.

>>> published("G0002").rows()[1].efficiency
1.1995...
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from course import records
from course.errors import UserError
from course.estimate import palm, six_ps
from course.fields import nearest, show
from course.records.columns import Row
from course.scaling.experiment import Experiment, Point
from course.scaling.work import WorkUnit

__all__ = ["REPLICAS", "Reached", "batches_to_target", "published", "published_named"]

REPLICAS = "replicas"
"""Name of the playbook's 1.34B model with replicas alone: nothing sharded, micro-batches of one sequence."""

_SHARED = ("tp", "pp", "micro_batch", "sharding")


class Reached(NamedTuple):
    """One entry of a benchmark that trains to a target; `sequences` are those used, `rate` sequences a second."""

    benchmark: str
    round: str
    submitter: str
    accelerator: str
    devices: int
    batch: int
    sequences: float
    minutes: float
    rate: float | None


@cache
def _runs() -> dict[str, Row]:
    return {str(row["id"]): row for row in records.runs()}


def _whole(value: Any) -> int:
    return int(value)


def _step_flops(row: Row) -> float:
    """Model FLOPs of a step: `palm` where the table gives a shape, else `six_ps`, which is off by the same share."""
    tokens = _whole(row["global_batch_seqs"]) * _whole(row["seq_len"])
    parameters = float(row["params_b"] or 0) * 1e9
    if row["n_layers"] and row["hidden"]:
        heads = _whole(row["n_heads"])
        shape = {"layers": row["n_layers"], "heads": heads, "head_size": _whole(row["hidden"]) // heads}
        return float(palm(parameters=parameters, sequence_length=row["seq_len"], **shape)) * tokens
    return float(six_ps(parameters=parameters)) * tokens


def _time(row: Row) -> float:
    """Seconds of a step: printed, or tokens over the printed rate, or FLOPs over the printed FLOP/s."""
    if row["step_time_s"]:
        return float(row["step_time_s"])
    if row["tokens_per_s_per_device"]:
        rate = float(row["tokens_per_s_per_device"]) * _whole(row["n_devices"])
        return _whole(row["global_batch_seqs"]) * _whole(row["seq_len"]) / rate
    executed = 4 / 3 if row["mfu_convention_code"] == "executed" else 1.0  # recomputation is a fourth forward
    return executed * _step_flops(row) / (float(row["tflops_per_device"] or 0) * 1e12 * _whole(row["n_devices"]))


def _point(row: Row, model: str) -> Point:
    batch, devices = _whole(row["global_batch_seqs"]), _whole(row["n_devices"])
    work = WorkUnit(model, batch, _whole(row["seq_len"]), precision=str(row["dtype"] or "unstated"))
    local = {name: row[name] for name in ("micro_batch", "dp", "tp", "pp", "sharding", "recompute")}
    if row["dp"] and row["micro_batch"]:
        local["accumulation"] = batch / _whole(row["dp"]) / _whole(row["micro_batch"])
    memory, gpus = row["peak_mem_gib"], "TPU" not in str(row["accelerator"])
    return Point(
        devices, _time(row), work, MappingProxyType(local), f"{-(-devices // 8)} nodes of 8" if gpus else "",
        float(memory) if memory else None, _step_flops(row) if row["params_b"] else None,
    )  # fmt: skip


@cache
def _groups() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name to family and rows: of a strong group the best row for each number of devices."""
    found: dict[str, tuple[str, list[str]]] = {}
    for row in records.strong_series():
        found.setdefault(str(row["group_id"]), ("strong", []))[1].append(str(row["row_id"]))
    for group in records.groups():
        rows = [_runs()[name] for name in group["row_ids"]]  # type: ignore[attr-defined]  # a tuple of ids
        kind = {"weak": "weak", "weak_model_size": "model size"}.get(str(group["kind"]))
        once = {_whole(row["n_devices"]): str(row["id"]) for row in rows}
        rated = ("tokens_per_s_per_device", "tflops_per_device")
        timed = all(row["global_batch_seqs"] and row["seq_len"] and any(row[rate] for rate in rated) for row in rows)
        if kind and len(once) == len(rows) and timed:
            found[str(group["group_id"])] = (kind, list(once.values()))
    alone = {"tp": 1, "pp": 1, "micro_batch": 1, "sharding": "none"}
    replicas = [
        str(row["id"]) for row in records.runs()
        if row["model"] == "llama-like 1.34B" and not records.failed(row) and all(row[k] == alone[k] for k in _SHARED)
    ]  # fmt: skip
    found[REPLICAS] = ("strong", replicas)
    return {name: (kind, tuple(ids)) for name, (kind, ids) in found.items()}


def published_named(family: str | None = None, least: int = 2) -> dict[str, str]:
    """The published series with `least` points or more, in words, to their names; of one family, or of all.

    A table that leaves out the batch or the length of a sequence has no work unit, so it is not among them.

    >>> published_named("model size")
    {'GPT 1.7B to 1008B, A100-80GB, 32 to 3072': 'G0155'}
    """
    said = {}
    for name, (kind, ids) in _groups().items():
        if family not in (None, kind) or len(ids) < least:
            continue
        rows = sorted((_runs()[one] for one in ids), key=lambda row: _whole(row["n_devices"]))
        first, last = rows[0], rows[-1]
        model = str(first["model"])
        if kind == "model size":
            model += f" to {float(last['params_b'] or 0):.0f}B"
        elif name == REPLICAS:
            model += ", replicas alone"
        accelerator = str(first["accelerator"]).removeprefix("NVIDIA ").replace("H100-SXM5-80GB", "H100-80GB")
        said[f"{model}, {accelerator}, {first['n_devices']} to {last['n_devices']}"] = name
    return said


def published(name: str, baseline: int | None = None) -> Experiment:
    """A published series by its name: a group of the records, or `REPLICAS`.

    Times that a table does not print follow from its rates. Weak MaxText rows print FLOP/s alone: their time is that
    of 6PS, so only its ratios are to be used.

    Raises:
        UserError: there is no such series; the message names the nearest.
    """
    if name not in _groups():
        raise UserError(f"There is no published series {show(name)}; the nearest is {nearest(name, _groups())}.")
    kind, ids = _groups()[name]
    rows = [_runs()[one] for one in ids]
    if kind == "strong":
        return Experiment.strong([_point(row, str(row["model"])) for row in rows], baseline)
    if kind == "weak":
        return Experiment.weak([_point(row, str(row["model"])) for row in rows], baseline)
    points = [_point(row, f"GPT {row['params_b']}B") for row in rows]
    return Experiment.model_size(points, "GPT shapes chosen for each number of devices, so that each is well used",
                                 baseline)  # fmt: skip


def batches_to_target(benchmark: str) -> tuple[Reached, ...]:
    """What entries of an MLPerf benchmark used to reach its target, those that say how many sequences, by batch.

    Args:
        benchmark: "gpt3" (sequences follow from the tracked tokens a second and the minutes) or "llama2_70b_lora"
            (sequences are logged: the median of ten runs).

    >>> len(batches_to_target("llama2_70b_lora")) > 40
    True
    """
    found = []
    for row in records.time_to_train():
        tracked, minutes = row["throughput_tracked"], row["minutes"]
        if row["benchmark"] != benchmark or not minutes or not row["global_batch_seqs"]:
            continue
        rate = float(tracked) / float(row["seq_len"] or 1) if tracked else None
        logged = row["samples_at_stop_median"]
        used = float(logged) if logged else rate * float(minutes) * 60 if rate and row["seq_len"] else None
        if used:
            found.append(Reached(
                benchmark, str(row["round"]), str(row["submitter"]), str(row["accelerator"]),
                _whole(row["n_devices"]), _whole(row["global_batch_seqs"]), used, float(minutes), rate,
            ))  # fmt: skip
    return tuple(sorted(found, key=lambda one: (one.batch, one.sequences)))
