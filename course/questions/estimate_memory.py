"""Step 1, memory: model state by recipe, logits, activations."""

from __future__ import annotations

from functools import cache
from typing import Any

from course import catalog, estimate
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

GIB = 2**30


def _state(given: Given, recipe: str) -> float:
    parts = catalog.state(recipe)
    return float(
        estimate.state_bytes(
            parameters=given["billions"] * 1e9,
            weight_bytes=parts.weights,
            gradient_bytes=parts.gradients + parts.extra_gradients,
            optimizer_bytes=parts.master + parts.moments,
        )
        / 1e9
    )


def _part(given: Given, *names: str) -> float:
    parts = catalog.state("bf16-18")
    return float(given["billions"]) * sum(float(getattr(parts, name)) for name in names)


_model_state = Number(
    id="estimate.9",
    title="Model state",
    prompt=(
        "A model of {billions:g} billion parameters is trained with bf16 weights, fp32 gradients, an fp32 copy of "
        "the weights "
        "and Adam's two moments in fp32. How much memory does the model state take in all, before anything is sharded?"
    ),
    given={"billions": 8.0},
    draw=picks(billions=(1.0, 1.3, 3.0, 7.0, 13.0, 34.0, 70.0, 405.0)),
    answer=lambda g: _state(g, "bf16-18"),
    unit="GB",
    mistakes=(
        Mistake("weights alone", lambda g: _part(g, "weights")),
        Mistake("optimizer forgotten", lambda g: _part(g, "weights", "gradients")),
        Mistake(
            "another state recipe",
            lambda g: _state(g, "bf16-16"),
            "That counts gradients in 16 bits; here they are in 32.",
        ),
        Mistake(
            "another state recipe",
            lambda g: _state(g, "bf16-20"),
            "That keeps the gradients twice, in 16 and in 32 bits; here they are kept once.",
        ),
        Mistake(
            "optimizer forgotten",
            lambda g: _part(g, "weights", "gradients", "moments"),
            "The fp32 copy of the weights is missing.",
        ),
    ),
    hints=(
        (
            "Go through the parts one by one: weights, gradients, copy, moments. How many bytes has each for one "
            "parameter?"
        ),
        "bf16 is two bytes, fp32 four. Adam keeps two numbers for each parameter.",
        "2 + 4 + 4 + 4 + 4 bytes a parameter.",
    ),
    difficulty=1,
    minutes=3,
    source="MEM-01, NVIDIA/Megatron-LM#654: 16 expected, 18 found",
)


def _two(billions: float) -> dict[str, float]:
    given = {"billions": billions}
    return {**given, "sixteen": _state(given, "bf16-16"), "eighteen": _state(given, "bf16-18")}


_recipes = Judgement(
    id="estimate.10",
    title="Sixteen or eighteen",
    prompt=(
        "One paper needs {sixteen:g} GB of model state for {billions:g} billion parameters, a program needs "
        "{eighteen:g} GB. "
        "Both train in bf16 with Adam and an fp32 copy of the weights. Who is right, and what makes the difference?"
    ),
    given=_two(7.0),
    draw=lambda source: _two(source.choice((3.0, 8.0, 13.0, 70.0))),
    choices={"a": "the paper", "b": "the program", "c": "both"},
    reasons={
        "1": "the program counts activations as well",
        "2": "gradients are kept in 16 bits by one and in 32 bits by the other",
        "3": "one keeps Adam's moments in 16 bits",
        "4": "GB and GiB are mixed",
    },
    answer=lambda _: ("c", "2"),
    mistakes=(
        Mistake(
            "GiB for GB",
            lambda _: (None, "4"),
            "The two figures differ by an eighth; GiB and GB differ by a fourteenth.",
        ),
        Mistake(
            "another state recipe",
            lambda _: ("b", "2"),
            "The reason holds, but it makes nobody wrong: each counts the recipe it runs.",
        ),
        Mistake(
            "another state recipe",
            lambda _: ("a", "2"),
            "The reason holds, but it makes nobody wrong: each counts the recipe it runs.",
        ),
        Mistake(
            "rule for another case",
            lambda _: (None, "1"),
            "Activations grow with the batch; this difference grows with the parameters alone.",
        ),
        Mistake(
            "another state recipe",
            lambda _: (None, "3"),
            "Moments in 16 bits would take off four bytes a parameter, not two.",
        ),
    ),
    hints=(
        "How many bytes a parameter is each figure?",
        "They are two bytes apart. Which part of the state can be two bytes or four?",
        "Some programs accumulate gradients in fp32, others keep them in bf16.",
    ),
    difficulty=2,
    minutes=5,
    source="MEM-01 and the threads on 10, 12, 16, 18 and 20 bytes a parameter",
)


def _logits(given: Given, loss: str | float) -> float:
    each = estimate.LOGIT_BYTES[loss] if isinstance(loss, str) else loss
    return float(
        estimate.logits_bytes(
            logit_bytes=each,
            micro_batch=given["sequences"],
            sequence_length=given["length"],
            vocabulary=given["vocabulary"],
            tensor=1,
        )
        / GIB
    )


_loss = Number(
    id="estimate.12",
    title="Logits",
    prompt=(
        "{sequences} sequence(s) of {length:,} tokens reach the head of a model with a vocabulary of "
        "{vocabulary:,}. The loss "
        "keeps bf16 logits, an fp32 copy of them, the fp32 softmax and fp32 gradients. How much memory is that at "
        "the peak?"
    ),
    given={"sequences": 1, "length": 8192, "vocabulary": 128256},
    draw=picks(sequences=(1, 2, 4), length=(4096, 8192, 16384), vocabulary=(32000, 128256, 151936)),
    answer=lambda g: _logits(g, "unfused"),
    unit="GiB",
    mistakes=(
        Mistake("one copy of the logits", lambda g: _logits(g, 2.0)),
        Mistake(
            "one copy of the logits",
            lambda g: _logits(g, 4.0),
            "Only one fp32 copy was counted; four arrays are there at the peak.",
        ),
        Mistake("fused for unfused", lambda g: _logits(g, "fused")),
        Mistake(
            "one copy of the logits",
            lambda g: _logits(g, 12.0),
            "The bf16 logits themselves are missing; they are still there beside the fp32 arrays.",
        ),
    ),
    hints=(
        "How many numbers is one copy of the logits: tokens times what?",
        "Four arrays of that size lie in memory at the same time. How wide is a number in each?",
        "2 + 4 + 4 + 4 bytes for each token and each entry of the vocabulary; then divide by 2^30.",
    ),
    difficulty=2,
    minutes=5,
    source="MEM-17 and MEM-19: a failed allocation of 58 GiB was one copy of the logits",
)


@cache
def _widths(name: str) -> dict[str, Any]:
    return estimate.shape(catalog.model(name))


def _activations(given: Given, unfused: float = 0.0, layers: int | None = None) -> float:
    widths = _widths(given["model"])
    each = estimate.token_layer_bytes(
        **estimate.pick(
            estimate.token_layer_bytes,
            widths,
            activation_bytes=2,
            sequence_length=given["length"],
            tensor=1,
            sequence_sharded=0,
            dropout=0,
            unfused_attention=unfused,
            core_recompute=0,
        )
    )
    return float(each * given["length"] * given["sequences"] * (widths["layers"] if layers is None else layers) / GIB)


_saved = Number(
    id="estimate.13",
    title="Activations by hand",
    prompt=(
        '{model_name} (`course.catalog.model("{model}")`) runs {sequences} sequence(s) of {length:,} tokens with flash '
        "attention, in bf16, nothing recomputed, nothing sharded, no dropout. Each norm and each matmul keeps its "
        "input, "
        "attention keeps queries, keys, values and its result, the gated MLP keeps gate, up and their product. "
        "How much do "
        "all layers keep for the backward pass?"
    ),
    given={"model": "llama-3.1-8b", "model_name": "Llama 3.1 8B", "length": 8192, "sequences": 1},
    draw=picks(length=(4096, 8192, 16384), sequences=(1, 2, 3)),
    answer=_activations,
    unit="GiB",
    mistakes=(
        Mistake("one layer for all", lambda g: _activations(g, layers=1)),
        Mistake("scores kept", lambda g: _activations(g, unfused=1.0)),
        Mistake(
            "grouped heads ignored",
            lambda g: (
                _activations(g)
                + 2
                * 2
                * (_widths(g["model"])["heads"] - _widths(g["model"])["kv_heads"])
                * _widths(g["model"])["head_size"]
                * _widths(g["model"])["layers"]
                * g["length"]
                * g["sequences"]
                / GIB
            ),
        ),
        Mistake(
            "one token for all",
            lambda g: _activations(g) / g["sequences"] / g["length"],
        ),
    ),
    hints=(
        "Count the numbers kept for one token in one layer; then multiply.",
        (
            "Around attention and MLP: four vectors of width h. Inside: queries and result of a d, keys and values of "
            "a_kv d, three of f."
        ),
        "Add them up, two bytes each, times layers, times tokens; divide by 2^30.",
    ),
    difficulty=2,
    minutes=10,
    source=(
        "MEM-11 and MEM-13: saved tensors counted per module and per layer, and scores that flash attention never keeps"
    ),
)

QUESTIONS: tuple[Question, ...] = (_model_state, _recipes, _loss, _saved)
