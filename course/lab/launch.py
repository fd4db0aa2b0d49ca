"""One launch: a group of ranks started, watched and ended; whatever happens to a rank, one sentence and no process.

Torch ranks stand below torchrun; JAX ranks, and a single one, are started here with the same environment names. A rank
says where it is in heartbeat.RANK and how it failed in error.RANK.json; finished cells are lines of cells.jsonl.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from course.lab.causes import Beat, Failure, exits_of_torchrun, explain

__all__ = ["Outcome", "Plan", "launch", "left_running", "plan"]

MARK = "COURSE_LAB_LAUNCH"
"""An environment name that every process below a launch inherits: what is left running is found by it."""

POLL_S, GRACE_S, STARTUP_S = 0.05, 3.0, 180.0
SILENCE_BEYOND_COLLECTIVES_S = 60.0
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


@dataclass(frozen=True)
class Plan:
    """What is started: one command under torchrun's care, or one a rank; `pin` lists a core for each command."""

    commands: Sequence[Sequence[str]]
    environments: Sequence[Mapping[str, str]]
    torchrun: bool
    pin: Sequence[int] = ()


@dataclass(frozen=True)
class Outcome:
    """How a launch ended: the lines of its finished cells, and the failure where there was one."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    failure: Failure | None = None
    seconds: float = 0.0
    started: bool = True


def plan(engine: str, ranks: int, config: Path, threads: int = 1, pin: Sequence[int] = ()) -> Plan:
    """The commands of a launch on this host.

    >>> made = plan("jax", 2, Path("config.json"))
    >>> [environment["RANK"] for environment in made.environments], made.torchrun
    (['0', '1'], False)
    >>> plan("torch", 2, Path("config.json")).torchrun
    True
    """
    worker = ["-m", f"course.lab.{engine}_engine", str(config)]
    port = _free_port()
    shared = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if engine == "torch" and ranks > 1:
        run = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}",
               "--master-addr=127.0.0.1", f"--master-port={port}"]  # fmt: skip
        return Plan([[*run, *worker]], [shared], torchrun=True, pin=pin)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    environments = [shared | address | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return Plan([[sys.executable, *worker]] * ranks, environments, torchrun=False, pin=pin)


def launch(
    made: Plan, folder: Path, cells: Sequence[str], *, ranks: int, timeout_s: float, silence_s: float | None = None,
    on_cell: Callable[[dict[str, Any]], None] | None = None, on_beat: Callable[[Beat], None] | None = None,
) -> Outcome:  # fmt: skip
    """Start the ranks, watch them, and end them all.

    Args:
        made: what to start, as `plan` gives it.
        folder: of this launch alone; workers write into it.
        cells: ids of the cells that the configuration asks for, in its order.
        ranks: how many there are.
        timeout_s: the longest the launch may take; silence_s the longest without a sign of any rank.
        on_cell: called with each finished cell at once; on_beat with the latest sign of rank 0.

    Raises whatever the calls raise, and KeyboardInterrupt; nothing is left running then either.
    """
    token = f"{os.getpid()}:{uuid.uuid4().hex}"
    silence = silence_s if silence_s is not None else 30.0 + SILENCE_BEYOND_COLLECTIVES_S
    watch = _Watch(folder, cells, ranks, on_cell, on_beat)
    processes: list[subprocess.Popen[bytes]] = []
    began = time.monotonic()
    stopped: str | None = None
    exits: dict[int, int] = {}
    try:
        with (folder / "output.txt").open("wb") as output:
            for place, command in enumerate(made.commands):
                processes.append(_start(made, place, command, token, output))
            stopped = _follow(processes, watch, began, timeout_s, silence, made.torchrun)
            if not made.torchrun:
                exits = {rank: code for rank, one in enumerate(processes) if (code := one.poll()) is not None}
    finally:
        _end(processes, token)
    watch.look()
    if made.torchrun:
        exits = exits_of_torchrun((folder / "output.txt").read_text(encoding="utf-8", errors="replace"))
    unfinished = [name for name in cells if name not in watch.finished]
    codes = [one.returncode for one in processes]
    failure = None
    if stopped or unfinished or any(codes):
        failure = explain(folder, ranks, exits, unfinished, stopped, watch.heard, time.time())
    return Outcome(watch.lines, failure, time.monotonic() - began, started=bool(watch.heard))


def left_running(launcher: int | None = None, token: str | None = None) -> list[psutil.Process]:
    """Processes that a launch started and that still run.

    Args:
        launcher: id of the process that launched them, this one when None; token: of one launch.

    >>> left_running()
    []
    """
    wanted = token or f"{os.getpid() if launcher is None else launcher}:"
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (process.environ().get(MARK) or "").startswith(wanted) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class _Watch:
    """Reads what the workers write: new lines of cells.jsonl, and heartbeats."""

    def __init__(
        self, folder: Path, cells: Sequence[str], ranks: int, on_cell: Callable[[dict[str, Any]], None] | None,
        on_beat: Callable[[Beat], None] | None,
    ) -> None:  # fmt: skip
        self.folder, self.cells, self.ranks, self.on_cell, self.on_beat = folder, set(cells), ranks, on_cell, on_beat
        self.lines: list[dict[str, Any]] = []
        self.finished: set[str] = set()
        self.heard: dict[int, Beat] = {}
        self.news = time.monotonic()
        self._read = 0

    def look(self) -> None:
        for rank in range(self.ranks):
            beat = Beat.read(self.folder, rank)
            if beat is not None and beat != self.heard.get(rank):
                self.heard[rank] = beat
                self.news = time.monotonic()
                if rank == 0 and self.on_beat is not None:
                    self.on_beat(beat)
        for line in self._new_lines():
            self.news = time.monotonic()
            self.lines.append(line)
            self.finished.add(str(line.get("id")))
            if self.on_cell is not None:
                self.on_cell(line)

    def _new_lines(self) -> Iterator[dict[str, Any]]:
        try:
            with (self.folder / "cells.jsonl").open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be half written
        self._read += len(whole)
        for text in whole.splitlines():
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict) and line.get("id") in self.cells:
                    yield line


def _start(made: Plan, place: int, command: Sequence[str], token: str, output: Any) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])  # where `course` is, installed or a checkout
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    loopback = {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    environment = {**loopback, **os.environ, **made.environments[place], MARK: token, "PYTHONPATH": path}
    core = made.pin[place] if place < len(made.pin) else None
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    # torchrun ends its workers when it is asked to; a rank that stands alone needs no asking
    goodbye = signal.SIGTERM if made.torchrun else signal.SIGKILL

    def before() -> None:
        if prctl is not None:
            prctl(PARENT_DEATH_SIGNAL, int(goodbye))  # a killed launcher leaves no ranks behind
        if core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})

    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        start_new_session=True, preexec_fn=before if os.name == "posix" else None,
    )  # fmt: skip


def _follow(
    processes: Sequence[subprocess.Popen[bytes]], watch: _Watch, began: float, timeout_s: float, silence_s: float,
    torchrun: bool,
) -> str | None:  # fmt: skip
    """Watch until all ranks are gone or must go; returns why they must ("timeout", "silence"), or None."""
    first_end: float | None = None
    while True:
        watch.look()
        codes = [one.poll() for one in processes]
        now = time.monotonic()
        if all(code is not None for code in codes):
            return None
        failed = any(code for code in codes if code is not None)
        ended = failed or (any(code == 0 for code in codes) and watch.cells - watch.finished)
        if ended and first_end is None:
            first_end = now
        if first_end is not None and not torchrun and now - first_end > (GRACE_S if failed else 5 * GRACE_S):
            return None  # one is gone: the others wait for it in vain
        if now - began > timeout_s:
            return "timeout"
        if now - watch.news > (silence_s if watch.heard else max(silence_s, STARTUP_S)):
            return "silence"
        time.sleep(POLL_S)


def _end(processes: Sequence[subprocess.Popen[bytes]], token: str) -> None:
    """Kill what is left of a launch: torchrun's workers have sessions of their own, so its group alone is not all."""
    for _ in range(3):
        left = left_running(token=token)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        for one in processes:
            if one.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(one.pid, signal.SIGKILL)
        for one in processes:  # before psutil waits for them, which would take their exit codes away
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(timeout=5)
        psutil.wait_procs(left, timeout=5)
        if not left:
            return


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
