"""Step 4, bugs to hunt: the time of a ring, printed rates, tokens for FSDP, and who is in a group."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_TIMES = """
def seconds(collective, ranks, payload, latency, bandwidth):
    halves = {halves}
    chunk = {chunk}
    return halves * {steps} * ({latency} + chunk / bandwidth) + {once}
"""
_RIGHT = {"halves": '2 if collective == "all_reduce" else 1', "chunk": "payload / ranks", "steps": "(ranks - 1)",
          "latency": "latency", "once": "0"}  # fmt: skip


def _version(**changed: str) -> str:
    return _TIMES.format(**{**_RIGHT, **changed})


_hunt_times = BugHunt(
    id="place.16",
    title="Bug hunt: the time of a ring",
    prompt=(
        '`seconds(collective, ranks, payload, latency, bandwidth)` times "all_gather", "reduce_scatter" and '
        '"all_reduce" '
        "on a ring; `payload` is the complete buffer in bytes. Versions of it went wrong in five ways. Write "
        "`test(seconds)`: it passes on the right version and fails on each wrong one."
    ),
    function="seconds",
    good=_version(),
    faults=(
        Fault(_version(steps="1"), "Ask for the time of bytes alone, over more than two ranks: a chunk goes far."),
        Fault(_version(halves="2"), "Hold an all-gather against an all-reduce."),
        Fault(_version(chunk="payload"), "Ask what many ranks send of a buffer: not all of it at every step."),
        Fault(_version(latency="0", once="latency"), "Ask for a payload of nothing over several ranks."),
        Fault(_version(steps="ranks"), "Ask for a ring of one rank, or of two."),
    ),
    hints=(
        "Take numbers you can do in your head: a bandwidth of 1, and then a latency of 1.",
        "Without latency, four ranks and 4 bytes at 1 byte/s: how long does an all-gather take? And an all-reduce?",
        "Three calls: that gather, that all-reduce, and a payload of 0 with a latency of 1.",
    ),
    difficulty=2,
    minutes=10,
    source="COM-23, jax-ml/scaling-book#128 (one chunk for all); COM-03, NVIDIA/nccl-tests#45 (whose size)",
)  # fmt: skip

_LINK = """
def one_way(printed, unit, both_ways, devices):
    scale = {{"Gb/s": {bits}, "GB/s": 1e9, "TB/s": 1e12}}[unit]
    return printed * scale / ({both}) / {devices}
"""


def _link(**changed: str) -> str:
    return _LINK.format(**{"bits": "1e9 / 8", "both": "2 if both_ways else 1", "devices": "devices", **changed})


_hunt_links = BugHunt(
    id="place.17",
    title="Bug hunt: printed rates",
    prompt=(
        '`one_way(printed, unit, both_ways, devices)` turns a printed rate into byte/s one way for one device: '
        '`unit` is '
        '"Gb/s", "GB/s" or "TB/s", `both_ways` says that the two directions were added, `devices` share the figure. '
        "Versions of it went wrong in four ways. Write `test(one_way)`."
    ),
    function="one_way",
    good=_link(),
    faults=(
        Fault(_link(bits="1e9"), "Convert a network card; they are sold in bits."),
        Fault(_link(both="1"), "Convert a figure that adds the two directions."),
        Fault(_link(both="2"), "Convert a figure that is one-way already."),
        Fault(_link(devices="1"), "Convert the figure of a whole node, or of a rack."),
    ),
    hints=(
        "Each argument changes the result. Which call shows each?",
        "Take figures from this lesson: 900 GB/s two-way; 400 Gb/s, a card; 130 TB/s, two-way, 72 devices.",
        "Assert those three; the last must come near 900e9.",
    ),
    difficulty=2,
    minutes=8,
    source="COM-05, open-mpi/hwloc#574 (two-way); COM-09, NVIDIA/nccl#495 (bits); a page that prints 900 GB/s per link",
)  # fmt: skip

_BOUND = """
def tokens_needed(weight_bytes, gradient_bytes, ranks, bandwidth, peak, tensor):
    forward = weight_bytes / 2
    backward = ({gather} + gradient_bytes) / {flops}
    return {phases} * {share} * peak / (bandwidth * {tensor})
"""


def _bound(**changed: str) -> str:
    right = {"gather": "weight_bytes", "share": "(ranks - 1) / ranks", "flops": "4", "tensor": "tensor",
             "phases": "max(forward, backward)"}  # fmt: skip
    return _BOUND.format(**{**right, **changed})


_hunt_bound = BugHunt(
    id="place.28",
    title="Bug hunt: tokens for FSDP",
    prompt=(
        "`tokens_needed(weight_bytes, gradient_bytes, ranks, bandwidth, peak, tensor)` returns the tokens a device at "
        "which FSDP's traffic takes as long as the matmuls that can cover it: weights are gathered in forward and "
        "again in backward, gradients scattered in backward, and no pass covers the other's traffic, so the worse pass "
        "decides. Versions of it went wrong in five ways. Write `test(tokens_needed)`."
    ),
    function="tokens_needed",
    good=_bound(),
    faults=(
        Fault(_bound(gather="0"), "Let gradients have 4 bytes: what else does backward's link carry?"),
        Fault(_bound(share="1"), "Ask for two ranks, or for one."),
        Fault(_bound(flops="2"), "Backward has two matmuls for each of forward: bf16 by hand shows it."),
        Fault(_bound(tensor="1"), "Ask for a tensor degree above 1."),
        Fault(_bound(phases="(2 * forward + 4 * backward) / 6"),
              "Let gradients have another size than weights: the two passes then differ."),
    ),
    hints=(
        "Choose numbers that make the answer easy: bandwidth 1, peak 1, tensor 1, very many ranks.",
        "Forward: 2 bytes over 2 FLOPs. Backward: 2 + 2 bytes over 4 FLOPs. In bf16 both passes give 1 token.",
        "Four calls: that one; two ranks; tensor 2; gradients of 4 bytes.",
    ),
    difficulty=3,
    minutes=10,
    source="a published task gives ZeRO-3 the volume of data parallelism: the gather of backward is missing; COM-19",
)  # fmt: skip

_GROUPS = """
def group(device, axis, degrees, order):
    stride = 1
    for name in {order}:
        if name == axis:
            break
        stride *= degrees[name]
    first = {first}
    return [first + {step} * place for place in range({size})]
"""


def _grouped(**changed: str) -> str:
    right = {"order": "order", "first": "device - device // stride % degrees[axis] * stride", "step": "stride",
             "size": "degrees[axis]"}  # fmt: skip
    return _GROUPS.format(**{**right, **changed})


_hunt_groups = BugHunt(
    id="place.29",
    title="Bug hunt: who is in the group",
    prompt=(
        "`group(device, axis, degrees, order)` lists the devices of `device`'s group along `axis`: `degrees` maps axes "
        "to ranks, `order` names them, innermost first. Versions of it went wrong in four ways. Write `test(group)`."
    ),
    function="group",
    good=_grouped(),
    faults=(
        Fault(_grouped(order="reversed(order)"), "Two axes of different degree: which of them has neighbours at 1?"),
        Fault(_grouped(first="device % stride"), "Ask for a device beyond the first block of an inner axis."),
        Fault(_grouped(step="1"), "Ask for the group of an axis that is not the innermost."),
        Fault(_grouped(first="device"), "Ask for a device that is not the first of its group."),
    ),
    hints=(
        "Take 2 tensor ranks and 3 data ranks, and write the six devices down.",
        "tensor innermost: 0 1 | 2 3 | 4 5. Whose group is 0, 2, 4?",
        "Assert the tensor group of device 3 and the data group of device 3, and one with the order exchanged.",
    ),
    difficulty=2,
    minutes=8,
    source="a guide's table that multiplies expert ranks onto the others; orders of axes differ between programs",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_hunt_times, _hunt_links, _hunt_bound, _hunt_groups)
