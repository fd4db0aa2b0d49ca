"""Step 3, the ladder: bytes of collectives and rungs, when half more is true, and the smallest group that fits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache
from typing import Any

from course import catalog, shard
from course.questions.draws import picks
from course.questions.kinds import Expression, Function, Given, Judgement, Mistake, Number, Question
from course.shard.ladder import G_r, P_s, T_p, b_w, g, n

__all__ = ["QUESTIONS"]

GIB = 2.0**30


def _buffer(given: Given) -> float:
    """Gradients of all parameters in GB, 2 bytes each."""
    return float(2 * given["billions"])


_reduce = Number(
    id="shard.1",
    title="Bytes of an all-reduce",
    prompt=(
        "Gradients of {billions:g} billion parameters, 2 bytes each, are all-reduced over {ranks} ranks in a ring. How "
        "many GB does each rank send?"
    ),
    given={"billions": 1.0, "ranks": 64},
    draw=picks(billions=(1.0, 3.0, 8.0, 13.0), ranks=(8, 16, 32, 64)),
    answer=lambda x: shard.all_reduce_bytes(ranks=x["ranks"], payload_bytes=_buffer(x) * 1e9) / 1e9,
    unit="GB",
    relative=0.004,
    mistakes=(
        Mistake("half an all-reduce", lambda x: _buffer(x) * (x["ranks"] - 1) / x["ranks"]),
        Mistake("own share counted", lambda x: 2 * _buffer(x)),
        Mistake("grows with the ranks", lambda x: x["ranks"] * _buffer(x)),
    ),
    hints=(
        "An all-reduce is two collectives, one behind the other. Which?",
        "In each of them a rank sends all chunks of the buffer but one.",
        "Twice the buffer, times (n - 1)/n. The buffer: parameters times 2 bytes.",
    ),
    difficulty=1,
    minutes=3,
    source="COM-15, EleutherAI/cookbook#18: bytes do not grow with the ranks",
)


def _per_parameter(given: Given, count: float) -> float:
    return float(count * given["billions"] * (given["ranks"] - 1) / given["ranks"])


_fsdp = Number(
    id="shard.4",
    title="A wider gradient on the wire",
    prompt=(
        "ZeRO-3 over {ranks} ranks, {billions:g} billion parameters, one micro-batch a step. Weights are gathered in "
        "bf16, twice; gradients are reduced in fp32. How many GB does a rank send in a step?"
    ),
    given={"billions": 8.0, "ranks": 32},
    draw=picks(billions=(1.0, 3.0, 8.0, 13.0, 70.0), ranks=(8, 16, 32, 64)),
    answer=lambda x: shard.zero3_traffic(
        ranks=x["ranks"], reductions=1, weight_bytes=2, reduced_gradient_bytes=4,
        stage_parameters=x["billions"] * 1e9, tensor=1) / 1e9,
    unit="GB",
    relative=0.004,
    mistakes=(
        Mistake("all traffic scaled", lambda x: _per_parameter(x, 12)),
        Mistake(
            "backward gather forgotten", lambda x: _per_parameter(x, 6),
            "That is 6 bytes a parameter: one of the gathers is missing, or the gradient travels in 2 bytes.",
        ),
        Mistake("own share counted", lambda x: 8 * x["billions"]),
    ),
    hints=(
        "List the collectives of a micro-batch: how often, over which buffer, in how many bytes a number?",
        "Two all-gathers of 2-byte weights and one reduce-scatter of 4-byte gradients.",
        "2 + 2 + 4 bytes a parameter, times (n - 1)/n.",
    ),
    difficulty=1,
    minutes=4,
    source="COM-19, pytorch/pytorch#106395: the reduce type changes one of three collectives",
)  # fmt: skip

_half_more = Judgement(
    id="shard.5",
    title="Free, free, half more?",
    prompt=(
        "A table says: beside plain data parallelism ZeRO-1 and ZeRO-2 send no more bytes and ZeRO-3 half more. Your "
        "weights are bf16, your gradients are reduced in fp32, and a step is one micro-batch. What holds?"
    ),
    choices={
        "a": "the table",
        "b": "ZeRO-1 sends a quarter less than plain data parallelism, and ZeRO-3 as much as it",
        "c": "ZeRO-3 sends a third more than plain data parallelism",
        "d": "ZeRO-1 as much, ZeRO-3 three quarters more",
    },
    reasons={
        "1": "a ratio of bytes does not depend on the number format",
        "2": "an all-reduce moves every fp32 gradient twice; the rungs move it once, and 2-byte weights besides",
        "3": "fp32 doubles every collective of the step",
        "4": "gathering weights twice costs as much as reducing gradients twice",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("a", None), "The table takes weights and gradients as alike."),
        Mistake("all traffic scaled", lambda _: (None, "3")),
    ),
    hints=(
        "Write bytes a parameter for each rung, each collective in its own width.",
        "Plain: 4 + 4. ZeRO-1: a scatter of gradients and a gather of weights.",
        "ZeRO-3: two gathers of weights and one scatter of gradients. Compare with 8.",
    ),
    difficulty=2,
    minutes=5,
    source="COM-19; the ladder as it is printed in most guides",
)


def _z3(given: Given, weights: float, gradients: float) -> float:
    return _per_parameter(given, weights + gradients)


_accumulated = Number(
    id="shard.6",
    title="ZeRO-3 under accumulation",
    prompt=(
        "{billions:g} billion parameters, ZeRO-3 over {ranks} ranks, weights and gradients 2 bytes on the wire. A step "
        "accumulates {micro_batches} micro-batches; weights are released after each pass. How many GB does a rank "
        "send in a step?"
    ),
    given={"billions": 7.0, "ranks": 64, "micro_batches": 8},
    draw=picks(billions=(7.0, 13.0, 30.0), ranks=(16, 32, 64), micro_batches=(4, 8, 16)),
    answer=lambda x: shard.zero3_traffic(
        ranks=x["ranks"], reductions=x["micro_batches"], weight_bytes=2, reduced_gradient_bytes=2,
        stage_parameters=x["billions"] * 1e9, tensor=1) / 1e9,
    unit="GB",
    relative=0.005,
    mistakes=(
        Mistake("every rung once", lambda x: _z3(x, 4, 2)),
        Mistake("backward gather forgotten", lambda x: x["micro_batches"] * _z3(x, 2, 2)),
        Mistake(
            "every rung once", lambda x: _z3(x, 4 * x["micro_batches"], 2),
            "The gradients were reduced once a step; a rank of ZeRO-3 keeps no whole gradient to add up.",
        ),
    ),
    hints=(
        "What does a rank still hold when a micro-batch is over?",
        "Neither whole weights nor whole gradients: the next micro-batch pays everything again.",
        "6 bytes a parameter for each micro-batch, times (n - 1)/n.",
    ),
    difficulty=2,
    minutes=4,
    source="the ladder under accumulation; COM-17 on what accumulation saves",
)  # fmt: skip

_zero3 = shard.zero3_traffic.value_expression.subs(T_p, 1)

_rung = Expression(
    id="shard.7",
    title="ZeRO-3 in symbols",
    prompt=(
        "Write the bytes a rank sends in a step under ZeRO-3: `P_s` parameters, weights of `b_w` bytes, gradients of "
        "`g` bytes on the wire, `G_r` micro-batches, `n` ranks, weights gathered for forward and again for backward."
    ),
    symbols=("stage_parameters", "weight_bytes", "reduced_gradient_bytes", "reductions", "ranks"),
    answer=lambda _: _zero3,
    mistakes=(
        Mistake("backward gather forgotten", lambda _: G_r * (b_w + g) * P_s * (n - 1) / n),
        Mistake("every rung once", lambda _: (2 * b_w + g) * P_s * (n - 1) / n),
        Mistake("own share counted", lambda _: G_r * (2 * b_w + g) * P_s),
        Mistake("half an all-reduce", lambda _: G_r * (2 * b_w + 2 * g) * P_s * (n - 1) / n,
                "The gradients were all-reduced; a rank needs the sum of its own piece alone."),
    ),
    hints=(
        "Which three collectives does a micro-batch make?",
        "Each moves (n - 1)/n of its buffer; two buffers are weights, one is gradients.",
        "The three buffers add up to (2 b_w + g) P_s. How often a step?",
    ),
    difficulty=2,
    minutes=5,
    source="mlsys-lab, task sys-model-zero-3-comm-vs-dp: ZeRO-3 given as 2(W-1)/W, the second gather missing",
)  # fmt: skip

_STATE = catalog.state("bf16-18")
_RECIPE = (float(_STATE.weights), float(_STATE.all_gradients), float(_STATE.optimizer))


@cache
def _solved(billions: float, room: float, rung: str) -> float:
    names = ("weight_bytes", "gradient_bytes", "optimizer_bytes")
    state = {"stage_parameters": billions * 1e9, "tensor": 1, **dict(zip(names, _RECIPE, strict=True))}
    return float(shard.state_per_device.solve("ranks", equals=room * GIB, **state, **shard.STAGE_FLAGS[rung]).value)


def _group(given: Given, rung: str) -> float:
    """The fewest ranks of a rung with which the state fits."""
    return _solved(given["billions"], given["room"], rung)


_smallest = Number(
    id="shard.15",
    title="The smallest group by ZeRO-1",
    prompt=(
        "{billions:g} billion parameters in the recipe bf16-18: 2 bytes of weight, 4 of gradient, 12 of optimizer "
        "state. {room:g} GiB of each device are free for state. Over how many ranks at least must ZeRO-1 shard?"
    ),
    given={"billions": 8.0, "room": 60.0},
    draw=picks(billions=(8.0, 8.5, 9.0), room=(54.0, 57.0, 60.0)),
    answer=lambda x: _group(x, "zero1"),
    unit="1",
    mistakes=(
        Mistake("everything sharded", lambda x: _group(x, "zero3")),
        Mistake(
            "rule for another case",
            lambda x: math.ceil(12 * x["billions"] * 1e9 / (x["room"] * GIB)),
            "The whole room was given to the optimizer's state; weights and gradients stay on every device.",
        ),
    ),
    hints=(
        "Which part of the 18 bytes does ZeRO-1 divide?",
        "Weights and gradients stay whole: 6 bytes a parameter on every device. What room is left for the rest?",
        "The optimizer's bytes over that room, rounded up. A GiB is 2^30 bytes.",
    ),
    difficulty=2,
    minutes=5,
    source="deepspeedai/DeepSpeed#5102: an estimator without a stage 1; design rule: the smallest group that fits",
)


def _state(parameters: float, tensor: float, ranks: float, stage: int) -> float:
    flags = list(shard.STAGE_FLAGS.values())[int(stage)]
    w, gr, o = _RECIPE
    return float(shard.state_per_device(
        stage_parameters=parameters, tensor=tensor, ranks=ranks, weight_bytes=w, gradient_bytes=gr, optimizer_bytes=o,
        **flags))  # fmt: skip


def _wrong_state(kind: str) -> Callable[..., float]:
    def state(parameters: float, tensor: float, ranks: float, stage: int) -> float:
        if kind == "all":
            return 18 * parameters / tensor / ranks if stage else 18 * parameters / tensor
        if kind == "whole":
            return 18 * parameters / tensor
        parts = [bytes_ / (ranks if stage >= least else 1) for bytes_, least in ((2, 3), (4, 2), (12, 1))]
        return parameters * sum(parts)

    return state


def _state_case(source: random.Random) -> dict[str, Any]:
    return {
        "parameters": source.choice((1e9, 8e9, 70e9)), "tensor": source.choice((2, 4, 8)),
        "ranks": source.choice((2, 16, 128)), "stage": source.choice((0, 1, 2, 3)),
    }  # fmt: skip


_state_function = Function(
    id="shard.16",
    title="State on a device as a function",
    prompt=(
        "Write `state(parameters, tensor, ranks, stage)`: bytes of model state on one device in the recipe bf16-18 (2 "
        "of weight, 4 of gradient, 12 of optimizer state). Tensor ranks divide all of it; `stage` 0 to 3 is the rung "
        "of ZeRO over `ranks` ranks."
    ),
    arguments=("parameters", "tensor", "ranks", "stage"),
    case=_state_case,
    edges=({"parameters": 8e9, "tensor": 2, "ranks": 4, "stage": 1},
           {"parameters": 8e9, "tensor": 2, "ranks": 4, "stage": 2}),
    answer=_state,
    unit="byte",
    mistakes=(
        Mistake("everything sharded", lambda _: _wrong_state("all")),
        Mistake("nothing sharded", lambda _: _wrong_state("whole")),
        Mistake("whole block for piece", lambda _: _wrong_state("tensor")),
    ),
    hints=(
        "Three parts, each whole or divided by the ranks. From which stage on is each divided?",
        "Optimizer from 1, gradients from 2, weights from 3.",
        "parameters / tensor, times the sum of 2, 4 and 12, each over ranks if its stage is reached.",
    ),
    difficulty=2,
    minutes=8,
    source="deepspeedai/DeepSpeed#5099: gradients not partitioned; EleutherAI calc_transformer_mem.py",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_reduce, _fsdp, _half_more, _accumulated, _rung, _smallest, _state_function)
