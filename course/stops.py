"""When to stop adding devices: the doubling that no longer pays, and the fewest devices that meet the deadline."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from course.errors import UserError
from course.formula import FormulaError
from course.mfu import wall_time
from course.problem import Run

DOUBLINGS = 3
"""How far to look on each side of the devices asked about."""

Times = tuple[float, float]


def stops(run: Run, best: Callable[[Run], Times | None], asked: Times | None = None) -> dict[str, int | None]:
    """Device counts at which to stop, among halvings and doublings of the run's own count.

    The global batch stays as it is: this is strong scaling.

    Args:
        run: the question.
        best: gives (step time, compute time) in seconds of the best layout of a run, None where nothing fits.
        asked: the same for the run's own devices, where it is known already.

    Returns:
        `break_even_devices`: the count whose next doubling saves less compute time than the communication, idle time
        and overhead it adds; None where even the last doubling looked at still pays.
        `deadline_devices`: the fewest that finish within the goal's days; None without a goal or where none does.
    """
    own = run.cluster.devices
    counts = [own // 2**k for k in range(DOUBLINGS, 0, -1) if own % 2**k == 0] + [
        own * 2**k for k in range(DOUBLINGS + 1)
    ]
    times = {n: asked if n == own and asked is not None else _tried(run, n, best) for n in counts}
    break_even = None
    for n in counts:
        now, then = times.get(n), times.get(2 * n)
        if now is None or then is None:
            continue
        saved, added = now[1] - then[1], (then[0] - then[1]) - (now[0] - now[1])
        if saved < added:
            break_even = n
            break
    steps = run.training.tokens / run.training.tokens_per_step
    deadline = None
    if run.goal.days is not None:
        for n in counts:
            found = times[n]
            if found and wall_time(time=found[0] * steps, goodput=run.cluster.goodput) <= run.goal.days * 86400:
                deadline = n
                break
    return {"break_even_devices": break_even, "deadline_devices": deadline}


def _tried(run: Run, devices: int, best: Callable[[Run], Times | None]) -> Times | None:
    """The best on another number of devices; a number too large to be searched has no answer, and is no error."""
    try:
        return best(with_devices(run, devices))
    except (UserError, FormulaError):
        return None


def with_devices(run: Run, devices: int) -> Run:
    """The same run on another number of devices, its layout left open."""
    return dataclasses.replace(run, cluster=dataclasses.replace(run.cluster, devices=devices), layout=None)
