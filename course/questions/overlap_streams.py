"""Step 7, streams: hidden and exposed, bounds, buckets, prefetch."""

from __future__ import annotations

import random
from typing import Any

import sympy as sp

from course import overlap
from course.questions.draws import picks
from course.questions.kinds import Expression, Function, Given, Judgement, Mistake, Number, Question
from course.simulators.timeline import bucketed_step, sharded_step
from course.symbols import symbols

__all__ = ["QUESTIONS"]


def _compute(given: Given) -> float:
    return float(given["layers"] * (given["forward"] + given["backward"]))


def _late(given: Given) -> float:
    each = {"compute_per_layer": given["backward"], "communication_per_layer": given["sent"]}
    return float(overlap.exposed_reduction(buckets=given["layers"], **each))


_step = Number(
    id="overlap.1",
    title="Two streams by hand",
    prompt=(
        "Data parallelism, one micro-batch, {layers} layers: forward {forward} ms and backward {backward} ms each. The "
        "gradients of a layer are reduced in {sent} ms as soon as its backward is done. How many ms does forward, "
        "backward and reduction take?"
    ),
    given={"layers": 6, "forward": 4, "backward": 8, "sent": 10},
    draw=picks(layers=(5, 6, 8), forward=(3, 4), backward=(7, 8), sent=(10, 11, 12)),
    answer=lambda g: _compute(g) + _late(g),
    unit="ms",
    relative=0.005,
    mistakes=(
        Mistake("all added", lambda g: _compute(g) + g["layers"] * g["sent"]),
        Mistake("all hidden", _compute),
        Mistake("dependency ignored", lambda g: g["layers"] * (g["forward"] + g["sent"]),
                "Nothing can be reduced while the first backward still runs."),
    ),
    hints=(
        "Draw both streams; when is the first gradient ready, and which layer's is it?",
        "From then on the link never rests: a reduction takes longer than a backward.",
        "All forwards, one backward, then all reductions.",
    ),
    difficulty=1,
    minutes=4,
    source="the first source document: do not add all communication times blindly",
)  # fmt: skip

_last = Number(
    id="overlap.2",
    title="What a fast link leaves",
    prompt=(
        "The backward of the last micro-batch takes {backward} ms. Its gradients take {link} ms on the link in all, in "
        "{count} equal buckets, each sent when it is ready. How many ms are exposed?"
    ),
    given={"backward": 200, "link": 120, "count": 24},
    draw=picks(backward=(200, 240, 320), link=(90, 120, 150), count=(12, 20, 24, 30)),
    answer=lambda g: overlap.exposed_reduction(
        buckets=g["count"], compute_per_layer=g["backward"] / g["count"],
        communication_per_layer=g["link"] / g["count"]),
    unit="ms",
    relative=0.005,
    mistakes=(
        Mistake("last bucket forgotten", lambda _: 0.0),
        Mistake("all added", lambda g: g["link"]),
        Mistake("other quantity", lambda g: g["backward"] / g["count"], "That is the cover of a bucket, not its time."),
    ),
    hints=(
        "Which is longer for one bucket, its backward or its reduction?",
        "Every bucket but one is sent beside the backward of another.",
        "The one that is ready at the very end.",
    ),
    difficulty=1,
    minutes=3,
    source="the first source document: assuming all communication overlaps",
)  # fmt: skip

_bounds = Judgement(
    id="overlap.3",
    title="A list of times",
    prompt=(
        "A profile of one step lists {compute} ms of compute and {sent} ms of communication, each on a stream of its "
        "own, and no other work. Which step time is possible?"
    ),
    given={"compute": 420, "sent": 380, "few": 400, "some": 610, "many": 830},
    choices={"a": "{few} ms", "b": "{some} ms", "c": "{many} ms"},
    reasons={
        "1": "it is the mean of the two streams, where half overlaps",
        "2": "a stream does one thing at a time, and one of the two always works",
        "3": "all communication hides behind compute",
        "4": "what waits adds to both streams",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("all hidden", lambda _: ("a", None), "Even if everything overlapped, one of the streams is longer."),
        Mistake("all added", lambda _: ("c", None), "Both streams would have to stand still at the same time."),
        Mistake("right for another reason", lambda _: ("b", "1"), "Half of what? Work out the bounds instead."),
    ),
    hints=(
        "What is the least that the busier stream allows?",
        "What is the most, if nothing at all overlaps?",
        "Only one of the three lies between the longer stream and the sum.",
    ),
    difficulty=1,
    minutes=3,
    source="COM-21, facebookresearch/HolisticTraceAnalysis#162",
)  # fmt: skip

_gather = Number(
    id="overlap.4",
    title="Gathers longer than layers",
    prompt=(
        "FSDP, forward alone: {layers} layers of {compute} ms, each gathered in {sent} ms, one layer ahead. How many "
        "ms are exposed?"
    ),
    given={"layers": 40, "compute": 5, "sent": 7},
    draw=picks(layers=(24, 32, 40), compute=(4, 5), sent=(7, 8, 9)),
    answer=lambda g: overlap.exposed_gather(
        buckets=g["layers"], compute_per_layer=g["compute"], communication_per_layer=g["sent"]),
    unit="ms",
    relative=0.005,
    mistakes=(
        Mistake("prefetch forgotten", lambda g: g["layers"] * g["sent"]),
        Mistake("all hidden", lambda g: g["sent"], "A gather is longer than the layer that it runs beside."),
        Mistake("last bucket forgotten", lambda g: (g["layers"] - 1) * (g["sent"] - g["compute"]),
                "The first gather has nothing to hide behind."),
    ),
    hints=(
        "Follow the link: does it ever rest before the last gather?",
        "When does the last gather end, and what is left to do then?",
        "The first gather, and for each further layer what its gather lasts beyond a layer.",
    ),
    difficulty=1,
    minutes=4,
    source="derived in the lesson",
)  # fmt: skip

K, t_c, t_x = symbols("buckets", "compute_time", "communication_time")

_expression = Expression(
    id="overlap.5",
    title="Exposed, from the totals",
    prompt=(
        "A backward takes t_c, its gradients t_x on the link, both in all, cut into K equal buckets without latency. "
        "What is exposed? Use Max."
    ),
    answer=lambda _: overlap.exposed_reduction(
        buckets=K, compute_per_layer=t_c / K, communication_per_layer=t_x / K),
    symbols=("buckets", "compute_time", "communication_time"),
    mistakes=(
        Mistake("last bucket forgotten", lambda _: sp.Max(0, t_x - t_c)),
        Mistake("all added", lambda _: t_x),
        Mistake("all hidden", lambda _: t_x / K),
        Mistake("last bucket forgotten", lambda _: sp.Max(t_x / K, t_x - t_c),
                "Look at the case in which the link falls behind: when does it start?"),
    ),
    hints=(
        "A bucket is ready every t_c/K and takes t_x/K.",
        "One bucket always; K - 1 times what a bucket lasts beyond its cover.",
        "t_x/K + (K - 1) Max(0, t_x/K - t_c/K).",
    ),
    difficulty=2,
    minutes=5,
    source="derived in the lesson",
)  # fmt: skip


def _exposed(backward: list[float], reduce: list[float]) -> float:
    layers = len(backward)
    buckets = [(layers - 1 - place, time) for place, time in enumerate(reduce)]
    step = bucketed_step([0.0] * layers, list(reversed(backward)), buckets)
    return float(step.exposed_time)


def _times(source: random.Random) -> dict[str, Any]:
    layers = source.choice((1, 3, 4, 6))
    return {
        "backward": [source.choice((2.0, 4.0, 7.0, 10.0)) for _ in range(layers)],
        "reduce": [source.choice((1.0, 3.0, 6.0, 9.0)) for _ in range(layers)],
    }


def _equal(backward: list[float], reduce: list[float]) -> float:
    mean, sent = sum(backward) / len(backward), sum(reduce) / len(reduce)
    return sent + (len(backward) - 1) * max(0.0, sent - mean)


_function = Function(
    id="overlap.6",
    title="Any buckets",
    prompt=(
        "Write `exposed(backward, reduce)`: the ms of each layer's backward and of the reduction of its gradients, "
        "both in the order in which the layers go backward. One link, in that order. Return the ms that are exposed."
    ),
    arguments=("backward", "reduce"),
    case=_times,
    edges=(
        {"backward": [10.0, 2.0, 2.0], "reduce": [1.0, 9.0, 1.0]},
        {"backward": [2.0, 2.0, 20.0], "reduce": [9.0, 9.0, 1.0]},
        {"backward": [5.0], "reduce": [3.0]},
    ),
    answer=_exposed,
    unit="ms",
    mistakes=(
        Mistake("all added", lambda _: lambda backward, reduce: sum(reduce) + 0 * sum(backward)),
        Mistake("last bucket forgotten", lambda _: lambda backward, reduce: max(0.0, sum(reduce) - sum(backward))),
        Mistake("all hidden", lambda _: lambda backward, reduce: reduce[len(backward) - 1]),
        Mistake("equal buckets assumed", lambda _: _equal),
    ),
    hints=(
        "Keep two clocks: when compute is done so far, and when the link is free.",
        "A reduction starts at the later of the two.",
        "At the end: the link's clock less the time of all backward.",
    ),
    difficulty=2,
    minutes=8,
    source="derived in the lesson",
)


def _sharded(given: Given) -> float:
    layers = given["layers"]
    step = sharded_step([given["forward"]] * layers, [given["backward"]] * layers, given["gather"], given["scatter"])
    return float(step.exposed_time)


_whole = Number(
    id="overlap.30",
    title="A sharded step",
    prompt=(
        "FSDP, one micro-batch, {layers} layers: forward {forward} ms and backward {backward} ms each. Weights of a "
        "layer are gathered in {gather} ms, before forward and again before backward, one layer ahead; its gradients "
        "are scattered in {scatter} ms. One link. How many ms of the step are exposed?"
    ),
    given={"layers": 32, "forward": 5, "backward": 12, "gather": 4, "scatter": 6},
    draw=picks(layers=(24, 32, 40), forward=(5, 6), backward=(11, 12), gather=(3, 4), scatter=(5, 6, 7)),
    answer=_sharded,
    unit="ms",
    relative=0.005,
    mistakes=(
        Mistake("backward gather forgotten", lambda g: g["gather"] + g["scatter"]),
        Mistake("last bucket forgotten", lambda g: 2 * g["gather"], "What is left to hide the last scatter behind?"),
        Mistake("all added", lambda g: g["layers"] * (2 * g["gather"] + g["scatter"])),
    ),
    hints=(
        "Does a gather fit behind a layer's forward? Do a gather and a scatter fit behind a layer's backward?",
        "Then only the ends are exposed. What has nothing beside it at the start, in between, at the end?",
        "Two gathers and a scatter.",
    ),
    difficulty=2,
    minutes=4,
    source="derived in the lesson",
)  # fmt: skip

_tensor = Number(
    id="overlap.32",
    title="Beside a matmul or not",
    prompt=(
        "Tensor parallelism with sequence parallelism: in each layer attention and the MLP both have a column-split "
        "matrix, then a row-split one. Backward gathers the inputs again. Each collective takes {each:g} ms, each "
        "matmul longer; none is cut into chunks, and whatever a matmul does not need runs beside it. How many ms are "
        "exposed in forward and backward of {layers} layers?"
    ),
    given={"each": 0.3, "layers": 40},
    draw=picks(each=(0.2, 0.3, 0.4), layers=(32, 40, 80)),
    answer=lambda g: 6 * g["each"] * g["layers"],
    unit="ms",
    relative=0.005,
    mistakes=(
        Mistake("all added", lambda g: 10 * g["each"] * g["layers"]),
        Mistake("all hidden", lambda g: 4 * g["each"] * g["layers"],
                "Backward has collectives as well that both of its matmuls need."),
        Mistake("one a layer", lambda g: 3 * g["each"] * g["layers"], "A layer has two such blocks."),
    ),
    hints=(
        "Count the collectives of a block: two in forward, and in backward?",
        "Three in backward. At the column-split matrix, which of the two matmuls needs which collective?",
        "The second gather and the scatter hide; three of five are left, in two blocks.",
    ),
    difficulty=2,
    minutes=5,
    source="derived in the lesson; the predicted 405B run: 0.55 of 0.92 s",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_step, _last, _bounds, _gather, _expression, _function, _whole, _tensor)
