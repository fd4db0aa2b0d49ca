"""Why a layout has each of its axes: the fit or speed problem that axis solves, by what is left without it.

An axis is compared with the best of all layouts that do without it, and its value with the best of the next smaller
one: where that one is as fast, the value is no gain, whatever the axis is. A rung of sharding or of recomputation is
compared also with the same layout one rung lower, a split backward with the same layout under 1F1B, and a shard group
or an order of its own with the same layout placed plainly. Where none is worse the sentence says so.
"""

from __future__ import annotations

import math

import numpy as np

from course.legality import RECOMPUTES, SCHEDULES, SHARDINGS
from course.predict.columns import Columns, derived
from course.predict.constants import constants_for
from course.problem import Run
from course.sweep.placement import NOTICED, ORDERS, evaluate_placed
from course.sweep.search import Best, Search
from course.sweep.space import take

GIB = 2.0**30

DEGREES = ("data", "tensor", "pipeline", "context", "expert", "expert_tensor", "interleave", "micro_batch")
LADDERS = {"sharding": SHARDINGS, "recompute": RECOMPUTES}
PLAIN = {
    "schedule": "under 1F1B", "shard_group": "in one group", "order": "in the recipe's order",
}  # fmt: skip
"""What needs a reason where it is not plain, and how the plain choice is said; a schedule, where backward is split."""

REASONED = (*DEGREES, *LADDERS, *PLAIN)
"""Every axis that may have a reason, in the order in which reasons are given."""

ABSENT = {
    "data": "without replicas", "tensor": "without it", "pipeline": "without stages",
    "context": "with whole sequences", "expert": "with all experts on each rank",
    "expert_tensor": "with whole experts", "interleave": "with one chunk a stage",
    "micro_batch": "with single sequences",
}  # fmt: skip


def whys(run: Run, found: Search, rows: list[int]) -> list[dict[str, str]]:
    """For each of the layouts in `rows`: axis above its simplest value -> one clause, its kind of reason first."""
    if not rows:
        return []
    lower = {name: _one_lower(run, found, name, rows) for name in LADDERS}
    split = bool((found.columns["schedule"][rows] == SCHEDULES.index("zero-bubble")).any())
    plain = {name: _plainly(run, found, name, rows) for name in PLAIN if split or name != "schedule"}
    capacity = run.cluster.accelerator.memory_bytes
    return [
        _why(found, row, {name: take(columns, place) for name, columns in lower.items()}, capacity)
        | {
            name: _against_plain(name, float(found.values["time_s"][row]), take(columns, place), capacity)
            for name, columns in plain.items()
            if columns["differs"][place]
        }
        for place, row in enumerate(rows)
    ]


def _one_lower(run: Run, found: Search, name: str, rows: list[int]) -> Columns:
    """The same layouts one rung lower (for recomputation: the next lower one that the search tried), evaluated."""
    columns = take(found.columns, rows)
    rungs = np.array(sorted(found.best[name]), float)
    columns[name] = rungs[np.maximum(np.searchsorted(rungs, columns[name]) - 1, 0)]
    columns = derived(columns, run)
    return {**evaluate_placed(run, columns, constants_for(run)), "rung": columns[name]}


def _plainly(run: Run, found: Search, name: str, rows: list[int]) -> Columns:
    """The same layouts under 1F1B, with one shard group, or in the recipe's order, evaluated."""
    columns = take(found.columns, rows)
    whole = columns["data"] * columns["context"]
    if name == "schedule":
        split = columns[name] == SCHEDULES.index("zero-bubble")
        usual = np.where(split, SCHEDULES.index("1f1b"), columns[name])
    else:
        usual = whole if name == "shard_group" else np.full_like(whole, ORDERS.index(tuple(run.software.order)))
    differs = (columns[name] != usual) & ((columns["sharding"] > 0) | (name != "shard_group"))
    columns = derived({**columns, name: usual}, run)
    return {**evaluate_placed(run, columns, constants_for(run)), "differs": differs}


def _against_plain(name: str, time: float, plain: Columns, capacity: float) -> str:
    what = PLAIN[name]
    peak, other = float(plain["peak_bytes"]), float(plain["time_s"])
    if peak > capacity:
        return f"fit: {what} the same layout needs {peak / GIB:.1f} of {_gib(capacity)}"
    if other > time * (1 + NOTICED):
        return f"speed: {what} the same layout takes {other:.4g} s a step, {more(other, time)}"
    return f"no gain: {what} the same layout takes {other:.4g} s a step"


def _why(found: Search, row: int, lower: dict[str, Columns], capacity: float) -> dict[str, str]:
    why = {}
    time = float(found.values["time_s"][row])
    for name in DEGREES:
        value = int(found.columns[name][row])
        if value > 1:
            why[name] = _degree(name, found.best[name], value, time, capacity)
    for name, names in LADDERS.items():
        if found.columns[name][row] > lower[name]["rung"]:
            rung = names[int(lower[name]["rung"])]
            best = min(b.time_s for v, b in found.best[name].items() if v < found.columns[name][row])
            peak, other = float(lower[name]["peak_bytes"]), float(lower[name]["time_s"])
            why[name] = _rung(name, rung, peak, other, best, time, capacity)
    return why


def _degree(name: str, table: dict[int, Best], value: int, time: float, capacity: float) -> str:
    absent = ABSENT[name]
    without = table.get(1)
    smaller = max((other for other in table if 1 < other < value), default=None)
    if without is None:
        sentence = f"legality: no layout {absent} is legal"
    elif math.isinf(without.time_s):
        sentence = f"fit: {absent} the smallest needs {without.peak_bytes / GIB:.1f} of {_gib(capacity)}"
    elif without.time_s > time * (1 + NOTICED):
        gained = smaller is None or table[smaller].time_s > time * (1 + NOTICED)
        sentence = (
            f"{'speed' if gained else 'no gain'}: {absent} the best that fits takes {without.time_s:.4g} s a step, "
            f"{more(without.time_s, time)}"
        )
    else:
        return f"no gain: {absent} the best that fits takes {without.time_s:.4g} s a step"
    if smaller is None:
        return sentence
    next_smaller = table[smaller].time_s
    if math.isinf(next_smaller):
        return f"{sentence}; at {smaller} nothing fits"
    return f"{sentence}; {_joined(next_smaller, time)}at {smaller} the best takes {next_smaller:.4g} s"


def _joined(other: float, time: float) -> str:
    """What joins a smaller value to what was said of the axis: a word of contrast where that one is as fast."""
    return "but " if other <= time * (1 + NOTICED) else ""


def _rung(name: str, rung: str, peak: float, other: float, best: float, time: float, capacity: float) -> str:
    what = "without recomputation" if rung == "none" and name == "recompute" else f"under {name} {rung}"
    if peak > capacity:
        same = f"fit: {what} the same layout needs {peak / GIB:.1f} of {_gib(capacity)}"
    elif other > time * (1 + NOTICED):
        same = f"speed: {what} the same layout takes {other:.4g} s a step, {more(other, time)}"
    else:
        same = f"no gain: {what} the same layout fits in {_gib(peak)} and takes {other:.4g} s a step"
    if math.isinf(best):
        return f"{same}, and nothing else fits there or below"
    return f"{same}; {_joined(best, time)}the best that fits there or below takes {best:.4g} s"


def more(other: float, time: float) -> str:
    """How much more `other` is than `time`, in words.

    >>> more(1.5, 1.0), more(3.0, 1.0)
    ('50 % more', '3.0 times as much')
    """
    ratio = other / time
    return f"{ratio - 1:.0%}".replace("%", " % more") if ratio < 2 else f"{ratio:.1f} times as much"


def _gib(bytes_held: float) -> str:
    return f"{bytes_held / GIB:.1f} GiB"
