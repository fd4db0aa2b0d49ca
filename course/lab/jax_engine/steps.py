"""The training step of a layout, compiled ahead: loss, gradients, one SGD update.

`Step` holds what is timed. Its parameters are drawn whole from the seed on every process and then cut, so that every
layout starts from the serial run's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from course.lab.jax_engine import compiled, model
from course.lab.jax_engine.meshes import Layout, Plan

if TYPE_CHECKING:
    import jax

__all__ = ["Step"]


class Step:
    """One layout's compiled step with the parameters it turns into the next ones.

    Arguments: request is a cell of the protocol; devices are JAX's, of all processes; seed draws parameters and batch;
    silent leaves out the gradients' all-reduce (explicit data parallelism only), to see what it costs: the loss is then
    of no use.
    """

    def __init__(
        self, request: Mapping[str, Any], devices: Sequence[jax.Device], seed: int, silent: bool = False
    ) -> None:
        import jax

        self.shape = model.Shape(**request["model"])
        self.layout = Layout.read(request)
        self.plan = Plan(self.layout, devices)
        self.micro_batches = int(request.get("micro_batches") or 1)
        self.precision = request.get("precision") or "fp32"
        drawn = model.draw_parameters(self.shape, seed)
        self.parameters: model.Parameters = {name: _cut(whole, self.plan.held(name)) for name, whole in drawn.items()}
        batch, length = request["global_batch_sequences"], request["sequence_length"]
        whole = model.draw_batch(batch, length, self.shape.vocabulary, seed)
        cut = whole.reshape(self.micro_batches, batch // self.micro_batches, length + 1)
        self.tokens = _cut(cut, self.plan.tokens())
        held = {name: self.plan.held(name) for name in self.parameters}
        program = self._by_hand(silent) if self.layout.explicit else self._by_compiler
        # A new jit each: the silent twin must not be found in the cache of its original.
        jitted = jax.jit(program, donate_argnums=0, out_shardings=(held, self.plan.sharding()))
        self.program: Any = jitted.lower(self.parameters, self.tokens).compile()

    def __call__(self) -> jax.Array:
        """Start one update and return its loss, that of the parameters before it; wait for neither."""
        self.parameters, loss = self.program(self.parameters, self.tokens)
        started: jax.Array = loss
        return started

    def figures(self) -> dict[str, Any]:
        """Return what the compiler says of one device."""
        return compiled.figures(self.program)

    def held_bytes(self) -> int:
        """Return the bytes of the parameters on this process's first device; SGD holds nothing else between steps."""
        return sum(array.addressable_shards[0].data.nbytes for array in self.parameters.values())

    def _gradients(self, parameters: Any, tokens: Any, place: Callable[[Any, str], Any]) -> tuple[Any, Any]:
        """Mean loss and gradients of (micro-batches, sequences, length + 1), a micro-batch at a time."""
        import jax

        one = jax.value_and_grad(partial(model.mean_loss, shape=self.shape, precision=self.precision, place=place))
        if self.micro_batches == 1:
            loss, gradients = one(parameters, tokens[0])
            return loss, gradients

        def add(total: Any, micro_batch: Any) -> tuple[Any, None]:
            return jax.tree.map(lambda a, b: a + b, total, one(parameters, micro_batch)), None

        zero = jax.tree.map(lambda array: array * 0.0, (np.float32(0), parameters))
        total, _ = jax.lax.scan(add, zero, tokens)
        loss, gradients = jax.tree.map(lambda array: array / self.micro_batches, total)
        return loss, gradients

    def _by_compiler(self, parameters: Any, tokens: Any) -> tuple[Any, Any]:
        """The step without a collective in it: the shardings imply them."""
        import jax

        loss, gradients = self._gradients(parameters, tokens, self.plan.place)
        updated = {}
        for name, gradient in gradients.items():
            where = self.plan.reduced(name)
            mine, reduced = jax.lax.with_sharding_constraint((parameters[name], gradient), where)
            updated[name] = mine - model.LEARNING_RATE * reduced
        return updated, loss

    def _by_hand(self, silent: bool) -> Callable[[Any, Any], tuple[Any, Any]]:
        """Data parallelism written out: what each device does with its sequences, and the one all-reduce."""
        import jax
        from jax.sharding import PartitionSpec

        def on_one_device(parameters: Any, tokens: Any) -> tuple[Any, Any]:
            loss, gradients = self._gradients(parameters, tokens, lambda array, _: array)
            if not silent:
                loss, gradients = jax.lax.pmean((loss, gradients), "data")
            updated = jax.tree.map(lambda p, g: p - model.LEARNING_RATE * g, parameters, gradients)
            return updated, loss

        replicated, by_sequence = PartitionSpec(), PartitionSpec(None, "data", None)
        step: Callable[[Any, Any], tuple[Any, Any]] = jax.shard_map(
            on_one_device,
            mesh=self.plan.mesh,
            in_specs=(replicated, by_sequence),
            out_specs=(replicated, replicated),
            check_vma=False,  # the silent twin returns what differs from device to device
        )
        return step


def _cut(whole: np.ndarray, sharding: Any) -> jax.Array:
    """Lay a whole array out over devices; each process hands in the parts of its own."""
    import jax

    cut: jax.Array = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
    return cut
