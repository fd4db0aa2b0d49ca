"""Runs a learner's function where it can harm nothing: in a forked child, or in a fresh process, with limits.

A forked child knows everything the notebook knows and starts in a millisecond. Where the platform does not fork safely
(anything but Linux; torch or JAX loaded, whose threads and locks do not survive a fork), a fresh Python gets the
function's source instead. Either way the parent waits for a pipe, and kills.

>>> run(lambda n: n + 1, [[{"kind": "number", "value": 1}]])["cases"]
[{'value': {'kind': 'number', 'value': 2}, 'printed': False, 'mutated': False}]
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course.grading import cell
from course.grading.source import NoSource, portable

__all__ = ["forks", "run"]

SECONDS = 5.0
MEMORY = 2**30
START_SECONDS = 60.0
GRACE_SECONDS = 1.0
MOST_BYTES = 20_000_000
_NO_FORK = ("torch", "jax", "jaxlib", "tensorflow")

Record = dict[str, Any]


def forks() -> bool:
    """Whether this process may be forked: on Linux, with no library loaded whose threads would be lost."""
    return sys.platform == "linux" and not any(name in sys.modules for name in _NO_FORK)


def run(
    function: Callable[..., Any],
    cases: list[list[dict[str, Any]]],
    seconds: float = SECONDS,
    memory: int = MEMORY,
    fork: bool | None = None,
) -> Record:
    """Call a function on encoded cases in a child process; return what came of it.

    Arguments: function, the learner's; cases, a list of encoded arguments a call; seconds, for all calls together;
    memory, bytes the calls may take; fork, True or False to force the way (for tests).
    Returns `cases`, an outcome for each call that ended, and `end`: "done", or a dictionary with `how` ("timeout",
    "exit", "memory", "crash", "flood", "source", "start") and details. Raises nothing but KeyboardInterrupt.
    """
    if forks() if fork is None else fork:
        return _forked(function, cases, seconds, memory)
    return _fresh(function, cases, seconds, memory)


# ---------------------------------------------------------------- a forked child
def _forked(function: Callable[..., Any], cases: list[list[dict[str, Any]]], seconds: float, memory: int) -> Record:
    out, into = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns that threads do not survive a fork; the child uses none, and ends by os._exit.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError as error:
        os.close(out)
        os.close(into)
        return {"cases": [], "end": {"how": "start", "why": str(error.strerror)}}
    if child == 0:
        _inside(function, cases, into, seconds, memory)
    os.close(into)
    try:
        lines, how = _read(out, seconds)
        status = _ended(child, GRACE_SECONDS) if how == "closed" else None
    finally:
        os.close(out)
        _kill(child)
    return _record(lines, how, status, seconds, memory)


def _inside(function: Callable[..., Any], cases: Any, into: int, seconds: float, memory: int) -> None:
    """The child's whole life. It never returns into the notebook's code, whatever happens."""
    try:
        gc.disable()  # nothing of the parent's (sockets, threads) may be finalised here
        os.setsid()
        os.closerange(3, into)  # what the notebook has open is out of reach
        os.closerange(into + 1, os.sysconf("SC_OPEN_MAX"))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        cell.limit(seconds, memory)
        cell.work(function, cases, lambda line: _write_all(into, line))
    except BaseException:
        os._exit(70)
    os._exit(0)


def _write_all(into: int, line: bytes) -> None:
    while line:
        line = line[os.write(into, line) :]


def _read(out: int, seconds: float) -> tuple[bytes, str]:
    """What the child wrote until it closed the pipe, and how that ended: "closed", "timeout" or "flood"."""
    deadline = time.monotonic() + seconds
    data = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return data, "timeout"
        ready, _, _ = select.select([out], [], [], left)
        if not ready:
            return data, "timeout"
        piece = os.read(out, 65536)
        if not piece:
            return data, "closed"
        data += piece
        if len(data) > MOST_BYTES:
            return data, "flood"
        if data.endswith(b'{"end": "done"}\n'):
            return data, "closed"


def _ended(child: int, seconds: float) -> int | None:
    """The wait status of a child that ends by itself within some seconds; None when it does not, or is not ours."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
    return None


def _kill(child: int) -> None:
    """Kill the child and its group, if it has not been waited for."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return
        for kill in (os.killpg, os.kill):  # it may not have made its own group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _record(data: bytes, how: str, status: int | None, seconds: float, memory: int) -> Record:
    """Turn what was read into outcomes. The data may be forged or cut: it is read line by line, as data."""
    cases: list[Any] = []
    done = False
    for line in data.split(b"\n"):
        if line.strip():
            with contextlib.suppress(ValueError, RecursionError):
                outcome = json.loads(line)
                if outcome == {"end": "done"}:
                    done = True
                elif isinstance(outcome, dict):
                    cases.append(outcome)
    end: Any = "done"
    if any("refused" in outcome for outcome in cases):
        end = "done"
    elif how in ("timeout", "flood"):
        end = {"how": how, "seconds": f"{seconds:g}"}
    elif not done:
        end = _death(status, seconds, memory)
    return {"cases": cases, "end": end}


def _death(status: int | None, seconds: float, memory: int) -> dict[str, Any]:
    if status is not None and os.name == "posix" and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == getattr(signal, "SIGXCPU", -1):
            return {"how": "timeout", "seconds": f"{seconds:g}"}
        if number == signal.SIGKILL:
            return {"how": "memory", "gib": f"{memory / 2**30:g}"}
        return {"how": "crash", "signal": signal.Signals(number).name}
    return {"how": "exit"}


# ---------------------------------------------------------------- a fresh process
_BOOT = "import sys; sys.path.insert(0, {path!r}); from course.grading.apart import main; main()"


def _fresh(function: Callable[..., Any], cases: list[list[dict[str, Any]]], seconds: float, memory: int) -> Record:
    try:
        source = portable(function)
    except NoSource as error:
        return {"cases": [], "end": {"how": "source", "why": str(error)}}
    task = {"source": source, "cases": cases, "seconds": seconds, "memory": memory}
    package = str(Path(__file__).resolve().parents[2])
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT.format(path=package)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return {"cases": [], "end": {"how": "start", "why": str(error.strerror)}}
    assert child.stdin is not None and child.stdout is not None
    code: int | None = None
    try:
        with contextlib.suppress(OSError):
            child.stdin.write(json.dumps(task).encode())
            child.stdin.close()
        data, how = _read_fresh(child, seconds)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(GRACE_SECONDS) if how == "closed" else None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL) if os.name == "posix" and child.poll() is None else child.kill()
        child.wait()
        child.stdout.close()
    status = None if code is None else -code if code < 0 else code << 8
    return _record(data, how, status, seconds, memory)


def _read_fresh(child: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, str]:
    """As `_read`; the time counts from the moment the process says that it has started."""
    import threading

    pieces: list[bytes] = []
    started, ended = threading.Event(), threading.Event()

    def pump() -> None:
        stream = child.stdout
        assert stream is not None
        with contextlib.suppress(ValueError, OSError):
            stream.readline()  # "ready"
            started.set()
            while (piece := stream.read1(65536)) and sum(map(len, pieces)) < MOST_BYTES:  # type: ignore[attr-defined]
                pieces.append(piece)
        started.set()
        ended.set()

    threading.Thread(target=pump, daemon=True).start()
    started.wait(START_SECONDS)
    closed = ended.wait(seconds)
    data = b"".join(pieces)
    return data, "flood" if len(data) >= MOST_BYTES else "closed" if closed else "timeout"
