"""Step 6, strong scaling: efficiency against a named baseline, bounds by bubbles, a schedule inferred, when to stop."""

from __future__ import annotations

from course import mfu
from course.problem import Run
from course.questions.draws import picks
from course.questions.kinds import Expression, Given, Judgement, LayoutQuestion, Mistake, Number, Question
from course.questions.runs import run_on
from course.symbols import symbols

__all__ = ["QUESTIONS"]

P_p, v, M = symbols("pipeline", "interleave", "micro_batches")


def _efficiency(given: Given) -> float:
    return float(mfu.scaling_efficiency(
        baseline_devices=given["few"], scaled_devices=given["many"], baseline_time=given["slow"],
        scaled_time=given["fast"]))  # fmt: skip


_doubling = Number(
    id="mfu.15",
    title="Against a baseline that fits",
    prompt=(
        "A model does not fit on fewer than {few} devices. A step of the same {sequences} sequences takes {slow:g} s "
        "on {few} and {fast:g} s on {many}. Strong-scaling efficiency of the larger cluster, against the smaller?"
    ),
    given={"few": 64, "many": 128, "sequences": 1024, "slow": 9.4, "fast": 5.4},
    draw=picks(slow=(9.4, 10.2, 9.9), fast=(6.1, 5.9)),
    answer=_efficiency,
    unit="1",
    mistakes=(
        Mistake("speedup for efficiency", lambda g: g["slow"] / g["fast"]),
        Mistake("baseline of one device", lambda g: g["slow"] / g["fast"] / g["many"]),
        Mistake("hours for efficiency", lambda g: 1 / _efficiency(g)),
    ),
    hints=(
        "What would the speedup be if every device worked as well as before?",
        "The ideal is the ratio of the devices, not their number.",
        "Speedup over the ratio of devices.",
    ),
    difficulty=1,
    minutes=3,
    source="the first source document: 64 to 128 has ideal speedup 2",
)  # fmt: skip

_units = Judgement(
    id="mfu.16",
    title="Two rows of a log",
    prompt=(
        "A table of one model: 512 devices, 2,048 sequences a step, 12.1 s; 768 devices, 3,072 sequences a step, "
        "12.2 s. What is the strong-scaling efficiency from 512 to 768?"
    ),
    choices={"a": "0.66", "b": "0.99", "c": "none: this is no strong scaling"},
    reasons={
        "1": "the step takes as long on half as many devices more",
        "2": "tokens a second grow by 1.49 where 1.5 is ideal",
        "3": "a step of the larger cluster is other work than a step of the smaller",
        "4": "there is no measurement on one device",
    },
    answer=lambda _: ("c", "3"),
    mistakes=(
        Mistake("another global batch", lambda _: ("b", None),
                "The rates have different steps in them: the larger cluster has a larger batch to be busy with."),
        Mistake("another global batch", lambda _: ("a", None), "Those two steps are not the same work."),
        Mistake("right for another reason", lambda _: ("c", "4"),
                "Any size that runs will do as a baseline. What must both sizes have in common?"),
    ),
    hints=(
        "What is the work of one row, and of the other?",
        "Does each device have less to do on the larger cluster?",
        "Sequences a device: four in both rows. Strong scaling would make them fewer.",
    ),
    difficulty=2,
    minutes=3,
    source="MLPerf GPT-3 logs, v3.1: 512 devices with a batch of 2,048 beside 768 with 3,072",
)  # fmt: skip

_baseline = Judgement(
    id="mfu.17",
    title="An efficiency of 2.3",
    prompt=(
        "An 80B model trains the same batch at 9,120 tokens/s on 32 devices, 42,560 on 64 and 84,736 on 128. From "
        "32 to 64 that is an efficiency of 2.33. What do you report for 128?"
    ),
    choices={"a": "2.32, against 32 devices", "b": "1.00, against 64 devices", "c": "nothing: above 1 is an error"},
    reasons={
        "1": "the baseline must be the smallest size that runs at all",
        "2": "32 devices reach less than half of the others' rate a device, so something else limits them there; a "
        "baseline must be a healthy run",
        "3": "an efficiency cannot exceed 1",
        "4": "a baseline may be chosen so that the result is 1",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("rule for another case", lambda _: ("a", None),
                "Rates a device: 285, 665, 662. What does the first one tell?"),
        Mistake("rule for another case", lambda _: (None, "3"),
                "It can, where memory or a cache changes; then it wants an explanation."),
        Mistake("right for another reason", lambda _: ("b", "4"), "A result is no reason for a baseline."),
    ),
    hints=(
        "Compute tokens a second of one device for each size.",
        "The model barely fits on 32. What would a nearly full memory do to a step?",
        "Take a baseline in which nothing but the devices differs, and say which.",
    ),
    difficulty=2,
    minutes=4,
    source="Ultra-Scale Playbook, 80B: 32 devices thrash",
)  # fmt: skip

_bound = Expression(
    id="mfu.18",
    title="Twice the replicas",
    prompt=(
        "A pipeline of P_p stages with v chunks a stage works through 2M micro-batches a step. With twice the replicas "
        "and the same batch each pipeline has M. If all else scales perfectly, what is the speedup? Use P_p, v and M."
    ),
    answer=lambda _: (2 * v * M + P_p - 1) / (v * M + P_p - 1),
    symbols=("pipeline", "interleave", "micro_batches"),
    mistakes=(
        Mistake("right for another reason", lambda _: (v * M + P_p - 1) / (2 * v * M + P_p - 1),
                "That is below 1: the time after, over the time before."),
        Mistake("rule for another case", lambda _: (2 * M + P_p - 1) / (M + P_p - 1),
                "That is a schedule of one chunk a stage."),
        Mistake("rule for another case", lambda _: 2 * (2 * v * M + P_p - 1) / (v * M + P_p - 1),
                "The devices doubled, and so did the batch of your count: each pipeline has half of it."),
    ),
    hints=(
        "How long is a step, counted in the time of one chunk?",
        "v chunks for each micro-batch, and P_p - 1 to fill and drain.",
        "The time with 2M over the time with M.",
    ),
    difficulty=2,
    minutes=5,
    source="derived here, from the bubble share (P_p - 1)/(vM + P_p - 1)",
)  # fmt: skip


def _doubled(given: Given, chunks: int) -> float:
    return float(mfu.pipeline_speedup(
        pipeline=given["stages"], interleave=chunks, micro_batches=given["after"], baseline_devices=1,
        scaled_devices=2))  # fmt: skip


def _fewest(given: Given) -> tuple[str, str]:
    for choice, chunks in (("a", 1), ("b", 2), ("c", 4)):
        if _doubled(given, chunks) >= given["measured"]:
            return choice, "2"
    return "d", "2"


_schedule = Judgement(
    id="mfu.19",
    title="Which schedule",
    prompt=(
        "A pipeline of {stages} stages had {before} micro-batches a step. On twice the devices, with twice the "
        "replicas and the same batch, it has {after}, and the run is {measured:g} times as fast. What do you know of "
        "the chunks a stage holds?"
    ),
    given={"stages": 8, "before": 16, "after": 8, "measured": 1.72},
    draw=picks(measured=(1.48, 1.62, 1.72, 1.85)),
    choices={"a": "there may be only one", "b": "there are at least two", "c": "there are more than two, perhaps four",
             "d": "there are more than four"},
    reasons={
        "1": "chunks make the micro-batches shorter",
        "2": "bubbles alone would keep fewer chunks below the measured speedup",
        "3": "the measured speedup is the share of the ideal that the schedule reaches",
        "4": "a speedup below 2 is due to communication, which chunks increase",
    },
    answer=_fewest,
    mistakes=(
        Mistake("right for another reason", lambda g: (_fewest(g)[0], "1"),
                "They do, but how does that bound the speedup?"),
        Mistake("rule for another case", lambda _: (None, "4"),
                "Communication takes its part too. But what could the bubbles alone do?"),
    ),
    hints=(
        "Compute the most that a pipeline of one chunk could gain.",
        "(2vM + P - 1)/(vM + P - 1), with M after; then two chunks, four.",
        "A schedule whose bound is below what was measured is ruled out.",
    ),
    difficulty=3,
    minutes=6,
    source="Llama 3 paper, table 4: 1.86 of 2 with 16 stages",
)  # fmt: skip

_collapsed = Judgement(
    id="mfu.20",
    title="Twice as many again",
    prompt=(
        "The same batch of a 1.3B model: 3.86 million tokens/s on 128 devices, 6.09 on 256, 2.36 on 512. The deadline "
        "would be met at 3.5 million. Nothing else waits for the devices, and each is paid by the hour. Which size?"
    ),
    choices={"a": "128", "b": "256", "c": "512"},
    reasons={
        "1": "it is the fastest, and the deadline leaves room to spare",
        "2": "it meets the deadline with the fewest device-hours of those that do",
        "3": "more devices always shorten the run",
        "4": "its efficiency is closest to 1, whatever the deadline",
    },
    answer=lambda _: ("a", "2"),
    mistakes=(
        Mistake("faster for cheaper", lambda _: ("b", "1"),
                "Faster than needed is paid for: compare devices over tokens a second."),
        Mistake("rule for another case", lambda _: ("c", None), "Look at the rate on 512 again."),
        Mistake("right for another reason", lambda _: ("a", "4"),
                "Eight devices would be closer still. What does the deadline ask?"),
    ),
    hints=(
        "Which sizes meet the deadline at all?",
        "Device-hours for a token: devices over tokens a second.",
        "128/3.86 against 256/6.09.",
    ),
    difficulty=1,
    minutes=3,
    source="Ultra-Scale Playbook, 1.34B: its rates collapse at 512 devices",
)  # fmt: skip


# ---------------------------------------------------------------- a layout
def _run(given: Given) -> Run:
    return run_on(given["model"], given["batch"], 4096)


_layout = LayoutQuestion(
    id="mfu.21",
    title="The layout with the highest MFU",
    prompt=(
        "One model, batch and cluster: tokens a second, MFU and accelerator-hours then rank layouts alike. Lay out "
        "`{model}` on eight H100 of one node: sequences of 4,096, {batch} a step, state bf16-18. Give a dictionary of "
        "degrees above 1, `sharding`, `micro_batch` and, if needed, `recompute`: for instance "
        '{{"tensor": 8, "sharding": "zero1", "micro_batch": 1}}. It must be legal, fit, and be within a tenth of the '
        "best step time."
    ),
    given={"model": "llama-2-13b", "batch": 128},
    run=_run,
    within=0.10,
    hints=(
        "What does recomputation do to MFU? And what does it save?",
        "Of the axes, which adds the least exposed communication inside one node, if the state is sharded?",
        "Eight data-parallel ranks, state sharded as far as it must be, small micro-batches, nothing recomputed.",
    ),
    difficulty=3,
    minutes=10,
    source="the first source document: report MFU, and call no recomputation useful work",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_doubling, _units, _baseline, _bound, _schedule, _collapsed, _layout)
