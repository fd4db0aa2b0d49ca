"""Every rung of the ladder on ranks, with accumulation: serial weights, and the bytes of its formula.

Weights, gradients on the wire and momentum have widths of their own, so no two of them can be mixed up.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import estimate, shard
from course.simulators.ranks import Ranks

STEPS, RATE, MOMENTUM = 2, 0.1, 0.9
WIDTHS = {4: np.float32, 8: np.float64}


def gradient(weights, step, micro_batch, rank):
    """Of a loss whose centre is the rank's and the micro-batch's own: small whole numbers, so that sums are exact.

    The offset keeps what is rounded away from halves, where the order of a sum could decide.
    """
    draw = np.random.default_rng((step, micro_batch, rank))
    return np.round(weights + 0.1234567) - draw.integers(-4, 5, size=len(weights)).astype(float)


def serial(parameters, ranks, micro_batches):
    weights, momentum = np.arange(parameters, dtype=float), np.zeros(parameters)
    for step in range(STEPS):
        own = [gradient(weights, step, m, rank) for m in range(micro_batches) for rank in range(ranks)]
        momentum = MOMENTUM * momentum + np.mean(own, axis=0)
        weights = weights - RATE * momentum
    return weights


def train(rung, parameters, ranks, micro_batches, gradient_bytes):
    """One program for all rungs, told by three flags which parts lie in pieces."""
    pieces = {name: bool(flag) for name, flag in shard.STAGE_FLAGS[rung].items()}
    start = np.arange(parameters, dtype=float)
    world = Ranks(ranks)
    world.put("w", np.split(start, ranks) if pieces["shard_weights"] else [start] * ranks)
    own = ranks if pieces["shard_optimizer"] else 1
    world.put("m", [np.zeros(parameters // own)] * ranks)
    for step in range(STEPS):
        total = [0.0] * ranks
        for micro_batch in range(micro_batches):
            if pieces["shard_weights"]:
                world.all_gather("w", into="whole")  # forward
                world.drop("whole")
                world.all_gather("w", into="whole")  # backward
            whole = "whole" if pieces["shard_weights"] else "w"
            made = [gradient(world[rank][whole], step, micro_batch, rank) for rank in range(ranks)]
            world.put("g", [array.astype(WIDTHS[gradient_bytes]) for array in made])
            if pieces["shard_gradients"]:
                world.reduce_scatter("g")
            total = [sum_ + world[rank]["g"] for rank, sum_ in enumerate(total)]
        world.put("g", [array.astype(WIDTHS[gradient_bytes]) for array in total])
        if not pieces["shard_optimizer"]:
            world.all_reduce("g")
        elif not pieces["shard_gradients"]:
            world.reduce_scatter("g")
        world.compute("m", lambda _, own: MOMENTUM * own["m"] + own["g"].astype(float) / ranks / micro_batches)
        in_pieces = pieces["shard_optimizer"] and not pieces["shard_weights"]
        world.compute(
            "new", lambda rank, own, cut=in_pieces: (np.split(own["w"], ranks)[rank] if cut else own["w"])
            - RATE * own["m"]
        )  # fmt: skip
        if in_pieces:
            world.all_gather("new")
        world.compute("w", lambda _, own: own["new"])
        world.drop("new", "g")
    copies = [world[rank]["w"] for rank in range(ranks)]
    return world.sent, [np.concatenate(copies)] if pieces["shard_weights"] else copies


@pytest.mark.parametrize("rung", shard.LADDER)
@settings(max_examples=25, deadline=None)
@given(ranks=st.sampled_from((1, 2, 3, 4)), each=st.integers(1, 3), micro_batches=st.integers(1, 4),
       gradient_bytes=st.sampled_from((4, 8)))  # fmt: skip
def test_a_rung_gives_the_serial_weights_and_sends_the_bytes_of_its_formula(
    rung, ranks, each, micro_batches, gradient_bytes
):
    parameters = ranks * each
    sent, copies = train(rung, parameters, ranks, micro_batches, gradient_bytes)
    for copy in copies:
        np.testing.assert_allclose(copy, serial(parameters, ranks, micro_batches), rtol=1e-12, atol=1e-12)
    formula = shard.LADDER[rung]
    given_ = {"ranks": ranks, "stage_parameters": parameters, "tensor": 1, "weight_bytes": 8,
              "reductions": micro_batches, "reduced_gradient_bytes": gradient_bytes}  # fmt: skip
    assert sent == pytest.approx([STEPS * formula(**estimate.pick(formula, given_))] * ranks)
