"""Step 8, choosing: the smallest group that fits, axes that solve nothing, and layouts judged by the model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import sympy as sp

from course import examples, shard
from course.compare.panel import panel
from course.estimate import pick
from course.problem import Goal, Run, load
from course.questions.draws import picks
from course.questions.kinds import Expression, Given, Judgement, LayoutQuestion, Mistake, Number, Question
from course.questions.runs import run_on
from course.symbols import symbols

__all__ = ["QUESTIONS"]

T, C, P, E, E_t = symbols("tensor", "context", "pipeline", "expert", "expert_tensor")


def _held(given: Given, tensor: int, **flags: int) -> float:
    """Bytes of state on a device, when optimizer state is sharded over the replicas that are left."""
    rungs = {"shard_optimizer": 1, "shard_gradients": 0, "shard_weights": 0} | flags
    return float(shard.state_per_device(
        stage_parameters=given["billions"] * 1e9, tensor=tensor, ranks=given["devices"] / tensor, weight_bytes=2,
        gradient_bytes=4, optimizer_bytes=12, **rungs))  # fmt: skip


def _smallest(given: Given, **flags: int) -> float:
    return float(next(t for t in (1, 2, 4, 8, 16, 32, 64) if _held(given, t, **flags) <= given["room"] * 1e9))


_group = Number(
    id="sweep.1",
    title="The smallest group",
    prompt=(
        "A model of {billions:g} billion parameters trains on {devices} devices: weights 2 bytes, gradients 4, "
        "optimizer "
        "state 12, the last sharded over the replicas (rung 1). A device has {room:g} GB for state. The tensor degree "
        "is a power of two and all other devices are replicas. What is the smallest tensor degree that fits?"
    ),
    given={"billions": 32.0, "devices": 64, "room": 50.0},
    draw=picks(billions=(20.0, 32.0, 40.0, 60.0), devices=(64, 128), room=(45.0, 50.0)),
    answer=lambda g: _smallest(g),
    unit="1",
    mistakes=(
        Mistake("everything sharded", lambda g: _smallest(g, shard_gradients=1, shard_weights=1)),
        Mistake("nothing sharded", lambda g: _smallest(g, shard_optimizer=0)),
        Mistake("rounded down", lambda g: _smallest(g) / 2,
                "Half of that degree leaves more than the room on a device."),
    ),
    hints=(
        "Which of the three parts are divided by the replicas, and which by the tensor ranks?",
        "A device holds (2 + 4) P/t and 12 P/t over its devices/t replicas.",
        "6 P/t + 12 P/devices: try t = 1, 2, 4.",
    ),
    difficulty=1,
    minutes=5,
    source="MEM-01, NVIDIA/Megatron-LM#654; MEM-07, Lightning-AI/pytorch-lightning#18717: which parts are divided",
)  # fmt: skip


def _sent(given: Given, rung: int, rounds: bool = True, split: bool = True) -> float:
    """Bytes a device sends its replicas in a step, at the smallest group of rung 1 or 3."""
    tensor = given["group1"] if rung == 1 else given["group3"]
    ranks = given["devices"] / tensor
    known = {
        "stage_parameters": given["billions"] * 1e9, "tensor": tensor if split else 1, "ranks": ranks,
        "weight_bytes": 2, "reduced_gradient_bytes": 4,
        "reductions": given["batch"] / ranks if rounds else 1,
    }  # fmt: skip
    formula = shard.zero1_traffic if rung == 1 else shard.zero3_traffic
    return float(formula(**pick(formula, known)))


_rungs = Number(
    id="sweep.23",
    title="Two rungs side by side",
    prompt=(
        "{billions:g} billion parameters on {devices} devices, {batch} single sequences a step. On rung 1 a replica "
        "needs "
        "{group1} tensor ranks; once a step gradients (4 bytes) are scattered and weights (2 bytes) gathered. On rung "
        "3 it needs {group3}; in every round weights are gathered twice and gradients scattered. How many times the "
        "bytes of rung 1 does a device send to its replicas on rung 3?"
    ),
    given={"billions": 69.0, "devices": 64, "batch": 512, "group1": 8, "group3": 2},
    draw=picks(batch=(256, 512, 1024), group1=(4, 8)),
    answer=lambda g: _sent(g, 3) / _sent(g, 1),
    unit="1",
    mistakes=(
        Mistake("accumulation forgotten", lambda g: _sent(g, 3, rounds=False) / _sent(g, 1),
                "On rung 3 the ranks exchange in every round, not once a step."),
        Mistake("rule for another case", lambda g: _sent(g, 3, split=False) / _sent(g, 1, split=False),
                "The ranks also hold different shares: tensor ranks divide what is sent."),
    ),
    hints=(
        "Of each: how many parameters has a device, how many bytes of each move, and how often?",
        "Rung 1: P/{group1} x 6 x (n - 1)/n once, n = {devices}/{group1}. Rung 3: P/{group3} x 8 x (n - 1)/n in each "
        "round.",
        "Rounds of rung 3: {batch} over {devices}/{group3}.",
    ),
    difficulty=2,
    minutes=6,
    source="08a: three rungs at their smallest groups",
)  # fmt: skip

_three_axes = Judgement(
    id="sweep.2",
    title="Three dimensions first",
    prompt=(
        "{billions:g} billion parameters on 64 devices in nodes of eight. With optimizer state sharded, weights and "
        "gradients take 30 of 80 GB, and one sequence's activations 25 GB. A colleague proposes 8 tensor ranks, 4 "
        "stages, 2 replicas. What first?"
    ),
    given={"billions": 5.0},
    choices={
        "a": "take it: large models are trained with three axes",
        "b": "start from 64 replicas, and add an axis only if the goal is missed",
        "c": "keep the tensor ranks, drop the stages",
        "d": "shard the weights too, so that there is room to spare",
    },
    reasons={
        "1": "each axis adds communication or idle time, and nothing here needs one to fit",
        "2": "tensor ranks in a node cost nothing",
        "3": "the more a device has free, the faster it runs",
        "4": "a layout with more axes can only be faster, for it has more to choose from",
    },
    answer=lambda _: ("b", "1"),
    mistakes=(
        Mistake("three axes first", lambda _: ("a", None)),
        Mistake("rule for another case", lambda _: ("d", None),
                "Weights sharded are weights gathered, for every micro-batch. What do they solve here?"),
        Mistake("three axes first", lambda _: ("c", None), "What does the tensor axis solve here?"),
    ),
    hints=(
        "Does anything fail to fit?",
        "30 and 25 of 80 GB. Which problem would a tensor rank solve?",
        "Start with none; the reason is what each axis costs.",
    ),
    difficulty=1,
    minutes=3,
    source="the first source document: starting with three-dimensional parallelism before checking what fits",
)  # fmt: skip


# ---------------------------------------------------------------- layouts
@cache
def _example() -> Run:
    return replace(load(examples.path("llama-2-70b-64-a100")), layout=None)


def _h100(given: Given) -> Run:
    return run_on(given["model"], given["batch"], given["length"], Goal(), devices=given["devices"])


_dictionary = (
    "Give a dictionary of degrees above 1, `sharding`, `micro_batch` and, if needed, `recompute` or `schedule`, such "
    "as "
    '{{"data": 8, "tensor": 8, "sharding": "zero1", "micro_batch": 1}}. '
)

_seventy = LayoutQuestion(
    id="sweep.3",
    title="Seventy billion, 64 A100",
    prompt=(
        "Llama 2 70B on 64 A100, eight a node, 512 sequences of 4,096 a step: without looking at the lesson's printed "
        "choice. " + _dictionary + "It must be legal, fit, and be within 5 % of the best step time."
    ),
    run=lambda _: _example(),
    within=0.05,
    hints=(
        "State over 64 devices fits. What does not, and what is the cheapest remedy?",
        "Activations. Two neighbours in a node halve them for one exchange a matmul.",
        "2 tensor ranks and rung 3, or 4 and rung 2; single sequences, nothing repeated.",
    ),
    difficulty=2,
    minutes=8,
    source="08a, by its page",
)

_thirty = LayoutQuestion(
    id="sweep.4",
    title="Thirty-two billion, one axis",
    prompt=(
        "Lay out `{model}` on {devices} H100, eight a node, {batch} sequences of {length:,} a step, state bf16-18. "
        + _dictionary
        + "It must be legal, fit, and be within a tenth of the best."
    ),
    given={"model": "qwen3-32b", "devices": 64, "batch": 512, "length": 8192},
    run=_h100,
    within=0.10,
    hints=(
        "Estimate first: 18 bytes for 32 billion over 64 devices, and activations of a sequence of 8,192.",
        "The state is 9 GB a device when all of it is sharded; the activations of one sequence are the problem.",
        "One axis of 2 or 4 that cuts activations, inside the node; a rung that leaves room; nothing repeated.",
    ),
    difficulty=2,
    minutes=9,
    source="08b: one axis is enough for most questions",
)

_long = LayoutQuestion(
    id="sweep.5",
    title="Eight billion, long sequences",
    prompt=(
        "Lay out `{model}` on {devices} H100, eight a node, {batch} sequences of {length:,} a step, state bf16-18. "
        + _dictionary
        + "It must be legal, fit, and be within a tenth of the best."
    ),
    given={"model": "llama-3-8b", "devices": 64, "batch": 128, "length": 32768},
    run=_h100,
    within=0.10,
    hints=(
        "What grows with the sequence, and which axis splits exactly that?",
        "Context ranks share the sequence and join the group that shards state. How many until it fits?",
        "4 context ranks in a node, 16 replicas, rung 2, nothing repeated.",
    ),
    difficulty=2,
    minutes=8,
    source="MEM-27, RulinShao/LightSeq#3: what context ranks divide",
)

_replica = Expression(
    id="sweep.6",
    title="Devices of a replica",
    prompt=(
        "A mixture is split over T_p tensor, C_p context and P_p pipeline ranks, and its experts over E_p expert "
        "ranks of "
        "E_tp tensor ranks each. Experts fold into the tensor, context and data ranks of a stage. How many devices "
        "work on one micro-batch together? Use T_p, C_p, P_p, E_p and E_tp; `Max(a, b)` is the larger."
    ),
    answer=lambda _: P * sp.Max(T * C, E * E_t),
    symbols=("tensor", "context", "pipeline", "expert", "expert_tensor"),
    mistakes=(
        Mistake("experts multiplied in", lambda _: P * T * C * E * E_t),
        Mistake("rule for another case", lambda _: P * T * C,
                "That is a dense model; experts may reach over more ranks."),
    ),
    hints=(
        "Of one stage: which devices see the same tokens, and which hold the experts they are sent to?",
        "T_p C_p devices share a micro-batch. E_p E_tp hold the experts, some of them the same devices.",
        "P_p times the larger of both products.",
    ),
    difficulty=3,
    minutes=5,
    source="LAY-17, NVIDIA-NeMo/Speech#14838: expert ranks are folded in; LAY-15, huggingface/nanotron#250",
)  # fmt: skip

_price = Judgement(
    id="sweep.7",
    title="Simple, and a third more work",
    prompt=(
        "Two layouts fit. One has no axis at all, shards everything, repeats every layer, and takes {first:g} s a "
        "step. The "
        "other has 2 tensor ranks in a node, repeats nothing, and takes {second:g} s. The deadline allows {goal:g} s. "
        "Each GPU-hour is paid. Which?"
    ),
    given={"first": 76.2, "second": 61.6, "goal": 80.0},
    choices={"a": "the first", "b": "the second", "c": "neither: look for three axes"},
    reasons={
        "1": "fewest axes is simplest, and it reaches the goal",
        "2": "it reaches the goal with fewer GPU-hours, and one axis in a node is little to run",
        "3": "recomputation raises HFU, so the devices are used better",
        "4": "a faster step is always better",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("recomputation as useful work", lambda _: (None, "3")),
        Mistake("faster for cheaper", lambda _: ("a", None),
                "It reaches the goal; at what price in device-hours, and for what?"),
        Mistake("right for another reason", lambda _: ("b", "4"),
                "Faster alone is no reason: what does the step cost, and whose goal is it?"),
    ),
    hints=(
        "Both reach the goal. What else differs?",
        "76.2 over 61.6 is also the ratio of the hours.",
        "A count of axes does not see work done twice.",
    ),
    difficulty=2,
    minutes=4,
    source="08b: nearly all failures of the plain rule repeat every layer",
)  # fmt: skip


@cache
def _measured() -> Run:
    return replace(panel("8.86B", 64).run, layout=None, goal=Goal())


_panel = LayoutQuestion(
    id="sweep.21",
    title="A layout for a measured panel",
    prompt=(
        "The playbook's 8.86B model (32 layers of width 4,096, 32 heads, vocabulary 131,072) on 64 H100, 256 "
        "sequences of "
        "4,096 a step, its own program: no recomputation, rung 0 or 1. " + _dictionary + "It must be legal, fit, "
        "and be within 15 % of our best; then see in 08c what it really did."
    ),
    run=lambda _: _measured(),
    within=0.15,
    hints=(
        "What does 2 + 4 + 12/dp bytes a parameter leave of 80 GB, and which axis cuts what is left least dearly?",
        "Two ways: a few stages, or two tensor ranks. Which of them exchanges less?",
        "4 stages and 16 replicas on rung 1; or 2 stages with 2 tensor ranks, micro-batch 2.",
    ),
    difficulty=3,
    minutes=10,
    source="Ultra-Scale Playbook, 8.86B on 64 GPUs",
)

QUESTIONS: tuple[Question, ...] = (_group, _rungs, _three_axes, _seventy, _thirty, _long, _replica, _price, _panel)
