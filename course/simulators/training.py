"""One idea: train a small net on ranks by any rung of the ladder; numbers, bytes sent and bytes held can be checked.

`begin` deals out weights `w0`, `w1`, … and momentum `m0`, `m1`, …, whole or in pieces as the rung keeps them. The net
works on each rank's own examples, layer by layer. `report` puts together what is asserted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from course.simulators.ranks import Ranks
from course.simulators.ring import Array

__all__ = ["MOMENTUM", "RATE", "STEPS", "Net", "Targets", "begin", "compare", "report", "serial", "targets"]

STEPS, RATE, MOMENTUM = 2, 0.05, 0.9
"""Optimizer steps of a program, its learning rate, and the share of the momentum that stays."""
EXAMPLES = 3
"""Examples of a rank in each step."""
FLOAT = 8
RUNGS = ("ddp", "zero1", "zero3")

Program = Callable[[int, int, int], Array | None]


@dataclass
class Net:
    """`layers` square matrices with tanh between them, and the examples of `ranks` ranks.

    `forward` and `backward` work on one rank's examples and one layer; backward returns the gradient of that rank's
    own mean loss. What backward needs of forward is kept here, outside the ranks' stores: activations are not counted.

    >>> net = Net("ddp", ranks=2, layers=1, width=2)
    >>> net.forward(0, 0, 0, net.start[0])
    >>> net.backward(0, 0, 0, net.start[0]).shape
    (2, 2)
    """

    rung: str
    ranks: int
    layers: int
    width: int
    _kept: dict[tuple[int, int], Array] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.rung not in RUNGS:
            raise ValueError(f"rung is {self.rung!r}; it is one of {', '.join(RUNGS)}")
        if self.width**2 % self.ranks:
            raise ValueError(f"matrices of {self.width}² numbers are not cut into {self.ranks} equal pieces")
        random = np.random.default_rng(self.layers * 1000 + self.width)
        self.start = [random.normal(size=(self.width, self.width)) for _ in range(self.layers)]
        self.examples = random.normal(size=(STEPS, 2, self.ranks, EXAMPLES, self.width))

    def forward(self, step: int, layer: int, rank: int, weights: Array) -> None:
        """A layer's output for a rank's examples of a step; `weights` may be flat."""
        inputs = self._kept[rank, layer - 1] if layer else self.examples[step, 0, rank]
        self._kept[rank, layer] = np.tanh(inputs @ self._matrix(weights))

    def backward(self, step: int, layer: int, rank: int, weights: Array) -> Array:
        """The gradient of a layer's weights on a rank's own examples; later layers come first."""
        out = self._kept[rank, layer]
        if layer == self.layers - 1:
            self._kept[rank, -1] = (out - self.examples[step, 1, rank]) / EXAMPLES
        inputs = self._kept[rank, layer - 1] if layer else self.examples[step, 0, rank]
        slope = self._kept[rank, -1] * (1 - out**2)
        self._kept[rank, -1] = slope @ self._matrix(weights).T
        gradient: Array = inputs.T @ slope
        return gradient

    def _matrix(self, weights: Array) -> Array:
        if np.size(weights) != self.width**2:
            raise ValueError(f"a layer has {self.width**2} weights; {np.size(weights)} were given: gather them first")
        return np.asarray(weights).reshape(self.width, self.width)

    def piece(self, rank: int, array: Array) -> Array:
        """Rank `rank`'s share of an array, flat."""
        return np.array_split(np.ravel(array), self.ranks)[rank].copy()


def begin(rung: str, ranks: int, layers: int, width: int) -> tuple[Ranks, Net]:
    """A world whose stores hold what the rung keeps, and the net.

    `rung` "ddp" keeps weights and momentum whole on every rank; "zero1" the momentum in pieces; "zero3" both.

    >>> world, net = begin("zero1", ranks=2, layers=1, width=2)
    >>> {name: array.shape for name, array in world[0].items()}
    {'w0': (2, 2), 'm0': (2,)}
    """
    net, world = Net(rung, ranks, layers, width), Ranks(ranks)
    for layer, weights in enumerate(net.start):
        whole = {"w": rung != "zero3", "m": rung == "ddp"}
        for name, array in (("w", weights), ("m", np.zeros_like(weights))):
            world.put(
                f"{name}{layer}", [array.copy() if whole[name] else net.piece(rank, array) for rank in range(ranks)]
            )
    return world, net


def serial(net: Net) -> list[Array]:
    """The weights a single device reaches, with all examples of all ranks in each step."""
    alone = Net(net.rung, net.ranks, net.layers, net.width)
    weights, momentum = [one.copy() for one in alone.start], [np.zeros_like(one) for one in alone.start]
    for step in range(STEPS):
        sums = [np.zeros_like(one) for one in weights]
        for rank in range(net.ranks):
            for layer in range(net.layers):
                alone.forward(step, layer, rank, weights[layer])
            for layer in reversed(range(net.layers)):
                sums[layer] += alone.backward(step, layer, rank, weights[layer])
        for layer in range(net.layers):
            momentum[layer] = MOMENTUM * momentum[layer] + sums[layer] / net.ranks
            weights[layer] = weights[layer] - RATE * momentum[layer]
    return weights


@dataclass(frozen=True)
class Targets:
    """What a program of a rung must reach: weights, bytes each rank sends and holds between steps, and its peak."""

    weights: Array
    sent: float
    held: float
    peak: float


def targets(net: Net) -> Targets:
    """Weights of the serial program; bytes sent in all steps; state held between steps; the most a rank may hold.

    Sent, by the rung: 2, 2 or 3 times the weights, times (n - 1)/n. A whole gradient may stay until its layer is
    updated; under "zero3" one layer and its gradient are whole at a time.
    """
    one = net.width**2 * FLOAT
    full, n = net.layers * one, net.ranks
    copies = {"ddp": n, "zero1": n, "zero3": 1}[net.rung]
    held = {"ddp": 2 * full, "zero1": full + full / n, "zero3": 2 * full / n}[net.rung]
    most = {"ddp": 3 * full, "zero1": 2 * full + 2 * full / n, "zero3": 2 * full / n + 2 * one + 2 * one / n}[net.rung]
    weights = np.concatenate([np.tile(layer.ravel(), copies) for layer in serial(net)])
    passes = {"ddp": 2, "zero1": 2, "zero3": 3}[net.rung]
    return Targets(weights, STEPS * passes * full * (n - 1) / n, held, most)


def report(world: Ranks, net: Net) -> Array:
    """What is asserted of a program, in one array: the weights of all ranks, layer by layer; then for each rank the
    bytes it sent, the bytes it holds now, and the bytes its peak lies above what the rung allows.
    """
    weights = [np.ravel(world[rank][f"w{layer}"]) for layer in range(net.layers) for rank in range(net.ranks)]
    above = [max(0.0, peak - targets(net).peak) for peak in world.peak]
    held = [world.held(rank) for rank in range(net.ranks)]
    return np.concatenate([*weights, world.sent, held, above])


def expected(rung: str, ranks: int, layers: int, width: int) -> Array:
    """What `report` must give."""
    wanted = targets(Net(rung, ranks, layers, width))
    return np.concatenate([wanted.weights, [wanted.sent] * ranks, [wanted.held] * ranks, [0.0] * ranks])


def compare(program: Program, rung: str, ranks: int = 4, layers: int = 3, width: int = 8) -> str:
    """Run a program and say in four lines what it reached beside what it must.

    >>> print(compare(lambda *_: None, "ddp"))
    Not written yet: the program returns nothing.
    """
    try:
        found = program(ranks, layers, width)
    except (KeyError, ValueError, TypeError) as error:
        return f"It stops: {error.args[0] if error.args else error}."
    if found is None:
        return "Not written yet: the program returns nothing."
    wanted = targets(Net(rung, ranks, layers, width))
    size = len(wanted.weights)
    if np.shape(found) != (size + 3 * ranks,):
        return f"It reports {np.size(found)} numbers; {size + 3 * ranks} are expected: return report(world, net)."
    weights, (sent, held, above) = found[:size], np.reshape(found[size:], (3, ranks))
    same = np.allclose(weights, wanted.weights, rtol=1e-9)
    return "\n".join(
        [
            f"weights: {'those of the serial program' if same else 'not those of the serial program'}",
            f"sent:    {max(sent):,.0f} bytes a rank; {wanted.sent:,.0f} expected",
            f"held:    {max(held):,.0f} bytes a rank between steps; {wanted.held:,.0f} expected",
            f"peak:    {'within' if max(above) == 0 else f'{max(above):,.0f} above'} {wanted.peak:,.0f} bytes",
        ]
    )
