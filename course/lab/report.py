"""The report of a measurement: one machine, one list of cells, every key there and null where nothing is known."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.fields import nearest, show
from course.files import read_text, write_atomically

__all__ = ["CELL_KEYS", "FAMILIES", "STATUSES", "Cell", "Report", "complete", "load", "loads", "merge", "recorded",
           "write"]  # fmt: skip

Cell = dict[str, Any]
"""One measured cell, keyed as `CELL_KEYS`."""

FAMILIES = ("strong", "weak", "layout", "pipeline", "accumulation", "collective", "p2p", "matmul")
STATUSES = ("ok", "noisy", "failed", "oom", "timeout", "refused")
CELL_KEYS = (
    "id", "engine", "family", "work_unit", "model", "global_batch_sequences", "sequence_length", "micro_batch",
    "micro_batches", "layout", "order", "devices", "placement", "step_time_s", "tokens_per_s", "mfu",
    "flops_convention", "peak_flops_per_s", "matmul_flops_per_s", "peak_memory_gib", "held_bytes", "communication_s",
    "exposed_communication_s", "payload_bytes", "busbw_bytes_per_s", "input_wait_s", "idle_share", "host_share",
    "loss", "loss_difference", "rank_spread_s", "noise", "status", "reason",
)  # fmt: skip
"""Keys every cell has. Besides them a cell may carry `precision`, `host`, `request` and `extra`."""

WANTED = "a report of `course lab measure`"


@dataclass(frozen=True)
class Report:
    """What was measured: the machine (or machines, `machine["hosts"]` of them) and the cells.

    >>> report = Report({"kind": "cpu"}, [complete({"id": "a", "family": "strong", "status": "ok"})])
    >>> report["a"]["status"], report["a"]["mfu"], len(report.of("strong"))
    ('ok', None, 1)
    """

    machine: dict[str, Any]
    cells: list[Cell] = field(default_factory=list)

    def __getitem__(self, name: str) -> Cell:
        for cell in self.cells:
            if cell["id"] == name:
                return cell
        near = nearest(name, [str(cell["id"]) for cell in self.cells])
        raise UserError(f"The report has no cell {show(name)}" + (f"; the nearest is {show(near)}." if near else "."))

    def __contains__(self, name: object) -> bool:
        return any(cell["id"] == name for cell in self.cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def of(self, family: str, engine: str | None = None, devices: int | None = None) -> list[Cell]:
        """The cells of a family that have a result, by engine and device count where these are given."""
        return [
            cell for cell in self.cells
            if cell["family"] == family and cell["status"] in ("ok", "noisy")
            and engine in (None, cell["engine"]) and devices in (None, cell["devices"])
        ]  # fmt: skip

    def with_cell(self, cell: Mapping[str, Any]) -> Report:
        """The report with this cell, in the place of an older one of the same id."""
        new = complete(cell)
        if new["id"] in self:
            return Report(self.machine, [new if old["id"] == new["id"] else old for old in self.cells])
        return Report(self.machine, [*self.cells, new])

    def text(self) -> str:
        """The report as JSON; what is not finite is null."""
        document = {"machine": _plain(self.machine), "cells": [_plain(cell) for cell in self.cells]}
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def complete(cell: Mapping[str, Any]) -> Cell:
    """The cell with every key of `CELL_KEYS`, null where it had none.

    >>> complete({"id": "a"})["noise"] is None
    True
    """
    return {**dict.fromkeys(CELL_KEYS), **cell}


def loads(text: str, name: str = "report") -> Report:
    """Read a report. Raises UserError with one sentence that says what is wrong with it.

    >>> loads('{"machine": {}, "cells": [{"id": "a", "family": "speed", "status": "ok"}]}', "lab.json")
    Traceback (most recent call last):
        ...
    course.errors.UserError: lab.json, cell "a": family "speed" is none of strong, weak, layout, pipeline, accumulation,
    collective, p2p, matmul.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{name} is no JSON. Give {WANTED}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("machine"), dict):
        raise UserError(f"{name} has no machine. Give {WANTED}.")
    cells = document.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise UserError(f"{name} has no list of cells. Give {WANTED}.")
    seen: set[str] = set()
    for cell in cells:
        _check(cell, name)
        if cell["id"] in seen:
            raise UserError(f"{name} holds the cell {show(cell['id'])} twice. Keep one of them.")
        seen.add(cell["id"])
    return Report(document["machine"], [complete(cell) for cell in cells])


def _check(cell: Mapping[str, Any], name: str) -> None:
    if not isinstance(cell.get("id"), str) or not cell["id"]:
        raise UserError(f"{name} has a cell without an id. Every cell needs one.")
    where = f"{name}, cell {show(cell['id'])}"
    for key, known in (("family", FAMILIES), ("status", STATUSES)):
        if cell.get(key) not in known:
            raise UserError(f"{where}: {key} {show(cell.get(key))} is none of {', '.join(known)}.")
    for key in ("layout", "model", "step_time_s", "noise", "peak_flops_per_s"):
        if cell.get(key) is not None and not isinstance(cell[key], dict):
            raise UserError(f"{where}: {key} must be an object, not {show(cell[key])}.")
    time = (cell.get("step_time_s") or {}).get("p50")
    if time is not None and not (_is_number(time) and time > 0):
        raise UserError(f"{where}: step_time_s.p50 must be seconds above 0, not {show(time)}.")
    devices = cell.get("devices")
    if devices is not None and (isinstance(devices, bool) or not isinstance(devices, int) or devices < 1):
        raise UserError(f"{where}: devices must be a whole number above 0, not {show(devices)}.")


def load(path: str | Path) -> Report:
    """Read the report in a file. Raises UserError, as `loads` does."""
    text = read_text(path, "report of the lab", "a JSON file", f". Give {WANTED}.")
    return loads(text, Path(path).name)


def write(path: str | Path, report: Report) -> None:
    """Put the report on disk, whole or not at all. Raises OSError where the folder cannot be written."""
    write_atomically(Path(path), report.text().encode())


def recorded() -> dict[str, Report]:
    """The reports that came with the course, by name; each names the hardware it was measured on.

    >>> all(report.cells for report in recorded().values())
    True
    """
    folder = files("course.lab").joinpath("recorded")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return {file.name.removesuffix(".json"): loads(file.read_text(encoding="utf-8"), file.name) for file in found}


def merge(reports: Iterable[Report]) -> Report:
    """One report of several hosts: hosts are numbered from 0 in the order given, a cell says on which it ran.

    Where two hosts measured the same cell, the later one's id gets its host's number behind an @. Machines of one kind
    are several hosts, not a cluster: nothing was measured between them, and `machine["joined"]` says so.
    Raises UserError where there is nothing to merge.

    >>> one = Report({"kind": "cpu", "accelerator": "A"}, [complete({"id": "a", "family": "matmul", "status": "ok"})])
    >>> [(cell["id"], cell["host"]) for cell in merge([one, one])]
    [('a', 0), ('a@1', 1)]
    """
    taken = list(reports)
    if not taken:
        raise UserError("There are no reports to merge. Give two files or more.")
    if len(taken) == 1:
        return taken[0]
    machines: list[dict[str, Any]] = []
    cells: list[Cell] = []
    seen: set[str] = set()
    for report in taken:
        first = len(machines)
        machines.extend({**machine, "host": first + place} for place, machine in enumerate(_machines(report)))
        for cell in report.cells:
            host = first + int(cell.get("host") or 0)
            base = str(cell["id"]).split("@")[0]
            name = base if base not in seen else f"{base}@{host}"
            seen.add(name)
            cells.append({**cell, "id": name, "host": host})
    same = {name: machines[0].get(name) for name in ("kind", "accelerator", "node_size", "fabric")
            if all(machine.get(name) == machines[0].get(name) for machine in machines)}  # fmt: skip
    joined = "separate measurements put side by side: nothing was measured between the hosts"
    return Report({**same, "hosts": len(machines), "joined": joined, "machines": machines}, cells)


def _machines(report: Report) -> list[dict[str, Any]]:
    machines = report.machine.get("machines")
    return list(machines) if isinstance(machines, list) else [report.machine]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
