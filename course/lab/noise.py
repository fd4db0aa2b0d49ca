"""Was the machine quiet while a cell was measured? Three cheap numbers of Linux tell; elsewhere they are None.

foreign_cores  cores that other programs kept busy, in cores
runq_wait      seconds our threads were ready to run and did not, per second
cpu_per_wall   CPU seconds we had, per second
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["QUIET_FOREIGN_CORES", "Sample", "between", "loudness", "noisy", "sample"]

QUIET_FOREIGN_CORES = 0.15
"""Above it a step that needs all cores was seen to lengthen by more than its own spread; below 0.1 it was not."""

QUIET_CPU_PER_WALL = 0.9
"""A single rank that computes and waits for nobody gets 0.97 of a core on a quiet machine."""


@dataclass(frozen=True)
class Sample:
    """Counters of one moment: seconds of the clock, CPU of this process, of all processes, waiting for a core."""

    wall_s: float
    own_cpu_s: float
    all_cpu_s: float | None
    waiting_s: float | None


def sample() -> Sample:
    """The counters now, of this process and of the machine.

    >>> first = sample()
    >>> between(first, sample())["cpu_per_wall"] >= 0
    True
    """
    return Sample(time.perf_counter(), time.process_time(), _all_cpu_s(), _waiting_s())


def between(first: Sample, last: Sample, ranks_cpu_s: float | None = None) -> dict[str, float | None]:
    """The noise between two samples of one process.

    Args:
        first, last: the samples before and after.
        ranks_cpu_s: CPU seconds of all ranks on this host in between, where there are several; else this process's.

    Linux counts the time of all processes in ticks, on each core: what lies below one a core was not seen.

    >>> found = between(Sample(0, 0, 0, 0), Sample(200, 190, 250, 20))
    >>> found["runq_wait"], found["cpu_per_wall"], 0.2 < found["foreign_cores"] < 0.3
    (0.1, 0.95, True)
    """
    wall = max(last.wall_s - first.wall_s, 1e-9)
    own = last.own_cpu_s - first.own_cpu_s
    foreign = waited = None
    if first.all_cpu_s is not None and last.all_cpu_s is not None:
        ours = own if ranks_cpu_s is None else ranks_cpu_s
        unseen = (os.cpu_count() or 1) / _ticks_a_second()
        foreign = round(max(0.0, last.all_cpu_s - first.all_cpu_s - ours - unseen) / wall, 4)
    if first.waiting_s is not None and last.waiting_s is not None:
        waited = round(max(0.0, last.waiting_s - first.waiting_s) / wall, 4)
    return {"foreign_cores": foreign, "runq_wait": waited, "cpu_per_wall": round(own / wall, 4)}


def noisy(noise: Mapping[str, Any] | None, ranks: int, cores: int, waits: bool = True) -> str | None:
    """Why a cell's times are not to be trusted, or None.

    Args:
        noise: as `between` gives it, the worst over ranks.
        ranks: ranks on this host; cores: cores of this host.
        waits: the ranks wait for something other than a core: for each other, for input, for a device.

    Ranks that outnumber the cores are judged by nobody: they disturb each other.

    >>> noisy({"foreign_cores": 0.4, "cpu_per_wall": 0.8}, ranks=2, cores=2)
    'other programs took 0.40 cores'
    >>> noisy({"foreign_cores": 0.4, "cpu_per_wall": 0.99}, ranks=1, cores=2, waits=False) is None
    True
    """
    if not noise or ranks > cores:
        return None
    foreign, had = noise.get("foreign_cores"), noise.get("cpu_per_wall")
    if foreign is not None and foreign > cores - ranks + QUIET_FOREIGN_CORES:
        return f"other programs took {foreign:.2f} cores"
    if not waits and had is not None and had < QUIET_CPU_PER_WALL:
        return f"the rank had {had:.2f} of a core"
    return None


def loudness(noise: Mapping[str, Any] | None) -> float:
    """One number to choose the quietest of several attempts by; without noise figures 0.

    >>> loudness({"foreign_cores": 0.2, "runq_wait": None}) < loudness({"foreign_cores": 0.3})
    True
    """
    noise = noise or {}
    return float(noise.get("foreign_cores") or 0.0) + 0.1 * float(noise.get("runq_wait") or 0.0)


def _all_cpu_s() -> float | None:
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _waiting, interrupt, soft = (int(number) for number in fields[:7])
    except (OSError, ValueError):
        return None
    return (user + nice + system + interrupt + soft) / _ticks_a_second()


def _ticks_a_second() -> float:
    return os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100.0


def _waiting_s() -> float | None:
    total = 0
    try:
        for thread in Path("/proc/self/task").iterdir():
            try:
                total += int((thread / "schedstat").read_text(encoding="ascii").split()[1])
            except FileNotFoundError:  # the thread ended while we looked
                continue
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9
