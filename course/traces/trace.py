"""The figures of one device's trace: what was hidden, what was exposed, when it idled; by stream and by collective.

Every figure is the length of a set of time, so nothing that ran twice at once is counted twice, and
span = compute + exposed communication + copies alone + idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from course.traces.intervals import Intervals, difference, intersection, length, rows, union
from course.traces.recording import COMMUNICATION, COMPUTE, COPY, Call, Recording

__all__ = ["Collective", "Gap", "KindTotal", "Step", "Stream", "Trace", "assemble"]

MICRO = 1e-6
_NOTHING = rows([])


@dataclass(frozen=True)
class Collective:
    """One collective as this device ran it. Its time includes waiting for the slowest rank."""

    kind: str
    """ "all-reduce", "all-gather", …, or "unknown collective" where nothing in the trace tells."""
    stream: str
    start_s: float
    """Seconds after the start of what is counted."""
    seconds: float
    payload_bytes: int | None
    """Bytes of one rank's whole buffer where both sides were recorded, else what it put in (of an all-gather its part);
    None where the trace does not say."""
    group_size: int | None
    """Ranks that took part, None where the trace does not say."""


@dataclass(frozen=True)
class Gap:
    """A stretch in which the device did nothing: neither computed, nor communicated, nor copied."""

    start_s: float
    seconds: float


@dataclass(frozen=True)
class Step:
    """A step that is counted, as it was marked on the host's clock; on a device its kernels may run later."""

    name: str
    start_s: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Stream:
    """What ran on one stream of a device, or on one thread of a host; intervals in seconds, sorted and disjoint."""

    name: str
    communication: Intervals
    compute: Intervals
    copies: Intervals

    @property
    def communication_s(self) -> float:
        """Seconds in which a collective ran on this stream."""
        return length(self.communication)

    @property
    def compute_s(self) -> float:
        """Seconds in which this stream computed."""
        return length(self.compute)

    @property
    def copies_s(self) -> float:
        """Seconds in which this stream copied or set memory."""
        return length(self.copies)

    @property
    def busy_s(self) -> float:
        """Seconds in which anything ran on this stream."""
        return length(np.concatenate([self.communication, self.compute, self.copies]))


@dataclass(frozen=True)
class KindTotal:
    """All collectives of one kind. Where kinds overlap each other, their seconds add up to more than the whole."""

    kind: str
    count: int
    seconds: float
    exposed_s: float
    payload_bytes: int | None
    """Their sum, None where one of them is unknown."""
    group_sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Trace:
    """One device's recorded work. Seconds throughout; 0 is the start of what is counted.

    >>> from course.traces import sample
    >>> trace = sample()
    >>> f"{trace.communication_s:.3f} s of collectives, {trace.exposed_s:.3f} s of them exposed"
    '0.195 s of collectives, 0.172 s of them exposed'
    """

    source: str
    recorder: str
    rule: str
    """Which steps were found, how, and what is counted: one sentence."""
    device: str
    devices: tuple[str, ...]
    """All devices in the file; figures are of `device` alone."""
    rank: int | None
    world_size: int | None
    steps: tuple[Step, ...]
    span_s: float
    """From the start to the end of what is counted."""
    streams: tuple[Stream, ...] = field(repr=False)
    collectives: tuple[Collective, ...] = field(repr=False)

    @cached_property
    def communication(self) -> Intervals:
        """When a collective ran, whatever the stream."""
        return union(np.concatenate([stream.communication for stream in self.streams] or [_NOTHING]))

    @cached_property
    def compute(self) -> Intervals:
        """When the device computed, whatever the stream."""
        return union(np.concatenate([stream.compute for stream in self.streams] or [_NOTHING]))

    @cached_property
    def copies(self) -> Intervals:
        """When memory was copied or set, whatever the stream."""
        return union(np.concatenate([stream.copies for stream in self.streams] or [_NOTHING]))

    @cached_property
    def hidden(self) -> Intervals:
        """When a collective ran and the device computed."""
        return intersection(self.communication, self.compute)

    @cached_property
    def exposed(self) -> Intervals:
        """When a collective ran and nothing was computed."""
        return difference(self.communication, self.compute)

    @cached_property
    def idle(self) -> Intervals:
        """When nothing ran at all."""
        busy = np.concatenate([self.communication, self.compute, self.copies])
        return difference(rows([(0.0, self.span_s)]), busy)

    @property
    def communication_s(self) -> float:
        """Seconds in which a collective ran, waiting for other ranks included."""
        return length(self.communication)

    @property
    def compute_s(self) -> float:
        """Seconds in which the device computed: kernels that are neither collectives nor copies."""
        return length(self.compute)

    @property
    def copies_s(self) -> float:
        """Seconds in which memory was copied or set."""
        return length(self.copies)

    @property
    def hidden_s(self) -> float:
        """Seconds of communication behind compute."""
        return length(self.hidden)

    @property
    def exposed_s(self) -> float:
        """Seconds of communication in which nothing was computed; a step without it could wait for something else."""
        return length(self.exposed)

    @property
    def idle_s(self) -> float:
        """Seconds in which nothing ran."""
        return length(self.idle)

    @property
    def overlap_share(self) -> float | None:
        """Hidden communication as a share of communication, 0 to 1; None where nothing was communicated."""
        return self.hidden_s / self.communication_s if self.communication_s else None

    @property
    def exposed_share(self) -> float:
        """Exposed communication as a share of the span, 0 to 1."""
        return self.exposed_s / self.span_s if self.span_s else 0.0

    @property
    def compute_share(self) -> float:
        """Compute as a share of the span, 0 to 1."""
        return self.compute_s / self.span_s if self.span_s else 0.0

    @property
    def idle_share(self) -> float:
        """Idle time as a share of the span, 0 to 1."""
        return self.idle_s / self.span_s if self.span_s else 0.0

    def gaps(self, longest: int | None = None) -> tuple[Gap, ...]:
        """The idle gaps, the longest first; only so many where `longest` is given.

        >>> from course.traces import sample
        >>> [round(gap.seconds, 3) for gap in sample().gaps(longest=2)]
        [0.057, 0.032]
        """
        found = [Gap(start, end - start) for start, end in self.idle.tolist()]
        return tuple(sorted(found, key=lambda gap: -gap.seconds)[:longest])

    def by_kind(self) -> tuple[KindTotal, ...]:
        """Collectives by kind, the kind that took longest first.

        >>> from course.traces import sample
        >>> [(total.kind, total.count) for total in sample().by_kind()]
        [('all-to-all', 2), ('all-reduce', 2), ('all-gather', 1)]
        """
        totals = []
        for kind in sorted({one.kind for one in self.collectives}):
            some = [one for one in self.collectives if one.kind == kind]
            when = rows((one.start_s, one.start_s + one.seconds) for one in some)
            payloads = [one.payload_bytes for one in some if one.payload_bytes is not None]
            totals.append(
                KindTotal(
                    kind,
                    len(some),
                    length(when),
                    length(difference(when, self.compute)),
                    sum(payloads) if len(payloads) == len(some) else None,
                    tuple(sorted({one.group_size for one in some if one.group_size})),
                )
            )
        return tuple(sorted(totals, key=lambda total: -total.seconds))

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """The figures as text, with the step rule.

        >>> from course.traces import sample
        >>> print(sample().summary().splitlines()[2])
        600.1 ms counted: compute 17.7 %, exposed communication 28.7 %, copies alone 0.0 %, idle 53.6 %.
        """
        alone = self.span_s - self.compute_s - self.exposed_s - self.idle_s
        shares = [100 * share for share in (self.compute_share, self.exposed_share)]
        shares += [100 * max(alone, 0.0) / self.span_s if self.span_s else 0.0, 100 * self.idle_share]
        lines = [
            f"{self.source}: {self.recorder}, device {self.device} of {', '.join(self.devices)}.",
            f"Steps: {self.rule}.",
            f"{1e3 * self.span_s:.1f} ms counted: compute {shares[0]:.1f} %, exposed communication {shares[1]:.1f} %, "
            f"copies alone {shares[2]:.1f} %, idle {shares[3]:.1f} %.",
        ]
        if self.overlap_share is None:
            return "\n".join([*lines, "No collective ran."])
        lines.append(
            f"Communication {1e3 * self.communication_s:.1f} ms, of which {100 * self.overlap_share:.1f} % is hidden "
            "behind compute."
        )
        for total in self.by_kind():
            known = "payload unknown" if total.payload_bytes is None else f"{total.payload_bytes / 1e6:.1f} MB"
            times = f"{1e3 * total.seconds:.1f} ms, {1e3 * total.exposed_s:.1f} ms exposed"
            lines.append(f"  {total.count} × {total.kind}: {times}, {known}")
        return "\n".join(lines)


def assemble(recording: Recording, source: Path, rank: object, world_size: object) -> Trace:
    """A recording in seconds after its start, cut to its window."""
    pieces = {key: rows(listed) for key, listed in recording.work.items()}
    every = np.concatenate([*pieces.values(), _NOTHING])
    if recording.window:
        first, last = recording.window
    elif len(every):
        first, last = float(every[:, 0].min()), float(every[:, 1].max())
    else:
        first = last = 0.0
    window = rows([(first, last)])

    def cut(stream: str, kind: str) -> Intervals:
        return MICRO * (intersection(pieces.get((stream, kind), _NOTHING), window) - first)

    return Trace(
        source=source.name,
        recorder=recording.recorder,
        rule=recording.rule,
        device=recording.device,
        devices=recording.devices,
        rank=rank if isinstance(rank, int) else None,
        world_size=world_size if isinstance(world_size, int) else None,
        steps=tuple(
            Step(one.name, MICRO * (one.start - first), MICRO * (one.end - one.start)) for one in recording.steps
        ),
        span_s=MICRO * (last - first),
        streams=tuple(
            Stream(name, *(cut(name, kind) for kind in (COMMUNICATION, COMPUTE, COPY)))
            for name in sorted({stream for stream, _ in recording.work}, key=lambda name: (len(name), name))
        ),
        collectives=tuple(
            _collective(one, first, last)
            for one in sorted(recording.calls, key=lambda one: one.start)
            if one.end >= first and one.start <= last
        ),
    )


def _collective(call: Call, first: float, last: float) -> Collective:
    start, end = max(call.start, first), min(call.end, last)
    return Collective(
        call.kind, call.stream, MICRO * (start - first), MICRO * (end - start), call.payload_bytes, call.group_size
    )
