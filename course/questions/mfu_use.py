"""Step 6, utilisation: peaks, tokens and FLOPs of a log, recomputation, conventions, and where the peak went."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from course import catalog, estimate, mfu
from course.questions.draws import picks
from course.questions.kinds import Function, Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]


@cache
def _flops(model: str, length: int) -> dict[str, float]:
    return estimate.flops_per_token(catalog.model(model), length)


def _step(given: Given, devices: float, tokens: float, peak: float) -> float:
    return float(mfu.step_mfu(
        flops_per_token=given["giga"] * 1e9, tokens_per_step=tokens, devices=devices, peak_flops_per_s=peak * 1e12,
        step_time=given["seconds"]))  # fmt: skip


def _tokens(given: Given) -> float:
    return float(given["devices"] * given["batch"] * given["length"] * given["rounds"])


_one_step = Number(
    id="mfu.1",
    title="One step of sixteen",
    prompt=(
        "{devices} H100 train as {devices} replicas, each {rounds} micro-batches of {batch} sequences of {length:,} "
        "tokens a step. A token costs {giga:g} GFLOP by full_attention. A step takes {seconds:g} s. The data sheet "
        'prints 1,979 TFLOP/s "with sparsity" for bf16. MFU?'
    ),
    given={"devices": 16, "rounds": 4, "batch": 1, "length": 8192, "giga": 57.9, "seconds": 4.2},
    draw=picks(devices=(16, 32), rounds=(4, 8), seconds=(8.8, 9.4, 10.2), giga=(57.9,)),
    answer=lambda g: _step(g, g["devices"], _tokens(g), 989.5),
    unit="1",
    mistakes=(
        Mistake("sparse peak", lambda g: _step(g, g["devices"], _tokens(g), 1979)),
        Mistake("one device's peak for many", lambda g: _step(g, 1, _tokens(g), 989.5)),
        Mistake("accumulation forgotten", lambda g: _step(g, g["devices"], _tokens(g) / g["rounds"], 989.5)),
    ),
    hints=(
        "How many tokens does the whole cluster train in one step, and how many FLOPs are they?",
        "Half of the printed peak is dense. All devices are held for the whole step.",
        "Tokens times FLOPs a token, over devices times dense peak times seconds.",
    ),
    difficulty=1,
    minutes=4,
    source="MFU-01, NVIDIA/Megatron-LM#1276 (sparse peak); MFU-17, karpathy/nanoGPT#619 (mixed scope)",
)  # fmt: skip

_four_forwards = Number(
    id="mfu.2",
    title="A factor of four",
    prompt=(
        "A program prints {logged:g} TFLOP/s a device on A100s (dense bf16 peak 312). Its count takes 4 forwards: "
        "forward, backward twice that, and a recomputed forward. MFU? Leave aside that the output head is not repeated."
    ),
    given={"logged": 172.0},
    draw=picks(logged=(150.0, 160.0, 172.0, 180.0, 190.0)),
    answer=lambda g: 3 / 4 * g["logged"] / 312,
    unit="1",
    mistakes=(
        Mistake("recomputation as useful work", lambda g: g["logged"] / 312),
        Mistake("backward forgotten", lambda g: 2 / 4 * g["logged"] / 312,
                "The model needs a forward and a backward: three forwards' worth, not two."),
        Mistake("sparse peak", lambda g: 3 / 4 * g["logged"] / 624),
    ),
    hints=(
        "Which of the four forwards would the model need if memory were endless?",
        "Three of the four.",
        "Three quarters of the printed rate, over the peak.",
    ),
    difficulty=1,
    minutes=3,
    source="MFU-31, bigcode-project/Megatron-LM#33",
)  # fmt: skip

_padding = Number(
    id="mfu.3",
    title="Padded to one length",
    prompt=(
        "A log prints {rate:,.0f} tokens/s and an MFU of {logged:.0%}. Sequences are padded to one length; "
        "{real:.1%} of the tokens are real. MFU, counting real tokens alone?"
    ),
    given={"rate": 48000.0, "logged": 0.44, "real": 0.62},
    draw=picks(logged=(0.36, 0.4, 0.44), real=(0.337, 0.62, 0.71)),
    answer=lambda g: g["logged"] * g["real"],
    unit="1",
    mistakes=(
        Mistake("padding counted", lambda g: g["logged"]),
        Mistake("share for ratio", lambda g: g["logged"] * (1 - g["real"]),
                "The share of padding was kept, and the real tokens were dropped."),
        Mistake("share for ratio", lambda g: g["logged"] / g["real"], "Dropping tokens cannot raise the useful work."),
    ),
    hints=(
        "What does a padding token teach the model?",
        "Time and peak stay; tokens that count get fewer.",
        "The printed MFU times the share of real tokens.",
    ),
    difficulty=1,
    minutes=2,
    source="MFU-35, mosaicml/examples#272",
)  # fmt: skip

_rate = Number(
    id="mfu.4",
    title="Tokens a second of one device",
    prompt=(
        "{devices} devices: {data} replicas of {per} devices each, which share their replica's sequences. A replica "
        "takes {rounds} micro-batches of {batch} sequences of {length:,} tokens a step; a step takes {seconds:g} s. "
        "Tokens a second of one device?"
    ),
    given={"devices": 64, "data": 16, "per": 4, "rounds": 8, "batch": 2, "length": 4096, "seconds": 3.1},
    draw=picks(rounds=(4, 8), seconds=(3.1, 5.3, 7.7), length=(4096, 8192)),
    answer=lambda g: g["data"] * g["rounds"] * g["batch"] * g["length"] / g["seconds"] / g["devices"],
    unit="token/s/device",
    mistakes=(
        Mistake("accumulation forgotten",
                lambda g: g["data"] * g["batch"] * g["length"] / g["seconds"] / g["devices"]),
        Mistake("total for per device", lambda g: g["data"] * g["rounds"] * g["batch"] * g["length"] / g["seconds"]),
        Mistake("replicas for shards", lambda g: g["rounds"] * g["batch"] * g["length"] / g["seconds"],
                "The devices of a replica share one set of sequences: they do not each train their own."),
    ),
    hints=(
        "How many sequences does the whole cluster train in one step?",
        "Replicas times micro-batches times their sequences. The devices of a replica train the same ones.",
        "Those times tokens, over seconds, over all devices.",
    ),
    difficulty=1,
    minutes=3,
    source="MFU-39, PrimeIntellect-ai/prime-rl#2424; MFU-41, axolotl-ai-cloud/axolotl#3362",
)  # fmt: skip

_fallback = Number(
    id="mfu.5",
    title="More than the peak",
    prompt=(
        "A program does not know an MI355X (dense bf16 peak 2,516.6 TFLOP/s), takes its default, an A100 (312), and "
        "prints an MFU of {logged:.0%}. Everything else is right. MFU?"
    ),
    given={"logged": 4.35},
    draw=picks(logged=(3.6, 4.35, 5.63, 5.1)),
    answer=lambda g: g["logged"] * 312 / 2516.6,
    unit="1",
    mistakes=(
        Mistake("sparse peak", lambda g: g["logged"] * 312 / 2516.6 / 2),
        Mistake("peak of another device", lambda g: g["logged"] * 312 / 989.4),
    ),
    hints=(
        "The work and the time are right. What was it divided by?",
        "From the printed number get back to the rate in TFLOP/s.",
        "The printed number times the wrong peak, over the right one.",
    ),
    difficulty=1,
    minutes=2,
    source="MFU-05, AMD-AGI/Primus#772: 563 % on an MI355X",
)  # fmt: skip


@cache
def _mixtral() -> tuple[float, float]:
    counted = estimate.count(catalog.model("mixtral-8x7b"))
    return counted.active, counted.total


def _mixture(given: Given, active: bool, peak: float = 989.4) -> float:
    parameters = _mixtral()[0 if active else 1]
    return float(mfu.step_mfu(
        flops_per_token=6 * parameters, tokens_per_step=given["rate"], devices=1, step_time=1,
        peak_flops_per_s=peak * 1e12))  # fmt: skip


_experts = Number(
    id="mfu.6",
    title="A mixture of experts",
    prompt=(
        "A mixture has 46.7 billion parameters; a token passes two of its eight experts and uses 12.88 billion. One "
        "H100 (dense peak 989.4 TFLOP/s) trains {rate:,} tokens a second of it. MFU by six_ps?"
    ),
    given={"rate": 4200},
    draw=picks(rate=(3300, 3800, 4200, 5000)),
    answer=lambda g: _mixture(g, active=True),
    unit="1",
    mistakes=(
        Mistake("all experts counted", lambda g: _mixture(g, active=False)),
        Mistake("sparse peak", lambda g: _mixture(g, active=True, peak=1978.8)),
        Mistake("backward forgotten", lambda g: _mixture(g, active=True) / 3),
    ),
    hints=(
        "Which parameters does one token multiply?",
        "Six FLOPs for each parameter it uses: forward two, backward four.",
        "Six times 12.88 billion, times tokens a second, over the peak.",
    ),
    difficulty=2,
    minutes=3,
    source="MFU-25, AI-Hypercomputer/maxtext#678: all experts counted, 3.6 times too much",
)  # fmt: skip


# ---------------------------------------------------------------- conventions
_ROWS = {
    "full_attention": ((688.0, 11883.0), (711.0, 12273.0), (697.0, 12036.0)),
    "causal_attention": ((744.0, 14451.0), (725.0, 14079.0)),
}
"""Llama 3 8B on H100, sequences of 8,192: printed TFLOP/s and tokens/s a device, by what reproduces them."""


def _printed(source: random.Random) -> dict[str, Any]:
    row = source.choice([row for rows in _ROWS.values() for row in rows])
    return {"tera": row[0], "rate": row[1]}


def _nearest(given: Given) -> tuple[str, str]:
    implied = given["tera"] * 1e12 / given["rate"]
    of = _flops("llama-3-8b", 8192)
    keys = {"six_ps": ("a", "1"), "causal_attention": ("b", "2"), "full_attention": ("c", "3")}
    return keys[min(keys, key=lambda name: abs(of[name] / implied - 1))]


_which = Judgement(
    id="mfu.7",
    title="What did they count",
    prompt=(
        "A table prints {tera:,.0f} TFLOP/s and {rate:,.0f} tokens/s for one H100 and Llama 3 8B in sequences of "
        "8,192. The model has 8.03 billion parameters, 0.53 of them in the input table; 32 layers of 32 heads of 128. "
        "By which convention were the FLOPs counted?"
    ),
    given={"tera": 688.0, "rate": 11883.0},
    draw=_printed,
    choices={"a": "six_ps", "b": "causal_attention", "c": "full_attention", "d": "it cannot be told from these"},
    reasons={
        "1": "a token costs 48 GFLOP",
        "2": "a token costs 51 GFLOP",
        "3": "a token costs 58 GFLOP",
        "4": "without the peak the utilisation is unknown",
    },
    answer=_nearest,
    mistakes=(
        Mistake("right for another reason", lambda _: (None, "4"),
                "The peak is not needed: both columns belong to the same second."),
        Mistake("rule for another case", lambda _: ("d", None), "Divide the one column by the other."),
    ),
    hints=(
        "Both figures are of the same second of the same device. What is their ratio?",
        "FLOP/s over tokens/s is what they counted for a token.",
        "Compare with 6P, 6N + 6 L a d T and 6N + 12 L a d T.",
    ),
    difficulty=2,
    minutes=5,
    source="two published tables of the same model on the same device",
)  # fmt: skip


def _long(given: Given, name: str) -> float:
    return float(_flops("llama-2-7b", given["length"])[name])


_convert = Number(
    id="mfu.8",
    title="The same run, half the square",
    prompt=(
        "Llama 2 7B (6.607 billion matmul parameters, 32 layers, a d = 4,096) trains in sequences of {length:,} "
        "tokens. A report claims an MFU of {claimed:.0%} by full_attention. How much is it by causal_attention?"
    ),
    given={"length": 65536, "claimed": 0.55},
    draw=picks(length=(32768, 65536, 129024), claimed=(0.5, 0.55, 0.6)),
    answer=lambda g: g["claimed"] * _long(g, "causal_attention") / _long(g, "full_attention"),
    unit="1",
    mistakes=(
        Mistake("causal half", lambda g: g["claimed"] / 2,
                "All of the FLOPs were halved; causal attention halves the square alone."),
        Mistake("convention mixed", lambda g: g["claimed"] * _long(g, "full_attention") / _long(g, "causal_attention"),
                "The conversion went the other way: fewer FLOPs counted make a smaller number."),
        Mistake("attention left out", lambda g: g["claimed"] * _long(g, "six_ps") / _long(g, "full_attention")),
    ),
    hints=(
        "Time, tokens and peak are the same in both. What differs?",
        "Only the FLOPs of a token: 6N + 6 L a d T against 6N + 12 L a d T.",
        "The claim times the one over the other.",
    ),
    difficulty=2,
    minutes=5,
    source="MFU-21, AI-Hypercomputer/maxtext#1972",
)  # fmt: skip


# ---------------------------------------------------------------- where the peak went
def _slow(given: Given, **changed: float) -> float:
    values = {"devices": given["devices"], "held_devices": given["held"], "busy_time": given["busy"],
              "executed_flops": given["hfu"] * given["devices"] * given["step"], "peak_flops_per_s": 1.0,
              "step_time": given["step"]}  # fmt: skip
    return float(mfu.slow_kernels_share(**(values | changed)))


_where = Number(
    id="mfu.9",
    title="Where the peak went",
    prompt=(
        "{held} devices are held, {devices} of them train. In a step of {step:g} s these compute for {busy:g} s and "
        "wait for the rest; all they execute, over the peak of the {devices}, is {hfu:.0%}. Which share of the peak "
        "of all {held} did slow kernels lose: computing, but below peak?"
    ),
    given={"held": 576, "devices": 512, "step": 10.0, "busy": 8.2, "hfu": 0.55},
    draw=picks(busy=(7.6, 8.2, 8.8), hfu=(0.48, 0.55, 0.6), held=(544, 576)),
    answer=_slow,
    unit="1",
    mistakes=(
        Mistake("per device for total", lambda g: _slow(g, held_devices=g["devices"]),
                "The devices that are held and not used count as well."),
        Mistake("share for ratio", lambda g: 1 - g["hfu"] * g["step"] / g["busy"],
                "That is the share of the computing time; asked is the share of all that was held."),
        Mistake("total for per device", lambda g: 1 - g["hfu"] * g["devices"] / g["held"],
                "The waiting, and the devices that are not used, belong to other parts."),
    ),
    hints=(
        "Draw the device-seconds of one step as a rectangle: held devices by seconds.",
        "Computing takes busy seconds of the working devices. What would the same FLOPs take at peak?",
        "(devices times (busy minus HFU times step)) over (held times step).",
    ),
    difficulty=2,
    minutes=5,
    source="the first source document: MFU includes communication, bubbles, small kernels and idle devices",
)  # fmt: skip


def _account(source: random.Random) -> dict[str, Any]:
    devices = source.randint(1, 512)
    busy, waiting, peak = source.uniform(0.5, 9), source.uniform(0.1, 5), source.uniform(1, 3)
    executed = source.uniform(0.2, 0.9) * devices * busy * peak
    return {"held": devices + source.randint(0, 64), "devices": devices, "busy": busy, "waiting": waiting,
            "executed": executed, "peak": peak}  # fmt: skip


def _lost(held: float, devices: float, busy: float, waiting: float, executed: float, peak: float) -> float:
    return float(mfu.slow_kernels_share(
        devices=devices, held_devices=held, busy_time=busy, executed_flops=executed, peak_flops_per_s=peak,
        step_time=busy + waiting))  # fmt: skip


_program = Function(
    id="mfu.10",
    title="Slow kernels, programmed",
    prompt=(
        "Write `slow(held, devices, busy, waiting, executed, peak)`: the share of the peak of all held devices that "
        "slow kernels lose. A step is `busy` + `waiting` seconds of the `devices` at work; `executed` are the FLOPs "
        "all of them execute in it, `peak` is that of one device."
    ),
    arguments=("held", "devices", "busy", "waiting", "executed", "peak"),
    case=_account,
    edges=(
        {"held": 10, "devices": 8, "busy": 3.0, "waiting": 1.0, "executed": 16.0, "peak": 1.0},
        {"held": 1, "devices": 1, "busy": 1.0, "waiting": 0.0, "executed": 1.0, "peak": 1.0},
    ),
    answer=_lost,
    unit="1",
    mistakes=(
        Mistake("per device for total", lambda _: lambda **g: _lost(**(g | {"held": g["devices"]})),
                "The base is every device held, at work or not."),
        Mistake("share for ratio", lambda _: lambda **g: _lost(**(g | {"waiting": 0.0})),
                "The base is the whole step; you divided by the time spent computing."),
    ),
    hints=(
        "The base of the share: held devices, times the seconds of a step, times peak.",
        "While they compute, the devices could do devices times busy times peak. They did `executed`.",
        "(devices busy peak - executed) over (held (busy + waiting) peak).",
    ),
    difficulty=3,
    minutes=8,
    source="the first source document",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (
    _one_step, _four_forwards, _padding, _rate, _fallback, _experts, _which, _convert, _where, _program,
)  # fmt: skip
