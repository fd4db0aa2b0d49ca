"""Step 1, a whole run: the GPU-hours that were printed, and what separates them from 6PS at the published rate."""

from __future__ import annotations

from functools import cache

from course import catalog, estimate, mfu
from course.questions.draws import picks
from course.questions.kinds import Given, Mistake, Number, Question

__all__ = ["QUESTIONS"]

MODEL = "llama-3.1-405b"
PRINTED_HOURS = 30.84e6
"""H100-hours of Llama 3.1 405B as its model card prints them (llama-models, models/llama3_1/MODEL_CARD.md)."""


@cache
def _flops(convention: str, length: int = 8192) -> float:
    return float(estimate.flops_per_token(catalog.model(MODEL), length)[convention])


def _hours(given: Given, convention: str) -> float:
    """Accelerator-hours of the tokens at the rate, no time lost; devices times time, so the rate of one decides."""
    time = _flops(convention) * given["trillions"] * 1e12 / (given["rate"] * 1e12)
    return float(mfu.accelerator_hours(devices=1, time=time, goodput=1.0))


_by_rule = Number(
    id="estimate.19",
    title="GPU-hours by the short rule",
    prompt=(
        "Llama 3.1 405B was trained on {trillions:g} trillion tokens, at {rate:g} TFLOP/s of model work on each "
        "GPU. How many "
        "GPU-hours is that by 6PS, with no time lost?"
    ),
    given={"trillions": 15.6, "rate": 400.0},
    draw=picks(trillions=(10.0, 15.6, 20.0), rate=(330.0, 380.0, 400.0, 430.0, 500.0)),
    answer=lambda g: _hours(g, "six_ps"),
    unit="GPU-hours",
    mistakes=(
        Mistake("backward forgotten", lambda g: _hours(g, "six_ps") / 3),
        Mistake(
            "per device for total",
            lambda g: _hours(g, "six_ps") / 16384,
            "The hours of one GPU among 16,384 were given; the GPU-hours of all are asked for.",
        ),
        Mistake(
            "sparse peak",
            lambda g: _hours(g, "six_ps") * g["rate"] / 1979,
            "The rate of the data sheet was used; the run's own rate is given.",
        ),
    ),
    hints=(
        "GPU-hours do not depend on how many GPUs share the work at a given rate each.",
        "FLOPs of the run over FLOP/s of one GPU: seconds of one GPU doing everything.",
        "6PS with P = 405.85e9; divide by the rate and by 3600.",
    ),
    difficulty=2,
    minutes=6,
    source="Llama 3.1 405B: tokens and rate as published (Llama 3 paper, 2024)",
)

_goodput = Number(
    id="estimate.20",
    title="What the printed hours hide",
    prompt=(
        "The same run, 15.6 trillion tokens in sequences of {length:,}, was printed with 30.84 million GPU-hours. "
        "Take the "
        "published {rate:g} TFLOP/s to count matmuls with the full attention square. Which share of the printed "
        "hours made "
        "progress at that rate?"
    ),
    given={"trillions": 15.6, "rate": 400.0, "length": 8192},
    draw=picks(rate=(380.0, 400.0, 410.0, 430.0)),
    answer=lambda g: _hours(g, "full_attention") / PRINTED_HOURS,
    unit="1",
    mistakes=(
        Mistake(
            "convention mixed",
            lambda g: _hours(g, "six_ps") / PRINTED_HOURS,
            "The FLOPs are those of 6PS, the rate counts attention: two conventions in one fraction.",
        ),
        Mistake("causal half", lambda g: _hours(g, "causal_attention") / PRINTED_HOURS),
        Mistake(
            "goodput upside down",
            lambda g: PRINTED_HOURS / _hours(g, "full_attention"),
            "The fraction is upside down: a share of the held hours cannot exceed 1.",
        ),
    ),
    hints=(
        "Count the FLOPs by the convention of the rate. By how much do they exceed 6PS?",
        "Attention over 8,192 keys adds a few per cent; leaving the input table out takes off less.",
        "Hours at the published rate by `full_attention`, divided by the printed hours.",
    ),
    difficulty=3,
    minutes=10,
    source=(
        "Llama 3.1 model card (GPU-hours) and Llama 3 paper (rate, interruptions): the difference is a convention and "
        "a goodput"
    ),
)

QUESTIONS: tuple[Question, ...] = (_by_rule, _goodput)
