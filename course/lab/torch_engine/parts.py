"""What a step is made of, measured alone: one collective, one message there and back, one matrix product.

Bandwidth is counted as nccl-tests counts it: the whole buffer over the time, times a factor that makes the figure
comparable with a link's speed whatever the number of ranks. A collective's result is checked before its time counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from course.lab.torch_engine.device import precision
from course.lab.torch_engine.exchange import all_gather, reduce_scatter
from course.lab.torch_engine.ranks import Ranks
from course.lab.torch_engine.request import Request
from course.lab.torch_engine.timing import Lane

__all__ = ["OPERATIONS", "busbw_factor", "collective", "matmul", "matmul_rate", "message"]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def busbw_factor(operation: str, ranks: int) -> float:
    """Bytes that cross a rank's link over bytes of the buffer, for the best algorithm.

    >>> busbw_factor("all_reduce", 4), busbw_factor("all_gather", 4), busbw_factor("send", 2)
    (1.5, 0.75, 1.0)
    """
    once = (ranks - 1) / ranks
    return {"all_reduce": 2 * once, "send": 1.0}.get(operation, once)


def collective(request: Request, ranks: Ranks) -> tuple[Lane, dict[str, Any], Callable[[], None]]:
    """A lane that calls one collective over all ranks, what to report beside its time, and how to close it.

    Raises:
        RuntimeError: where the result is wrong.
    """
    operation = request.operation or OPERATIONS[0]
    world, device = ranks.world, ranks.device.torch
    dtype = precision(request.precision)
    size = torch.empty(0, dtype=dtype).element_size()
    count = max(1, math.ceil((request.payload_bytes or 4096) / (size * world))) * world  # every rank's piece is whole
    whole = torch.empty(count, dtype=dtype, device=device)
    piece = torch.empty(count // world, dtype=dtype, device=device)
    received = torch.empty_like(whole)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=ranks.group),
        "all_gather": lambda: all_gather(whole, piece, ranks.group),
        "reduce_scatter": lambda: reduce_scatter(piece, whole, ranks.group),
        "all_to_all": lambda: dist.all_to_all_single(received, whole, group=ranks.group),
    }
    result = {"all_reduce": whole, "all_gather": whole, "reduce_scatter": piece, "all_to_all": received}[operation]
    whole.fill_(ranks.rank + 1)
    piece.fill_(ranks.rank + 1)
    calls[operation]()
    total = world * (world + 1) / 2
    wanted = total if operation in ("all_reduce", "reduce_scatter") else _each(world, count, result)
    wrong = int((result != wanted).sum())
    if wrong:
        raise RuntimeError(f"{operation} over {world} ranks gave {wrong} wrong numbers of {result.numel()}")
    whole.zero_()  # sums over many steps must stay finite
    piece.zero_()
    factor = busbw_factor(operation, world)
    return (
        Lane(request.id, calls[operation], request.steps),
        {"payload_bytes": count * size, "factor": factor},
        _nothing,
    )


def message(request: Request, ranks: Ranks) -> tuple[Lane, dict[str, Any], Callable[[], None]]:
    """A lane that sends a buffer from rank 0 to rank 1 and back; half of its time is one message's."""
    dtype = precision(request.precision)
    size = torch.empty(0, dtype=dtype).element_size()
    count = max(1, math.ceil((request.payload_bytes or 4096) / size))
    buffer = torch.zeros(count, dtype=dtype, device=ranks.device.torch)

    def there_and_back() -> None:
        if ranks.rank == 0:
            dist.send(buffer, 1)
            dist.recv(buffer, 1)
        elif ranks.rank == 1:
            dist.recv(buffer, 0)
            dist.send(buffer, 0)

    facts = {"payload_bytes": count * size, "factor": 1.0, "halves": 2}
    return Lane(request.id, there_and_back, request.steps), facts, _nothing


def matmul(request: Request, ranks: Ranks) -> tuple[Lane, dict[str, Any], Callable[[], None]]:
    """A lane that multiplies [m, k] by [k, n] on every rank at once, as often as a millisecond wants."""
    rows, inner, columns = request.matrix or (512, 512, 512)
    product, _ = _product((rows, inner, columns), request.precision, ranks)
    for _ in range(3):
        product()
    ranks.device.synchronize()
    start = time.perf_counter()
    product()
    ranks.device.synchronize()
    once = max(ranks.gather(time.perf_counter() - start))
    repeats = max(1, min(100, math.ceil(1e-3 / once)))

    def several() -> None:
        for _ in range(repeats):
            product()

    facts = {"flops": 2.0 * rows * inner * columns, "repeats": repeats}
    return Lane(request.id, several, request.steps), facts, _nothing


def matmul_rate(request: Request, ranks: Ranks) -> float:
    """FLOP/s of a cell's own matrix products, at the shapes that its layout leaves, forward, on the slowest rank.

    Each product is taken at its best of a few; together they weigh as often as a forward pass has them.
    """
    shape, tensor = request.shape, request.tensor
    tokens = request.micro_batch * request.sequence_length // request.context
    layers = shape.layers / request.pipeline
    products = (
        ((tokens, shape.hidden, 3 * shape.hidden // tensor), layers),
        ((tokens, shape.hidden // tensor, shape.hidden), layers),
        ((tokens, shape.hidden, shape.ffn // tensor), layers),
        ((tokens, shape.ffn // tensor, shape.hidden), layers),
        ((tokens, shape.hidden, shape.vocabulary // tensor), 1.0 / request.pipeline),
    )
    flops = seconds = 0.0
    ranks.barrier()
    for (rows, inner, columns), times in products:
        flops += times * 2.0 * rows * inner * columns
        seconds += times * _best((rows, inner, columns), request.precision, ranks)
    return min(float(rate) for rate in ranks.gather(flops / seconds))


def _best(sizes: tuple[int, int, int], kind: str, ranks: Ranks) -> float:
    """Seconds of one product, the best of three rounds; a device is given ten at once: its host is not timed."""
    product, _ = _product(sizes, kind, ranks)
    inner = 1 if ranks.device.is_cpu else 10
    product()
    best = math.inf
    for _ in range(3):
        ranks.device.synchronize()
        start = time.perf_counter()
        for _ in range(inner):
            product()
        ranks.device.synchronize()
        best = min(best, (time.perf_counter() - start) / inner)
    return best


def _product(sizes: tuple[int, int, int], kind: str, ranks: Ranks) -> tuple[Callable[[], Any], Tensor]:
    """As a linear layer calls it: the second matrix lies transposed."""
    rows, inner, columns = sizes
    options: dict[str, Any] = {"dtype": precision(kind), "device": ranks.device.torch}
    left, right = torch.ones(rows, inner, **options), torch.ones(columns, inner, **options)
    out = torch.empty(rows, columns, **options)
    return lambda: torch.mm(left, right.t(), out=out), out


def _each(world: int, count: int, result: Tensor) -> Tensor:
    """Pieces 1, 2, … one after another: what a gather and an exchange of whole pieces give."""
    return torch.arange(1, world + 1, device=result.device).to(result.dtype).repeat_interleave(count // world)


def _nothing() -> None:
    """Nothing to close."""
