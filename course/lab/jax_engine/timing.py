"""Times that mean something: every step waits for its result, warm-up is not counted, rivals take turns.

Cells of one name are measured in rounds, a block of each in turn and in the opposite order every other round, so that
drift and neighbours hit all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from course.lab.jax_engine.processes import World
from course.lab.noise import Sample, between, sample

__all__ = ["Clock", "Times", "take_turns"]

Call = Callable[[], Any]


@dataclass
class Times:
    """What one program's timed steps took on this rank, in seconds; `dispatched` is until the call returned."""

    steps: list[float] = field(default_factory=list)
    dispatched: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    spent: list[tuple[Sample, Sample]] = field(default_factory=list)

    def noise(self, world: World) -> dict[str, float | None]:
        """Return the worst noise over the ranks during these steps; all must call it."""
        mine = Sample(*(_sum(self.spent, name) for name in ("wall_s", "own_cpu_s", "all_cpu_s", "waiting_s")))  # type: ignore[arg-type]
        everyone = world.gather([world.host, mine.own_cpu_s])
        ours = float(everyone[everyone[:, 0] == world.host, 1].sum())
        zero = Sample(0.0, 0.0, *(None if part is None else 0.0 for part in (mine.all_cpu_s, mine.waiting_s)))
        found = between(zero, mine, ranks_cpu_s=ours)
        names = ("foreign_cores", "runq_wait", "cpu_per_wall")
        rows = world.gather([np.nan if found[name] is None else float(found[name]) for name in names])  # type: ignore[arg-type]
        worst = (*rows[:, :2].max(axis=0), rows[:, 2].min())
        return {name: None if np.isnan(value) else float(value) for name, value in zip(names, worst, strict=True)}

    def slowest(self, world: World) -> tuple[dict[str, float], float | None]:
        """Return percentiles of each step's slowest rank, and by how much it was behind the median rank (one: null)."""
        ranks = world.gather(self.steps)
        worst = ranks.max(axis=0)
        p10, p50, p90 = np.percentile(worst, (10, 50, 90))
        behind = float(np.median(worst - np.median(ranks, axis=0))) if world.size > 1 else None
        return {"p10": float(p10), "p50": float(p50), "p90": float(p90), "n": len(self.steps)}, behind


def _sum(spent: Sequence[tuple[Sample, Sample]], name: str) -> float | None:
    pairs = [(getattr(first, name), getattr(last, name)) for first, last in spent]
    return None if any(first is None for first, _ in pairs) else sum(last - first for first, last in pairs)


class Clock:
    """Times steps on this rank: all ranks meet, the clock starts, the step runs, its result is there, it stops."""

    def __init__(self, world: World) -> None:
        self.meet: Call = (lambda: None) if world.size == 1 else _barrier(world)

    def block(self, call: Call, count: int, loader_s: float, times: Times | None) -> None:
        """Run count steps; a slowed loader sleeps loader_s before each has its input. times None: warm-up."""
        import jax

        first = sample()
        for _ in range(count):
            self.meet()
            start = time.perf_counter()
            if loader_s:
                time.sleep(loader_s)
            ready = time.perf_counter()
            result = call()
            returned = time.perf_counter()
            jax.block_until_ready(result)
            if times is not None:
                times.steps.append(time.perf_counter() - start)
                times.dispatched.append(returned - ready)
                times.waited.append(ready - start)
        if times is not None:
            times.spent.append((first, sample()))


def take_turns(
    clock: Clock, runs: Sequence[tuple[Call, float]], steps: int, blocks: int, warmup: int,
    told: Callable[[int, int], None],
) -> list[Times]:  # fmt: skip
    """Time several programs in alternated blocks.

    Arguments: runs are (program, seconds its loader sleeps); steps are timed for each, over `blocks` rounds; told is
    called with the place of the program and its steps so far before each block. Returns the times, in order.
    """
    found = [Times() for _ in runs]
    for call, _ in runs:
        clock.block(call, warmup, 0.0, None)
    cuts = [steps * number // blocks for number in range(blocks + 1)]
    for number, count in enumerate(after - before for before, after in pairwise(cuts)):
        for place in range(len(runs))[:: -1 if number % 2 else 1]:
            call, loader_s = runs[place]
            told(place, cuts[number])
            clock.block(call, count, loader_s, found[place])
    return found


def _barrier(world: World) -> Call:
    """A sum over all devices: nobody has it before all have called."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(world.devices, dtype=object), ("all",))
    cut = NamedSharding(mesh, PartitionSpec("all"))
    ones = jax.make_array_from_callback((len(world.devices),), cut, lambda index: np.ones(len(world.devices))[index])
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))
    return lambda: jax.block_until_ready(total(ones))
