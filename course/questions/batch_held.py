"""Step 5, the batch: tokens of a step, accumulation, and comparisons that do not hold the work."""

from __future__ import annotations

from course import batch
from course.questions.draws import picks
from course.questions.kinds import Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

_tokens = Number(
    id="batch.1",
    title="Tokens of a step",
    prompt=(
        "{devices} devices, replicas of {group} devices each. A replica works on {micro_batch} sequences of {length:,} "
        "tokens at once and accumulates {accumulation} micro-batches. Tokens of one optimizer step, in millions?"
    ),
    given={"devices": 256, "group": 32, "micro_batch": 2, "length": 8192, "accumulation": 16},
    draw=picks(devices=(128, 256, 512), group=(8, 16, 32), micro_batch=(1, 2, 4), length=(2048, 4096, 8192),
               accumulation=(6, 12, 24)),
    answer=lambda g: batch.tokens_per_step(data=g["devices"] // g["group"], micro_batch=g["micro_batch"],
                                           sequence_length=g["length"], accumulation=g["accumulation"]) / 1e6,
    unit="1",
    mistakes=(
        Mistake("accumulation forgotten",
                lambda g: g["devices"] // g["group"] * g["micro_batch"] * g["length"] / 1e6),
        Mistake("devices for replicas",
                lambda g: g["devices"] * g["micro_batch"] * g["length"] * g["accumulation"] / 1e6),
        Mistake("per device for total",
                lambda g: g["micro_batch"] * g["length"] * g["accumulation"] / 1e6,
                "That is what one replica contributes; the others see other sequences."),
    ),
    hints=(
        "How many replicas are there? They see different sequences.",
        "A replica takes its micro-batch as often as it accumulates.",
        "Replicas times micro-batch times accumulated micro-batches times tokens of a sequence.",
    ),
    difficulty=1,
    minutes=3,
    source="the first source document; karpathy/nanoGPT#619 (MFU-17)",
)  # fmt: skip

_accumulate = Number(
    id="batch.2",
    title="A recipe on fewer devices",
    prompt=(
        "A recipe was tuned for a global batch of {batch} sequences. You have {gpus} GPUs, a replica on each, and "
        "{micro_batch} sequences fit at once. How many micro-batches does each accumulate?"
    ),
    given={"batch": 512, "gpus": 2, "micro_batch": 4},
    draw=picks(batch=(384, 768, 1536), gpus=(3, 6, 12), micro_batch=(2, 4, 8)),
    answer=lambda g: batch.accumulation(
        global_batch_sequences=g["batch"], data=g["gpus"], micro_batch=g["micro_batch"]),
    unit="1",
    relative=1e-6,
    mistakes=(
        Mistake("micro-batch forgotten", lambda g: g["batch"] / g["gpus"]),
        Mistake("per device for total", lambda g: g["batch"] / g["micro_batch"],
                "Each GPU takes its own part of the batch."),
    ),
    hints=(
        "How many sequences do all GPUs take at once?",
        "That must come as often as the batch asks for.",
        "Batch over (GPUs times micro-batch).",
    ),
    difficulty=1,
    minutes=2,
    source="LAY-25, huggingface/alignment-handbook#50",
)  # fmt: skip

_sharded = Number(
    id="batch.3",
    title="Who sees another batch",
    prompt=(
        "{devices} cards: tensor {tensor}, pipeline {pipeline}, and {sharding} ranks that shard the optimizer. Each "
        "replica works on {micro_batch} sequences at once and accumulates {accumulation} micro-batches. Sequences of "
        "one step?"
    ),
    given={"devices": 64, "tensor": 4, "pipeline": 2, "sharding": 4, "micro_batch": 1, "accumulation": 8},
    draw=picks(devices=(64, 128), tensor=(2, 4), pipeline=(2, 4), sharding=(4,), accumulation=(4, 8, 16)),
    answer=lambda g: g["devices"] // (g["tensor"] * g["pipeline"]) * g["micro_batch"] * g["accumulation"],
    unit="1",
    relative=1e-6,
    mistakes=(
        Mistake("replicas for shards",
                lambda g: g["devices"] // (g["tensor"] * g["pipeline"] * g["sharding"]) * g["micro_batch"]
                * g["accumulation"]),
        Mistake("devices for replicas", lambda g: g["devices"] * g["micro_batch"] * g["accumulation"]),
    ),
    hints=(
        "Which of the ranks work on the same sequences together?",
        "Ranks that shard state still bring sequences of their own.",
        "Devices over (tensor times pipeline), times what a replica takes in a step.",
    ),
    difficulty=2,
    minutes=4,
    source="LAY-23, PaddlePaddle/PaddleNLP#8164",
)  # fmt: skip

_cheat = Judgement(
    id="batch.4",
    title="Which table is honest",
    prompt=(
        "Three tables compare a plan on 64 devices with one on 128, sequences of 4,096 tokens. (a) 8 replicas, "
        "micro-batch 2, 16 micro-batches; 16 replicas, 2, 16: same step time, so twice the speed. (b) 8 replicas, 2, "
        "16; 16 replicas, 2, 8: 0.55 of the step time, 1.8 times. (c) 8 replicas, 2, 16; 16 replicas, micro-batch 1 of "
        "sequences of 8,192, 8 micro-batches: 0.53 of the step time. Which is a speedup of the same training?"
    ),
    choices={"a": "table a", "b": "table b", "c": "table c"},
    reasons={
        "1": "its devices are equally busy before and after",
        "2": "its steps have the same tokens",
        "3": "its steps have the same sequences of the same length",
        "4": "its step time is the same",
    },
    answer=lambda _: ("b", "3"),
    mistakes=(
        Mistake("another global batch", lambda _: ("a", None),
                "How many sequences has a step of the second plan? Fewer updates are made for the same tokens."),
        Mistake("rule for another case", lambda _: ("c", None),
                "Tokens agree. Does attention do the same for a token, and are sequences what they were?"),
        Mistake("right for another reason", lambda _: ("b", "2"), "Another table has the same tokens as well."),
    ),
    hints=(
        "Multiply: replicas, micro-batch, accumulation, tokens of a sequence. For both plans of each table.",
        "Two tables agree in tokens. In which do sequences agree as well?",
        "A sequence twice as long is another task for attention, and another position table.",
    ),
    difficulty=2,
    minutes=5,
    source="the first source document: comparing layouts with different global batches",
)  # fmt: skip

_saved = Number(
    id="batch.5",
    title="What accumulation saves",
    prompt=(
        "A step of one micro-batch takes {one} s. With {count} accumulated it takes {many} s. Each replica holds its "
        "whole gradient, so the update and what is not hidden of the reduction are paid once a step: how many seconds?"
    ),
    given={"one": 110.2, "count": 4, "many": 430.6},
    answer=lambda g: (g["count"] * g["one"] - g["many"]) / (g["count"] - 1),
    unit="s",
    relative=0.02,
    mistakes=(
        Mistake("accumulation forgotten", lambda g: g["many"] - g["one"]),
        Mistake("stages for gaps", lambda g: (g["count"] * g["one"] - g["many"]) / g["count"],
                "The accumulated step pays it once; four separate ones pay it three times more."),
    ),
    hints=(
        "Write both times as work of a micro-batch, w, and what is paid once, u.",
        "w + u is the first; 4 w + u the second.",
        "Subtract the second from four times the first: u is left three times.",
    ),
    difficulty=2,
    minutes=4,
    source="COM-17, NVIDIA/cosmos-framework#161",
)  # fmt: skip
QUESTIONS: tuple[Question, ...] = (_tokens, _accumulate, _sharded, _cheat, _saved)
