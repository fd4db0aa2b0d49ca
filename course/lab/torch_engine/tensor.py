"""Tensor parallelism: matrices cut in pairs, columns then rows, so that a block needs one all-reduce each way and half.

With sequence parallelism the same all-reduces come apart into reduce-scatters and all-gathers, and between them each
rank holds its piece of the sequence alone. The logits stay cut by vocabulary: their loss needs three numbers a token.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional

from course.lab.torch_engine.exchange import scattered, summed
from course.lab.torch_engine.mesh import Places
from course.lab.torch_engine.model import Decoder
from course.lab.torch_engine.request import Request

__all__ = ["loss", "split"]


def split(model: Decoder, request: Request, where: Places) -> None:
    """Cut the model over the tensor axis, in place, by PyTorch's `parallelize_module`; nothing where it is 1."""
    if request.tensor == 1:
        return
    along = Shard(1) if request.sequence_parallel else Replicate()
    plan: dict[str, ParallelStyle] = {}
    for index in range(len(model.blocks)):
        name = f"blocks.{index}."
        plan[name + "attention.inward"] = ColwiseParallel(input_layouts=along)
        plan[name + "attention.outward"] = RowwiseParallel(output_layouts=along)
        plan[name + "feedforward.up"] = ColwiseParallel(input_layouts=along)
        plan[name + "feedforward.down"] = RowwiseParallel(output_layouts=along)
        if request.sequence_parallel:
            plan[name + "norm_attention"] = SequenceParallel(use_local_output=True)
            plan[name + "norm_feedforward"] = SequenceParallel(use_local_output=True)
    if model.embedding is not None:
        group = where.tensor_mesh.get_group()
        model.embedding = _CutEmbedding(model.embedding, group, request.sequence_parallel)
        if request.sequence_parallel:
            model.positions = model.positions.chunk(request.tensor)[where.tensor].clone()
    if model.head is not None:
        plan["head"] = ColwiseParallel(input_layouts=along)
        if request.sequence_parallel:
            plan["norm"] = SequenceParallel(use_local_output=True)
    parallelize_module(model, where.tensor_mesh, plan)


def loss(logits: Tensor, targets: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Mean cross entropy of this rank's tokens.

    Args:
        logits: [batch, sequence, vocabulary] or, with a group, this rank's slice of the vocabulary.
        targets: [batch, sequence].
        group: the ranks among which the vocabulary is cut, or None.

    >>> round(loss(torch.zeros(1, 2, 4), torch.tensor([[0, 3]]), None).item(), 4)
    1.3863
    """
    if group is None:
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    losses: Tensor = _CutCrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits.flatten(0, 1).float(), targets.flatten(), group
    )
    return losses


class _CutEmbedding(nn.Module):
    """A run of the vocabulary's rows on each rank; what a rank has no row for is 0 there, and the sum is right.

    `RowwiseParallel` would do the same, but in torch 2.13 it leaves the gradient of the whole table on every rank.
    """

    def __init__(self, table: nn.Module, group: dist.ProcessGroup, scatter: bool) -> None:
        super().__init__()
        assert isinstance(table, nn.Embedding)
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        self.weight = nn.Parameter(table.weight.detach().chunk(ranks)[rank].clone())
        self.first = rank * len(self.weight)
        self._finish = partial(scattered if scatter else summed, group=group)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, sequence] to [batch, sequence or this rank's run of it, hidden]."""
        own = tokens - self.first
        elsewhere = (own < 0) | (own >= len(self.weight))
        found = functional.embedding(own.masked_fill(elsewhere, 0), self.weight)
        # The next stage takes contiguous activations only.
        return self._finish(found.masked_fill(elsewhere[..., None], 0.0)).contiguous()


class _CutCrossEntropy(torch.autograd.Function):
    """Cross entropy over a vocabulary that is cut: largest logit, sum of exponentials and the target's logit travel."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Mean over tokens."""
        width = logits.shape[1]
        highest = logits.max(dim=1).values
        dist.all_reduce(highest, dist.ReduceOp.MAX, group)
        raised = (logits - highest[:, None]).exp()
        own = targets - dist.get_rank(group) * width
        mine = (own >= 0) & (own < width)
        own = own.clamp(0, width - 1)
        sums = raised.sum(dim=1)
        hit = torch.where(mine, logits.gather(1, own[:, None])[:, 0] - highest, 0.0)
        dist.all_reduce(sums, group=group)
        dist.all_reduce(hit, group=group)
        ctx.save_for_backward(raised / sums[:, None], own, mine)
        return (sums.log() - hit).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The softmax, less one at the target."""
        share, own, mine = ctx.saved_tensors
        share = share.clone()
        share[torch.arange(len(own), device=own.device), own] -= mine.to(share.dtype)
        return share * (gradients[0] / len(own)), None, None
