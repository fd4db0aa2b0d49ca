"""Collectives that gradients pass through: what goes one way forward comes back the other way.

A gather's backward is a reduce-scatter and the other way round; a sum's backward is nothing, for every rank has the
whole gradient. PyTorch 2.13 renamed the first two: they are called here by the name that is there.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["all_gather", "gathered", "reduce_scatter", "scattered", "summed"]


def all_gather(out: Tensor, part: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Gather the parts of all ranks into one tensor, along its first axis."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(out, part, group=group)


def reduce_scatter(out: Tensor, whole: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Sum over ranks and keep one's own part of the first axis."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(out, whole, group=group)


def gathered(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[batch, sequence, …] to the sequence of all ranks, in their order; gradients are summed and scattered."""
    out: Tensor = _Gathered.apply(part, group)  # type: ignore[no-untyped-call]
    return out


def scattered(whole: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[batch, sequence, …], a summand on each rank, to this rank's run of the sum; gradients are gathered."""
    out: Tensor = _Scattered.apply(whole, group)  # type: ignore[no-untyped-call]
    return out


def summed(summand: Tensor, group: dist.ProcessGroup) -> Tensor:
    """A summand on each rank to the sum on all; gradients stay as they are."""
    out: Tensor = _Summed.apply(summand, group)  # type: ignore[no-untyped-call]
    return out


def _gather(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    first = part.transpose(0, 1).contiguous()
    out = first.new_empty((first.shape[0] * dist.get_world_size(group), *first.shape[1:]))
    all_gather(out, first, group)
    return out.transpose(0, 1)


def _scatter(whole: Tensor, group: dist.ProcessGroup) -> Tensor:
    first = whole.transpose(0, 1).contiguous()
    out = first.new_empty((first.shape[0] // dist.get_world_size(group), *first.shape[1:]))
    reduce_scatter(out, first, group)
    return out.transpose(0, 1)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _gather(part, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _scatter(gradients[0], ctx.group), None


class _Scattered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _scatter(whole, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _gather(gradients[0], ctx.group), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, summand: Tensor, group: dist.ProcessGroup) -> Tensor:
        out = summand.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
