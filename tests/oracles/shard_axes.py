"""More oracles of step 3: layers really cut over ranks, tokens really sent to experts, state really dealt out."""

from __future__ import annotations

from itertools import product

import numpy as np

from course.simulators import axes, ring
from oracles.checking import Answers, Check, agrees

FLOATS = {2: np.float16, 4: np.float32, 8: np.float64}
FLOAT = 8  # of the layer programs


def chunks_to_everybody() -> Answers:
    for ranks, size in product((1, 2, 3, 8), (2, 4)):
        whole = 240 * ranks
        sent = ring.all_to_all([np.zeros(whole, FLOATS[size]) for _ in range(ranks)]).bytes_sent
        assert len(set(sent)) == 1
        yield {"ranks": ranks, "payload_bytes": whole * size}, sent[0]


def outputs_of_an_mlp_summed() -> Answers:
    shapes = ((1, 2, 1, 8, 3), (2, 2, 3, 8, 5), (4, 4, 2, 4, 7), (8, 2, 1, 16, 3))
    for tensor, size, sequences, length, hidden in shapes:
        whole = np.zeros((sequences * length, hidden), FLOATS[size])
        yield (
            {"tensor": tensor, "activation_bytes": size, "micro_batch": sequences, "sequence_length": length,
             "hidden": hidden},
            ring.all_reduce([whole] * tensor).bytes_sent[0],
        )  # fmt: skip
    for tensor, tokens, hidden in ((2, 4, 6), (3, 6, 3)):
        trial = axes.tensor_mlp(tensor, tokens, hidden, tensor, sequence_parallel=False)
        yield (
            {"tensor": tensor, "activation_bytes": FLOAT, "micro_batch": 1, "sequence_length": tokens,
             "hidden": hidden},
            trial.sent[0] / 2,  # forward and backward
        )  # fmt: skip


def _attention(tensor: int) -> Answers:
    """A tensor rank runs attention on its own heads; sequences of a micro-batch are one behind the other."""
    shapes = ((1, 2, 1, 2, 3), (2, 3, 2, 4, 2), (4, 1, 3, 3, 5), (3, 2, 1, 1, 4))
    for context, block, sequences, kv_heads, size in shapes:
        yield (
            {"activation_bytes": FLOAT, "kv_heads": kv_heads * tensor, "head_size": size, "tensor": tensor,
             "micro_batch": sequences, "sequence_length": context * block, "context": context},
            sequences * axes.ring_attention(context, context * block, kv_heads * 2, kv_heads, size).sent[0],
        )  # fmt: skip


def blocks_round_the_context_ranks() -> Answers:
    for tensor in (1, 4):
        yield from _attention(tensor)
    # 2-byte keys and values of 4 heads of 16, 64 tokens on 4 ranks: 3 hops of 16 tokens
    block = np.zeros((2, 16, 4, 16), np.float16)
    yield (
        {"activation_bytes": 2, "kv_heads": 4, "head_size": 16, "tensor": 1, "micro_batch": 1, "sequence_length": 64,
         "context": 4},
        3 * ring.send(block).bytes_sent[0],
    )  # fmt: skip


def heads_exchanged() -> Answers:
    shapes = ((1, 2, 1, 2, 2, 1), (2, 3, 1, 2, 3, 2), (4, 1, 2, 1, 5, 3), (3, 2, 3, 1, 4, 1))
    for (context, block, kv_heads, group, size, sequences), tensor in product(shapes, (1, 2)):
        heads = {"heads": context * kv_heads * group, "kv_heads": context * kv_heads}
        trial = axes.head_exchange(context, context * block, *heads.values(), size)
        yield (
            {"activation_bytes": FLOAT, "head_size": size, "tensor": tensor, "micro_batch": sequences,
             "sequence_length": context * block, "context": context,
             **{name: count * tensor for name, count in heads.items()}},
            sequences * trial.sent[0],
        )  # fmt: skip
    q, k = np.zeros((8, 4, 16), np.float16), np.zeros((8, 2, 16), np.float16)
    sent = sum(ring.all_to_all([part, part]).bytes_sent[0] for part in (q, k, k, q))
    yield (
        {"activation_bytes": 2, "heads": 4, "kv_heads": 2, "head_size": 16, "tensor": 1, "micro_batch": 1,
         "sequence_length": 16, "context": 2},
        sent,
    )  # fmt: skip


def copies_to_their_experts() -> Answers:
    # (expert ranks, experts, tokens of one device, copies, width), then what made the tokens of a device so few
    shapes = ((1, 2, 4, 1, 3), (2, 4, 8, 3, 2), (4, 4, 4, 2, 5), (3, 3, 6, 2, 4))
    for (ranks, experts, tokens, copies, hidden), context, tensor, sharded in product(shapes, (1, 2), (1, 4), (0, 1)):
        sequences = 2
        length = tokens * context * (tensor if sharded else 1) / sequences
        yield (
            {"activation_bytes": FLOAT, "hidden": hidden, "experts_per_token": copies, "micro_batch": sequences,
             "sequence_length": length, "context": context, "tensor": tensor, "sequence_sharded": sharded,
             "expert": ranks},
            axes.mixture(ranks, tokens, hidden, experts, copies).sent[0] / 4,
        )  # fmt: skip


def a_layer_of_a_thread() -> Answers:
    # arganzheng/arganzheng.github.com #80: 0.94 GB in four transfers, 0.47 GB if copies merge
    for copies, gigabytes in ((2, 0.9395241), (1, 0.469762)):
        yield (
            {"activation_bytes": 2, "hidden": 8192, "experts_per_token": copies, "micro_batch": 1,
             "sequence_length": 8192, "context": 1, "tensor": 1, "sequence_sharded": 0, "expert": 8},
            gigabytes * 1e9 / 4,
        )  # fmt: skip


def ranks_dealt_out() -> Answers:
    for tensor, context, data, expert, expert_tensor in product((1, 2, 3), (1, 2), (2, 6), (1, 2, 4), (1, 3)):
        stage = tensor * context * data
        if stage % (expert * expert_tensor) == 0:
            groups = axes.expert_groups(stage, expert, expert_tensor)
            yield (
                {"tensor": tensor, "context": context, "data": data, "expert": expert, "expert_tensor": expert_tensor},
                len(groups[0]),
            )


def a_grid_of_a_thread() -> Answers:
    # NVIDIA-NeMo/Speech #14838: 4 devices, pipeline 2, expert 2: no copy of an expert
    yield {"tensor": 1, "context": 1, "data": 2, "expert": 2, "expert_tensor": 1}, 1


def arrays_of_experts_a_rank_keeps() -> Answers:
    parameters = 480
    for expert, split, copies, stage, sizes in product(
        (1, 4), (1, 2), (1, 3), range(4), ((2, 4, (4, 4, 4)), (4, 2, (2, 2)))
    ):
        local = np.split(np.split(np.zeros(parameters, np.int8), expert)[0], split)[0].size
        weight, gradient, optimizer = sizes
        held = 0
        for size, least in ((weight, 3), (gradient, 2), *((part, 1) for part in optimizer)):
            whole = np.zeros(local, FLOATS[size])
            held += (np.array_split(whole, copies)[0] if stage >= least else whole).nbytes
        yield (
            {"expert_parameters": parameters, "expert": expert, "expert_tensor": split, "expert_data": copies,
             "weight_bytes": weight, "gradient_bytes": gradient, "optimizer_bytes": sum(optimizer),
             "shard_optimizer": float(stage >= 1), "shard_gradients": float(stage >= 2),
             "shard_weights": float(stage >= 3)},
            held,
        )  # fmt: skip


def groups_that_share_a_copy_of_the_state() -> Answers:
    parameters = 240
    for (group, groups), tensor, micro_batches, gradient in product(
        ((1, 1), (4, 1), (1, 3), (2, 2), (4, 3), (2, 5)), (1, 2), (1, 3), (np.float32, np.float64)
    ):
        trial = axes.hybrid_step(group * groups, group, parameters // tensor, micro_batches, gradient)
        assert trial.agrees() and len(set(trial.sent)) == 1
        yield (
            {"ranks": group * groups, "shard_group": group, "stage_parameters": parameters, "tensor": tensor,
             "reductions": micro_batches, "weight_bytes": FLOAT, "reduced_gradient_bytes": gradient().nbytes},
            trial.sent[0],
        )  # fmt: skip


def narrow_weights_in_groups() -> Answers:
    # 8 ranks in two groups of 4, 40 parameters: bf16 weights gathered twice, fp32 gradients scattered, 10 of them
    # all-reduced over 2
    gathered = ring.all_gather([np.zeros(10, np.float16)] * 4).bytes_sent[0]
    scattered = ring.reduce_scatter([np.zeros(40, np.float32)] * 4).bytes_sent[0]
    between = ring.all_reduce([np.zeros(10, np.float32)] * 2).bytes_sent[0]
    yield (
        {"ranks": 8, "shard_group": 4, "stage_parameters": 40, "tensor": 1, "reductions": 1, "weight_bytes": 2,
         "reduced_gradient_bytes": 4},
        2 * gathered + scattered + between,
    )  # fmt: skip


ORACLES: dict[str, list[Check]] = {
    "shard.hybrid_traffic": [agrees(groups_that_share_a_copy_of_the_state), agrees(narrow_weights_in_groups)],
    "shard.all_to_all_bytes": [agrees(chunks_to_everybody)],
    "shard.tensor_all_reduce_bytes": [agrees(outputs_of_an_mlp_summed)],
    "shard.context_unit_bytes": [agrees(blocks_round_the_context_ranks)],
    "shard.head_exchange_bytes": [agrees(heads_exchanged)],
    "shard.expert_transfer_bytes": [agrees(copies_to_their_experts), agrees(a_layer_of_a_thread, 1e-6)],
    "shard.expert_data_ranks": [agrees(ranks_dealt_out), agrees(a_grid_of_a_thread)],
    "shard.expert_state_per_device": [agrees(arrays_of_experts_a_rank_keeps)],
}
