"""Context parallelism of our own: keys and values of the whole sequence are gathered, queries stay where they are.

A few lines that run on every device; PyTorch's own context parallelism has no kernel for CPUs. Each rank holds a run of
neighbouring tokens, so that the last rank's queries see most keys: the work is not evened out.
"""

from __future__ import annotations

from torch import Tensor

from course.lab.torch_engine.exchange import gathered
from course.lab.torch_engine.mesh import Places
from course.lab.torch_engine.model import Attention, Decoder
from course.lab.torch_engine.request import Request

__all__ = ["split"]


def split(model: Decoder, request: Request, where: Places) -> None:
    """Make the model work on this rank's run of the sequence, in place; nothing where the axis is 1."""
    if where.context_group is None:
        return
    group = where.context_group

    def gather(part: Tensor) -> Tensor:
        return gathered(part, group)

    model.positions = model.positions.chunk(request.context)[where.context].clone()
    for attention in model.modules():
        if isinstance(attention, Attention):
            attention.offset = where.context * (request.sequence_length // request.context)
            attention.gather_keys = gather
