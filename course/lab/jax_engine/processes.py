"""Where a worker runs: its rank, its cores, how many devices JAX shows it, and how ranks exchange figures.

`start` must run before anything imports JAX. One simulated device computes with every core that its process may use,
so a process is first held to `threads` cores for each of its devices where the host has that many; without it two
devices on two cores would be compared with one that had both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from course.errors import UserError

if TYPE_CHECKING:
    import jax

__all__ = ["World", "own_cores", "start"]


@dataclass(frozen=True)
class World:
    """This process among its peers: its rank, the first rank of its host, the cores it is held to, all devices."""

    rank: int
    size: int
    host: int
    simulated: bool
    held: tuple[int, ...] | None
    cores: int
    devices: tuple[jax.Device, ...]

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Return every rank's values as (ranks, len(values)), float64, on every rank; all must call it."""
        mine = np.asarray(values, np.float64)
        if self.size == 1:
            return mine[None]
        from jax.experimental import multihost_utils

        # JAX drops to 32 bits on the way; the bytes themselves pass unchanged.
        parts = multihost_utils.process_allgather(np.frombuffer(mine.tobytes(), np.uint8))
        return np.frombuffer(np.ascontiguousarray(parts).tobytes(), np.float64).reshape(self.size, len(mine))

    def gather_text(self, text: str, room: int = 1000) -> list[str]:
        """Return every rank's text, each cut to `room` bytes."""
        padded = text.encode()[:room].ljust(room)
        found = self.gather(np.frombuffer(padded, np.uint8).astype(np.float64).tolist())
        return [bytes(row.astype(np.uint8)).decode(errors="ignore").rstrip() for row in found]

    def placement(self, devices: int) -> dict[str, Any]:
        """Return which rank holds which devices and cores, for a cell on the first `devices` of them; all must call it.

        `shared_cores`: devices compute on the same cores, so that no efficiency may be formed; `cores_per_device` is
        null then, and on accelerators.
        """
        used = self.devices[:devices]
        mine = [device for device in used if device.process_index == self.rank]
        row = {"rank": self.rank, "devices": [device.id for device in mine], "cores": self.held}
        ranks = [json.loads(line) for line in self.gather_text(json.dumps(row))]
        cpu = bool(used) and used[0].platform == "cpu"
        pinned = cpu and all(row["cores"] is not None for row in ranks) and len(mine) <= 1
        shared = cpu and not pinned and (devices > 1 or self.size > 1)
        each = len(self.held) if pinned and self.held else self.cores if cpu and not shared else None
        return {
            "device_kinds": sorted({device.device_kind for device in used}),
            "processes": self.size,
            "simulated": cpu and self.simulated,
            "pinned": pinned,
            "shared_cores": shared,
            "cores": self.cores,
            "cores_per_device": each,
            "rows": ranks,
        }


def own_cores(allowed: Sequence[int], local_rank: int, local_size: int, wanted: int) -> tuple[int, ...] | None:
    """Return the cores a rank is held to: `wanted` of its own, or None where the host has too few for all.

    >>> own_cores([0, 1, 2, 3], local_rank=1, local_size=2, wanted=2)
    (2, 3)
    >>> own_cores([0, 1], local_rank=0, local_size=1, wanted=1), own_cores([0, 1], 0, 3, 1)
    ((0,), None)
    """
    if wanted * local_size > len(allowed):
        return None
    return tuple(sorted(allowed)[wanted * local_rank : wanted * (local_rank + 1)])


def start(config: Mapping[str, Any], environment: Mapping[str, str]) -> World:
    """Hold this process to its cores, load JAX, meet the other ranks, and return the world they form.

    Arguments: config is the worker's; environment holds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT where
    there are several processes. Raises `UserError` where JAX is missing or the devices cannot be shared out.
    """
    rank, size = int(environment.get("RANK", 0)), int(environment.get("WORLD_SIZE", 1))
    local_rank = int(environment.get("LOCAL_RANK", rank))
    devices = max((int(cell["devices"]) for cell in config["cells"]), default=1)
    if devices % size:
        raise UserError(f"devices is {devices}, which {size} processes do not share out evenly: take a multiple.")
    here = devices // size
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    held = None
    processors = _processors_only(environment)
    if processors and allowed is not None and hasattr(os, "sched_setaffinity"):
        # LOCAL_RANK counts from 0 on every host; how many more it has is known only where there is one host.
        local_size = max(local_rank + 1, size if local_rank == rank else 1)
        held = own_cores(allowed, local_rank, local_size, here * int(config.get("threads", 1)))
        if held is not None:
            os.sched_setaffinity(0, held)
    try:
        import jax
    except ImportError:
        raise UserError(
            "jax is not installed, so the JAX engine cannot run: install the course with its lab extra, or measure "
            "with --engine torch."
        ) from None
    jax.config.update("jax_num_cpu_devices", here)
    if size > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator_address=f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}",
            num_processes=size,
            process_id=rank,
            local_device_ids=None if processors else list(range(local_rank * here, (local_rank + 1) * here)),
            initialization_timeout=max(30, int(config.get("collective_timeout_s", 30))),
            heartbeat_timeout_seconds=max(10, int(config.get("collective_timeout_s", 30))),
        )
    found = tuple(sorted(jax.devices(), key=lambda device: (device.process_index, device.id)))
    if len(found) < devices:
        raise UserError(f"devices is {devices}, and there are {len(found)} ({found[0].device_kind}): ask for fewer.")
    cores = len(allowed) if allowed is not None else os.cpu_count() or 1
    return World(rank, size, rank - local_rank, found[0].platform == "cpu" and here > 1, held, cores, found)


def _processors_only(environment: Mapping[str, str]) -> bool:
    """Whether JAX will find nothing but processors: asked of it, or no plugin for an accelerator is installed."""
    asked = environment.get("JAX_PLATFORMS")
    if asked:
        return asked == "cpu"
    return find_spec("jax_plugins") is None and find_spec("libtpu") is None and not entry_points(group="jax_plugins")
