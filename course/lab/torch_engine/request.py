"""A cell as it was asked for: the model, the work, the layout, and how often to measure it.

Read once, on every rank alike, so that no rank can come to another plan than its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course.errors import UserError
from course.fields import show

__all__ = ["AXES", "TRAINING", "Request", "Shape", "read"]

AXES = ("tensor", "context", "pipeline", "data")
"""The axes of a layout, in the order taken where a cell names none: innermost first."""

TRAINING = ("strong", "weak", "layout", "pipeline", "accumulation")


@dataclass(frozen=True)
class Shape:
    """The model's shape: a plain decoder, no biases, no gate, its head apart from its embedding."""

    layers: int = 4
    hidden: int = 128
    heads: int = 4
    ffn: int = 512
    vocabulary: int = 512

    @property
    def head_size(self) -> int:
        """Numbers a head holds of each token.

        >>> Shape().head_size
        32
        """
        return self.hidden // self.heads


@dataclass(frozen=True)
class Request:
    """One cell; fields as the configuration names them, with a layout's degrees taken out of it."""

    id: str
    family: str
    devices: int = 1
    shape: Shape = Shape()
    sequence_length: int = 64
    global_batch: int = 1
    micro_batches: int = 1
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    sharding: str = "none"
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    order: tuple[str, ...] = AXES
    precision: str = "fp32"
    warmup: int = 5
    steps: int = 24
    blocks: int = 3
    alternate: str | None = None
    measure_exposed: bool = False
    loader_s: float = 0.0
    trace: str | None = None
    profile: bool = True
    payload_bytes: int | None = None
    operation: str | None = None
    matrix: tuple[int, int, int] | None = None
    loss_steps: int = 8

    @property
    def micro_batch(self) -> int:
        """Sequences a rank passes through the model at once.

        >>> Request("a", "strong", global_batch=16, data=2, micro_batches=4).micro_batch
        2
        """
        return self.global_batch // (self.data * self.micro_batches)

    @property
    def trains(self) -> bool:
        """Whether the cell is a training step, and no collective or matmul alone."""
        return self.family in TRAINING


def read(cell: Mapping[str, Any], world: int) -> Request:
    """A cell of the configuration, checked: what is measured must be what was asked for.

    Args:
        cell: as the configuration holds it.
        world: ranks of this launch.

    Raises:
        UserError: where degrees, batch or devices do not fit each other.

    >>> read({"id": "dp", "family": "strong", "global_batch_sequences": 8, "layout": {"data": 2}}, 2).micro_batch
    4
    >>> read({"id": "dp", "family": "strong", "global_batch_sequences": 8, "layout": {"data": 3}}, 3)
    Traceback (most recent call last):
        ...
    course.errors.UserError: Cell "dp": global_batch_sequences 8 is not divisible by data 3 × micro_batches 1.
    """
    layout = dict(cell.get("layout") or {})
    degrees = {axis: int(layout.get(axis) or 1) for axis in AXES}
    batch = int(cell.get("global_batch_sequences") or 1)
    micro_batches = cell.get("micro_batches")
    if micro_batches is None:
        micro_batch = int(cell.get("micro_batch") or 0)
        micro_batches = max(1, batch // (degrees["data"] * micro_batch)) if micro_batch else 1
    order = tuple(cell.get("order") or AXES)
    model = cell.get("model") or {}
    known: dict[str, Any] = {
        name: cell[name]
        for name in ("precision", "warmup", "steps", "blocks", "alternate", "measure_exposed", "loader_s", "trace",
                     "profile", "payload_bytes", "operation", "loss_steps", "sequence_length")
        if cell.get(name) is not None
    }  # fmt: skip
    request = Request(
        id=str(cell["id"]),
        family=str(cell["family"]),
        devices=int(cell.get("devices") or world),
        shape=Shape(**{name: int(model[name]) for name in Shape.__annotations__ if name in model}),
        global_batch=batch,
        micro_batches=int(micro_batches),
        sharding=str(layout.get("sharding") or "none"),
        sequence_parallel=bool(layout.get("sequence_parallel")) and degrees["tensor"] > 1,
        schedule=str(layout.get("schedule") or "1f1b"),
        order=(*order, *(axis for axis in AXES if axis not in order)),
        matrix=tuple(int(size) for size in cell["shape"]) if cell.get("shape") else None,  # type: ignore[arg-type]
        data=degrees["data"],
        tensor=degrees["tensor"],
        pipeline=degrees["pipeline"],
        context=degrees["context"],
        **known,
    )
    _check(request, world)
    if request.trains and cell.get("micro_batch") not in (None, request.micro_batch):
        raise UserError(
            f"Cell {show(request.id)}: micro_batch {cell['micro_batch']} × micro_batches {request.micro_batches} × "
            f"data {request.data} is not global_batch_sequences {batch}."
        )
    return request


def _check(request: Request, world: int) -> None:
    """The launcher refuses such cells in better words; here they must not slip through to a wrong figure."""

    def no(what: str) -> None:
        raise UserError(f"Cell {show(request.id)}: {what}.")

    if request.devices != world:
        no(f"it asks for {request.devices} devices, but {world} ranks were started")
    if sorted(request.order) != sorted(AXES):
        no(f"order must name {', '.join(AXES)}, innermost first, each once")
    if not request.trains:
        return
    product = request.data * request.tensor * request.pipeline * request.context
    if product != world:
        no(f"the degrees multiply to {product}, but {world} ranks were started")
    pieces = request.data * request.micro_batches
    if request.global_batch % pieces:
        no(f"global_batch_sequences {request.global_batch} is not divisible by data {request.data} × micro_batches "
           f"{request.micro_batches}")  # fmt: skip
    shards = request.context * (request.tensor if request.sequence_parallel else 1)
    shape = request.shape
    for name, value, by, whose in (
        ("sequence_length", request.sequence_length, shards, f"context {request.context}, times tensor with it:"),
        ("heads", shape.heads, request.tensor, "tensor"),
        ("hidden", shape.hidden, shape.heads, "heads"),
        ("ffn", shape.ffn, request.tensor, "tensor"),
        ("vocabulary", shape.vocabulary, request.tensor, "tensor"),
    ):
        if value % by:
            no(f"{name} {value} is not divisible by {whose} {by}")
    if shape.layers < request.pipeline:
        no(f"{shape.layers} layers cannot fill {request.pipeline} stages")
    if request.pipeline > 1 and request.schedule == "1f1b" and request.micro_batches < request.pipeline:
        no(f"1f1b needs as many micro_batches as stages: {request.micro_batches} are fewer than {request.pipeline}")
    if request.sharding not in ("none", "zero2", "zero3"):
        no(f"sharding is none, zero2 or zero3, not {show(request.sharding)}")
    if request.precision not in ("fp32", "bf16"):
        no(f"precision is fp32 or bf16, not {show(request.precision)}")
