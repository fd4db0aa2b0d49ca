"""Step 9, bugs to hunt: a report that divides different work, a count of valid work, and a fitted law."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_REPORT = """
def report(base, run):
    same = base["sequences"] == run["sequences"]
    each = base["sequences"] * run["devices"] == run["sequences"] * base["devices"]
    if base["length"] != run["length"] or {refused}:
        raise ValueError("different work")
    if {strong}:
        return "strong", base["seconds"] * base["devices"] / (run["seconds"] * run["devices"])
    return "weak", {weak}
"""


def _report(**changed: str) -> str:
    right = {"refused": "not (same or each)", "strong": "same", "weak": 'base["seconds"] / run["seconds"]'}
    return _REPORT.format(**(right | changed))


_hunt_report = BugHunt(
    id="scaling.19",
    title="Bug hunt: the family of a report",
    prompt=(
        "`report(base, run)` gives a pair, the family and the efficiency, for two dictionaries with `devices`, "
        "`sequences` (of a step), `length` (of a sequence) and `seconds`: \"strong\" for the same sequences, \"weak\" "
        "for the same sequences a device. For anything else it raises ValueError. The devices differ. Versions of it "
        "went wrong in five ways. Write `test(report)`."
    ),
    function="report",
    good=_report(),
    faults=(
        Fault(_report(refused="False"), "Ask for a batch that is neither the same nor in proportion."),
        Fault(_report(refused="not (same or each)").replace('base["length"] != run["length"] or ', ""),
              "Ask for the same batch of longer sequences."),
        Fault(_report(weak='base["seconds"] * base["devices"] / (run["seconds"] * run["devices"])'),
              "Ask for a weak pair: its ideal time is constant."),
        Fault(_report(strong="False"), "Ask for a strong pair."),
        Fault(_report(strong="same or each"), "Ask which family a pair with the same work a device is."),
    ),
    hints=(
        "Four pairs of runs: strong, weak, neither, and other lengths.",
        "64 to 128 devices: 10 s to 6.25 s with one batch: strong, 0.8; 10 s to 12.5 s with twice the batch: 0.8.",
        "For the last two, try, except ValueError, else fail.",
    ),
    difficulty=2,
    minutes=9,
    source="SCA-05; NVIDIA/DeepLearningExamples#894, horovod/horovod#40: the family of a rate left open",
)  # fmt: skip

_VALID = """
def valid_rate(steps):
    done = {start}
    seconds = 0.0
    for number, finite, sequences, time in steps:
        if {counts}:
            done[number] = sequences
        seconds += {time}
    return sum(done{values}) / seconds
"""


def _valid(**changed: str) -> str:
    right = {"start": "{}", "counts": "finite", "time": "time", "values": ".values()"}
    return _VALID.format(**(right | changed))


_REPEATED = """
def valid_rate(steps):
    done = sum(sequences for _, finite, sequences, _ in steps if finite)
    return done / sum(time for *_, time in steps)
"""

_ONCE = """
def valid_rate(steps):
    done, spent = {}, {}
    for number, finite, sequences, time in steps:
        spent[number] = time
        if finite:
            done[number] = sequences
    return sum(done.values()) / sum(spent.values())
"""

_hunt_valid = BugHunt(
    id="scaling.20",
    title="Bug hunt: valid work a second",
    prompt=(
        "`valid_rate(steps)` is valid sequences a second over a log: each entry is (number of the step, whether its "
        "gradients were finite, sequences, seconds). A step that was not finite is skipped: no work, but its time "
        "counts. A step repeated after a restart has the same number: its time counts each time, its work once. "
        "Versions of it went wrong in four ways. Write `test(valid_rate)`."
    ),
    function="valid_rate",
    good=_valid(),
    faults=(
        Fault(_REPEATED, "Repeat a step after a restart."),
        Fault(_valid(counts="True"), "Let a step be skipped."),
        Fault(_valid(time="time if finite else 0"), "A skipped step takes its time all the same."),
        Fault(_ONCE, "Repeat a step, and look at the seconds."),
    ),
    hints=(
        "One log with a skipped step, one with a repeated step.",
        "Give every entry its own seconds, so that you see which were counted.",
        "[(1, True, 8, 2), (2, False, 8, 2), (1, True, 8, 4)]: 8 sequences in 8 s.",
    ),
    difficulty=2,
    minutes=8,
    source="the second source document: valid optimizer update; SCA-07: steps taken for work",
)  # fmt: skip

_FIT = """
def predict(few, time_few, many, time_many, wanted):
    x = {ratio}
    share = (time_many / time_few - 1 / x) / (1 - 1 / x)
    y = {wanted}
    return {result}
"""


def _fit(**changed: str) -> str:
    right = {"ratio": "many / few", "wanted": "wanted / few", "result": "time_few * (share + (1 - share) / y)"}
    return _FIT.format(**(right | changed))


_hunt_fit = BugHunt(
    id="scaling.21",
    title="Bug hunt: Amdahl's law through two points",
    prompt=(
        "`predict(few, time_few, many, time_many, wanted)` puts Amdahl's law through two measured times of the same "
        "work and gives the time on `wanted` devices. Versions of it went wrong in four ways. Write `test(predict)`."
    ),
    function="predict",
    good=_fit(),
    faults=(
        Fault(_fit(ratio="many"), "Let the baseline have more than one device."),
        Fault(_fit(wanted="wanted / many"), "Ask for a third number of devices, then for one of the two."),
        Fault(_fit(result="time_many * (share + (1 - share) / y)"), "Ask for the time on the baseline itself."),
        Fault(_fit(result="time_few / (y - share * (y - 1))"),
              "That is Gustafson's law; ask for much more devices, with a fixed share that shows."),
    ),
    hints=(
        "A law through two points must give those two back.",
        "10 s on 8 and 5.5 s on 16: one second is fixed.",
        "On 80 devices that leaves 1.9 s.",
    ),
    difficulty=2,
    minutes=7,
    source="the two laws mixed, and shares of one size used at another; SCA-17: a line through two sizes",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hunt_report, _hunt_valid, _hunt_fit)
