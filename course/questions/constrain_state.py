"""Step 2, state: what a device has, which part leaves first, over how many devices, and a deadline beside it."""

from __future__ import annotations

import math
from typing import Any

from course import catalog, estimate
from course.questions.draws import pick, picks
from course.questions.kinds import Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

GB = 1e9
PARTS = catalog.state("bf16-18")
KEPT = PARTS.weights + PARTS.all_gradients
MOVED = PARTS.optimizer


# ---------------------------------------------------------------- what a device has
def _left(given: Given) -> float:
    return float(given["mebibytes"]) * 2**20 / GB - float(given["plan"]) - float(given["margin"])


_capacity = Number(
    id="constrain.1",
    title="What is left",
    prompt=(
        "A tool reports {mebibytes:,} MiB for an H100 sold as one of 80 GB. A plan needs {plan:g} GB, decimal, and "
        "{margin:g} GB are to stay free. How many GB are left over? (Less than zero when it does not fit.)"
    ),
    given={"mebibytes": 81559, "plan": 83.0, "margin": 2.0},
    draw=picks(plan=(76.0, 78.5, 81.0, 83.0), margin=(1.2, 2.0, 2.3)),
    answer=_left,
    unit="GB",
    mistakes=(
        Mistake(
            "GiB for GB",
            lambda g: g["mebibytes"] / 2**10 - g["plan"] - g["margin"],
            "What the tool reports was turned into GiB; the plan is in decimal GB.",
        ),
        Mistake(
            "GiB for GB",
            lambda g: 80 - g["plan"] - g["margin"],
            "The printed 80 was taken as decimal GB; vendors of memory mean GiB.",
        ),
        Mistake("margin forgotten", lambda g: _left(g) + g["margin"]),
    ),
    hints=(
        "Bring everything to one unit: bytes.",
        "A MiB is 2^20 bytes, a GB is 10^9.",
        "81,559 times 2^20 over 10^9 is what the device has; subtract plan and margin.",
    ),
    difficulty=1,
    minutes=3,
    source="MEM-21, modal-labs/modal-client#2797: 83 GB compared with 80",
)


# ---------------------------------------------------------------- which part leaves
def _part(given: Given) -> tuple[str, str]:
    weights, kept = PARTS.weights * given["billions"], KEPT * given["billions"]
    if kept <= given["memory"]:
        return ("a", "1")
    return ("b", "2") if weights <= given["memory"] else ("c", "3")


_first = Judgement(
    id="constrain.2",
    title="How far to shard",
    prompt=(
        "A model of {billions:g} billion parameters is trained by the recipe of weights 2, gradients 4 and optimizer "
        "state 12 bytes. Tensors may take {memory:g} GB of a device; the state does not fit. How far down the order "
        "must you shard, and why?"
    ),
    given={"billions": 8.0, "memory": 83.0},
    draw=picks(billions=(8.0, 11.0, 20.0, 34.0, 70.0), memory=(42.0, 83.0, 100.0)),
    choices={"a": "the optimizer state", "b": "gradients as well", "c": "weights as well"},
    reasons={
        "1": "weights and gradients fit beside each other",
        "2": "the weights fit, weights and gradients do not",
        "3": "not even the weights fit",
        "4": "the optimizer state is the largest part",
    },
    answer=_part,
    mistakes=(
        Mistake(
            "rule for another case",
            lambda _: (None, "4"),
            "The size of a part alone decides nothing; what counts is whether the parts that stay do fit.",
        ),
    ),
    hints=(
        "Go down the order: what stays when the optimizer state has left?",
        "Compare 6 bytes a parameter with the memory, then 2.",
        "The first sum that fits tells what may stay; everything after it is sharded.",
    ),
    difficulty=1,
    minutes=4,
    source="the first source document: shard optimizer state first when weights and gradients still fit",
)


def _zero1(given: Given, kept: float = KEPT, moved: float = MOVED) -> float:
    return float(given["billions"] * (kept + moved / given["devices"]))


_optimizer = Number(
    id="constrain.3",
    title="Optimizer state sharded",
    prompt=(
        "{billions:g} billion parameters with bf16 weights, fp32 gradients and 12 bytes of optimizer state each, which "
        "alone is sharded over {devices} devices. How much model state does one device hold?"
    ),
    given={"billions": 1.0, "devices": 8},
    draw=picks(billions=(1.0, 2.0, 8.0, 13.0), devices=(4, 8, 16, 32)),
    answer=_zero1,
    unit="GB",
    mistakes=(
        Mistake("nothing sharded", lambda g: g["billions"] * (KEPT + MOVED)),
        Mistake("everything sharded", lambda g: g["billions"] * (KEPT + MOVED) / g["devices"]),
        Mistake(
            "everything sharded",
            lambda g: _zero1(g, PARTS.weights, PARTS.all_gradients + MOVED),
            "The gradients were divided as well; here each device keeps them whole.",
        ),
        Mistake(
            "another state recipe",
            lambda g: _zero1(g, kept=4),
            "Gradients were counted in 2 bytes; here they are in 4.",
        ),
    ),
    hints=(
        "Which parts stay whole on each device?",
        "Weights 2 and gradients 4 stay. What is left of the 12?",
        "6 bytes, and 12 over the number of devices, for each parameter.",
    ),
    difficulty=1,
    minutes=3,
    source="MEM-01, NVIDIA/Megatron-LM#654: 6 + 12/d bytes, not (16 or 18)/d",
)


def _devices(given: Given) -> float:
    return float(MOVED * given["billions"] / (given["memory"] - KEPT * given["billions"]))


_fewest = Number(
    id="constrain.4",
    title="The fewest devices",
    prompt=(
        "The same recipe, {billions:g} billion parameters, {memory:g} GB for tensors on each device, and only the "
        "optimizer state is sharded. On how many devices at least does the state fit?"
    ),
    given={"billions": 13.0, "memory": 83.7},
    draw=lambda source: dict(
        zip(("billions", "memory"), source.choice(((13.0, 83.7), (7.0, 60.0), (20.0, 141.0))), strict=True)
    ),
    answer=lambda g: math.ceil(_devices(g)),
    unit="1",
    mistakes=(
        Mistake("everything sharded", lambda g: math.ceil((KEPT + MOVED) * g["billions"] / g["memory"])),
        Mistake("rounded down", lambda g: math.floor(_devices(g))),
    ),
    hints=(
        "What stays on every device, and what room does that leave?",
        "The optimizer state, divided by the devices, must go into that room.",
        "12 P over (memory less 6 P), rounded up.",
    ),
    difficulty=2,
    minutes=5,
    source="the order of the first source document, with the numbers of one device",
)


# ---------------------------------------------------------------- which group
_hybrid = Number(
    id="constrain.5",
    title="Groups of eight",
    prompt=(
        "{billions:g} billion parameters, {size} bytes of state each, {world} GPUs. All parts of the state are "
        "sharded, but within groups of {group}; every group holds the model once. How much state does one GPU hold?"
    ),
    given={"billions": 8.0, "size": 16, "world": 64, "group": 8},
    draw=picks(billions=(3.0, 8.0, 13.0), world=(32, 64, 128), group=(4, 8)),
    answer=lambda g: g["billions"] * g["size"] / g["group"],
    unit="GB",
    mistakes=(
        Mistake("wrong group", lambda g: g["billions"] * g["size"] / g["world"]),
        Mistake("nothing sharded", lambda g: g["billions"] * g["size"]),
    ),
    hints=(
        "How many GPUs share one copy of the model?",
        "More groups are more copies; they divide nothing.",
        "Parameters times bytes, over the size of a group.",
    ),
    difficulty=1,
    minutes=3,
    source="MEM-25, mlc-ai/pith-train#40: hybrid sharding divides by the group, not by the world",
)

_more = Judgement(
    id="constrain.6",
    title="Twice the devices",
    prompt=(
        "A model of {billions:g} billion parameters, 20 bytes each (weights 2, gradients 6, optimizer state 12), "
        "fails on {devices} devices of 79.6 GiB with its optimizer state sharded over all of them; activations and "
        "logits take 25.5 GiB. What lets it fit, and why?"
    ),
    given={"billions": 8.86, "devices": 256},
    draw=pick("devices", (64, 128, 256)),
    choices={"a": "twice as many devices", "b": "sharding the gradients as well", "c": "a larger batch of the step"},
    reasons={
        "1": "the optimizer state on each device is halved",
        "2": "weights and gradients stay whole however many devices there are",
        "3": "the activations are divided among more devices",
        "4": "fewer steps hold fewer gradients",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake(
            "rule for another case",
            lambda _: ("a", None),
            "Count what is left to be halved, and what stays as it is.",
        ),
        Mistake(
            "rule for another case",
            lambda _: (None, "3"),
            "Each device keeps the activations of its own micro-batch; another device's are not its own.",
        ),
    ),
    hints=(
        "How many GiB are weights, gradients, and this device's share of the optimizer state?",
        "8 bytes a parameter stay whole. Is that with the activations already too much?",
        "What stays whole must be divided too; the order says which part is next.",
    ),
    difficulty=2,
    minutes=6,
    source="usp-2385 of the published runs (Ultra-Scale Playbook): 8.86B on 256 H100 with ZeRO-1 failed",
)


# ---------------------------------------------------------------- experts
def _mixture(given: Given, over: Any = None) -> float:
    same = given["devices"] / given["holders"]  # devices that hold the same experts
    experts = given["experts"] / given["holders"] * (KEPT + MOVED / (over or same))
    return float(experts + given["rest"] * (KEPT + MOVED / given["devices"]))


_experts = Number(
    id="constrain.18",
    title="Experts in a group of their own",
    prompt=(
        "Of a mixture's parameters {experts:g} billion are routed experts and {rest:g} billion are not. On {devices} "
        "devices, each holds one {holders}th of the experts (of each layer), and all of the rest. Weights 2, gradients "
        "4, optimizer state 12 bytes; the optimizer state alone is sharded, over all devices that hold the same "
        "parameters. How much state does one device hold?"
    ),
    given={"experts": 45.1, "rest": 1.6, "devices": 16, "holders": 8},
    draw=picks(experts=(28.0, 45.1, 90.0), rest=(1.6, 3.0), devices=(16, 32), holders=(4, 8)),
    answer=_mixture,
    unit="GB",
    mistakes=(
        Mistake("wrong group", lambda g: _mixture(g, over=g["devices"])),
        Mistake("nothing sharded", lambda g: (g["experts"] + g["rest"]) * (KEPT + MOVED / g["devices"])),
        Mistake("everything sharded", lambda g: (g["experts"] + g["rest"]) * (KEPT + MOVED) / g["devices"]),
    ),
    hints=(
        "Do experts and rest apart: for each, what one device holds, and with how many it shares the optimizer state.",
        "If each device has an eighth of the experts, how many of the devices have the same eighth?",
        "Experts: over the holders, times 6 plus 12 over (devices / holders). Rest: times 6 plus 12 over the devices.",
    ),
    difficulty=3,
    minutes=8,
    source="Megatron's parallelism guide: expert state is sharded over the expert data-parallel group",
)


# ---------------------------------------------------------------- a deadline
def _by_time(given: Given, goodput: bool = True) -> float:
    flops = estimate.six_ps_run(parameters=given["billions"] * GB, tokens=given["trillions"] * 1e12)
    share = given["goodput"] if goodput else 1.0
    return float(flops / (given["rate"] * 1e12 * given["days"] * 86400 * share))


_deadline = Number(
    id="constrain.21",
    title="Memory or the deadline",
    prompt=(
        "{billions:g} billion parameters, 18 bytes of state each, all sharded, 83.7 GB for tensors on a device. The "
        "run reads {trillions:g} trillion tokens at {rate:g} TFLOP/s a device by 6PS, makes progress {goodput:.0%} of "
        "the time, and has {days:g} days. How many devices at least?"
    ),
    given={"billions": 70.0, "trillions": 15.0, "rate": 400.0, "goodput": 0.9, "days": 60.0},
    draw=picks(billions=(8.0, 70.0, 405.0), trillions=(2.0, 15.0), days=(30.0, 60.0), goodput=(0.8, 0.9)),
    answer=lambda g: max(math.ceil(_by_time(g)), math.ceil(18 * g["billions"] / 83.7)),
    unit="1",
    mistakes=(
        Mistake(
            "rule for another case",
            lambda g: math.ceil(18 * g["billions"] / 83.7),
            "That many hold the state; the deadline asks for more.",
        ),
        Mistake("goodput forgotten", lambda g: math.ceil(_by_time(g, goodput=False))),
        Mistake("backward forgotten", lambda g: math.ceil(_by_time(g) / 3)),
    ),
    hints=(
        "Two limits, two numbers of devices. Which one holds?",
        "FLOPs of the run over what one device does in the days it makes progress.",
        "6PS over (rate times seconds times goodput), rounded up; compare with 18 P over 83.7 GB.",
    ),
    difficulty=3,
    minutes=8,
    source="the first source document: what must be split to fit, and the time goal",
)

QUESTIONS: tuple[Question, ...] = (_capacity, _first, _optimizer, _fewest, _hybrid, _more, _experts, _deadline)
