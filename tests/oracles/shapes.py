"""Models for the oracles: small random ones in which every term of a formula counts, and well-known ones."""

from __future__ import annotations

import random
from dataclasses import replace

from course.simulators.shapes import Shape

LLAMA_2_7B = Shape(32, 4096, 32, 32, 128, 11008, 32000)
LLAMA_2_70B = Shape(80, 8192, 64, 8, 128, 28672, 32000)
LLAMA_3_8B = Shape(32, 4096, 32, 8, 128, 14336, 128256)
LLAMA_3_405B = Shape(126, 16384, 128, 8, 128, 53248, 128256)
GPT_2 = Shape(
    12, 768, 12, 12, 64, 3072, 50257, gated_mlp=False, tied_embeddings=True, attention_bias="qkvo", mlp_bias=True,
    norm_size=2, learned_positions=1024,
)  # fmt: skip

PUBLIC_COUNTS = (
    (LLAMA_2_7B, 6_738_415_616),
    (LLAMA_2_70B, 68_976_648_192),
    (LLAMA_3_8B, 8_030_261_248),
    (LLAMA_3_405B, 405_853_388_800),
    (GPT_2, 124_439_808),
)
"""Parameters as the released checkpoints hold them."""


def random_shapes(count: int, seed: int, divisible_by: int = 1) -> list[Shape]:
    """Small decoders of every kind; what tensor parallelism splits is divisible by `divisible_by`."""
    draw = random.Random(seed)
    shapes = []
    for number in range(count):
        kv_heads = draw.choice((1, 2, 3)) * divisible_by
        norm_size = draw.choice((0, 1, 2))
        shapes.append(
            Shape(
                layers=draw.randint(1, 6),
                hidden=draw.randint(3, 24),
                heads=kv_heads * draw.choice((1, 2, 4)),
                kv_heads=kv_heads,
                head_size=draw.randint(2, 9),
                ffn=draw.randint(2, 20) * divisible_by,
                vocabulary=draw.randint(5, 90) * divisible_by,
                gated_mlp=number % 2 == 0,
                tied_embeddings=number % 3 == 0,
                attention_bias=draw.choice(("none", "qkv", "qkvo")),
                mlp_bias=draw.random() < 0.5,
                norm_size=norm_size,
                norms_per_layer=draw.choice((1, 2, 4)),
                qk_norm=draw.choice(("none", "head", "width")),
                final_norm=draw.random() < 0.5,
                embedding_norm=draw.random() < 0.5,
                learned_positions=draw.choice((0, 7)),
            )
        )
    return shapes


def plain(shape: Shape) -> Shape:
    """The same widths with two norms a layer and none on queries and keys: what the activation formulas assume."""
    return replace(shape, norms_per_layer=2, qk_norm="none")
