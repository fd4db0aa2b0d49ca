"""PyTorch's profiler: kernels on a device with NCCL or RCCL, and operators on the host with gloo.

On a device a kernel belongs to the step in which the host launched it, found by its correlation number; it may run
later. The last of several steps is left out, for the recording may end before its kernels do, and so is a kernel whose
launch was not recorded: its step is unknown. On the host, work is synchronous and counted by the clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from course.traces.intervals import difference, rows, union
from course.traces.naming import BARRIER, group_size, is_collective_kernel, kind_of, payload_bytes
from course.traces.reading import RECORD_HOST, NotATrace
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
    step_marks,
    timed,
)

__all__ = ["on_device", "on_host"]

_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_DEVICE = ("kernel", *_COPIES)
_OPERATORS = ("cpu_op", "operator")
_NOTES = (*_OPERATORS, "user_annotation")
_HOST_COLLECTIVES = ("gloo:", "mpi:", "ucc:")
# Operators of these families wait, launch or group others; what they compute shows as operators of its own.
_NOT_COMPUTE = ("autograd", "torch", "profiler", "nccl", "gloo", "record")


def on_device(events: Sequence[Event], device: str | None) -> Recording | None:
    """Kernels, copies and collectives of one device; None where the trace holds none.

    `device` as the trace numbers it ("0"); None for the only one, or the first. Raises `NotATrace` for one that the
    trace has not.
    """
    groups = _grouped(events)
    found = [event for name in _DEVICE for event in groups.get(name, ())]
    if not found:
        return None
    devices = tuple(sorted({_device(event) for event in found}, key=lambda name: (len(name), name)))
    recording = Recording("PyTorch, kernels of a device", chosen(device, devices), devices)
    launches: dict[int | None, Event] = {
        number: event
        for name, some in groups.items()
        if name not in _DEVICE
        for event in some
        if (number := _correlation(event)) is not None
    }
    called, marks = step_marks(groups.get("user_annotation", ()))
    found = [event for event in found if _device(event) == recording.device]
    kept = _of_steps(found, launches, marks)
    if marks and kept:
        counted = marks[:-1] or marks
        recording.steps = tuple(counted)
        recording.rule = (
            f"{len(marks)} step{'s' if len(marks) > 1 else ''} marked {called}: kernels and copies are counted that the"
            " host launched "
            + ("within it" if len(marks) == 1 else "from the start of the first until the last one began")
            + f"; {len(kept)} of {len(found)} are"
        )
    else:
        kept = found
        recording.rule = (
            "no step is marked: the whole span is counted, from the first kernel or copy to the last"
            if not marks
            else "steps are marked, but no launch is recorded within them: the whole span is counted"
        )
    records = _HostRecords([event for name in _NOTES for event in groups.get(name, ())])
    for event in kept:
        start, end = timed(event)
        stream = f"stream {arguments(event).get('stream', event.get('tid'))}"
        name = str(event.get("name"))
        if str(event.get("cat")).lower() in _COPIES:
            recording.add(stream, COPY, start, end)
        elif is_collective_kernel(name):
            own = arguments(event)
            host = records.around(launches.get(_correlation(event)))
            told = own if own.get("Collective name") else host
            kind = kind_of(own.get("Collective name"), host.get("Collective name"), host.get("annotation"), name)
            recording.add(stream, COMMUNICATION, start, end)
            recording.calls.append(Call(kind, stream, start, end, payload_bytes(told), group_size(told)))
        else:
            recording.add(stream, COMPUTE, start, end)
    return recording


def on_host(events: Sequence[Event], device: str | None) -> Recording | None:
    """Operators and gloo's collectives of a run on CPUs; None where the trace is no host trace of PyTorch.

    Compute is the time in operators, less the time in which their thread waits for a collective or runs one. Barriers
    are waiting, not communication. `device` is "CPU" or None. Raises `NotATrace` where operators were recorded, but no
    collective.
    """
    groups = _grouped(events)
    operators = [event for name in _OPERATORS for event in groups.get(name, ())]
    notes = groups.get("user_annotation", [])
    if not operators:
        return None
    recording = Recording("PyTorch, operators of the host", chosen(device, ("CPU",)), ("CPU",))
    called, marks = step_marks(notes)
    span(recording, marks, called, "from the first operator or collective to the last")
    communicates = False
    compute: dict[str, list[tuple[float, float]]] = {}
    waits: dict[str, list[tuple[float, float]]] = {}
    for event in (*operators, *notes):
        name = str(event.get("name"))
        thread = f"thread {event.get('tid')}"
        if name.startswith(_HOST_COLLECTIVES):
            communicates = True
            start, end = timed(event)
            waits.setdefault(thread, []).append((start, end))
            kind = kind_of(name.split(":", 1)[1])
            if kind != BARRIER:
                own = arguments(event)
                recording.add(thread, COMMUNICATION, start, end)
                recording.calls.append(Call(kind, thread, start, end, payload_bytes(own), group_size(own)))
        elif event.get("cat") != "user_annotation" and ("::" in name or "cpp_fused" in name):
            family = name.split("::")[0]
            into = waits if "c10d" in family else compute if family not in _NOT_COMPUTE else None
            if into is not None:
                into.setdefault(thread, []).append(timed(event))
    if not communicates:
        raise NotATrace(
            f"The trace holds operators of the host alone: no kernel of a device, no collective. {RECORD_HOST}."
        )
    for thread, spent in compute.items():
        for start, end in difference(union(rows(spent)), rows(waits.get(thread, []))).tolist():
            recording.add(thread, COMPUTE, start, end)
    return recording


def _grouped(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Timed events by category, in small letters: old files write Kernel, new ones kernel."""
    groups: dict[str, list[Event]] = {}
    for event in events:
        if event.get("ph") == "X":
            groups.setdefault(str(event.get("cat", "")), []).append(event)
    merged: dict[str, list[Event]] = {}
    for name, some in groups.items():
        merged.setdefault(name.lower(), []).extend(some)
    return merged


def _device(event: Event) -> str:
    return str(arguments(event).get("device", event.get("pid")))


def _correlation(event: Event) -> int | None:
    """The number that a kernel and its launch share."""
    number = arguments(event).get("correlation")
    return number if isinstance(number, int) else None


def _of_steps(found: list[Event], launches: Mapping[Any, Event], marks: list[Mark]) -> list[Event]:
    """Those that the host launched within the marked steps, the last of several left out."""
    if not marks:
        return []
    first, last = marks[0].start, marks[-1].start if len(marks) > 1 else marks[0].end
    kept = []
    for event in found:
        launch = launches.get(_correlation(event))
        if launch is not None and first <= timed(launch)[0] < last:
            kept.append(event)
    return kept


class _HostRecords:
    """What the host wrote down around the launch of a collective: PyTorch's record_param_comms and nccl:… notes."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._threads: dict[tuple[str, str], list[tuple[float, float, dict[str, Any]]]] = {}
        for event in events:
            name = event.get("name")
            if isinstance(name, str) and (name == "record_param_comms" or name.startswith(("nccl:", "rccl:"))):
                note = {} if name == "record_param_comms" else {"annotation": name.split(":", 1)[1]}
                place = (str(event.get("pid")), str(event.get("tid")))
                self._threads.setdefault(place, []).append((*timed(event), {**arguments(event), **note}))
        for listed in self._threads.values():
            listed.sort(key=lambda one: one[0])

    def around(self, launch: Event | None) -> dict[str, Any]:
        """All that the records open at the launch say, the innermost last; nothing for an unknown launch."""
        said: dict[str, Any] = {}
        if launch is None:
            return said
        listed = self._threads.get((str(launch.get("pid")), str(launch.get("tid"))), [])
        at = timed(launch)[0]
        for start, end, note in listed[: bisect_right(listed, at, key=lambda one: one[0])]:
            if start <= at <= end:
                said.update(note)
        return said
