"""Step 2, bug hunts: faults that real calculators and users made, in functions written for this course."""

from __future__ import annotations

from course.questions.kinds import BugHunt, Fault, Question

__all__ = ["QUESTIONS"]

_FITS = '''def fits(plan_gb, reported_mib, margin_gb):
    """Whether a plan in decimal GB, and a margin, fit into what a tool reports in MiB."""
    return plan_gb + margin_gb <= {capacity}
'''

_units = BugHunt(
    id="constrain.16",
    title="GB and MiB",
    prompt=(
        "`fits(plan_gb, reported_mib, margin_gb)` says whether a plan in decimal GB fits into the memory a tool "
        "reports in MiB, with a margin in GB kept free. Write `test(fits)`: it passes on the right version and fails "
        "on every faulty one."
    ),
    function="fits",
    good=_FITS.format(capacity="reported_mib * 2**20 / 1e9"),
    faults=(
        Fault(
            _FITS.format(capacity="reported_mib / 1024"),
            "One version compares GB with GiB. Choose a plan between the two.",
        ),
        Fault(
            _FITS.format(capacity="reported_mib * 1e6 / 1e9"),
            "One version takes a MiB for a million bytes. Choose a plan between the two.",
        ),
        Fault(
            _FITS.format(capacity="reported_mib * 2**20 / 1e9 + margin_gb"),
            "One version ignores the margin. Choose a plan that fits only without it.",
        ),
    ),
    hints=(
        "For each way to get units wrong, look for a plan on which right and wrong disagree.",
        "81,559 MiB are 85.5 GB, 79.6 GiB, and 81.6 if a MiB were a million bytes.",
        "83 GB with a margin of 2 fits; 84 with a margin of 2 does not.",
    ),
    difficulty=2,
    minutes=8,
    source="MEM-21, modal-labs/modal-client#2797",
)

_CHECKPOINT = '''def recomputed(tokens, layers, input_bytes, layer_bytes):
    """Activation bytes under full recomputation: bytes a token of a layer's input, and of a whole layer."""
    return tokens * ({bytes})
'''

_full = BugHunt(
    id="constrain.17",
    title="What full recomputation keeps",
    prompt=(
        "`recomputed(tokens, layers, input_bytes, layer_bytes)` gives the activation bytes under full recomputation: "
        "every layer keeps its input, one at a time is whole. Write `test(recomputed)`: it passes on the right version "
        "and fails on every faulty one."
    ),
    function="recomputed",
    good=_CHECKPOINT.format(bytes="layers * input_bytes + layer_bytes"),
    faults=(
        Fault(
            _CHECKPOINT.format(bytes="layers * layer_bytes"),
            "One version keeps every layer whole, as if nothing were recomputed.",
        ),
        Fault(
            _CHECKPOINT.format(bytes="layers * input_bytes"),
            "One version forgets that the layer at work is whole.",
        ),
        Fault(
            _CHECKPOINT.format(bytes="input_bytes + layer_bytes"),
            "One version keeps a single input. Use more than one layer.",
        ),
    ),
    hints=(
        "Small numbers that differ from each other do; count the right answer by hand.",
        "A test with one layer cannot tell them apart.",
        "10 tokens, 3 layers, 2 and 7 bytes: 10 (3 · 2 + 7).",
    ),
    difficulty=1,
    minutes=6,
    source="EleutherAI's public calculator keeps 34 bytes s b h under full checkpointing, which keeps 2",
)

_STAGES = '''def fullest(stage_layers, layer, table, head):
    """Parameters of the fullest pipeline stage; the table is on the first stage, the head on the last."""
    held = [layers * layer for layers in stage_layers]
    {ends}
    return {result}
'''
_BOTH = "held[0] += table; held[-1] += head"

_heaviest = BugHunt(
    id="constrain.22",
    title="The fullest stage",
    prompt=(
        "`fullest(stage_layers, layer, table, head)` gives the parameters of the fullest stage of a pipeline: layers "
        "of each stage, parameters of a layer, of the input table (on the first stage) and of the output head (on the "
        "last). Write `test(fullest)`: it passes on the right version and fails on every faulty one."
    ),
    function="fullest",
    good=_STAGES.format(ends=_BOTH, result="max(held)"),
    faults=(
        Fault(
            _STAGES.format(ends=_BOTH, result="sum(held) / len(held)"),
            "One version gives the average. Stages that differ show it.",
        ),
        Fault(
            _STAGES.format(ends="held[0] += table", result="max(held)"),
            "One version forgets the head. Let the last stage be the fullest because of it.",
        ),
        Fault(
            _STAGES.format(ends="held[-1] += head", result="max(held)"),
            "One version forgets the table. Let the first stage be the fullest because of it.",
        ),
        Fault(
            _STAGES.format(ends=_BOTH, result="held[0]"),
            "One version takes the first stage for the fullest.",
        ),
    ),
    hints=(
        "One case will not catch all: the table shows on the first stage, the head on the last.",
        "Take one pipeline whose last stage is fullest, and one whose first is.",
        "Stages [1, 2, 2, 3] of 1000 with ends of 500; and [2, 2] with a table of 700 and a head of 300.",
    ),
    difficulty=2,
    minutes=8,
    source="MEM-09, NVIDIA-NeMo/Megatron-Bridge#5077: fit is decided by the worst stage, not by total over stages",
)

QUESTIONS: tuple[Question, ...] = (_units, _full, _heaviest)
