"""Step 3, legality: degrees that multiply and divide, whose rule it is, whom a layer stops, and layouts to grade."""

from __future__ import annotations

import math
import random
from typing import Any

from course.explorers.shared import asked
from course.problem import Run
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, LayoutQuestion, Mistake, Number, Question

__all__ = ["QUESTIONS"]

_replicas = Number(
    id="shard.2",
    title="What is left for data",
    prompt=(
        "{devices} devices, tensor {tensor}, pipeline {pipeline}; optimizer state is sharded over groups of {shard} "
        "data-parallel ranks. How many replicas each work on sequences of their own?"
    ),
    given={"devices": 64, "tensor": 4, "pipeline": 2, "shard": 4},
    draw=picks(devices=(256, 512, 1024), tensor=(2, 4, 8), pipeline=(2, 4), shard=(4, 8)),
    answer=lambda x: x["devices"] / (x["tensor"] * x["pipeline"]),
    unit="1",
    mistakes=(
        Mistake("replicas for shards", lambda x: x["devices"] / (x["tensor"] * x["pipeline"] * x["shard"])),
        Mistake("replicas for shards", lambda x: x["devices"] / (x["tensor"] * x["pipeline"]) * x["shard"],
                "The sharding ranks were multiplied in; they are among the data-parallel ranks."),
    ),
    hints=(
        "The degrees multiply to the devices. Which one is not yet given?",
        "A rank that holds a share of the optimizer state still reads its own part of the batch.",
        "Devices over tensor times pipeline.",
    ),
    difficulty=1,
    minutes=3,
    source="LAY-23, PaddlePaddle/PaddleNLP#8164; LAY-15: data parallelism is what is left over",
)  # fmt: skip

_SHAPES = ((16, 2), (32, 4), (64, 4), (28, 4), (24, 2), (48, 4))


def _most(heads: int) -> int:
    """The largest degree up to a node of 8 that divides a number of heads."""
    return max(degree for degree in range(1, 9) if heads % degree == 0)


def _draw_heads(source: random.Random) -> dict[str, Any]:
    heads, shared = source.choice(_SHAPES)
    return {"heads": heads, "shared": shared}


_largest = Number(
    id="shard.3",
    title="The largest tensor degree",
    prompt=(
        "{heads} query heads and {shared} key/value heads, in a program that does not copy heads. What is the largest "
        "legal tensor degree up to 8?"
    ),
    given={"heads": 16, "shared": 2},
    draw=_draw_heads,
    answer=lambda x: float(_most(math.gcd(x["heads"], x["shared"]))),
    unit="1",
    mistakes=(Mistake("query heads alone", lambda x: float(_most(x["heads"]))),),
    hints=(
        "What must each tensor rank hold to compute attention on its own?",
        "Whole query heads, and whole key/value heads.",
        "The largest number that divides both.",
    ),
    difficulty=1,
    minutes=3,
    source="LAY-01, pytorch/torchtitan#2574: it fails later, as an error about shapes",
)

_PAIRS = ((8, 16), (8, 32), (4, 8), (4, 16), (2, 8), (2, 16))


def _draw_copies(source: random.Random) -> dict[str, Any]:
    shared, tensor = source.choice(_PAIRS)
    return {"shared": shared, "tensor": tensor}


_replicated = Number(
    id="shard.8",
    title="Copied key/value heads",
    prompt=(
        "{shared} key/value heads on {tensor} tensor ranks, in a program that copies heads where there are too few. "
        "What share of the key and value matrices does each rank hold?"
    ),
    given={"shared": 8, "tensor": 16},
    draw=_draw_copies,
    answer=lambda x: 1 / x["shared"],
    unit="1",
    mistakes=(
        Mistake("rule for another case", lambda x: 1 / x["tensor"],
                "That would be a part of a head; a rank holds a whole one, and another rank a copy of it."),
        Mistake("nothing sharded", lambda _: 1.0, "Heads are copied only as far as ranks are too many."),
    ),
    hints=(
        "Can a rank work with a part of a head?",
        "A rank holds one whole key/value head; some ranks hold the same one.",
        "One head of all key/value heads.",
    ),
    difficulty=1,
    minutes=3,
    source="LAY-03, vllm-project/vllm-ascend#11886",
)  # fmt: skip

_rounds = Judgement(
    id="shard.17",
    title="Legal where?",
    prompt=(
        "4 stages, an interleaved schedule, 10 micro-batches. One program refuses unless micro-batches are a multiple "
        "of the stages; another makes max(1, micro-batches // stages) rounds and refuses unless the micro-batches "
        "divide by those. Is the layout legal?"
    ),
    choices={
        "a": "no, it cannot be scheduled",
        "b": "in the second program, not in the first",
        "c": "in the first program, not in the second",
        "d": "yes, in both",
    },
    reasons={
        "1": "10 is no multiple of 4, and 4 // 10 is no round",
        "2": "10 divides by its 2 rounds, though not by the 4 stages: the rule belongs to the schedule's program",
        "3": "more micro-batches than stages can always be scheduled",
        "4": "a bubble remains, and a bubble makes a layout illegal",
    },
    answer=lambda _: ("b", "2"),
    mistakes=(
        Mistake("illegal layout", lambda _: ("a", None), "One program's rule was taken for all; name whose it is."),
        Mistake("rule for another case", lambda _: ("c", None), "Try each program's rule with the numbers."),
    ),
    hints=(
        "Apply both rules with the numbers, one after the other.",
        "10 mod 4 is 2. How many rounds does the second program make?",
        "2 rounds; 10 mod 2 is 0.",
    ),
    difficulty=2,
    minutes=4,
    source="LAY-11, pytorch/pytorch#129597",
)

_WHOLE = 2 + 4  # bytes a parameter of a layer at work: its weights in bf16 and its gradients in fp32


def _too_large(given: Given) -> tuple[str, str]:
    """Whose layers do not fit while they work; the ladder divides everything else."""
    wide, thin = (_WHOLE * given[key] > given["room"] for key in ("wide", "thin"))
    return {(True, False): "a", (False, True): "b", (True, True): "c", (False, False): "d"}[wide, thin], "2"


_one_layer = Judgement(
    id="shard.32",
    title="A layer that does not fit",
    prompt=(
        "Two models are to train with ZeRO-3 on 1,024 devices with {room:g} GB of room each, at 18 bytes of state a "
        "parameter: weights 2, gradients 4, optimizer 12. W has {few} layers of {wide:g} billion parameters each, "
        "N has {many} of {thin:g} billion. Layers are gathered and reduced whole, one at a time. Which of the two must "
        "have tensor ranks because of what does not fit while a layer works?"
    ),
    given={"room": 84, "few": 8, "wide": 15.0, "many": 126, "thin": 3.2},
    draw=picks(wide=(11.0, 12.5, 16.0, 18.0), thin=(0.9, 1.6, 3.2)),
    choices={"a": "W alone", "b": "N alone", "c": "both", "d": "neither"},
    reasons={
        "1": "what counts is the state of all layers, and whether one device holds it",
        "2": "what counts are a layer's weights and gradients: whole while it works, the rest divided by the ladder",
        "3": "what counts is the whole state of a layer, its optimizer's included",
        "4": "what counts is that models of this size are trained with tensor ranks",
    },
    answer=_too_large,
    mistakes=(
        Mistake("right for another reason", lambda g: (_too_large(g)[0], "4"),
                "That is a habit. Tensor ranks answer something that does not fit; what is it here?"),
        Mistake("nothing sharded", lambda _: (None, "1"),
                "One device need not hold it: the ladder divides the state of all layers over the ranks."),
        Mistake("nothing sharded", lambda _: (None, "3"),
                "Each rank keeps and renews its own share of the optimizer state; that is never gathered."),
        Mistake("total for per device", lambda _: ("b", None),
                "The larger model need not have the larger layers; only one layer at a time is whole."),
        Mistake("nothing sharded", lambda _: ("c", None),
                "Neither model fits on one device. That is what the ladder is for; look at one layer."),
        Mistake("rule for another case", lambda g: ("d" if _too_large(g)[0] == "a" else "a", None),
                "Multiply each model's layer by the bytes that are whole at once, and compare with the room."),
    ),
    hints=(
        "What does ZeRO-3 divide, and what is whole on every rank for a moment?",
        "The weights of the layer at work, and its gradients until they are reduced: 2 + 4 bytes a parameter.",
        "6 GB for each billion parameters of a layer, against the room; once for each model.",
    ),
    difficulty=2,
    minutes=4,
    source="the first source document: tensor parallelism when one reconstructed layer does not fit on one device",
)  # fmt: skip


def _asked(given: Given) -> Run:
    return asked(given["model"], given["batch"], given["devices"])


_one_node = LayoutQuestion(
    id="shard.25",
    title="Eight billion on one node",
    prompt=(
        "Lay out `{model}` on {devices} H100 of one node: sequences of 8,192 tokens, {batch} a step, state bf16-18. "
        "Give a dictionary of the degrees above 1, `sharding` and `micro_batch`, such as "
        '{{"tensor": 8, "sharding": "zero1"}}. It must be legal, fit, and be within a tenth of the best step time.'
    ),
    given={"model": "llama-3-8b", "batch": 128, "devices": 8},
    run=_asked,
    within=0.10,
    hints=(
        "What does not fit on one device: a layer, or the state of all layers?",
        "A layer fits. So no axis has to split layers; which rung, over 8 ranks, leaves room for activations?",
        "All ranks to data, one sequence at a time. Optimizer state alone is not enough; which rung comes next?",
    ),
    difficulty=2,
    minutes=8,
    source="verl-project/verl#901 and meta-llama/llama-cookbook#89: how to choose the degrees",
)

_four_nodes = LayoutQuestion(
    id="shard.26",
    title="Seventy billion on four nodes",
    prompt=(
        "Lay out `{model}` on {devices} H100, 8 a node: sequences of 8,192 tokens, {batch} a step, state bf16-18. "
        "Give a dictionary as before; `recompute` may be none, selective or full. It must be legal, fit, and be within "
        "a fifth of the best step time."
    ),
    given={"model": "llama-3-70b", "batch": 64, "devices": 32},
    run=_asked,
    within=0.20,
    hints=(
        "State first: 18 bytes for each of 70.6 billion parameters, over 32 devices. What is left for the rest?",
        "Two ways resolve it. Shard all state and recompute; or split layers in the node so that activations fit.",
        "One way: zero3 over all devices, every layer recomputed. The other: 8 tensor ranks and a rung that divides "
        "gradients too.",
    ),
    difficulty=3,
    minutes=12,
    source="LambdaLabsML/distributed-training-guide#37; ray-project/ray#60158: when FSDP alone is enough",
)

_odd_count = LayoutQuestion(
    id="shard.30",
    title="A count with a factor of three",
    prompt=(
        "Lay out `{model}` (126 layers, 128 query and 8 key/value heads) on {devices} H100, 8 a node: sequences of "
        "8,192 tokens, {batch} a step, state bf16-18. {devices} is 3 x 128, and {batch} is no multiple of 3. It must "
        "be legal, fit, and be within 15 % of the best step time."
    ),
    given={"model": "llama-3.1-405b", "batch": 512, "devices": 384},
    run=_asked,
    within=0.15,
    hints=(
        "Which numbers of the model, of the batch or of the devices of a node divide by 3?",
        "Of all of them only the layers: 126 = 3 x 42. So which axis takes the 3? Give the rest to heads and replicas.",
        "3 stages, 4 or 8 tensor ranks, the other devices replicas; a rung that shards gradients; every layer "
        "recomputed.",
    ),
    difficulty=3,
    minutes=12,
    source="LAY-13, karpathy/nanoGPT#354: a count that does not divide; LAY-15: data parallelism is what is left over",
)

QUESTIONS: tuple[Question, ...] = (
    _replicas, _largest, _replicated, _rounds, _one_layer, _one_node, _four_nodes, _odd_count,
)  # fmt: skip
