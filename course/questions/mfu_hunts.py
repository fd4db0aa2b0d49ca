"""Step 6, bugs to hunt: a program's MFU, its table of peaks, its tokens a second, and a scaling efficiency."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_USE = """
def utilisation(matmul, attention, tokens, rounds, devices, peak, seconds, shards):
    per_token = {factor} * {matmul} + {square} * attention
    return per_token * tokens * {rounds} / ({devices} * peak * seconds)
"""


def _use(**changed: str) -> str:
    right = {"factor": "6", "matmul": "matmul", "square": "12", "rounds": "rounds", "devices": "devices"}
    return _USE.format(**(right | changed))


_hunt_use = BugHunt(
    id="mfu.22",
    title="Bug hunt: a program's MFU",
    prompt=(
        "`utilisation(matmul, attention, tokens, rounds, devices, peak, seconds, shards)` is MFU by full_attention: "
        "`matmul` parameters of the whole model, stored in `shards` parts; `attention` is L a d T; `tokens` of one "
        "micro-batch over all replicas, `rounds` micro-batches a step. Versions of it went wrong in five ways. Write "
        "`test(utilisation)`."
    ),
    function="utilisation",
    good=_use(),
    faults=(
        Fault(_use(rounds="1"), "Accumulate: ask for more than one micro-batch a step."),
        Fault(_use(matmul="(matmul / shards)"), "Store the parameters in several parts."),
        Fault(_use(devices="1"), "Ask for more than one device."),
        Fault(_use(square="6"), "Ask for attention alone, and mind the convention."),
        Fault(_use(factor="8"), "Ask for matmuls alone: model work has three forwards, not four."),
    ),
    hints=(
        "Each argument must change the result in the way you expect. Choose numbers you can do in your head.",
        "Matmuls alone: 6 for one parameter, token, device, second and peak of 1. Attention alone: 12.",
        "Then two devices, two rounds; and two shards, which must change nothing.",
    ),
    difficulty=2,
    minutes=9,
    source="karpathy/nanoGPT#619 (accumulation); NVIDIA-NeMo/RL#933 (shards); MFU-19, MFU-31",
)  # fmt: skip

_PEAK = """
def peak(device, precision, table):
    if device not in table:
        {unknown}
    return table[device][{precision}] {correction}
"""


def _peak(**changed: str) -> str:
    right = {"unknown": "return None", "precision": "precision", "correction": ""}
    return _PEAK.format(**(right | changed))


_hunt_peak = BugHunt(
    id="mfu.23",
    title="Bug hunt: the table of peaks",
    prompt=(
        "`peak(device, precision, table)` looks up a dense peak: `table` maps a device to its dense peaks by "
        'precision, such as {{"A100": {{"bf16": 312, "fp32": 19.5}}}}. For a device it does not list the answer is '
        "None. Versions of it went wrong in four ways. Write `test(peak)`."
    ),
    function="peak",
    good=_peak(),
    faults=(
        Fault(_peak(unknown='return 312'), "Ask for a device that the table does not list."),
        Fault(_peak(unknown="return -1"), "Ask for a device that the table does not list: no number will do."),
        Fault(_peak(correction="* 0.5"), "The table holds dense peaks: nothing is left to halve."),
        Fault(_peak(precision='"bf16"'), "Ask for another precision than bf16."),
    ),
    hints=(
        "What should a program print that does not know its device?",
        "Make a table of one device with two precisions.",
        "Assert both precisions, and None for a name that is not in the table.",
    ),
    difficulty=1,
    minutes=6,
    source="MFU-05, AMD-AGI/Primus#772; MFU-07, karpathy/llm.c#796; MFU-13, allenai/OLMo-core#614; MFU-11",
)  # fmt: skip

_RATE = """
def rate(steps, devices, context):
    tokens = {tokens}
    seconds = {seconds}
    return tokens / seconds / {devices} {context}
"""


def _rate(**changed: str) -> str:
    right = {"tokens": "sum(real for _, real, _ in steps)", "seconds": "sum(time for _, _, time in steps)",
             "devices": "devices", "context": ""}  # fmt: skip
    return _RATE.format(**(right | changed))


_hunt_rate = BugHunt(
    id="mfu.24",
    title="Bug hunt: tokens a second",
    prompt=(
        "`rate(steps, devices, context)` is tokens a second of one device over some steps, each a triple (tokens with "
        "padding, real tokens, seconds) of the whole cluster. Padding does not count. `context` ranks share each "
        "sequence; they are among the devices. Versions of it went wrong in four ways. Write `test(rate)`."
    ),
    function="rate",
    good=_rate(),
    faults=(
        Fault(_rate(tokens="sum(padded for padded, _, _ in steps)"), "Let some tokens be padding."),
        Fault(_rate(seconds="steps[-1][2]"), "Ask for several steps."),
        Fault(_rate(devices="1"), "Ask for more than one device."),
        Fault(_rate(context="/ context"), "Let context ranks share a sequence: no token is lost by that."),
    ),
    hints=(
        "Which of the four faults needs more than one step to show?",
        "Take two steps, some padding, two devices, two context ranks.",
        "Two steps of 10 tokens, 8 of them real, 2 s each, on two devices: 2 tokens/s.",
    ),
    difficulty=1,
    minutes=6,
    source="MFU-35, mosaicml/examples#272; MFU-37, allenai/open-instruct#1032; MFU-39, MFU-41",
)  # fmt: skip

_EFFICIENCY = """
def efficiency(base, run):
    if {same}:
        raise ValueError("not the same work")
    speedup = {speedup}
    return speedup / {ideal}
"""


def _efficiency(**changed: str) -> str:
    right = {"same": 'base["sequences"] != run["sequences"]', "speedup": 'base["seconds"] / run["seconds"]',
             "ideal": '(run["devices"] / base["devices"])'}  # fmt: skip
    return _EFFICIENCY.format(**(right | changed))


_hunt_efficiency = BugHunt(
    id="mfu.25",
    title="Bug hunt: a scaling efficiency",
    prompt=(
        "`efficiency(base, run)` is strong-scaling efficiency; each argument is a dictionary with `devices`, "
        "`sequences` (of a step) and `seconds` (of a step). For different work it raises ValueError. Versions of it "
        "went wrong in four ways. Write `test(efficiency)`."
    ),
    function="efficiency",
    good=_efficiency(),
    faults=(
        Fault(_efficiency(same="False"), "Compare steps with different numbers of sequences."),
        Fault(_efficiency(ideal='run["devices"]'), "Let the baseline have more than one device."),
        Fault(_efficiency(ideal="1"), "Ask for twice the devices: a speedup is no efficiency."),
        Fault(_efficiency(speedup='run["seconds"] / base["seconds"]'), "Let the larger cluster be faster."),
    ),
    hints=(
        "Which baseline would hide that the ideal is wrong?",
        "From 64 to 128 devices, 10 s to 6.25 s: 0.8.",
        "Assert that, and that two steps of different size raise ValueError (try, except, else).",
    ),
    difficulty=2,
    minutes=7,
    source="NVIDIA/DeepLearningExamples#894, horovod/horovod#40: rates of different batches divided",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hunt_use, _hunt_peak, _hunt_rate, _hunt_efficiency)
