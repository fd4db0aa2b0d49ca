"""A training step of one layout, put together from its axes: what is timed is `Program.step`, and nothing else.

Weights are drawn whole and alike on every rank, then cut; the global batch likewise. So every layout does the same
arithmetic as one device does, and its loss must come out the same.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor

from course.lab.torch_engine import context, tensor
from course.lab.torch_engine.device import Device, precision
from course.lab.torch_engine.mesh import Places, places
from course.lab.torch_engine.model import whole
from course.lab.torch_engine.replica import Replica
from course.lab.torch_engine.request import Request

__all__ = ["LEARNING_RATE", "Program", "batch", "mean_over_ranks"]

LEARNING_RATE = 0.5


def batch(request: Request, seed: int) -> Tensor:
    """The global batch, drawn whole: [sequences, tokens + 1].

    >>> batch(Request("a", "strong", global_batch=2), 0).shape
    torch.Size([2, 65])
    """
    generator = torch.Generator().manual_seed(seed + 1)
    size = (request.global_batch, request.sequence_length + 1)
    return torch.randint(request.shape.vocabulary, size, generator=generator)


class Program:
    """One layout on this rank, ready to step. All ranks make it together."""

    def __init__(self, request: Request, device: Device, seed: int) -> None:
        self.request = request
        self.where: Places = places(request, device.kind)
        where = self.where
        model = whole(request.shape, request.sequence_length, seed)
        model.keep_stage(where.pipeline, request.pipeline)
        kind = precision(request.precision)
        model.to(device=device.torch, dtype=kind)
        model.positions = model.positions.to(device=device.torch, dtype=kind)
        context.split(model, request, where)
        tensor.split(model, request, where)
        self.replica = Replica(model, request, where, device.is_cpu)
        self.optimizer = torch.optim.SGD(list(_groups(self.replica.module.parameters())), lr=LEARNING_RATE)
        self.inputs, self.targets = self._cut(batch(request, seed), device)
        self._vocabulary_group = where.tensor_mesh.get_group() if request.tensor > 1 else None
        self._schedule: Any = self._pipeline(device) if request.pipeline > 1 else None
        pieces = (self.inputs.chunk(request.micro_batches), self.targets.chunk(request.micro_batches))
        self._pieces = list(zip(*pieces, strict=True))

    def _cut(self, rows: Tensor, device: Device) -> tuple[Tensor, Tensor]:
        """This rank's sequences by the data axis, and its run of tokens by the context axis."""
        request, where = self.request, self.where
        mine = rows.chunk(request.data)[where.data]
        inputs = mine[:, :-1].chunk(request.context, dim=1)[where.context]
        targets = mine[:, 1:].chunk(request.context, dim=1)[where.context]
        return inputs.contiguous().to(device.torch), targets.contiguous().to(device.torch)

    def _pipeline(self, device: Device) -> Any:
        request = self.request
        stage = PipelineStage(
            self.replica.module, self.where.pipeline, request.pipeline, device.torch, group=self.where.pipeline_group
        )
        kind = ScheduleGPipe if request.schedule == "gpipe" else Schedule1F1B
        # Later versions divide the gradients by the micro-batches, early ones do not: the loss is divided here.
        scale: dict[str, Any] = {"scale_grads": False} if "scale_grads" in inspect.signature(kind).parameters else {}
        schedule = kind(stage, request.micro_batches, loss_fn=self._loss_of_a_piece, **scale)
        # Joining the outputs of all micro-batches would be work that no other layout does.
        knows = "return_outputs" in inspect.signature(schedule.step).parameters
        self._silent = {"return_outputs": False} if knows else {}
        return schedule

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return tensor.loss(logits, targets, self._vocabulary_group)

    def _loss_of_a_piece(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._loss(logits, targets) / self.request.micro_batches

    @property
    def has_loss(self) -> bool:
        """Whether this rank sees a loss that counts: the last stage, once for all ranks of a tensor group."""
        return self.where.pipeline == self.request.pipeline - 1 and self.where.tensor == 0

    def step(self, sync: bool = True) -> Tensor | None:
        """Forward, backward, exchange of gradients, update; the mean loss of this rank's tokens before the update.

        Args:
            sync: False leaves the exchange of gradients out: the difference in time is what it adds to the step.
        """
        self.optimizer.zero_grad()
        total = self._through_stages() if self._schedule is not None else self._alone(sync)
        if sync:
            self.replica.finish()
        self.optimizer.step()
        return total

    def _alone(self, sync: bool) -> Tensor:
        count = len(self._pieces)
        total: Tensor | None = None
        for index, (inputs, targets) in enumerate(self._pieces):
            with self.replica.last(sync and index == count - 1):
                logits = self.replica.module(inputs)
                loss = self._loss_of_a_piece(logits, targets) if count > 1 else self._loss(logits, targets)
                loss.backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def _through_stages(self) -> Tensor | None:
        schedule, where = self._schedule, self.where
        losses: list[Tensor] = []
        given = (self.inputs,) if where.pipeline == 0 else ()
        if where.pipeline < self.request.pipeline - 1:
            schedule.step(*given, **self._silent)
            return None
        schedule.step(*given, target=self.targets, losses=losses, **self._silent)
        return torch.stack([loss.detach() for loss in losses]).sum()

    def held(self) -> dict[str, int]:
        """Bytes of weights, gradients and the optimizer's state on this rank, after a step."""
        state = [value for one in self.optimizer.state.values() for value in one.values() if isinstance(value, Tensor)]
        return {**self.replica.held(), "optimizer": sum(one.numel() * one.element_size() for one in state)}

    def close(self) -> None:
        """Let go of the model, so that the next cell's memory is its own."""
        self.optimizer.zero_grad()
        for name in ("replica", "optimizer", "_schedule", "_pieces", "inputs", "targets"):
            setattr(self, name, None)
        gc.collect()


def _groups(parameters: Iterator[torch.nn.Parameter]) -> list[dict[str, Any]]:
    """Parameters by kind and mesh: one call of the optimizer's fused loop takes no mixture."""
    found: dict[object, list[torch.nn.Parameter]] = {}
    for one in parameters:
        mesh: object = one.device_mesh if isinstance(one, DTensor) else None
        found.setdefault(mesh, []).append(one)
    return [{"params": some} for some in found.values()]


def mean_over_ranks(values: list[list[float] | None]) -> list[float]:
    """The losses of the global batch: the mean over ranks that saw a part of it, each of the same size.

    >>> mean_over_ranks([[2.0, 1.0], None, [4.0, 3.0]])
    [3.0, 2.0]
    """
    seen = [one for one in values if one]
    return [sum(column) / len(seen) for column in zip(*seen, strict=True)]
