"""Record three steps of data parallelism on two CPU devices: `python record_jax.py FOLDER` prints what was compiled.

Each step runs four micro-batches in a loop and reduces the gradient in each of them.
"""

from __future__ import annotations

import json
import os
import sys

STEPS, MICRO_BATCHES = 3, 4


def main(folder: str) -> None:
    os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(jax.devices(), ("data",))
    inputs = jax.device_put(jnp.ones((MICRO_BATCHES, 128, 64)), NamedSharding(mesh, PartitionSpec(None, "data", None)))
    weights = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, PartitionSpec(None, None)))

    def micro_batch(weights, batch):
        gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(batch @ w)))(weights)
        return weights - 0.01 * gradient, None

    step = jax.jit(lambda weights, inputs: jax.lax.scan(micro_batch, weights, inputs)[0])
    compiled = step.lower(weights, inputs).compile().as_text()
    weights = step(weights, inputs).block_until_ready()
    jax.profiler.start_trace(folder)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("lab_step", step_num=number):
            weights = step(weights, inputs).block_until_ready()
    jax.profiler.stop_trace()
    print(json.dumps({"all-reduce": compiled.count(" all-reduce("), "loops": compiled.count(" while(")}))


if __name__ == "__main__":
    main(sys.argv[1])
