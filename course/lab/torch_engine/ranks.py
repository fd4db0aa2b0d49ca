"""The ranks of a launch: one process group for the work, one of CPU messages for keeping step and gathering figures.

Only RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are read, so torchrun, SLURM and anything else can start
the worker.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from course.lab.torch_engine.device import Device

__all__ = ["Ranks"]


class Ranks:
    """This rank and its neighbours."""

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
        self._control = dist.new_group(backend="gloo", timeout=wait)
        self.placement = self._placement(local)

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
        """Leave word that this rank lives, and where it is."""
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
