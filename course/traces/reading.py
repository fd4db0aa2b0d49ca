"""From a path to the events of a Chrome trace, with one sentence for whatever else the file turns out to be."""

from __future__ import annotations

import gc
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.fields import show
from course.files import read_bytes

__all__ = ["RECORD_HOST", "RECORD_JAX", "RECORD_TORCH", "NotATrace", "events"]

RECORD_TORCH = (
    "In PyTorch record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) and write "
    "the file with export_chrome_trace"
)
RECORD_JAX = "in JAX with jax.profiler.start_trace(folder) and stop_trace(), and give that folder"
RECORD_HOST = (
    "Record a run on GPUs with ProfilerActivity.CUDA among the activities; one on CPUs with the backend gloo, in a "
    "step that communicates"
)
_RECORD = f"{RECORD_TORCH}; {RECORD_JAX}."
_WANTED = "a trace that PyTorch's or JAX's profiler wrote, .json or .json.gz"
_ENDINGS = (".trace.json.gz", ".trace.json", ".json.gz", ".json")
_MAGIC = (
    (b"PK\x03\x04", "a zip archive. Unpack it and give the trace inside."),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd. Unpack it first, or compress it with gzip."),
    (b"BZh", "compressed by bzip2. Unpack it first, or compress it with gzip."),
    (b"\xfd7zXZ", "compressed by xz. Unpack it first, or compress it with gzip."),
    (b"SQLite format 3", f"a database, as Nsight Systems or rocprof write it, and no Chrome trace. {_RECORD}"),
    (b"\x80", f"a pickle, perhaps a memory snapshot, and no Chrome trace. {_RECORD}"),
)

Event = dict[str, Any]


class NotATrace(UserError):
    """The file is no trace that can be read; the message says what it is and what to record instead."""


def events(path: str | Path) -> tuple[Path, dict[str, Any], list[Event]]:
    """The file that was read, what it says beside its events, and its events.

    `path` names a .json or .json.gz file or a folder with exactly one trace in it, at any depth; of a JAX profile
    folder the newest recording. Raises `NotATrace` with what is wrong.

    >>> events("no such trace.json")
    Traceback (most recent call last):
        ...
    course.traces.reading.NotATrace: There is no file "no such trace.json". Check the path.
    """
    file = _inside(Path(path)) if Path(path).is_dir() else Path(path)
    name = show(file.name)
    data = _unpacked(read_bytes(file, "trace", _WANTED, NotATrace), name, file.suffix)
    found = _parsed(data, name)
    about: dict[str, Any] = {}
    if isinstance(found, dict):
        about = {key: value for key, value in found.items() if key != "traceEvents"}
        found = found.get("traceEvents")
        if found is None:
            raise NotATrace(f"{name} is JSON without traceEvents, so it is no Chrome trace. {_RECORD}")
    if not isinstance(found, list) or not all(isinstance(event, dict) for event in found):
        raise NotATrace(f"{name} is JSON, but its events are no list of objects, so it is no Chrome trace. {_RECORD}")
    if not any(event.get("ph") == "X" for event in found):
        raise NotATrace(f"{name} is a trace without a single timed event: nothing was recorded. {_RECORD}")
    return file, about, found


def _inside(folder: Path) -> Path:
    """The one trace below a folder; JAX keeps each recording in a folder of its own, named by its date."""
    found = sorted(file for file in folder.rglob("*") if file.is_file() and file.name.endswith(_ENDINGS))
    found = [file for file in found if not file.name.startswith("perfetto_trace")]  # JAX's second copy of the same
    if any(file.parent.parent.name == "profile" for file in found):
        newest = max(file.parent for file in found if file.parent.parent.name == "profile")
        found = [file for file in found if file.parent == newest]
    if not found:
        raise NotATrace(f"The folder {show(str(folder))} holds no .json or .json.gz file. {_RECORD}")
    if len(found) > 1:
        some = ", ".join(show(file.name) for file in found[:3]) + (", …" if len(found) > 3 else "")
        raise NotATrace(f"The folder {show(str(folder))} holds {len(found)} traces ({some}). Give the path of one.")
    return found[0]


def _unpacked(data: bytes, name: str, suffix: str) -> bytes:
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as reason:
            cut = isinstance(reason, EOFError)
            how = "ends in the middle: it was cut off while written or copied" if cut else "is damaged inside its gzip"
            raise NotATrace(f"{name} {how}. Copy it again, or record again and let the profiler finish.") from None
    if not data.strip():
        raise NotATrace(f"{name} is empty: the profiler was never stopped or never exported. {_RECORD}")
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise NotATrace(f"{name} is {what}")
    if suffix in (".pb", ".xplane"):
        raise NotATrace(f"{name} is an XPlane protocol buffer. Give the .trace.json.gz that JAX wrote beside it.")
    return data


def _parsed(data: bytes, name: str) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        if reason.end == len(data) and data.lstrip()[:1] in (b"{", b"["):
            raise NotATrace(_truncated(name)) from None
        raise NotATrace(f"{name} is not text, so it is no Chrome trace. {_RECORD}") from None
    if text.lstrip()[:1] not in ("{", "["):
        raise NotATrace(f"{name} is not JSON, so it is no Chrome trace. {_RECORD}")
    collects = gc.isenabled()
    gc.disable()  # a million new objects, none of them in a cycle: half of the time would be spent looking for one
    try:
        return json.loads(text)
    except json.JSONDecodeError as reason:
        if reason.msg.startswith("Unterminated string") or reason.pos >= len(text.rstrip()) - 8:
            raise NotATrace(_truncated(name)) from None
        at = f"line {reason.lineno}, column {reason.colno}"
        raise NotATrace(f"{name} is broken JSON at {at} ({reason.msg}). Record it again; do not edit it.") from None
    except (RecursionError, ValueError):
        raise NotATrace(f"{name} is JSON that no profiler writes, so it is no Chrome trace. {_RECORD}") from None
    finally:
        if collects:
            gc.enable()


def _truncated(name: str) -> str:
    return f"{name} ends in the middle: the program stopped while writing it. Record again and let the profiler finish."
