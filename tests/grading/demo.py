"""A small step of its own, so that the machinery is tested without a lesson. Registered by COURSE_QUESTIONS alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from course.problem import loads
from course.questions.kinds import (
    BugHunt,
    Expression,
    Fault,
    Function,
    Judgement,
    LayoutQuestion,
    Mistake,
    Number,
)
from course.symbols import symbols

P, S, T = symbols("parameters", "tokens", "sequence_length")
COMMON: dict[str, Any] = {"hints": ("first", "second", "third"), "difficulty": 1, "minutes": 2, "source": "made up"}


def twice(source: random.Random) -> dict[str, Any]:
    if source.random() < 0.5:
        return {"x": source.uniform(1, 9), "y": source.randint(2, 5)}
    return {"x": np.array([source.uniform(1, 9) for _ in range(3)]), "y": source.randint(2, 5)}


RUN = """
[model]
preset = "llama-3-8b"
[training]
tokens = 1e12
sequence_length = 8192
global_batch_sequences = 128
[cluster]
accelerator = "h100-sxm"
devices = 8
fabric = "h100-ib400"
"""

QUESTIONS = (
    Number(
        id="demo.1",
        title="Bytes",
        prompt="{n:g} numbers of 2 bytes: how many GB?",
        given={"n": 7e9},
        draw=lambda source: {"n": source.choice((1e9, 3e9, 5e9))},
        answer=lambda g: 2 * g["n"] / 1e9,
        unit="GB",
        mistakes=(
            Mistake("weights alone", lambda g: g["n"] / 1e9),
            Mistake("optimizer forgotten", lambda g: 6 * g["n"] / 1e9, "Own words."),
        ),
        **COMMON,
    ),
    Expression(
        id="demo.2",
        title="Six",
        prompt="Six P S?",
        symbols=("parameters", "tokens"),
        answer=lambda _: 6 * P * S,
        mistakes=(Mistake("backward forgotten", lambda _: 2 * P * S),),
        **COMMON,
    ),
    Function(
        id="demo.3",
        title="Times",
        prompt="x times y?",
        arguments=("x", "y"),
        case=twice,
        answer=lambda x, y: x * y,
        unit="byte",
        mistakes=(Mistake("sign", lambda _: lambda x, y: -x * y),),
        edges=({"x": 0.0, "y": 2},),
        **COMMON,
    ),
    Judgement(
        id="demo.4",
        title="Which",
        prompt="Which, and why?",
        choices={"a": "this", "b": "that"},
        reasons={"1": "for one", "2": "for two"},
        answer=lambda _: ("b", "2"),
        mistakes=(Mistake("percent for share", lambda _: ("b", "1"), "Not so."),),
        **COMMON,
    ),
    LayoutQuestion(
        id="demo.5",
        title="Layout",
        prompt="A layout of 8 devices?",
        run=lambda _: loads(RUN),
        within=0.05,
        **COMMON,
    ),
    BugHunt(
        id="demo.6",
        title="Hunt",
        prompt="Test double(x).",
        function="double",
        good="def double(x):\n    return 2 * x\n",
        faults=(
            Fault("def double(x):\n    return x * x\n", "Try more than one number."),
            Fault("def double(x):\n    return abs(2 * x)\n", "Try a number below zero."),
        ),
        **COMMON,
    ),
    Number(
        id="demo.7",
        title="Nothing",
        prompt="How much is idle?",
        answer=lambda _: 0.0,
        unit="1",
        absolute=1e-9,
        **COMMON,
    ),
    Number(
        id="demo.8",
        title="Rate",
        prompt="2 TFLOP in 4 s?",
        answer=lambda _: 0.5,
        unit="TFLOP/s",
        mistakes=(Mistake("sparse peak", lambda _: 1.0),),
        **COMMON,
    ),
    Number(id="demo.9", title="Time", prompt="How long?", answer=lambda _: 90.0, unit="s", **COMMON),
    Number(id="demo.10", title="Hours", prompt="GPU-hours?", answer=lambda _: 2.5e6, unit="GPU-hours", **COMMON),
    Number(id="demo.11", title="Share", prompt="Which share?", answer=lambda _: 0.4, unit="1", **COMMON),
    Number(id="demo.12", title="Link", prompt="Bandwidth?", answer=lambda _: 50.0, unit="GB/s", **COMMON),
)
