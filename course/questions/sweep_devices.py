"""Step 8, how many devices: hours, deadlines, break-even and the front."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from course import mfu
from course.questions.draws import picks
from course.questions.kinds import Function, Given, Judgement, Mistake, Number, Question
from course.sweep.rank import pareto

__all__ = ["QUESTIONS"]


def _more(given: Given, base: str, then: str) -> float:
    return float(mfu.hours_ratio(
        baseline_devices=given["few"], baseline_time=given[base], scaled_devices=given["many"],
        scaled_time=given[then]) - 1)  # fmt: skip


_hours = Number(
    id="sweep.8",
    title="Wall time alone",
    prompt=(
        "On {few} devices a run takes {slow:g} days, on {many} it takes {fast:g}. By which share do the "
        "accelerator-hours of the second exceed those of the first?"
    ),
    given={"few": 128, "many": 512, "slow": 13.7, "fast": 5.4},
    draw=picks(few=(64, 128), many=(256, 512), slow=(13.7, 15.0, 17.0), fast=(5.4, 6.2, 7.3)),
    answer=lambda g: _more(g, "slow", "fast"),
    unit="1",
    mistakes=(
        Mistake("wall time alone", lambda g: 1 - g["fast"] / g["slow"]),
        Mistake("share for ratio", lambda g: _more(g, "slow", "fast") + 1,
                "That is the ratio of the hours; asked is by how much it exceeds 1."),
        Mistake("sign", lambda g: g["fast"] / g["slow"] - 1, "That is wall time. How many devices are paid meanwhile?"),
    ),
    hints=(
        "Hours of all devices, not of the clock.",
        "Devices times days, for each.",
        "(many x fast) / (few x slow) - 1.",
    ),
    difficulty=1,
    minutes=3,
    source="SCA-03, allenai/OLMo#845: 9,000 tokens/s a device where there were 12,000, so a third more GPU-hours",
)  # fmt: skip

_COUNTS = (64, 128, 256, 512)


def _met(given: Given) -> list[int]:
    return [n for n in _COUNTS if given[f"d{n}"] <= given["days"]]


def _cheapest(given: Given, counts: Any) -> float:
    return float(min(counts, key=lambda n: n * given[f"d{n}"]))


_deadline = Number(
    id="sweep.9",
    title="The deadline's count",
    prompt=(
        "A run takes {d64:g} days on 64 devices, {d128:g} on 128, {d256:g} on 256 and {d512:g} on 512. The deadline is "
        "{days:g} days; being earlier is worth nothing. How many devices?"
    ),
    given={"d64": 27.6, "d128": 15.0, "d256": 8.3, "d512": 7.3, "days": 20.0},
    draw=picks(days=(10.0, 16.0, 20.0, 26.0)),
    answer=lambda g: _cheapest(g, _met(g)),
    unit="device",
    mistakes=(
        Mistake("wall time alone", lambda g: float(min(_COUNTS, key=lambda n: g[f"d{n}"]))),
        Mistake("rule for another case", lambda g: _cheapest(g, _COUNTS),
                "That is the cheapest of all; does it meet the deadline?"),
    ),
    hints=(
        "Which counts meet the deadline?",
        "Of those, which has the fewest device-days?",
        "Devices times days for each that meets it; the least.",
    ),
    difficulty=1,
    minutes=3,
    source="Ultra-Scale Playbook, 8.86B, for a trillion tokens",
)  # fmt: skip

_doubling = Number(
    id="sweep.10",
    title="One doubling",
    prompt=(
        "A step takes {compute:g} s of compute and {rest:g} s of all the rest. On twice the devices compute takes "
        "{halved:g} s and the rest {grown:g} s. Strong-scaling efficiency of the doubling?"
    ),
    given={"compute": 1.04, "rest": 0.2, "halved": 0.54, "grown": 0.24},
    draw=picks(halved=(0.54, 0.6, 0.7), grown=(0.24, 0.36, 0.5)),
    answer=lambda g: (g["compute"] + g["rest"]) / (g["halved"] + g["grown"]) / 2,
    unit="1",
    mistakes=(
        Mistake("speedup for efficiency", lambda g: (g["compute"] + g["rest"]) / (g["halved"] + g["grown"])),
        Mistake("rule for another case", lambda g: g["compute"] / g["halved"] / 2,
                "That is compute alone; the rest is part of the step."),
        Mistake("hours for efficiency", lambda g: 2 * (g["halved"] + g["grown"]) / (g["compute"] + g["rest"])),
    ),
    hints=(
        "What is the step before, and after?",
        "Speedup is the one over the other; the ideal is 2.",
        "(compute + rest) over (halved + grown), over 2.",
    ),
    difficulty=1,
    minutes=3,
    source="the break-even of course.stops",
)  # fmt: skip


def _points(source: random.Random) -> dict[str, Any]:
    count = source.randint(1, 7)
    few = source.random() < 0.5  # small whole numbers make ties

    def draw() -> float:
        return float(source.randint(1, 4)) if few else source.uniform(1, 9)

    return {"days": np.array([draw() for _ in range(count)]), "hours": np.array([draw() for _ in range(count)])}


def _front(days: Any, hours: Any) -> Any:
    return pareto({"wall_s": np.asarray(days, float), "accelerator_hours": np.asarray(hours, float)}).astype(float)


_program = Function(
    id="sweep.11",
    title="The front, programmed",
    prompt=(
        "Write `front(days, hours)` for two arrays of equal length: an array that is 1 where no other point is as good "
        "in both and better in one, else 0. Two equal points do not beat each other."
    ),
    arguments=("days", "hours"),
    case=_points,
    edges=(
        {"days": np.array([1.0, 2.0, 2.0]), "hours": np.array([3.0, 1.0, 2.0])},
        {"days": np.array([1.0, 1.0]), "hours": np.array([1.0, 1.0])},
        {"days": np.array([1.0, 1.0]), "hours": np.array([2.0, 3.0])},
    ),
    answer=_front,
    unit="1",
    mistakes=(
        Mistake("wall time alone", lambda _: lambda days, hours: (days == days.min()).astype(float) + 0 * hours),
        Mistake("rule for another case", lambda _: _strict,
                "A point that is equal in one and worse in the other is beaten too."),
    ),
    hints=(
        "When does one point beat another? Write that as a comparison of two pairs.",
        "No worse in both, and different in at least one.",
        "Compare all pairs by broadcasting: days[:, None] >= days[None, :], and so on.",
    ),
    difficulty=3,
    minutes=9,
    source="course.sweep.rank.pareto",
)  # fmt: skip


def _strict(days: Any, hours: Any) -> Any:
    beaten = (days[None, :] < days[:, None]) & (hours[None, :] < hours[:, None])
    return (~beaten.any(axis=1)).astype(float)


_past = Judgement(
    id="sweep.12",
    title="Past the break-even",
    prompt=(
        "The fastest layouts: {half} devices take 0.74 s a step, {devices} take 0.49, {twice:,} take 0.54. Nobody else "
        "wants the {twice:,}, which are paid for whether they work or not. What do you run on?"
    ),
    given={"half": 256, "devices": 512, "twice": 1024},
    choices={"a": "all {twice:,}", "b": "{devices}", "c": "{half}"},
    reasons={
        "1": "devices that are paid for must not idle",
        "2": "past {devices} a doubling adds more than it saves, so the run would end later",
        "3": "efficiency is highest on the fewest devices, whatever the goal",
        "4": "the hours are lost anyway, so MFU does not matter",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("past the break-even", lambda _: ("a", None)),
        Mistake("rule for another case", lambda _: ("c", "3"),
                "Efficiency weighs hours; these are paid anyway. What is left to gain?"),
    ),
    hints=(
        "What is an hour of the idle devices worth here?",
        "Nothing; so only wall time counts.",
        "Then take the fastest, and it is not the largest.",
    ),
    difficulty=2,
    minutes=3,
    source="SCA-17, karpathy/llm.c#426: 384 GPUs at an efficiency of 0.19 against 8",
)  # fmt: skip

_clusters = Number(
    id="sweep.22",
    title="Peak, or what a device does",
    prompt=(
        "Of two clusters with equally many devices one has a dense peak of {new:g} TFLOP/s a device and reaches an "
        "MFU of "
        "{low:.0%} with your model; the other has {old:g} and reaches {high:.0%}, by the same convention. How many "
        "times "
        "the tokens a second does the first train?"
    ),
    given={"new": 989.4, "low": 0.4, "old": 312.0, "high": 0.52},
    draw=picks(low=(0.36, 0.4, 0.44), high=(0.5, 0.52, 0.55)),
    answer=lambda g: g["new"] * g["low"] / (g["old"] * g["high"]),
    unit="1",
    mistakes=(
        Mistake("peak for rate", lambda g: g["new"] / g["old"]),
        Mistake("share for ratio", lambda g: g["low"] / g["high"], "The peaks differ as well."),
    ),
    hints=(
        "What does a device of each cluster do in a second, in useful FLOPs?",
        "Peak times MFU. A token costs the same on both.",
        "(new x low) / (old x high).",
    ),
    difficulty=1,
    minutes=2,
    source="the first source document: reporting peak FLOPs instead of MFU",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hours, _deadline, _doubling, _program, _past, _clusters)
