"""The inside of the sandbox: calls a learner's function case by case, guarded, and writes what came of it.

It runs in a child process that is thrown away. Results are JSON, never pickle: what a learner's code may have forged
is only read as data. An audit hook refuses what a calculation never needs: processes, threads, signals, files written.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Refused", "decode", "encode_value", "guard", "limit", "work"]

MOST_NUMBERS = 100_000
GIB = 2**30
_dumps = json.dumps

_REFUSED = {
    "os.kill": "sends a signal to a process", "os.killpg": "sends a signal to a process",
    "signal.pthread_kill": "sends a signal", "os.fork": "starts a process", "os.forkpty": "starts a process",
    "os.exec": "starts a program", "os.posix_spawn": "starts a process", "os.spawn": "starts a process",
    "os.system": "starts a program", "subprocess.Popen": "starts a program", "pty.spawn": "starts a program",
    "_thread.start_new_thread": "starts a thread", "_thread.start_joinable_thread": "starts a thread",
    "socket.connect": "opens a connection", "socket.bind": "opens a connection", "socket.sendto": "opens a connection",
    "os.remove": "removes a file", "os.rename": "renames a file", "os.rmdir": "removes a folder",
    "os.mkdir": "makes a folder", "os.truncate": "changes a file", "os.link": "makes a file",
    "os.symlink": "makes a file", "os.chmod": "changes a file", "os.chown": "changes a file",
}  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class Refused(BaseException):
    """Learner code tried what a calculation never needs. Not an Exception, so that `except Exception` lets it pass."""


class _Sink(io.TextIOBase):
    """A stream that counts what is written and forgets it."""

    written = 0
    encoding = "utf-8"

    def write(self, text: str) -> int:
        self.written += len(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Learner code may close it; nothing happens."""


# ---------------------------------------------------------------- values to data and back
def encode_value(value: Any) -> dict[str, Any]:
    """Return a returned value as plain data; numbers exactly, NumPy arrays of numbers with their shape.

    >>> encode_value(0.5), encode_value(None), encode_value("x")
    ({'kind': 'number', 'value': 0.5}, {'kind': 'none'}, {'kind': 'other', 'type': 'str'})
    """
    if value is None:
        return {"kind": "none"}
    if isinstance(value, bool):
        return {"kind": "other", "type": "bool", "false": not value}
    if isinstance(value, str | bytes | complex):
        return {"kind": "other", "type": type(value).__name__}
    kind = type(value)
    if isinstance(value, list | tuple):
        flat = [item for item in value if isinstance(item, int | float) and not isinstance(item, bool)]
        if len(flat) == len(value) and 0 < len(flat) <= MOST_NUMBERS:
            return _numbers([float(item) for item in flat], [len(flat)])
        return {"kind": "other", "type": kind.__name__}
    if all(hasattr(kind, name) for name in ("shape", "dtype", "tolist", "ravel")):
        shape = [int(n) for n in value.shape]
        if str(getattr(value.dtype, "kind", "f")) not in "iuf":
            return {"kind": "other", "type": f"array of {value.dtype}"}
        if math.prod(shape) > MOST_NUMBERS:
            return {"kind": "other", "type": f"array of {math.prod(shape):,} numbers"}
        return _numbers([float(item) for item in value.ravel().tolist()], shape)
    if isinstance(value, int) and abs(value) < 2**53:
        return {"kind": "number", "value": int(value)}  # stays whole: an argument may be a count
    try:
        number = float(value)  # int, float, Fraction, Decimal, a SymPy number
    except OverflowError:
        return {"kind": "infinite"}
    except Exception:
        return {"kind": "other", "type": kind.__name__}
    return _numbers([number], [])


def _numbers(flat: list[float], shape: list[int]) -> dict[str, Any]:
    if any(math.isnan(number) for number in flat):
        return {"kind": "nan"}
    if any(math.isinf(number) for number in flat):
        return {"kind": "infinite"}
    if not shape:
        return {"kind": "number", "value": flat[0]}
    return {"kind": "array", "shape": shape, "values": flat}


def decode(data: dict[str, Any]) -> Any:
    """Return the value of encoded data: a float or whole number, a new NumPy array, or a function from its source."""
    if data["kind"] == "number":
        return data["value"]
    if data["kind"] == "array":
        import numpy as np

        return np.array(data["values"], dtype=float).reshape(data["shape"])
    if data["kind"] == "source":
        namespace: dict[str, Any] = {"__name__": "version"}
        exec(compile(data["text"], "<version>", "exec"), namespace)  # text of a question, never of a learner
        return namespace[data["name"]]
    raise ValueError(f"{data['kind']!r} is no value.")


# ---------------------------------------------------------------- limits
def limit(seconds: float, memory: int) -> None:
    """Limit this process: `memory` bytes beyond what it has, CPU seconds, no files written, no core file."""
    with contextlib.suppress(ImportError):
        import resource

        def at_most(what: int, amount: int) -> None:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(what, (amount, amount))

        with contextlib.suppress(OSError, ValueError):  # /proc is Linux's; elsewhere no memory limit is kept
            with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
                pages = int(file.read().split()[0])
            at_most(resource.RLIMIT_AS, pages * resource.getpagesize() + memory)
        at_most(resource.RLIMIT_CPU, int(seconds) + 2)
        at_most(resource.RLIMIT_FSIZE, 0)
        at_most(resource.RLIMIT_CORE, 0)


def guard(seen: list[str]) -> None:
    """Refuse, for the rest of this process, what a calculation never needs; what was tried is appended to `seen`."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        words = _REFUSED.get(event)
        if words is None and event == "open" and len(arguments) > 2:
            path, mode, flags = arguments[:3]
            writes = (
                any(c in mode for c in "wax+") if isinstance(mode, str) else isinstance(flags, int) and flags & _WRITES
            )
            words = "writes a file" if writes and path != os.devnull else None
        elif words is None and event.startswith("shutil."):
            words = "changes files"
        if words is not None:
            seen.append(words)
            raise Refused(words)

    def no_thread(*_: Any, **__: Any) -> None:
        seen.append("starts a thread")
        raise Refused("starts a thread")

    sys.dont_write_bytecode = True
    sys.addaudithook(hook)
    for module in filter(None, map(sys.modules.get, ("_thread", "threading"))):  # Python 3.11 has no event for it
        for name in (
            "start_new_thread",
            "start_new",
            "_start_new_thread",
            "start_joinable_thread",
            "_start_joinable_thread",
        ):
            if hasattr(module, name):
                setattr(module, name, no_thread)


# ---------------------------------------------------------------- the work
def work(function: Callable[..., Any], cases: list[list[dict[str, Any]]], write: Callable[[bytes], Any]) -> None:
    """Call the function on each case and write one line of JSON a call. The process must exit after this."""
    sink = _Sink()
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = sink  # type: ignore[misc, assignment]
    seen: list[str] = []
    guard(seen)
    for case in cases:
        outcome = _call(function, case, sink)
        if seen:
            outcome = {"refused": seen[0]}
        write(_dumps(outcome).encode() + b"\n")
        if seen:
            return
    write(b'{"end": "done"}\n')


def _call(function: Callable[..., Any], case: list[dict[str, Any]], sink: _Sink) -> dict[str, Any]:
    arguments = [decode(item) for item in case]
    before = sink.written
    try:
        value = encode_value(function(*arguments))
        changed = any(encode_value(a) != i for a, i in zip(arguments, case, strict=True) if i["kind"] == "array")
    except BaseException as error:
        return {"raised": type(error).__name__[:80], "said": _said(error)}
    return {"value": value, "printed": sink.written > before, "mutated": changed}


def _said(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:
        return ""
