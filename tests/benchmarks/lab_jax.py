"""What the JAX engine finds on this machine, printed: losses of all layouts, FLOPs, collectives, bytes, two processes.

Run by hand: `python tests/benchmarks/lab_jax.py`; with `--record FILE.json` the compiled figures are written as a
report, with `--times` the steps of one pinned device, two pinned processes and two simulated devices are timed as well.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from course.lab import finish, launch, machine, protocol
from course.lab.jax_engine import compiled
from course.lab.report import Report, write

BATCH = 8
LAYOUTS: dict[str, dict[str, Any]] = {
    "serial": {},
    "data": {"data": 2},
    "by-hand": {"data": 2},
    "zero3": {"data": 2, "sharding": "zero3"},
    "tensor": {"tensor": 2},
    "context": {"context": 2},
    "data4": {"data": 4},
    "zero3x4": {"data": 4, "sharding": "zero3"},
    "tensor4": {"tensor": 4},
    "data2-tensor2": {"data": 2, "tensor": 2},
}


def cell(name: str, layout: dict[str, Any], here: dict[str, Any], **more: Any) -> dict[str, Any]:
    devices = layout.get("data", 1) * layout.get("tensor", 1) * layout.get("context", 1)
    return protocol.training(
        here, "jax", "layout", devices, BATCH, name=name, layout=layout, explicit=name == "by-hand", **more
    )


def on_simulated_devices(here: dict[str, Any]) -> Report:
    """Every layout compiled in one process, with its losses."""
    cells = [cell(name, layout, here) for name, layout in LAYOUTS.items()]
    lines = compiled.compile_cells(cells, timeout_s=900)
    serial = None
    found = []
    for request, line in zip(cells, lines, strict=True):
        done = finish.finished(request, line, here, serial)
        serial = serial or done
        found.append(done)
    return Report({**here, "measured": "compiled figures and losses only: nothing was timed"}, found)


def launched(cells: list[dict[str, Any]], ranks: int, pin: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """The cells run by the lab's own launcher, a process a device."""
    with tempfile.TemporaryDirectory() as name:
        config = Path(name, "config.json")
        config.write_text(json.dumps({"engine": "jax", "folder": name, "threads": 1, "cells": cells}))
        made = launch.plan("jax", ranks, config, pin=pin)
        outcome = launch.launch(made, Path(name), [one["id"] for one in cells], ranks=ranks, timeout_s=900)
    if outcome.failure:
        raise SystemExit(f"{ranks} processes: {outcome.failure.reason}")
    return outcome.lines


def show(title: str, report: Report) -> None:
    print(title)
    serial = report.cells[0]
    for one in report.cells:
        extra = one["extra"]
        flops, whole = extra["flops_per_device"], serial["extra"]["flops_per_device"]
        part = "null" if flops is None else f"{flops / whole:.4f}"
        difference = abs(one["loss"] / serial["loss"] - 1)
        print(
            f"  {one['id']:32} loss {one['loss']:.6f} ({difference:.1e})  FLOPs of a device {part}  "
            f"arguments {extra['argument_bytes']:>9}  temporary {extra['temporary_bytes']:>9}  {extra['collectives']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path)
    parser.add_argument("--times", action="store_true")
    asked = parser.parse_args()
    here = machine.devices()
    report = on_simulated_devices(here)
    show("Compiled on simulated devices:", report)
    if asked.record:
        write(asked.record, report)
    steps = {"steps": 24} if asked.times else {"steps": 3, "warmup": 1, "blocks": 1}
    two = [cell(name, LAYOUTS[name], here, processes=2, **steps) for name in ("data", "zero3", "tensor")]
    print("Two processes:")
    lines = launched(two, 2)
    for line in lines:
        difference = abs(line["loss"] / report.cells[0]["loss"] - 1)
        print(f"  {line['id']:32} loss {line['loss']:.6f} ({difference:.1e})  {line['extra']['collectives']}")
    if asked.times:
        alone = launched([cell("serial", {}, here, pin=True, **steps)], 1)
        simulated = launched([cell(name, LAYOUTS[name], here, **steps) for name in ("data", "zero3", "tensor")], 1)
        for title, several in (("one, pinned", alone), ("two processes", lines), ("two simulated", simulated)):
            for line in several:
                noise = {name: line["noise"][name] for name in ("foreign_cores", "cpu_per_wall")}
                print(f"  {title:14} {line['id']:24} {1e3 * line['step_time_s']['p50']:8.1f} ms  {noise}")


if __name__ == "__main__":
    main()
