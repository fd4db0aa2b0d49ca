"""JAX's Chrome traces: the XLA operations of one device, on CPUs as on accelerators.

JAX marks every operation with its HLO name. On CPUs operations carry their device's number and run on threads that all
devices share; on accelerators each device is a process of its own whose streams are threads. A loop or a branch spans
the operations inside it and is no work of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from course.traces.naming import is_collective_kernel, kind_of
from course.traces.reading import NotATrace
from course.traces.recording import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    Call,
    Event,
    Mark,
    Recording,
    arguments,
    chosen,
    span,
    timed,
)

__all__ = ["on_xla"]

_CONTAINER = re.compile(r"(while|conditional|call|async-(start|update|done)|tuple|get-tuple-element)[.\d]*$")
_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast|send|recv)"
    r"\b(?!-fusion)"
)
_COPY = re.compile(r"(copy|copy-start|copy-done|Memcpy\w*|Memset\w*)[.\d]*$")


def on_xla(events: Sequence[Event], device: str | None) -> Recording | None:
    """XLA operations of one device; None where the trace is not JAX's.

    `device` as the trace names it ("0" on CPUs, "/device:GPU:0"); None for the first. Raises `NotATrace` for a device
    the trace has not, and where no operation was recorded.
    """
    processes, threads = {}, {}
    for event in events:
        if event.get("ph") == "M" and event.get("name") == "process_name":
            processes[str(event.get("pid"))] = str(arguments(event).get("name"))
        elif event.get("ph") == "M" and event.get("name") == "thread_name":
            threads[str(event.get("pid")), str(event.get("tid"))] = str(arguments(event).get("name"))
    if not any(name.startswith(("/host:", "/device:")) for name in processes.values()):
        return None
    found = list(_operations(events, processes, threads))
    if not found:
        raise NotATrace(
            "The trace is JAX's, but no XLA operation ran while it was recorded. Start the trace before a step, wait "
            "for the result with block_until_ready, then stop it."
        )
    devices = tuple(sorted({name for name, _, _ in found}, key=lambda name: (len(name), name)))
    recording = Recording("JAX, operations of XLA", chosen(device, devices), devices)
    marks = sorted(
        (
            Mark(f"{event.get('name')} {arguments(event)['step_num']}", *timed(event))
            for event in events
            if event.get("ph") == "X" and "step_num" in arguments(event)
            and processes.get(str(event.get("pid")), "").startswith("/host:")
        ),
        key=lambda mark: mark.start,
    )  # fmt: skip
    called = f"{marks[0].name} to {marks[-1].name}" if len(marks) > 1 else marks[0].name if marks else ""
    span(recording, marks, called, "from the first operation to the last")
    for name, stream, event in found:
        if name == recording.device:
            _count(recording, stream, event)
    return recording


def _operations(
    events: Sequence[Event], processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> Iterator[tuple[str, str, Event]]:
    """Device, stream and event of each operation. Lines that repeat operations under other names are left out."""
    streams = {pid for (pid, _), name in threads.items() if name.startswith("Stream")}
    for event in events:
        if event.get("ph") != "X":
            continue
        pid = str(event.get("pid"))
        process, thread = processes.get(pid, ""), threads.get((pid, str(event.get("tid"))), "")
        if process.startswith("/device:"):
            if thread.startswith("Stream" if pid in streams else ("XLA Ops", "Async XLA Ops")):
                yield process, thread, event
        elif "hlo_op" in arguments(event):
            yield str(arguments(event).get("device_ordinal", 0)), thread.split("/")[0], event


def _count(recording: Recording, stream: str, event: Event) -> None:
    name = str(event.get("name"))
    operation = str(arguments(event).get("hlo_op", name))
    if _CONTAINER.match(operation) and not is_collective_kernel(name):
        return
    start, end = timed(event)
    if is_collective_kernel(name) or _COLLECTIVE.match(operation):
        recording.add(stream, COMMUNICATION, start, end)
        recording.calls.append(Call(kind_of(operation, name), stream, start, end, None, None))
    else:
        recording.add(stream, COPY if _COPY.match(operation) or _COPY.match(name) else COMPUTE, start, end)
