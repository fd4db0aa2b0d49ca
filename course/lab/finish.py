"""From a worker's line to a cell of the report: what was asked, what follows from it, and whether its loss is right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from course.lab.figures import flops_per_step, peak_matmul
from course.lab.legality import shares_cores
from course.lab.machine import catalog_peak
from course.lab.noise import noisy
from course.lab.protocol import work_unit
from course.lab.report import CELL_KEYS, Cell, complete

__all__ = ["CONVENTION", "TOLERANCES", "failed", "finished", "placement", "rated", "serial"]

CONVENTION = "full_attention"
PARTS = ("collective", "p2p", "matmul")
TOLERANCES = {("torch", "fp32"): 1e-5, ("jax", "fp32"): 1e-4}
"""Relative difference of losses that float32 sums in another order explain: 1.4e-7 and 3e-6 were seen."""

TOLERANCE_16_BIT = 2e-2
MEASURED = (
    "step_time_s", "matmul_flops_per_s", "peak_memory_gib", "held_bytes", "communication_s", "exposed_communication_s",
    "payload_bytes", "busbw_bytes_per_s", "input_wait_s", "idle_share", "host_share", "loss", "rank_spread_s", "noise",
)  # fmt: skip
TIMES = ("step_time_s", "tokens_per_s", "mfu", "communication_s", "exposed_communication_s", "idle_share", "host_share")


def finished(
    request: Mapping[str, Any], line: Mapping[str, Any], machine: Mapping[str, Any], serial: Cell | None
) -> Cell:
    """The cell of a worker's line.

    Args:
        request: what was asked for; line: what the worker measured; machine: where.
        serial: the cell of one device that trained the same batches, whose loss must come out again; None where it was
            not measured.

    A cell whose loss differs keeps its loss and loses its times: a wrong program has no speed.
    """
    cell = _asked(request, machine)
    cell |= {key: line[key] for key in MEASURED if line.get(key) is not None}
    cell["placement"] = _placed(cell["placement"], line.get("placement"))
    if line.get("extra"):
        cell["extra"] = dict(line["extra"])
        if cell["extra"].get("trace"):  # its folder is this machine's affair
            cell["extra"]["trace"] = Path(str(cell["extra"]["trace"])).name
    cell["status"], cell["reason"] = line.get("status") or "ok", line.get("reason")
    if cell["status"] not in ("ok", "noisy"):
        return complete(cell)
    time = (cell.get("step_time_s") or {}).get("p50")
    if request["family"] not in PARTS and time:
        cell["tokens_per_s"] = request["global_batch_sequences"] * request["sequence_length"] / time
    _compare_loss(cell, request, serial)
    if cell["status"] != "failed":
        ranks, cores = int(request["processes"]), int(machine.get("cores") or 0)  # of a job nobody knows: not judged
        waits = request["devices"] > 1 or machine.get("kind") == "gpu" or bool(request.get("loader_s"))
        busy = noisy(cell.get("noise"), max(ranks, 1 if request.get("pin") else request["devices"]), cores, waits)
        if busy:
            cell["status"], cell["reason"] = "noisy", busy
        if shares_cores(request["devices"], machine):
            shared = f"shared-core: {request['devices']} ranks on {cores} cores, so its times say nothing about scaling"
            cell["reason"] = shared
    return complete(cell)


def _placed(asked: dict[str, Any], found: Any) -> dict[str, Any]:
    """Where the ranks were, as far as the workers said more than was asked: a row a rank, or figures by name."""
    if isinstance(found, list):
        names = sorted({str(row["name"]) for row in found if isinstance(row, dict) and row.get("name")})
        hosts = {row.get("host") for row in found if isinstance(row, dict)}
        return {**asked, "rows": found, "hosts": max(1, len(hosts)), "accelerators": names}
    if not isinstance(found, dict):
        return asked
    text = asked["text"].replace("not pinned", "each held to its own") if found.get("pinned") else asked["text"]
    return {**asked, **found, "text": text}


def failed(request: Mapping[str, Any], machine: Mapping[str, Any], status: str, reason: str) -> Cell:
    """The cell that was refused, or whose launch failed.

    >>> from course.lab.protocol import training
    >>> here = {"kind": "cpu", "cores": 2}
    >>> failed(training(here, "torch", "strong", 2, 8), here, "refused", "no")["reason"]
    'no'
    """
    return complete({**_asked(request, machine), "status": status, "reason": reason})


def serial(cells: Iterable[Cell], request: Mapping[str, Any]) -> Cell | None:
    """The cell of one device, by the same engine, that trained on the same batches; None where there is none.

    >>> serial([], {"id": "a"}) is None
    True
    """
    keys = ("engine", "model", "sequence_length", "global_batch_sequences", "precision", "loss_steps")
    for cell in cells:
        other = cell.get("request") or {}
        if cell["devices"] == 1 and cell.get("loss") is not None and all(
            other.get(key) == request[key] for key in keys
        ) and other.get("micro_batches") == 1 and cell["id"] != request["id"]:  # fmt: skip
            return cell
    return None


def placement(request: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Where the ranks of a cell were: one host, its devices or cores, shared or not, pinned or not.

    >>> placement({"devices": 4, "processes": 4}, {"kind": "cpu", "cores": 2, "accelerator": "A"})["text"]
    '4 ranks on 2 cores of one host: they share cores'
    """
    devices, ranks = int(request["devices"]), int(request.get("processes") or request["devices"])
    accelerator, pinned = machine.get("accelerator"), False
    hosts = int(machine.get("hosts") or 1)
    home = "one host" if hosts == 1 else f"{hosts} hosts"
    where: dict[str, Any] = {"hosts": hosts, "ranks": ranks, "accelerator": accelerator, "pinned": pinned}
    if machine.get("kind") == "gpu":
        names = [str(gpu.get("name")) for gpu in (machine.get("gpus") or [])[:devices]]
        each = max(1, int(machine.get("node_size") or devices))
        place = {str(rank): f"host {rank // each}, device {rank % each}" for rank in range(devices)}
        text = f"{devices} {'device' if devices == 1 else 'devices'} of {home}, a rank each"
        return {**where, "accelerators": names, "shared_cores": False, "devices": place, "text": text}
    cores = int(machine.get("cores") or 1)
    shared = shares_cores(devices, machine)
    # a torch rank has one thread; an XLA process spreads its devices over all cores it may use
    share = 1.0 if pinned or request.get("engine") == "torch" else cores / devices
    text = f"{ranks} {'rank' if ranks == 1 else 'ranks'} on {1 if pinned else cores} cores of {home}"
    text += ": they share cores" if shared else ", pinned" if pinned else ", not pinned"
    if ranks != devices:
        text += f"; {devices} simulated devices"
    return {**where, "cores": cores, "shared_cores": shared, "cores_per_device": share, "text": text}


def rated(cells: Iterable[Cell], machine: Mapping[str, Any]) -> list[Cell]:
    """The cells with peaks and MFU: the best matmul that was measured with the same engine, and the catalog's figure.

    MFU is against the catalog's peak where there is one, else against the measured one.
    """
    cells = list(cells)
    found = []
    for cell in cells:
        precision = str(cell.get("precision") or "fp32")
        measured = peak_matmul(cells, cell["engine"], precision)
        catalog = catalog_peak(dict(machine), precision)
        cell = {**cell, "peak_flops_per_s": {"measured": measured, "catalog": catalog}}
        time, peak = (cell.get("step_time_s") or {}).get("p50"), catalog or measured
        shared = (cell.get("placement") or {}).get("shared_cores")  # then there are fewer peaks than ranks
        if time and peak and cell["family"] not in PARTS and cell.get("request") and not shared:
            share = flops_per_step(cell["request"]) / (time * cell["devices"] * peak)
            cell["mfu"] = share if share <= 1 else None  # above 1 the peak was measured in a worse moment than the step
            cell["flops_convention"] = CONVENTION
        found.append(cell)
    return found


def _asked(request: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell says before anything is measured."""
    trains = request["family"] not in PARTS
    model = request["model"]
    cell: dict[str, Any] = {key: request[key] for key in CELL_KEYS if request.get(key) is not None}
    cell |= {
        "work_unit": work_unit(request),
        "placement": placement(request, machine),
        "precision": request["precision"],
        "host": 0,
        "request": {**request, "trace": None},
        "model": None,
    }
    if trains:
        cell["model"] = {
            **model, "kv_heads": model["heads"], "head_size": model["hidden"] // model["heads"], "gated_mlp": False,
            "tied_embeddings": False,
        }  # fmt: skip
    else:
        for key in ("global_batch_sequences", "sequence_length", "micro_batch", "micro_batches", "layout", "order"):
            cell.pop(key, None)
    return cell


def _compare_loss(cell: dict[str, Any], request: Mapping[str, Any], serial: Cell | None) -> None:
    loss, wanted = cell.get("loss"), None if serial is None else serial.get("loss")
    if request["family"] in PARTS or loss is None:
        return
    if not math.isfinite(loss):
        cell["status"], cell["reason"] = "failed", f"the loss is {loss}"
    elif wanted is not None:
        difference = abs(loss - wanted) / abs(wanted)
        cell["loss_difference"] = difference
        allowed = TOLERANCES.get((request["engine"], request["precision"]), TOLERANCE_16_BIT)
        if difference > allowed:
            cell["status"] = "failed"
            cell["reason"] = (
                f"its loss {loss:.6f} differs from the serial run's {wanted:.6f} by {difference:.1e} of it, more than "
                f"{allowed:.0e}: it did other work, so its times are left out"
            )
    if cell["status"] == "failed":
        for key in TIMES:
            cell.pop(key, None)
