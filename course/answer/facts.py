"""What the eight steps speak about, found once: the search, the chosen layout, the file's own, half the devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from course.answer.sent import sent_bytes
from course.answer.words import GIB
from course.errors import UserError
from course.formula import FormulaError
from course.mfu import accelerator_hours, refuse_above_one, wall_time
from course.predict import predict
from course.predict.columns import Columns
from course.predict.constants import Constants, constants_for
from course.predict.traffic import Link, links
from course.problem import Run
from course.stops import Point, with_devices
from course.sweep import Search, across_devices, described, search
from course.sweep.space import take

AXES = ("tensor", "context", "expert", "pipeline", "data")
"""The axes that send, innermost first as they are usually placed; experts fold into the others."""


CARRIED = {"data": ("data", "expert_data"), "expert": ("expert", "expert_tensor")}
"""Axis -> the groups that carry its bytes, where the axis itself is not the only one."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """One question with everything its answer rests on.

    `swept` is the document of the sweep, `best` the recommended entry of it (None: nothing fits), `own` the prediction
    of the layout in the run file (None: there is none), `half` the search on half the devices (None: there is no half).
    """

    run: Run
    constants: Constants
    found: Search
    swept: dict[str, Any]
    best: dict[str, Any] | None
    own: dict[str, Any] | None
    half: Search | None
    counts: tuple[Point, ...] = ()
    """The fastest layout of each device count, no field held."""
    held: bool = False
    """Whether fields of the layout were held: what is then not found may exist without them."""

    @property
    def row(self) -> Columns:
        """The columns of the recommended layout, of length one."""
        return take(self.found.columns, slice(1))

    @property
    def whose(self) -> str:
        """Which layout the measured values belong to: the file's own, or else the recommended one."""
        return "the file's layout" if self.own else "the recommended layout"

    @property
    def measured_over_estimate(self) -> float | None:
        """Measured step time over the estimate for the same layout: the file's own, or else the recommended one."""
        measured, of = self.run.measured.step_time_s, self.own or self.best
        if measured is None or of is None or of["step"]["time_s"] is None:
            return None
        return float(measured / of["step"]["time_s"])

    @property
    def step_time_s(self) -> float | None:
        """Step time of the recommended layout, corrected by the measurement where there is one."""
        if self.best is None:
            return None
        return float(self.best["step"]["time_s"]) * (self.measured_over_estimate or 1.0)

    @property
    def scaled_counts(self) -> list[Point]:
        """The fastest layout of each device count, corrected by the measurement where there is one."""
        by = self.measured_over_estimate or 1.0
        return [
            dataclasses.replace(
                point, days=by * point.days, accelerator_hours=by * point.accelerator_hours,
                cost=None if point.cost is None else by * point.cost,
            )
            for point in self.counts
        ]  # fmt: skip

    @property
    def days(self) -> float | None:
        """Wall time of the whole run."""
        return None if self.step_time_s is None else float(wall_time(**self._whole())) / 86400

    @property
    def hours(self) -> float | None:
        """Accelerator-hours of the whole run."""
        if self.step_time_s is None:
            return None
        return float(accelerator_hours(devices=self.run.cluster.devices, **self._whole()))

    def _whole(self) -> dict[str, float]:
        training = self.run.training
        return {
            "time": (self.step_time_s or 0.0) * training.tokens / training.tokens_per_step,
            "goodput": self.run.cluster.goodput,
        }

    def links(self) -> dict[str, Link]:
        """The link of each axis of the recommended layout."""
        return links(self.run, self.row, self.constants, self.found.order)

    def link(self, axis: str) -> Link:
        """The slowest link that carries the bytes of an axis, which may travel in two groups."""
        found = self.links()
        several = [found[name] for name in CARRIED.get(axis, (axis,)) if name in found]
        return min(several, key=lambda link: (not link.crosses[0], float(link.bytes_per_s[0])))

    def crosses(self, axis: str) -> bool:
        """Whether the groups of an axis of the recommended layout span nodes."""
        return bool(self.link(axis).crosses[0])

    def ranks(self, axis: str) -> int:
        """How many ranks exchange the bytes of an axis: gradients travel among replicas and context ranks together."""
        if self.best is None:
            return 1
        layout = self.best["layout"]
        return int(layout[axis] * {"data": layout["context"], "expert": layout["expert_tensor"]}.get(axis, 1))

    def sent_bytes(self) -> dict[str, float]:
        """Bytes one device of the busiest stage sends in one step, by axis, under the recommended layout."""
        return sent_bytes(dataclasses.replace(self.run, layout=None), self.row)


def gather(run: Run, fix: Iterable[str] = ()) -> Facts:
    """Search, predict and compare: everything the steps need.

    Raises:
        UserError: a fixed field is not given, the search is too large, or a measured step or peak cannot be.
    """
    fix = tuple(fix)
    found, half = search(run, fix), _half(run, fix)
    counts = across_devices(run) if fix else across_devices(run, found, half)
    swept = described(run, found, counts=counts)
    own = predict(run) if run.layout is not None else None
    facts = Facts(
        run, constants_for(run), found, swept, swept["layouts"][0] if swept["layouts"] else None, own, half,
        tuple(counts), bool(fix),
    )  # fmt: skip
    _refuse_impossible_measurement(facts)
    return facts


def _half(run: Run, fix: tuple[str, ...]) -> Search | None:
    if run.cluster.devices % 2:
        return None
    halved = dataclasses.replace(with_devices(run, run.cluster.devices // 2), layout=run.layout)
    try:
        return search(halved, fix)
    except (UserError, FormulaError):
        return None


def _refuse_impossible_measurement(facts: Facts) -> None:
    peak, have = facts.run.measured.peak_memory_gib, facts.run.cluster.accelerator.memory_bytes / GIB
    if peak is not None and peak > have:
        raise UserError(
            f"[measured] peak_memory_gib = {peak:g} is more GiB than the {have:.1f} a device of [cluster] has, so it "
            "was not measured there. Give the peak of one device in GiB, or the devices it was measured on."
        )
    ratio, of = facts.measured_over_estimate, facts.own or facts.best
    if ratio is not None and of is not None and of["mfu"]["causal_attention"] is not None:
        refuse_above_one(of["mfu"]["causal_attention"] / ratio, "[measured] step_time_s: MFU")


def smallest_group(found: Search) -> tuple[int, float] | None:
    """The smallest model-parallel group (tensor x pipeline) with which anything fits, and its best step time in s."""
    if not found.fitting:
        return None
    groups = found.columns["tensor"] * found.columns["pipeline"]
    least = groups.min()
    return int(least), float(np.min(found.values["time_s"][groups == least]))
