"""Single operations: one matmul, one collective, by the sizes of a cell, and the rates that follow from their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from course.lab.jax_engine import compiled
from course.lab.jax_engine.meshes import Layout
from course.lab.jax_engine.timing import Clock, Times

if TYPE_CHECKING:
    import jax

__all__ = ["OPERATIONS", "build", "bus_factor", "rate_in_step", "rates", "refusal"]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ROUNDS = 12

figures = compiled.figures


def refusal(request: Mapping[str, Any]) -> str | None:
    """Return why this engine has no such message, in one sentence; None where it has.

    >>> refusal({"family": "p2p", "operation": "send", "devices": 2, "payload_bytes": 4096})
    'operation is send, and the JAX engine has all_reduce, all_gather, reduce_scatter, all_to_all: measure it with
    --engine torch.'
    """
    if request.get("operation") not in OPERATIONS:
        return (
            f"operation is {request.get('operation')}, and the JAX engine has {', '.join(OPERATIONS)}: "
            "measure it with --engine torch."
        )
    wanted = 4 * request["devices"] ** 2
    if request["payload_bytes"] < wanted or request["payload_bytes"] % wanted:
        return f"payload_bytes is {request['payload_bytes']}: take a multiple of {wanted}, for parts of whole numbers."
    return None


def bus_factor(operation: str, devices: int) -> float:
    """Return busbw over payload per second: what every link carries, by the rule of nccl-tests.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4)
    (1.5, 0.75)
    """
    return (2.0 if operation == "all_reduce" else 1.0) * (devices - 1) / devices


def rates(request: Mapping[str, Any], step_time_s: Mapping[str, float]) -> dict[str, Any]:
    """Return a single operation's rate: of a matmul on one device, by its best tenth; of a collective, by the median.

    A collective's payload is the whole buffer: what each rank has before an all-reduce, a reduce-scatter or an
    all-to-all, and after an all-gather.

    >>> rates({"family": "matmul", "shape": [1000, 1000, 1000]}, {"p10": 0.1, "p50": 0.2})
    {'matmul_flops_per_s': 20000000000.0}
    """
    if request["family"] == "matmul":
        return {"matmul_flops_per_s": 2.0 * float(np.prod(request["shape"])) / step_time_s["p10"]}
    payload = request["payload_bytes"]
    factor = bus_factor(request["operation"], request["devices"])
    return {
        "payload_bytes": payload,
        "communication_s": step_time_s["p50"],
        "busbw_bytes_per_s": factor * payload / step_time_s["p50"],
    }


def build(request: Mapping[str, Any], devices: Sequence[jax.Device]) -> tuple[Callable[[], Any], Any]:
    """Return a call that starts the operation on all devices, and its compiled program."""
    from jax.sharding import Mesh

    mesh = Mesh(np.array(devices[: request["devices"]], dtype=object), ("all",))
    if request["family"] == "matmul":
        return _matmul(mesh, request["shape"], request.get("precision") or "fp32")
    return _collective(mesh, request["operation"], request["payload_bytes"] // 4)


def rate_in_step(request: Mapping[str, Any], devices: Sequence[jax.Device], clock: Clock) -> float:
    """Return the matmul rate of one device (FLOP/s, best tenth) at a training cell's shape: its tokens into the MLP."""
    layout = Layout.read(request)
    tokens = request["global_batch_sequences"] * request["sequence_length"]
    rows = tokens // (layout.data * layout.context * int(request.get("micro_batches") or 1))
    shape = [rows, request["model"]["hidden"], request["model"]["ffn"] // layout.tensor]
    cell = {"family": "matmul", "shape": shape, "precision": request.get("precision"), "devices": request["devices"]}
    call, times = build(cell, devices)[0], Times()
    clock.block(call, 2, 0.0, None)
    clock.block(call, ROUNDS, 0.0, times)
    return float(2.0 * np.prod(shape) / np.percentile(times.steps, 10))


def _matmul(mesh: Any, shape: Sequence[int], precision: str) -> tuple[Callable[[], Any], Any]:
    """The matmul of one device on each of them at once: rows are laid out over all, so nothing is exchanged."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    m, k, n = shape
    number = jnp.bfloat16 if precision == "bf16" else jnp.float32
    by_row, whole = NamedSharding(mesh, PartitionSpec("all", None)), NamedSharding(mesh, PartitionSpec())

    def filled(size: tuple[int, int], sharding: Any) -> Any:
        return jax.jit(lambda: jnp.full(size, 0.5, number), out_shardings=sharding)()

    left, right = filled((m * mesh.size, k), by_row), filled((k, n), whole)
    program = jax.jit(jnp.matmul, out_shardings=by_row).lower(left, right).compile()
    return lambda: program(left, right), program


def _collective(mesh: Any, operation: str, count: int) -> tuple[Callable[[], Any], Any]:
    """One collective over float32 numbers, `count` in the whole buffer."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    devices = mesh.size
    before = count // devices if operation == "all_gather" else count

    def on_one_device(mine: Any) -> Any:
        if operation == "all_reduce":
            return jax.lax.psum(mine, "all")
        if operation == "all_gather":
            return jax.lax.all_gather(mine, "all", tiled=True)
        if operation == "reduce_scatter":
            return jax.lax.psum_scatter(mine, "all", tiled=True)
        return jax.lax.all_to_all(mine, "all", 0, 0, tiled=True)

    cut = PartitionSpec("all")
    after = PartitionSpec() if operation in ("all_reduce", "all_gather") else cut
    call = jax.jit(jax.shard_map(on_one_device, mesh=mesh, in_specs=cut, out_specs=after, check_vma=False))
    make = jax.jit(lambda: jnp.ones(before * devices, jnp.float32), out_shardings=NamedSharding(mesh, cut))
    array = make()
    program = call.lower(array).compile()
    return lambda: program(array), program
