"""The lab, what needs no clock: bytes held, collectives and FLOPs of a compiled step; and a pipeline's idle share."""

from __future__ import annotations

from typing import Any

from course.batch import bubble_share
from course.lab.held import BYTES, parameters, parameters_held
from course.questions.draws import picks
from course.questions.kinds import Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

TENSORS, OUTSIDE = 6, 3  # of a layer: two matrices of attention, two of the feed-forward part, two norms; and the ends


def _model(g: Any) -> dict[str, int]:
    return {"layers": g["layers"], "hidden": g["hidden"], "heads": 4, "ffn": 4 * g["hidden"], "vocabulary": 512}


def _held(g: Any) -> float:
    return 2 * BYTES * parameters_held(_model(g), {"data": 1, "tensor": g["tensor"]})


def _whole(g: Any) -> float:
    return 2 * BYTES * sum(parameters(_model(g)).values())


_bytes = Number(
    id="lab.8",
    title="Bytes of a tensor rank",
    prompt=(
        "The lab's model with {layers} layers of width {hidden} (4 matrices a layer, of 12 h^2 numbers together, and "
        "two norms of h numbers), an embedding and a head of 512 h numbers each, and a last norm; all in fp32. Each of "
        "{tensor} tensor ranks holds its part of every matrix and every norm whole; plain SGD. Weights and gradients "
        "of one rank, in bytes?"
    ),
    given={"layers": 4, "hidden": 16, "tensor": 4},
    draw=picks(layers=(4, 6, 8)),
    answer=_held,
    unit="B",
    relative=0.005,
    mistakes=(
        Mistake("norms cut too", lambda g: _whole(g) / g["tensor"]),
        Mistake("gradients left out", lambda g: _held(g) / 2),
        Mistake("total for per device", _whole, "That is the whole model."),
    ),
    hints=(
        "Which numbers are cut, and which are whole on every rank?",
        "Matrices: 12 h^2 a layer, and 1024 h at the ends, over the ranks.",
        "Add (2 L + 1) h for the norms; 4 bytes for the weight, 4 for its gradient.",
    ),
    difficulty=2,
    minutes=6,
    source="counted in the lab: equal to the last byte",
)

_gathers = Number(
    id="lab.9",
    title="All-gathers of a compiled step",
    prompt=(
        "A compiled ZeRO-3 step of the lab's model with {layers} layers gathers each weight tensor once, for the "
        "compiler keeps it for the backward pass. A layer has {tensors} weight tensors (four matrices, two norms), and "
        "an embedding, a head and a last norm stand outside of layers. How many all-gathers are in the program's text?"
    ),
    given={"layers": 8, "tensors": TENSORS},
    draw=picks(layers=(6, 8, 12)),
    answer=lambda g: g["tensors"] * g["layers"] + OUTSIDE,
    unit="1",
    mistakes=(
        Mistake("gathered twice", lambda g: 2 * (g["tensors"] * g["layers"] + OUTSIDE)),
        Mistake("ends forgotten", lambda g: g["tensors"] * g["layers"]),
        Mistake("one a layer", lambda g: g["layers"]),
    ),
    hints=(
        "One for each tensor that is stored in shards.",
        "All layers' tensors, and those outside of layers.",
        "Six a layer, and three.",
    ),
    difficulty=1,
    minutes=3,
    source="COM-19: which collectives a sharded step makes; compiled by XLA for CPUs, jax 0.10.2: 27 for 4 layers",
)  # fmt: skip

_flops = Judgement(
    id="lab.10",
    title="FLOPs of a tensor rank",
    prompt=(
        "A compiler counts {one:g} GFLOP for a step on one device, {data:g} for each of two data-parallel devices and "
        "{tensor:g} for each of two tensor-parallel ones. All losses agree. Why is the last more than half of the "
        "first?"
    ),
    given={"one": 2.9357, "data": 1.4697, "tensor": 1.4745},
    choices={
        "a": "something outside of the matmuls is done on both tensor ranks",
        "b": "tensor ranks do some matmuls twice",
        "c": "all-reduces are counted as FLOPs of the model",
        "d": "the counts are measured and vary by less than a per cent",
    },
    reasons={
        "1": "work on whole activations, as the norms', is not divided by cutting matrices",
        "2": "a tensor rank recomputes activations",
        "3": "the two ranks have other heads, so other sizes",
        "4": "counts of the compiler are estimates of time",
    },
    answer=lambda _: ("a", "1"),
    mistakes=(
        Mistake("right for another reason", lambda _: ("a", "2")),
        Mistake("count for measurement", lambda _: ("d", None)),
    ),
    hints=(
        "What does a tensor rank compute on all of its tokens and all of the width?",
        "Norms and residuals see whole activations on every rank.",
        "The text of the program is the same on every run: the count has no noise.",
    ),
    difficulty=2,
    minutes=4,
    source="cost analysis of jax 0.10.2 for the lab's model",
)

_bubble = Number(
    id="lab.11",
    title="Idle beyond the bubble",
    prompt=(
        "A pipeline of {pipeline} stages with {micro_batches} micro-batches has {idle:g} of its device time idle, by "
        "CPU time over wall time. Which share of the device time is idle that the bubble does not explain?"
    ),
    given={"pipeline": 2, "micro_batches": 8, "idle": 0.24},
    draw=picks(idle=(0.22, 0.24, 0.26, 0.28)),
    answer=lambda g: g["idle"] - float(bubble_share(pipeline=g["pipeline"], interleave=1,
                                                   micro_batches=g["micro_batches"])),
    unit="1",
    mistakes=(
        Mistake("other bubble", lambda g: g["idle"] - (g["pipeline"] - 1) / g["micro_batches"],
                "That bubble is over the busy time; the idle share is over all of it."),
        Mistake("all of it the bubble", lambda g: g["idle"]),
    ),
    hints=(
        "Both shares need one base: all device time.",
        "The bubble is (P-1)/(M+P-1) of it.",
        "Subtract it from the measured share.",
    ),
    difficulty=1,
    minutes=3,
    source="PIP-01, two bubbles under one name; on two quiet cores the idle share ends above the formula",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_bytes, _gathers, _flops, _bubble)
