"""Bytes that a step's collectives carry, counted as they are called: exact, and no clock is asked.

A collective counts its whole buffer on one rank, the larger of what goes in and what comes out, as nccl-tests counts
it. What is received is listed beside what is sent, but the total takes the sent side alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from course.traces.naming import kind_of

__all__ = ["Counter"]

_FAMILIES = ("c10d", "_c10d_functional", "c10d_functional")
_SILENT = ("wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier")  # these carry nothing


class Counter(TorchDispatchMode):
    """Within it, every collective of this thread and of its backward is counted in `found`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, dict[str, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # let it come apart into the collectives it needs; those pass here again
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.namespace in _FAMILIES and not name.startswith(_SILENT):
            kind = {"send": "send", "recv_": "receive"}.get(name) or kind_of(name)
            entry = self.found.setdefault(kind, {"count": 0, "bytes": 0})
            entry["count"] += 1
            entry["bytes"] += max(_bytes(one) for one in (*args, out))
        return out

    @property
    def total(self) -> int:
        """Bytes of all of them, received messages left out."""
        return sum(entry["bytes"] for kind, entry in self.found.items() if kind != "receive")


def _bytes(value: object) -> int:
    """Bytes of a tensor, or of all tensors in a list.

    >>> _bytes([torch.ones(2), [torch.ones(1)]]), _bytes("group")
    (12, 0)
    """
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(_bytes(one) for one in value) if isinstance(value, (list, tuple)) else 0
