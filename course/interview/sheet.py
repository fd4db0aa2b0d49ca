"""The eight-step sheet as data: what each step asks for, in which unit, and with which choices.

An answer sheet is a mapping step -> field -> value: numbers in the field's unit, choices by key, sets as tuples of
keys, free text as it came. What is left out is None. Reasons are statements to pick from; they stand in `statements`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course.interview.prompts import LEVELS
from course.interview.study import AXES, Study
from course.interview.twists import CLAIMS

__all__ = ["SHEET", "Answers", "Field", "Step", "asked_fields", "empty"]

Answers = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Field:
    """One blank of the sheet.

    `kind` is number, whole, choice, several (keys of `choices`), order (axes), fates (axis -> key), grid (field ->
    values), reasons (up to two statements) or text (kept, not graded). `weight` is what it counts; `group` is
    "number", "layout" or "reason".
    """

    name: str
    kind: str
    asks: str
    unit: str = ""
    choices: Mapping[str, str] | None = None
    weight: float = 1.0
    group: str = "number"


@dataclass(frozen=True)
class Step:
    """One step: its name, what the interviewer asks, the minutes it may take, its blanks."""

    name: str
    asks: str
    minutes: int
    fields: tuple[Field, ...]


def _number(name: str, asks: str, unit: str) -> Field:
    return Field(name, "number", asks, unit)


def _whole(name: str, asks: str, weight: float = 1.0, group: str = "layout") -> Field:
    return Field(name, "whole", asks, weight=weight, group=group)


def _choice(name: str, asks: str, choices: Mapping[str, str], weight: float = 2.0, group: str = "reason") -> Field:
    return Field(name, "choice", asks, choices=choices, weight=weight, group=group)


def _why(step: str, asks: str = "Say why: up to two of these, those you would say aloud.") -> Field:
    return Field(f"why_{step}", "reasons", asks, choices=None, weight=4.0, group="reason")


def _notes(step: str) -> Field:
    return Field(f"notes_{step}", "text", "In your own words (kept, not graded).", weight=0.0, group="reason")


LIMITS = {
    "optimizer state": "the model state does not fit whole", "activations": "the activations of one sequence",
    "one layer": "one layer with its activations", "time": "nothing in memory: the time goal is first",
}  # fmt: skip
FAR = {
    "optimizer state": "the optimizer state: weights and gradients fit", "gradients": "the gradients too: weights fit",
    "weights": "the weights too: one layer fits", "one layer": "even one layer must be cut",
    "activations": "no state: activations alone must shrink", "time": "nothing",
}  # fmt: skip
FATES = {
    "hidden": "adds less than 3 % of the step", "partly": "hides in part and adds more than that",
    "exposed": "most of it adds to the step", "none": "the axis is 1, or sends nothing",
}  # fmt: skip
ADVANCED = {
    "check_route", "how_far", "one_layer", "crosses", "busiest_bytes", "tokens_per_step", "convention", "check_days",
    "held", "stop",
}  # fmt: skip
"""Blanks that only the third level asks for: the other two leave time to talk."""


SHEET: tuple[Step, ...] = (
    Step("estimate", "What does it need: parameters, FLOPs, state, activations?", 8, (
        _choice("doubt",
                "Is something you were told wrong? One answer will do; a data sheet quoted as its vendor prints it is "
                "not wrong.", CLAIMS, 4.0),
        _number("parameters", "Parameters of the model.", "parameters"),
        _choice("check_route", "How did you check that count by a second route?", {
            "shapes": "widths of a layer times layers, plus tables, against the number in the name",
            "again": "by the same figure once more",
            "tokens": "tokens over 20, as in compute-optimal training", "none": "not checked",
        }),
        _number("check_parameters", "What the other count gave.", "parameters"),
        _number("flops", "FLOPs of the whole run: attention whole, nothing twice.", "FLOP"),
        _number("peak", "Peak of one device that you will divide by.", "TFLOP/s"),
        _number("state_bytes", "Bytes of model state a parameter.", "bytes"),
        _number("state", "Model state in all.", "GB"),
        _number("activations", "Activations of one sequence, all layers, nothing recomputed.", "GiB"),
        _why("estimate"), _notes("estimate"),
    )),
    Step("constrain", "What does not fit, and what is the first limit?", 5, (
        _number("capacity", "Memory one device has for you (printed GB taken as GB or as GiB: both pass).", "GiB"),
        _choice("first_limit", "On one device, which limit comes first?", LIMITS),
        _choice("how_far", "How much must leave a device before the rest fits? Asked one after the other: weights "
                "alone, gradients beside them, the optimizer beside both.", FAR),
        _number("least_devices", "Devices whose memory holds the state and nothing else, at least.", "devices"),
        _choice("one_layer", "Does one layer fit on one device?", {"yes": "yes", "no": "no"}),
        _why("constrain"), _notes("constrain"),
    )),
    Step("shard", "Which split is the smallest that resolves it?", 8, (
        _choice("feasible", "Can it be done on these devices at all?",
                {"yes": "yes: a layout fits", "no": "no: nothing fits on them"}, weight=4.0),
        _whole("tensor", "Tensor ranks."), _whole("pipeline", "Pipeline stages."), _whole("context", "Context ranks."),
        _whole("expert", "Expert ranks (1 without experts)."),
        _whole("expert_tensor", "Ranks that share one expert (1 unless you cut experts).", 0.0),
        _choice("sharding", "What replicas share of the state.", {
            "none": "nothing", "zero1": "ZeRO-1: optimizer state", "zero2": "ZeRO-2: gradients too",
            "zero3": "ZeRO-3 or FSDP: weights too"}, weight=1.0, group="layout"),
        _choice("recompute", "What is recomputed.", {"none": "nothing", "full": "every layer"}, 1.0, "layout"),
        _whole("smallest_group", "Smallest tensor x pipeline group with which anything fits, under any sharding and "
               "recomputation.", 1.0, "number"),
        _why("shard"), _notes("shard"),
    )),
    Step("place", "Which axis goes on which links?", 5, (
        Field("order", "order", "Axes from the innermost, neighbouring devices, to the outermost; axes of 1 may be "
              "left out.", weight=2.0,
              group="reason"),
        Field("crosses", "several", "Axes whose traffic leaves a node.", choices={a: a for a in AXES}, weight=2.0,
              group="reason"),
        _number("inside_rate", "What one device sends one way inside a node.", "GB/s"),
        _number("between_rate", "What one device sends one way between nodes.", "GB/s"),
        _choice("busiest", "Which axis sends most bytes a step?", {a: a for a in AXES}, weight=2.0),
        _number("busiest_bytes", "What a device sends for it in a step: all micro-batches, reductions, gathers.", "GB"),
        _why("place"), _notes("place"),
    )),
    Step("batch", "How is the global batch preserved?", 4, (
        _whole("data", "Replicas."), _whole("micro_batch", "Sequences in a micro-batch."),
        _whole("accumulation", "Micro-batches a replica works through in a step."),
        _whole("interleave", "Chunks of layers a stage has (1: not interleaved)."),
        _number("tokens_per_step", "Tokens an update takes.", "tokens"),
        _number("bubble", "Share of the whole step, not of its compute, that even stages idle.", "%"),
        _why("batch"), _notes("batch"),
    )),
    Step("mfu", "Which MFU do you claim, how long does it take, what does it cost?", 6, (
        _number("mfu", "Model FLOPs utilization you claim.", "%"),
        _choice("convention", "Which FLOPs does it count?", {
            "six_ps": "6 a parameter", "full_attention": "every matmul once, attention whole",
            "causal_attention": "every matmul once, half of the attention square",
            "executed": "everything executed, recomputation too"}),
        _number("days", "Days of wall time.", "days"),
        _number("hours", "Accelerator-hours.", "accelerator-hours"),
        _choice("check_route", "How did you check the days by a second route?", {
            "steps": "number of steps times seconds a step",
            "records": "scaled from a published run on such devices", "again": "the same division once more",
            "none": "not checked"}),
        _number("check_days", "What the other route gave.", "days"),
        _choice("verdict", "So are the deadline and the budget met?", {
            "met": "yes", "missed": "no: fewer tokens, more devices or more time are needed",
            "impossible": "no layout could: at full peak it already takes longer"}, weight=3.0),
        _why("mfu"), _notes("mfu"),
    )),
    Step("overlap", "What can overlap, and what stays exposed?", 4, (
        Field("fates", "fates", "What becomes of the transfers (not of the bubble) of each axis above 1?",
              choices=FATES, weight=4.0, group="reason"),
        _number("exposed", "Share of the step that is exposed communication.", "%"),
        _why("overlap"), _notes("overlap"),
    )),
    Step("sweep", "Which short sweep would you measure?", 5, (
        Field("grid", "grid", "Values to try, field by field.", weight=4.0, group="layout"),
        Field("record", "several", "What each run records.", choices={
            "peak memory": "peak memory", "tokens/s": "tokens a second", "MFU": "MFU",
            "variance": "spread of the step time", "communication": "communication time in a trace",
            "numerics": "loss and gradient norm, against the first layout",
            "busy": "how busy the monitor says the device is", "final loss": "the final loss of each layout",
        }, weight=2.0, group="reason"),
        _choice("held", "What is the same in every run?", {
            "work": "model, sequence length, global batch, precision",
            "local": "sequences a device works on at once",
            "nothing": "nothing: each layout gets what suits it best"}),
        _choice("stop", "When do you stop adding devices?", {
            "price": "when a doubling costs more accelerator-hours than the time is worth",
            "all": "when there are none left", "slower": "when the step gets slower"}),
        _why("sweep"), _notes("sweep"),
    )),
)  # fmt: skip
"""The steps in the order in which a strong answer takes them."""


def empty() -> dict[str, dict[str, Any]]:
    """A sheet with nothing filled in.

    >>> empty()["batch"]["data"] is None
    True
    """
    return {step.name: {field.name: None for field in step.fields} for step in SHEET}


def asked_fields(known: Study, step: Step, feasible: bool = True) -> tuple[Field, ...]:
    """The blanks of a step that are asked for in this interview.

    Args:
        known: the question.
        step: a step of the sheet.
        feasible: whether the candidate said that a layout fits; else no step after `shard` asks for anything.
    """
    if not feasible:
        if step.name == "shard":
            kept = {"feasible", "why_shard"}
            return tuple(field for field in step.fields if field.name in kept)
        if step.name not in ("estimate", "constrain"):
            return ()
    left = set() if known.run.model.experts else {"expert", "expert_tensor"}
    left |= set() if known.prompt.level == max(LEVELS) else ADVANCED
    return tuple(field for field in step.fields if field.name not in left and field.kind != "text")
