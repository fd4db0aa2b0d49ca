"""Step 2, activations: micro-batch, recomputation and its checkpoints, a failed allocation, an allocator's peak."""

from __future__ import annotations

import math

import sympy as sp

from course import constrain, estimate
from course.questions.draws import picks
from course.questions.kinds import Expression, Given, Judgement, Mistake, Number, Question
from course.symbols import symbols

__all__ = ["QUESTIONS"]

GB, GIB = 1e9, 2**30
A, A_in, B, T, L, k = symbols(
    "token_layer_bytes", "input_bytes", "micro_batch", "sequence_length", "layers", "checkpoint_layers"
)


# ---------------------------------------------------------------- the micro-batch
def _sequence(given: Given, layer: bool = True, logits: bool = True) -> float:
    """GB of one sequence."""
    one = {"micro_batch": 1, "sequence_length": given["length"]}
    held = constrain.checkpointed_memory(
        **one, token_layer_bytes=given["whole"] if layer else 0, input_bytes=given["alone"],
        stage_layers=given["layers"], in_flight=1, checkpoint_layers=1,
    )  # fmt: skip
    if logits:
        held += estimate.logits_bytes(**one, vocabulary=given["vocabulary"], tensor=1, logit_bytes=6)
    return float(held) / GB


_batch = Number(
    id="constrain.7",
    title="The largest micro-batch",
    prompt=(
        "{free:g} GB of a device are left for activations and logits. The model has {layers} layers; under full "
        "recomputation each keeps its input, {alone:,} bytes a token, and one at a time is whole, {whole:,} bytes a "
        "token. Sequences have {length:,} tokens, and each token {vocabulary:,} logits of 6 bytes. Count all of "
        "it as held at once. What is the largest micro-batch, in sequences?"
    ),
    given={"free": 64.0, "layers": 32, "alone": 8192, "whole": 139264, "length": 8192, "vocabulary": 128256},
    draw=picks(free=(64.0, 72.0, 90.0, 120.0, 150.0)),
    answer=lambda g: math.floor(g["free"] / _sequence(g)),
    unit="1",
    mistakes=(
        Mistake("layer at work forgotten", lambda g: math.floor(g["free"] / _sequence(g, layer=False))),
        Mistake("logits forgotten", lambda g: math.floor(g["free"] / _sequence(g, logits=False))),
    ),
    hints=(
        "Three things grow with the micro-batch. Which?",
        "Inputs of all layers, one whole layer, and the logits: bytes of a sequence each.",
        "Add the bytes a token: layers times input, one layer, six times the vocabulary; times tokens; then divide.",
    ),
    difficulty=2,
    minutes=6,
    source="MEM-17 and MEM-19: logits that nobody had counted",
)

_recomputed = Expression(
    id="constrain.8",
    title="Full recomputation",
    prompt=(
        "Each of L layers keeps its input for backward, A_in bytes a token, and throws the rest away. Backward makes "
        "one layer at a time whole again, A bytes a token. Write the activation bytes of a micro-batch of B sequences "
        "of T tokens at the fullest moment."
    ),
    symbols=("micro_batch", "sequence_length", "input_bytes", "layers", "token_layer_bytes"),
    answer=lambda _: B * T * (A_in * L + A),
    mistakes=(
        Mistake("layer at work forgotten", lambda _: B * T * A_in * L),
        Mistake("rule for another case", lambda _: B * T * A * L, "That is without recomputation."),
        Mistake(
            "rule for another case",
            lambda _: B * T * (A_in + A),
            "Every layer keeps its input, not one of them alone.",
        ),
    ),
    hints=(
        "What lies in memory when backward begins?",
        "An input for each layer; and then, what must be there while one layer goes backward?",
        "B T times the sum of L inputs and one whole layer.",
    ),
    difficulty=1,
    minutes=4,
    source="a public calculator keeps 34 bytes s b h under full recomputation, which is selective; full keeps 2",
)

_interval = Expression(
    id="constrain.9",
    title="The best interval",
    prompt=(
        "Now one input is kept for every k_c layers, and k_c layers at a time are whole: B T (A_in L/k_c + k_c A) "
        "bytes. Which k_c, not rounded, needs the least?"
    ),
    symbols=("input_bytes", "layers", "token_layer_bytes"),
    answer=lambda _: sp.sqrt(A_in * L / A),
    mistakes=(
        Mistake(
            "rule for another case",
            lambda _: sp.sqrt(L),
            "The square root of the layers is right where a whole layer keeps no more than its input.",
        ),
        Mistake("rule for another case", lambda _: A_in * L / A, "A root is missing."),
    ),
    hints=(
        "One term falls with k_c, the other rises.",
        "Differentiate with respect to k_c and set it to zero.",
        "A = A_in L / k_c^2; solve for k_c.",
    ),
    difficulty=2,
    minutes=5,
    source="Chen et al. 2016, who have a layer's input and a layer's activations of one size",
)


# ---------------------------------------------------------------- what a message and a measurement say
_allocation = Number(
    id="constrain.10",
    title="A failed allocation",
    prompt=(
        "A run stops with: tried to allocate {gib:g} GiB. It is one fp32 array of logits, a row for each token of the "
        "micro-batch and {columns:,} columns. How many tokens were in the micro-batch?"
    ),
    given={"gib": 58.15, "columns": 76032},
    draw=picks(gib=(7.83, 15.66, 31.31, 58.15), columns=(16032, 32000, 76032)),
    answer=lambda g: g["gib"] * GIB / (g["columns"] * 4),
    unit="token",
    mistakes=(
        Mistake("GiB for GB", lambda g: g["gib"] * GB / (g["columns"] * 4)),
        Mistake("another state recipe", lambda g: g["gib"] * GIB / (g["columns"] * 2), "fp32 is 4 bytes a number."),
    ),
    hints=(
        "How many numbers are in the array?",
        "Bytes over 4; a GiB is 2^30 bytes.",
        "Numbers over columns are rows, which are tokens.",
    ),
    difficulty=1,
    minutes=3,
    source="MEM-17, THUDM/slime#1951: 205 thousand tokens where 9,216 were meant",
)

_trust = Judgement(
    id="constrain.11",
    title="Which number to trust",
    prompt=(
        "You count 10.5 GiB. The same run reports a reserved peak of 16.39 GiB, and of 10.83 after the allocator was "
        "told to grow its segments instead of keeping gaps. The device has 16 GiB. What do you conclude, and why?"
    ),
    choices={
        "a": "the count is wrong by half and must be corrected",
        "b": "the count describes the tensors, and gaps came on top in the first run",
        "c": "the second measurement is wrong",
    },
    reasons={
        "1": "reserved memory holds tensors and the gaps between them; a count holds tensors alone",
        "2": "GiB and GB were mixed",
        "3": "a measurement is always right, so the larger one is the need",
        "4": "a margin of a few per cent covers it",
    },
    answer=lambda _: ("b", "1"),
    mistakes=(
        Mistake(
            "rule for another case",
            lambda _: (None, "4"),
            "The first peak is half as much again as the second: no usual margin covers that.",
        ),
        Mistake(
            "rule for another case",
            lambda _: ("a", None),
            "One setting, no tensor, made the difference; what does it act on?",
        ),
        Mistake("GiB for GB", lambda _: (None, "2")),
        Mistake(
            "rule for another case",
            lambda _: (None, "3"),
            "It is right about what it measures; ask what that is.",
        ),
    ),
    hints=(
        "What is the same in both runs, and what differs?",
        "The tensors are the same. The allocator kept memory that no tensor used.",
        "Compare the count with the peak that has hardly any gaps.",
    ),
    difficulty=2,
    minutes=5,
    source="MEM-23, meta-pytorch/torchtune#1185",
)

QUESTIONS: tuple[Question, ...] = (_batch, _recomputed, _interval, _allocation, _trust)
