"""Step 8, measuring: equal batches, ties, trials, and what no prediction gives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from course import batch
from course.questions.draws import picks
from course.questions.kinds import Function, Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]


def _busy(given: Given, sequences: float, share: bool = True) -> float:
    micro_batches = batch.accumulation(
        global_batch_sequences=sequences, data=given["data"], micro_batch=given["micro"])  # fmt: skip
    formula = batch.bubble_share if share else batch.bubble_overhead
    return 1 - float(formula(pipeline=given["stages"], interleave=1, micro_batches=micro_batches))


_held = Number(
    id="sweep.14",
    title="Four times the batch",
    prompt=(
        "A grid compares layouts at {batch} sequences a step. One row, {stages} stages and {data} replicas in "
        "micro-batches "
        "of {micro}, was run at {large:,} and made {rate:,.0f} tokens/s. If only the bubble of 1F1B changes, what "
        "would it "
        "make at {batch}?"
    ),
    given={"batch": 256, "large": 1024, "stages": 8, "data": 8, "micro": 1, "rate": 400000.0},
    draw=picks(stages=(8, 16), rate=(300000.0, 400000.0, 500000.0)),
    answer=lambda g: g["rate"] * _busy(g, g["batch"]) / _busy(g, g["large"]),
    unit="token/s",
    mistakes=(
        Mistake("another global batch", lambda g: g["rate"]),
        Mistake("other bubble", lambda g: g["rate"] * _busy(g, g["batch"], False) / _busy(g, g["large"], False)),
        Mistake("accumulation forgotten", lambda g: g["rate"] * g["batch"] / g["large"],
                "A quarter of the batch is a quarter of the work: the rate does not fall in that proportion."),
    ),
    hints=(
        "How many micro-batches has a pipeline at each batch?",
        "The share of the time that is work is one minus the bubble: M/(M + P - 1).",
        "The rate, times M/(M + P - 1) at the small batch, over the same at the large one.",
    ),
    difficulty=2,
    minutes=5,
    source="SCA-05, NVIDIA/DeepLearningExamples#894; SCA-11, apache/mxnet#2283: rates at different batches",
)  # fmt: skip

_trial = Number(
    id="sweep.15",
    title="When a trial pays",
    prompt=(
        "You would try {tried} layouts for {steps} steps each; a start takes as long as {start} steps more, and none "
        "fails. You expect the first choice to be {regret:.1%} slower than the best of them. From how many steps of "
        "the run on does the trial pay?"
    ),
    given={"tried": 3, "steps": 50, "start": 240, "regret": 0.033},
    draw=picks(tried=(2, 3, 5), steps=(20, 50, 100), start=(60, 120, 240), regret=(0.01, 0.033, 0.05)),
    answer=lambda g: g["tried"] * (g["steps"] + g["start"]) / g["regret"],
    unit="1",
    mistakes=(
        Mistake("one trial for all", lambda g: (g["steps"] + g["start"]) / g["regret"]),
        Mistake("rule for another case", lambda g: g["tried"] * g["steps"] / g["regret"],
                "That would hold if a start took no time."),
        Mistake("percent for share", lambda g: g["tried"] * (g["steps"] + g["start"]) / g["regret"] / 100),
    ),
    hints=(
        "What does the trial take, counted in steps?",
        "All layouts tried, each its start and its steps. What does a run of N steps lose to the regret?",
        "k (n + s) < regret x N.",
    ),
    difficulty=1,
    minutes=3,
    source="derived in 08c",
)  # fmt: skip

_tie = Judgement(
    id="sweep.16",
    title="Three seconds apart",
    prompt=(
        "A model whose median error is 5 % predicts {first:g} s for 2 tensor ranks on rung 3 and {second:g} s for 2 "
        "tensor "
        "ranks, 2 stages and 4 context ranks. A trial is not possible. Which, and why?"
    ),
    given={"first": 61.6, "second": 60.4},
    draw=picks(second=(59.9, 60.4, 61.0)),
    choices={"a": "the first", "b": "the second", "c": "it cannot be decided"},
    reasons={
        "1": "it is predicted to be faster",
        "2": "they tie within the model's error, and it is the simpler one",
        "3": "context ranks never pay",
        "4": "a model with an error of 5 % says nothing about order",
    },
    answer=lambda _: ("a", "2"),
    mistakes=(
        Mistake("tie taken for a win", lambda _: ("b", "1")),
        Mistake("rule for another case", lambda _: (None, "4"), "It does when two layouts lie far apart."),
        Mistake("rule for another case", lambda _: (None, "3"),
                "They do where sequences are long and nothing else fits."),
    ),
    hints=(
        "How far apart are they, in per cent?",
        "2 %: how often is such a pair ordered rightly?",
        "Then something else than the time decides.",
    ),
    difficulty=1,
    minutes=3,
    source="08c: pairs up to 2 % apart are ordered little better than by a coin",
)  # fmt: skip

_columns = Judgement(
    id="sweep.17",
    title="What only a run can say",
    prompt=(
        "A record of a small grid has peak memory, tokens a second, MFU, step-time variance, exposed communication "
        "and the "
        "loss of the first steps. Which two can no formula of a layout give?"
    ),
    choices={
        "a": "peak memory and tokens a second", "b": "MFU and exposed communication",
        "c": "variance and the loss", "d": "none: all six can be predicted",
    },
    reasons={
        "1": "they depend on allocators and kernels",
        "2": "one comes from what differs between equal steps, the other from the order of rounded sums",
        "3": "they need a trace",
        "4": "they are too small to matter",
    },
    answer=lambda _: ("c", "2"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("a", None),
                "Both were predicted within about a tenth. What was left blank in every row?"),
        Mistake("rule for another case", lambda _: ("b", None),
                "A prediction splits the step into parts, and MFU is a rate in another unit."),
        Mistake("rule for another case", lambda _: ("d", None), "Which columns held a dash in every row?"),
    ),
    hints=(
        "Think of two runs of the same layout.",
        "Their prediction is the same. What of them differs?",
        "Their spread; and between layouts the last digits of every sum.",
    ),
    difficulty=1,
    minutes=3,
    source="the first source document: test a small layout grid",
)  # fmt: skip


def _panel(source: random.Random) -> dict[str, Any]:
    count = source.randint(3, 12)
    measured = [source.uniform(1, 9) for _ in range(count)]
    guess = [time * source.uniform(0.6, 1.4) for time in measured]
    return {"predicted": np.array(guess), "measured": np.array(measured), "tried": source.randint(1, 3)}


def _after(predicted: Any, measured: Any, tried: int) -> float:
    first = np.argsort(np.asarray(predicted), kind="stable")[: int(tried)]
    return float(np.asarray(measured)[first].min() / np.asarray(measured).min() - 1)


_regret = Function(
    id="sweep.18",
    title="Regret after a trial",
    prompt=(
        "Write `regret(predicted, measured, tried)`: two arrays of step times of the same layouts. The `tried` layouts "
        "with the shortest predicted steps are measured, and the best of those is taken. How far is it from the best "
        "measured of all, as a share?"
    ),
    arguments=("predicted", "measured", "tried"),
    case=_panel,
    edges=(
        {"predicted": np.array([1.0, 2.0, 3.0]), "measured": np.array([3.0, 2.0, 1.0]), "tried": 1},
        {"predicted": np.array([1.0, 2.0, 3.0]), "measured": np.array([3.0, 2.0, 1.0]), "tried": 3},
    ),
    answer=_after,
    unit="1",
    mistakes=(
        Mistake("one trial for all", lambda _: lambda **g: _after(g["predicted"], g["measured"], 1),
                "Only the first choice was looked at."),
        Mistake("rule for another case",
                lambda _: lambda **g: float(np.min(g["predicted"]) / np.min(g["measured"]) - 1),
                "That compares a prediction with a measurement; regret compares two measurements."),
    ),
    hints=(
        "Which layouts are tried? Which of them is taken?",
        "`np.argsort(predicted)[:tried]`; then the least measured time among them.",
        "That time over `measured.min()`, minus 1.",
    ),
    difficulty=2,
    minutes=7,
    source="the gates of course.compare",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_held, _trial, _tie, _columns, _regret)
