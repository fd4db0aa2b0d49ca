"""Step 7, bugs to hunt: exposed buckets, the slowest rank, overlap by intervals, the longest chain."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_BUCKETS = """
def exposed(buckets, compute, sent):
    return {value}
"""


def _buckets(value: str) -> str:
    return _BUCKETS.format(value=value)


_hunt_buckets = BugHunt(
    id="overlap.24",
    title="Bug hunt: exposed buckets",
    prompt=(
        "`exposed(buckets, compute, sent)` returns what is exposed of so many equal buckets, each ready after "
        "`compute` ms of backward and `sent` ms on the link. Versions of it went wrong in six ways. Write "
        "`test(exposed)`: it passes on the right version and fails on each wrong one."
    ),
    function="exposed",
    good=_buckets("sent + (buckets - 1) * max(0, sent - compute)"),
    faults=(
        Fault(_buckets("max(0, buckets * sent - buckets * compute)"), "Take a fast link: is really nothing exposed?"),
        Fault(_buckets("buckets * sent"), "Take a fast link: nearly all hides."),
        Fault(_buckets("sent"), "Take a slow link: it falls behind."),
        Fault(_buckets("sent + (buckets - 1) * (sent - compute)"), "Take a fast link; time cannot be negative."),
        Fault(_buckets("sent + buckets * max(0, sent - compute)"), "Take a single bucket on a slow link."),
        Fault(_buckets("max(sent, buckets * (sent - compute))"), "Take several buckets on a slow link and draw them."),
    ),
    hints=(
        "One fast link, one slow link, one single bucket.",
        "4 buckets, 5 ms of backward, 3 on the link? 4 buckets, 3 and 5?",
        "3 ms, and 5 + 3 x 2 = 11 ms. One bucket, 3 and 5: 5 ms.",
    ),
    difficulty=1,
    minutes=6,
    source="the first source document: assuming all communication overlaps; adding all communication times",
)  # fmt: skip

_TAIL = """
def lost_share(steps):
    held = sum({longest} * len(step) for step in steps)
    worked = sum(sum(step) for step in steps)
    return {share}
"""


def _tail(**changed: str) -> str:
    return _TAIL.format(**{"longest": "max(step)", "share": "(held - worked) / held", **changed})


_AVERAGED = """
def lost_share(steps):
    means = [sum(step[rank] for step in steps) / len(steps) for rank in range(len(steps[0]))]
    return 1 - sum(means) / len(means) / max(means)
"""

_hunt_tail = BugHunt(
    id="overlap.25",
    title="Bug hunt: lost to the slowest",
    prompt=(
        "`lost_share(steps)` takes for each step the own times of all ranks, a list of lists in ms, and returns the "
        "share of all device time that ranks wait for the slowest, where they meet at the end of every step. Versions "
        "of it went wrong in five ways. Write `test(lost_share)`."
    ),
    function="lost_share",
    good=_tail(),
    faults=(
        Fault(_AVERAGED, "Let another rank be the slowest in each step, with equal means over the steps."),
        Fault(_tail(longest="max(max(one) for one in steps)"), "Let one step be longer than another on all ranks."),
        Fault(_tail(share="(held - worked) / worked"), "The base is all device time, waiting included."),
        Fault(_tail(longest="max(steps[0])"), "Let the steps differ."),
        Fault(_tail(longest="sorted(step)[len(step) // 2]"), "Let the slowest rank not be the middle one."),
    ),
    hints=(
        "Two ranks, two steps; each rank slow once.",
        "Steps (10, 20) and (20, 10): held 80, worked 60.",
        "That is 1/4. And (10, 20), (30, 30): held 100, worked 90.",
    ),
    difficulty=2,
    minutes=8,
    source="SCA-13, traceopt-ai/traceml#252; means over steps taken before the maximum over ranks",
)  # fmt: skip

_CHAIN = """
def step_time(takes, waits):
    ends = {{}}
    for name in takes:
        begins = {begins}
        ends[name] = begins + takes[name]
    return {total}
"""


def _chain(**changed: str) -> str:
    right = {"begins": "max((ends[one] for one in waits[name]), default=0)", "total": "max(ends.values())"}
    return _CHAIN.format(**{**right, **changed})


_hunt_chain = BugHunt(
    id="overlap.26",
    title="Bug hunt: the longest chain",
    prompt=(
        "`step_time(takes, waits)`: `takes` maps each piece to its ms, `waits` each piece to the list of those it "
        "waits for; pieces stand after all they wait for, and nothing else holds them up. Returns when the last one "
        "ends. Versions of it went wrong in five ways. Write `test(step_time)`."
    ),
    function="step_time",
    good=_chain(),
    faults=(
        Fault(_chain(begins="sum(ends[one] for one in waits[name])"), "Let a piece wait for two pieces side by side."),
        Fault(_chain(begins="min((ends[one] for one in waits[name]), default=0)"), "Let it wait for two unequal ones."),
        Fault(_chain(begins="ends[waits[name][0]] if waits[name] else 0"), "Let the longer one not be named first."),
        Fault(_chain(total="ends[name]"), "Let the last piece of the list not be the last to end."),
        Fault(_chain(begins="max((takes[one] for one in waits[name]), default=0)"), "Let a chain have three links."),
    ),
    hints=(
        "One graph can do it: a piece that waits for two, one of them in a chain.",
        "a 2; b 3 waits for a; c 1 waits for a and b; d 9 waits for nothing, named before c.",
        "That ends at 9; with d 1 it ends at 6.",
    ),
    difficulty=2,
    minutes=8,
    source="derived in the lesson",
)  # fmt: skip

_SHARE = """
def hidden_share(compute, communication):
    ends = sorted({{end for span in [*compute, *communication] for end in span}})
    hidden = total = 0
    for left, right in zip(ends, ends[1:]):
        sends = {sends}
        works = any(start <= left and right <= end for start, end in compute)
        total += {counted}
        hidden += (right - left) * {both}
    return {share}
"""


def _hidden(**changed: str) -> str:
    right = {"sends": "any(start <= left and right <= end for start, end in communication)",
             "counted": "(right - left) * sends", "both": "(sends and works)", "share": "hidden / total"}  # fmt: skip
    return _SHARE.format(**{**right, **changed})


_hunt_share = BugHunt(
    id="overlap.27",
    title="Bug hunt: the hidden share",
    prompt=(
        "`hidden_share(compute, communication)` takes two lists of (start, end) in ms, in any order, which may overlap "
        "within a list too. It returns which share of the time with a collective is hidden. Versions of it went wrong "
        "in five ways. Write `test(hidden_share)`."
    ),
    function="hidden_share",
    good=_hidden(),
    faults=(
        Fault(_hidden(counted="(right - left) * works"), "Let compute and communication be of different length."),
        Fault(_hidden(share="1 - hidden / total"), "Hide everything: the share is 1."),
        Fault(_hidden(sends="sum(start <= left and right <= end for start, end in communication)"),
              "Let two collectives run at once, and one of them hide."),
        Fault(_hidden(counted="(right - left) * (sends or works)"), "Let something be computed without communication."),
        Fault(_hidden(both="works"), "Let something be computed where nothing is sent."),
    ),
    hints=(
        "Take six events such as the lesson's, with two collectives that run at once.",
        "Compute 0 to 40 and 50 to 90; collectives 30 to 60 and 55 to 80.",
        "50 ms with a collective, 40 of them hidden: 0.8.",
    ),
    difficulty=2,
    minutes=8,
    source="COM-21, facebookresearch/HolisticTraceAnalysis#162: the share inflated by what counted as compute",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hunt_buckets, _hunt_tail, _hunt_chain, _hunt_share)
