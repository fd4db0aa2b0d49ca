"""A report as text: what the machine is, then a table a family, then what failed and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from course.lab.figures import curve, exposed_share, loader_s, share_of_wait
from course.lab.report import FAMILIES, Cell, Report

__all__ = ["describe", "machine_text"]

WIDTH = 100
GIB = 2**30


def describe(report: Report) -> str:
    """The report in tables of at most 100 columns, one a family, failures last.

    >>> from course.lab.report import complete
    >>> cell = complete({"id": "a", "engine": "torch", "family": "strong", "devices": 2, "status": "timeout",
    ...                  "reason": "rank 1 hung"})
    >>> print(describe(Report({"kind": "cpu", "accelerator": "A", "cores": 2, "hosts": 1}, [cell])).splitlines()[-1])
      timeout  a: rank 1 hung
    """
    parts = ["\n".join(fill(line, WIDTH) for line in machine_text(report.machine).splitlines())]
    engines = sorted({str(cell["engine"]) for cell in report}, reverse=True)
    for engine in engines:
        for family in FAMILIES:
            found = report.of(family, engine)
            if found:
                title = f"{engine}, {family}"
                parts.append(f"{title}\n{_table(_rows(report, family, engine, found))}")
    said = _notes(report)
    if said:
        parts.append(said)
    return "\n\n".join(parts)


def machine_text(machine: Mapping[str, Any]) -> str:
    """What a machine is, in a line or two; several hosts in as many.

    >>> print(machine_text({"kind": "cpu", "accelerator": "A", "cores": 2, "memory_bytes": 2**34, "hosts": 1}))
    One host: A, 2 cores, 16 GiB of memory. One host is no cluster: no network between hosts was measured.
    """
    several = machine.get("machines")
    if isinstance(several, list):
        lines = [f"Host {one.get('host')}: {_about(one)}." for one in several]
        return "\n".join([*lines, f"The report holds {machine.get('joined')}."])
    hosts = int(machine.get("hosts") or 1)
    if hosts > 1:
        return f"{hosts} hosts, measured together: {_about(machine)}."
    return f"One host: {_about(machine)}. One host is no cluster: no network between hosts was measured."


def _about(machine: Mapping[str, Any]) -> str:
    gpus = machine.get("gpus") or []
    parts = [str(machine.get("accelerator"))]
    if machine.get("kind") == "gpu":
        parts[0] = f"{len(gpus)} x {parts[0]}"
    if machine.get("cores"):
        parts.append(f"{machine['cores']} cores")
    if machine.get("memory_bytes"):
        parts.append(f"{machine['memory_bytes'] / GIB:.0f} GiB of memory")
    versions = {name: text for name, text in (machine.get("versions") or {}).items() if text}
    if versions:
        parts.append(", ".join(f"{name} {text}" for name, text in versions.items()))
    return ", ".join(parts)


def _rows(report: Report, family: str, engine: str, found: Sequence[Cell]) -> list[list[str]]:
    if family == "matmul":
        return [["shape", "devices", "GFLOP/s each", "status"]] + [
            [_name(cell), str(cell["devices"]), _number(cell["matmul_flops_per_s"], 1e-9), cell["status"]]
            for cell in found
        ]
    if family in ("collective", "p2p"):
        return [["message", "ranks", "P10", "median", "P90", "bus GB/s", "status"]] + [
            [
                _name(cell),
                str(cell["devices"]),
                *_times(cell),
                _number(cell["busbw_bytes_per_s"], 1e-9, 2),
                cell["status"],
            ]
            for cell in found
        ]
    if family in ("strong", "weak"):
        hosts = sorted({int(cell.get("host") or 0) for cell in found})
        points = {row["id"]: row for host in hosts for row in curve(report, family, engine, host)}
        head = ["batch", "devices", "median", "P10-P90", "speedup", "effic.", "exposed", "input", "MFU", "status"]
        return [head, *(_point(cell, points.get(str(cell["id"]))) for cell in found)]
    head = ["layout", "devices", "median", "tokens/s", "MFU", "idle", "held MiB", "peak MiB", "loss diff.", "status"]
    return [head, *(_layout(cell) for cell in found)]


def _point(cell: Cell, row: Mapping[str, Any] | None) -> list[str]:
    low, middle, high = _times(cell)
    batch = f"{cell['global_batch_sequences']}" + (" slow loader" if loader_s(cell) else "")
    return [
        batch, str(cell["devices"]), middle, f"{low}-{high}",
        _number(row and row["speedup"], 1, 2), _number(row and row["efficiency"], 1, 2),
        _percent(exposed_share(cell)), _percent(share_of_wait(cell)), _percent(cell["mfu"]), str(cell["status"]),
    ]  # fmt: skip


def _layout(cell: Cell) -> list[str]:
    held = cell["held_bytes"]
    held = sum(held.values()) if isinstance(held, dict) else held
    peak = cell["peak_memory_gib"]
    difference = cell["loss_difference"]
    placed = (cell["placement"] or {}).get("shared_cores")
    return [
        _name(cell), str(cell["devices"]), _times(cell)[1] + (" (shared)" if placed else ""),
        _number(cell["tokens_per_s"], 1, 0), _percent(None if placed else cell["mfu"]), _percent(cell["idle_share"]),
        _number(held, 1 / 2**20), _number(peak, 1024), "-" if difference is None else f"{difference:.0e}",
        str(cell["status"]),
    ]  # fmt: skip


def _notes(report: Report) -> str:
    lines = []
    for cell in report:
        if cell["status"] not in ("ok", "noisy"):
            text = f"{cell['status']}  {cell['id']}: {cell['reason']}"
            lines.append(fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))
    noisy = [cell["id"] for cell in report if cell["status"] == "noisy"]
    if noisy:
        lines.append(f"  noisy  {len(noisy)} of {len(report.cells)} cells, after all their attempts")
    return "\n".join(["Not as it should be", *lines]) if lines else ""


def _name(cell: Cell) -> str:
    """What distinguishes a cell from others of its family: the last part of its id."""
    return str(cell["id"]).split(".", 3)[-1]


def _times(cell: Cell) -> list[str]:
    time = cell["step_time_s"] or {}
    return [_seconds(time.get(name)) for name in ("p10", "p50", "p90")]


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            shown = value / scale
            return f"{shown:,.{2 if shown < 9.995 else 1 if shown < 99.95 else 0}f} {unit}"
    return f"{value:.2g} s"


def _number(value: Any, scale: float = 1.0, digits: int = 1) -> str:
    return "-" if value is None else f"{float(value) * scale:,.{digits}f}"


def _percent(share: Any) -> str:
    return "-" if share is None else f"{100 * float(share):.0f} %"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        ("  " + "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )).rstrip() for row in rows
    )  # fmt: skip
