"""One idea: a device computes on one stream and communicates on another; exposed is what makes the step longer.

Each stream does its work in order, and work waits only for what it needs. `two_streams` times any such list;
`bucketed_step` writes the list for data parallelism that reduces gradients in buckets, `sharded_step` the one for
parameters that are gathered layer by layer. Collectives that block (tensor parallelism) stand on the compute stream.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from course.simulators.engine import Schedule, Task, Time, run

COMPUTE, COMMUNICATION = "compute", "communication"
START, OPTIMIZER = "start", "optimizer"
PerLayer: TypeAlias = Time | Sequence[Time]
"""One number for every layer, or one a layer, the first layer first."""


@dataclass(frozen=True)
class Timeline:
    """What two streams led to, in the unit of the durations given."""

    schedule: Schedule
    blocking: frozenset[Hashable]
    """The tasks on the compute stream that are communication."""
    tasks: tuple[Task, ...] = ()
    """What was scheduled, for those who ask what waited for what."""

    @property
    def step_time(self) -> Time:
        """From the first start to the last finish."""
        return self.schedule.makespan

    @property
    def compute_time(self) -> Time:
        """Time spent computing."""
        return sum(self._took(name) for name in self.schedule.order.get(COMPUTE, ()) if name not in self.blocking)

    @property
    def communication_time(self) -> Time:
        """Time spent communicating, blocking or not."""
        return sum(self._took(name) for name in (*self.blocking, *self.schedule.order.get(COMMUNICATION, ())))

    @property
    def exposed_time(self) -> Time:
        """What communication adds to the step: the time in which nothing is computed."""
        return self.step_time - self.compute_time

    @property
    def hidden_time(self) -> Time:
        """Communication that adds nothing: it went on behind computing, or behind a collective that blocked."""
        return self.communication_time - self.exposed_time

    def _took(self, name: Hashable) -> Time:
        return self.schedule.finish[name] - self.schedule.start[name]


def two_streams(tasks: Iterable[Task], blocking: Collection[Hashable] = ()) -> Timeline:
    """Time a list of tasks on the resources COMPUTE and COMMUNICATION; `blocking` names communication on COMPUTE.

    >>> layers = [Task("layer 1", COMPUTE, 4), Task("layer 0", COMPUTE, 4)]
    >>> result = two_streams([*layers, Task("bucket", COMMUNICATION, 6, after=("layer 1",))])
    >>> result.step_time, result.exposed_time, result.hidden_time
    (10, 2, 4)
    """
    listed = list(tasks)
    for task in listed:
        if task.resource not in (COMPUTE, COMMUNICATION):
            raise ValueError(
                f"task {task.name!r} runs on {task.resource!r}; the streams are {COMPUTE} and {COMMUNICATION}"
            )
    return Timeline(run(listed), frozenset(blocking), tuple(listed))


def bucketed_step(
    forward: Sequence[Time],
    backward: Sequence[Time],
    buckets: Sequence[tuple[int, Time]],
    micro_batches: int = 1,
    reduce_every: bool = False,
    overlap_gradients: bool = True,
    optimizer: Time = 0,
    gather: PerLayer = 0,
    overlap_parameters: bool = False,
    blocking_forward: PerLayer = 0,
    blocking_backward: PerLayer = 0,
) -> Timeline:
    """A step that keeps all parameters and reduces gradients in buckets: plain data parallelism, ZeRO-1, ZeRO-2.

    Arguments: `forward` and `backward`, the time of each layer, the first layer first; `buckets`, pairs (layer, time)
    in the order of the backward, each sent once the backward of that layer, the lowest it holds, is done; in the last
    of `micro_batches` only, or in each where `reduce_every` (ZeRO-2); where not `overlap_gradients`, after the whole
    backward. `optimizer` runs when all is reduced. `gather` then collects each layer's new parameters (ZeRO-1 and 2):
    at the end, or where `overlap_parameters` at the start of the step, each layer's before its first forward.
    `blocking_forward` and `blocking_backward` follow each layer, on links of their own, and nothing is computed
    meanwhile. Returns the Timeline. Raises ValueError where counts differ or buckets are out of order.

    >>> step = bucketed_step(forward=[2, 2], backward=[4, 4], buckets=[(1, 3), (0, 3)])
    >>> step.step_time, step.exposed_time, step.hidden_time
    (15, 3, 3)
    """
    step = _Step(forward, backward, micro_batches, blocking_forward, blocking_backward)
    layers = range(len(forward))
    gathers = _per_layer(gather, len(forward), "gather")
    named = [layer for layer, _ in buckets]
    if named != sorted(set(named) & set(layers), reverse=True):
        raise ValueError(
            f"buckets name the layers {named} of {len(forward)}; they go from the last to the first, once each"
        )
    early = overlap_parameters and any(gathers)
    if early:
        for layer in layers:
            step.communicate(("gather", layer), gathers[layer])
    for micro_batch in range(micro_batches):
        for layer in layers:
            step.forward(micro_batch, layer, [("gather", layer)] if early and micro_batch == 0 else [])
        done = {layer: step.backward(micro_batch, layer) for layer in reversed(layers)}
        if reduce_every or micro_batch == micro_batches - 1:
            for layer, time in buckets:
                ready = done[layer] if overlap_gradients else done[0]
                step.communicate(("reduce", micro_batch, layer), time, [ready])
    step.update(optimizer)
    if any(gathers) and not early:
        for layer in layers:
            step.communicate(("gather", layer), gathers[layer], [OPTIMIZER])
    return step.time()


def sharded_step(
    forward: Sequence[Time],
    backward: Sequence[Time],
    gather: PerLayer,
    reduce: PerLayer,
    micro_batches: int = 1,
    prefetch: int = 1,
    regather_in_backward: bool = True,
    regather_last: bool = True,
    reduce_every: bool = True,
    optimizer: Time = 0,
    blocking_forward: PerLayer = 0,
    blocking_backward: PerLayer = 0,
) -> Timeline:
    """A step that gathers each layer's parameters before use and scatters its gradients after: ZeRO-3, FSDP.

    A layer's parameters may be gathered up to `prefetch` layers ahead, that is once the layer `prefetch` + 1 before it
    is done and its room is free. In the backward they are gathered again, unless not `regather_in_backward`; the last
    layer, just used, only where `regather_last`. Gathers and reductions share one stream: the gather for a layer goes
    `prefetch` reductions ahead. Each micro-batch gathers anew and, where `reduce_every`, reduces, else the last does.
    The other arguments are those of `bucketed_step`. Returns the Timeline. Raises ValueError where counts differ.

    >>> step = sharded_step(forward=[2, 2], backward=[4, 4], gather=1, reduce=3)
    >>> step.step_time, step.exposed_time, step.hidden_time
    (17, 5, 5)
    """
    step = _Step(forward, backward, micro_batches, blocking_forward, blocking_backward)
    layers = len(forward)
    gathers, reduces = _per_layer(gather, layers, "gather"), _per_layer(reduce, layers, "reduce")
    if prefetch < 0:
        raise ValueError(f"prefetch is {prefetch}; it counts layers gathered ahead, 0 or more")
    for micro_batch in range(micro_batches):
        done = [
            step.last
        ]  # what came before, then layer after layer: the gather of layer l waits for done[l - prefetch]
        for layer in range(layers):
            name = ("gather", micro_batch, layer)
            step.communicate(name, gathers[layer], done[max(layer - prefetch, 0) :][:1])
            done.append(step.forward(micro_batch, layer, [name]))

        downwards = list(reversed(range(layers)))
        again = downwards[0 if regather_last else 1 :] if regather_in_backward else []
        done = [step.last]
        for place in range(-prefetch, layers):  # the gather goes `prefetch` places ahead of backward and reduction
            if 0 <= place + prefetch < layers and downwards[place + prefetch] in again:
                layer = downwards[place + prefetch]
                step.communicate(("gather again", micro_batch, layer), gathers[layer], done[max(place, 0) :][:1])
            if place >= 0:
                layer = downwards[place]
                gathered = [("gather again", micro_batch, layer)] if layer in again else []
                done.append(step.backward(micro_batch, layer, gathered))
                if reduce_every or micro_batch == micro_batches - 1:
                    step.communicate(("reduce", micro_batch, layer), reduces[layer], [done[-1]])
    step.update(optimizer)
    return step.time()


class _Step:
    """Writes the tasks of a step, compute in one line, communication beside it."""

    def __init__(
        self,
        forward: Sequence[Time],
        backward: Sequence[Time],
        micro_batches: int,
        blocking_forward: PerLayer,
        blocking_backward: PerLayer,
    ) -> None:
        layers = len(forward)
        if layers < 1 or micro_batches < 1:
            raise ValueError(f"{layers} layers and micro_batches = {micro_batches}; a step needs at least 1 of each")
        self._times = {"forward": forward, "backward": _per_layer(backward, layers, "backward")}
        self._blocking = {
            "forward": _per_layer(blocking_forward, layers, "blocking_forward"),
            "backward": _per_layer(blocking_backward, layers, "blocking_backward"),
        }
        self._tasks: list[Task] = []
        self._blocked: list[Hashable] = []
        self.last: Hashable = START
        self._tasks.append(Task(START, COMPUTE, 0))

    def forward(self, micro_batch: int, layer: int, after: Sequence[Hashable] = ()) -> Hashable:
        return self._compute("forward", micro_batch, layer, after)

    def backward(self, micro_batch: int, layer: int, after: Sequence[Hashable] = ()) -> Hashable:
        return self._compute("backward", micro_batch, layer, after)

    def _compute(self, kind: str, micro_batch: int, layer: int, after: Sequence[Hashable]) -> Hashable:
        """The layer, and the collective that blocks behind it; returns the name of what ends it."""
        self.last = (kind, micro_batch, layer)
        self._tasks.append(Task(self.last, COMPUTE, self._times[kind][layer], tuple(after)))
        if self._blocking[kind][layer]:
            self._tasks.append(Task(("blocking", *self.last), COMPUTE, self._blocking[kind][layer]))
            self.last = ("blocking", *self.last)
            self._blocked.append(self.last)
        return self.last

    def communicate(self, name: Hashable, time: Time, after: Sequence[Hashable] = ()) -> None:
        self._tasks.append(Task(name, COMMUNICATION, time, tuple(after)))

    def update(self, optimizer: Time) -> None:
        """The optimizer, when everything so far is done."""
        everything = tuple(task.name for task in self._tasks)
        self._tasks.append(Task(OPTIMIZER, COMPUTE, optimizer, everything))

    def time(self) -> Timeline:
        return two_streams(self._tasks, self._blocked)


def _per_layer(value: PerLayer, layers: int, name: str) -> list[Time]:
    values = list(value) if isinstance(value, Sequence) else [value] * layers
    if len(values) != layers:
        raise ValueError(f"{name} has {len(values)} times for {layers} layers; give one number, or one a layer")
    return values
