"""What is refused before a launch, one sentence each: a cell that would crash later, or train on a wrong loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["AXES", "refusal", "shares_cores"]

AXES = ("data", "tensor", "pipeline", "context")
Request = Mapping[str, Any]


def refusal(request: Request, machine: Mapping[str, Any]) -> str | None:
    """Why this cell is not launched on this machine, in one sentence; None where it may be.

    A batch that does not divide is the rule that matters most: a program that cuts 8 sequences into 3, 3 and 2 and
    averages the ranks' means reports a loss that is slightly wrong, and no error.

    >>> cell = {"family": "strong", "devices": 3, "layout": {"data": 3}, "global_batch_sequences": 8, "micro_batch": 2,
    ...         "micro_batches": 1, "sequence_length": 64, "model": {"layers": 4, "heads": 4, "hidden": 128}}
    >>> refusal(cell, {"kind": "cpu", "cores": 4})
    'a global batch of 8 sequences does not divide into equal parts for 3 data-parallel ranks: the mean of their losses
    would be wrong; use a batch that is a multiple of 3'
    """
    devices = request.get("devices")
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        return f"devices must be a whole number above 0, not {devices!r}"
    gpus = len(machine.get("gpus") or [])
    if machine.get("kind") == "gpu" and devices > gpus:
        had = "1 accelerator" if gpus == 1 else f"{gpus} accelerators"
        return f"{devices} ranks need {devices} accelerators and this host has {had}: two ranks cannot share one"
    if request["family"] == "matmul":
        return None
    if request["family"] in ("collective", "p2p"):
        return "a message needs at least 2 devices, and the cell asks for 1" if devices < 2 else None
    return _layout(request, devices) or _model(request) or _pipeline(request)


def _layout(request: Request, devices: int) -> str | None:
    layout = request["layout"]
    degrees = {axis: layout.get(axis, 1) for axis in AXES}
    product = math.prod(degrees.values())
    if product != devices:
        said = " x ".join(f"{axis} {degree}" for axis, degree in degrees.items())
        odd = f"; {devices} is odd, so no axis can be 2" if devices % 2 and devices > 1 else ""
        return f"{said} is {product}, and the cell asks for {devices} devices{odd}"
    batch, data = request["global_batch_sequences"], degrees["data"]
    if batch % data:
        return (
            f"a global batch of {batch} sequences does not divide into equal parts for {data} data-parallel ranks: the "
            f"mean of their losses would be wrong; use a batch that is a multiple of {data}"
        )
    micro, several = request["micro_batch"], request["micro_batches"]
    if micro * several * data != batch:
        return (
            f"{several} micro-batches of {micro} sequences on {data} data-parallel ranks are {micro * several * data} "
            f"sequences, not the global batch of {batch}"
        )
    return None


def _model(request: Request) -> str | None:
    layout, model = request["layout"], request["model"]
    tensor, context = layout.get("tensor", 1), layout.get("context", 1)
    for name, value in (("heads", model["heads"]), ("hidden width", model["hidden"])):
        if value % tensor:
            return f"a model's {name} of {value} does not split over {tensor} tensor ranks"
    if model.get("ffn", tensor) % tensor:
        return f"a feed-forward width of {model['ffn']} does not split over {tensor} tensor ranks"
    length = request["sequence_length"]
    if length % context:
        return f"a sequence of {length} tokens does not split over {context} context ranks"
    if layout.get("sequence_parallel") and length % (tensor * context):
        return f"a sequence of {length} tokens does not split over {tensor * context} tensor and context ranks"
    return None


def _pipeline(request: Request) -> str | None:
    layout, several = request["layout"], request["micro_batches"]
    stages, layers = layout.get("pipeline", 1), request["model"]["layers"]
    if layers < stages:
        return f"{layers} layers leave some of {stages} pipeline stages empty"
    if layers % stages:
        return f"{layers} layers do not divide over {stages} pipeline stages"
    if stages > 1 and layout.get("schedule") == "1f1b" and several < stages:
        return (
            f"1F1B needs at least as many micro-batches as stages: {several} are fewer than {stages}; GPipe takes any"
        )
    return None


def shares_cores(devices: int, machine: Mapping[str, Any]) -> bool:
    """Whether ranks must share cores, so that their times say nothing about scaling (bytes and losses still hold).

    >>> shares_cores(4, {"kind": "cpu", "cores": 2}), shares_cores(4, {"kind": "gpu", "cores": 2})
    (True, False)
    """
    return machine.get("kind") == "cpu" and devices > int(machine.get("cores") or 1) * int(machine.get("hosts") or 1)
