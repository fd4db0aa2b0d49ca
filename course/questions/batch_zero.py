"""Step 5, zero-bubble: what a split backward gains, and why no step with a barrier can be without idle time."""

from __future__ import annotations

from typing import Any

from course import batch
from course.questions.draws import picks
from course.questions.kinds import Expression, Given, Judgement, Mistake, Number, Question
from course.symbols import symbols

__all__ = ["QUESTIONS"]


def _zero(given: Given) -> float:
    return float(batch.zero_bubble_time(
        micro_batches=given["count"], pipeline=given["stages"], stage_forward_time=given["forward"],
        input_gradient_time=given["inputs"], weight_gradient_time=given["weights"]))  # fmt: skip


def _plain(given: Given) -> float:
    each = given["forward"] + given["inputs"] + given["weights"]
    return float((given["count"] + given["stages"] - 1) * each)


_gain = Number(
    id="batch.18",
    title="Time of ZB-H1",
    prompt=(
        "{stages} even stages of one chunk, {count} micro-batches, free sends. "
        "On a stage a forward takes {forward:g} ms, the gradient of its "
        "input {inputs:g} ms, that of its weights {weights:g} ms. Milliseconds of a step under ZB-H1?"
    ),
    given={"stages": 8, "count": 24, "forward": 10.0, "inputs": 11.0, "weights": 9.0},
    draw=picks(stages=(4, 8), count=(16, 24, 32), forward=(10.0, 12.0), inputs=(10.0, 11.0), weights=(8.0, 9.0, 10.0)),
    answer=_zero,
    unit="ms",
    relative=0.003,
    mistakes=(
        Mistake("another schedule", _plain, "That is 1F1B, where the gradients of the weights hold up the others."),
        Mistake("drain forgotten",
                lambda g: _plain(g) - (g["stages"] - 1) * g["weights"],
                "The weights no longer stand in the way on the way back, and they fill the wait at the end as well."),
        Mistake("stages for gaps",
                lambda g: g["count"] * (g["forward"] + g["inputs"] + g["weights"])
                + g["stages"] * (g["forward"] + g["inputs"] - g["weights"])),
    ),
    hints=(
        "Start from 1F1B: M + P - 1 pieces, each a forward and both gradients.",
        "Each stage but one saves two gradients of the weights.",
        "M (F + B + W) + (P - 1)(F + B - W).",
    ),
    difficulty=2,
    minutes=4,
    source="Qi et al. 2023",
)  # fmt: skip


M, P_p, t_F, t_B, t_W = symbols(
    "micro_batches", "pipeline", "stage_forward_time", "input_gradient_time", "weight_gradient_time"
)


def _floor(_: Given) -> Any:
    return batch.synchronous_floor(
        micro_batches=M, pipeline=P_p, stage_forward_time=t_F, input_gradient_time=t_B, weight_gradient_time=t_W
    )


_least = Expression(
    id="batch.19",
    title="The floor of a synchronous step",
    prompt=(
        "Even stages, one chunk each, free sends; all micro-batches enter at the first stage. Forward t_F, gradient of "
        "the input t_B, of the weights t_W. All stages begin the step together and no stage goes on before all are "
        "done. Look at the last stage alone: which time can no such schedule undercut?"
    ),
    answer=_floor,
    symbols=("micro_batches", "pipeline", "stage_forward_time", "input_gradient_time", "weight_gradient_time"),
    mistakes=(
        Mistake("drain forgotten", lambda _: (M + P_p - 1) * (t_F + t_B + t_W),
                "That is 1F1B. Which part of its waits must be there in any order?"),
        Mistake("dependency ignored", lambda _: M * (t_F + t_B + t_W),
                "That is its work alone. Can it begin at once?"),
        Mistake("another schedule", lambda _: M * (t_F + t_B + t_W) + (P_p - 1) * (t_F + t_B - t_W),
                "That is what one schedule takes. What must be waited for in any?"),
        Mistake("stages for gaps", lambda _: M * (t_F + t_B + t_W) + P_p * t_F),
    ),
    hints=(
        "What must have happened before its first forward?",
        "The first micro-batch must pass every stage before it.",
        "(P_p - 1) forwards, and then all of its own work.",
    ),
    difficulty=2,
    minutes=5,
    source="Qi et al. 2023 speak of zero bubbles under synchronous semantics",
)  # fmt: skip

_proof = Judgement(
    id="batch.20",
    title="Zero, and synchronous",
    prompt=(
        "A paper splits backward and reports no idle time while training stays synchronous: every forward of a step "
        "sees the weights of the last update. You simulate a schedule with one chunk a stage, whose micro-batches all "
        "enter at the first stage and whose steps begin and end with a barrier over all stages. Can its idle time be "
        "zero, with two stages or more?"
    ),
    choices={"a": "yes, with enough micro-batches", "b": "no, not with this barrier", "c": "yes, with enough memory"},
    reasons={
        "1": "with a split backward any wait can be filled with gradients of the weights",
        "2": "the last stage cannot begin before a micro-batch has passed the others, and after the barrier it has no "
        "other work",
        "3": "the last stage must wait for its gradients",
        "4": "the share of idle time goes to zero with more micro-batches",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("a", "4"), "The share does. Is the idle time zero at any number?"),
        Mistake("dependency ignored", lambda _: (None, "1"),
                "Of which micro-batch would that gradient be, before the first forward has arrived?"),
        Mistake("rule for another case", lambda _: ("c", None), "Memory lets a stage run ahead. Of what, at first?"),
    ),
    hints=(
        "Look at the last stage at time 0.",
        "What could it do there if the step before were not closed by a barrier?",
        "The authors drop the barrier: a stage updates alone and goes on, and what was to be checked by all is checked "
        "later.",
    ),
    difficulty=3,
    minutes=6,
    source="Qi et al. 2023: the barrier of the optimizer step is bypassed and validated afterwards",
)  # fmt: skip

_dual = Number(
    id="batch.21",
    title="A formula of another schedule",
    prompt=(
        "A schedule that runs from both ends is published with a bubble of (P/2 - 1)(FB + B - 3W): FB is the measured "
        "time of a forward and a backward run together, B a whole backward, W the part of it that makes the gradients "
        "of the weights. {stages} stages, F = 1, B = 2, W = 1, FB = {together:g}. The bubble?"
    ),
    given={"stages": 8, "together": 2.5},
    draw=picks(stages=(8, 16), together=(2.5, 2.75)),
    answer=lambda g: (g["stages"] / 2 - 1) * (g["together"] + 2 - 3),
    unit="1",
    relative=0.005,
    mistakes=(
        Mistake("rule for another case", lambda g: (g["stages"] / 2 - 1) * (3 + 2 - 3),
                "FB was taken as F + B; it is measured, and it is what the schedule gains."),
        Mistake("rule for another case", lambda g: (g["stages"] / 2 - 1) * (2 + 2 - 3),
                "FB was taken as the longer of the two; that would be a perfect overlap."),
    ),
    hints=(
        "Put in what is given; FB is no sum.",
        "B holds both gradients here: say so before you compare formulas of two papers.",
        "(P/2 - 1) times (FB + 2 - 3).",
    ),
    difficulty=1,
    minutes=3,
    source="PIP-05, deepseek-ai/DeepSeek-V3#211",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_gain, _least, _proof, _dual)
