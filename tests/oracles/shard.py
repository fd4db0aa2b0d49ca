"""Oracles of step 3: arrays that really go round a ring, their bytes counted; and arrays that are really cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from course.simulators import ring
from oracles.checking import Answers, Check, agrees

FLOATS = {2: np.float16, 4: np.float32, 8: np.float64}
GROUPS = (1, 2, 3, 8)
Ring = Callable[[list[np.ndarray]], ring.Collective]


def _sent(collective: Ring, whole: int, ranks: int, element_bytes: int) -> int:
    """Bytes rank 0 sends when `ranks` ranks work on a buffer of `whole` elements."""
    mine = whole // ranks if collective is ring.all_gather else whole
    result = collective([np.zeros(mine, FLOATS[element_bytes]) for _ in range(ranks)])
    assert len(set(result.bytes_sent)) == 1, "every rank sends the same"
    return result.bytes_sent[0]


def _collective(collective: Ring) -> Callable[[], Answers]:
    def chunks_round_a_ring() -> Answers:
        for ranks, size in product(GROUPS, (2, 4)):
            whole = 240 * ranks
            yield {"ranks": ranks, "payload_bytes": whole * size}, _sent(collective, whole, ranks, size)

    return chunks_round_a_ring


def gradients_of_1e9_parameters() -> Answers:
    # EleutherAI/cookbook #18: 16-bit gradients over 64 ranks, 3.9375 GB sent by each
    yield {"ranks": 64, "payload_bytes": 2e9}, 3.9375e9


PARAMETERS = 480


def _ladder(rung: str) -> Callable[[], Answers]:
    """One optimizer step of a rung: every micro-batch and the update send what that rung must send."""

    def step_of_every_rank() -> Answers:
        weight = 2
        for ranks, tensor, gradient, micro_batches in product(GROUPS, (1, 4), (2, 4), (1, 3)):
            local = PARAMETERS // tensor
            gathered = _sent(ring.all_gather, local, ranks, weight)
            scattered = _sent(ring.reduce_scatter, local, ranks, gradient)
            reduced = _sent(ring.all_reduce, local, ranks, gradient)
            sent = 0
            for micro_batch in range(micro_batches):
                last = micro_batch == micro_batches - 1
                if rung == "zero3":
                    sent += gathered  # forward; the weights are dropped afterwards
                    sent += gathered  # backward
                if rung in ("zero2", "zero3") or (rung == "zero1" and last):
                    sent += scattered
                if rung == "none" and last:
                    sent += reduced
            if rung in ("zero1", "zero2"):
                sent += gathered  # each rank has updated its own share of the weights
            given = {
                "ranks": ranks,
                "stage_parameters": PARAMETERS,
                "tensor": tensor,
                "reduced_gradient_bytes": gradient,
                "weight_bytes": weight,
                "reductions": micro_batches,
            }
            unused = {"none": ("weight_bytes", "reductions"), "zero1": ("reductions",)}.get(rung, ())
            yield {key: value for key, value in given.items() if key not in unused}, sent

    return step_of_every_rank


def fsdp_bytes_of_a_parameter() -> Answers:
    # pytorch/pytorch #106395: 6 or 8 bytes a parameter and step, times (n - 1)/n
    for gradient, answer in ((2, 6), (4, 8)):
        yield {
            "ranks": 1e9, "stage_parameters": 1, "tensor": 1, "reductions": 1, "weight_bytes": 2,
            "reduced_gradient_bytes": gradient,
        }, answer  # fmt: skip


def hidden_vectors_round_the_tensor_ranks() -> Answers:
    for tensor, size, sequences, length, hidden in (
        (1, 2, 1, 8, 3),
        (2, 2, 3, 8, 5),
        (4, 4, 2, 4, 7),
        (8, 2, 1, 16, 3),
    ):
        whole = sequences * length * hidden
        yield (
            {
                "tensor": tensor,
                "activation_bytes": size,
                "micro_batch": sequences,
                "sequence_length": length,
                "hidden": hidden,
            },
            _sent(ring.all_gather, whole, tensor, size),
        )


def hidden_vectors_to_the_next_stage() -> Answers:
    for tensor, sharded, size, (sequences, length, hidden) in product(
        (1, 2, 4), (False, True), (2, 4), ((1, 8, 3), (3, 4, 5))
    ):
        activations = np.zeros((sequences * length, hidden), FLOATS[size])
        mine = np.array_split(activations, tensor)[0] if sharded else activations
        yield (
            {
                "tensor": tensor,
                "sequence_sharded": sharded,
                "activation_bytes": size,
                "micro_batch": sequences,
                "sequence_length": length,
                "hidden": hidden,
            },
            ring.send(mine).bytes_sent[0],
        )


def arrays_a_rank_keeps() -> Answers:
    for ranks, tensor, stage, sizes in product(GROUPS, (1, 4), range(4), ((2, 4, (4, 4, 4)), (4, 2, (2, 2)))):
        local = PARAMETERS // tensor
        weight, gradient, optimizer = sizes
        held = 0
        for size, from_stage in ((weight, 3), (gradient, 2), *((part, 1) for part in optimizer)):
            whole = np.zeros(local, FLOATS[size])
            held += (np.array_split(whole, ranks)[0] if stage >= from_stage else whole).nbytes
        yield (
            {
                "stage_parameters": PARAMETERS,
                "tensor": tensor,
                "ranks": ranks,
                "weight_bytes": weight,
                "gradient_bytes": gradient,
                "optimizer_bytes": sum(optimizer),
                "shard_optimizer": stage >= 1,
                "shard_gradients": stage >= 2,
                "shard_weights": stage >= 3,
            },
            held,
        )


def published_rungs() -> Answers:
    # ZeRO paper (Rajbhandari et al. 2020), figure 1: 7.5e9 parameters on 64 devices, 2 + 2 + 12 bytes a parameter
    base = {
        "stage_parameters": 7.5e9,
        "tensor": 1,
        "ranks": 64,
        "weight_bytes": 2,
        "gradient_bytes": 2,
        "optimizer_bytes": 12,
    }
    for stage, answer in enumerate((120e9, 31.4e9, 16.6e9, 1.9e9)):
        flags = {"shard_optimizer": stage >= 1, "shard_gradients": stage >= 2, "shard_weights": stage >= 3}
        yield base | flags, answer


ORACLES: dict[str, list[Check]] = {
    "shard.reduce_scatter_bytes": [agrees(_collective(ring.reduce_scatter))],
    "shard.all_gather_bytes": [agrees(_collective(ring.all_gather))],
    "shard.all_reduce_bytes": [agrees(_collective(ring.all_reduce)), agrees(gradients_of_1e9_parameters)],
    "shard.data_parallel_traffic": [agrees(_ladder("none"))],
    "shard.zero1_traffic": [agrees(_ladder("zero1"))],
    "shard.zero2_traffic": [agrees(_ladder("zero2"))],
    "shard.zero3_traffic": [agrees(_ladder("zero3")), agrees(fsdp_bytes_of_a_parameter, 1e-6)],
    "shard.tensor_unit_bytes": [agrees(hidden_vectors_round_the_tensor_ranks)],
    "shard.pipeline_send_bytes": [agrees(hidden_vectors_to_the_next_stage)],
    "shard.state_per_device": [agrees(arrays_a_rank_keeps), agrees(published_rungs, 0.015)],
}
