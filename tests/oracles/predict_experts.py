"""Oracles of layers with experts, of latents and of context rings: tokens dealt out, arrays weighed, rings walked."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import numpy as np

from oracles.checking import Answers, Check, agrees

FLOATS = {2: np.float16, 4: np.float32}
FOLDS = (
    # tensor, context, data, expert, expert_tensor
    (1, 1, 4, 2, 1), (2, 1, 4, 4, 1), (2, 2, 2, 2, 2), (4, 1, 2, 2, 4), (1, 2, 4, 8, 1), (2, 3, 2, 3, 1),
    (1, 1, 4, 2, 2),
)  # fmt: skip


def _dealt(
    fold: tuple[int, int, int, int, int], experts: int, chosen: int, sequences: int, length: int
) -> tuple[Counter[int], list[int]]:
    """Copies each expert of the first group of ranks gets, and tokens each rank of the stage holds.

    Ranks of a stage stand in a row and are cut into groups that hold every expert once; a token goes to the next
    `chosen` experts in turn.
    """
    tensor, context, data, expert, expert_tensor = fold
    ranks = tensor * context * data
    held = [sequences * length // (context * tensor)] * ranks
    copies: Counter[int] = Counter()
    turn = 0
    for _rank in range(expert * expert_tensor):
        for _token in range(held[_rank]):
            for _ in range(chosen):
                copies[turn % experts] += 1
                turn += 1
    return copies, held


def copies_dealt_to_experts() -> Answers:
    for fold, (experts, chosen), sequences in product(FOLDS, ((24, 2), (24, 6)), (1, 3)):
        tensor, context, _, expert, expert_tensor = fold
        length = 24 * tensor * context
        copies, _ = _dealt(fold, experts, chosen, sequences, length)
        assert len(set(copies.values())) == 1
        yield (
            {"experts_per_token": chosen, "experts": experts, "micro_batch": sequences, "sequence_length": length,
             "tensor": tensor, "context": context, "expert": expert, "expert_tensor": expert_tensor},
            copies[0],
        )  # fmt: skip


def inputs_of_the_experts_of_a_rank() -> Answers:
    for fold, size in product(FOLDS, FLOATS):
        tensor, context, _, expert, expert_tensor = fold
        experts, chosen, hidden, length = 24, 3, 5, 24 * tensor * context
        copies, _ = _dealt(fold, experts, chosen, 1, length)
        mine = [np.zeros((copies[one], hidden), FLOATS[size]) for one in range(experts // expert)]
        yield (
            {"activation_bytes": size, "hidden": hidden, "experts_per_token": chosen, "expert_tensor": expert_tensor,
             "tensor": tensor},
            sum(array.nbytes for array in mine) / (length / context),
        )  # fmt: skip


def _around(tensor: int, sharded: bool, tokens: int) -> int:
    return tokens // tensor if sharded else tokens


def sorted_and_added_up() -> Answers:
    for (tensor, sharded), context, chosen, size, sequences in product(
        ((1, False), (2, False), (4, True)), (1, 2), (1, 3), FLOATS, (1, 2)
    ):
        hidden, length = 7, 16
        own = np.zeros((_around(tensor, sharded, sequences * length // context), hidden), FLOATS[size])
        copies = np.repeat(own, chosen, axis=0)
        results = copies * 1
        moved = sum(array.nbytes for array in (own, copies, results, results.reshape(-1, chosen, hidden)[:, 0]))
        yield (
            {"activation_bytes": size, "hidden": hidden, "experts_per_token": chosen, "micro_batch": sequences,
             "sequence_length": length, "context": context, "tensor": tensor, "sequence_sharded": sharded},
            moved,
        )  # fmt: skip


def copies_of_a_rank() -> Answers:
    for (tensor, sharded), context, chosen, size, sequences in product(
        ((1, False), (2, False), (4, True)), (1, 2), (1, 3), FLOATS, (1, 2)
    ):
        hidden, length = 6, 24
        own = np.zeros((_around(tensor, sharded, sequences * length // context), hidden), FLOATS[size])
        yield (
            {"activation_bytes": size, "hidden": hidden, "experts_per_token": chosen, "micro_batch": sequences,
             "sequence_length": length, "context": context, "tensor": tensor, "sequence_sharded": sharded},
            np.repeat(own, chosen, axis=0).nbytes,
        )  # fmt: skip


def messages_by_two_roads() -> Answers:
    draw = random.Random(71)
    for ranks, near in ((1, 1), (2, 2), (2, 1), (8, 8), (8, 4), (8, 1), (16, 8), (6, 2), (6, 3)):
        for _ in range(4):
            part, up, out = draw.randint(1, 90), draw.uniform(1, 9), draw.uniform(1, 9)
            wait_up, wait_out = draw.uniform(0, 40), draw.uniform(0, 40)
            inside = [part / up for other in range(1, ranks) if other // near == 0]
            outside = [part / out for other in range(1, ranks) if other // near > 0]
            done = [wait + sum(road) for wait, road in ((wait_up, inside), (wait_out, outside)) if road]
            yield (
                {"ranks": ranks, "ranks_per_node": near, "payload_bytes": part * ranks, "scale_up_bytes_per_s": up,
                 "scale_out_bytes_per_s": out, "scale_up_latency_s": wait_up, "scale_out_latency_s": wait_out},
                max(done, default=0.0),
            )  # fmt: skip


def passes_over_latents() -> Answers:
    for (tensor, sharded), context, size, (queries, keys), sequences in product(
        ((1, False), (2, False), (4, True)), (1, 2), FLOATS, ((3, 5), (0, 4)), (1, 2)
    ):
        length = 16
        tokens = _around(tensor, sharded, sequences * length // context)
        moved = 0
        for width in (queries, keys):
            latent = np.zeros((tokens, width), FLOATS[size])
            normed = latent * 1
            moved += latent.nbytes + normed.nbytes
        yield (
            {"activation_bytes": size, "q_lora": queries, "kv_lora": keys, "micro_batch": sequences,
             "sequence_length": length, "context": context, "tensor": tensor, "sequence_sharded": sharded},
            moved,
        )  # fmt: skip


def latents_kept() -> Answers:
    for (tensor, sharded), size, (queries, keys) in product(
        ((1, False), (2, False), (4, True)), FLOATS, ((3, 5), (0, 4), (7, 2))
    ):
        tokens = 8
        kept = [
            np.zeros((_around(tensor, sharded, tokens), width), FLOATS[size])
            for width in (queries, queries, keys, keys)
        ]
        yield (
            {"activation_bytes": size, "q_lora": queries, "kv_lora": keys, "tensor": tensor,
             "sequence_sharded": sharded},
            sum(array.nbytes for array in kept) / tokens,
        )  # fmt: skip


def a_ring_hop_by_hop() -> Answers:
    draw = random.Random(72)
    for ranks in (1, 2, 3, 8):
        for _ in range(6):
            work, hop = draw.randint(0, 40) / 8, draw.randint(0, 40) / 8  # sums of eighths are exact
            arrived, free = 0.0, 0.0  # when the next block is there, and when the device has done the one before
            for block in range(ranks):
                start = max(free, arrived)
                free = start + work
                if block < ranks - 1:
                    arrived = start + hop  # the block at work is handed on while it is worked on
            yield {"ranks": ranks, "compute_per_layer": work, "communication_per_layer": hop}, free - ranks * work


ORACLES: dict[str, list[Check]] = {
    "predict.experts.expert_rows": [agrees(copies_dealt_to_experts)],
    "predict.experts.routing_bytes": [agrees(sorted_and_added_up)],
    "predict.experts.expert_inputs_bytes": [agrees(inputs_of_the_experts_of_a_rank)],
    "predict.experts.expert_payload_bytes": [agrees(copies_of_a_rank)],
    "predict.experts.expert_exchange_time": [agrees(messages_by_two_roads)],
    "predict.latent.latent_norm_bytes": [agrees(passes_over_latents)],
    "predict.latent.latent_saved_bytes": [agrees(latents_kept)],
    "predict.context.exposed_ring": [agrees(a_ring_hop_by_hop)],
}
