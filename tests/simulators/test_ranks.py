"""Data parallelism with each rung of ZeRO, run on ranks, gives the numbers of a serial program."""

from __future__ import annotations

import numpy as np
import pytest

from course.simulators.ranks import Ranks
from course.simulators.ring import Links

STEPS, RATE, MOMENTUM = 5, 0.05, 0.9
RANKS, FEATURES, EXAMPLES = 4, 24, 16  # four examples a rank
FULL = FEATURES * 8  # bytes of all weights
PIECE = FULL // RANKS


def data(step):
    random = np.random.default_rng(step)
    x = random.normal(size=(EXAMPLES, FEATURES))
    return x, x @ np.arange(FEATURES) + random.normal(size=EXAMPLES)


def gradient(weights, x, y):
    """Of the squared error of a linear model, summed over the examples, for the mean over the whole batch."""
    return 2 * x.T @ (x @ weights - y) / EXAMPLES


def serial():
    weights, momentum = np.zeros(FEATURES), np.zeros(FEATURES)
    for step in range(STEPS):
        momentum = MOMENTUM * momentum + gradient(weights, *data(step))
        weights = weights - RATE * momentum
    return weights


def local_gradient(name):
    """The gradient of a rank's own examples of the step."""

    def compute_at(step):
        def compute(rank, store):
            x, y = data(step)
            own = slice(rank * EXAMPLES // RANKS, (rank + 1) * EXAMPLES // RANKS)
            return gradient(store[name], x[own], y[own])

        return compute

    return compute_at


def zeros(size):
    return [np.zeros(size) for _ in range(RANKS)]


def replicated():
    world = Ranks(RANKS)
    world.put("weights", zeros(FEATURES))
    world.put("momentum", zeros(FEATURES))
    for step in range(STEPS):
        world.compute("gradient", local_gradient("weights")(step))
        world.all_reduce("gradient")
        world.compute("momentum", lambda _, store: MOMENTUM * store["momentum"] + store["gradient"])
        world.compute("weights", lambda _, store: store["weights"] - RATE * store["momentum"])
        world.drop("gradient")
    return world, [world[rank]["weights"] for rank in range(RANKS)]


def own_piece(rank, array):
    return np.array_split(array, RANKS)[rank]


def zero_1():
    """Optimizer state in pieces: reduce all gradients, update a piece, gather the weights."""
    world = Ranks(RANKS)
    world.put("weights", zeros(FEATURES))
    world.put("momentum", zeros(FEATURES // RANKS))
    for step in range(STEPS):
        world.compute("gradient", local_gradient("weights")(step))
        world.reduce_scatter("gradient", into="piece")  # the whole gradient stays until the update is done
        world.compute("momentum", lambda _, store: MOMENTUM * store["momentum"] + store["piece"])
        world.compute("piece", lambda r, store: own_piece(r, store["weights"]) - RATE * store["momentum"])
        world.all_gather("piece", into="weights")
        world.drop("gradient", "piece")
    return world, [world[rank]["weights"] for rank in range(RANKS)]


def zero_2():
    """Gradients in pieces too: the whole one goes as soon as it is reduced."""
    world = Ranks(RANKS)
    world.put("weights", zeros(FEATURES))
    world.put("momentum", zeros(FEATURES // RANKS))
    for step in range(STEPS):
        world.compute("gradient", local_gradient("weights")(step))
        world.reduce_scatter("gradient")
        world.compute("momentum", lambda _, store: MOMENTUM * store["momentum"] + store["gradient"])
        world.compute("gradient", lambda r, store: own_piece(r, store["weights"]) - RATE * store["momentum"])
        world.all_gather("gradient", into="weights")
        world.drop("gradient")
    return world, [world[rank]["weights"] for rank in range(RANKS)]


def zero_3():
    """Weights in pieces too: gathered for the forward, and again for the backward."""
    world = Ranks(RANKS)
    world.put("piece", zeros(FEATURES // RANKS))
    world.put("momentum", zeros(FEATURES // RANKS))
    for step in range(STEPS):
        world.all_gather("piece", into="weights")  # forward
        world.drop("weights")
        world.all_gather("piece", into="weights")  # backward
        world.compute("gradient", local_gradient("weights")(step))
        world.drop("weights")
        world.reduce_scatter("gradient")
        world.compute("momentum", lambda _, store: MOMENTUM * store["momentum"] + store["gradient"])
        world.compute("piece", lambda _, store: store["piece"] - RATE * store["momentum"])
        world.drop("gradient")
    return world, [np.concatenate([world[rank]["piece"] for rank in range(RANKS)])] * RANKS


@pytest.mark.parametrize(
    ("train", "transfers", "held"),  # transfers of the whole array times (n-1)/n a step; bytes between steps
    [
        (replicated, 2, 2 * FULL),
        (zero_1, 2, FULL + PIECE),
        (zero_2, 2, FULL + PIECE),
        (zero_3, 3, 2 * PIECE),
    ],
)
def test_every_rung_gives_the_serial_numbers_and_the_traffic_of_the_ladder(train, transfers, held):
    world, weights = train()
    for copy in weights:
        np.testing.assert_allclose(copy, serial(), rtol=1e-12)
    assert world.sent == [STEPS * transfers * FULL * (RANKS - 1) // RANKS] * RANKS
    assert [world.held(rank) for rank in range(RANKS)] == [held] * RANKS


def test_a_program_that_forgets_to_reduce_is_caught():
    world = Ranks(RANKS)
    world.put("weights", zeros(FEATURES))
    for step in range(STEPS):
        world.compute("gradient", local_gradient("weights")(step))
        world.compute("weights", lambda _, store: store["weights"] - RATE * store["gradient"])
    assert not np.allclose(world[0]["weights"], world[1]["weights"])
    assert not np.allclose(world[0]["weights"], serial())


def test_what_is_held_at_most():
    """Weights, gradient and momentum whole; momentum in pieces; then the gradient, gone before the weights come.

    With a single layer ZeRO-3 gains nothing at its peak: the layer and its gradient are there whole.
    """
    peaks = [train()[0].peak for train in (replicated, zero_1, zero_2, zero_3)]
    assert peaks == [
        [peak] * RANKS for peak in (3 * FULL, 2 * FULL + 2 * PIECE, 2 * FULL + PIECE, 2 * FULL + 2 * PIECE)
    ]


def test_bytes_of_one_way_and_time_of_a_pipeline_of_sends():
    world = Ranks(3, Links(bandwidth=[8.0, 4.0, 1.0], latency=0.5))
    world.put("x", [np.ones(2), np.zeros(2), np.zeros(2)])
    world.send(0, 1, "x")
    world.send(1, 2, "x", into="y")
    assert world[2]["y"].tolist() == [1, 1]
    assert world[2]["x"].tolist() == [0, 0]
    assert world.sent == [16, 16, 0]
    assert world.time == 0.5 + 2 + 0.5 + 4
    assert world.held(2) == 32


def test_all_to_all_turns_rows_into_columns():
    world = Ranks(2)
    world.put("x", [np.array([1, 2]), np.array([3, 4])])
    world.all_to_all("x")
    assert [world[rank]["x"].tolist() for rank in range(2)] == [[1, 3], [2, 4]]


def test_no_rank_reaches_into_the_store_of_another():
    world = Ranks(2)
    world.put("x", [np.ones(1), np.ones(1)])
    world[0]["y"] = np.ones(1)  # a copy of the store: only put and collectives change it
    assert "y" not in world[0]
    world.send(0, 1, "x")
    world[0]["x"][0] = 7
    assert world[1]["x"][0] == 1


def test_wrong_input_is_named():
    world = Ranks(2)
    with pytest.raises(ValueError, match="'x' has 1 arrays for 2 ranks"):
        world.put("x", [np.ones(1)])
    with pytest.raises(KeyError, match="rank 0 holds no 'x'"):
        world.all_reduce("x")
    with pytest.raises(KeyError, match="rank 1 holds no 'x' to send"):
        world.send(1, 0, "x")
    with pytest.raises(ValueError, match="count is 0"):
        Ranks(0)
