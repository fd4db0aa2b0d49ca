"""Training cells: the losses first, then the timed steps, then what would disturb them: counting and profiling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course.lab.torch_engine.parts import matmul_rate
from course.lab.torch_engine.program import LEARNING_RATE, Program, mean_over_ranks
from course.lab.torch_engine.ranks import Ranks
from course.lab.torch_engine.request import Request
from course.lab.torch_engine.timing import Lane, Loader, gathered
from course.lab.torch_engine.trace import profile
from course.lab.torch_engine.traffic import Counter

__all__ = ["Training"]


class Training:
    """One training cell on this rank: made and warmed up at once, measured by its lanes, then finished."""

    def __init__(self, request: Request, ranks: Ranks, seed: int) -> None:
        self.request, self.ranks = request, ranks
        before = ranks.device.start_peak()
        self.program = Program(request, ranks.device, seed)
        self.losses = self._learn()
        self.peak_gib = max(ranks.gather(ranks.device.peak_gib(before)))
        self.loader = Loader(request.loader_s) if request.loader_s > 0 else None
        self.lanes = [Lane(request.id, self.program.step, request.steps, self.loader)]
        if request.measure_exposed and self._can_be_silent:
            self.lanes.append(Lane(request.id, self._silent, request.steps, self.loader))
            self._silent()  # a first time, so that none of the timed ones is

    @property
    def _can_be_silent(self) -> bool:
        """Whether leaving out the exchange of gradients leaves out all there is."""
        request = self.request
        alone = request.tensor == request.pipeline == request.context == 1
        return alone and request.data > 1 and request.sharding == "none"

    def _silent(self) -> None:
        self.program.step(sync=False)

    def _learn(self) -> list[float]:
        """Losses before each update, of the global batch; these steps warm up as well."""
        count = max(self.request.warmup, self.request.loss_steps + 1)
        kept: list[Tensor] = []
        for _ in range(count):
            loss = self.program.step()
            if loss is not None:
                kept.append(loss)
        self.ranks.device.synchronize()
        mine = torch.stack(kept).double().tolist() if kept and self.program.has_loss else None
        return mean_over_ranks(self.ranks.gather(mine))

    def finish(self) -> dict[str, Any]:
        """After the timed steps, on all ranks together: keys of the report."""
        request, ranks = self.request, self.ranks
        if self.loader is not None:
            self.loader.close()
        found = gathered(self.lanes[0], ranks)
        extra: dict[str, Any] = found["extra"]
        found["loss"] = self.losses[request.loss_steps]
        extra |= {"losses": self.losses, "learning_rate": LEARNING_RATE, "gradients": self.program.replica.how}
        if len(self.lanes) > 1:
            silent = gathered(self.lanes[1], ranks)["step_time_s"]
            extra["step_without_exchange_s"] = silent
            found["exposed_communication_s"] = max(0.0, found["step_time_s"]["p50"] - silent["p50"])
            extra["exposed_by"] = "difference"
        found["matmul_flops_per_s"] = matmul_rate(request, ranks)
        found["peak_memory_gib"] = self.peak_gib
        extra["peak_memory_by"] = "resident memory, a rough difference" if ranks.device.is_cpu else "allocator"
        self._count(found, extra)
        self._profile(found, extra)
        self.program.close()
        return found

    def _count(self, found: dict[str, Any], extra: dict[str, Any]) -> None:
        """Bytes: of one step's collectives, and of what a rank holds after it."""
        with Counter() as counter:
            self.program.step()
        held = self.program.held()
        where = self.program.where
        at = {"data": where.data, "tensor": where.tensor, "pipeline": where.pipeline, "context": where.context}
        everyone = self.ranks.gather((counter.total, counter.found, held, at))
        found["payload_bytes"] = max(total for total, *_ in everyone)
        found["held_bytes"] = max(sum(held.values()) for _, _, held, _ in everyone)
        extra["traffic"] = [traffic for _, traffic, *_ in everyone]
        extra["held"] = [held for _, _, held, _ in everyone]
        extra["coordinates"] = [at for *_, at in everyone]

    def _profile(self, found: dict[str, Any], extra: dict[str, Any]) -> None:
        if not self.request.profile and self.request.trace is None:
            return
        keep = Path(self.request.trace) if self.request.trace else None
        step: Callable[[], Any] = self.program.step
        seen = profile(step, self.ranks, keep)
        if not seen:
            return
        extra["profile"] = seen
        extra["trace"] = str(keep) if keep else None
        found["communication_s"] = seen.get("communication_s")
        if "exposed_communication_s" not in found and "exposed_s" in seen:
            found["exposed_communication_s"] = seen["exposed_s"]
            extra["exposed_by"] = "trace"
        if "host_share" in seen:
            found["host_share"] = seen["host_share"]
            extra["host_share_from"] = "time outside of operators in a profiled step"
        if not self.ranks.device.is_cpu and "idle_share" in seen:
            found["idle_share"] = seen["idle_share"]
