"""The lab, measuring: a step of several ranks, a link from two messages, losses of unequal parts, shared cores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from course import place
from course.questions.draws import picks
from course.questions.kinds import Expression, Function, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

KILO, MEGA = 2**10, 2**20


def _message(g: Any, latency: float, bandwidth: float, size: float) -> float:
    return float(place.ring_all_reduce_time(payload_bytes=size, latency=latency, bandwidth=bandwidth, ranks=g["ranks"]))


def _slope(g: Any) -> float:
    """Seconds a byte between the two messages."""
    return float(1e-3 * (g["large_ms"] - g["small_ms"]) / (g["large_mib"] * MEGA - g["small_kib"] * KILO))


_bandwidth = Number(
    id="lab.1",
    title="A link from two messages",
    prompt=(
        "All-reduces over {ranks} ranks: {small_kib} KiB take {small_ms} ms, {large_mib} MiB take {large_ms} ms. By "
        "the ring's formula, which bandwidth does the link reach, in GB/s?"
    ),
    given={"ranks": 4, "small_kib": 4, "small_ms": 0.3, "large_mib": 32, "large_ms": 8.3},
    draw=picks(large_ms=(7.3, 8.3, 10.3), large_mib=(32, 48)),
    answer=lambda g: 2 * (g["ranks"] - 1) / g["ranks"] / _slope(g) / 1e9,
    unit="GB/s",
    mistakes=(
        Mistake("algorithm bandwidth", lambda g: 1 / _slope(g) / 1e9),
        Mistake("another collective", lambda g: (g["ranks"] - 1) / g["ranks"] / _slope(g) / 1e9),
    ),
    hints=(
        "Two sizes, two unknowns: the latency falls out of the difference.",
        "A ring's all-reduce sends 2(n-1)/n of the buffer from each rank.",
        "Those bytes of the difference in size, over the difference in time.",
    ),
    difficulty=1,
    minutes=4,
    source="COM-01, NVIDIA/nccl-tests#159",
)  # fmt: skip

_ring = Expression(
    id="lab.2",
    title="A message on n ranks",
    prompt=(
        "Write the time of a ring's all-reduce of X bytes over n ranks, alpha seconds of latency a message and beta "
        "byte/s: what the fit of the lab takes for a message measured alone."
    ),
    answer=lambda _: place.ring_all_reduce_time,
    symbols=("ranks", "latency", "payload_bytes", "bandwidth"),
    mistakes=(),
    hints=(
        "A reduce-scatter, then an all-gather.",
        "Each takes n - 1 messages of one n-th of the buffer.",
        "2 (n - 1) messages, each alpha and the n-th part over beta.",
    ),
    difficulty=1,
    minutes=4,
    source="step 4",
)


def _steps(source: random.Random) -> dict[str, Any]:
    ranks, steps = source.choice((2, 3)), source.choice((3, 4, 5))
    return {"first": [float(source.randint(10, 40)) for _ in range(steps)],
            "second": [float(source.randint(10, 40)) for _ in range(steps)],
            "warmup": source.choice((0, 1, ranks - 1))}  # fmt: skip


def _right(first: Sequence[float], second: Sequence[float], warmup: int) -> float:
    return float(median([max(pair) for pair in zip(first, second, strict=True)][warmup:]))


def _of_means(first: Sequence[float], second: Sequence[float], warmup: int) -> float:
    return float(median([fmean(pair) for pair in zip(first, second, strict=True)][warmup:]))


def _late_maximum(first: Sequence[float], second: Sequence[float], warmup: int) -> float:
    return float(max(median(first[warmup:]), median(second[warmup:])))


def _warm(first: Sequence[float], second: Sequence[float], warmup: int) -> float:  # noqa: ARG001
    return _right(first, second, 0)


_step = Function(
    id="lab.3",
    title="The step of two ranks",
    prompt=(
        "Write `step_time(first, second, warmup)`: own times of two ranks in the same steps, two lists in ms; so many "
        "steps at the start are warm-up. The ranks meet at the end of each step. Return the median step."
    ),
    arguments=("first", "second", "warmup"),
    case=_steps,
    edges=(
        {"first": [90.0, 10.0, 30.0, 10.0], "second": [80.0, 30.0, 10.0, 30.0], "warmup": 1},
        {"first": [10.0, 20.0, 30.0], "second": [30.0, 20.0, 10.0], "warmup": 0},
    ),
    answer=_right,
    unit="ms",
    mistakes=(
        Mistake("mean rank", lambda _: _of_means),
        Mistake("averaged before waiting", lambda _: _late_maximum),
        Mistake("warm-up counted", lambda _: _warm),
    ),
    hints=(
        "When is a step over for both?",
        "The slower rank of each step, then the median over steps.",
        "median(max(pair) for the pairs behind the warm-up)",
    ),
    difficulty=1,
    minutes=5,
    source="the lab's own protocol; SCA-13",
)  # fmt: skip


def _losses(source: random.Random) -> dict[str, Any]:
    ranks = source.choice((2, 3, 4))
    return {"means": [round(source.uniform(1, 8), 3) for _ in range(ranks)],
            "sequences": [source.randint(1, 9) for _ in range(ranks)]}  # fmt: skip


def _weighed(means: Sequence[float], sequences: Sequence[int]) -> float:
    return sum(mean * many for mean, many in zip(means, sequences, strict=True)) / sum(sequences)


def _unweighed(means: Sequence[float], sequences: Sequence[int]) -> float:  # noqa: ARG001
    return fmean(means)


def _summed(means: Sequence[float], sequences: Sequence[int]) -> float:
    return sum(mean * many for mean, many in zip(means, sequences, strict=True)) / len(means)


_loss = Function(
    id="lab.4",
    title="Eight sequences on three ranks",
    prompt=(
        "A program cuts 8 sequences into 3, 3 and 2 and averages the ranks' mean losses; no error, and a loss that is "
        "slightly wrong. Write `loss(means, sequences)`: the ranks' mean losses and how many sequences each had, two "
        "lists. Return the mean over all sequences (all of one length)."
    ),
    arguments=("means", "sequences"),
    case=_losses,
    edges=({"means": [6.0, 6.0, 9.0], "sequences": [3, 3, 2]},),
    answer=_weighed,
    unit="1",
    mistakes=(
        Mistake("mean of means", lambda _: _unweighed, "Ranks with different numbers of sequences had equal weights."),
        Mistake("another base", lambda _: _summed, "The sum over sequences was divided by the ranks."),
    ),
    hints=(
        "What would one rank with all sequences return?",
        "Make sums of the means again.",
        "Divide the sum over all sequences by their number.",
    ),
    difficulty=1,
    minutes=4,
    source="LAY-25; tried on three ranks: 6.401390 in place of 6.401020, without a warning",
)  # fmt: skip

_shared = Judgement(
    id="lab.5",
    title="Four ranks, two cores",
    prompt=(
        "Four ranks on {cores} cores train with the serial run's loss, hold the bytes of the formula, and take {slow} "
        "times as long a step as two ranks. Which sentence may stand in the report?"
    ),
    given={"cores": 2, "slow": 2.6},
    choices={
        "a": "strong scaling is broken beyond two devices",
        "b": "the layout is correct and holds the bytes predicted; of scaling nothing was measured",
        "c": "the efficiency from two to four is {slow} times worse than ideal",
        "d": "nothing in this cell can be used",
    },
    reasons={
        "1": "a rank has half a core, so its time is not that of a device",
        "2": "four ranks send more messages than two",
        "3": "the machine was noisy, and a quiet one would give the efficiency",
        "4": "losses of four ranks cannot be compared with one",
    },
    answer=lambda _: ("b", "1"),
    mistakes=(
        Mistake("cores shared", lambda _: ("a", None)),
        Mistake("cores shared", lambda _: ("c", None)),
        Mistake("right for another reason", lambda _: ("b", "3"), "On a quiet machine too, two ranks share a core."),
    ),
    hints=(
        "How much of a device has each of the four ranks?",
        "Which of the three findings needs a clock?",
        "Loss and bytes need none.",
    ),
    difficulty=1,
    minutes=3,
    source="the lab's own grid",
)

_base = Judgement(
    id="lab.6",
    title="Two devices that were one",
    prompt=(
        "A program simulates devices in one process. A step takes {one} ms on one device, which uses both cores, and "
        "{two} ms on two. Held to one core, the first takes {pinned} ms. What is the strong-scaling efficiency?"
    ),
    given={"one": 300, "two": 240, "pinned": 490},
    draw=picks(one=(290, 300, 310), two=(235, 240, 245)),
    choices={"a": "{one} / (2 x {two})", "b": "{pinned} / (2 x {two})", "c": "{one} / {two}", "d": "none can be given"},
    reasons={
        "1": "a device must be the same hardware on both sides",
        "2": "what a user sees without pinning is what counts",
        "3": "two cores are one device",
        "4": "a pinned run is slower, and a slow baseline flatters",
    },
    answer=lambda _: ("b", "1"),
    mistakes=(
        Mistake("cores shared", lambda _: ("a", None), "That baseline had two cores for its one device."),
        Mistake("speedup for efficiency", lambda _: ("c", None)),
    ),
    hints=(
        "How many cores has a device in each of the three runs?",
        "Which two runs have one core a device?",
        "The pinned one, and the two devices.",
    ),
    difficulty=2,
    minutes=4,
    source="measured with JAX on two cores: the same step as speedup 1.25 or 2.0",
)


def _of_part(g: Any, visible: float) -> float:
    return float(g["fixed"] + g["each"] * g["batch"] / g["devices"] + visible * g["message"])


_predict = Number(
    id="lab.7",
    title="A step that nobody measured",
    prompt=(
        "Fitted: {fixed} ms of overhead a step, {each} ms for each sequence on a device, and {visible:g} of an "
        "all-reduce of {message} ms shows. Predict a step of {batch} sequences on {devices} devices, in ms."
    ),
    given={"fixed": 4, "each": 5, "visible": 0.8, "message": 6, "batch": 12, "devices": 2},
    draw=picks(fixed=(3, 4), each=(5, 6), message=(5, 6), batch=(8, 12)),
    answer=lambda g: _of_part(g, g["visible"]),
    unit="ms",
    mistakes=(
        Mistake("all hidden", lambda g: _of_part(g, 0)),
        Mistake("fixed part scaled", lambda g: _of_part(g, g["visible"]) - g["fixed"] * (1 - 1 / g["devices"])),
        Mistake("not split", lambda g: _of_part(g, g["visible"]) + g["each"] * g["batch"] * (1 - 1 / g["devices"])),
    ),
    hints=(
        "Three parts: which of them does a device share?",
        "Only the sequences are divided.",
        "Overhead, the sequences of one device, and the share of the message that shows.",
    ),
    difficulty=1,
    minutes=3,
    source="SCA-11, apache/mxnet#2283: what is paid once a step, behind another local batch",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_bandwidth, _ring, _step, _loss, _shared, _base, _predict)
