"""One device a rank, whatever it is: where tensors lie, how to wait for it, what it holds at most.

On CPUs `torch.accelerator` exists but raises, and before torch 2.6 it does not exist: everything that differs between
devices is asked here and nowhere else. The paths of an accelerator are written from PyTorch's documentation.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

__all__ = ["Device", "precision"]

_GIB = 2.0**30


def _kind() -> str:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        found = accelerator.current_accelerator() if accelerator.is_available() else None
        return found.type if found is not None else "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def precision(name: str) -> torch.dtype:
    """The type of weights, activations and gradients.

    >>> precision("bf16")
    torch.bfloat16
    """
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[name]


class Device:
    """The device of this rank.

    >>> Device(0).synchronize() is None
    True
    """

    def __init__(self, local_rank: int) -> None:
        self.kind = _kind()
        self.is_cpu = self.kind == "cpu"
        self._module: Any
        if self.is_cpu:
            self._module = None
            self.torch = torch.device("cpu")
            self.synchronize: Callable[[], None] = _nothing
        else:
            self._module = torch.get_device_module(self.kind)
            self.torch = torch.device(self.kind, local_rank)
            self._module.set_device(local_rank)
            self.synchronize = self._module.synchronize

    @property
    def count(self) -> int:
        """Accelerators of this host; 0 on CPUs."""
        return 0 if self.is_cpu else int(self._module.device_count())

    @property
    def name(self) -> str:
        """What the device calls itself; on a CPU the processor's own words."""
        if not self.is_cpu:
            return str(self._module.get_device_name(self.torch))
        try:
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
        except OSError:
            pass
        return "CPU"

    def start_peak(self) -> float:
        """Forget the peak; returns the bytes held now, to be taken off the later one."""
        if not self.is_cpu:
            self._module.reset_peak_memory_stats()
            return float(self._module.memory_allocated())
        _give_back()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # 5: let the high-water mark start anew
        return _resident()

    def peak_gib(self, before: float) -> float:
        """GiB held at most since `start_peak`, less what was held then.

        On a CPU a difference of resident memory: rough, for memory freed earlier is used again unseen.
        """
        highest = float(self._module.max_memory_allocated()) if not self.is_cpu else _resident(highest=True)
        return max(0.0, highest - before) / _GIB


def _nothing() -> None:
    """A CPU has finished when the call returns."""


def _give_back() -> None:
    """Hand freed memory back to the system, so that a cell does not fill what the one before it left; glibc only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident(highest: bool = False) -> float:
    """Bytes of this process in memory, now or at most."""
    wanted = "VmHWM:" if highest else "VmRSS:"
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(wanted):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    unit = 1 if os.uname().sysname == "Darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
