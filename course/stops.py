"""When to stop adding devices, read from the best layout of each device count.

Two answers, which need not agree. The *break-even*: a further doubling saves less compute time than the communication,
idle time and overhead it adds. The *deadline*: a further doubling costs more accelerator-hours than the deadline is
worth. What it is worth follows from the goal, as `WORTH` says.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from course.errors import UserError
from course.formula import FormulaError
from course.mfu import accelerator_hours, cost, wall_time
from course.problem import Goal, Layout, Run

HALVINGS, DOUBLINGS = 3, 4
"""How far to look on each side of the devices asked about."""

WORTH = (
    "meeting the deadline is worth the budget of accelerator-hours (whatever it takes, where none is given), and "
    "finishing earlier is worth no accelerator-hour more"
)
"""What the deadline is worth, in words."""


@dataclasses.dataclass(frozen=True)
class Fastest:
    """The fastest layout of one device count: seconds of a step and of its compute, and the layout."""

    time_s: float
    compute_s: float
    layout: Layout | None = None


@dataclasses.dataclass(frozen=True)
class Point:
    """What the fastest layout of one device count takes for the whole run; `cost` in the currency of the price."""

    devices: int
    fastest: Fastest
    days: float
    accelerator_hours: float
    cost: float | None


def points(run: Run, best: Callable[[Run], Fastest | None], asked: Fastest | None = None) -> list[Point]:
    """The best of each device count among halvings and doublings of the run's own, in rising order.

    The global batch stays as it is: this is strong scaling. Counts on which nothing fits are left out.

    Args:
        run: the question.
        best: gives the fastest layout of a run, None where nothing fits.
        asked: the same for the run's own devices, where it is known already.
    """
    own = run.cluster.devices
    counts = [own // 2**k for k in range(HALVINGS, 0, -1) if own % 2**k == 0]
    counts += [own * 2**k for k in range(DOUBLINGS + 1)]
    found = []
    for count in counts:
        fastest = asked if count == own and asked is not None else _tried(run, count, best)
        if fastest is not None:
            found.append(_point(run, count, fastest))
    return found


def _point(run: Run, devices: int, fastest: Fastest) -> Point:
    steps = run.training.tokens / run.training.tokens_per_step
    whole = {"time": fastest.time_s * steps, "goodput": run.cluster.goodput}
    price, paid = run.goal.price_per_accelerator_hour, None
    if price is not None:
        paid = float(cost(price_per_accelerator_hour=price, devices=devices, **whole))
    return Point(
        devices, fastest, float(wall_time(**whole)) / 86400, float(accelerator_hours(devices=devices, **whole)), paid
    )


def front(found: Sequence[Point]) -> list[Point]:
    """The points no other beats in wall time and accelerator-hours: better in one, no worse in the other."""
    return [
        one
        for one in found
        if not any(
            other.days <= one.days
            and other.accelerator_hours <= one.accelerator_hours
            and (other.days, other.accelerator_hours) != (one.days, one.accelerator_hours)
            for other in found
        )
    ]


def stops(goal: Goal, found: Sequence[Point]) -> dict[str, int | None]:
    """Device counts at which to stop.

    Args:
        goal: its days are the deadline, its budget what that is worth.
        found: what `points` gives.

    Returns:
        `break_even_devices`: the count whose next doubling saves less compute time than the communication, idle time
        and overhead it adds; None where even the last doubling looked at still pays.
        `deadline_devices`: the count that meets the deadline for what it is worth, and whose next doubling costs more
        accelerator-hours; None without a goal of days, or where no count meets it within the budget.
    """
    at = {point.devices: point.fastest for point in found}
    break_even = next((n for n in at if 2 * n in at and _adds_more_than_it_saves(at[n], at[2 * n])), None)
    deadline = None
    if goal.days is not None:
        budget = goal.budget_accelerator_hours
        hours = {point.devices: point.accelerator_hours for point in found}
        met = (p for p in found if p.days <= goal.days and (budget is None or p.accelerator_hours <= budget))
        deadline = next((point.devices for point in met), None)
        while deadline is not None and hours.get(2 * deadline, math.inf) <= hours[deadline]:
            deadline *= 2  # cheaper and faster: for nothing, even a deadline that is met may be beaten
    return {"break_even_devices": break_even, "deadline_devices": deadline}


def _adds_more_than_it_saves(now: Fastest, then: Fastest) -> bool:
    saved = now.compute_s - then.compute_s
    return saved < (then.time_s - then.compute_s) - (now.time_s - now.compute_s)


def _tried(run: Run, devices: int, best: Callable[[Run], Fastest | None]) -> Fastest | None:
    """The best on another number of devices; a number too large to be searched has no answer, and is no error."""
    try:
        return best(with_devices(run, devices))
    except (UserError, FormulaError):
        return None


def with_devices(run: Run, devices: int) -> Run:
    """The same run on another number of devices, its layout left open."""
    return dataclasses.replace(run, cluster=dataclasses.replace(run.cluster, devices=devices), layout=None)
