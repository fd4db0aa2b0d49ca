"""The lab's JAX engine: one jitted step whose layout is written in shardings, and what the compiler made of it.

`python -m course.lab.jax_engine CONFIG.json` is the worker. Nothing here loads JAX on import: the worker must hold its
process to its cores and say how many devices to simulate before JAX looks at the machine, and `compiled` serves
readers who have no JAX.
"""

from __future__ import annotations
