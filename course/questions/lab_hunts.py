"""The lab, bugs to hunt: a clock that does not wait, an efficiency of shared cores, a utilisation of another peak."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_TIMER = """
from statistics import median

def step_time(step, wait, clock, warmup, steps):
    for _ in range(warmup):
        step()
{before}    times = []
    for _ in range({count}):
        start = clock()
        step()
{after}        times.append(clock() - start)
    return {value}
"""


def _timer(**changed: str) -> str:
    right = {"before": "    wait()\n", "after": "        wait()\n", "count": "steps", "value": "median(times)"}
    return _TIMER.format(**{**right, **changed})


_EACH_WARM = """
from statistics import median

def step_time(step, wait, clock, warmup, steps):
    times = []
    for _ in range(warmup + steps):
        start = clock()
        step()
        wait()
        times.append(clock() - start)
    return median(times)
"""

_hunt_timer = BugHunt(
    id="lab.18",
    title="Bug hunt: a clock that waits",
    prompt=(
        "`step_time(step, wait, clock, warmup, steps)` returns the median seconds of a step. `step()` only asks the "
        "device for work and returns at once; `wait()` returns when all work asked for is done; `clock()` gives "
        "seconds. The first `warmup` steps do not count. Versions of it went wrong in five ways. Write "
        "`test(step_time)`, with a device and a clock of your own."
    ),
    function="step_time",
    good=_timer(),
    faults=(
        Fault(_timer(after=""), "Let the device work on after `step` has returned."),
        Fault(_timer(before=""), "Let the last warm-up step be long, and look at the first timed one."),
        Fault(_EACH_WARM, "Let the first steps be much longer than the others."),
        Fault(_timer(value="sum(times) / len(times)"), "Let one timed step of five be ten times as long."),
        Fault(_timer(value="min(times)"), "Let the timed steps differ; the median was asked for."),
    ),
    hints=(
        "A device: a list of the seconds its steps take, the moment until which it is busy, and a clock that only "
        "moves when somebody waits.",
        "`step` moves `busy` on from max(busy, now); `wait` moves `now` to `busy`.",
        "Two warm-up steps of 9 s, then 1, 2, 3: the median is 2. With one warm-up step and one timed step the wait in "
        "front shows.",
    ),
    difficulty=2,
    minutes=12,
    source="asynchronous launches: a missing synchronise times the launch; the lab's protocol",
)  # fmt: skip

_EFFICIENCY = """
def efficiency(base, run):
    if {work}:
        return None
    if {cores}:
        return None
    return {value}
"""


def _efficiency(**changed: str) -> str:
    right = {
        "work": "base['work'] != run['work']",
        "cores": "base['cores'] / base['devices'] != run['cores'] / run['devices']",
        "value": "base['seconds'] * base['devices'] / (run['seconds'] * run['devices'])",
    }
    return _EFFICIENCY.format(**{**right, **changed})


_hunt_efficiency = BugHunt(
    id="lab.19",
    title="Bug hunt: efficiency, or none",
    prompt=(
        "`efficiency(base, run)` takes two measured steps, dictionaries with `work` (a text), `devices`, `seconds` and "
        "`cores` (that all devices of the run had together). It returns the strong-scaling efficiency, or None where "
        "the work differs or a device had not as many cores in both. Versions of it went wrong in five ways. Write "
        "`test(efficiency)`."
    ),
    function="efficiency",
    good=_efficiency(),
    faults=(
        Fault(_efficiency(work="False"), "Let the second step do half of the work."),
        Fault(_efficiency(cores="False"), "Let four devices share two cores, beside one device on one core."),
        Fault(_efficiency(cores="run['cores'] < run['devices']"), "Let the baseline's one device have both cores."),
        Fault(_efficiency(value="base['seconds'] / (run['seconds'] * run['devices'])"),
              "Let the baseline have two devices."),
        Fault(_efficiency(value="base['seconds'] / run['seconds']"), "A speedup is no efficiency."),
    ),
    hints=(
        "Two pairs that may be divided, three that may not.",
        "From 2 devices on 2 cores in 4 s to 4 on 4 in 2.5 s: 0.8.",
        "None for other work, for 4 devices on 2 cores, and for one device that had 2 cores.",
    ),
    difficulty=1,
    minutes=7,
    source="SCA-07, other work divided; measured with JAX on two cores: one device used both; four ranks on two cores",
)  # fmt: skip

_MFU = """
def mfu(flops, seconds, devices, peaks, precision):
    peak = {peak}
    return {value}
"""


def _mfu(**changed: str) -> str:
    return _MFU.format(**{"peak": "peaks[precision]", "value": "flops / (seconds * devices * peak)", **changed})


_hunt_mfu = BugHunt(
    id="lab.20",
    title="Bug hunt: against which peak?",
    prompt=(
        "`mfu(flops, seconds, devices, peaks, precision)`: `flops` are the model FLOPs of one step over all devices, "
        "`peaks` maps precisions to the peak FLOP/s of one device. Versions of it went wrong in five ways. Write "
        "`test(mfu)`."
    ),
    function="mfu",
    good=_mfu(),
    faults=(
        Fault(_mfu(peak="max(peaks.values())"), "Let the step be in fp32, and bf16 be faster."),
        Fault(_mfu(peak="peaks['bf16']"), "Let the step be in fp32."),
        Fault(_mfu(value="flops / (seconds * peak)"), "Let there be two devices."),
        Fault(_mfu(value="4 / 3 * flops / (seconds * devices * peak)"),
              "Check the figure itself: work done twice is no work of the model."),
        Fault(_mfu(value="min(1.0, flops / (seconds * devices * peak))"),
              "Let the peak be too low: a utilisation above 1 must be seen, not cut off."),
    ),
    hints=(
        "One step in each precision on two devices, and one that cannot be.",
        "400 FLOP in 2 s on 2 devices of 200 FLOP/s: 0.5.",
        "The same in bf16 at 400 FLOP/s: 0.25. With 2,000 FLOP in fp32 it is 2.5, and that must come out.",
    ),
    difficulty=1,
    minutes=6,
    source="MFU-13; the first source document: peaks reported for MFU",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hunt_timer, _hunt_efficiency, _hunt_mfu)
