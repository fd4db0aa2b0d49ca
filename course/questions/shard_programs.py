"""Step 3, programs on simulated ranks: data parallelism, ZeRO-1 and ZeRO-3, with the ways they go wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from course.questions.kinds import Function, Mistake, Question
from course.simulators.ranks import Ranks
from course.simulators.training import MOMENTUM, RATE, STEPS, Net, begin, expected, report

__all__ = ["QUESTIONS"]

Program = Callable[[int, int, int], np.ndarray]
ARGUMENTS = ("ranks", "layers", "width")


def _case(source: random.Random) -> dict[str, Any]:
    return {"ranks": source.choice((2, 4)), "layers": source.choice((2, 3)), "width": source.choice((4, 8))}


EDGES = ({"ranks": 2, "layers": 2, "width": 4}, {"ranks": 4, "layers": 3, "width": 8})


Compute = Callable[[int, dict[str, np.ndarray]], np.ndarray]


def _backward(net: Net, step: int, layer: int, weights: str) -> Compute:
    return lambda rank, own: net.backward(step, layer, rank, own[weights])


def _moment(layer: int, gradient: str, share: int) -> Compute:
    return lambda _, own: MOMENTUM * own[f"m{layer}"] + own[gradient] / share


def _updated(layer: int) -> Compute:
    return lambda _, own: own[f"w{layer}"] - RATE * own[f"m{layer}"]


def _piece(net: Net, name: str) -> Compute:
    return lambda rank, own: net.piece(rank, own[name])


def _updated_piece(net: Net, layer: int) -> Compute:
    return lambda rank, own: net.piece(rank, own[f"w{layer}"]) - RATE * own[f"m{layer}"]


def _patched(net: Net, layer: int) -> Compute:
    """The whole weights, in which a rank has renewed its own piece alone."""

    def patched(rank: int, own: dict[str, np.ndarray]) -> np.ndarray:
        pieces = np.array_split(np.ravel(own[f"w{layer}"]), net.ranks)
        pieces[rank] = own["g"]
        return np.concatenate(pieces)

    return patched


def _passes(world: Ranks, net: Net, step: int) -> None:
    """Forward and backward with whole weights: a gradient a layer, of each rank's own examples."""
    for layer in range(net.layers):
        for rank in range(net.ranks):
            net.forward(step, layer, rank, world[rank][f"w{layer}"])
    for layer in reversed(range(net.layers)):
        world.compute(f"g{layer}", _backward(net, step, layer, f"w{layer}"))


def _replicated(reductions: int = 1, divide: bool = True) -> Program:
    """Data parallelism that reduces 0, 1 or 2 times, and divides by the ranks or not."""

    def program(ranks: int, layers: int, width: int) -> np.ndarray:
        world, net = begin("ddp", ranks, layers, width)
        for step in range(STEPS):
            _passes(world, net, step)
            for layer in range(layers):
                for _ in range(reductions):
                    world.all_reduce(f"g{layer}")
                world.compute(f"m{layer}", _moment(layer, f"g{layer}", ranks if divide and reductions else 1))
                world.compute(f"w{layer}", _updated(layer))
                world.drop(f"g{layer}")
        return report(world, net)

    return program


def _zero1(gather: bool = True, divide: bool = True, scatter: bool = True) -> Program:
    """ZeRO-1 that may forget to gather or to divide, or reduces the whole gradient on every rank."""

    def program(ranks: int, layers: int, width: int) -> np.ndarray:
        world, net = begin("zero1", ranks, layers, width)
        for step in range(STEPS):
            _passes(world, net, step)
            for layer in range(layers):
                _scatter(world, net, f"g{layer}", scatter)
                world.compute(f"m{layer}", _moment(layer, f"g{layer}", ranks if divide else 1))
                world.drop(f"g{layer}")
                world.compute("g", _updated_piece(net, layer))
                if gather:
                    world.all_gather("g", into=f"w{layer}")
                else:
                    world.compute(f"w{layer}", _patched(net, layer))
                world.drop("g")
        return report(world, net)

    return program


def _scatter(world: Ranks, net: Net, name: str, scatter: bool) -> None:
    """A piece of the sum on each rank, by a reduce-scatter, or by an all-reduce of which a piece is kept."""
    if scatter:
        world.reduce_scatter(name)
    else:
        world.all_reduce(name)
        world.compute(name, _piece(net, name))


def _zero3(again: bool = True, divide: bool = True, scatter: bool = True) -> Program:
    """ZeRO-3 that may keep gathered weights for backward, forget to divide, or reduce by an all-reduce."""

    def program(ranks: int, layers: int, width: int) -> np.ndarray:
        world, net = begin("zero3", ranks, layers, width)
        for step in range(STEPS):
            for layer in range(layers):
                world.all_gather(f"w{layer}", into=f"whole{layer}")
                for rank in range(ranks):
                    net.forward(step, layer, rank, world[rank][f"whole{layer}"])
                if again:
                    world.drop(f"whole{layer}")
            for layer in reversed(range(layers)):
                if again:
                    world.all_gather(f"w{layer}", into=f"whole{layer}")
                world.compute("g", _backward(net, step, layer, f"whole{layer}"))
                world.drop(f"whole{layer}")
                _scatter(world, net, "g", scatter)
                world.compute(f"m{layer}", _moment(layer, "g", ranks if divide else 1))
                world.compute(f"w{layer}", _updated(layer))
                world.drop("g")
        return report(world, net)

    return program


_TASK = (
    "`begin({rung!r}, ranks, layers, width)` deals out the stores and a net (see above). Write `{name}(ranks, layers, "
    "width)`: {what}; update momentum and weights, and `return report(world, net)`. Weights must be the serial ones; "
    "bytes sent, bytes held between steps and the peak are asserted."
)
_MISTAKE_DIVIDE = "The gradients were summed over the ranks; the loss is a mean over all examples, so divide the sum."

_ddp = Function(
    id="shard.22",
    title="Data parallelism on ranks",
    prompt=_TASK.format(
        rung="ddp", name="ddp",
        what="in each of `STEPS` steps run forward and backward on every rank, make the gradients one",
    ),
    arguments=ARGUMENTS,
    case=_case,
    edges=EDGES,
    calls=3,
    relative=1e-7,
    absolute=1e-9,
    answer=lambda ranks, layers, width: expected("ddp", ranks, layers, width),
    unit="1",
    mistakes=(
        Mistake("gradients not divided", lambda _: _replicated(divide=False), _MISTAKE_DIVIDE),
        Mistake("gradients not reduced", lambda _: _replicated(reductions=0)),
        Mistake("reduced twice", lambda _: _replicated(reductions=2)),
    ),
    hints=(
        "Every rank has its own examples and the same weights. What must be equal before the update?",
        "world.compute stores a gradient on every rank; one collective turns it into the sum on every rank.",
        "Forward all layers; backward from the last; all_reduce each g; m = MOMENTUM m + g / ranks; w = w - RATE m.",
    ),
    difficulty=2,
    minutes=20,
    source="CS336's rule: a parallel program is right when it gives the serial numbers; a sum taken for a mean",
)

_zero_1 = Function(
    id="shard.23",
    title="ZeRO-1 on ranks",
    prompt=_TASK.format(
        rung="zero1", name="zero1",
        what="a rank keeps a piece of the momentum, so it needs its piece of the summed gradient, and gives back its "
        "piece of the weights",
    ),
    arguments=ARGUMENTS,
    case=_case,
    edges=EDGES,
    calls=3,
    relative=1e-7,
    absolute=1e-9,
    answer=lambda ranks, layers, width: expected("zero1", ranks, layers, width),
    unit="1",
    mistakes=(
        Mistake("gradients not divided", lambda _: _zero1(divide=False), _MISTAKE_DIVIDE),
        Mistake("weights not gathered", lambda _: _zero1(gather=False)),
        Mistake(
            "all-reduce for reduce-scatter",
            lambda _: _zero1(scatter=False),
        ),
    ),
    hints=(
        "An all-reduce is a reduce-scatter and an all-gather. What happens between the two here?",
        "Reduce-scatter the gradient, update momentum piece and weight piece, all-gather the weight pieces into w.",
        "net.piece(rank, own[w]) is a rank's piece of the weights; forget g when the weights are whole again.",
    ),
    difficulty=3,
    minutes=20,
    source="ZeRO (Rajbhandari et al. 2020); a gather forgotten leaves every rank with other weights",
)

_zero_3 = Function(
    id="shard.24",
    title="ZeRO-3 on ranks",
    prompt=_TASK.format(
        rung="zero3", name="zero3",
        what="weights lie in pieces too, so each layer's are whole only while that layer works, forward and again "
        "backward",
    ),
    arguments=ARGUMENTS,
    case=_case,
    edges=EDGES,
    calls=3,
    relative=1e-7,
    absolute=1e-9,
    answer=lambda ranks, layers, width: expected("zero3", ranks, layers, width),
    unit="1",
    mistakes=(
        Mistake("gradients not divided", lambda _: _zero3(divide=False), _MISTAKE_DIVIDE),
        Mistake("backward gather forgotten", lambda _: _zero3(again=False)),
        Mistake("all-reduce for reduce-scatter", lambda _: _zero3(scatter=False)),
    ),
    hints=(
        "How long may a layer's whole weights stay? The peak allows one layer and its gradient.",
        "Forward: gather, compute, drop. Backward: gather again, compute the gradient, drop, reduce-scatter, update.",
        "Gather w0 into another name, so that the piece stays; the piece of g updates the piece of m, then that of w.",
    ),
    difficulty=3,
    minutes=25,
    source="mlsys-lab, task sys-model-zero-3-comm-vs-dp: the second gather is missing",
)

QUESTIONS: tuple[Question, ...] = (_ddp, _zero_1, _zero_3)
