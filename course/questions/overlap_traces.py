"""Step 7, traces: what is hidden by intervals, and what a collective's duration contains."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from course.questions.draws import picks
from course.questions.kinds import Function, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

Spans = list[tuple[float, float]]

_share = Number(
    id="overlap.20",
    title="Hidden, by three lengths",
    prompt=(
        "In a trace compute kernels cover {compute} ms, collectives {sent} ms, and for {union} ms at least one of the "
        "two runs. Which share of communication is hidden? Answer as a share of 1."
    ),
    given={"compute": 90, "sent": 60, "union": 115},
    draw=picks(compute=(90, 100), union=(112, 115, 118)),
    answer=lambda g: (g["compute"] + g["sent"] - g["union"]) / g["sent"],
    unit="1",
    mistakes=(
        Mistake("another base", lambda g: (g["compute"] + g["sent"] - g["union"]) / g["compute"],
                "That is over compute; the share asked for is of communication."),
        Mistake("exposed for hidden", lambda g: (g["union"] - g["compute"]) / g["sent"]),
        Mistake("another base", lambda g: (g["compute"] + g["sent"] - g["union"]) / g["union"],
                "That is over the time in which anything runs."),
    ),
    hints=(
        "What runs at once is counted in both lengths and once in their union.",
        "Hidden: the two lengths less the union.",
        "Over the length of the collectives.",
    ),
    difficulty=1,
    minutes=3,
    source="COM-21, facebookresearch/HolisticTraceAnalysis#162",
)  # fmt: skip


def _covered(at: float, spans: Spans) -> bool:
    return any(start <= at < end for start, end in spans)


def _exposed(compute: Spans, communication: Spans) -> float:
    """Between two neighbouring ends nothing changes: ask once in each piece."""
    ends = sorted({end for span in (*compute, *communication) for end in span})
    total = 0.0
    for left, right in pairwise(ends):
        middle = (left + right) / 2
        if _covered(middle, communication) and not _covered(middle, compute):
            total += right - left
    return total


def _each_alone(compute: Spans, communication: Spans) -> float:
    return sum(_exposed(compute, [span]) for span in communication)


def _pairwise(compute: Spans, communication: Spans) -> float:
    total = _exposed([], communication)
    for start, end in communication:
        total -= sum(max(0.0, min(end, b) - max(start, a)) for a, b in compute)
    return total


def _lengths(compute: Spans, communication: Spans) -> float:  # noqa: ARG001
    return sum(end - start for start, end in communication)


def _of_lists(count: Callable[[Spans, Spans], float]) -> Callable[..., float]:
    """The same of four lists: grading passes lists of numbers."""

    def exposed(
        works_from: list[float], works_to: list[float], sends_from: list[float], sends_to: list[float]
    ) -> float:
        return count(list(zip(works_from, works_to, strict=True)), list(zip(sends_from, sends_to, strict=True)))

    return exposed


def _lists(compute: Spans, communication: Spans) -> dict[str, Any]:
    return {
        "works_from": [start for start, _ in compute], "works_to": [end for _, end in compute],
        "sends_from": [start for start, _ in communication], "sends_to": [end for _, end in communication],
    }  # fmt: skip


def _spans(source: random.Random) -> dict[str, Any]:
    def some(count: int) -> Spans:
        starts = [float(source.randint(0, 40)) for _ in range(count)]
        return [(start, start + source.randint(1, 15)) for start in starts]

    return _lists(some(source.choice((1, 2, 4))), some(source.choice((1, 2, 4))))


_function = Function(
    id="overlap.21",
    title="Exposed, by intervals",
    prompt=(
        "Write `exposed(works_from, works_to, sends_from, sends_to)`: lists of starts and ends in ms, of compute "
        "kernels and of collectives, in any order; on several streams, so those of one kind may overlap each other. "
        "Return the ms in which a collective runs and nothing is computed."
    ),
    arguments=("works_from", "works_to", "sends_from", "sends_to"),
    case=_spans,
    edges=(
        _lists([(0.0, 40.0), (50.0, 90.0)], [(30.0, 60.0), (55.0, 80.0)]),
        _lists([(10.0, 20.0), (0.0, 15.0)], [(5.0, 25.0)]),
        _lists([(50.0, 60.0)], [(5.0, 9.0), (0.0, 7.0)]),
    ),
    answer=_of_lists(_exposed),
    unit="ms",
    mistakes=(
        Mistake("counted twice", lambda _: _of_lists(_each_alone), "Two collectives at once expose the time once."),
        Mistake("counted twice", lambda _: _of_lists(_pairwise), "Two kernels at once hide a collective once."),
        Mistake("all added", lambda _: _of_lists(_lengths)),
    ),
    hints=(
        "Nothing changes between two neighbouring starts or ends.",
        "Sort all starts and ends; look at each piece between neighbours.",
        "Count the piece if some collective and no compute kernel covers it.",
    ),
    difficulty=2,
    minutes=8,
    source="COM-21; a sum over kernels where a union was meant",
)  # fmt: skip


def _lasts(given: Any) -> list[float]:
    return [given["first"], given["second"], given["third"], given["fourth"]]


_rate = Number(
    id="overlap.22",
    title="A rate from four traces",
    prompt=(
        "In the traces of four ranks one all-reduce of {size:g} GB lasts {first}, {second}, {third} and {fourth} ms. "
        "Give the best estimate of buffer over transfer time, in GB/s."
    ),
    given={"size": 2.0, "first": 92, "second": 95, "third": 25, "fourth": 90},
    draw=picks(size=(1.0, 2.0), first=(92, 85), third=(20, 25)),
    answer=lambda g: g["size"] / min(_lasts(g)) * 1e3,
    unit="GB/s",
    mistakes=(
        Mistake("wait for transfer", lambda g: g["size"] / (sum(_lasts(g)) / 4) * 1e3),
        Mistake("wait for transfer", lambda g: g["size"] / max(_lasts(g)) * 1e3,
                "The longest belongs to the rank that waited longest."),
    ),
    hints=(
        "When does a collective's kernel begin on a rank, and when does it end?",
        "All end together. Which rank did not wait?",
        "Divide by the shortest.",
    ),
    difficulty=1,
    minutes=3,
    source="the trace of rank 0 of 128: 3,072 bytes in 30.7 ms",
)  # fmt: skip

_who = Judgement(
    id="overlap.23",
    title="Who is late?",
    prompt=(
        "Traces of eight ranks: on seven of them {others} ms of each step are exposed communication, on rank 5 it is "
        "{few} ms. All steps take {step} ms. Where do you look first?"
    ),
    given={"others": 80, "few": 2, "step": 400},
    choices={"a": "at the network of the seven", "b": "at what rank 5 computes", "c": "at the overlap of the seven"},
    reasons={
        "1": "their collectives are slow",
        "2": "it arrives last, and the others wait for it in the collective",
        "3": "it hides its communication best, so the others should do as it does",
        "4": "exposed time is what can be saved",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("wait for transfer", lambda _: ("a", None), "The same collective was short on one rank."),
        Mistake("wait for transfer", lambda _: ("c", None), "They wait for somebody; overlap brings nobody sooner."),
        Mistake("right for another reason", lambda _: ("b", "3"), "It has less exposed time, and no shorter step."),
    ),
    hints=(
        "A collective ends at the same time on all ranks. On which did it begin last?",
        "What did that rank do until then?",
        "The others' exposed time contains waiting.",
    ),
    difficulty=2,
    minutes=3,
    source="SCA-13, traceopt-ai/traceml#252",
)  # fmt: skip


def _saved(given: Any) -> float:
    return float(min((given["total"] - given["small"]) / 2, given["exposed"]))


_network = Number(
    id="overlap.28",
    title="Twice the network",
    prompt=(
        "In a trace collectives run for {total} ms of a step, never two at once; {exposed} ms of that are exposed. One "
        "of them lasts {small} ms and carries a few kB. Idle time stays as it is. How many ms can links twice as fast "
        "save at most?"
    ),
    given={"total": 240, "exposed": 170, "small": 40},
    draw=picks(total=(240, 260, 300), exposed=(160, 170), small=(40, 50)),
    answer=_saved,
    unit="ms",
    mistakes=(
        Mistake("exposed halved", lambda g: g["exposed"] / 2),
        Mistake("exposed halved", lambda g: (g["exposed"] - g["small"]) / 2),
        Mistake("wait for transfer", lambda g: g["total"] / 2, "A few kB do not take that long: who was waited for?"),
        Mistake("cut for gain", lambda g: g["exposed"], "Twice as fast is not endlessly fast."),
    ),
    hints=(
        "Which of the collectives does a faster link not shorten?",
        "A chain of work holds collectives one after the other: by how much can halving them shorten it?",
        "Two limits: half of what is transferred, and all that is exposed. The smaller one.",
    ),
    difficulty=2,
    minutes=4,
    source="the trace of rank 0 of 128: 195 ms of collectives, one of 3,072 bytes",
)  # fmt: skip

_waited = Judgement(
    id="overlap.29",
    title="Who waited for whom?",
    prompt=(
        "A trace of one device. An all-reduce A runs from 40 to 80 ms; a matmul runs from 60 to 95, the next from 95 "
        "on. An all-gather B runs from 100 to 130, when all else is done; a matmul begins at 130. An all-to-all C runs "
        "from 150 to 195; then nothing runs until the host, which waits for nothing on the device, launches a matmul "
        "at 220. Of which one may you expect that the device goes on earlier if it gets shorter?"
    ),
    choices={"a": "A", "b": "B", "c": "C"},
    reasons={
        "1": "it is the longest",
        "2": "a matmul begins as it ends",
        "3": "it has the most exposed time",
        "4": "matmuls run beside it",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("dependency ignored", lambda _: ("a", None), "A matmul began before its end, so it did not wait."),
        Mistake("cut for gain", lambda _: ("c", None), "Did the next matmul begin when it ended?"),
        Mistake("right for another reason", lambda _: ("b", "3"), "Another one has more."),
    ),
    hints=(
        "For each, look at the next matmul: does it begin as the collective ends?",
        "One that began earlier did not wait for it; one that was launched only later waited for the host.",
        "Only one is followed at once.",
    ),
    difficulty=1,
    minutes=3,
    source="the trace of rank 0 of 128: after one of five collectives the next kernel was launched 18 ms later",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_share, _function, _rate, _who, _network, _waited)
