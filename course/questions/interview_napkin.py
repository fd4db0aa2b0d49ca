"""Napkin estimates: each takes two minutes and one line. As exercises they are graded closely, as drills by factor."""

from __future__ import annotations

import math

from course import batch, estimate, mfu, shard
from course.questions.draws import picks
from course.questions.kinds import Given, Mistake, Number, Question

__all__ = ["QUESTIONS"]


def _flops(given: Given) -> float:
    return float(estimate.six_ps_run(parameters=given["billions"] * 1e9, tokens=given["trillions"] * 1e12))


_work = Number(
    id="interview.1",
    title="FLOPs of a run",
    prompt="{billions:g} billion parameters, dense, {trillions:g} trillion tokens: how many FLOPs, without attention?",
    given={"billions": 70.0, "trillions": 2.0},
    draw=picks(billions=(8.0, 13.0, 32.0, 70.0, 340.0, 405.0), trillions=(0.3, 1.0, 2.0, 5.0, 15.0)),
    answer=_flops,
    unit="FLOP",
    relative=0.03,
    mistakes=(
        Mistake("backward forgotten", lambda g: _flops(g) / 3),
        Mistake("recomputation as useful work", lambda g: _flops(g) * 4 / 3),
        Mistake("multiply-add counted once", lambda g: _flops(g) / 2),
    ),
    hints=(
        "What does one parameter cost for one token, forward and backward?",
        "2 FLOPs forward; backward makes two products of that size.",
        "Six, times parameters, times tokens: add the powers of ten first.",
    ),
    difficulty=1,
    minutes=2,
    source="MFU-25, AI-Hypercomputer/maxtext#678: which FLOPs an estimate counts",
)


def _state(given: Given, weights: int = 2, gradients: int = 4, optimizer: int = 12) -> float:
    parts = {"weight_bytes": weights, "gradient_bytes": gradients, "optimizer_bytes": optimizer}
    return float(estimate.state_bytes(parameters=given["billions"] * 1e9, **parts)) / 1e9


_held = Number(
    id="interview.2",
    title="State of a model",
    prompt=(
        "bf16 weights, gradients accumulated in fp32, Adam with fp32 master weights and moments: GB of model state of "
        "{billions:g} billion parameters?"
    ),
    given={"billions": 70.0},
    draw=picks(billions=(8.0, 13.0, 32.0, 70.0, 340.0, 405.0)),
    answer=_state,
    unit="GB",
    relative=0.03,
    mistakes=(
        Mistake("weights alone", lambda g: _state(g, 2, 0, 0)),
        Mistake("optimizer forgotten", lambda g: _state(g, 2, 4, 0)),
        Mistake("another state recipe", lambda g: _state(g, 2, 2, 12), "Those gradients are 2 bytes wide; read again."),
    ),
    hints=("List the parts, with the width of each.", "Two bytes, four, and three fp32 numbers.",
           "Eighteen bytes a parameter."),
    difficulty=1,
    minutes=2,
    source="MEM-01, NVIDIA/Megatron-LM#654: 18 bytes a parameter",
)  # fmt: skip


def _least(given: Given, each: float = 18.0) -> float:
    return float(math.ceil(given["billions"] * each / given["gb"]))


_devices = Number(
    id="interview.3",
    title="Devices for the state",
    prompt=(
        "At 18 bytes a parameter, how many devices of {gb:g} GB hold the state of {billions:g} billion parameters and "
        "nothing else?"
    ),
    given={"billions": 70.0, "gb": 80.0},
    draw=picks(billions=(70.0, 175.0, 340.0, 405.0), gb=(40.0, 80.0)),
    answer=_least,
    unit="1",
    relative=0.001,
    mistakes=(
        Mistake("rounded down", lambda g: _least(g) - 1),
        Mistake("optimizer forgotten", lambda g: _least(g, 6.0)),
        Mistake("weights alone", lambda g: _least(g, 2.0)),
    ),
    hints=("How large is the state?", "Over the memory of one.", "A part of a device is no device."),
    difficulty=1,
    minutes=2,
    source="MEM-05, AI-Hypercomputer/maxtext#606: the state against the memory there is",
)


def _days(given: Given, goodput: float | None = None, peak: float = 1.0, devices: int | None = None) -> float:
    time = mfu.run_time(
        model_flops=given["flops"], devices=devices or given["devices"], mfu=given["mfu"],
        peak_flops_per_s=peak * given["peak"] * 1e12,
    )  # fmt: skip
    return float(mfu.wall_time(time=time, goodput=goodput or given["goodput"])) / 86400


_wall = Number(
    id="interview.4",
    title="Days of a run",
    prompt=(
        "{flops:.2g} FLOP on {devices:,} devices of {peak:g} dense TFLOP/s at an MFU of {mfu:.0%}; {goodput:.0%} of "
        "the wall time makes progress. How many days?"
    ),
    given={"flops": 8.4e23, "devices": 512, "peak": 989.0, "mfu": 0.4, "goodput": 0.9},
    draw=picks(flops=(4e23, 8.4e23, 6e24), devices=(512, 1024, 4096), peak=(312.0, 989.0), mfu=(0.35, 0.4, 0.45),
               goodput=(0.8, 0.85, 0.9)),
    answer=_days,
    unit="days",
    relative=0.03,
    mistakes=(
        Mistake("goodput forgotten", lambda g: _days(g, goodput=1.0)),
        Mistake("goodput upside down", lambda g: _days(g) * g["goodput"] ** 2),
        Mistake("sparse peak", lambda g: _days(g, peak=2.0)),
        Mistake("one device's peak for many", lambda g: _days(g, devices=1)),
    ),
    hints=(
        "Which rate do all devices reach together?",
        "Devices times peak times MFU; then a day has 86,400 seconds.",
        "Lost time makes it longer: divide by it.",
    ),
    difficulty=1,
    minutes=2,
    source="MFU-01, NVIDIA/Megatron-LM#1276: days by a peak that counts zeros",
)  # fmt: skip


def _rate(given: Given, each: float = 6.0) -> float:
    return float(given["mfu"] * given["peak"] * 1e12 / (each * given["billions"] * 1e9))


_tokens = Number(
    id="interview.5",
    title="Tokens a second",
    prompt=(
        "A dense {billions:g}B model at an MFU of {mfu:.0%} by 6PS on devices of {peak:g} dense TFLOP/s. Tokens a "
        "second of one device? It is the second route to the days."
    ),
    given={"billions": 70.0, "mfu": 0.4, "peak": 989.0},
    draw=picks(billions=(8.0, 13.0, 32.0, 70.0, 405.0), mfu=(0.35, 0.4, 0.45), peak=(312.0, 989.0)),
    answer=_rate,
    unit="tokens/s",
    relative=0.03,
    mistakes=(
        Mistake("backward forgotten", lambda g: _rate(g, 2.0)),
        Mistake("recomputation as useful work", lambda g: _rate(g, 8.0)),
        Mistake("sparse peak", lambda g: 2 * _rate(g)),
    ),
    hints=("What does a token cost?", "Six FLOPs a parameter.", "Reached FLOP/s over FLOPs a token."),
    difficulty=1,
    minutes=2,
    source="MFU-03, foundation-model-stack/fms-fsdp#89: tokens a second and MFU",
)

PUBLISHED = {"hours": 30.84e6, "billions": 405.0, "trillions": 15.6}
"""Llama 3.1 405B: H100-hours of pre-training as its model card gives them, parameters, tokens."""


def _scaled(given: Given) -> float:
    work = given["billions"] * given["trillions"] / (PUBLISHED["billions"] * PUBLISHED["trillions"])
    return float(PUBLISHED["hours"] * work / 1e6)


_second = Number(
    id="interview.6",
    title="Hours by another run",
    prompt=(
        "Llama 3.1 405B took 30.84 million H100-hours for 15.6 trillion tokens. By that run alone, how many million "
        "would a dense {billions:g}B model take for {trillions:g} trillion?"
    ),
    given={"billions": 70.0, "trillions": 5.0},
    draw=picks(billions=(8.0, 32.0, 70.0), trillions=(2.0, 5.0, 10.0)),
    answer=_scaled,
    unit="1",
    relative=0.03,
    mistakes=(
        Mistake("one token for all", lambda g: PUBLISHED["hours"] / 1e6 * g["billions"] / PUBLISHED["billions"],
                "The tokens differ as well as the parameters."),
        Mistake("tokens for arithmetic", lambda g: PUBLISHED["hours"] / 1e6 * g["trillions"] / PUBLISHED["trillions"],
                "A token of a smaller model costs less: the parameters count as well."),
    ),
    hints=("What do hours follow, at the same MFU?", "FLOPs: parameters times tokens.",
           "Two ratios, multiplied by the published hours."),
    difficulty=2,
    minutes=2,
    source="model card of Llama 3.1: 30.84 million H100-hours for the 405B model",
)  # fmt: skip


def _reduce(given: Given, rate: float = 1.0, passes: float = 1.0) -> float:
    payload = 4 * given["billions"] * 1e9 / given["cut"]
    sent = shard.all_reduce_bytes(payload_bytes=payload, ranks=given["replicas"])
    return float(sent * passes / (rate * given["gbit"] / 8 * 1e9))


_gradients = Number(
    id="interview.7",
    title="Seconds of gradients",
    prompt=(
        "Tensor x pipeline = {cut} ranks hold {billions:g} billion parameters; {replicas} replicas all-reduce fp32 "
        "gradients over one {gbit:g} Gb/s card a device. Seconds, if nothing hides and the link reaches all it can?"
    ),
    given={"billions": 70.0, "cut": 8, "replicas": 64, "gbit": 400.0},
    draw=picks(billions=(32.0, 70.0), cut=(4, 8, 16), replicas=(16, 64), gbit=(200.0, 400.0)),
    answer=_reduce,
    unit="s",
    relative=0.03,
    mistakes=(
        Mistake("bits for bytes", lambda g: _reduce(g, rate=8.0)),
        Mistake("half an all-reduce", lambda g: _reduce(g, passes=0.5)),
        Mistake("everything sharded", lambda g: _reduce(g) / g["replicas"],
                "Replicas each hold the gradients of the whole share: they are summed, not divided."),
    ),
    hints=("How many bytes of gradients has one rank?", "A ring sends nearly twice the buffer.",
           "Bits over eight are bytes."),
    difficulty=2,
    minutes=2,
    source="COM-15, EleutherAI/cookbook#18: what an all-reduce moves",
)  # fmt: skip


def _bubble(given: Given) -> float:
    counts = {"pipeline": given["stages"], "interleave": given["chunks"], "micro_batches": given["passes"]}
    return 100 * float(batch.bubble_share(**counts))


_idle = Number(
    id="interview.8",
    title="Idle share of a pipeline",
    prompt="{stages} even stages of {chunks} chunks each, {passes} micro-batches. Which share of the time is idle?",
    given={"stages": 8, "chunks": 2, "passes": 16},
    draw=picks(stages=(8, 16), chunks=(2, 4), passes=(16, 32)),
    answer=_bubble,
    unit="%",
    relative=0.01,
    mistakes=(
        Mistake("other bubble", lambda g: 100 * (g["stages"] - 1) / (g["chunks"] * g["passes"])),
        Mistake("chunks forgotten", lambda g: 100 * (g["stages"] - 1) / (g["passes"] + g["stages"] - 1)),
        Mistake("work for bubble", lambda g: 100 - _bubble(g)),
    ),
    hints=("How many pieces does a stage work through?", "Chunks times micro-batches, and one gap fewer than stages.",
           "Gaps over gaps and work."),
    difficulty=1,
    minutes=2,
    source="PIP-03, deepseek-ai/DualPipe#8: the share of 8 stages",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_work, _held, _devices, _wall, _tokens, _second, _gradients, _idle)
