"""One cell measured: the family decides what runs, the record is the report's.

A training cell first repeats the serial run's updates and keeps the losses; only then is it timed. What a worker cannot
know (efficiency, MFU, whether the loss is right) is left to whoever reads the record.
"""

from __future__ import annotations

import gzip
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from course.lab.jax_engine import kernels
from course.lab.jax_engine.meshes import refusal
from course.lab.jax_engine.processes import World
from course.lab.jax_engine.steps import Step
from course.lab.jax_engine.timing import Clock, Times, take_turns

if TYPE_CHECKING:
    import jax

__all__ = ["Cell", "measure", "refused"]

TRAINING = ("strong", "weak", "layout", "accumulation", "pipeline")
TRACED_STEPS = 3


def refused(request: Mapping[str, Any], world: World) -> dict[str, Any] | None:
    """Return the record of a cell that this engine or this launch cannot run; None where it can."""
    why = None
    if request["family"] in TRAINING:
        why = refusal(request)
    elif request["family"] != "matmul":
        why = kernels.refusal(request)
    if why is None and world.size > 1 and request["devices"] != len(world.devices):
        why = (
            f"devices is {request['devices']}, and the {world.size} processes have {len(world.devices)}: "
            "launch it with as many as it asks for."
        )
    return None if why is None else {"id": request["id"], "engine": "jax", "status": "refused", "reason": why}


class Cell:
    """A cell made ready: its program compiled, its losses known, its steps yet to be timed."""

    def __init__(self, request: Mapping[str, Any], world: World, seed: int) -> None:
        self.request, self.world = request, world
        self.step: Step | None = None
        self.rivals: dict[str, Callable[[], Any]] = {}
        self.record: dict[str, Any] = {"id": request["id"], "engine": "jax", "status": "ok", "reason": None}
        extra: dict[str, Any] = {"versions": _versions()}
        if request["family"] not in TRAINING:
            self.call, program = kernels.build(request, world.devices)
        else:
            self.step = Step(request, world.devices, seed)
            self.call, program = self.step, self.step.program
            losses = [float(self.step()) for _ in range(int(request.get("loss_steps", 8)) + 1)]
            self.record |= {"loss": losses[-1], "held_bytes": self.step.held_bytes()}
            extra |= {"losses": losses, "held": "parameters", "explicit": self.step.layout.explicit}
            if request.get("measure_exposed") and self.step.layout.only_data and request["devices"] > 1:
                self._add_rivals(seed)
        extra |= kernels.figures(program)
        self.record["peak_memory_gib"], extra["peak_memory_by"] = _peak(extra, world.devices)
        self.record["extra"], self.record["placement"] = extra, world.placement(int(request["devices"]))

    def _add_rivals(self, seed: int) -> None:
        """Two programs to compare with: the step by hand that keeps its gradients to itself, and its all-reduce alone.

        The silent one is the explicit step without its collective, so the step by hand is timed beside it as well.
        """
        by_hand = {**self.request, "explicit": True}
        devices = self.world.devices
        silent = Step(by_hand, devices, seed, silent=True)
        self.rivals["by hand"] = Step(by_hand, devices, seed)
        self.rivals["silent"] = silent
        payload = silent.held_bytes()  # whole copies: gradients are as many bytes
        alone = {"operation": "all_reduce", "payload_bytes": payload, "devices": self.request["devices"]}
        self.rivals["all-reduce"] = kernels.build({"family": "collective", **alone}, devices)[0]

    def finish(self, times: Times, rivals: Mapping[str, Times], matmul: float | None) -> dict[str, Any]:
        """Return the record with the times; all ranks must call it."""
        found, world, request = self.record, self.world, self.request
        if not times.steps:
            return found
        found["step_time_s"], found["rank_spread_s"] = times.slowest(world)
        found["noise"] = times.noise(world)
        ranks = world.gather([np.median(times.dispatched) / np.median(times.steps), np.median(times.waited)])
        found["host_share"] = float(np.clip(ranks[:, 0].max(), 0.0, 1.0))
        found["input_wait_s"] = float(ranks[:, 1].max())
        found["matmul_flops_per_s"] = matmul
        place, busy = found["placement"], found["noise"]["cpu_per_wall"]
        if place["pinned"] and busy is not None:
            # Whoever waits on a core of its own sleeps: what is not CPU time was waiting, here the idlest rank's.
            found["idle_share"] = max(0.0, 1 - busy / place["cores_per_device"])
        if rivals:
            by_hand, silent = (rivals[name].slowest(world)[0]["p50"] for name in ("by hand", "silent"))
            found["exposed_communication_s"] = by_hand - silent
            found["communication_s"] = rivals["all-reduce"].slowest(world)[0]["p50"]
            found["extra"]["step_time_by_hand_s"] = by_hand
        if request["family"] not in TRAINING:
            found |= kernels.rates(request, found["step_time_s"])
        return found


def measure(
    requests: Sequence[Mapping[str, Any]], world: World, seed: int, told: Callable[[str, int], None]
) -> list[dict[str, Any]]:
    """Measure cells in alternated blocks and return their records, in order; all ranks must call it.

    The first cell says how many steps and blocks all of them get, and how long they warm up. told is called with a
    cell's id and its steps so far, before each block.
    """
    clock = Clock(world)
    cells = []
    for request in requests:
        told(request["id"], 0)
        cells.append(Cell(request, world, seed))
    runs: list[tuple[Callable[[], Any], float]] = []
    whose: list[tuple[Cell, str | None]] = []
    for cell in cells:
        runs.append((cell.call, float(cell.request.get("loader_s") or 0.0)))
        whose.append((cell, None))
        for name, call in cell.rivals.items():
            runs.append((call, 0.0))
            whose.append((cell, name))
    first = requests[0]
    steps, blocks = int(first.get("steps", 24)), max(1, int(first.get("blocks", 3)))
    times = take_turns(
        clock, runs, steps, blocks, int(first.get("warmup", 5)),
        lambda place, count: told(whose[place][0].request["id"], count),
    )  # fmt: skip
    records = []
    for cell in cells:
        mine = {name: time for (owner, name), time in zip(whose, times, strict=True) if owner is cell}
        rate = None
        if cell.step is not None and steps:
            rate = kernels.rate_in_step(cell.request, world.devices, clock)
        records.append(cell.finish(mine.pop(None), {str(name): time for name, time in mine.items()}, rate))
        if cell.request.get("trace"):
            told(cell.request["id"], steps)
            _trace(cell.call, Path(cell.request["trace"]), world)
    return records


def _trace(call: Callable[[], Any], path: Path, world: World) -> None:
    """Profile a few steps on rank 0 into one Chrome trace, which `course.traces.read_trace` reads; all ranks step."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        if world.rank == 0:
            jax.profiler.start_trace(folder)
        for number in range(TRACED_STEPS):
            with jax.profiler.StepTraceAnnotation("lab_step", step_num=number):
                jax.block_until_ready(call())
        if world.rank == 0:
            jax.profiler.stop_trace()
            written = next(Path(folder).rglob("*.trace.json.gz"))
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".json":
                path.write_bytes(gzip.decompress(written.read_bytes()))
            else:
                shutil.copyfile(written, path)


def _peak(figures: Mapping[str, Any], devices: Sequence[jax.Device]) -> tuple[float | None, str]:
    """GiB of one device at most, and who says so: its allocator, or where it has none the compiler, exactly."""
    here = [device for device in devices if device.process_index == devices[0].client.process_index()]
    stats = (here[0].memory_stats() if here else None) or {}
    if "peak_bytes_in_use" in stats:
        return float(stats["peak_bytes_in_use"]) / 2**30, "allocator"
    parts = [figures[name] for name in ("argument_bytes", "output_bytes", "temporary_bytes", "aliased_bytes")]
    if None in parts:
        return None, "nobody"
    return float(sum(parts[:3]) - parts[3]) / 2**30, "compiler"


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in ("jax", "jaxlib", "numpy")}}
