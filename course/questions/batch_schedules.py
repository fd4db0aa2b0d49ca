"""Step 5, schedules: bubbles by both definitions, uneven stages, sends, and orders that cannot be."""

from __future__ import annotations

import random
from typing import Any

from course import batch
from course.questions.draws import picks
from course.questions.kinds import Expression, Function, Given, Judgement, Mistake, Number, Question
from course.simulators.pipeline import BACKWARD, Work, one_forward_one_backward, simulate
from course.symbols import symbols

__all__ = ["QUESTIONS"]

_share = Number(
    id="batch.6",
    title="Idle of all the time",
    prompt=(
        "{stages} even stages, {count} micro-batches, 1F1B. Which share of all the time is idle? Answer as a share of "
        "1."
    ),
    given={"stages": 8, "count": 32},
    draw=picks(stages=(4, 8, 12, 16), count=(16, 24, 32, 64)),
    answer=lambda g: batch.bubble_share(pipeline=g["stages"], interleave=1, micro_batches=g["count"]),
    unit="1",
    relative=0.005,
    mistakes=(
        Mistake("other bubble", lambda g: (g["stages"] - 1) / g["count"]),
        Mistake("work for bubble", lambda g: g["count"] / (g["count"] + g["stages"] - 1)),
        Mistake("stages for gaps", lambda g: g["stages"] / (g["count"] + g["stages"])),
        Mistake("other bubble", lambda g: (g["stages"] - 1) / (g["stages"] * g["count"]),
                "That divides idle pieces of one stage by the pieces of all."),
    ),
    hints=(
        "Draw one stage: how many pieces of work, and how many pieces of waiting?",
        "Waiting: on the way in for the stages before, on the way out for those after it.",
        "Idle pieces over idle pieces and micro-batches.",
    ),
    difficulty=1,
    minutes=3,
    source="PIP-01, rohitg00/ai-engineering-from-scratch#66; a lab that divides by stages times micro-batches",
)  # fmt: skip

_chunks = Number(
    id="batch.7",
    title="The same with chunks",
    prompt=(
        "{stages} even stages of {chunks} chunks each, {count} micro-batches, interleaved. Idle time over ideal time, "
        "as a share of 1?"
    ),
    given={"stages": 8, "chunks": 4, "count": 32},
    draw=picks(stages=(8, 16), chunks=(2, 4, 5), count=(16, 32)),
    answer=lambda g: batch.bubble_overhead(pipeline=g["stages"], interleave=g["chunks"], micro_batches=g["count"]),
    unit="1",
    relative=0.005,
    mistakes=(
        Mistake("other bubble", lambda g: (g["stages"] - 1) / (g["chunks"] * g["count"] + g["stages"] - 1)),
        Mistake("chunks forgotten", lambda g: (g["stages"] - 1) / g["count"]),
        Mistake("work for bubble", lambda g: g["count"] / (g["count"] + (g["stages"] - 1) / g["chunks"]),
                "A thread calls this very share a bubble rate; it is the share that works."),
    ),
    hints=(
        "Ideal time is that of the micro-batches alone.",
        "On the way in and out a stage waits for chunks, not for whole stages.",
        "Waiting: stages less one, each a v-th of a micro-batch.",
    ),
    difficulty=1,
    minutes=3,
    source="PIP-03, deepseek-ai/DualPipe#8",
)  # fmt: skip

_least = Number(
    id="batch.8",
    title="A criterion to be met",
    prompt=(
        "An acceptance test wants at most {percent} % of the time idle, with {stages} even stages under 1F1B. The "
        "least number of micro-batches?"
    ),
    given={"percent": 20, "stages": 5},
    draw=picks(percent=(10, 20, 25), stages=(5, 9, 16)),
    answer=lambda g: -((g["stages"] - 1) * (g["percent"] - 100) // g["percent"]),
    unit="1",
    relative=1e-6,
    mistakes=(
        Mistake("other bubble", lambda g: -(-(g["stages"] - 1) * 100 // g["percent"])),
    ),
    hints=(
        "Write the share with M unknown and set it to the limit.",
        "(P - 1) <= limit x (M + P - 1).",
        "M >= (P - 1)(1 - limit)/limit, rounded up.",
    ),
    difficulty=2,
    minutes=4,
    source="PIP-07, dylanyunlon/Neuron_SP#245: 8 micro-batches on 5 stages were to reach 20 %",
)  # fmt: skip


M, P_p, v, t_max = symbols("micro_batches", "pipeline", "interleave", "slowest_stage_time")


def _time_expression(_: Given) -> Any:
    return batch.pipeline_time(micro_batches=M, slowest_stage_time=t_max, interleave=v, sum_stage_times=P_p * t_max)


_time = Expression(
    id="batch.9",
    title="Time of a pipeline",
    prompt=(
        "P_p even stages, each t_max for forward and backward of one micro-batch, cut into v chunks; M micro-batches, "
        "interleaved. The time of all of them?"
    ),
    answer=_time_expression,
    symbols=("micro_batches", "pipeline", "interleave", "slowest_stage_time"),
    mistakes=(
        Mistake("chunks forgotten", lambda _: (M + P_p - 1) * t_max),
        Mistake("one after the other", lambda _: M * P_p * t_max),
        Mistake("chunks forgotten", lambda _: (M + P_p - 1) * t_max / v,
                "A stage does all its chunks for every micro-batch; only what it waits for is a chunk."),
        Mistake("stages for gaps", lambda _: M * t_max + P_p * t_max / v),
    ),
    hints=(
        "A stage's own work, and its waiting.",
        "Its work is M t_max. It waits for the others, of each a chunk.",
        "M t_max + (P_p - 1) t_max / v.",
    ),
    difficulty=1,
    minutes=3,
    source="Narayanan et al. 2021",
)  # fmt: skip

_heavy = Number(
    id="batch.10",
    title="The head on the last stage",
    prompt=(
        "{stages} stages under 1F1B. All take {each:g} ms a micro-batch but the last, which holds the output head and "
        "takes {last:g} ms. {count} micro-batches: milliseconds?"
    ),
    given={"stages": 4, "each": 3.0, "last": 4.5, "count": 16},
    draw=picks(stages=(4, 8), each=(2.0, 3.0), last=(4.5, 5.0), count=(16, 32)),
    answer=lambda g: batch.pipeline_time(
        micro_batches=g["count"], interleave=1, slowest_stage_time=g["last"],
        sum_stage_times=g["each"] * (g["stages"] - 1) + g["last"]),
    unit="ms",
    relative=0.005,
    mistakes=(
        Mistake("even stages assumed", lambda g: (g["count"] + g["stages"] - 1)
                * (g["each"] * (g["stages"] - 1) + g["last"]) / g["stages"]),
        Mistake("even stages assumed", lambda g: (g["count"] + g["stages"] - 1) * g["each"]),
        Mistake("stages for gaps", lambda g: (g["count"] + g["stages"] - 1) * g["last"],
                "The others are quicker: the way in and out passes through them."),
    ),
    hints=(
        "The last stage never waits for the others once it has begun.",
        "Count its work, and what passes before its first forward and after its last backward.",
        "M times the slowest, and once the others.",
    ),
    difficulty=2,
    minutes=4,
    source="PIP-09, pytorch/torchtitan#1041",
)  # fmt: skip


def _times(source: random.Random) -> dict[str, Any]:
    stages = source.choice((2, 3, 4, 5))
    return {
        "forward": [source.choice((1.0, 1.5, 2.0, 3.0)) for _ in range(stages)],
        "backward": [source.choice((1.0, 2.0, 3.0, 5.0)) for _ in range(stages)],
        "micro_batches": source.choice((1, 2, 5, 9)),
        "send": source.choice((0.0, 0.25, 1.0)),
    }


def _gpipe(forward: list[float], backward: list[float], micro_batches: int, send: float) -> float:
    both = sum(forward) + sum(backward)
    return float(batch.gpipe_time(
        sum_stage_times=both, micro_batches=micro_batches, slowest_forward_time=max(forward),
        slowest_backward_time=max(backward), pipeline=len(forward), send_time=send))  # fmt: skip


def _even(forward: list[float], backward: list[float], micro_batches: int, send: float) -> float:
    stages = len(forward)
    mean = (sum(forward) + sum(backward)) / stages
    return (micro_batches + stages - 1) * mean + 2 * (stages - 1) * send


def _no_sends(forward: list[float], backward: list[float], micro_batches: int, send: float) -> float:  # noqa: ARG001
    return _gpipe(forward, backward, micro_batches, 0.0)


def _one_slowest(forward: list[float], backward: list[float], micro_batches: int, send: float) -> float:
    slowest = max(one + other for one, other in zip(forward, backward, strict=True))
    whole = sum(forward) + sum(backward) + 2 * (len(forward) - 1) * send
    return whole + (micro_batches - 1) * slowest


_function = Function(
    id="batch.11",
    title="GPipe on uneven stages",
    prompt=(
        "Write `gpipe_time(forward, backward, micro_batches, send)`: lists of the times of each stage, the number of "
        "micro-batches, the delay of one message. The time of a step under GPipe."
    ),
    arguments=("forward", "backward", "micro_batches", "send"),
    case=_times,
    edges=({"forward": [1.0, 3.0], "backward": [5.0, 1.0], "micro_batches": 4, "send": 0.5},),
    answer=_gpipe,
    unit="s",
    mistakes=(
        Mistake("even stages assumed", lambda _: _even),
        Mistake("sends forgotten", lambda _: _no_sends),
        Mistake(
            "another schedule",
            lambda _: _one_slowest,
            "The stage slowest in forward and the one slowest in backward need not be the same.",
        ),
    ),
    hints=(
        "All forwards come first: treat the two passes apart.",
        "In one pass: one micro-batch through all stages, then one more each time the slowest is done.",
        "sum + (M - 1) max for each pass, and the stages less one messages each way.",
    ),
    difficulty=2,
    minutes=8,
    source="zxypro1/algolocal#99: two schedules whose simulations disagreed",
)


def _in_1f1b(given: Given) -> float:
    orders = one_forward_one_backward(given["stages"], given["count"])
    return float(simulate(orders, 1, 1).start(0, Work(BACKWARD, given["which"] - 1)))


_start = Number(
    id="batch.12",
    title="The earliest backward",
    prompt=(
        "A drawing of 1F1B on {stages} stages, {count} micro-batches, forward and backward 1 each, lets stage 0 begin "
        "the backward of micro-batch {which} (counted from 1) at time 7. When does 1F1B begin it?"
    ),
    given={"stages": 4, "count": 8, "which": 4},
    draw=picks(stages=(4, 5, 6), count=(8,), which=(4, 5)),
    answer=_in_1f1b,
    unit="1",
    relative=1e-6,
    mistakes=(
        Mistake("dependency ignored", lambda _: 7.0,
                "By then its forward has not even passed the last stage, and the backwards of the later stages come "
                "before."),
        Mistake("another schedule", lambda g: g["which"] - 1 + 2 * g["stages"] - 1,
                "By dependencies alone, yes. But the last stage takes turns: it does the earlier micro-batches first."),
    ),
    hints=(
        "Follow the last stage: forward, backward, forward, backward.",
        "It begins at stages - 1 and needs 2 for each micro-batch.",
        "Its backward of that micro-batch, then one backward on each stage before stage 0.",
    ),
    difficulty=3,
    minutes=6,
    source="PIP-11, Haozhe-Xing/agent_learning#9",
)  # fmt: skip

_impossible = Judgement(
    id="batch.13",
    title="An order that cannot be",
    prompt=(
        "Two stages, two micro-batches; F forward, B backward. Stage 1 does F2 B2 F1 B1. With which list of stage 0 "
        "does the pipeline never finish?"
    ),
    choices={"a": "F1 F2 B1 B2", "b": "F1 B1 F2 B2", "c": "F2 F1 B2 B1"},
    reasons={
        "1": "a backward of stage 0 waits for stage 1, and stage 1 for a forward that stage 0 does after it",
        "2": "stage 0 takes the backwards in another order than stage 1",
        "3": "a stage must do all its forwards before its first backward",
        "4": "stage 0 takes the forwards in another order than stage 1",
    },
    answer=lambda _: ("b", "1"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("a", None),
                "Stage 0 makes both forwards first. What could stage 1 then lack?"),
        Mistake("right for another reason", lambda _: ("b", "3"), "1F1B does not, and finishes."),
        Mistake("right for another reason", lambda _: ("b", "4"), "So does another of the lists, and finishes."),
    ),
    hints=(
        "For each list draw an arrow from each piece to what it needs, and to what comes before it in its list.",
        "Is there a way round, back to where you began?",
        "Ask for each list: is F2 there before stage 0 first waits for stage 1?",
    ),
    difficulty=2,
    minutes=5,
    source="PIP-11, Haozhe-Xing/agent_learning#9: an order drawn without its dependencies",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_share, _chunks, _least, _time, _heavy, _function, _start, _impossible)
