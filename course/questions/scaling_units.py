"""Step 9, work units and families: the same work or not, weak efficiency, and tokens that are not arithmetic."""

from __future__ import annotations

from course import catalog, estimate, mfu, scaling
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

_steps = Number(
    id="scaling.1",
    title="Steps that do the same work",
    prompt=(
        "A run makes {steps:,} steps on one device, {batch} sequences a step. On {devices} devices, each still with "
        "{batch} sequences a step, how many steps read as many sequences?"
    ),
    given={"steps": 4000, "batch": 8, "devices": 4},
    draw=picks(steps=(6000, 9600, 24000), batch=(4, 8, 16), devices=(2, 8, 16)),
    answer=lambda g: g["steps"] / g["devices"],
    unit="1",
    mistakes=(
        Mistake("steps for work", lambda g: g["steps"],
                "As many steps on more devices read more sequences, one batch for each device."),
        Mistake("other quantity", lambda g: g["steps"] * g["batch"], "Those are sequences."),
    ),
    hints=(
        "How many sequences did the first run read?",
        "How many does one step of all devices read?",
        "Sequences of the run, over sequences of a step.",
    ),
    difficulty=1,
    minutes=2,
    source="SCA-07: as many steps on four devices took as long, and was reported as no speedup",
)  # fmt: skip

_recognise = Judgement(
    id="scaling.2",
    title="A table without a label",
    prompt=(
        "A table of one model lists for 128, 256 and 512 devices a global batch of 768, 1,536 and 3,072 sequences, and "
        "10,475, 10,119 and 9,670 tokens a second for each device. What does it measure?"
    ),
    choices={
        "a": "strong scaling, efficiency 0.92 from 128 to 512",
        "b": "weak scaling, efficiency 0.92 from 128 to 512",
        "c": "strong scaling, speedup 3.7 of 4",
        "d": "neither: the batch must be the same",
    },
    reasons={
        "1": "the rate of a device falls, as it does when work is divided further",
        "2": "each device has six sequences a step at every size, so the global work grows with the devices",
        "3": "tokens a second of all devices grow 3.7 times",
        "4": "different work is never compared in any way",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("weak for strong", lambda _: ("a", None), "What does one device do in a step, at each size?"),
        Mistake("weak for strong", lambda _: ("c", None), "Tokens a second grew, and so did the tokens of a step."),
        Mistake("rule for another case", lambda _: ("d", None),
                "Times of different steps are not divided as a speedup. But a device's work may be what is held."),
    ),
    hints=(
        "Divide the batch by the devices, row by row.",
        "Which quantity is the same in all rows: the work of a step, or of a device?",
        "Tokens of a device's step over its rate is the time of the step.",
    ),
    difficulty=1,
    minutes=3,
    source="MosaicML llm-foundry, MPT-7B on H100; NVIDIA-NeMo/Speech#13903: weak reported as scaling",
)  # fmt: skip


def _weak(given: Given) -> float:
    return float(scaling.weak_efficiency(time_on_baseline=1 / given["one"], time_on_devices=given["devices"] /
                                         given["all"]))  # fmt: skip


_local = Number(
    id="scaling.3",
    title="Each device keeps its batch",
    prompt=(
        "With {batch} samples on each device, one device trains {one} samples a second and {devices} devices "
        "{all} together. (With {other} on each, one device trains {other_one}.) Weak-scaling efficiency with "
        "{batch}?"
    ),
    given={"batch": 40, "one": 116, "all": 743, "devices": 8, "other": 20, "other_one": 106},
    draw=picks(all=(690, 715, 782), one=(116, 118, 121)),
    answer=_weak,
    unit="1",
    mistakes=(
        Mistake("bases mixed", lambda g: g["all"] / g["devices"] / g["other_one"]),
        Mistake("speedup for efficiency", lambda g: g["all"] / g["one"]),
        Mistake("hours for efficiency", lambda g: 1 / _weak(g)),
    ),
    hints=(
        "What does one of the devices do in a second?",
        "Which baseline has the same work on each device?",
        "The rate of a device among all, over that of one alone with the same local batch.",
    ),
    difficulty=1,
    minutes=3,
    source="SCA-11: two local batches, and one divided by the other's baseline",
)  # fmt: skip


def _between(given: Given, few: str, many: str) -> float:
    times = {"baseline_time": 1 / given[f"rate_{few}"], "scaled_time": 1 / given[f"rate_{many}"]}
    return float(mfu.scaling_efficiency(**times, baseline_devices=given[few], scaled_devices=given[many]))


_boundary = Number(
    id="scaling.4",
    title="A doubling that leaves the node",
    prompt=(
        "The same batch at {rate_few} thousand tokens a second on {few} devices of one node, {rate_many} on {many} of "
        "two nodes, {rate_wide} on {wide}. How many times the device-hours of {few} does the same work take on {many}?"
    ),
    given={"few": 8, "many": 16, "wide": 64, "rate_few": 249, "rate_many": 296, "rate_wide": 748},
    draw=picks(rate_many=(312, 320, 392), rate_few=(241, 249, 262)),
    answer=lambda g: 1 / _between(g, "few", "many"),
    unit="1",
    mistakes=(
        Mistake("hours for efficiency", lambda g: _between(g, "few", "many"),
                "That is the efficiency. Device-hours go the other way."),
        Mistake("speedup for efficiency", lambda g: g["rate_many"] / g["rate_few"]),
        Mistake("rule for another case", lambda g: 1 / _between(g, "few", "wide"),
                "That is three doublings in one; only the first leaves the node."),
    ),
    hints=(
        "What are device-hours for one token, in devices and rate?",
        "Devices over tokens a second, at both sizes.",
        "Twice the devices, and less than twice the rate.",
    ),
    difficulty=1,
    minutes=3,
    source="SCA-17, SCA-01: the loss sits at the node's boundary, not along a line",
)  # fmt: skip

_above_one = Judgement(
    id="scaling.5",
    title="An efficiency of 1.03",
    prompt=(
        "Each device trains 6,500 tokens a second on 8 devices and 6,700 on 128, each with the same work. What do you "
        "report?"
    ),
    choices={
        "a": "weak-scaling efficiency 1.03, and what differs between the two runs besides devices",
        "b": "1.00: an efficiency above 1 is rounded down",
        "c": "1.03: it scales better than linear, and 1,024 devices will gain more",
    },
    reasons={
        "1": "more devices cannot make a device faster, so something else changed; it must be found before the "
        "number is used",
        "2": "efficiency cannot exceed 1, so the measurement is wrong",
        "3": "the trend from 8 to 128 goes on",
    },
    answer=lambda _: ("a", "1"),
    mistakes=(
        Mistake("rule for another case", lambda _: (None, "2"),
                "It can: memory, caches, a kernel's shape, another machine. What must follow then?"),
        Mistake("rule for another case", lambda _: ("b", None), "A number that surprises is reported as it is."),
        Mistake("rule for another case", lambda _: ("c", None), "Two points that surprise make no trend."),
    ),
    hints=(
        "Is the number possible? What would have to be true?",
        "What may differ between the machines, the placement, the program?",
        "State it with its explanation, or as unexplained; do not extrapolate.",
    ),
    difficulty=1,
    minutes=2,
    source="SCA-09: the larger run was on other hardware in another region",
)  # fmt: skip

_split = Number(
    id="scaling.6",
    title="Which part is the small batch",
    prompt=(
        "A batch of {batch:,} takes {one:g} s on one device and {many:g} s on {devices}. One device alone takes "
        "{small:g} s for {share:,}, its part of that batch. Strong-scaling efficiency is a product: what the smaller "
        "local batch costs, times what working together costs. The first factor?"
    ),
    given={"batch": 131072, "share": 16384, "one": 1.0, "many": 0.5, "small": 0.35, "devices": 8},
    draw=picks(small=(0.21, 0.28, 0.35), many=(0.42, 0.5)),
    answer=lambda g: g["one"] / (g["devices"] * g["small"]),
    unit="1",
    mistakes=(
        Mistake("rule for another case", lambda g: g["small"] / g["many"],
                "That is the second factor: the same local batch, alone and together."),
        Mistake("other quantity", lambda g: g["one"] / (g["devices"] * g["many"]),
                "That is the whole efficiency, both factors together."),
        Mistake("baseline of one device", lambda g: g["one"] / g["small"] / g["devices"] ** 2),
    ),
    hints=(
        "If nothing were lost, how long would an eighth of the batch take alone?",
        "Compare that with what it does take alone.",
        "The whole batch on one device, over all its parts one after the other on that device.",
    ),
    difficulty=2,
    minutes=5,
    source="SCA-05: twice of eight was blamed on communication; most of it was the small local batch",
)  # fmt: skip


def _per_token(given: Given, length: int) -> float:
    model = catalog.model(given["model"])
    return estimate.flops_per_token(model, length)["causal_attention"]


_lengths = Number(
    id="scaling.7",
    title="The same tokens, other arithmetic",
    prompt=(
        "Each device holds {tokens:,} tokens a step in both of two runs of `{model}`: as sequences of {short:,}, or as "
        "sequences of {long:,}. FLOPs of a device's step in the second, over those in the first, by causal_attention?"
    ),
    given={"model": "llama-3-8b", "tokens": 131072, "short": 8192, "long": 131072},
    draw=picks(long=(32768, 65536), model=("llama-3-8b", "llama-2-7b", "llama-2-13b")),
    answer=lambda g: _per_token(g, g["long"]) / _per_token(g, g["short"]),
    unit="1",
    mistakes=(
        Mistake("tokens for arithmetic", lambda _: 1.0),
        Mistake("rule for another case", lambda g: g["long"] / g["short"],
                "Only the attention square grows so; the matrices work as before on each token."),
    ),
    hints=(
        "Which part of a token's FLOPs knows how long the sequence is?",
        "6N for the matrices; 6 L a d T for the causal square.",
        "Add both parts at each length, then divide.",
    ),
    difficulty=2,
    minutes=5,
    source="the second source document: holding tokens per device may not preserve arithmetic",
)  # fmt: skip

_ring = Number(
    id="scaling.8",
    title="Equal tokens, unequal ranks",
    prompt=(
        "{ranks} ranks share one long causal sequence in contiguous pieces of equal length. Each piece attends to "
        "itself (half a square) and to every piece before it (a whole square). Attention work of the last rank, over "
        "the mean of all?"
    ),
    given={"ranks": 4},
    draw=picks(ranks=(2, 8, 16)),
    answer=lambda g: (2 * g["ranks"] - 1) / g["ranks"],
    unit="1",
    mistakes=(
        Mistake("tokens for arithmetic", lambda _: 1.0, "Equal tokens; but how many does each token look back at?"),
        Mistake("rule for another case", lambda g: 2 * g["ranks"] - 1, "That is the last rank over the first."),
        Mistake("share for ratio", lambda g: g["ranks"] / (2 * g["ranks"] - 1)),
    ),
    hints=(
        "Count squares: rank 0 has half of one.",
        "Rank r has r and a half. What is the mean?",
        "The last has half a square less than there are ranks, the mean half of the ranks.",
    ),
    difficulty=2,
    minutes=4,
    source="SCA-19: contiguous pieces of a causal sequence are equal tokens and unequal work",
)  # fmt: skip

_model_grows = Judgement(
    id="scaling.24",
    title="Twice the devices, a larger model",
    prompt=(
        "A model of {billions:g} billion parameters trains on {few} GPUs, then another with {times} times as many "
        "parameters on {times} times the GPUs. Each GPU has {tokens:,} tokens a step in both runs, in sequences as "
        "long. The step takes {times} times as long. FLOPs are counted as 6 for each parameter and token. What do "
        "you report?"
    ),
    given={"billions": 7.0, "few": 64, "times": 2, "tokens": 16384},
    draw=picks(billions=(3.0, 7.0, 13.0), few=(32, 64, 256), times=(2, 4, 8), tokens=(8192, 16384)),
    choices={
        "a": "weak-scaling efficiency 1",
        "b": "weak-scaling efficiency 1/{times}",
        "c": "a model-size family with its rule, and 1 as the ratio of model FLOPs for each device-second",
        "d": "a model-size family with its rule, and 1/{times} as the ratio of model FLOPs for each device-second",
    },
    reasons={
        "1": "tokens a GPU are held, and they are what weak scaling holds",
        "2": "each GPU has {times} times the arithmetic in {times} times the time, so no work of a GPU was held",
        "3": "weak scaling asks that the time stays, and it did not",
        "4": "a device's rate is what counts, whatever it works on",
    },
    answer=lambda _: ("c", "2"),
    mistakes=(
        Mistake("right for another reason", lambda _: ("c", "4"),
                "The rate is the same. But why may the claim of weak scaling not be made with it?"),
        Mistake("tokens for arithmetic", lambda _: (None, "1"),
                "Every token passes a larger model: equal tokens are not equal arithmetic."),
        Mistake("another work unit", lambda _: ("a", None),
                "An efficiency of weak scaling needs declared work of a device. Is it the same in both runs?"),
        Mistake("another work unit", lambda _: ("b", None),
                "That charges the machine with the larger model's arithmetic: times of different work were divided."),
        Mistake("hours for efficiency", lambda _: ("d", None),
                "Count FLOPs of a GPU's step at both sizes, then divide by the seconds."),
    ),
    hints=(
        "What does one GPU do in a step, in FLOPs, before and after?",
        "Tokens are equal and each costs more. Is the work of a GPU held, or the work in all?",
        "Neither. Declare the rule that chose the models, and compare model FLOPs for each device-second.",
    ),
    difficulty=2,
    minutes=4,
    source="the second source document: for model-size scaling, define another explicit family",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (
    _steps, _recognise, _local, _boundary, _above_one, _split, _lengths, _ring, _model_grows,
)  # fmt: skip
