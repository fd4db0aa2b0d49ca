"""Step 5, memory: what a stage holds by schedule, at a fixed global batch, and a layout that keeps the batch."""

from __future__ import annotations

from course import batch, catalog
from course.problem import Run
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, LayoutQuestion, Mistake, Number, Question
from course.questions.runs import run_on

__all__ = ["QUESTIONS"]


def _one_f(given: Given) -> float:
    held = batch.one_f_one_b_in_flight(micro_batches=given["count"], pipeline=given["stages"], stage=given["stage"])
    return float(held * given["size"] * given["gigabytes"])


_held = Number(
    id="batch.14",
    title="What a stage holds",
    prompt=(
        "{stages} stages, {count} micro-batches of {size} sequences, 1F1B. One sequence leaves {gigabytes:g} GB on a "
        "stage until its backward. GB on stage {stage}, counted from 0?"
    ),
    given={"stages": 8, "count": 32, "size": 2, "gigabytes": 1.5, "stage": 2},
    draw=picks(stages=(8, 12), count=(32, 64), size=(2, 4), gigabytes=(0.5, 1.5), stage=(0, 2, 3)),
    answer=_one_f,
    unit="GB",
    mistakes=(
        Mistake("all micro-batches kept", lambda g: g["count"] * g["size"] * g["gigabytes"]),
        Mistake("micro-batch forgotten", lambda g: _one_f(g) / g["size"]),
        Mistake("stages for gaps",
                lambda g: (g["stages"] - 1 - g["stage"]) * g["size"] * g["gigabytes"],
                "Those it runs ahead by, and the one it works on."),
        Mistake("divided by the stages", lambda g: g["size"] * g["gigabytes"]),
    ),
    hints=(
        "How many forwards has this stage done when its first micro-batch comes back?",
        "One for every stage from here to the last.",
        "Stages minus the stage's number; times sequences; times GB.",
    ),
    difficulty=1,
    minutes=3,
    source="NVIDIA/Megatron-LM#675, its 1F1B side; the step-2 rule that a pipeline cuts state alone",
)  # fmt: skip

_smaller = Judgement(
    id="batch.15",
    title="Halve the micro-batch",
    prompt=(
        "The global batch and the layout stay, and there are more micro-batches than stages. Somebody halves the "
        "micro-batch. What happens to the activations on stage 0?"
    ),
    choices={
        "a": "halved under GPipe and under 1F1B",
        "b": "the same under GPipe, halved under 1F1B",
        "c": "the same under GPipe, doubled under 1F1B",
    },
    reasons={
        "1": "GPipe keeps the whole share of the batch however it is cut; 1F1B keeps as many pieces as there are "
        "stages, and each is half",
        "2": "there are twice as many micro-batches, and each of them is held",
        "3": "a micro-batch is half as large, so whatever holds micro-batches holds half",
    },
    answer=lambda _: ("b", "1"),
    mistakes=(
        Mistake("another schedule", lambda _: ("c", None), "1F1B does not hold all of them. How many does it hold?"),
        Mistake("all micro-batches kept", lambda _: ("a", None), "How many does GPipe hold before and after?"),
    ),
    hints=(
        "Sequences held = micro-batches held times sequences in one.",
        "GPipe: M times B, and M = batch / (replicas times B).",
        "1F1B: stages times B.",
    ),
    difficulty=2,
    minutes=4,
    source="the first source document: more micro-batches can increase activation memory",
)  # fmt: skip


def _ratio(given: Given) -> float:
    stages, chunks, count = given["stages"], given["chunks"], given["count"]
    interleaved = batch.interleaved_in_flight(micro_batches=count, pipeline=stages, stage=0, interleave=chunks)
    return float(interleaved / batch.one_f_one_b_in_flight(micro_batches=count, pipeline=stages, stage=0))


_interleaved = Number(
    id="batch.16",
    title="What interleaving holds",
    prompt=(
        "{stages} stages, {chunks} chunks each, {count} micro-batches, interleaved. How many times the activations of "
        "1F1B does the first stage hold?"
    ),
    given={"stages": 4, "chunks": 2, "count": 8},
    draw=picks(stages=(4, 8), chunks=(2, 4), count=(32, 64)),
    answer=_ratio,
    unit="1",
    relative=0.005,
    mistakes=(
        Mistake("another schedule", lambda _: 1.0, "It runs further ahead: more chunks wait, and a chunk is not free."),
        Mistake("chunks forgotten", lambda g: _ratio(g) * g["chunks"], "A chunk holds a part of the stage's layers."),
    ),
    hints=(
        "The first stage runs ahead by two chunks for each other stage, and a round of stages for each further chunk.",
        "And one is at work. A chunk is a v-th of a stage.",
        "All of these over the chunks, and over the stages, which is what the other schedule holds.",
    ),
    difficulty=2,
    minutes=5,
    source="MEM-15, NVIDIA/Megatron-LM#675",
)  # fmt: skip


def _run(given: Given) -> Run:
    network = catalog.fabric("h100-ib400")
    return run_on(given["model"], given["batch"], 4096, devices=given["devices"], fabric=network)


_layout = LayoutQuestion(
    id="batch.17",
    title="Sixteen sequences, no more",
    prompt=(
        "`{model}` on {devices} H100, nodes of 8, network cards of 400 Gb/s, and a global batch of {batch} sequences "
        "of 4,096 tokens that must be held. Give a dictionary of the degrees above 1, `sharding`, `micro_batch` and, "
        'if needed, `recompute`, `schedule`, `interleave`: for instance {{"tensor": 8, "data": 4}}. It must be legal, '
        "fit, and be within a tenth of the best step time."
    ),
    given={"model": "llama-3-70b", "batch": 16, "devices": 32},
    run=_run,
    within=0.10,
    hints=(
        "Replicas times micro-batch must divide 16 sequences.",
        "With few micro-batches a pipeline idles: compute its bubble before you choose it.",
        "Tensor parallelism inside the node, and state sharded over the replicas.",
    ),
    difficulty=3,
    minutes=10,
    source="LAY-21, pytorch/torchtitan#775: fewer micro-batches than stages",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_held, _smaller, _interleaved, _layout)
