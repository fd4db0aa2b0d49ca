"""The axes of a layout and the values a sweep gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from course.errors import UserError
from course.fields import LAYOUT_FIELDS, nearest
from course.legality import RECOMPUTES, SCHEDULES, SHARDINGS
from course.predict.columns import CODES, Columns
from course.problem import Run

LARGEST_TENSOR, MOST_CHUNKS, LARGEST_MICRO_BATCH, LARGEST_CONTEXT = 64, 16, 16, 64
"""Where the search ends on its own; a larger value can be asked for with --fix."""

FEWEST_TOKENS = 4096
"""Tokens of a sequence each context rank keeps at least, unless --fix asks for fewer: the fewest of any published run
that splits sequences, so that nothing says what kernels on shorter pieces really take."""


@dataclasses.dataclass(frozen=True)
class Axes:
    """The values of each axis, numbers and codes as columns hold them, and the fields that are `held` at one value.

    Not among them: `data`, which follows from the devices, and where the ranks lie (`order`, `shard_group`).
    """

    values: Mapping[str, tuple[float, ...]]
    held: Mapping[str, Any]

    def grid(self, *names: str) -> Columns:
        """All combinations of the values of some axes, the last one changing fastest."""
        places = np.indices([len(self.values[name]) for name in names])
        return {name: np.array(self.values[name])[place.ravel()] for name, place in zip(names, places, strict=True)}

    @property
    def schedules(self) -> Columns:
        """Schedules with their chunks a stage: several chunks want the interleaved schedule, and that wants several."""
        both = self.grid("schedule", "interleave")
        fit = (both["schedule"] == SCHEDULES.index("interleaved")) == (both["interleave"] > 1)
        if fit.any():  # where both are held and contradict each other, the rule `interleave` says so
            both = {name: column[fit] for name, column in both.items()}
        return both

    @property
    def plain_schedule(self) -> np.ndarray:
        """Which of `schedules` a single stage goes by, which has none: 1F1B, where it is among them."""
        plain = np.asarray(self.schedules["schedule"] == SCHEDULES.index("1f1b"))
        return plain if plain.any() else np.ones_like(plain)


def axes(run: Run, fix: Iterable[str] = ()) -> Axes:
    """The axes of a run.

    Args:
        run: the question; of its layout only the fields named in `fix` are used.
        fix: fields of the layout to hold.

    Raises:
        UserError: a fixed field is not given or no field.

    >>> from course.examples import path
    >>> from course.problem import load
    >>> axes(load(path("llama-3-8b-8-h100"))).values["tensor"]
    (1.0, 2.0, 4.0, 8.0)
    """
    held = _held(run, tuple(fix))
    devices, model = run.cluster.devices, run.model
    sequences = run.training.global_batch_sequences
    free: dict[str, Iterable[float]] = {
        "tensor": [n for n in divisors(devices, LARGEST_TENSOR) if model.heads % n == 0],
        "pipeline": divisors(devices, model.layers + 2),
        "context": divisors(devices, min(LARGEST_CONTEXT, max(1, run.training.sequence_length // FEWEST_TOKENS))),
        "micro_batch": divisors(sequences, LARGEST_MICRO_BATCH),
        "schedule": [
            code for code, name in enumerate(SCHEDULES) if name != "zero-bubble" or run.software.split_backward
        ],
        "interleave": range(1, 1 + min(MOST_CHUNKS, max(1, (model.layers + 2) // 2))),
        "expert": [n for n in divisors(devices, model.experts) if model.experts % n == 0] or [1],
        "expert_tensor": divisors(devices, LARGEST_TENSOR if model.experts else 1),
        "sharding": range(len(SHARDINGS)),
        "recompute": [
            code for code, name in enumerate(RECOMPUTES) if name != "selective" or not run.software.flash_attention
        ],
        "sequence_parallel": (1, 0),
    }
    values = {
        name: (float(held[name]),) if name in held else tuple(map(float, choices)) for name, choices in free.items()
    }
    return Axes(values, held)


def _held(run: Run, fix: tuple[str, ...]) -> dict[str, Any]:
    """The values to hold, as columns hold them: numbers and codes; `order` as it is written."""
    if not fix:
        return {}
    if run.layout is None:
        raise UserError("--fix names fields of [layout], and the run file has none. Add it with the values to hold.")
    held: dict[str, Any] = {}
    for name in fix:
        if name == "stage_layers":
            raise UserError("--fix stage_layers: the layers of a stage follow from pipeline. Fix pipeline instead.")
        if name not in LAYOUT_FIELDS:
            raise UserError(
                f"--fix {name[:80]}: [layout] has no such field; the nearest name is {nearest(name, LAYOUT_FIELDS)}."
            )
        value = getattr(run.layout, name)
        held[name] = value if name == "order" else float(CODES[name].index(value) if name in CODES else value)
    return held


def divisors(number: int, most: int) -> list[int]:
    """The divisors of a number up to `most`, ascending.

    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def shard_groups(run: Run, axes: Axes, columns: Columns) -> list[np.ndarray]:
    """The shard groups to try for each row, one column a choice; infinite where a row has no such choice.

    The first is the whole data x context group. The others keep copies of the state, so that gathers stay near: what of
    the group lies in one node where tensor ranks fill the rest, a whole node, a node of nodes, and so on; of each the
    largest divisor.
    """
    if "shard_group" in axes.held:
        return [np.full_like(columns["data"], axes.held["shard_group"])]
    first, place = runs(columns, ("data", "context", "tensor"))
    node, devices = run.cluster.fabric.node_size, run.cluster.devices
    ranks, tensor = (columns["data"] * columns["context"])[first], columns["tensor"][first]
    table = [_groups(int(n), int(t), node, devices) for n, t in zip(ranks, tensor, strict=True)]
    longest = max(map(len, table), default=1)
    padded = np.array([row + (np.inf,) * (longest - len(row)) for row in table]).reshape(len(table), longest)
    return list(padded[place].T)


def runs(columns: Columns, names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Runs of neighbouring rows alike in `names`: the first row of each run, and of each row the number of its run.

    >>> first, place = runs({"tensor": np.array([1, 1, 2, 1])}, ["tensor"])
    >>> first.tolist(), place.tolist()
    ([0, 2, 3], [0, 0, 1, 2])
    """
    count = len(columns["tensor"])
    begins = np.zeros(count, bool)
    begins[:1] = True
    for name in names:
        begins[1:] |= columns[name][1:] != columns[name][:-1]
    return np.flatnonzero(begins), np.cumsum(begins) - 1


@lru_cache(maxsize=4096)
def _groups(ranks: int, tensor: int, node: int, devices: int) -> tuple[float, ...]:
    wanted = [node // tensor] if tensor < node else []
    size = node
    while 1 < size < devices:
        wanted.append(size)
        size *= node
    near = {_largest_divisor(ranks, size) for size in wanted} - {1, ranks}
    return (float(ranks), *map(float, sorted(near)))


def _largest_divisor(number: int, most: int) -> int:
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)
