"""Reasons to pick from, step by step: what is sound here, and what is a known mistake.

A statement that depends on the question is offered only where it means something, and then it is true or false there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from course.interview.study import Study
from course.problem import Layout

__all__ = ["STATEMENTS", "Statement", "offered"]

Where = Callable[[Study, Layout], bool]


def _always(known: Study, layout: Layout) -> bool:  # noqa: ARG001
    return True


@dataclass(frozen=True)
class Statement:
    """One reason: a key, the sentence, the mistake it is ("" where it is sound), and where it is offered."""

    key: str
    text: str
    mistake: str = ""
    where: Where = _always


def _mixture(known: Study, layout: Layout) -> bool:  # noqa: ARG001
    return known.run.model.experts > 0


def _state_fails(known: Study, layout: Layout) -> bool:  # noqa: ARG001
    return known.first_limit()[0] == "optimizer state"


def _staged(known: Study, layout: Layout) -> bool:  # noqa: ARG001
    return layout.pipeline > 1


def _split(known: Study, layout: Layout) -> bool:  # noqa: ARG001
    return layout.tensor > 1


def _not(condition: Where) -> Where:
    return lambda known, layout: not condition(known, layout)


def _nothing_fits(known: Study, layout: Layout) -> bool:  # noqa: ARG001
    return not known.feasible


S = Statement
STATEMENTS: dict[str, tuple[Statement, ...]] = {
    "estimate": (
        S(
            "six",
            "A token costs 2 FLOPs a parameter forward and 4 backward; attention comes on top and matters once "
            "the sequence is long beside the width.",
        ),
        S("state", "Each parameter brings weight, gradient, an fp32 copy and two moments, whatever the batch."),
        S("active", "FLOPs follow from the parameters a token uses, memory from all of them.", "", _mixture),
        S("all experts", "Every expert is stored, so every expert counts in 6PS.", "all experts counted", _mixture),
        S(
            "weights",
            "In bf16 it is 2 bytes a parameter; what the optimizer keeps is small beside that.",
            "optimizer forgotten",
        ),
        S("eight", "Layers that are recomputed are work too, so the model needs 8PS.", "recomputation as useful work"),
        S("marketing", "The largest rate on the data sheet is the one to divide by.", "sparse peak"),
    ),
    "constrain": (
        S(
            "order",
            "State first: optimizer, gradients and weights can leave a device in that order, each at a price.",
            "",
            _state_fails,
        ),
        S(
            "cheap",
            "The state fits, so what comes next is asked: activations, which recomputation or a smaller "
            "micro-batch shrink, then time.",
            "",
            _not(_state_fails),
        ),
        S("layer", "Memory asks for tensor parallelism only where one layer, or one operation of it, does not fit."),
        S("margin", "Not all of the memory is mine: buffers, logits and the framework need some."),
        S(
            "3d",
            "I begin with tensor, pipeline and data parallelism together, and see then what fits.",
            "split before fit",
        ),
        S(
            "freed",
            "Activations are freed as the pass goes on, so only the state must be counted.",
            "activations forgotten",
        ),
    ),
    "shard": (
        S(
            "smallest",
            "The smallest model-parallel group that fits: each rank more adds traffic and takes replicas.",
            "",
            _not(_nothing_fits),
        ),
        S(
            "ladder",
            "Optimizer state is shared first, for it costs no more traffic than reducing gradients; weights "
            "are gathered only where they must.",
        ),
        S("none", "Even shared by all devices the state alone fills them, so no layout helps.", "", _nothing_fits),
        S("habit", "Tensor 8, because a node has 8 devices.", "tensor by habit"),
        S("stages", "With p stages the first one holds a p-th of the activations.", "divided by the stages"),
        S("least", "ZeRO-3 always, since it holds least.", "least memory for fastest"),
        S(
            "experts",
            "Expert ranks come on top of the others, so they multiply the devices.",
            "experts multiplied in",
            _mixture,
        ),
    ),
    "place": (
        S(
            "tensor",
            "Tensor ranks exchange activations in every layer, which waits: they get the fastest links.",
            "",
            _split,
        ),
        S(
            "free",
            "Without tensor ranks the fast links are free for the axis that would wait longest.",
            "",
            _not(_split),
        ),
        S("data", "Gradients can leave while backward still computes, so replicas may lie across nodes."),
        S("both ways", "The data sheet's figure for the links is what a device sends.", "two-way for one-way"),
        S("stages inside", "Stages send most, so they must share a node.", "pipeline sends most"),
        S(
            "anywhere",
            "The bytes are the same wherever the ranks lie, so placement hardly matters.",
            "placement ignored",
        ),
    ),
    "batch": (
        S("held", "Replicas times micro-batch times accumulation is the global batch: fewer replicas accumulate more."),
        S("bubble", "More micro-batches shrink the bubble, and a larger one costs memory.", "", _staged),
        S(
            "no stages",
            "There are no stages, so no bubble; the micro-batch is as large as pays in kernels.",
            "",
            _not(_staged),
        ),
        S(
            "grow",
            "I let the batch grow with the replicas: the same tokens in fewer steps, so the same training.",
            "another global batch",
        ),
        S("1f1b", "1F1B has a smaller bubble than GPipe, which is why it is used.", "another schedule"),
        S("devices", "Each device is a replica.", "devices for replicas"),
    ),
    "mfu": (
        S("useful", "Useful FLOPs over the dense peak of all devices held; what is computed twice does not count."),
        S("goodput", "Failures and restarts lengthen the days and the hours, and MFU does not see them."),
        S("hfu", "HFU is the larger figure and says what the chips really do, so I plan with it.", "HFU as MFU"),
        S("busy", "The monitor shows the devices 100 % busy, so they are used well.", "busy for MFU"),
        S("free", "Accelerator-hours do not depend on how many devices share the work.", "faster for cheaper"),
    ),
    "overlap": (
        S("behind", "Gradients hide behind backward as long as it outlasts them; a small local batch shortens it."),
        S("waits", "What the next operation needs at once is exposed, whatever the program: a dependency decides."),
        S("all hidden", "With asynchronous collectives all communication overlaps.", "all traffic hidden"),
        S("all added", "The step is compute plus the time of all collectives.", "all traffic exposed"),
        S("bubble", "The bubble is covered by communication, so it costs nothing.", "bubble hidden"),
    ),
    "sweep": (
        S("few", "A few neighbours of the plan, since the model's error is larger than their differences."),
        S("same", "The same work in each run; otherwise rates do not compare."),
        S("whole", "All legal layouts, so that none is missed.", "whole space swept"),
        S("own batch", "Each layout with the batch at which it is fastest.", "another global batch"),
        S("chosen", "The predicted best alone: the model has chosen already.", "nothing left to measure"),
    ),
}
"""Step -> its statements."""


def offered(known: Study, step: str, layout: Layout | None) -> list[Statement]:
    """The statements of a step in this interview, in an order of its own.

    Args:
        known: the question.
        step: the name of a step.
        layout: the candidate's layout as far as it is chosen; the best if None.
    """
    of = layout or (known.best if known.feasible else Layout())
    found = [statement for statement in STATEMENTS[step] if statement.where(known, of)]
    random.Random(f"statements/{known.prompt.seed}/{step}").shuffle(found)
    return found
