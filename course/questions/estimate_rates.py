"""Step 1, the roofline and the peak: intensity, ridge, attainable rate, share of peak."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

from course import catalog, estimate, mfu
from course.questions.draws import picks
from course.questions.kinds import Function, Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]


@cache
def _chip(name: str) -> Any:
    return catalog.accelerator(name)


def _ridge(given: Given) -> float:
    return float(_chip(given["chip"]).peak_flops_per_s / _chip(given["chip"]).memory_bytes_per_s)


# ---------------------------------------------------------------- the roof
_roof = Number(
    id="estimate.3",
    title="Under which roof",
    prompt=(
        "A device computes at most {peak:,.0f} GFLOP/s and reads its memory at {bandwidth:,.0f} GB/s. A kernel does "
        "{intensity:g} FLOP for each byte it moves. Which rate can it reach at best?"
    ),
    given={"peak": 1000.0, "bandwidth": 200.0, "intensity": 8.0},
    draw=picks(peak=(900.0, 1000.0, 1100.0), bandwidth=(200.0, 240.0, 300.0), intensity=(8.0, 10.0, 16.0)),
    answer=lambda g: (
        estimate.attainable(
            peak_flops_per_s=g["peak"] * 1e9, memory_bytes_per_s=g["bandwidth"] * 1e9, intensity=g["intensity"]
        )
        / 1e9
    ),
    unit="GFLOP/s",
    mistakes=(
        Mistake("above the roof", lambda g: g["intensity"] * g["bandwidth"]),
        Mistake("sum of the two roofs", lambda g: g["intensity"] * g["bandwidth"] + g["peak"]),
        Mistake("roofline upside down", lambda g: g["bandwidth"] / g["intensity"]),
    ),
    hints=(
        "Two things limit the kernel at the same time. Which are they?",
        "Memory delivers some bytes a second. How many FLOPs do these bytes allow?",
        "Compare what memory allows with what the arithmetic units allow. The slower of the two decides.",
    ),
    difficulty=1,
    minutes=3,
    source="ROF-03: a rate above the peak was written down as attainable; numbers of the second source document",
)

_intensity = Number(
    id="estimate.4",
    title="Intensity of y = a x + y",
    prompt=(
        "The kernel y = a x + y runs over long arrays x and y of {bytes}-byte numbers; a is one number in a register. "
        "What is its arithmetic intensity, if nothing stays in a cache?"
    ),
    given={"bytes": 4},
    draw=picks(bytes=(2, 4, 8)),
    answer=lambda g: 2 / (3 * g["bytes"]),
    unit="FLOP/byte",
    mistakes=(
        Mistake("one operand counted", lambda g: 2 / g["bytes"]),
        Mistake("multiply-add counted once", lambda g: 1 / (3 * g["bytes"])),
        Mistake("roofline upside down", lambda g: 3 * g["bytes"] / 2),
    ),
    hints=(
        "Take one element. What is computed, and what goes to and from memory?",
        "A multiplication and an addition are two FLOPs. Which arrays are read, which is written?",
        "Divide the FLOPs of one element by the bytes of all the transfers it causes, reads and writes.",
    ),
    difficulty=1,
    minutes=4,
    source="ROF-05, a thread in which one of three transfers was counted",
)


def _printed(name: str) -> dict[str, Any]:
    """What a data sheet prints: the sparse peak in TFLOP/s, the bandwidth in TB/s."""
    chip = _chip(name)
    sparse = 2 * chip.peak_flops_per_s / 1e12  # 2:4 sparsity skips every second product
    return {"chip": name, "chip_name": chip.name, "sparse": sparse, "bandwidth": chip.memory_bytes_per_s / 1e12}


_ridge_point = Number(
    id="estimate.5",
    title="Where the roof bends",
    prompt=(
        "At which arithmetic intensity does a bf16 kernel on one {chip_name} stop being bound by memory? The "
        "vendor prints "
        "{sparse:,.0f} TFLOP/s for bf16 with 2:4 sparsity, and {bandwidth:.4g} TB/s of memory bandwidth."
    ),
    given=_printed("h100-sxm"),
    draw=lambda source: _printed(source.choice(("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm"))),
    answer=_ridge,
    unit="FLOP/byte",
    mistakes=(
        Mistake("sparse peak", lambda g: 2 * _ridge(g)),
        Mistake("roofline upside down", lambda g: 1 / _ridge(g)),
    ),
    hints=(
        "At the bend, memory and arithmetic take the same time.",
        "Training multiplies dense matrices. Which peak holds for those?",
        "Divide the dense peak, in FLOP/s, by the bandwidth, in byte/s.",
    ),
    difficulty=1,
    minutes=3,
    source="MFU-01 and ROF-01: the printed peak is for sparse matrices; thresholds were set by it",
)


def _roof_case(source: random.Random) -> dict[str, Any]:
    intensity: Any = 10 ** source.uniform(-1, 4)
    if source.random() < 0.5:
        intensity = np.array([10 ** source.uniform(-1, 4) for _ in range(4)])
    return {"intensity": intensity, "peak": 10 ** source.uniform(13, 15), "bandwidth": 10 ** source.uniform(11.5, 13)}


_roof_function = Function(
    id="estimate.6",
    title="The roofline as a function",
    prompt=(
        "Write `roofline(intensity, peak, bandwidth)`: the attainable rate in FLOP/s from the intensity in FLOP/byte, "
        "the peak in FLOP/s and the bandwidth in byte/s. The intensity may be one number or a NumPy array."
    ),
    arguments=("intensity", "peak", "bandwidth"),
    case=_roof_case,
    edges=(
        {"intensity": 0.0, "peak": 1e15, "bandwidth": 3e12},
        {"intensity": np.array([0.1, 1e5]), "peak": 1e15, "bandwidth": 3e12},
    ),
    answer=lambda intensity, peak, bandwidth: estimate.attainable(
        intensity=intensity, peak_flops_per_s=peak, memory_bytes_per_s=bandwidth
    ),
    unit="FLOP/s",
    mistakes=(
        Mistake("above the roof", lambda _: lambda intensity, peak, bandwidth: intensity * bandwidth + 0 * peak),
        Mistake(
            "compute roof alone",
            lambda _: lambda intensity, peak, bandwidth: peak + 0 * bandwidth * np.asarray(intensity),
        ),
        Mistake("sum of the two roofs", lambda _: lambda intensity, peak, bandwidth: peak + intensity * bandwidth),
    ),
    hints=(
        "It is one line. What are the two limits?",
        "Python's min takes single numbers; NumPy has a function that compares arrays element by element.",
        "np.minimum of the peak and of what memory allows at each intensity.",
    ),
    difficulty=2,
    minutes=6,
    source="ROF-03; the formula of the second source document",
)

_TOKENS = (8, 16, 32, 64, 1024, 2048, 4096, 8192)


def _bound(given: Given) -> tuple[str, str]:
    reached = estimate.matmul_intensity(
        rows=given["tokens"], inner=given["hidden"], columns=given["ffn"], activation_bytes=2
    )
    return ("a", "1") if reached < _ridge(given) else ("b", "2")


_direction = Judgement(
    id="estimate.7",
    title="Memory or arithmetic",
    prompt=(
        "{tokens} tokens are multiplied by a weight matrix of {hidden} x {ffn}, all in bf16, on an H100 SXM "
        "(989 TFLOP/s dense, 3.35 TB/s). What bounds this matmul, and why?"
    ),
    given={"tokens": 64, "hidden": 8192, "ffn": 28672, "chip": "h100-sxm"},
    draw=picks(tokens=_TOKENS, hidden=(4096, 8192), ffn=(14336, 28672)),
    choices={"a": "memory bandwidth", "b": "arithmetic"},
    reasons={
        "1": "its FLOPs for each byte are fewer than the device's FLOP/s for each byte/s",
        "2": "its FLOPs for each byte are more than the device's FLOP/s for each byte/s",
        "3": "it does more FLOPs than it moves bytes",
        "4": "989 TFLOP/s is the larger of the device's two figures",
    },
    answer=_bound,
    mistakes=(
        Mistake(
            "rule for another case",
            lambda _: (None, "3"),
            "FLOPs and bytes cannot be compared as such; the device has a ratio of its own to compare theirs with.",
        ),
        Mistake(
            "rule for another case",
            lambda _: (None, "4"),
            "The two figures of the device have different units, so neither is the larger one.",
        ),
        Mistake(
            "roofline upside down",
            lambda _: ("b", "1"),
            "That reason speaks for the other choice: few FLOPs for each byte leave the arithmetic waiting.",
        ),
        Mistake(
            "roofline upside down",
            lambda _: ("a", "2"),
            "That reason speaks for the other choice: many FLOPs for each byte keep the arithmetic busy.",
        ),
    ),
    hints=(
        "Two ratios decide: one of the matmul, one of the device.",
        "The device's ratio is its peak over its bandwidth, a few hundred FLOP for each byte.",
        (
            "While the tokens are few, reading the weights costs nearly all bytes; then the matmul's ratio, in bf16, "
            "is about its number of tokens."
        ),
    ),
    difficulty=2,
    minutes=5,
    source="ROF-01, jax-ml/scaling-book#17: a threshold was written with the direction reversed",
)

_share = Number(
    id="estimate.8",
    title="Share of peak",
    prompt=(
        "A published table says that a bf16 run does {rate:g} TFLOP/s of model work on each H100 SXM. The data "
        "sheet prints "
        '1,979 TFLOP/s for bf16, with the footnote "with sparsity". Which share of the peak is that?'
    ),
    given={"rate": 400.0, "chip": "h100-sxm"},
    draw=picks(rate=(330.0, 360.0, 380.0, 420.0, 430.0, 450.0, 520.0)),
    answer=lambda g: mfu.mfu(
        model_flops=g["rate"] * 1e12, devices=1, peak_flops_per_s=_chip(g["chip"]).peak_flops_per_s, time=1
    ),
    unit="1",
    mistakes=(
        Mistake("sparse peak", lambda g: g["rate"] * 1e12 / _chip(g["chip"]).peak_flops_per_s / 2),
        Mistake(
            "peak of another device",
            lambda g: g["rate"] * 1e12 / _chip("h100-pcie").peak_flops_per_s,
            "That is the share of another variant's peak: the PCIe card is not the SXM module.",
        ),
    ),
    hints=(
        "Which peak can a dense matmul reach?",
        "2:4 sparsity skips every second product. Training does not run that way.",
        "Halve the printed figure, then divide.",
    ),
    difficulty=1,
    minutes=3,
    source="MFU-01, NVIDIA/Megatron-LM#1276; MFU-09: the peak of the wrong card",
)

QUESTIONS: tuple[Question, ...] = (_roof, _intensity, _ridge_point, _roof_function, _direction, _share)
