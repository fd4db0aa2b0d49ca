"""Step 5, bugs to hunt: accumulation, a bubble, the loss over micro-batches, and the order of 1F1B."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_ACCUMULATION = """
def accumulation(batch, devices, tensor, pipeline, micro_batch):
    replicas = {replicas}
    at_once = replicas * {size}
    {check}
    return batch // at_once
"""
_CHECK = """if batch % at_once:
        raise ValueError("the batch does not divide")"""


def _accumulation(**changed: str) -> str:
    right = {"replicas": "devices // (tensor * pipeline)", "size": "micro_batch", "check": _CHECK}
    return _ACCUMULATION.format(**{**right, **changed})


_hunt_batch = BugHunt(
    id="batch.22",
    title="Bug hunt: accumulation",
    prompt=(
        "`accumulation(batch, devices, tensor, pipeline, micro_batch)` returns the micro-batches that each replica "
        "accumulates, and raises ValueError where no whole number holds the batch. Versions of it went wrong in five "
        "ways. Write `test(accumulation)`: it passes on the right version and fails on each wrong one."
    ),
    function="accumulation",
    good=_accumulation(),
    faults=(
        Fault(_accumulation(replicas="devices"), "Let tensor ranks or stages share a replica."),
        Fault(_accumulation(replicas="devices // tensor"), "Let a replica have stages."),
        Fault(_accumulation(replicas="devices // pipeline"), "Let a replica have tensor ranks and one stage."),
        Fault(_accumulation(size="1"), "Let the micro-batch hold more than one sequence."),
        Fault(_accumulation(check="pass"), "Ask for a batch that does not divide: another one would be trained."),
    ),
    hints=(
        "Take numbers in which every argument changes the result.",
        "64 devices, tensor 4, pipeline 2: 8 replicas. With micro-batch 2 and a batch of 64?",
        "That is 4. And 40 sequences on 6 devices must raise.",
    ),
    difficulty=2,
    minutes=8,
    source="LAY-13, karpathy/nanoGPT#354 (40 over 6 devices); LAY-23; MFU-17, karpathy/nanoGPT#619",
)  # fmt: skip

_BUBBLE = """
def idle_share(pipeline, chunks, micro_batches):
    waiting = {waiting}
    return {ratio}
"""


def _bubble(**changed: str) -> str:
    right = {"waiting": "(pipeline - 1) / chunks", "ratio": "waiting / (micro_batches + waiting)"}
    return _BUBBLE.format(**{**right, **changed})


_hunt_bubble = BugHunt(
    id="batch.23",
    title="Bug hunt: idle share",
    prompt=(
        "`idle_share(pipeline, chunks, micro_batches)` returns the idle time over all the time, under 1F1B for one "
        "chunk and interleaved for more. Versions of it went wrong in five ways. Write `test(idle_share)`."
    ),
    function="idle_share",
    good=_bubble(),
    faults=(
        Fault(_bubble(ratio="waiting / micro_batches"), "Compare with few micro-batches: the share never exceeds 1."),
        Fault(_bubble(ratio="micro_batches / (micro_batches + waiting)"), "One stage never waits."),
        Fault(_bubble(waiting="pipeline - 1"), "Ask for more than one chunk."),
        Fault(_bubble(waiting="pipeline / chunks"), "Ask for one stage."),
        Fault(_bubble(ratio="waiting / (pipeline * micro_batches)"),
              "Ask for more than one micro-batch; with one chunk and one micro-batch it is right by chance."),
    ),
    hints=(
        "Take cases you can draw: one stage; two stages and one micro-batch.",
        "One stage: 0. Two stages, one micro-batch: half. Three, two chunks, three micro-batches?",
        "0, 1/2, and 1/(3 + 1).",
    ),
    difficulty=2,
    minutes=8,
    source="PIP-01; PIP-03; a lab whose reading prints (PP - 1)/(PP m)",
)  # fmt: skip

_LOSS = """
def step_loss(losses):
    total = {total}
    return total / {count}
"""


def _loss(**changed: str) -> str:
    right = {"total": "sum(sum(one) for one in losses)", "count": "sum(len(one) for one in losses)"}
    return _LOSS.format(**{**right, **changed})


_hunt_loss = BugHunt(
    id="batch.24",
    title="Bug hunt: the loss of a step",
    prompt=(
        "`step_loss(losses)` takes the losses of the tokens of each accumulated micro-batch, a list of lists, and "
        "returns the mean over all tokens of the step, which is what one large batch would give. Versions of it went "
        "wrong in four ways. Write `test(step_loss)`."
    ),
    function="step_loss",
    good=_loss(),
    faults=(
        Fault(_loss(total="sum(sum(one) / len(one) for one in losses)", count="len(losses)"),
              "Give two micro-batches different numbers of tokens."),
        Fault(_loss(total="sum(sum(one) / len(one) for one in losses)", count="1"), "Accumulate more than one."),
        Fault(_loss(count="(len(losses) * len(losses[0]))"), "Let the first micro-batch be the shortest or longest."),
        Fault(_loss(total="sum(losses[-1])", count="len(losses[-1])"), "Let an earlier micro-batch have another loss."),
    ),
    hints=(
        "When are the mean of means and the mean over all the same? Avoid that case.",
        "One micro-batch of one token with loss 4, one of three tokens with loss 0.",
        "The mean is 1. Means of means give 2.",
    ),
    difficulty=2,
    minutes=8,
    source="huggingface/transformers#24725 and #34191; meta-pytorch/torchtune#1875",
)  # fmt: skip

_ORDER = """
def order(stages, micro_batches, stage):
    ahead = {ahead}
    work = ["F" + str(m) for m in range(ahead)]
    for m in range(micro_batches - ahead):
        work += {pair}
    return work + ["B" + str(m) for m in range({left}, micro_batches)]
"""


def _order(**changed: str) -> str:
    right = {"ahead": "min(stages - 1 - stage, micro_batches)", "pair": '["F" + str(ahead + m), "B" + str(m)]',
             "left": "micro_batches - ahead"}  # fmt: skip
    return _ORDER.format(**{**right, **changed})


_hunt_order = BugHunt(
    id="batch.25",
    title="Bug hunt: the order of 1F1B",
    prompt=(
        "`order(stages, micro_batches, stage)` lists the work of a stage under 1F1B, such as `['F0', 'F1', 'B0', 'F2', "
        "'B1', 'B2']` for stage 0 of 2 and 3 micro-batches; all are counted from 0. Versions of it went wrong in five "
        "ways. Write `test(order)`."
    ),
    function="order",
    good=_order(),
    faults=(
        Fault(_order(ahead="min(stages - stage, micro_batches)"), "Look at the last stage: it turns round at once."),
        Fault(_order(ahead="min(stages - 1, micro_batches)"), "Look at more than one stage."),
        Fault(_order(ahead="stages - 1 - stage"), "Ask for fewer micro-batches than stages."),
        Fault(_order(pair='["B" + str(m), "F" + str(ahead + m)]'), "Which forward comes before the first backward?"),
        Fault(_order(left="micro_batches"), "Count the backwards: as many as forwards."),
    ),
    hints=(
        "Write the lists of two stages and three micro-batches down.",
        "Stage 0: F0 F1 B0 F2 B1 B2. Stage 1: F0 B0 F1 B1 F2 B2.",
        "And one micro-batch on three stages: F0 B0 on each.",
    ),
    difficulty=2,
    minutes=8,
    source="PIP-11; a drawing that starts a backward before its forward has passed",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hunt_batch, _hunt_bubble, _hunt_loss, _hunt_order)
