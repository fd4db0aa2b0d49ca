"""The four questions a plan must answer, each in one sentence and one number."""

from __future__ import annotations

import math
from typing import Any

from course.answer.facts import AXES, Facts
from course.answer.words import gib, listed, number, percent
from course.constrain import limits
from course.estimate import count
from course.sweep import TIE

WHAT = {
    "tensor": "activations gathered and scattered in every layer",
    "context": "keys and values passed to the ranks that share a sequence, in every layer",
    "expert": "tokens sent to their experts and back, in every layer that has them",
    "pipeline": "activations sent from stage to stage",
    "data": "gradients reduced and weights gathered",
}
UNSHARDED = "gradients reduced"


def four_questions(facts: Facts) -> list[dict[str, Any]]:
    """Question, answer, number and unit of each; the number is None where nothing fits."""
    rows = [
        ("What must be split to fit in memory?", *_split(facts)),
        ("Which communication does the split add?", *_traffic(facts)),
        ("Which links carry it?", *_links(facts)),
        ("Do more devices make it cheaper, or only faster?", *_cheaper(facts)),
    ]
    return [dict(zip(("question", "answer", "number", "unit"), row, strict=True)) for row in rows]


def _split(facts: Facts) -> tuple[str, float | None, str]:
    run = facts.run
    have = run.cluster.accelerator.memory_bytes
    state = count(run.model).total * run.training.state.total
    least = max(1, math.ceil(state / have))
    failing = [limit for limit in limits(run) if not limit.fits]
    if least > 1:
        sentence = (
            f"The model state of {gib(state)}: by state alone {least:,} devices at least must share it at "
            f"{gib(have)} each."
        )
    elif failing:
        sentence = (
            f"Not the state, which fits on 1 device, but {failing[0].name}: {gib(failing[0].need)} of {gib(have)}."
        )
    else:
        sentence = "Nothing must be split: 1 device holds state and activations."
    return sentence, float(least), "devices"


def _traffic(facts: Facts) -> tuple[str, float | None, str]:
    unit = "GB sent by a device in a step"
    if facts.best is None:
        return "No layout is left, so there is no traffic to count.", None, unit
    sent = {axis: value for axis, value in facts.sent_bytes().items() if value > 0}
    whole = sum(sent.values()) / 1e9
    if not sent:
        return "None: nothing is split, and a device sends 0 GB.", 0.0, unit
    what = WHAT | ({"data": UNSHARDED} if facts.best["layout"]["sharding"] == "none" else {})
    parts = [
        f"{axis} {number(value / 1e9)} ({what[axis]})"
        for axis, value in sorted(sent.items(), key=lambda pair: -pair[1])
    ]
    return f"A device sends {number(whole)} GB a step: {listed(parts)}.", whole, unit


def _links(facts: Facts) -> tuple[str, float | None, str]:
    unit = "share of the bytes that stay inside a node"
    if facts.best is None:
        return "No layout is left, so no link carries anything.", None, unit
    sent = facts.sent_bytes()
    whole = sum(sent.values())
    if not whole:
        return "None: nothing is sent.", None, unit
    used = [axis for axis in AXES if sent[axis] > 0]
    within = [axis for axis in used if not facts.crosses(axis)]
    across = [axis for axis in used if facts.crosses(axis)]
    share = sum(sent[axis] for axis in within) / whole
    if not across:
        return (
            f"The fast links inside a node carry {percent(share)} of it: {listed(within)} never leave a node.",
            share,
            unit,
        )
    if not within:
        return f"The network carries {listed(across)}: {percent(share)} of the bytes stay inside a node.", share, unit
    sentence = (
        f"The fast links inside a node carry {percent(share)} of the bytes ({listed(within)}), the "
        f"network {listed(across)}."
    )
    return sentence, share, unit


def _cheaper(facts: Facts) -> tuple[str, float | None, str]:
    """Device time of this many devices over that of half as many, each with its own recommended layout."""
    unit = "device-hours over those of the best layout on half the devices"
    devices = facts.run.cluster.devices
    if facts.best is None:
        return "No layout is left, so there is nothing to compare.", None, unit
    if devices % 2:
        odd = "One device has" if devices == 1 else f"{devices:,} devices have"
        return f"{odd} no half to compare with.", None, unit
    half = facts.half
    if half is None or not half.fitting:
        held = " with the fields held" if facts.held else ""
        return f"More devices are the only way: on {devices // 2:,} no layout{held} is legal and fits.", None, unit
    speedup = float(half.values["time_s"][0]) / facts.best["step"]["time_s"]
    ratio = 2 / speedup
    if ratio > 1.005:
        verdict = "only faster, not cheaper" if speedup > 1 else "neither faster nor cheaper"
    elif ratio < 1 - TIE:
        verdict = "faster and cheaper"
    else:
        verdict = f"faster at about the same price (less than {percent(TIE)} apart counts as equal)"
    against = (
        f"against {devices // 2:,} devices a step is {speedup:.2f} times as fast for {ratio:.2f} times the device-hours"
    )
    return f"{verdict.capitalize()}: {against}.", ratio, unit
