"""Layouts as shardings: one mesh of named axes, and for each array the axes that its dimensions are cut over.

The step itself never changes. Data parallelism, ZeRO-2 and -3 (fsdp), tensor and context parallelism, alone or
together, are different tables of the same names, and the compiler puts in the collectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from course.lab.jax_engine.model import Shape

if TYPE_CHECKING:
    import jax
    from jax.sharding import Mesh, NamedSharding

__all__ = ["AXES", "Layout", "Plan", "refusal"]

AXES = ("tensor", "context", "data")
_CUT_BY_TENSOR = {"attention_in": 2, "attention_out": 0, "mlp_in": 1, "mlp_out": 0, "head": 1}
_CUT_BY_DATA = {"embedding": 1, "attention_in": 0, "attention_out": 2, "mlp_in": 0, "mlp_out": 1, "head": 0}


@dataclass(frozen=True)
class Layout:
    """Degrees of the axes, how the training state is sharded, and the axes' order, innermost first.

    `explicit` asks for data parallelism written by hand: a `shard_map` whose one all-reduce stands in the source.

    >>> Layout.read({"layout": {"data": 2, "sharding": "zero3"}}).devices
    2
    """

    data: int = 1
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    sharding: str = "none"
    sequence_parallel: bool = False
    explicit: bool = False
    order: tuple[str, ...] = AXES

    @classmethod
    def read(cls, request: Mapping[str, Any]) -> Layout:
        """Take the layout out of a cell's request; what it leaves out is 1, none or false."""
        given = request.get("layout") or {}
        named = [axis for axis in request.get("order") or AXES if axis in AXES]
        return cls(
            **{axis: int(given.get(axis) or 1) for axis in (*AXES, "pipeline")},
            sharding=given.get("sharding") or "none",
            sequence_parallel=bool(given.get("sequence_parallel")) and int(given.get("tensor") or 1) > 1,
            explicit=bool(request.get("explicit")),
            order=(*named, *(axis for axis in AXES if axis not in named)),
        )

    @property
    def devices(self) -> int:
        """Devices that the layout fills."""
        return self.data * self.tensor * self.context * self.pipeline

    @property
    def only_data(self) -> bool:
        """Whether all that is parallel is the batch, with whole copies of the model."""
        return self.sharding == "none" and self.tensor == self.context == self.pipeline == 1


def refusal(request: Mapping[str, Any]) -> str | None:
    """Return why this engine cannot run a training cell, in one sentence; None where it can.

    >>> cell = {"model": {"layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocabulary": 512},
    ...         "sequence_length": 64, "global_batch_sequences": 8, "devices": 3, "layout": {"data": 3}}
    >>> refusal(cell)
    'global_batch_sequences is 8, which data 3 x micro_batches 1 does not divide: the replicas would average unequal
    parts and train on another loss.'
    >>> refusal({**cell, "devices": 2, "layout": {"pipeline": 2}})
    'pipeline is 2, and the JAX engine has no pipeline: measure that layout with --engine torch.'
    """
    layout, shape = Layout.read(request), Shape(**request["model"])
    batch, micro_batches = request["global_batch_sequences"], request.get("micro_batches") or 1
    replicas = layout.data * micro_batches
    if layout.pipeline > 1:
        return (
            f"pipeline is {layout.pipeline}, and the JAX engine has no pipeline: "
            "measure that layout with --engine torch."
        )
    if layout.sequence_parallel:
        return "sequence_parallel is true, and the JAX engine has none: measure that layout with --engine torch."
    if layout.devices != request["devices"]:
        return f"The layout's degrees multiply to {layout.devices}, and devices is {request['devices']}."
    if layout.sharding not in ("none", "zero2", "zero3"):
        return f"sharding is {layout.sharding!r}; the JAX engine has none, zero2 and zero3."
    if layout.explicit and not layout.only_data:
        return "explicit is data parallelism written by hand: give it data alone, and sharding none."
    if batch % replicas:
        return (
            f"global_batch_sequences is {batch}, which data {layout.data} x micro_batches {micro_batches} does not "
            "divide: the replicas would average unequal parts and train on another loss."
        )
    for name, size, axis in (
        ("heads", shape.heads, "tensor"),
        ("ffn", shape.ffn, "tensor"),
        ("vocabulary", shape.vocabulary, "tensor"),
        ("sequence_length", request["sequence_length"], "context"),
        *([("hidden", shape.hidden, "data")] if layout.sharding != "none" else []),
    ):
        degree = getattr(layout, axis)
        if size % degree:
            return f"{name} is {size}, which {axis} {degree} does not divide: take a degree that does."
    return None


class Plan:
    """Where each array of a step lies: shardings by name over one mesh of the first `layout.devices` devices."""

    def __init__(self, layout: Layout, devices: Sequence[jax.Device]) -> None:
        from jax.sharding import Mesh

        self.layout = layout
        outermost_first = layout.order[::-1]
        grid = np.array(devices[: layout.devices], dtype=object)
        self.mesh: Mesh = Mesh(grid.reshape([getattr(layout, axis) for axis in outermost_first]), outermost_first)

    def sharding(self, *axes: Any) -> NamedSharding:
        """Return the sharding whose dimensions are cut over these axes (a name, several, or None)."""
        from jax.sharding import NamedSharding, PartitionSpec

        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def used(self, name: str) -> NamedSharding:
        """Return how a parameter lies when it multiplies: cut over tensor at most."""
        return self.sharding(*self._axes(name, zero=False))

    def held(self, name: str) -> NamedSharding:
        """Return how a parameter lies between steps: with zero3 cut over data as well."""
        return self.sharding(*self._axes(name, zero=self.layout.sharding == "zero3"))

    def reduced(self, name: str) -> NamedSharding:
        """Return how its gradient lies when it is applied: with zero2 and zero3 cut over data."""
        return self.sharding(*self._axes(name, zero=self.layout.sharding != "none"))

    def _axes(self, name: str, zero: bool) -> list[str | None]:
        part = name.split(".")[-1]
        axes: list[str | None] = [None] * (4 if part == "attention_in" else 3 if part == "attention_out" else 2)
        if part.endswith("norm"):
            axes = [None]
        if part in _CUT_BY_TENSOR:
            axes[_CUT_BY_TENSOR[part]] = "tensor"
        if zero:
            axes[_CUT_BY_DATA.get(part, 0)] = "data"
        return axes

    def tokens(self) -> NamedSharding:
        """Return how the batch lies, as (micro-batches, sequences, length + 1): sequences over data."""
        return self.sharding(None, "data", None)

    def place(self, array: jax.Array, name: str) -> jax.Array:
        """Lay out an array of the loss: activations by what they are, parameters as they are used."""
        import jax

        activations: dict[str, tuple[Any, ...]] = {
            "residual": ("data", "context", None),
            "query": ("data", "context", "tensor", None),
            "key": ("data", None, "tensor", None),  # each query meets every key before it: gathered over context
            "logits": ("data", "context", "tensor"),
        }
        wanted = self.sharding(*activations[name]) if name in activations else self.used(name)
        placed: jax.Array = jax.lax.with_sharding_constraint(array, wanted)
        return placed
