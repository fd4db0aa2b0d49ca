"""One idea: program a pipeline on ranks, a stage each; numbers, bytes, memory and time of the order can be checked.

A stage is one matrix with a tanh. A program says which stage works on which micro-batch and what it passes on; an order
that needs what has not arrived stops with a KeyError. `report` puts together what is asserted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course.simulators.pipeline import BACKWARD, FORWARD, Orders, Work, simulate
from course.simulators.ranks import Ranks
from course.simulators.ring import Array

__all__ = ["EXAMPLES", "RATE", "Stages", "compare", "expected", "report"]

RATE, EXAMPLES = 0.1, 2
"""Learning rate, and examples of a micro-batch."""

Program = Callable[[int, int, int], Array | None]


class Stages(Ranks):
    """`stages` ranks, each with its matrix `w` and a gradient `g` that begins at zero; `micro_batches` to work through.

    >>> world = Stages(stages=2, micro_batches=1, width=2)
    >>> world.forward(0, 0); world.pass_on(0, 0); world.forward(1, 0)
    >>> world.backward(1, 0); world.pass_back(1, 0); world.backward(0, 0)
    >>> world.most, world.sent
    ([1, 1], [32, 32])
    """

    def __init__(self, stages: int, micro_batches: int, width: int) -> None:
        super().__init__(stages)
        random = np.random.default_rng(1000 * stages + 10 * micro_batches + width)
        self.micro_batches, self.width = micro_batches, width
        self.start = random.normal(size=(stages, width, width)) / np.sqrt(width)
        self.examples = random.normal(size=(2, micro_batches, EXAMPLES, width))
        self.put("w", [weights.copy() for weights in self.start])
        self.put("g", [np.zeros((width, width)) for _ in range(stages)])
        self.orders: Orders = [[] for _ in range(stages)]
        self.most = [0] * stages
        """The most micro-batches each stage has held at once."""

    def forward(self, stage: int, micro_batch: int) -> None:
        """Work on a micro-batch whose input `x…` is there (stage 0 has them all); keeps input and output `y…`."""
        if stage == 0:
            self._keep(0, f"x{micro_batch}", self.examples[0, micro_batch])
        self._keep(stage, f"y{micro_batch}", np.tanh(self._held(stage, f"x{micro_batch}") @ self[stage]["w"]))
        self.orders[stage].append(Work(FORWARD, micro_batch))
        self.most[stage] = max(self.most[stage], sum(name.startswith("y") for name in self[stage]))

    def backward(self, stage: int, micro_batch: int) -> None:
        """Add to `g` a micro-batch's mean gradient, make that of its input, `dx…`, and forget what forward kept.

        The gradient `dy…` of the output must have come from the next stage; the last one has the loss.
        """
        output = self._held(stage, f"y{micro_batch}")
        if stage == len(self) - 1:
            slope = (output - self.examples[1, micro_batch]) / EXAMPLES
        else:
            slope = self._held(stage, f"dy{micro_batch}")
        slope = slope * (1 - output**2)
        own = self[stage]
        self._keep(stage, "g", own["g"] + own[f"x{micro_batch}"].T @ slope)
        if stage:
            self._keep(stage, f"dx{micro_batch}", slope @ own["w"].T)
        for name in ("x", "y", "dy"):
            self._stores[stage].pop(f"{name}{micro_batch}", None)
        self.orders[stage].append(Work(BACKWARD, micro_batch))

    def pass_on(self, stage: int, micro_batch: int) -> None:
        """Send a micro-batch's output to the next stage; the last one has nobody to send to."""
        if stage < len(self) - 1:
            self.send(stage, stage + 1, f"y{micro_batch}", into=f"x{micro_batch}")

    def pass_back(self, stage: int, micro_batch: int) -> None:
        """Send the gradient of a micro-batch's input to the stage before; the first one has nobody to send to."""
        if stage:
            self.send(stage, stage - 1, f"dx{micro_batch}", into=f"dy{micro_batch}")
            del self._stores[stage][f"dx{micro_batch}"]

    def _held(self, stage: int, name: str) -> Array:
        if name not in self._stores[stage]:
            raise KeyError(f"stage {stage} holds no {name!r}; what makes or sends it has not happened")
        return self._stores[stage][name]


def report(world: Stages) -> Array:
    """What is asserted of a program, in one array: the weights stage by stage; then for each stage the bytes it sent
    and the most micro-batches it held; last the time of its order, a forward taking 1 and a backward 2.
    """
    weights = [np.ravel(world[stage]["w"]) for stage in range(len(world))]
    time = simulate(world.orders, 1, 2).makespan
    return np.concatenate([*weights, world.sent, world.most, [time]])


def expected(schedule: str, stages: int, micro_batches: int, width: int) -> Array:
    """What `report` must give under "gpipe" or "1f1b": the weights of one device that takes all examples at once."""
    world = Stages(stages, micro_batches, width)
    inputs, wanted = (one.reshape(-1, width) for one in world.examples)
    kept = [inputs]
    for weights in world.start:
        kept.append(np.tanh(kept[-1] @ weights))
    slope, updated = (kept[-1] - wanted) / len(inputs), []
    for stage in reversed(range(stages)):
        slope = slope * (1 - kept[stage + 1] ** 2)
        updated.append(np.ravel(world.start[stage] - RATE * kept[stage].T @ slope))
        slope = slope @ world.start[stage].T
    message = inputs.nbytes
    sent = [message * ((stage < stages - 1) + (stage > 0)) for stage in range(stages)]
    held = [micro_batches if schedule == "gpipe" else min(micro_batches, stages - stage) for stage in range(stages)]
    return np.concatenate([*reversed(updated), sent, held, [3 * (micro_batches + stages - 1)]])


def compare(program: Program, schedule: str, stages: int = 3, micro_batches: int = 4, width: int = 4) -> str:
    """Run a program and say in four lines what it reached beside what it must.

    >>> print(compare(lambda *_: None, "gpipe"))
    Not written yet: the program returns nothing.
    """
    try:
        found = program(stages, micro_batches, width)
    except (KeyError, ValueError, TypeError) as error:
        return f"It stops: {error.args[0] if error.args else error}."
    if found is None:
        return "Not written yet: the program returns nothing."
    wanted = expected(schedule, stages, micro_batches, width)
    if np.shape(found) != wanted.shape:
        return f"It reports {np.size(found)} numbers; {len(wanted)} are expected: return report(world)."
    size = stages * width**2
    same = np.allclose(found[:size], wanted[:size], rtol=1e-9)
    sent, held, most, limit = (
        [int(value) for value in part] for part in (found[size:-1][:stages], wanted[size:-1][:stages],
                                                    found[size:-1][stages:], wanted[size:-1][stages:])
    )  # fmt: skip
    return "\n".join(
        [
            f"weights: {'those of the serial program' if same else 'not those of the serial program'}",
            f"sent:    {sent} bytes; {held} expected",
            f"held:    {most} micro-batches at most; {limit} expected",
            f"time:    {found[-1]:g}; {wanted[-1]:g} expected",
        ]
    )
