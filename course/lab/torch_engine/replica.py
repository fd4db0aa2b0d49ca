"""What ranks with the same weights do with their gradients: DDP, FSDP2, or one plain all-reduce after the backward.

DDP overlaps the all-reduce with the backward. It takes no weights cut by the tensor axis, and breaks where a schedule
runs several forwards before their backwards: there the gradients of all matrices go into one all-reduce at the end.
Nothing of that is hidden, and the cell says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from course.lab.torch_engine.mesh import Places
from course.lab.torch_engine.model import Decoder
from course.lab.torch_engine.request import Request

try:
    from torch.distributed.fsdp import FSDPModule, fully_shard
except ImportError:  # torch 2.5 has it under another name
    from torch.distributed._composable.fsdp import FSDPModule, fully_shard  # type: ignore[attr-defined]

__all__ = ["Replica", "local"]


def local(tensor: Tensor) -> Tensor:
    """This rank's piece of a tensor; the tensor itself where it is not cut.

    >>> local(torch.ones(2)).shape
    torch.Size([2])
    """
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Replica:
    """The model as its replicas share it: `module` is what to call, `how` says what was chosen."""

    def __init__(self, model: Decoder, request: Request, where: Places, is_cpu: bool) -> None:
        self.module: nn.Module = model
        self.how = "none"
        self._group: dist.ProcessGroup | None = None
        self._parameters = list(model.parameters())
        if request.sharding != "none":
            self._shard(model, request.sharding == "zero3", where.replica)
        elif request.data * request.context > 1:
            group = where.replica.get_group()
            if request.tensor == request.pipeline == 1:
                self.how = "ddp"
                devices = None if is_cpu else [next(model.parameters()).device]
                self.module = DistributedDataParallel(
                    model, device_ids=devices, process_group=group, gradient_as_bucket_view=True
                )
            else:
                self.how = "one all-reduce after the backward"
                self._group = group

    def _shard(self, model: Decoder, regather: bool, mesh: DeviceMesh) -> None:
        """A block at a time, so that a block's weights are gathered while another computes."""
        self.how = "fsdp2, gathered again in the backward" if regather else "fsdp2, gathered once"
        for block in model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=regather)
        fully_shard(model, mesh=mesh, reshard_after_forward=regather)
        self._parameters = list(model.parameters())

    def last(self, is_last: bool) -> AbstractContextManager[None]:
        """Around a forward and backward: gradients travel with the last micro-batch only."""
        if isinstance(self.module, DistributedDataParallel) and not is_last:
            silent: AbstractContextManager[None] = self.module.no_sync()
            return silent
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(is_last)
        return nullcontext()

    def finish(self) -> None:
        """After the backward: average what is not averaged yet."""
        if self._group is not None:
            _average([local(weight.grad) for weight in self._parameters if weight.grad is not None], self._group)

    def held(self) -> dict[str, int]:
        """Bytes of weights and gradients on this rank, exactly.

        A gradient may lie in its piece of DDP's bucket: that piece is counted once.
        """
        gradients = [weight.grad for weight in self._parameters if weight.grad is not None]
        return {"parameters": _bytes(self._parameters), "gradients": _bytes(gradients)}


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of what a rank holds of the tensors.

    >>> _bytes([torch.ones(4), torch.ones(2, dtype=torch.bfloat16)])
    20
    """
    return sum(local(tensor).numel() * tensor.element_size() for tensor in tensors)


@torch.no_grad()
def _average(gradients: list[Tensor], group: dist.ProcessGroup) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    for gradient, mean in zip(gradients, torch.split(flat, [one.numel() for one in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
