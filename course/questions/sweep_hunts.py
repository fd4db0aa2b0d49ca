"""Step 8, bugs to hunt: a front, a choice among layouts, and the record of a run."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_STOP = """
def stop(points, days):
    met = [(n, t) for n, t in points if {meets}]
    if not met:
        {none}
    return min(met, key=lambda point: {cost})[0]
"""


def _stop(**changed: str) -> str:
    return _STOP.format(**({"meets": "t <= days", "none": "return None", "cost": "point[0] * point[1]"} | changed))


_hunt_stop = BugHunt(
    id="sweep.13",
    title="Bug hunt: the deadline",
    prompt=(
        "`stop(points, days)` gets pairs (devices, days of the run) and returns the devices that meet the deadline "
        "with "
        "the fewest device-days, or None where none does. Versions of it went wrong in five ways. Write `test(stop)`."
    ),
    function="stop",
    good=_stop(),
    faults=(
        Fault(_stop(cost="point[1]"), "Give it a larger count that is faster, and dearer than it needs to be."),
        Fault(_stop(cost="point[0]"),
              "Give it more devices that are cheaper: twice as many, less than half of the time."),
        Fault(_stop(meets="t < days"), "Let a count meet the deadline to the day."),
        Fault(_stop(meets="True"), "Let the cheapest count miss the deadline."),
        Fault(_stop(none="met = points"), "Ask for a deadline that no count meets."),
    ),
    hints=(
        "Which points tell the fastest from the cheapest? And the fewest devices from the cheapest?",
        "(64, 30), (128, 14), (256, 8): 64 misses 20 days, 128 is cheapest, 256 fastest.",
        "Add days=14, days=1, and a pair where the larger count has fewer device-days.",
    ),
    difficulty=1,
    minutes=6,
    source="the first source document: optimizing wall time while ignoring total accelerator-hours",
)  # fmt: skip

_CHOOSE = """
def choose(rows, room, error):
    if {same}:
        raise ValueError("not the same work")
    fits = [row for row in rows if {fits}]
    best = min(row["seconds"] for row in {among})
    tied = [row for row in fits if row["seconds"] <= best * (1 + {error})]
    return min(tied, key=lambda row: {key})["name"]
"""


def _choose(**changed: str) -> str:
    right = {"same": 'len({row["sequences"] for row in rows}) > 1', "fits": 'row["gib"] <= room', "among": "fits",
             "error": "error", "key": '(row["axes"], row["seconds"])'}  # fmt: skip
    return _CHOOSE.format(**(right | changed))


_hunt_choose = BugHunt(
    id="sweep.19",
    title="Bug hunt: the choice",
    prompt=(
        "`choose(rows, room, error)` gets dictionaries with `name`, `sequences` (of a step), `gib`, `axes` and "
        "`seconds`. "
        "It drops what needs more than `room` GiB, and returns the name of the row with the fewest axes among those "
        "within a share `error` of the fastest that fits; of equally simple ones the fastest. Rows with different "
        "`sequences` raise ValueError. Versions of it went wrong in five ways. Write `test(choose)`."
    ),
    function="choose",
    good=_choose(),
    faults=(
        Fault(_choose(same="False"), "Mix rows with different sequences a step."),
        Fault(_choose(fits="True"), "Let the fastest row need more memory than there is."),
        Fault(_choose(among="rows"), "Let a row that does not fit be much faster than all that do."),
        Fault(_choose(error="0"), "Let a simpler row be a little slower than the fastest."),
        Fault(_choose(key='row["axes"]', error="10"), "Let a simple row be far slower than the fastest."),
    ),
    hints=(
        "Five rows are enough: what does each of them try to catch?",
        "One that is fastest and does not fit, one fast with two axes, one 3 % slower with one, one with none and "
        "twice "
        "as slow.",
        "Assert the third; then change one row's sequences and expect ValueError (try, except, else).",
    ),
    difficulty=2,
    minutes=9,
    source="the two mistakes of the first source document on layouts: what fits, and equal batches",
)  # fmt: skip

_RECORD = """
def record(steps, warm, tokens, devices):
    slowest = [{slowest}(ranks) for ranks in steps[{first}:]]
    ordered = sorted(slowest)
    middle = {middle}
    return tokens / middle / {devices}
"""


def _record(**changed: str) -> str:
    right = {"slowest": "max", "first": "warm", "middle": "ordered[len(ordered) // 2]", "devices": "devices"}
    return _RECORD.format(**(right | changed))


_hunt_record = BugHunt(
    id="sweep.20",
    title="Bug hunt: a row of the record",
    prompt=(
        "`record(steps, warm, tokens, devices)` is tokens a second of one device: `steps` holds for each step the "
        "seconds of each rank; a step takes as long as its slowest rank. The first `warm` steps are left out, and the "
        "median of the others counts (an odd number of them). Versions of it went wrong in five ways. Write "
        "`test(record)`."
    ),
    function="record",
    good=_record(),
    faults=(
        Fault(_record(slowest="min"), "Let ranks differ within a step."),
        Fault(_record(first="0"), "Let the first step be slow, and ask for it to be left out."),
        Fault(_record(middle="ordered[0]"), "Let steps differ: the best is not the median."),
        Fault(_record(middle="sum(ordered) / len(ordered)"), "Let one step be far slower: a mean follows it."),
        Fault(_record(devices="1"), "Ask for more than one device."),
    ),
    hints=(
        "What differs between ranks, between steps, and at the start?",
        "One warm step of 9 s, then three of two ranks each, one of them stalled.",
        "[[9, 9], [1, 2], [2, 1], [1, 8]] with 8 tokens, warm 1, 2 devices: 2.0. Let the fastest step differ too.",
    ),
    difficulty=1,
    minutes=7,
    source="MFU-39, PrimeIntellect-ai/prime-rl#2424: the rate of one step; rank tails of the second source document",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hunt_stop, _hunt_choose, _hunt_record)
