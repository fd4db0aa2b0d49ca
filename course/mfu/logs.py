"""A run's log and the MFU a training program prints from it, with any of nine known faults in the arithmetic.

>>> log = Log("llama-3-8b", "h100-sxm", devices=16, step_time=20.0, sequence_length=8192, data=16, accumulation=8)
>>> utilisation(log) < utilisation(log, ("one device's peak for many",)) / 15
True
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from course import catalog
from course.errors import UserError
from course.estimate import causal_attention, count, flops_per_token, full_attention, pick, shape
from course.fields import nearest
from course.mfu.use import step_mfu

FAULTS = (
    "sparse peak", "peak of another device", "one device's peak for many", "accumulation forgotten",
    "padding counted", "sharded parameter count", "causal half", "all experts counted",
    "recomputation as useful work",
)  # fmt: skip
"""What goes wrong, by the names of the course's table of mistakes: the peak, then tokens, then FLOPs of a token."""

FALLBACK = "a100-sxm-80gb"
"""The accelerator whose peak a program assumes that does not know its own (for that one itself: an H100)."""


@dataclass(frozen=True)
class Log:
    """What a run's log says of one step.

    Args:
        model: a name in the catalog.
        accelerator: a name in the catalog; its dense bf16 peak counts.
        devices: accelerators of the run.
        step_time: seconds.
        sequence_length: tokens of a sequence, padding included.
        data: replicas; parameters are sharded over them.
        micro_batch: sequences of a micro-batch.
        accumulation: micro-batches of a replica in one step.
        recompute: "none", "selective" or "full".
        real: share of the tokens that are no padding.
    """

    model: str
    accelerator: str
    devices: int
    step_time: float
    sequence_length: int
    data: int
    micro_batch: int = 1
    accumulation: int = 1
    recompute: str = "none"
    real: float = 1.0


def tokens(log: Log, faults: Collection[str] = ()) -> float:
    """Tokens of one step that something is learnt from, or what a faulty count makes of them.

    >>> tokens(Log("llama-3-8b", "h100-sxm", 8, 1.0, 4096, data=8, accumulation=4, real=0.5))
    65536.0
    """
    rounds = 1 if "accumulation forgotten" in faults else log.accumulation
    real = 1.0 if "padding counted" in faults else log.real
    return float(log.data * log.micro_batch * log.sequence_length * rounds * real)


def token_flops(log: Log, faults: Collection[str] = ()) -> float:
    """FLOPs of a token by `full_attention`, or what a faulty count makes of them.

    >>> log = Log("mixtral-8x7b", "h100-sxm", 8, 1.0, 4096, data=8)
    >>> round(token_flops(log, ["all experts counted"]) / token_flops(log), 2)
    3.45
    """
    model = catalog.model(log.model)
    counted = count(model)
    matmul = counted.matmul_active
    if "all experts counted" in faults:
        matmul += counted.total - counted.active
    if "sharded parameter count" in faults:
        matmul /= log.data
    widths = shape(model) | {"matmul_parameters": matmul, "sequence_length": log.sequence_length}
    convention = causal_attention if "causal half" in faults else full_attention
    spent = float(convention(**pick(convention, widths)))
    if "recomputation as useful work" in faults:
        per_token = flops_per_token(model, log.sequence_length, log.recompute)
        spent += per_token["executed"] - per_token["full_attention"]
    return spent


def peak(log: Log, faults: Collection[str] = ()) -> float:
    """Dense peak of one accelerator in FLOP/s, or the wrong one a fault puts in its place.

    >>> log = Log("llama-3-8b", "h100-sxm", 8, 1.0, 4096, data=8)
    >>> peak(log, ["sparse peak"]) / peak(log)
    2.0
    """
    name = log.accelerator
    if "peak of another device" in faults:
        name = "h100-sxm" if name == FALLBACK else FALLBACK
    return catalog.accelerator(name).peak_flops_per_s * (2 if "sparse peak" in faults else 1)


def utilisation(log: Log, faults: Collection[str] = ()) -> float:
    """MFU by `full_attention`, or the number a program prints that makes these faults. It may exceed 1.

    Args:
        log: what the run did.
        faults: names out of `FAULTS`.

    Raises:
        UserError: a fault has no such name.
    """
    for fault in faults:
        if fault not in FAULTS:
            raise UserError(f"There is no fault {fault!r}; the nearest is {nearest(fault, FAULTS)!r}.")
    devices = 1 if "one device's peak for many" in faults else log.devices
    return float(
        step_mfu(
            flops_per_token=token_flops(log, faults), tokens_per_step=tokens(log, faults), devices=devices,
            peak_flops_per_s=peak(log, faults), step_time=log.step_time,
        )
    )  # fmt: skip
