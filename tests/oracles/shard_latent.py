"""Oracles of latent attention in traffic: keys and values, or latents, really sent between ranks."""

from __future__ import annotations

from itertools import product

import numpy as np

from course.simulators import latent, ring
from course.simulators.latent import LatentShape
from oracles.checking import Answers, Check, agrees

FLOAT = 8
# heads of a tensor rank, own and shared part of a key, value, latent of keys and values, latent of queries
SHAPES = (
    LatentShape(1, 2, 1, 3, 2, 4), LatentShape(2, 1, 3, 2, 5, 1), LatentShape(3, 4, 2, 1, 1, 3),
    LatentShape(2, 3, 5, 4, 4, 2),
)  # fmt: skip


def _context(*, wide: bool) -> Answers:
    """Three units: gathered forward and again backward, and gradients scattered; sequences one behind the other."""
    for shape, (context, block, sequences, tensor) in product(SHAPES, ((1, 2, 1, 1), (2, 1, 3, 4), (4, 2, 2, 2))):
        trial = latent.latent_context(context, context * block, shape, wide=wide)
        assert trial.agrees()
        widths = {"heads": shape.heads * tensor, "nope_head_size": shape.nope, "v_head_size": shape.value,
                  "tensor": tensor} if wide else {"kv_lora": shape.kv_lora}  # fmt: skip
        yield (
            {"activation_bytes": FLOAT, "rope_head_size": shape.rope, "micro_batch": sequences,
             "sequence_length": context * block, "context": context, **widths},
            sequences * trial.sent[0] / 3,
        )  # fmt: skip
    blocks = [np.zeros((2, 4, 12 if wide else 5), np.float16) for _ in range(3)]  # 2 heads of 3 + 1 + 2; 4 + 1
    widths = ({"heads": 4, "nope_head_size": 3, "v_head_size": 2, "tensor": 2} if wide else {"kv_lora": 4})
    yield (
        {"activation_bytes": 2, "rope_head_size": 1, "micro_batch": 2, "sequence_length": 12, "context": 3, **widths},
        ring.all_gather(blocks).bytes_sent[0],
    )


def wide_keys_and_values() -> Answers:
    yield from _context(wide=True)


def latents_instead() -> Answers:
    yield from _context(wide=False)


def latents_before_the_heads() -> Answers:
    """Forward a gather of latents and a scatter of hidden vectors, backward the other way round."""
    for shape, (tensor, block, hidden) in product(SHAPES, ((1, 2, 3), (2, 3, 1), (4, 1, 5))):
        tokens = tensor * block
        many = LatentShape(shape.heads * tensor, shape.nope, shape.rope, shape.value, shape.kv_lora, shape.q_lora)
        trial = latent.latent_tensor(tensor, tokens, hidden, many)
        assert trial.agrees()
        outputs = ring.all_gather([np.zeros((block, hidden))] * tensor).bytes_sent[0]
        yield (
            {"activation_bytes": FLOAT, "q_lora": shape.q_lora, "kv_lora": shape.kv_lora, "rope_head_size": shape.rope,
             "micro_batch": 1, "sequence_length": tokens, "tensor": tensor},
            trial.sent[0] / 2 - outputs,
        )  # fmt: skip
    pieces = [np.zeros((3, 2, 7), np.float16) for _ in range(4)]
    yield (
        {"activation_bytes": 2, "q_lora": 4, "kv_lora": 2, "rope_head_size": 1, "micro_batch": 3, "sequence_length": 8,
         "tensor": 4},
        ring.all_gather(pieces).bytes_sent[0],
    )  # fmt: skip


ORACLES: dict[str, list[Check]] = {
    "shard.expanded_context_bytes": [agrees(wide_keys_and_values)],
    "shard.latent_context_bytes": [agrees(latents_instead)],
    "shard.latent_tensor_unit_bytes": [agrees(latents_before_the_heads)],
}
