"""A series of measured points of one family, with its baseline: efficiency never stands without global work and time.

>>> step = WorkUnit("llama-2-7b", 512, 4096)
>>> print(Experiment.strong([Point(64, 9.0, step), Point(128, 5.0, step)]))
strong: one valid optimizer step of llama-2-7b on 512 sequences of 4,096 tokens, packed to full length, bf16
against 64 devices, ideal speedup D/64
devices | sequences | M tokens | time (s) | device-s | speedup | efficiency
64      | 512       | 2.10     | 9        | 576      | 1.00    | 1.00
128     | 512       | 2.10     | 5        | 640      | 1.80    | 0.90
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from course.errors import UserError
from course.mfu import scaling_efficiency, speedup
from course.scaling.families import weak_efficiency, work_efficiency
from course.scaling.work import DifferentWork, WorkUnit, same_work

__all__ = ["STRONG", "Experiment", "Point", "Row"]

STRONG, WEAK, FAMILY = "strong", "weak", "model size"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Point:
    """One measurement: a work unit, the devices that did it, and the seconds one unit took.

    Args:
        devices: accelerators.
        time_s: seconds of one completed work unit.
        work: what was done.
        local: how it was done, to be recorded: micro_batch, accumulation, layout, shapes.
        placement: which links it crossed, in words, such as "2 nodes of 8".
        memory_gib: measured peak of the fullest device, where known.
        model_flops: FLOPs of the model in one unit, by one convention for the whole series; needed where models grow.
    """

    devices: int
    time_s: float
    work: WorkUnit
    local: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    placement: str = ""
    memory_gib: float | None = None
    model_flops: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.devices, bool) or not isinstance(self.devices, int) or self.devices < 1:
            raise UserError(f"devices (accelerators of the run) must be a whole number above 0, not {self.devices!r}.")
        if not (isinstance(self.time_s, int | float) and math.isfinite(self.time_s) and self.time_s > 0):
            raise UserError(f"time_s (seconds of one completed work unit) must be above 0, not {self.time_s!r}.")


@dataclass(frozen=True)
class Row:
    """What a series says of one point. `speedup` is None outside strong scaling, `memory_gib` where it is unknown."""

    devices: int
    sequences: int
    tokens: int
    time_s: float
    device_s: float
    efficiency: float
    speedup: float | None
    memory_gib: float | None
    changed: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """Points of one family in rising order of devices, compared with the point on `baseline` devices."""

    family: str
    points: tuple[Point, ...]
    baseline: int
    declared: str

    # ---------------------------------------------------------------- the three families
    @classmethod
    def strong(cls, points: Sequence[Point], baseline: int | None = None) -> Experiment:
        """The same work unit on every number of devices.

        Raises:
            DifferentWork: two points differ in their work; the sentence says in what.
        """
        ordered, base = _ordered(points, baseline)
        for point in ordered:
            same_work(base.work, point.work)
        return cls(STRONG, ordered, base.devices, base.work.words())

    @classmethod
    def weak(cls, points: Sequence[Point], baseline: int | None = None) -> Experiment:
        """The same work of a device: as many sequences for each, and all else of the work unit equal.

        Raises:
            DifferentWork: the work of a device differs, or what may not differ does.
        """
        ordered, base = _ordered(points, baseline)
        share = base.work.sequences / base.devices
        for point in ordered:
            same_work(base.work, point.work, but=("sequences",))
            other = point.work.sequences / point.devices
            if not math.isclose(share, other, rel_tol=1e-9):
                raise DifferentWork(
                    f"Weak scaling holds the work of a device, so these times are not divided: {share:g} sequences a "
                    f"device on {base.devices} devices and {other:g} on {point.devices}."
                )
        each = f"{share:g} sequences of {base.work.sequence_length:,} tokens on each device"
        return cls(WEAK, ordered, base.devices, f"{base.work.update} of {base.work.model}, {each}, "
                   f"{base.work.lengths}, {base.work.precision}")  # fmt: skip

    @classmethod
    def model_size(cls, points: Sequence[Point], rule: str, baseline: int | None = None) -> Experiment:
        """Another model on every number of devices, compared by model FLOPs for each device-second.

        Args:
            points: each with its `model_flops`.
            rule: how the models were chosen, in words: without it this is no family.
            baseline: devices of the baseline; the fewest if None.

        Raises:
            UserError: the rule is empty or a point has no `model_flops`.
            DifferentWork: what may not differ does: lengths, precision, what counts as done.
        """
        if not rule.strip():
            raise UserError("rule (how the models of the family were chosen) must be said in words.")
        ordered, base = _ordered(points, baseline)
        for point in ordered:
            same_work(base.work, point.work, but=("model", "sequences", "sequence_length"))
            if point.model_flops is None:
                raise UserError(
                    f"model_flops (FLOPs of the model in one unit) is missing on {point.devices} devices: different "
                    "models are compared by it."
                )
        return cls(FAMILY, ordered, base.devices, rule)

    # ---------------------------------------------------------------- what it says
    def base(self) -> Point:
        """The baseline."""
        return next(point for point in self.points if point.devices == self.baseline)

    def against(self, baseline: int) -> Experiment:
        """The same series against another baseline. Raises UserError where there is no such point."""
        _ordered(self.points, baseline)
        return Experiment(self.family, self.points, baseline, self.declared)

    def efficiency(self, point: Point) -> float:
        """Efficiency of a point against the baseline, by the formula of the family."""
        base = self.base()
        devices = {"baseline_devices": base.devices, "scaled_devices": point.devices}
        if self.family == STRONG:
            return float(scaling_efficiency(baseline_time=base.time_s, scaled_time=point.time_s, **devices))
        times = {"time_on_baseline": base.time_s, "time_on_devices": point.time_s}
        if self.family == WEAK:
            return float(weak_efficiency(**times))
        work = {"baseline_work": base.model_flops, "scaled_work": point.model_flops}
        return float(work_efficiency(**times, **work, **devices))

    def rows(self) -> tuple[Row, ...]:
        """Each point with its global work, time, device time and efficiency, and what changed locally."""
        base = self.base()
        return tuple(
            Row(
                point.devices, point.work.sequences, point.work.tokens, point.time_s, point.devices * point.time_s,
                self.efficiency(point),
                float(speedup(baseline_time=base.time_s, scaled_time=point.time_s)) if self.family == STRONG else None,
                point.memory_gib,
                {key: value for key, value in point.local.items() if base.local.get(key) != value},
            )
            for point in self.points
        )  # fmt: skip

    def __str__(self) -> str:
        ideal = {STRONG: f"ideal speedup D/{self.baseline}", WEAK: "ideal time constant",
                 FAMILY: "ideal FLOP/s of a device constant"}[self.family]  # fmt: skip
        heads = ["devices", "sequences", "M tokens", "time (s)", "device-s", "speedup", "efficiency"]
        lines = [
            [f"{row.devices}", f"{row.sequences:,}", f"{row.tokens / 1e6:,.2f}", f"{row.time_s:.3g}",
             f"{row.device_s:,.0f}", "" if row.speedup is None else f"{row.speedup:.2f}", f"{row.efficiency:.2f}"]
            for row in self.rows()
        ]
        keep = [index for index in range(len(heads)) if index != 5 or self.family == STRONG]
        if any(row.memory_gib is not None for row in self.rows()):
            heads.append("peak (GiB)")
            keep.append(len(heads) - 1)
            for line, row in zip(lines, self.rows(), strict=True):
                line.append("" if row.memory_gib is None else f"{row.memory_gib:.1f}")
        widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
        table = [" | ".join(line[i].ljust(widths[i]) for i in keep).rstrip() for line in [heads, *lines]]
        return "\n".join([f"{self.family}: {self.declared}", f"against {self.baseline} devices, {ideal}", *table])


def _ordered(points: Sequence[Point], baseline: int | None) -> tuple[tuple[Point, ...], Point]:
    """The points by devices, and the baseline among them."""
    ordered = tuple(sorted(points, key=lambda point: point.devices))
    if len(ordered) < 2:
        raise UserError("points must hold two measurements or more: an efficiency compares.")
    counts = [point.devices for point in ordered]
    if len(set(counts)) != len(counts):
        raise UserError("points must differ in devices: take one measurement of each number of devices.")
    wanted = counts[0] if baseline is None else baseline
    if wanted not in counts:
        raise UserError(
            f"baseline (devices of the point compared with) can be {', '.join(map(str, counts))}, not {wanted!r}."
        )
    return ordered, ordered[counts.index(wanted)]
