"""Judgements of an interview: what to ask first, when to say no, which second route; a layout, and a bug to hunt."""

from __future__ import annotations

from course import estimate
from course.catalog import model
from course.explorers.shared import asked
from course.questions.draws import picks
from course.questions.kinds import BugHunt, Fault, Given, Judgement, LayoutQuestion, Mistake, Question

__all__ = ["QUESTIONS"]

_first = Judgement(
    id="interview.9",
    title="The first question back",
    prompt=(
        '"You have 256 H100. Train our 70B model on a trillion tokens, 4 million tokens an update. What is your '
        'layout?" Which question do you ask before anything else, and why?'
    ),
    choices={
        "a": "how long the sequences are, and in which precision it trains",
        "b": "which layout other teams use for this model",
        "c": "whether the framework offers 3D parallelism",
        "d": "nothing: it is all said",
    },
    reasons={
        "1": "activations, state and peak all follow from it, so no step can be computed without",
        "2": "a layout that others ran is known to work",
        "3": "a candidate who asks seems unsure",
        "4": "what the program cannot do need not be considered",
    },
    answer=lambda _: ("a", "1"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("b", None), "Their devices, links and deadline were others."),
        Mistake("rule for another case", lambda _: ("d", None), "Compute the activations of one sequence with what was "
                "said. Can you?"),
        Mistake("right for another reason", lambda _: ("a", "4"), "Ask because of what depends on it."),
    ),
    hints=("Try the first step with what was said.", "Parameters and FLOPs: yes. State and activations?",
           "Which numbers do both of them need?"),
    difficulty=1,
    minutes=2,
    source="the order of an interview: estimate first, and only then a layout",
)  # fmt: skip


def _days(given: Given) -> float:
    flops = 6 * estimate.count(model("llama-3.1-405b")).total * given["trillions"] * 1e12
    return float(flops / (given["devices"] * 989.4e12 * 86400))


def _possible(given: Given) -> tuple[str, str]:
    return (
        ("a", "1")
        if _days(given) > given["days"]
        else ("b", "2")
        if _days(given) > 0.55 * given["days"]
        else ("c", "3")
    )


_no = Judgement(
    id="interview.10",
    title="Can it be done at all",
    prompt=(
        "Llama 3.1 405B (by 6PS), {trillions:g} trillion tokens, {devices:,} H100 of 989.4 dense TFLOP/s, {days:g} "
        "days. What do you say?"
    ),
    given={"trillions": 15.0, "devices": 8192, "days": 45},
    draw=picks(trillions=(5.0, 15.0), devices=(8192, 16384), days=(20, 45, 60, 120)),
    choices={
        "a": "no layout can do it",
        "b": "it cannot be expected: it would take an MFU no published run on such devices reached",
        "c": "it may be done; now I look for the layout",
    },
    reasons={
        "1": "every device at its full dense peak would take longer",
        "2": "at full peak it would just fit, but half of the peak is the most that such runs reach",
        "3": "a usual MFU leaves it enough time",
        "4": "a layout that fits in memory must be named before anything can be said",
    },
    answer=_possible,
    mistakes=(
        Mistake("rule for another case", lambda _: (None, "4"), "Memory decides how, FLOPs decide whether. Divide them "
                "by all that the devices could do."),
    ),
    hints=("How many days at full peak?", "6 x 405.9e9 x tokens, over devices x 989.4e12 x 86,400.",
           "Compare with the days; then with about half of that rate."),
    difficulty=2,
    minutes=3,
    source="the highest MFU published for H100 in bf16 is below one half by the palm convention",
)  # fmt: skip

_route = Judgement(
    id="interview.11",
    title="A second route",
    prompt=(
        "You said: 6PS over devices, peak and 40 % MFU makes 24 days. The interviewer asks how you know. Which second "
        "route checks it?"
    ),
    choices={
        "a": "tokens a second that a published run of this size reached on one such device, times the devices",
        "b": "6PS over the achieved FLOP/s, which is 40 % of the peak",
        "c": "the days that the deadline allows",
        "d": "the same with 8PS, since layers are recomputed",
    },
    reasons={
        "1": "it shares no assumption with the first: neither peak nor MFU enters",
        "2": "it gives the same number to all digits",
        "3": "more FLOPs are safer than fewer",
        "4": "a deadline was set by somebody who knew",
    },
    answer=lambda _: ("a", "1"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("b", None), "It is the first route with two factors multiplied "
                "before."),
        Mistake("recomputation as useful work", lambda _: ("d", None)),
        Mistake("right for another reason", lambda _: ("a", "2"), "Agreement checks something only if it could fail."),
    ),
    hints=("Which assumption of the first route are you least sure of?", "The MFU. A check must do without it.",
           "What does a log print that needs neither peak nor FLOPs?"),
    difficulty=1,
    minutes=2,
    source="estimates that disagree with themselves: chiphuyen/aie-book#7",
)  # fmt: skip

_layout = LayoutQuestion(
    id="interview.12",
    title="A layout, aloud",
    prompt=(
        "`{model}` on {devices} H100, 8 a node: sequences of 8,192 tokens, {batch} a step, state bf16-18. Name the "
        "layout as you would in an interview: a dictionary of what is above 1, `sharding`, `micro_batch`, `recompute`. "
        "It must be legal, fit, and be within 15 % of the best step time."
    ),
    given={"model": "llama-3-70b", "batch": 256, "devices": 128},
    run=lambda given: asked(given["model"], given["batch"], given["devices"]),
    within=0.15,
    hints=(
        "State first: 18 bytes for each of 70.6 billion parameters over 128 devices. Then one sequence's activations.",
        "The state shared by all leaves room; the activations of a whole sequence do not fit. Which axis shrinks them?",
        "Four or eight tensor ranks in the node, replicas across, and a rung that divides the gradients.",
    ),
    difficulty=2,
    minutes=8,
    source="LAY-15, huggingface/nanotron#250; verl-project/verl#901: how to choose the degrees",
)

_PLAN = """
def days(flops, devices, peak, mfu, goodput):
    return flops / ({devices} * {peak} * {mfu}) {goodput} / {day}
"""


def _plan(**changed: str) -> str:
    right = {"devices": "devices", "peak": "peak", "mfu": "mfu", "goodput": "/ goodput", "day": "86400"}
    return _PLAN.format(**(right | changed))


_hunt = BugHunt(
    id="interview.13",
    title="Bug hunt: the days",
    prompt=(
        "`days(flops, devices, peak, mfu, goodput)` is the wall time of a run in days: `flops` in all, `peak` the "
        "dense "
        "FLOP/s of one device, `goodput` the share of the wall time that makes progress. Versions of it went wrong in "
        "five ways. Write `test(days)`."
    ),
    function="days",
    good=_plan(),
    faults=(
        Fault(_plan(goodput="* goodput"), "Ask what lost time does: give a goodput below one."),
        Fault(_plan(goodput=""), "Give a goodput below one."),
        Fault(_plan(peak="(2 * peak)"), "Nothing is left to double: the peak is dense."),
        Fault(_plan(devices="1"), "Ask for more than one device."),
        Fault(_plan(day="3600"), "Ask for one whole day."),
    ),
    hints=(
        "Choose numbers for which the answer is a round number of days.",
        "86,400 FLOP on one device of 1 FLOP/s at full use: one day.",
        "Then two devices, half the MFU, and a goodput of one half, one after the other.",
    ),
    difficulty=2,
    minutes=5,
    source="MFU-05, MFU-07 and the goodput of published runs: what plans leave out",
)

_BATCH = """
def plan(devices, tensor, pipeline, batch, micro):
    data = devices // ({group})
    rounds = {rounds}
    {check}
    return data, rounds
"""


def _batch(**changed: str) -> str:
    right = {"group": "tensor * pipeline", "rounds": "batch // (data * micro)",
             "check": "if data * micro * rounds != batch: return None"}  # fmt: skip
    return _BATCH.format(**(right | changed))


_hunt_batch = BugHunt(
    id="interview.14",
    title="Bug hunt: the batch held",
    prompt=(
        "`plan(devices, tensor, pipeline, batch, micro)` gives replicas and accumulated micro-batches that hold a "
        "global "
        "batch of `batch` sequences, micro-batches of `micro`; None where no whole number does. Versions of it went "
        "wrong in five ways. Write `test(plan)`."
    ),
    function="plan",
    good=_batch(),
    faults=(
        Fault(_batch(check="pass"), "Ask for a batch that does not divide."),
        Fault(_batch(group="1"), "Split the model: a replica then takes several devices."),
        Fault(_batch(group="tensor"), "Use stages as well as tensor ranks."),
        Fault(_batch(rounds="batch // data", check="if data * rounds != batch: return None"),
              "Use micro-batches of more than one sequence."),
        Fault(_batch(rounds="max(1, batch // (devices * micro))", check="pass"), "Work out a case with stages."),
    ),
    hints=(
        "What must the product of three numbers be?",
        "16 devices, tensor 2, pipeline 2, 64 sequences, micro-batches of 2: by hand.",
        "Then a batch of 63.",
    ),
    difficulty=2,
    minutes=6,
    source="LAY-13, karpathy/nanoGPT#354: accumulation over a world that does not divide; SCA-07",
)  # fmt: skip

_GOAL = """
def verdict(days, least, deadline, devices, budget):
    if {never}: return "impossible"
    return "met" if {late} and {dear} else "missed"
"""


def _goal(**changed: str) -> str:
    right = {"never": "least > deadline or least * 24 * devices > budget", "late": "days <= deadline",
             "dear": "days * 24 * devices <= budget"}  # fmt: skip
    return _GOAL.format(**(right | changed))


_hunt_goal = BugHunt(
    id="interview.15",
    title="Bug hunt: the verdict",
    prompt=(
        '`verdict(days, least, deadline, devices, budget)` says "met", "missed" or "impossible": `days` planned, '
        '`least` '
        "at full peak, both with goodput, a `deadline` in days and a `budget` in accelerator-hours. Versions of it "
        "went wrong in five ways. Write `test(verdict)`."
    ),
    function="verdict",
    good=_goal(),
    faults=(
        Fault(_goal(never="days > deadline"), "Plan a run that is late, though not beyond the peak."),
        Fault(_goal(never="False"), "Set a deadline that not even the peak would meet."),
        Fault(_goal(dear="True"), "Be in time, and over the budget."),
        Fault(_goal(late="True"), "Be within the budget, and late."),
        Fault(_goal(dear="days * 24 <= budget"), "The hours are those of all devices: take several."),
    ),
    hints=("Four cases: met, late, too dear, impossible.", "Give one of two goals so much room that the other decides.",
           "10 days planned, 4 at peak, 100 devices: deadlines of 12, 8 and 3 days, budgets of 30,000 and 20,000."),
    difficulty=2,
    minutes=6,
    source="SCA-03, allenai/OLMo#845: time and hours are two goals",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_first, _no, _route, _layout, _hunt, _hunt_batch, _hunt_goal)
