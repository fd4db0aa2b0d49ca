"""What a recorder's events come down to: intervals of work on streams, collectives, and the steps they are counted in.

Times are microseconds on the trace's own clock, as the files have them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from course.fields import show
from course.traces.reading import NotATrace

__all__ = [
    "COMMUNICATION", "COMPUTE", "COPY", "Call", "Event", "Mark", "Recording", "arguments", "chosen", "span",
    "step_marks", "timed",
]  # fmt: skip

COMMUNICATION, COMPUTE, COPY = "communication", "compute", "copy"
Event = Mapping[str, Any]
_STEP = re.compile(r"step\D*\d+$", re.IGNORECASE)


class Mark(NamedTuple):
    """A step as it was marked: its name, start and end."""

    name: str
    start: float
    end: float


class Call(NamedTuple):
    """One collective: its kind, stream, start and end, bytes of a rank's buffer and ranks, where they are known."""

    kind: str
    stream: str
    start: float
    end: float
    payload_bytes: int | None
    group_size: int | None


@dataclass
class Recording:
    """One device's work: `work[stream, kind]` lists (start, end) for the kinds communication, compute and copy."""

    recorder: str
    device: str
    devices: tuple[str, ...]
    rule: str = ""
    steps: tuple[Mark, ...] = ()
    window: tuple[float, float] | None = None
    """Where the figures begin and end; None for the first start and the last end of the work."""
    work: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def add(self, stream: str, kind: str, start: float, end: float) -> None:
        """Count a piece of work of this kind on this stream."""
        self.work.setdefault((stream, kind), []).append((start, end))


def arguments(event: Event) -> Mapping[str, Any]:
    """The event's args, or nothing where they are no object."""
    found = event.get("args")
    return found if isinstance(found, dict) else {}


def timed(event: Event) -> tuple[float, float]:
    """The start and end of an event in microseconds. Raises `NotATrace` where they cannot be read.

    >>> timed({"ts": 5, "dur": 2.5})
    (5.0, 7.5)
    """
    try:
        start, duration = float(event["ts"]), float(event["dur"])
    except (KeyError, TypeError, ValueError, OverflowError):
        start = duration = math.nan
    if not (math.isfinite(start) and math.isfinite(duration) and duration >= 0):
        raise NotATrace(
            f"the event {show(str(event.get('name')))} has no ts and dur that can be read as microseconds, so the trace"
            " is damaged. Record it again; do not edit it."
        )
    return start, start + duration


def chosen(device: str | None, devices: Sequence[str]) -> str:
    """The device asked for, or the first. Raises `NotATrace` for one that the trace has not.

    >>> chosen(None, ("0", "1"))
    '0'
    """
    if device is not None and device not in devices:
        some = ", ".join(devices)
        raise NotATrace(f"device {show(device)} is not in the trace, which has {some}. Ask for one of them.")
    return device or devices[0]


def step_marks(annotations: Iterable[Event]) -> tuple[str, list[Mark]]:
    """The marks of steps among the user's annotations, in order of time, and what they are called.

    PyTorch's own `ProfilerStep#N` go first; else names that say step and end in a number, as `lab_step#3` or `Step 3`.
    None: ("", []).

    >>> step_marks([{"name": "step 2", "ts": 9, "dur": 1}, {"name": "Optimizer.step#SGD.step", "ts": 1, "dur": 1}])
    ('step 2', [Mark(name='step 2', start=9.0, end=10.0)])
    """
    profiler, own = [], []
    for event in annotations:
        name = event.get("name")
        if isinstance(name, str) and name.startswith("ProfilerStep"):
            profiler.append(Mark(name, *timed(event)))
        elif isinstance(name, str) and _STEP.search(name):
            own.append(Mark(name, *timed(event)))
    marks = sorted(profiler or own, key=lambda mark: mark.start)
    if not marks:
        return "", []
    return (marks[0].name if len(marks) == 1 else f"{marks[0].name} to {marks[-1].name}"), marks


def span(recording: Recording, marks: list[Mark], called: str, whole: str) -> None:
    """Count on the host's clock: from the start of the first mark to the end of the last, else all of `whole`."""
    if marks:
        recording.steps = tuple(marks)
        recording.window = (marks[0].start, max(mark.end for mark in marks))
        recording.rule = (
            f"{len(marks)} step{'s' if len(marks) > 1 else ''} marked {called}: what ran between the start of the first"
            " and the end of the last is counted"
        )
    else:
        recording.rule = f"no step is marked: the whole span is counted, {whole}"
