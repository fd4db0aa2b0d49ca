"""The ranks of a launch as a mesh in a cell's order, and the groups that its axes give.

Each cell lays its own mesh over the first ranks of the launch, as many as it has devices. Data and context hold the
same weights, so together they are one axis here, `replica`: what averages or shards the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from course.lab.torch_engine.request import Request

__all__ = ["Places", "coordinates", "made_by_all", "places"]


@dataclass(frozen=True)
class Places:
    """Where this rank stands on each axis, and its groups; `tensor` and `replica` are one-dimensional meshes."""

    data: int
    tensor: int
    pipeline: int
    context: int
    replica: DeviceMesh
    tensor_mesh: DeviceMesh
    pipeline_group: dist.ProcessGroup
    context_group: dist.ProcessGroup | None


def coordinates(rank: int, degrees: dict[str, int], order: Sequence[str]) -> dict[str, int]:
    """Where a rank stands on each axis; the first axis of the order is the innermost: its ranks are neighbours.

    >>> coordinates(1, {"tensor": 2, "data": 2}, ("tensor", "data"))
    {'tensor': 1, 'data': 0}
    >>> coordinates(1, {"tensor": 2, "data": 2}, ("data", "tensor"))
    {'data': 1, 'tensor': 0}
    """
    found = {}
    for axis in order:
        rank, found[axis] = divmod(rank, degrees[axis])
    return found


def made_by_all(request: Request, kind: str) -> None:
    """Make the groups of a cell. Every rank of the launch must call it, whether or not it has a part in the cell."""
    _meshes(_degrees(request), request.order, kind)


def _degrees(request: Request) -> tuple[int, int, int, int]:
    return request.data, request.tensor, request.pipeline, request.context


def places(request: Request, kind: str) -> Places:
    """The mesh of a cell, on a rank that has a part in it. Its groups were made by all ranks."""
    degrees = _degrees(request)
    root, context = _meshes(degrees, request.order, kind)
    at = coordinates(
        dist.get_rank(), dict(zip(("data", "tensor", "pipeline", "context"), degrees, strict=True)), request.order
    )
    return Places(
        **at,
        replica=root["replica"],
        tensor_mesh=root["tensor"],
        pipeline_group=root["pipeline"].get_group(),
        context_group=context["context"].get_group() if context is not None else None,
    )


@cache
def _meshes(
    degrees: tuple[int, int, int, int], order: tuple[str, ...], kind: str
) -> tuple[DeviceMesh, DeviceMesh | None]:
    """Pipeline × replica × tensor, and pipeline × data × context × tensor where there is a context axis.

    FSDP2 wants its mesh and that of the tensor axis cut from one root, the tensor axis inside, whatever the order of
    the ranks: so the ranks are put in the cell's order first and the axes in ours then.
    """
    data, tensor, pipeline, context = degrees
    sizes = {"data": data, "tensor": tensor, "pipeline": pipeline, "context": context}
    outermost = tuple(reversed(order))
    ranks = torch.arange(data * tensor * pipeline * context).reshape([sizes[axis] for axis in outermost])
    ranks = ranks.permute([outermost.index(axis) for axis in ("pipeline", "data", "context", "tensor")])
    root = DeviceMesh(
        kind, ranks.reshape(pipeline, data * context, tensor), mesh_dim_names=("pipeline", "replica", "tensor")
    )
    if context == 1:
        return root, None
    return root, DeviceMesh(kind, ranks, mesh_dim_names=("pipeline", "data", "context", "tensor"))
