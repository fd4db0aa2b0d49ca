"""What the library knows about one question: counts, limits, all layouts that fit, and the prediction of any of them.

Grading, the reference sheet and the what-ifs all read from here, so that one search serves a whole interview.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from course.answer.facts import smallest_group
from course.answer.goals import least_accelerator_hours
from course.answer.published import highest_mfu
from course.answer.sent import sent_bytes
from course.constrain import first_limit, how_far, limits
from course.estimate import count, flops_per_token
from course.fields import RunFileError
from course.formula import FormulaError
from course.interview.prompts import Prompt, searched
from course.interview.usual import highest_with_experts, usual_mfu
from course.predict import predict
from course.predict.columns import CODES, Columns, from_layout
from course.predict.constants import constants_for
from course.predict.traffic import links
from course.problem import Layout, Run
from course.sweep.rank import MODEL_ERROR
from course.sweep.search import Search

__all__ = ["AXES", "DEGREES", "Study", "study"]

AXES = ("tensor", "context", "expert", "pipeline", "data")
"""The axes that send, as they are usually spoken of."""

DEGREES = ("tensor", "pipeline", "context", "expert", "expert_tensor", "sharding", "recompute")
"""What step 3 chooses; step 5 adds the micro-batch and the chunks, and the replicas follow."""

WHOLE = ("tensor", "pipeline", "context", "expert", "expert_tensor", "data", "micro_batch", "interleave")
CODED = ("sharding", "recompute")
GIB = 2.0**30
ANYWHERE = "h100-sxm"
"""The accelerator whose highest published MFU bounds a claim where nobody published one."""
ROOM = 0.9
"""Share of the memory a plan may fill: the rest is for buffers, fragments and what no formula knows."""
CLOSE = 1.10
"""Step time over the shortest within which the sturdier of two layouts is the better one."""
STURDIER = 0.85
"""Step at half the network, over that of the simplest layout, from which another is the sturdier one."""


@dataclasses.dataclass(frozen=True)
class Study:
    """One question and what follows from it."""

    prompt: Prompt

    @property
    def run(self) -> Run:
        """The whole truth."""
        return self.prompt.run

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        """What was worked out already: grading asks the same of one layout many times."""
        return {}

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    @cached_property
    def found(self) -> Search:
        """All layouts that are legal and fit."""
        return searched(dataclasses.replace(self.run, goal=type(self.run.goal)()))

    @property
    def feasible(self) -> bool:
        """Whether anything fits."""
        return self.found.fitting > 0

    @cached_property
    def best(self) -> Layout:
        """The layout a strong answer names: the simplest among the fastest, of those a sheet can say in full."""
        first = self.found.layout(self.best_row)
        return self.completed({name: getattr(first, name) for name in (*WHOLE, *CODED)}) or first

    @cached_property
    def roomy(self) -> np.ndarray:
        """Rows of the search that leave a tenth of the memory free; all of them where none does."""
        free = self.found.values["peak_bytes"] <= ROOM * self.capacity
        return np.flatnonzero(free) if free.any() else np.arange(self.found.fitting)

    def crowded(self, layout: Layout) -> bool:
        """Whether a layout fills more than a plan should, where others leave a tenth of the memory free."""
        free = self.found.values["peak_bytes"] <= ROOM * self.capacity
        return bool(free.any()) and self.predicted(layout)["memory"]["peak_gib"] * GIB > ROOM * self.capacity

    @cached_property
    def best_row(self) -> int:
        """The row of the reference: simple, close to the fastest, with memory to spare and least hurt by slow links."""
        time = self.found.values["time_s"]
        least = float(time[self.roomy].min())
        first = int(self.roomy[0])  # the rows are ranked: those within the model's error by simplicity
        if time[first] > (1 + MODEL_ERROR) * least:
            first = int(self.roomy[np.argmin(time[self.roomy])])
        near = [int(row) for row in self.roomy if time[row] <= CLOSE * least]
        tried = {(self.found.columns["tensor"][row], self.found.columns["pipeline"][row],
                  self.found.columns["context"][row], self.found.columns["expert"][row]): row
                 for row in sorted(near, key=lambda row: -time[row])}  # fmt: skip
        chosen = sorted(tried.values(), key=lambda row: time[row])[:6]
        slower = {row: self.at_half_network(self.found.layout(row)) for row in (first, *chosen)}
        other = min(slower, key=lambda row: slower[row])
        return other if slower[other] < STURDIER * slower[first] else first

    def at_half_network(self, layout: Layout) -> float:
        """Seconds of a step if the network between nodes had half its bandwidth."""
        fabric = dataclasses.replace(
            self.run.cluster.fabric, scale_out_bytes_per_s=self.run.cluster.fabric.scale_out_bytes_per_s / 2,
            scale_out_measured_bytes_per_s=None, reduce_bus_by_nodes=(), gather_bus_by_nodes=(),
        )  # fmt: skip
        cluster = dataclasses.replace(self.run.cluster, fabric=fabric)
        found = predict(dataclasses.replace(self.run, cluster=cluster, layout=layout))["step"]["time_s"]
        return float(found) if found else float("inf")

    @cached_property
    def least_time_s(self) -> float:
        """The shortest step of all that fit and leave room."""
        return float(self.found.values["time_s"][self.roomy].min())

    @cached_property
    def parameters(self) -> dict[str, float]:
        """Parameters: `total` and those a token uses, `active`."""
        counted = count(self.run.model)
        return {"total": counted.total, "active": counted.active}

    @cached_property
    def flops(self) -> dict[str, float]:
        """FLOP of the whole run by convention, without recomputation."""
        per_token = flops_per_token(self.run.model, self.run.training.sequence_length)
        names = ("six_ps", "palm", "full_attention", "causal_attention")
        return {name: float(per_token[name]) * self.run.training.tokens for name in names}

    @property
    def capacity(self) -> float:
        """Bytes a device has."""
        return float(self.run.cluster.accelerator.memory_bytes)

    @cached_property
    def limits(self) -> dict[str, float]:
        """Bytes each question of step 2 needs on one device, by its name."""
        return {limit.name: limit.need for limit in limits(self.run)}

    def first_limit(self, bytes_a_parameter: float | None = None, room: float | None = None) -> tuple[str, str]:
        """The first limit on one device and how far down the order parts must leave, as `course.constrain` says them.

        Args:
            bytes_a_parameter: a candidate's own count; the recipe's if None.
            room: the bytes a candidate believes a device has; those it has if None.
        """
        key = ("limit", bytes_a_parameter, room)
        try:
            found: tuple[str, str] = self._once(key, lambda: self._first_limit(bytes_a_parameter, room))
        except RunFileError:  # no device holds so much, no parameter takes so many bytes: the truth is left
            found = self.first_limit()
        return found

    def _first_limit(self, bytes_a_parameter: float | None, room: float | None) -> tuple[str, str]:
        run, state, chip = self.run, self.run.training.state, self.run.cluster.accelerator
        chip = chip if room is None else dataclasses.replace(chip, memory_bytes=room)
        if bytes_a_parameter is not None:
            rest = max(0, round(bytes_a_parameter) - state.weights - state.all_gradients)
            state = dataclasses.replace(state, master=0, moments=rest)
            if bytes_a_parameter < state.weights + state.all_gradients:
                rest = max(0, round(bytes_a_parameter) - state.weights)
                state = dataclasses.replace(state, gradients=rest, extra_gradients=0, moments=0)
        asked = (run.model, chip, state, run.training.sequence_length)
        return first_limit(*asked), how_far(*asked)

    @cached_property
    def smallest(self) -> tuple[int, float]:
        """The smallest tensor x pipeline group with which anything fits, and its shortest step in s."""
        return smallest_group(self.found) or (0, 0.0)

    @cached_property
    def least_days(self) -> float:
        """Days if every device did nothing but the model's FLOPs, at its dense peak."""
        return least_accelerator_hours(self.run) / self.run.cluster.devices / 24

    @cached_property
    def highest_mfu(self) -> float:
        """The highest MFU anybody published for the device, or for a well measured one where nobody did."""
        chip = self.run.cluster.accelerator.id
        if self.run.model.experts:  # a router and small matmuls: dense runs are no measure
            return highest_with_experts()
        found = highest_mfu(chip, self.run.training.precision) or highest_mfu(ANYWHERE, self.run.training.precision)
        return max(one.mfu for one in found.values())

    @cached_property
    def usual_mfu(self) -> float:
        """The MFU that published runs usually reach on such a device, of models with or without experts."""
        run = self.run
        return usual_mfu(run.cluster.accelerator.id, run.training.precision, bool(run.model.experts))

    def claim(self, layout: Layout, convention: str = "full_attention") -> tuple[float, float, float]:
        """MFU to claim for a layout, its days and accelerator-hours: the prediction, but no more than is usual.

        Args:
            layout: a legal layout.
            convention: which FLOPs the MFU counts.
        """
        document = self.predicted(layout)
        share, days, hours = document["mfu"][convention], document["run"]["days"], document["run"]["accelerator_hours"]
        slower = max(1.0, share / self.usual_mfu)
        return share / slower, days * slower, hours * slower

    def most(self, layout: Layout, convention: str = "full_attention") -> tuple[float, float, float]:
        """As `claim`, with the most that may be claimed: the prediction, but no more than anybody published."""
        document = self.predicted(layout)
        share, days, hours = document["mfu"][convention], document["run"]["days"], document["run"]["accelerator_hours"]
        slower = max(1.0, share / self.highest_mfu)
        return share / slower, days * slower, hours * slower

    # ---------------------------------------------------------------- layouts
    def rows(self, wanted: Mapping[str, Any]) -> np.ndarray:
        """Rows of the search that have these fields."""
        mask = np.ones(self.found.fitting, bool)
        for name, value in wanted.items():
            if name in CODES and value not in CODES[name]:
                return np.zeros(0, int)
            code = float(CODES[name].index(value)) if name in CODES else float(value)
            mask &= self.found.columns[name] == code
        return np.flatnonzero(mask)

    def fastest(self, wanted: Mapping[str, Any]) -> tuple[float, Layout] | None:
        """Step time and layout of the fastest with these fields, or None where none is legal and fits."""
        found: tuple[float, Layout] | None = self._once(
            ("fastest", *sorted(wanted.items())), lambda: self._fastest(wanted)
        )
        return found

    def _fastest(self, wanted: Mapping[str, Any]) -> tuple[float, Layout] | None:
        rows = self.rows(wanted)
        if not len(rows):
            return None
        free = rows[self.found.values["peak_bytes"][rows] <= ROOM * self.capacity]
        rows = free if len(free) else rows
        row = int(rows[np.argmin(self.found.values["time_s"][rows])])
        return float(self.found.values["time_s"][row]), self.found.layout(row)

    def completed(self, answers: Mapping[str, Any]) -> Layout | None:
        """The layout of a sheet's fields; what a sheet does not ask for (shard groups, say) is taken at its best.

        None where a degree is none. A layout that is illegal or does not fit comes back as it was said.
        """
        said = layout_of(self.run, answers)
        if said is None or not self.feasible:
            return said
        left = {"expert_tensor"} if answers.get("expert_tensor") is None else set()
        found = self.fastest({name: getattr(said, name) for name in (*WHOLE, *CODED) if name not in left})
        if found is None:
            return said
        return dataclasses.replace(found[1], order=said.order) if answers.get("order") else found[1]

    def predicted(self, layout: Layout) -> dict[str, Any]:
        """`course predict` of one layout."""
        whole = dataclasses.replace(self.run, layout=layout)
        found: dict[str, Any] = self._once(("predicted", layout), lambda: _predicted(whole))
        return found

    def crosses(self, layout: Layout) -> dict[str, bool]:
        """Whether the groups of each axis span nodes, axes that send nothing left out."""
        return dict(self._once(("crosses", layout), lambda: self._crosses(layout)))

    def _crosses(self, layout: Layout) -> dict[str, bool]:
        found, sent = self._links(layout), self.sent(layout)
        named = {"data": ("data", "expert_data"), "expert": ("expert", "expert_tensor")}
        return {
            axis: any(bool(found[name].crosses[0]) for name in named.get(axis, (axis,)) if name in found)
            for axis in AXES
            if sent[axis] > 0
        }

    def sent(self, layout: Layout) -> dict[str, float]:
        """Bytes one device sends a step, by axis."""
        free = dataclasses.replace(self.run, layout=None)
        return dict(self._once(("sent", layout), lambda: sent_bytes(free, self._row(layout))))

    def best_order(self, layout: Layout) -> tuple[float, tuple[str, ...]]:
        """The shortest step of a layout over the orders of its axes, and that order."""
        found: tuple[float, tuple[str, ...]] = self._once(("order", layout), lambda: self._best_order(layout))
        return found

    def _best_order(self, layout: Layout) -> tuple[float, tuple[str, ...]]:
        split = [axis for axis in layout.order if getattr(layout, axis) > 1]
        rest = tuple(axis for axis in layout.order if axis not in split)
        times = {}
        for some in itertools.permutations(split):  # axes of one rank may stand anywhere
            if layout.tensor == 1 or some[0] == "tensor":
                time = self.predicted(dataclasses.replace(layout, order=some + rest))["step"]["time_s"]
                if time is not None:
                    times[some + rest] = time
        if not times:
            return float("inf"), layout.order
        best = min(times, key=lambda order: (round(times[order], 6), order[: len(split)] != tuple(split)))
        return times[best], best

    def _row(self, layout: Layout) -> Columns:
        return from_layout(layout, self.run)

    def _links(self, layout: Layout) -> dict[str, Any]:
        return links(self.run, self._row(layout), constants_for(self.run), tuple(layout.order))


def _predicted(run: Run) -> dict[str, Any]:
    """A prediction; a layout that cuts a matmul into less than a row is no legal one, with the formula's reason."""
    try:
        return predict(run)
    except FormulaError as error:
        return {"legal": False, "reasons": [str(error).rstrip(".")], "step": {"time_s": None}}


@lru_cache(maxsize=64)
def study(prompt: Prompt) -> Study:
    """The study of a question, kept for the last few.

    >>> from course.interview.prompts import generate
    >>> known = study(generate(7))
    >>> known.feasible, known.parameters["total"] > 1e9
    (True, True)
    """
    return Study(prompt)


def layout_of(run: Run, answers: Mapping[str, Any]) -> Layout | None:
    """The layout of a sheet's fields with all else plain, or None where a degree is none.

    Args:
        run: the run, for the order its program takes.
        answers: fields of steps 3 to 5 by name; what is missing is 1, or nothing.
    """
    try:
        degrees: dict[str, Any] = {name: int(answers.get(name) or 1) for name in WHOLE}
        coded: dict[str, Any] = {name: answers.get(name) or "none" for name in CODED}
        several = degrees["interleave"] > 1 and degrees["pipeline"] > 1
        layout = Layout(
            **degrees, **coded, schedule="interleaved" if several else "1f1b",
            order=whole_order(answers.get("order"), run.software.order),
        )  # fmt: skip
    except (RunFileError, TypeError, ValueError):
        return None
    return dataclasses.replace(layout, shard_group=1) if layout.sharding == "none" else layout


def whole_order(said: Any, usual: tuple[str, ...]) -> tuple[str, ...]:
    """An order of all four axes from one of some of them: those left out follow in the usual order.

    >>> whole_order(("data",), ("tensor", "context", "data", "pipeline"))
    ('data', 'tensor', 'context', 'pipeline')
    """
    named = tuple(axis for axis in said or () if axis in usual)
    return named + tuple(axis for axis in usual if axis not in named)
