"""Step 3, bugs to hunt: faults of real programs and guides, written anew."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_REPLICAS = """
def replicas(devices, tensor, pipeline, context, expert):
    {body}
"""


def _replicas(body: str = "return devices // (tensor * pipeline * context)") -> str:
    return _REPLICAS.format(body=body)


_grid = BugHunt(
    id="shard.19",
    title="How many replicas",
    prompt=(
        "`replicas(devices, tensor, pipeline, context, expert)` returns the data-parallel degree of a run whose "
        "experts are folded into the other ranks. A widely read guide multiplied the expert degree in; two other "
        "versions forget an axis. Write `test(replicas)`: it passes on the right one and fails on each wrong one."
    ),
    function="replicas",
    good=_replicas(),
    faults=(
        Fault(_replicas("return devices // (tensor * pipeline * context * expert)"), "Ask about a run with experts."),
        Fault(_replicas("return devices // (tensor * pipeline)"), "Ask about a run whose sequences are split."),
        Fault(_replicas("return devices // (tensor * context)"), "Ask about a run with stages."),
    ),
    hints=(
        "One call can find all three, if every degree in it is above 1.",
        "1,024 devices, tensor 2, pipeline 16, expert 64: the guide's own example. What would its product be?",
        "Choose different degrees, 2, 4 and so on, so that no two wrong products agree with the right one.",
    ),
    difficulty=2,
    minutes=6,
    source="Megatron's parallelism guide: total GPUs = TP x PP x CP x EP x DP, beside a table that contradicts it",
)

_MEMORY = """
def memory(parameters, tensor, pipeline, data, stage):
    own = parameters / (tensor * pipeline)
    weights, gradients, optimizer = 2 * own, 4 * own, 12 * own
    {body}
    return weights + gradients + optimizer
"""
_RIGHT = """if stage >= 1:
        optimizer /= data
    if stage >= 2:
        gradients /= data
    if stage >= 3:
        weights /= data"""


def _memory(old: str = "", new: str = "") -> str:
    return _MEMORY.format(body=_RIGHT.replace(old, new) if old else _RIGHT)


_calculator = BugHunt(
    id="shard.20",
    title="A memory calculator",
    prompt=(
        "`memory(parameters, tensor, pipeline, data, stage)` returns the bytes of state on a device (2 of weight, 4 of "
        "gradient, 12 of optimizer state a parameter; `stage` 0 to 3 is the rung of ZeRO). Four versions that people "
        "used were wrong. Write `test(memory)`."
    ),
    function="memory",
    good=_memory(),
    faults=(
        Fault(_memory("weights /= data", "weights /= data * tensor"), "Ask at stage 3, with tensor ranks."),
        Fault(
            _memory().replace("4 * own, 12 * own", "4 * parameters, 12 * parameters"),
            "Ask at stage 0, with tensor or pipeline ranks.",
        ),
        Fault(_memory("stage >= 2", "stage >= 4"), "Ask at stage 2."),
        Fault(_memory("optimizer /= data", "optimizer /= data * tensor"), "Ask at stage 1, with tensor ranks."),
    ),
    hints=(
        "Each stage divides one part more. How many calls does that make at least?",
        "With tensor, pipeline and data all above 1 a part that is divided twice, or not, shows.",
        "Four calls, stage 0 to 3, say 8 parameters over tensor 2, pipeline 2, data 2: count each by hand.",
    ),
    difficulty=3,
    minutes=10,
    source="EleutherAI calc_transformer_mem.py: divided twice, or not at all; deepspeedai/DeepSpeed#5099",
)  # fmt: skip

_TRAFFIC = """
def traffic(stage, parameters, ranks, micro_batches, gradient_bytes):
    gather, scatter = 2 * parameters, gradient_bytes * parameters
    {body}
    return sent * (ranks - 1) / ranks
"""
_RUNGS = """sent = {
        0: 2 * scatter,
        1: scatter + gather,
        2: micro_batches * scatter + gather,
        3: micro_batches * (2 * gather + scatter),
    }[stage]"""


def _traffic(old: str = "", new: str = "") -> str:
    return _TRAFFIC.replace("{body}", _RUNGS.replace(old, new) if old else _RUNGS)


_ladder = BugHunt(
    id="shard.21",
    title="Traffic of the ladder",
    prompt=(
        "`traffic(stage, parameters, ranks, micro_batches, gradient_bytes)` returns the bytes a rank sends in a step: "
        "stage 0 is plain data parallelism, 1 to 3 the rungs of ZeRO, weights travel in 2 bytes. Five wrong versions "
        "are about. Write `test(traffic)`."
    ),
    function="traffic",
    good=_traffic(),
    faults=(
        Fault(_traffic("2 * gather + scatter", "gather + scatter"), "How often does stage 3 gather?"),
        Fault(_traffic("3: micro_batches * (2 * gather + scatter)", "3: 2 * gather + scatter"),
              "Ask about stage 3 with several micro-batches."),
        Fault(_traffic("2: micro_batches * scatter + gather", "2: scatter + gather"),
              "Ask about stage 2 with several micro-batches."),
        Fault(_traffic().replace("gather, scatter = 2 *", "gather, scatter = gradient_bytes *"),
              "Ask with gradients that are wider than the weights."),
        Fault(_traffic().replace("(ranks - 1) / ranks", "ranks"), "How much does a rank send when there is one?"),
    ),
    hints=(
        "Which arguments must differ from 1, or from 2, for each fault to show?",
        "Use 3 micro-batches and 4-byte gradients in every call; then no two rungs agree.",
        "Stages 1 to 3 with 12 parameters, 4 ranks, 3 micro-batches, 4 bytes: 54, 126, 216.",
    ),
    difficulty=3,
    minutes=10,
    source="mlsys-lab, task sys-model-zero-3-comm-vs-dp; COM-19; COM-15",
)  # fmt: skip

_SIZES = """
def sizes(layers, stages):
    {body}
"""


def _sizes(body: str) -> str:
    return _SIZES.format(body=body)


_stages = BugHunt(
    id="shard.27",
    title="Layers that are lost",
    prompt=(
        "`sizes(layers, stages)` returns how many layers each stage builds, the first stages taking one more where "
        "they do not divide. Two programs trained a smaller model without an error; a third put everything that was "
        "left over on one stage. Write `test(sizes)`."
    ),
    function="sizes",
    good=_sizes("return [layers // stages + (stage < layers % stages) for stage in range(stages)]"),
    faults=(
        Fault(_sizes("return [layers // stages for _ in range(stages)]"), "Ask with layers that do not divide."),
        Fault(
            _sizes("return [layers // stages + (0 < stage < layers % stages) for stage in range(stages)]"),
            "Every layer must be built once: what do the sizes add up to?",
        ),
        Fault(
            _sizes("return [layers // stages + (stage == 0) * (layers % stages) for stage in range(stages)]"),
            "How large may the largest stage be?",
        ),
    ),
    hints=(
        "What must the sizes add up to, and how far may they lie apart?",
        "30 layers on 4 stages: 28 would be built by whole division.",
        "Compare with [8, 8, 7, 7], and with [4, 3, 3] for 10 layers on 3 stages.",
    ),
    difficulty=2,
    minutes=6,
    source="LAY-07, NVIDIA/Megatron-LM#1304; LAY-09, ml-explore/mlx-lm#1688",
)

QUESTIONS: tuple[Question, ...] = (_grid, _calculator, _ladder, _stages)
