"""What a collective is called, from the words of NCCL, RCCL, gloo, PyTorch and XLA; how many bytes it carries.

The name of a kernel is the weakest witness: NCCL 2.17 and older launch a `SendRecv` kernel for whatever was grouped
with a send, and RCCL calls every kernel `Generic`. What the host recorded around the launch goes before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["BARRIER", "UNKNOWN", "group_size", "is_collective_kernel", "kind_of", "payload_bytes"]

UNKNOWN = "unknown collective"
BARRIER = "barrier"

# In this order: a reduce-scatter must not be taken for a reduce. Compared without signs and in small letters.
_KINDS = (
    ("barrier", BARRIER),
    ("reducescatter", "reduce-scatter"),
    ("allreduce", "all-reduce"),
    ("allgather", "all-gather"),
    ("alltoall", "all-to-all"),
    ("collectivepermute", "send and receive"),
    ("collectivebroadcast", "broadcast"),
    ("broadcast", "broadcast"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("sendrecv", "send and receive"),
    ("batchisendirecv", "send and receive"),
    ("coalesced", UNKNOWN),
    ("reduce", "reduce"),
    ("send", "send and receive"),
    ("recv", "send and receive"),
)
_KERNEL = re.compile(
    r"nccl|rccl|msccl|oneccl|cross_device_reduce|multimem_all|(?:one|two)_shot_all_reduce", re.IGNORECASE
)
_SIZES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "longint": 8, "int": 4, "short": 2, "shortint": 2,
    "char": 1, "signedchar": 1, "byte": 1, "unsignedchar": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


def is_collective_kernel(name: str) -> bool:
    """Whether a device kernel of this name moves data between devices.

    >>> is_collective_kernel("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"), is_collective_kernel("gemm")
    (True, False)
    """
    return _KERNEL.search(name) is not None


def kind_of(*names: object) -> str:
    """The kind that the first telling name gives, or "unknown collective"; names that are no text are passed over.

    >>> kind_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)"), kind_of(None, "_all_gather_base")
    ('reduce-scatter', 'all-gather')
    >>> kind_of("all-reduce.28"), kind_of("ncclDevKernel_Generic(...)")
    ('all-reduce', 'unknown collective')
    """
    for name in names:
        if isinstance(name, str):
            plain = re.sub(r"[^a-z0-9]", "", name.split("(")[0].lower())
            for word, kind in _KINDS:
                if word in plain:
                    if kind != UNKNOWN:
                        return kind
                    break
    return UNKNOWN


def payload_bytes(arguments: Mapping[str, Any]) -> int | None:
    """Bytes of one rank's whole buffer: the larger of what goes in and what comes out, or what goes in where only
    that was recorded; None where the arguments do not tell.

    >>> payload_bytes({"In msg nelems": 10, "Out msg nelems": 80, "dtype": "BFloat16"})
    160
    >>> payload_bytes({"Input Dims": [[4, 8]], "Input type": ["float"]}), payload_bytes({})
    (128, None)
    """
    counts = [arguments.get(f"{way} msg nelems") for way in ("In", "Out")]
    size = _size(arguments.get("dtype"))
    known = [count for count in counts if isinstance(count, int)]
    if size and len(known) == len(counts):
        return size * max(known)
    shapes, types = arguments.get("Input Dims"), arguments.get("Input type")
    if not (isinstance(shapes, list) and isinstance(types, list) and len(shapes) == len(types) and shapes):
        return None
    total = 0
    for shape, dtype in zip(shapes, types, strict=True):
        size = _size(dtype)
        if not size or not isinstance(shape, list) or not all(isinstance(part, int) for part in shape):
            return None
        total += size * math.prod(shape)
    return total


def group_size(arguments: Mapping[str, Any]) -> int | None:
    """Ranks that take part, where the arguments tell.

    >>> group_size({"Group size": 8}), group_size({})
    (8, None)
    """
    size = arguments.get("Group size")
    return size if isinstance(size, int) and size > 0 else None


def _size(dtype: object) -> int | None:
    return _SIZES.get(dtype.lower().replace("c10::", "").replace(" ", "")) if isinstance(dtype, str) else None
