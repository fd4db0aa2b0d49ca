"""A machine of two cores and a launcher whose ranks are fake workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course.lab import launch, protocol

FAKE = Path(__file__).parent / "lab" / "fake_worker.py"
HERE: dict[str, Any] = {
    "kind": "cpu", "accelerator": "two fake cores", "cores": 2, "node_size": 2, "hosts": 1, "host": 0, "gpus": [],
    "memory_bytes": 2**34, "versions": {"python": "3"},
}  # fmt: skip


def planner(engine: str, ranks: int, config: Path, threads: int = 1, pin: Sequence[int] = ()) -> launch.Plan:
    environments = [{"RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)]
    return launch.Plan([[sys.executable, "-S", "-E", str(FAKE), str(config)]] * ranks, environments, torchrun=False)


def cell(batch: int, devices: int = 2, family: str = "strong", **fake: Any) -> protocol.Request:
    return protocol.training(HERE, "torch", family, devices, batch, fake=fake)
