"""Step 9, laws and limits: Amdahl, Karp-Flatt, what grows, and which part of a step is the next limit."""

from __future__ import annotations

from course import place, scaling
from course.questions.draws import picks
from course.questions.kinds import Expression, Given, Judgement, Mistake, Number, Question
from course.symbols import symbols

__all__ = ["QUESTIONS"]

sigma, D_0, D = symbols("fixed_share", "baseline_devices", "scaled_devices")

_amdahl = Expression(
    id="scaling.14",
    title="Amdahl's law against D_0 devices",
    prompt=(
        "On D_0 devices a share sigma of a step's time would not get shorter on more; the rest is shared by all. What "
        "is the speedup of the same work on D devices? Use sigma, D_0 and D."
    ),
    answer=lambda _: 1 / (sigma + (1 - sigma) * D_0 / D),
    symbols=("fixed_share", "baseline_devices", "scaled_devices"),
    mistakes=(
        Mistake("baseline of one device", lambda _: 1 / (sigma + (1 - sigma) / D),
                "The share was measured on D_0 devices; the rest is shared by D in place of D_0."),
        Mistake("law for another question", lambda _: D / D_0 - sigma * (D / D_0 - 1)),
        Mistake("share for ratio", lambda _: sigma + (1 - sigma) * D_0 / D,
                "That is the time after, over the time before."),
    ),
    hints=(
        "Let the step take 1 on D_0 devices. Which part of it changes?",
        "sigma stays; 1 - sigma is divided by D/D_0.",
        "The time before over the time after.",
    ),
    difficulty=1,
    minutes=3,
    source="Amdahl 1967, against a baseline that fits",
)  # fmt: skip


def _fixed(given: Given) -> float:
    ratio = given["many"] / given["few"]
    return float(scaling.karp_flatt(baseline_time=given["before"], scaled_time=given["after"], device_ratio=ratio))


_karp = Number(
    id="scaling.15",
    title="The fixed share of a measured pair",
    prompt=(
        "The same batch takes {before:g} s on {few} devices and {after:g} s on {many}. Which share of the time on "
        "{few} would have to be fixed, if Amdahl's law were all there is?"
    ),
    given={"few": 8, "many": 64, "before": 17.47, "after": 2.499},
    draw=picks(after=(2.71, 3.05, 3.62)),
    answer=_fixed,
    unit="1",
    relative=0.02,
    mistakes=(
        Mistake("rule for another case", lambda g: 1 - g["before"] / g["after"] * g["few"] / g["many"],
                "That is what efficiency lacks to 1."),
        Mistake("share of another size", lambda g: _fixed(g) * g["before"] / g["after"],
                "That is the share on the larger number of devices."),
    ),
    hints=(
        "Write Amdahl's law for the time after over the time before.",
        "That ratio is sigma + (1 - sigma)/x, with x the ratio of the devices.",
        "Solve for sigma: (ratio of times - 1/x) over (1 - 1/x).",
    ),
    difficulty=2,
    minutes=5,
    source="Ultra-Scale Playbook, 8.86B: 17.47 s on 8 H100, 2.50 s on 64",
)  # fmt: skip

_fastest = Number(
    id="scaling.16",
    title="Where more devices make it slower",
    prompt=(
        "On {few} devices, {divisible:g} s of a step are shared work, {fixed:g} s fixed. Every {few} further devices "
        "add {growing:g} s. On how many devices is the step shortest?"
    ),
    given={"few": 8, "divisible": 16.2, "fixed": 0.6, "growing": 0.018},
    draw=picks(divisible=(9.8, 12.8, 20.0), growing=(0.012, 0.02, 0.05)),
    answer=lambda g: float(scaling.fastest_devices(
        divisible_time=g["divisible"], growing_time=g["growing"], baseline_devices=g["few"])),
    unit="device",
    mistakes=(
        Mistake("total for per device", lambda g: (g["divisible"] / g["growing"]) ** 0.5,
                "That is the ratio to the baseline's devices."),
        Mistake("rule for another case", lambda g: g["few"] * g["divisible"] / g["growing"],
                "There one saving equals the whole growth; a slope is wanted, and it has a square."),
        Mistake("rule for another case", lambda g: g["few"] * (g["divisible"] / g["fixed"]) ** 0.5,
                "What is fixed neither grows nor shrinks, so it does not decide where the least time is."),
    ),
    hints=(
        "Which of the three parts do not matter for where the least time is?",
        "With x = D/D_0: divisible/x falls, growing times x rises.",
        "They are equal at the least time.",
    ),
    difficulty=2,
    minutes=4,
    source="Gunther's universal scalability law, as a case of the time model",
)  # fmt: skip

_diagnose = Judgement(
    id="scaling.17",
    title="What the fixed share says",
    prompt=(
        "Against 8 devices, the fixed share by Karp-Flatt of the same series is {a:g} on 16, {b:g} on 64 and {c:g} on "
        "256 devices. What kind of loss is it?"
    ),
    given={"a": 0.02, "b": 0.021, "c": 0.055},
    draw=picks(c=(0.021, 0.055, 0.083), b=(0.02, 0.021)),
    choices={
        "a": "a fixed one alone: Amdahl's law goes through all of them",
        "b": "something that grows with the devices, or begins between 64 and 256",
        "c": "the work grows, so Gustafson's law holds",
    },
    reasons={
        "1": "one fixed share explains every size",
        "2": "a fixed share that does not stay is not fixed: another part came in",
        "3": "efficiency falls, as it always does",
    },
    answer=lambda g: ("a", "1") if g["c"] / g["b"] < 1.2 else ("b", "2"),
    mistakes=(
        Mistake("law for another question", lambda _: ("c", None), "The work of every size is the same."),
        Mistake("rule for another case", lambda _: (None, "3"),
                "Efficiency falls under Amdahl's law as well; that cannot tell the two apart."),
    ),
    hints=(
        "If Amdahl's law held, what would the three numbers be?",
        "Are they equal?",
        "Efficiency falls in any case: it is the share that tells.",
    ),
    difficulty=2,
    minutes=3,
    source="Karp and Flatt 1990; SCA-03: what a falling rate a device does and does not tell",
)  # fmt: skip

_limit = Judgement(
    id="scaling.18",
    title="The next limit",
    prompt=(
        "A step on 64 devices: 0.40 s of compute that replicas share, 0.030 s waiting for input whatever the devices, "
        "a gradient reduction of 0.16 s that is hidden behind 0.20 s of backward of the last micro-batch. Each replica "
        "has two micro-batches a step. On 128 devices, with the same batch, what does the step wait for most besides "
        "compute, and on 256, each with half a micro-batch?"
    ),
    choices={
        "a": "input on 128; the reduction on 256",
        "b": "the reduction on both",
        "c": "input on both",
    },
    reasons={
        "1": "the reduction is longer than the wait for input, at every size",
        "2": "on 128 the last micro-batch still covers the reduction; half of one covers only 0.10 s",
        "3": "what is hidden at one size stays hidden",
        "4": "input does not shrink, so its share grows fastest",
    },
    answer=lambda _: ("a", "2"),
    mistakes=(
        Mistake("rule for another case", lambda _: (None, "1"),
                "Which of the two lengthens the step while it is covered?"),
        Mistake("rule for another case", lambda _: (None, "3"), "What covers it on 256 devices, and for how long?"),
        Mistake("right for another reason", lambda _: ("a", "4"),
                "Its share grows. But why does the reduction come first on 256?"),
        Mistake("rule for another case", lambda _: ("c", None), "How much of 0.16 s does half a backward cover?"),
    ),
    hints=(
        "Only what is not covered lengthens a step.",
        "What covers the reduction on 128 devices? On 256?",
        "0.20 s covers 0.16 s; half of it does not.",
    ),
    difficulty=3,
    minutes=6,
    source="the second source document: predict the next limit by the dependency path; SCA-15: waiting for input",
)  # fmt: skip


def _replicas(given: Given) -> tuple[float, float]:
    """Seconds of a replica's micro-batches and of the whole reduction, on the larger number of devices."""
    reduced = place.ring_all_reduce_time(ranks=given["many"], payload_bytes=4e9 * given["billions"],
                                         bandwidth=1e9 * given["rate"], latency=0)  # fmt: skip
    return given["before"] * given["few"] / given["many"], float(reduced)


def _covered(given: Given) -> float:
    pieces, reduced = _replicas(given)
    return float(pieces + max(0.0, reduced - 2 / 3 * pieces * given["many"] / given["sequences"]))


_path = Number(
    id="scaling.22",
    title="The next size by its path",
    prompt=(
        "A model of {billions:g} billion parameters, one replica a device, micro-batches of one sequence. A step of "
        "{sequences} sequences takes {before:g} s on {few} devices, nearly all of it micro-batches. Gradients are "
        "summed in fp32 after the last micro-batch, beside nothing. On {many} devices a benchmark's all-reduce has a "
        "bus bandwidth of {rate:g} GB/s. Seconds of a step there, latencies left out?"
    ),
    given={"billions": 2.6, "sequences": 256, "before": 6.4, "few": 8, "many": 128, "rate": 60},
    draw=picks(rate=(40, 45, 50), billions=(3.1, 3.4), before=(5.6, 6.4)),
    answer=lambda g: sum(_replicas(g)),
    unit="s",
    relative=0.015,
    mistakes=(
        Mistake("rule for another case", lambda g: _replicas(g)[0],
                "That is the ideal time: what else is on the path?"),
        Mistake("rule for another case", _covered, "That hides the reduction behind the last backward. Does it here?"),
        Mistake("another collective", lambda g: _replicas(g)[0] + _replicas(g)[1] / 2,
                "That sends half: how many bytes has a gradient in fp32, and how often is it sent?"),
    ),
    hints=(
        "Two parts, one after the other: micro-batches, then the reduction.",
        "The first falls as few over many. The second: fp32 bytes of all parameters, as an all-reduce sends them.",
        "Add them: nothing is covered.",
    ),
    difficulty=3,
    minutes=5,
    source="Ultra-Scale Playbook, 1.34B with replicas alone: 64 to 256 devices met within 4 % by this path",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_amdahl, _karp, _fastest, _diagnose, _limit, _path)
