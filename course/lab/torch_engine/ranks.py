"""The ranks of a launch: one process group for the work, one of CPU messages for keeping step and gathering figures.

A launch may hold cells of fewer devices than it has ranks: the first of them are a team, the others wait. So one device
and two are measured in turns, under the same disturbances.

Only RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are read, so torchrun, SLURM and anything else can start
the worker.
"""

from __future__ import annotations

import copy
import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from course.lab.torch_engine.device import Device

__all__ = ["Ranks"]

PATIENCE = 20
"""Ranks outside of a team wait so many times longer than ranks wait for each other: for whole cells, not for a step."""


class Ranks:
    """This rank and its neighbours; `world` of them work together, by the process group `group`."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self.folder = folder
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = Device(local)
        if not self.device.is_cpu and local >= self.device.count:
            raise RuntimeError(f"rank {self.rank} needs device {local}, but this host has {self.device.count}")
        wait = timedelta(seconds=timeout_s)
        # No backend is named: PyTorch takes the one of each device, NCCL for CUDA and gloo for CPUs.
        dist.init_process_group(timeout=wait)
        self.group: dist.ProcessGroup | None = None  # PyTorch's default: all ranks
        self._wait = wait
        self._control = dist.new_group(backend="gloo", timeout=wait)
        self._everyone = dist.new_group(backend="gloo", timeout=PATIENCE * wait)
        self.placement = self._placement(local)
        self._teams = {self.world: self}

    def team(self, size: int) -> Ranks:
        """The first `size` ranks by themselves. All ranks must ask for it together: groups are made by all."""
        if size not in self._teams:
            some = copy.copy(self)
            some.world, some.placement = size, self.placement[:size]
            some.group = dist.new_group(range(size), timeout=self._wait)
            some._control = dist.new_group(range(size), backend="gloo", timeout=self._wait)
            self._teams[size] = some
        return self._teams[size]

    @property
    def takes_part(self) -> bool:
        """Whether this rank is one of the team."""
        return self.rank < self.world

    def meet(self) -> None:
        """Wait for all ranks of the launch, those outside of a team among them."""
        dist.barrier(group=self._everyone)

    def barrier(self) -> None:
        """Wait for all ranks; nothing where there is one."""
        if self.world > 1:
            dist.barrier(group=self._control)

    def gather(self, mine: Any) -> list[Any]:
        """Every rank's object, by rank."""
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, mine, group=self._control)
        return found

    def beat(self, cell: str, step: int) -> None:
        """Leave word that this rank lives, and where it is; a rank that has no part in the cell says step -1."""
        step = step if self.takes_part else -1
        (self.folder / f"heartbeat.{self.rank}").write_text(f"{cell} {step}", encoding="utf-8")

    def close(self) -> None:
        """End the group; the last thing a rank does."""
        dist.destroy_process_group()

    def _placement(self, local: int) -> list[dict[str, Any]]:
        """Which device each rank has, on which host; hosts have numbers, for a report names none."""
        everyone = self.gather((socket.gethostname(), local, self.device.kind, self.device.name))
        hosts = list(dict.fromkeys(host for host, *_ in everyone))
        return [
            {"rank": rank, "host": hosts.index(host), "device": f"{kind}:{index}", "name": name}
            for rank, (host, index, kind, name) in enumerate(everyone)
        ]
