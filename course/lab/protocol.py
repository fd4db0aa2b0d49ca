"""What is measured on a machine: a list of cells, plain data that knows neither engine nor kind of device.

A cell's id says what it is: engine, family, devices, and what distinguishes it. Cells that carry the same `alternate`
are measured in alternated blocks, so that drift and neighbours hit all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from course.lab.legality import AXES, refusal, shares_cores
from course.lab.machine import device_count
from course.lab.report import FAMILIES

__all__ = ["CPU_MODEL", "GPU_MODEL", "ORDER", "Request", "cells", "counts", "seconds", "training", "work_unit"]

Request = dict[str, Any]

CPU_MODEL = {"layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocabulary": 512}
"""0.92 million parameters: a step of 2 to 32 sequences takes 15 to 170 ms on one core."""

GPU_MODEL = {"layers": 8, "hidden": 2048, "heads": 16, "ffn": 8192, "vocabulary": 32768}
"""0.54 billion parameters: fits one accelerator of 16 GiB at its smallest batch."""

BATCHES, JAX_BATCHES, QUICK_BATCHES = (2, 4, 8, 16, 32), (2, 8, 32), (2, 8, 16)
"""Sequences of a step, by Torch, by JAX, which compiles each, and quick."""

ORDER = ["tensor", "context", "pipeline", "data"]
"""Innermost first: the axis that speaks most has the nearest neighbours."""

KILOBYTE, MEGABYTE = 2**10, 2**20


def cells(
    machine: Mapping[str, Any], quick: bool = False, engine: str = "torch", families: Iterable[str] | None = None,
    grid: bool | None = None,
) -> list[Request]:  # fmt: skip
    """The protocol for a machine, in the order of measuring: one device first, whose losses the others must repeat.

    Cells that this machine's devices do not divide (2 sequences over 4 of them) are left out.

    Args:
        machine: as `devices()` gives it.
        quick: three smaller batches, fewer steps, no grid; about a fifth of the time.
        engine: "torch" or "jax".
        families: only these, of `report.FAMILIES`; None for all.
        grid: whether to measure the layouts that need more devices than there are (their times are marked); None:
            unless quick.

    >>> here = {"kind": "cpu", "cores": 2, "gpus": []}
    >>> found = cells(here, engine="torch")
    >>> sorted({cell["devices"] for cell in found}), len({cell["id"] for cell in found}) == len(found)
    ([1, 2, 4], True)
    """
    plan = _Plan(machine, quick, engine)
    wanted = set(FAMILIES if families is None else families)
    found: list[Request] = []
    for devices in counts(machine):
        found += [*plan.matmuls(devices), *plan.messages(devices), *plan.strong(devices), *plan.weak(devices)]
        found += [*plan.accumulation(devices), *plan.pipelines(devices), *plan.layouts(devices)]
    if not quick if grid is None else grid:
        found += [cell for cell in plan.grid() if cell["id"] not in {one["id"] for one in found}]
    if engine == "jax":
        found = plan.compiled_soon(found) if quick else found + plan.processes()
    return [cell for cell in found if cell["family"] in wanted and refusal(cell, machine) is None]


def counts(machine: Mapping[str, Any], most: int = 8) -> list[int]:
    """The device counts of a curve: 1, 2, 4 ... up to what is there; powers of two, for they divide the batches.

    >>> counts({"kind": "cpu", "cores": 3}), counts({"kind": "gpu", "gpus": [{}] * 8})
    ([1, 2], [1, 2, 4, 8])
    """
    there = min(device_count(dict(machine)), most)
    return [2**power for power in range(there.bit_length()) if 2**power <= there]


def training(
    machine: Mapping[str, Any], engine: str, family: str, devices: int, batch: int, *, name: str = "",
    layout: Mapping[str, Any] | None = None, micro_batches: int = 1, steps: int = 24, alternate: str | None = None,
    **more: Any,
) -> Request:  # fmt: skip
    """One training cell: the usual model of this kind of machine, `batch` sequences a step on `devices` devices.

    Args:
        layout: degrees and choices that differ from plain data parallelism over all devices.
        micro_batches: pieces a step is cut into on each replica.
        name: what distinguishes the cell, behind the family and the devices; else the batch.
        more: further keys of a request (`measure_exposed`, `loader_s`, `trace`, `processes`, ...).

    >>> training({"kind": "cpu"}, "torch", "strong", 2, 8)["id"]
    'torch.strong.2.gb8'
    """
    gpu = machine.get("kind") == "gpu"
    whole = _layout(**({"data": devices} if layout is None else layout))
    return {
        "id": f"{engine}.{family}.{devices}.{name or f'gb{batch}'}",
        "engine": engine,
        "family": family,
        "model": dict(GPU_MODEL if gpu else CPU_MODEL),
        "sequence_length": 1024 if gpu else 64,
        "global_batch_sequences": batch,
        "micro_batch": max(1, batch // (micro_batches * whole["data"])),
        "micro_batches": micro_batches,
        "layout": whole,
        "order": list(ORDER),
        "devices": devices,
        "processes": devices if engine == "torch" or gpu else 1,
        "precision": "bf16" if gpu else "fp32",
        "warmup": 5,
        "steps": steps,
        "blocks": 3,
        "alternate": alternate,
        "measure_exposed": False,
        "loader_s": 0.0,
        "trace": None,
        "payload_bytes": None,
        "operation": None,
        "shape": None,
        "loss_steps": 8,
        **more,
    }


def work_unit(request: Mapping[str, Any]) -> str:
    """What one step of the cell does, in words; only cells with equal words are divided by each other.

    >>> work_unit(training({"kind": "cpu"}, "torch", "weak", 2, 16))
    'one update of 8 sequences of 64 tokens a device, model L4 h128 a4 f512 V512, fp32'
    """
    if request["family"] == "matmul":
        m, k, n = request["shape"]
        return f"one matmul of {m} x {k} by {k} x {n} on each device, {request['precision']}"
    if request["family"] in ("collective", "p2p"):
        return f"one {request['operation']} of {request['payload_bytes']} bytes"
    model = request["model"]
    shape = " ".join(f"{letter}{model[key]}" for letter, key in
                     (("L", "layers"), ("h", "hidden"), ("a", "heads"), ("f", "ffn"), ("V", "vocabulary")))  # fmt: skip
    batch, each = request["global_batch_sequences"], ""
    if request["family"] == "weak":
        batch, each = batch // request["devices"], " a device"
    return f"one update of {batch} sequences of {request['sequence_length']} tokens{each}, model {shape}, " + str(
        request["precision"]
    )


def seconds(request: Mapping[str, Any]) -> float:
    """A rough time for a cell, for the progress bar alone: it is corrected by what the first cells took."""
    rounds = request["steps"] + request["warmup"]
    if request["family"] in ("matmul", "collective", "p2p"):
        return float(0.1 + rounds * 2e-3)
    steps = rounds * (2 if request["measure_exposed"] else 1) + 2 * request["loss_steps"]
    model = request["model"]
    weights = model["layers"] * (4 * model["hidden"] ** 2 + 2 * model["hidden"] * model["ffn"])
    flops = 6.0 * weights * request["global_batch_sequences"] * request["sequence_length"]
    rate = 5e13 if request["precision"] == "bf16" else 5e10
    crowd = 2.0 if request["devices"] > 2 and request["precision"] == "fp32" else 1.0
    compiling = 3.0 if request["engine"] == "jax" else 0.0
    each = crowd * flops / rate / min(request["devices"], 2) + 5e-3 + request["loader_s"]
    return float(compiling + steps * each)


def _layout(**degrees: Any) -> dict[str, Any]:
    usual = {**dict.fromkeys(AXES, 1), "sharding": "none", "sequence_parallel": False, "schedule": "1f1b"}
    return {**usual, **degrees}


class _Plan:
    """The families for one machine, engine and depth."""

    def __init__(self, machine: Mapping[str, Any], quick: bool, engine: str) -> None:
        self.machine, self.quick, self.engine = machine, quick, engine
        self.gpu = machine.get("kind") == "gpu"
        self.most = counts(machine)[-1]
        self.batches = QUICK_BATCHES if quick else BATCHES if engine == "torch" else JAX_BATCHES
        self.middle = self.batches[-1] // 2
        self.curve = sorted({*self.batches, self.middle})  # the layouts are cut from the middle one
        self.steps = 12 if quick else 24
        if engine == "jax":
            self.steps = 6 if quick else 12
        # devices simulated in one process share its threads: their bytes and counts hold, their times do not scale
        self.apart = ("strong", "matmul", "collective") if engine == "jax" and not quick else ()

    def cell(self, family: str, devices: int, batch: int, **more: Any) -> Request:
        usual: dict[str, Any] = {"steps": self.steps}
        if family in self.apart:
            usual["processes"] = devices
        return training(self.machine, self.engine, family, devices, batch, **{**usual, **more})

    def turns(self, family: str, point: str, devices: int) -> str:
        """The name under which cells alternate, those of all device counts among them where one launch holds them.

        On an accelerator point by point: as many models as a curve has cells would not fit its memory at once.
        """
        if self.engine == "jax":
            return f"{family}.{devices}"
        return f"{family}.{point}" if self.gpu else family

    def matmuls(self, devices: int) -> list[Request]:
        side = 8192 if self.gpu else 1024
        model = GPU_MODEL if self.gpu else CPU_MODEL
        length = 1024 if self.gpu else 64
        # every shape alone and at once: else a smaller matrix and a neighbour in memory could not be told apart
        rows = sorted({batch // count * length for count in counts(self.machine) for batch in self.batches
                       if batch % count == 0})  # fmt: skip
        shapes = [[side, side, side]] + [[m, model["hidden"], model["ffn"]] for m in rows]
        turns = None if self.engine == "jax" else "matmul.{}"
        return [
            self.cell("matmul", devices, devices, name=name, shape=shape, steps=20, blocks=2,
                      alternate=turns and turns.format(name))
            for shape in shapes for name in ("x".join(map(str, shape)),)
        ]  # fmt: skip

    def messages(self, devices: int) -> list[Request]:
        if devices < 2:
            return []
        largest = 256 * MEGABYTE if self.gpu else 4 * MEGABYTE
        sizes = [4 * KILOBYTE, 64 * KILOBYTE, 256 * KILOBYTE, MEGABYTE, largest]
        operations = (
            ["all_reduce"] if self.engine == "jax" else ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
        )
        if self.quick:
            sizes, operations = [sizes[0], sizes[2], sizes[3], sizes[4]], operations[:1]
        found = [
            self.cell("collective", devices, devices, name=f"{operation}-{size}", operation=operation,
                      payload_bytes=size, steps=40, blocks=1)
            for operation in operations for size in sizes
        ]  # fmt: skip
        if self.engine == "torch" and devices == 2:
            found += [self.cell("p2p", 2, 2, name=f"send-{size}", operation="send", payload_bytes=size, steps=40,
                                blocks=1) for size in sizes]  # fmt: skip
        return found

    def strong(self, devices: int) -> list[Request]:
        exposed = devices > 1 and self.engine == "torch"
        found = [
            self.cell("strong", devices, batch, alternate=self.turns("strong", f"gb{batch}", devices),
                      measure_exposed=exposed)
            for batch in self.curve
        ]  # fmt: skip
        if devices == self.most and self.engine == "torch":
            found.append(self.cell("strong", devices, self.middle, name=f"gb{self.middle}-loader20ms", loader_s=0.02))
        return found

    def weak(self, devices: int) -> list[Request]:
        if self.engine == "jax":
            return []
        each = [
            batch for batch in self.batches[:-1] if batch * self.most <= self.batches[-1] or batch == self.batches[0]
        ]
        each = each[:: max(1, len(each) - 1)] if not self.quick else each[-1:]
        return [
            self.cell("weak", devices, batch * devices, alternate=self.turns("weak", f"b{batch}", devices))
            for batch in each
        ]

    def accumulation(self, devices: int) -> list[Request]:
        if self.engine == "jax" or devices not in (1, self.most):
            return []
        batch = self.middle
        pieces = [several for several in ((4,) if self.quick else (2, 4, 8)) if several * devices <= batch]
        return [
            self.cell("accumulation", devices, batch, name=f"gb{batch}-m{several}", micro_batches=several,
                      alternate=self.turns("accumulation", f"m{several}", devices))
            for several in pieces
        ]  # fmt: skip

    def pipelines(self, devices: int) -> list[Request]:
        if self.engine == "jax" or devices != min(2, self.most) or devices == 1:
            return []
        steps = min(self.steps, 20)
        return [
            self.cell("pipeline", devices, self.middle, name=f"{schedule}-m{several}", micro_batches=several,
                      layout={"pipeline": devices, "schedule": schedule}, steps=steps, alternate=f"pipeline.{devices}")
            for several in (1, 2, 4, 8) for schedule in ("gpipe", "1f1b")
            if (schedule == "gpipe" or several >= devices) and (not self.quick or several < 8)
        ]  # fmt: skip

    def layouts(self, devices: int) -> list[Request]:
        if devices == 1:
            return []
        few = devices == 2
        wanted: dict[str, dict[str, Any]] = {
            f"dp{devices}": {"data": devices},
            f"dp{devices}-zero3": {"data": devices, "sharding": "zero3"},
            f"tp{devices}": {"tensor": devices},
        }
        if self.engine == "torch":
            wanted |= {
                f"dp{devices}-zero2": {"data": devices, "sharding": "zero2"},
                f"tp{devices}-sp": {"tensor": devices, "sequence_parallel": True},
                f"pp{devices}": {"pipeline": devices},
                f"cp{devices}": {"context": devices},
            }
            if self.quick:
                del wanted[f"tp{devices}-sp"], wanted[f"dp{devices}-zero2"]
        elif few:
            wanted["dp2-explicit"] = {"data": 2}
        return self._layouts(devices, wanted)

    def grid(self) -> list[Request]:
        """Four ranks: two axes at a time, whatever the devices; where there are fewer cores, times are marked."""
        if self.engine == "jax" or (self.gpu and self.most < 4):
            return []
        return self._layouts(4, {
            "dp4": {"data": 4},
            "dp4-zero3": {"data": 4, "sharding": "zero3"},
            "tp4": {"tensor": 4},
            "pp4": {"pipeline": 4},
            "cp4": {"context": 4},
            "tp2-dp2": {"tensor": 2, "data": 2},
            "pp2-dp2": {"pipeline": 2, "data": 2},
            "cp2-dp2": {"context": 2, "data": 2},
            "tp2-pp2": {"tensor": 2, "pipeline": 2},
            "tp2-cp2": {"tensor": 2, "context": 2},
        })  # fmt: skip

    def _layouts(self, devices: int, wanted: Mapping[str, Mapping[str, Any]]) -> list[Request]:
        shared = shares_cores(devices, self.machine)
        steps = 6 if shared else min(self.steps, 20)
        return [
            self.cell("layout", devices, self.middle, name=name, layout=layout, steps=steps,
                      micro_batches=4 if layout.get("pipeline", 1) > 1 else 1,
                      alternate=None if shared else f"layout.{devices}",
                      **({"explicit": True} if name.endswith("explicit") else {}))
            for name, layout in wanted.items()
        ]  # fmt: skip

    def compiled_soon(self, found: list[Request]) -> list[Request]:
        """Of JAX's cells the layouts, the serial step that their losses are held against, and the peak.

        Compiling takes most of the time of the others.
        """
        serial = f"jax.strong.1.gb{self.middle}"
        return [
            cell for cell in found
            if (cell["family"] == "layout" and not cell.get("explicit")) or cell["id"] == serial
            or (cell["family"] == "matmul" and len(set(cell["shape"])) == 1)
        ]  # fmt: skip

    def processes(self) -> list[Request]:
        """JAX with a process a device, as on several hosts; simulated devices of one process are all the rest."""
        if self.quick or self.most < 2 or self.gpu:
            return []
        layouts: Sequence[tuple[str, dict[str, Any]]] = (
            ("dp2", {"data": 2}), ("dp2-zero3", {"data": 2, "sharding": "zero3"}), ("tp2", {"tensor": 2}),
        )  # fmt: skip
        return [
            self.cell("layout", 2, self.middle, name=f"{name}-processes", layout=layout, processes=2, steps=6)
            for name, layout in layouts
        ]


def batch_for(request: Mapping[str, Any], batch: int) -> Request:
    """The same cell at another global batch, for a held-out measurement.

    >>> batch_for(training({"kind": "cpu"}, "torch", "strong", 2, 8), 12)["micro_batch"]
    6
    """
    data = request["layout"]["data"]
    micro = batch // (data * request["micro_batches"]) if math.gcd(batch, data) == data else batch // data
    name = str(request["id"]).rsplit(".", 1)[0] + f".gb{batch}"
    return {**request, "id": name, "global_batch_sequences": batch, "micro_batch": max(1, micro), "alternate": None}
