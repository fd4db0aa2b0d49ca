"""Step 7, waits: critical paths, the host, the input, and the slowest rank."""

from __future__ import annotations

import math

from course import overlap
from course.questions.draws import picks
from course.questions.kinds import Expression, Given, Judgement, Mistake, Number, Question
from course.simulators.engine import Task, run
from course.symbols import symbols

__all__ = ["QUESTIONS"]


def _graph(given: Given, c: float = 1.0) -> float:
    tasks = [
        Task("A", "first", given["a"]), Task("B", "first", given["b"]),
        Task("C", "second", given["c"] * c, ("A",)), Task("D", "second", given["d"], ("B",)),
        Task("E", "first", given["e"], ("C", "D")),
    ]  # fmt: skip
    return float(run(tasks).makespan)


_WORDS = (
    "The first stream does A {a}, B {b} and E {e} ms, the second C {c} and D {d} ms, each in this order. C waits for "
    "A, D for B, E for C and D. "
)

_path = Number(
    id="overlap.11",
    title="The longest chain",
    prompt=_WORDS + "How many ms does all of it take?",
    given={"a": 4, "b": 3, "c": 6, "d": 5, "e": 2},
    draw=picks(a=(3, 4, 5), b=(2, 3), c=(6, 7), d=(4, 5), e=(2, 3)),
    answer=_graph,
    unit="ms",
    relative=0.005,
    mistakes=(
        Mistake("one after the other", lambda g: sum(g[name] for name in "abcde"),
                "B and C can run side by side: they are on different streams."),
        Mistake("dependency ignored", lambda g: g["a"] + g["b"] + g["d"] + g["e"],
                "The second stream is still busy with C when D could begin."),
    ),
    hints=(
        "Draw the two streams. When can C begin, and when D?",
        "D waits for B, and for C before it on its stream.",
        "A, then the longer of B and C, then D and E.",
    ),
    difficulty=1,
    minutes=4,
    source="derived in the lesson",
)  # fmt: skip

_gain = Number(
    id="overlap.12",
    title="Half of the longest piece",
    prompt=_WORDS + "C is made to take half as long. By how many ms gets all of it shorter?",
    given={"a": 4, "b": 6, "c": 8, "d": 5, "e": 2},
    draw=picks(a=(3, 4, 5), b=(6, 7), c=(8, 9, 10), d=(4, 5), e=(2, 3)),
    answer=lambda g: _graph(g) - _graph(g, 0.5),
    unit="ms",
    relative=0.005,
    mistakes=(Mistake("cut for gain", lambda g: g["c"] / 2),),
    hints=(
        "Is C on the critical path before?",
        "And after? What holds D up then?",
        "The longer of B and C, before and after.",
    ),
    difficulty=2,
    minutes=4,
    source="derived in the lesson",
)

_next = Judgement(
    id="overlap.13",
    title="What to shorten next",
    prompt=(
        "Steps follow each other every {step} ms. On a device matmuls take {work} ms and reductions {sent} ms, of "
        "which {late} are exposed. {workers} loader workers, each {load:,} ms for an input. You may halve one thing."
    ),
    given={"step": 400, "work": 300, "sent": 260, "late": 10, "workers": 4, "load": 1600},
    choices={"a": "the matmuls", "b": "the reductions", "c": "the loading"},
    reasons={
        "1": "it is the longest line of the profile",
        "2": "an input is ready only that often; all else has time to spare",
        "3": "what is exposed extends the step",
        "4": "it runs beside everything else, so it costs nothing",
    },
    answer=lambda _: ("c", "2"),
    mistakes=(
        Mistake("cut for gain", lambda _: ("a", None), "How often is an input ready? Can steps come faster?"),
        Mistake("all added", lambda _: ("b", None), "Nearly all of it hides; steps wait for something else."),
        Mistake("right for another reason", lambda _: ("c", "1"), "Lengths in a profile say nothing about who waits."),
        Mistake("right for another reason", lambda _: ("c", "3"), "That speaks of communication."),
    ),
    hints=(
        "How long would a step take if its input were always there?",
        "An input is ready every load time over workers. Compare with the time between steps.",
        "The critical path runs through whoever is waited for.",
    ),
    difficulty=2,
    minutes=4,
    source="the second source document: measure input readiness; use the dependency path to predict the next limit",
)  # fmt: skip


def _layer(given: Given, share: float = 1.0) -> float:
    return float(overlap.layer_time(device_time=given["device"] * share, host_time=given["host"]))


_floor = Number(
    id="overlap.14",
    title="A floor under a layer",
    prompt=(
        "A layer takes {device:g} ms on the device, and {host:g} ms of the host's time to launch. The local batch is "
        "cut to a quarter, and the device's time with it. What speedup of 4?"
    ),
    given={"device": 2.0, "host": 0.8},
    draw=picks(device=(2.4, 3.0), host=(0.8, 0.9)),
    answer=lambda g: _layer(g) / _layer(g, 0.25),
    unit="1",
    relative=0.005,
    mistakes=(
        Mistake("dependency ignored", lambda _: 4.0, "Can the host launch that fast?"),
        Mistake("host added", lambda g: (g["device"] + g["host"]) / (g["device"] / 4 + g["host"])),
    ),
    hints=(
        "Host and device work at the same time.",
        "A layer takes the longer of the two, before and after.",
        "Device time before, over the host's.",
    ),
    difficulty=1,
    minutes=3,
    source="SCA-05, NVIDIA/DeepLearningExamples#894; the second source document: a fixed host overhead",
)  # fmt: skip

_workers = Number(
    id="overlap.15",
    title="Workers enough",
    prompt=(
        "A step takes {step:g} s when its input is there. A loader worker needs {load:g} s for the input of a step. "
        "The least number of workers with which no step waits?"
    ),
    given={"step": 0.2, "load": 1.3},
    draw=picks(step=(0.2, 0.3), load=(1.3, 1.6, 1.7, 2.2)),
    answer=lambda g: math.ceil(g["load"] / g["step"] - 1e-9),
    unit="1",
    relative=1e-6,
    mistakes=(
        Mistake("rounded down", lambda g: math.floor(g["load"] / g["step"]) if g["load"] / g["step"] % 1 > 1e-6
                else g["load"] / g["step"] - 1, "So few deliver more seldom than steps ask."),
    ),
    hints=(
        "How often is an input ready with N workers?",
        "That must be at most a step.",
        "Loading time over step time, rounded up.",
    ),
    difficulty=1,
    minutes=2,
    source="SCA-15, nerfstudio-project/gsplat#1058",
)  # fmt: skip


def _grown(given: Given, few: float, many: float) -> float:
    return float(100 * ((given["mean"] + many * given["spread"]) / (given["mean"] + few * given["spread"]) - 1))


_tail = Number(
    id="overlap.16",
    title="A thousand ranks",
    prompt=(
        "A rank's own step takes {mean} ms with a spread of {spread} ms, normal, drawn afresh each step, independent; "
        "all wait for the slowest. The largest of 8 standard normal numbers is 1.424 on average, of 1,024 it is 3.248. "
        "By how many per cent is a step on 1,024 ranks longer than on 8?"
    ),
    given={"mean": 400, "spread": 12},
    draw=picks(mean=(400, 500, 600), spread=(12, 15, 20)),
    answer=lambda g: _grown(g, overlap.expected_maximum(8), overlap.expected_maximum(1024)),
    unit="%",
    mistakes=(
        Mistake("baseline without tail", lambda g: _grown(g, 0.0, overlap.expected_maximum(1024))),
        Mistake("rule of thumb", lambda g: _grown(g, math.sqrt(2 * math.log(8)), math.sqrt(2 * math.log(1024)))),
    ),
    hints=(
        "How long is a step on 8 ranks, on average? It is not the mean rank's.",
        "Mean and so many spreads, for 8 and for 1,024.",
        "Divide the two steps and subtract 1.",
    ),
    difficulty=2,
    minutes=4,
    source="order statistics; the second source document: rank tails",
)  # fmt: skip

n, t, p = symbols("ranks", "stall_time", "stall_chance")

_stalls = Expression(
    id="overlap.17",
    title="Rare stalls",
    prompt=(
        "In each step each of n ranks stalls with chance p_stall, independently, for t_stall. All wait for each other. "
        "What does a step lose on average?"
    ),
    answer=lambda _: overlap.stall_wait,
    symbols=("ranks", "stall_time", "stall_chance"),
    mistakes=(
        Mistake("sum over ranks", lambda _: n * p * t),
        Mistake("mean rank", lambda _: p * t),
        Mistake("rule for another case", lambda _: t * p**n, "That is the chance that all ranks stall together."),
        Mistake("rule for another case", lambda _: t * (1 - p) ** n, "That is the chance that nobody stalls."),
    ),
    hints=(
        "When does a step lose nothing?",
        "One rank runs through with chance 1 - p_stall; all of them?",
        "t_stall times the chance that not all run through.",
    ),
    difficulty=2,
    minutes=4,
    source="the second source document: extra ranks increase the chance of a required slow arrival",
)  # fmt: skip

_kinds = Judgement(
    id="overlap.18",
    title="Three kinds of slow",
    prompt=(
        "256 ranks wait for each other at every step. X: documents are longer in some steps, on all ranks alike. Y: "
        "one GPU is hot and always 5 % slower. Z: each rank's time varies by 5 %, afresh at each step. If ranks met "
        "only every 16 steps, which part of their waiting would mostly go away?"
    ),
    choices={"a": "that of X", "b": "that of Y", "c": "that of Z"},
    reasons={
        "1": "over 16 steps it is the same rank that is late by 16 times as much",
        "2": "nobody waits for it in the first place",
        "3": "a rank's luck averages out over 16 steps; before, each step had its own unlucky rank",
        "4": "the mean over ranks stays what it is",
    },
    answer=lambda _: ("c", "3"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("a", None), "Does any rank wait when all are late alike?"),
        Mistake("averaged before waiting", lambda _: ("b", None), "What is the same in all steps does not average."),
        Mistake("right for another reason", lambda _: ("c", "4"), "It does, but who waits for the mean?"),
    ),
    hints=(
        "For each, ask which rank is the slowest in the next step.",
        "Is it always the same, a new one each time, or none?",
        "The sum of 16 fresh draws spreads by 4 of theirs, not by 16.",
    ),
    difficulty=2,
    minutes=4,
    source="the second source document: rank tails",
)  # fmt: skip

_lost = Number(
    id="overlap.19",
    title="One slow rank",
    prompt=(
        "{ranks} ranks compute, then meet in an all-reduce. One needs {slow} ms before it, each of the others {fast}. "
        "Which share of all device time up to that meeting is lost to waiting? Answer as a share of 1."
    ),
    given={"ranks": 4, "slow": 260, "fast": 110},
    draw=picks(ranks=(4, 8), slow=(240, 260, 280), fast=(90, 110, 130)),
    answer=lambda g: (g["ranks"] - 1) * (g["slow"] - g["fast"]) / (g["ranks"] * g["slow"]),
    unit="1",
    mistakes=(
        Mistake("average for fullest", lambda g: (g["slow"] - g["fast"]) / g["slow"],
                "The slow rank itself does not wait."),
        Mistake("another base", lambda g: (g["ranks"] - 1) * (g["slow"] - g["fast"])
                / (g["slow"] + (g["ranks"] - 1) * g["fast"]), "That is waiting over work, not over all device time."),
    ),
    hints=(
        "How long does it take until all have arrived?",
        "Each of the others waits for the difference.",
        "All waiting over ranks times the slow one's time.",
    ),
    difficulty=1,
    minutes=3,
    source="SCA-13, traceopt-ai/traceml#252",
)  # fmt: skip


def _spread_wait(given: Given) -> float:
    return float(overlap.expected_maximum(1024) * given["spread"])


def _stall_wait(given: Given) -> float:
    return float(overlap.stall_wait(ranks=1024, stall_time=given["stall"], stall_chance=1 / given["every"]))


_both = Number(
    id="overlap.31",
    title="Luck and stalls",
    prompt=(
        "1,024 independent ranks wait for each other once a step. A rank's own time is normal with a spread of "
        "{spread} ms, drawn afresh each step; the largest of 1,024 standard normal numbers is 3.248 on average. "
        "Besides, each stalls in one step of {every:,}, for {stall} ms. Add what the two cost: how many ms does a step "
        "last beyond the mean rank's?"
    ),
    given={"spread": 12, "every": 4000, "stall": 400},
    draw=picks(spread=(10, 12, 15), every=(4000, 5000), stall=(400, 500)),
    answer=lambda g: _spread_wait(g) + _stall_wait(g),
    unit="ms",
    mistakes=(
        Mistake("sum over ranks", lambda g: _spread_wait(g) + 1024 * g["stall"] / g["every"]),
        Mistake("mean rank", lambda g: _spread_wait(g) + g["stall"] / g["every"], "All wait when any rank stalls."),
        Mistake("other quantity", lambda g: _stall_wait(g), "That is what stalls cost; ranks differ without them too."),
    ),
    hints=(
        "What does a step wait for the slowest of 1,024 if nobody stalls?",
        "In which share of steps does at least one rank stall?",
        "3.248 spreads, and the stall times 1 - (1 - p)^n.",
    ),
    difficulty=2,
    minutes=4,
    source="the second source document: rank tails; extra ranks increase the chance of a required slow arrival",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (
    _path, _gain, _next, _floor, _workers, _tail, _stalls, _kinds, _lost, _both,
)  # fmt: skip
