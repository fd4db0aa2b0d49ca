"""Timed steps: every rank starts after a barrier and waits for its own device; the slowest rank's time is the step's.

Cells that belong together are measured in alternated blocks, there and back, so that a neighbour on the machine or a
clock that slows down meets all of them alike.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course.lab.noise import Sample, between, sample
from course.lab.torch_engine.ranks import Ranks

__all__ = ["Lane", "Loader", "gathered", "measure", "spread"]


class Loader:
    """Input that takes its time: a thread prepares the next batch while a step computes, `seconds` for each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ready: queue.Queue[None] = queue.Queue(maxsize=1)
        self._ends = threading.Event()
        threading.Thread(target=self._prepare, daemon=True).start()

    def _prepare(self) -> None:
        while not self._ends.wait(self._seconds):
            while not self._ends.is_set():
                try:
                    self._ready.put(None, timeout=0.2)
                    break
                except queue.Full:
                    continue

    def wait(self) -> None:
        """Return when a batch is ready."""
        self._ready.get()

    def close(self) -> None:
        """Stop preparing."""
        self._ends.set()


@dataclass
class Lane:
    """One thing that is measured: what to call for a step, and what its steps took on this rank, in seconds."""

    name: str
    step: Callable[[], Any]
    steps: int
    loader: Loader | None = None
    own: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    issued: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    samples: list[tuple[Sample, Sample]] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)

    def run(self, ranks: Ranks, count: int) -> None:
        """So many timed steps."""
        ranks.beat(self.name, len(self.own))
        clock, busy, step, synchronize = time.perf_counter, time.process_time, self.step, ranks.device.synchronize
        ranks.barrier()
        first = sample()
        for _ in range(count):
            ranks.barrier()
            burnt, start = busy(), clock()
            if self.loader is not None:
                self.loader.wait()
            ready = clock()
            step()
            issued = clock()
            synchronize()
            self.own.append(clock() - start)
            self.cpu.append(busy() - burnt)
            self.issued.append(issued - ready)
            self.waited.append(ready - start)
        ranks.barrier()
        self.samples.append((first, sample()))
        self.blocks.append(count)

    def figures(self) -> dict[str, Any]:
        """What the other ranks need to know."""
        return {
            "own": self.own, "cpu": self.cpu, "issued": self.issued, "waited": self.waited,
            "samples": (_sum(self.samples, 0), _sum(self.samples, 1)),
        }  # fmt: skip


def _sum(samples: Sequence[tuple[Sample, Sample]], end: int) -> Sample:
    """Blocks laid end to end: one pair of samples, between which only this lane ran."""

    def total(name: str) -> Any:
        values = [getattr(pair[end], name) for pair in samples]
        return None if None in values else sum(values)

    return Sample(*(total(name) for name in ("wall_s", "own_cpu_s", "all_cpu_s", "waiting_s")))


def measure(cells: Sequence[tuple[str, Ranks, Sequence[Lane]]], blocks: int, at: Callable[[str], None]) -> None:
    """The lanes of all cells, each on its ranks, in alternated blocks: a, b, b, a, …

    Args:
        cells: names, ranks and lanes; blocks: how often each has its turn.
        at: called with the name of the cell whose turn it is, so that a failure is told of the right one.
    """
    for block in range(blocks):
        for name, ranks, lanes in cells if block % 2 == 0 else reversed(cells):
            at(name)
            ranks.beat(name, len(lanes[0].own) if lanes else 0)
            for lane in lanes if block % 2 == 0 else reversed(lanes):
                done = lane.steps * block // blocks
                lane.run(ranks, lane.steps * (block + 1) // blocks - done)
            ranks.meet()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Percentiles and count.

    >>> spread([1.0, 2.0, 3.0])["p50"], spread([1.0, 2.0, 3.0])["n"]
    (2.0, 3)
    """
    low, middle, high = np.percentile(np.asarray(values, dtype=float), (10, 50, 90)).tolist()
    return {"p10": low, "p50": middle, "p90": high, "n": len(values), "min": float(min(values))}


def gathered(lane: Lane, ranks: Ranks) -> dict[str, Any]:
    """What the lane's steps took, over all ranks: keys of the report."""
    everyone = ranks.gather(lane.figures())
    hosts = [place["host"] for place in ranks.placement]
    own = np.array([one["own"] for one in everyone])
    slowest = own.max(axis=0)
    cpu = np.array([one["cpu"] for one in everyone])
    noises = []
    for rank, one in enumerate(everyone):
        together = sum(
            other["samples"][1].own_cpu_s - other["samples"][0].own_cpu_s
            for host, other in zip(hosts, everyone, strict=True) if host == hosts[rank]
        )  # fmt: skip
        noises.append(between(one["samples"][0], one["samples"][1], together))
    figures: dict[str, Any] = {
        "step_time_s": spread(slowest.tolist()),
        "rank_spread_s": float(np.median(slowest - np.median(own, axis=0))),
        "input_wait_s": float(np.median(np.array([one["waited"] for one in everyone]).max(axis=0))),
        "noise": {
            "foreign_cores": _worst(noises, "foreign_cores", max),
            "runq_wait": _worst(noises, "runq_wait", max),
            "cpu_per_wall": _worst(noises, "cpu_per_wall", min),
        },
        "extra": {
            "rank_step_time_s": [float(value) for value in np.median(own, axis=1)],
            "block_step_time_s": [
                float(np.median(block)) for block in np.split(slowest, np.cumsum(lane.blocks)[:-1]) if len(block)
            ],
        },
    }
    if ranks.device.is_cpu:
        figures["idle_share"] = max(0.0, 1.0 - float(cpu.sum()) / (ranks.world * float(slowest.sum())))
    else:
        # The host runs ahead of its device; where issuing takes as long as the step does, the device waits for it.
        issued = np.array([one["issued"] for one in everyone])
        figures["host_share"] = min(1.0, float(np.median(issued.max(axis=0) / slowest)))
        figures["extra"]["host_share_from"] = "time to issue a step over the time of the step"
    return figures


def _worst(noises: Sequence[dict[str, float | None]], name: str, pick: Callable[[Any], float]) -> float | None:
    known = [one[name] for one in noises if one[name] is not None]
    return pick(known) if known else None
