"""Step 9, the larger batch: the critical batch from two runs, steps and time to a target, and which steps count."""

from __future__ import annotations

import random
from typing import Any

from course import scaling
from course.questions.draws import picks
from course.questions.kinds import Expression, Function, Given, Judgement, Mistake, Number, Question
from course.symbols import symbols

__all__ = ["QUESTIONS"]

n_min, e_min, B_g = symbols("least_steps", "least_sequences", "global_batch_sequences")


def _two(given: Given) -> tuple[float, float]:
    """(n_min, e_min) of the line through two batches."""
    steps = (given["many"] - given["few"]) / (given["large"] - given["small"])
    return steps, given["few"] - steps * given["small"]


_critical = Number(
    id="scaling.9",
    title="The critical batch from two runs",
    prompt=(
        "A fine-tuning reached its target after {few:,} sequences with a batch of {small}, and after {many:,} with a "
        "batch of {large}. By the model e = e_min + n_min B, what is the critical batch?"
    ),
    given={"small": 8, "few": 3072, "large": 128, "many": 11136},
    draw=picks(few=(2880, 3264), many=(10560, 12480)),
    answer=lambda g: _two(g)[1] / _two(g)[0],
    unit="sequence",
    mistakes=(
        Mistake("rule for another case", lambda g: g["few"] / _two(g)[0],
                "That takes the sequences of the smaller batch for the fewest there can be."),
        Mistake("other quantity", lambda g: _two(g)[0], "Those are the fewest steps."),
        Mistake("other quantity", lambda g: _two(g)[1], "Those are the fewest sequences."),
    ),
    hints=(
        "Two points, a straight line: its slope and where it starts.",
        "The slope is n_min, the start e_min.",
        "At the critical batch both terms are equal.",
    ),
    difficulty=2,
    minutes=5,
    source="MLPerf v4.1, Llama 2 70B LoRA: batches of 8 and 128",
)  # fmt: skip

_n = Expression(
    id="scaling.10",
    title="Steps from the hyperbola",
    prompt=(
        "Of n steps and e sequences to a target the model says (n/n_min - 1)(e/e_min - 1) = 1. Each step reads B_g "
        "sequences. How many steps does it take? Use n_min, e_min and B_g."
    ),
    answer=lambda _: n_min + e_min / B_g,
    symbols=("least_steps", "least_sequences", "global_batch_sequences"),
    mistakes=(
        Mistake("other quantity", lambda _: e_min + n_min * B_g, "Those are the sequences."),
        Mistake("batch for free", lambda _: e_min / B_g, "With a very large batch that would be no step at all."),
        Mistake("rule for another case", lambda _: n_min + B_g / e_min, "A larger batch cannot take more steps."),
    ),
    hints=(
        "How do e and n hang together?",
        "Put e = n B_g in and multiply out; one n cancels.",
        "n (n B_g - e_min - n_min B_g) = 0.",
    ),
    difficulty=2,
    minutes=5,
    source="McCandlish et al. 2018, equation 2.11",
)  # fmt: skip


def _shorter(given: Given) -> float:
    model = {"least_steps": given["steps"], "least_sequences": given["sequences"]}
    before = scaling.time_to_target(**model, global_batch_sequences=given["batch"], step_time=1)
    after = scaling.time_to_target(
        **model, global_batch_sequences=given["times"] * given["batch"], step_time=1 / given["weak"])
    return float(before / after)  # fmt: skip


_target = Number(
    id="scaling.11",
    title="Weak scaling, and the target",
    prompt=(
        "A target takes at least {steps} steps and at least {sequences:,} sequences, whatever the batch. On {times} "
        "times the devices the batch is {times} times {batch}, and weak-scaling efficiency is {weak:g}. How many times "
        "sooner is the target reached?"
    ),
    given={"steps": 67, "sequences": 2534, "times": 16, "batch": 8, "weak": 0.99},
    draw=picks(batch=(12, 16, 24), times=(16, 32), weak=(0.9, 0.94)),
    answer=_shorter,
    unit="1",
    relative=0.015,
    mistakes=(
        Mistake("batch for free", lambda g: g["times"] * g["weak"]),
        Mistake("hours for efficiency", lambda g: g["times"] / _shorter(g),
                "That is how many times the device time grows."),
    ),
    hints=(
        "How many steps does each run take?",
        "n_min + e_min/B, for both batches.",
        "Steps before over steps after, times how long a step takes before over after.",
    ),
    difficulty=2,
    minutes=6,
    source="MLPerf v4.1, Llama 2 70B LoRA: 64 and 1,024 H100",
)  # fmt: skip

_valid = Judgement(
    id="scaling.12",
    title="Steps that were skipped",
    prompt=(
        "With another number format a run makes 1.10 times as many steps an hour, of which 12 % are skipped for "
        "infinite gradients and leave the weights as they were. Compare its throughput with the run before, which "
        "skipped none."
    ),
    choices={"a": "1.10 times", "b": "0.97 times", "c": "1.23 times"},
    reasons={
        "1": "tokens were read and multiplied in every step, skipped or not",
        "2": "the work unit is a valid update; a skipped step is time without work",
        "3": "a skipped step costs no update, so it is faster",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("steps for work", lambda _: ("a", None), "What has the model gained in a skipped step?"),
        Mistake("steps for work", lambda _: (None, "1"), "They were. What is one completed piece of work, though?"),
        Mistake("rule for another case", lambda _: ("c", None), "Skipped steps add time, not work."),
    ),
    hints=(
        "What is the work unit of this comparison?",
        "How many valid updates are there in an hour, before and after?",
        "1.10 of the steps; a part of them is valid.",
    ),
    difficulty=1,
    minutes=2,
    source="the second source document: total valid work to a target",
)  # fmt: skip


def _case(draw: random.Random) -> dict[str, Any]:
    return {"batch": draw.uniform(1, 4096), "least_steps": draw.uniform(10, 5000),
            "least_sequences": draw.uniform(100, 1e6), "step_time": draw.uniform(0.1, 20),
            "devices": float(draw.randint(1, 4096))}  # fmt: skip


def _steps_free(batch: Any, least_steps: Any, least_sequences: Any, step_time: Any, devices: Any) -> Any:  # noqa: ARG001
    return least_sequences / batch * step_time * devices


def _one_device(batch: Any, least_steps: Any, least_sequences: Any, step_time: Any, devices: Any) -> Any:  # noqa: ARG001
    return (least_steps + least_sequences / batch) * step_time


_device_time = Function(
    id="scaling.13",
    title="Device time to a target",
    prompt=(
        "Write a function of `batch`, `least_steps`, `least_sequences`, `step_time` (seconds of a step with this "
        "batch) and `devices`: device-seconds to the target, by the model of the critical batch."
    ),
    arguments=("batch", "least_steps", "least_sequences", "step_time", "devices"),
    case=_case,
    answer=lambda batch, least_steps, least_sequences, step_time, devices: scaling.device_time_to_target(
        global_batch_sequences=batch, least_steps=least_steps, least_sequences=least_sequences, step_time=step_time,
        scaled_devices=devices),
    unit="device*s",
    mistakes=(
        Mistake("batch for free", lambda _: _steps_free),
        Mistake("per device for total", lambda _: _one_device),
    ),
    hints=(
        "How many steps does the target take with this batch?",
        "n_min + e_min/B of them.",
        "Times the seconds of a step, times the devices.",
    ),
    difficulty=2,
    minutes=5,
    source="the second source document: compare quality and total valid work to a target",
)  # fmt: skip


def _noise(given: Given) -> tuple[float, float]:
    """(sigma^2, s^2) from the mean squared norms with two batches."""
    small, large, first, second = (given[key] for key in ("small", "large", "first", "second"))
    return (first - second) / (1 / small - 1 / large), (large * second - small * first) / (large - small)


_scale = Number(
    id="scaling.23",
    title="The critical batch without a target",
    prompt=(
        "Over many steps the squared length of the gradient is {first:g} in the mean on one rank, which has {small} "
        "sequences, and {second:g} after the all-reduce, over {large}. Each is s^2 + sigma^2/B in the mean. Estimate "
        "the noise scale sigma^2/s^2."
    ),
    given={"small": 2, "first": 30.5, "large": 32, "second": 2.375},
    draw=picks(first=(26.5, 28.5, 33.5)),
    answer=lambda g: _noise(g)[0] / _noise(g)[1],
    unit="sequence",
    relative=0.02,
    mistakes=(
        Mistake("other quantity", lambda g: _noise(g)[0], "That is one sequence's noise; what is it compared with?"),
        Mistake("rule for another case", lambda g: _noise(g)[0] / g["second"],
                "The gradient after the all-reduce still has noise in its length."),
    ),
    hints=(
        "Two equations, two unknowns.",
        "Their difference holds noise alone: sigma^2 times (1/small - 1/large).",
        "For the signal multiply each by its batch and take the difference.",
    ),
    difficulty=2,
    minutes=5,
    source="McCandlish et al. 2018, appendix A.1",
)  # fmt: skip


def _warming(given: Given) -> float:
    """Share of the updates that lie in the warm-up."""
    return float(given["warm"] / (given["total"] / given["large"]))


_warm_up = Number(
    id="scaling.25",
    title="A warm-up counted in updates",
    prompt=(
        "A schedule raises the learning rate during the first {warm} updates. One run has a batch of {small}, "
        "another of {large}; both read {total:,} sequences in all. Which share of its updates does the run with "
        "{large} spend in the warm-up?"
    ),
    given={"warm": 40, "small": 8, "large": 128, "total": 12800},
    draw=picks(warm=(20, 30, 40), large=(64, 128), total=(10240, 12800, 20480)),
    answer=_warming,
    unit="1",
    mistakes=(
        Mistake("rule for another case", lambda g: _warming({**g, "large": g["small"]}),
                "That is the run with the small batch; the other makes fewer updates of the same sequences."),
        Mistake("other quantity", lambda g: g["total"] / g["large"], "Those are the updates of the run."),
        Mistake("another base", lambda g: 1 / (1 / _warming(g) + 1),
                "The updates of the warm-up are among those of the run."),
    ),
    hints=(
        "How many updates does each run make?",
        "Sequences over batch: the larger batch makes fewer.",
        "The updates of the warm-up, over all updates of that run.",
    ),
    difficulty=1,
    minutes=2,
    source="the second source document: learning-rate schedules can differ; MLPerf v4.1, batches of 8 and 128",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_critical, _n, _target, _valid, _device_time, _scale, _warm_up)
