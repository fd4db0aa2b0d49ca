"""A plain decoder transformer, written so that every axis can cut it: blocks in a list, one matrix for all heads.

No biases; positions are fixed sines, so that they cost no parameters and no traffic. The rows of the attention's first
matrix run head by head (query, key, value of head 0, then of head 1), so that a cut by rows is a cut by heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from course.lab.torch_engine.request import Shape

__all__ = ["Attention", "Block", "Decoder", "Feedforward", "Gather", "whole"]

Gather = Callable[[Tensor], Tensor]
"""What makes keys and values of all ranks of a context group out of one rank's: [batch, sequence, …] to the longer."""


class Attention(nn.Module):
    """Causal attention of this rank's queries over all keys before them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.inward = nn.Linear(shape.hidden, 3 * shape.hidden, bias=False)
        self.outward = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.gather_keys: Gather | None = None  # where the sequence is cut
        self.offset = 0  # tokens of the sequence that lie before this rank's

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden] to the same; heads are as many as the matrix has rows for."""
        mixed: Tensor = self.inward(x)
        batch, length, width = mixed.shape
        mixed = mixed.view(batch, length, width // (3 * self.head_size), 3 * self.head_size)
        query, key_value = torch.split(mixed, [self.head_size, 2 * self.head_size], dim=-1)
        mask = None
        if self.gather_keys is not None:
            key_value = self.gather_keys(key_value)
            places = torch.arange(key_value.shape[1], device=x.device)
            mask = places[None, :] <= places[self.offset : self.offset + length, None]
        key, value = key_value.chunk(2, dim=-1)
        seen = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask, is_causal=mask is None
        )
        out: Tensor = self.outward(seen.transpose(1, 2).reshape(batch, length, -1))
        return out


class Feedforward(nn.Module):
    """Two matrices with a bend between them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden] to the same."""
        out: Tensor = self.down(functional.gelu(self.up(x)))
        return out


class Block(nn.Module):
    """One layer: attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm_attention = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.attention = Attention(shape)
        self.norm_feedforward = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.feedforward = Feedforward(shape)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden] to the same."""
        x = x + self.attention(self.norm_attention(x))
        out: Tensor = x + self.feedforward(self.norm_feedforward(x))
        return out


class Decoder(nn.Module):
    """The blocks of one stage; the first has the embedding before them, the last the norm and the head behind them."""

    def __init__(self, shape: Shape, sequence_length: int) -> None:
        super().__init__()
        self.embedding: nn.Module | None = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = _sines(sequence_length, shape.hidden)  # no buffer: DDP would make all ranks' alike
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm: nn.Module | None = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.head: nn.Module | None = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, sequence] or activations [batch, sequence, hidden] to activations or logits."""
        if self.embedding is not None:
            x = self.embedding(x) + self.positions
        for block in self.blocks:
            x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x

    def keep_stage(self, stage: int, stages: int) -> None:
        """Drop what other stages hold. Layers are dealt out evenly, the first stages take one more where they must.

        >>> model = Decoder(Shape(layers=3), 8)
        >>> model.keep_stage(0, 2)
        >>> len(model.blocks), model.head is None, model.embedding is None
        (2, True, False)
        """
        share, rest = divmod(len(self.blocks), stages)
        first = stage * share + min(stage, rest)
        self.blocks = self.blocks[first : first + share + (stage < rest)]
        if stage > 0:
            self.embedding = None
        if stage < stages - 1:
            self.norm = self.head = None


def whole(shape: Shape, sequence_length: int, seed: int) -> Decoder:
    """The model before any cut, with the same weights on every rank of every layout.

    Args:
        shape: the model's shape.
        sequence_length: tokens of a sequence.
        seed: of the draw; matrices are normal with a spread of 0.02, norms are 1.

    >>> sum(weight.numel() for weight in whole(Shape(), 64, 0).parameters())
    918656
    """
    with torch.device("cpu"):
        model = Decoder(shape, sequence_length)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, 0.02, generator=generator)
    return model


def _sines(length: int, width: int) -> Tensor:
    """Positions as sines and cosines of falling frequency, scaled to the embedding's size."""
    place = torch.arange(length, dtype=torch.float32)[:, None]
    frequency = torch.exp(-math.log(1e4) * torch.arange(0, width, 2, dtype=torch.float32) / width)
    return 0.02 * torch.cat((torch.sin(place * frequency), torch.cos(place * frequency)), dim=1)[:, :width]
