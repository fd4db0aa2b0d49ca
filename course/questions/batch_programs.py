"""Step 5, programs on simulated ranks: GPipe and 1F1B, a stage on each rank, with the ways they go wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from course.questions.kinds import Function, Mistake, Question
from course.simulators.pipeline import FORWARD, one_forward_one_backward
from course.simulators.stages import RATE, Stages, expected, report

__all__ = ["QUESTIONS"]

Program = Callable[[int, int, int], np.ndarray]
ARGUMENTS = ("stages", "micro_batches", "width")
EDGES = ({"stages": 3, "micro_batches": 4, "width": 4}, {"stages": 4, "micro_batches": 2, "width": 2})


def _case(source: random.Random) -> dict[str, Any]:
    return {"stages": source.choice((2, 3)), "micro_batches": source.choice((3, 4, 6)), "width": source.choice((2, 4))}


def _forward(world: Stages, micro_batch: int) -> None:
    for stage in range(len(world)):
        world.forward(stage, micro_batch)
        world.pass_on(stage, micro_batch)


def _backward(world: Stages, micro_batch: int) -> None:
    for stage in reversed(range(len(world))):
        world.backward(stage, micro_batch)
        world.pass_back(stage, micro_batch)


def _update(world: Stages, share: int) -> np.ndarray:
    world.compute("w", lambda _, own: own["w"] - RATE * own["g"] / share)
    return report(world)


def _program(kind: str, divide: bool = True) -> Program:
    """A program of a schedule, or one micro-batch after the other; divided by the micro-batches or not."""

    def program(stages: int, micro_batches: int, width: int) -> np.ndarray:
        world = Stages(stages, micro_batches, width)
        if kind == "one":
            for micro_batch in range(micro_batches):
                _forward(world, micro_batch)
                _backward(world, micro_batch)
        elif kind == "gpipe":
            for micro_batch in range(micro_batches):
                _forward(world, micro_batch)
            for micro_batch in range(micro_batches):
                _backward(world, micro_batch)
        else:
            _turns(world, micro_batches)
        return _update(world, micro_batches if divide else 1)

    return program


def _turns(world: Stages, micro_batches: int) -> None:
    """1F1B: whoever can do the next thing of its list does it, until all lists are done."""
    left = [list(order) for order in one_forward_one_backward(len(world), micro_batches)]
    while any(left):
        for stage, order in enumerate(left):
            while order:
                work, held = order[0], world[stage]
                needs = f"x{work.micro_batch}" if work.kind == FORWARD else f"dy{work.micro_batch}"
                first, last = stage == 0 and work.kind == FORWARD, stage == len(world) - 1 and work.kind != FORWARD
                if not (first or last or needs in held):
                    break
                order.pop(0)
                if work.kind == FORWARD:
                    world.forward(stage, work.micro_batch)
                    world.pass_on(stage, work.micro_batch)
                else:
                    world.backward(stage, work.micro_batch)
                    world.pass_back(stage, work.micro_batch)


_SUM = "The gradients of the micro-batches were summed; the loss is a mean over all examples, so divide the sum."

_gpipe_question = Function(
    id="batch.26",
    title="GPipe on ranks",
    prompt=(
        "`Stages(stages, micro_batches, width)` deals out a stage to each rank (see above). Write `gpipe(stages, "
        "micro_batches, width)`: all forwards, then all backwards, every output and every gradient passed on; then "
        "update `w` with the mean gradient and `return report(world)`. Weights must be those of one device that takes "
        "all examples at once; bytes sent, micro-batches held and the time of the order are asserted."
    ),
    arguments=ARGUMENTS,
    case=_case,
    edges=EDGES,
    calls=3,
    relative=1e-7,
    absolute=1e-9,
    answer=lambda stages, micro_batches, width: expected("gpipe", stages, micro_batches, width),
    unit="1",
    mistakes=(
        Mistake("gradients not divided", lambda _: _program("gpipe", divide=False), _SUM),
        Mistake("one after the other", lambda _: _program("one")),
        Mistake("another schedule", lambda _: _program("1f1b")),
    ),
    hints=(
        "Two loops: one over micro-batches for forward, one for backward. Inside, which stages in which order?",
        "After a forward pass on the output; after a backward pass back the gradient.",
        'At the end: world.compute("w", lambda _, own: own["w"] - RATE * own["g"] / micro_batches).',
    ),
    difficulty=2,
    minutes=15,
    source="GPipe (Huang et al. 2019); CS336's rule: a parallel program is right when it gives the serial numbers",
)

_1f1b_question = Function(
    id="batch.27",
    title="1F1B on ranks",
    prompt=(
        "The same as `one_f_one_b(stages, micro_batches, width)`: stage i runs ahead by as many forwards as there are "
        "stages after it and then takes turns, so that it never holds more than that and one. The weights must not "
        "change."
    ),
    arguments=ARGUMENTS,
    case=_case,
    edges=EDGES,
    calls=3,
    relative=1e-7,
    absolute=1e-9,
    answer=lambda stages, micro_batches, width: expected("1f1b", stages, micro_batches, width),
    unit="1",
    mistakes=(
        Mistake("gradients not divided", lambda _: _program("1f1b", divide=False), _SUM),
        Mistake("one after the other", lambda _: _program("one")),
        Mistake("all micro-batches kept", lambda _: _program("gpipe"), "That is GPipe: every stage held every one."),
    ),
    hints=(
        "A program on one machine must choose an order in which everything is there when it is needed.",
        "Keep a list for each stage, and let any stage whose next piece can be done do it, until all lists are empty.",
        "A forward needs x of the stage before (stage 0 has it), a backward dy of the stage after (the last has it).",
    ),
    difficulty=3,
    minutes=25,
    source="PipeDream-flush; Narayanan et al. 2021",
)

QUESTIONS: tuple[Question, ...] = (_gpipe_question, _1f1b_question)
