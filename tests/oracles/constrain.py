"""Oracles of step 2: lists of what a device really holds at its fullest moment."""

from __future__ import annotations

from itertools import product

import numpy as np

from course.simulators.pipeline import gpipe, interleaved, one_forward_one_backward, simulate
from course.simulators.saved import saved_in_layer
from course.simulators.shapes import total_bytes
from oracles.checking import Answers, Check, agrees
from oracles.shapes import plain, random_shapes


def tensors_of_the_micro_batches_in_flight() -> Answers:
    schedules = ((gpipe(3, 5), 1), (one_forward_one_backward(4, 6), 1), (interleaved(4, 8, 2), 2))
    for number, (shape, (orders, chunks)) in enumerate(product(random_shapes(2, seed=20), schedules)):
        sequences, length, layers_of_chunk = 1 + number, 3 + 2 * number, 2
        layer = total_bytes(saved_in_layer(plain(shape), sequences, length))
        held = simulate(orders, 1, 2).peak_in_flight()[0]  # chunk activations of the first stage
        yield (
            {
                "token_layer_bytes": layer / (sequences * length),
                "micro_batch": sequences,
                "sequence_length": length,
                "stage_layers": layers_of_chunk * chunks,
                "in_flight": held / chunks,
            },
            sum(layer for _ in range(held) for _ in range(layers_of_chunk)),
        )


def _shards(parameters: int, ranks: int, kind: type) -> list[np.ndarray]:
    return np.array_split(np.zeros(parameters, kind), ranks)


def fullest_moment_of_forward() -> Answers:
    """Layer by layer: gather the next, compute this one, release it; count what is not this rank's own shard."""
    for ranks, tensor, kind, sharded in product((1, 2, 5), (1, 2), (np.float16, np.float32), (True, False)):
        parameters, layers = 600, 6
        shards = _shards(parameters // tensor, ranks, kind)
        foreign = sum(shard.nbytes for shard in shards[1:]) if sharded else 0
        resident: set[int] = set()
        peak = 0
        for layer in range(layers):
            resident |= {layer, min(layer + 1, layers - 1)}
            peak = max(peak, len(resident) * foreign)
            resident.discard(layer)
        yield (
            {
                "layer_parameters": parameters,
                "weight_bytes": np.dtype(kind).itemsize,
                "tensor": tensor,
                "shard_weights": sharded,
                "ranks": ranks,
            },
            peak,
        )


def gradients_before_their_reduction() -> Answers:
    for ranks, tensor, kind, sharded in product((1, 2, 5), (1, 2), (np.float16, np.float32), (True, False)):
        shards = _shards(600 // tensor, ranks, kind)
        yield (
            {
                "layer_parameters": 600,
                "gradient_bytes": np.dtype(kind).itemsize,
                "tensor": tensor,
                "shard_gradients": sharded,
                "ranks": ranks,
            },
            sum(shard.nbytes for shard in shards[1:]) if sharded else 0,
        )


ORACLES: dict[str, list[Check]] = {
    "constrain.activation_memory": [agrees(tensors_of_the_micro_batches_in_flight)],
    "constrain.gathered_weights": [agrees(fullest_moment_of_forward)],
    "constrain.whole_gradients": [agrees(gradients_before_their_reduction)],
}
