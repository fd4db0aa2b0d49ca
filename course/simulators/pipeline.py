"""One idea: a pipeline schedule is a list of work for each stage; when it happens follows from what waits for what.

A model cut into `stages` x `chunks` pieces runs piece c·stages + i on stage i. The forward of a piece waits for the
forward of the piece before it, the backward for the backward of the piece after it, and a stage does its list in
order. Nothing else is assumed, so bubbles and memory are results here, not formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from course.simulators.engine import After, Schedule, Task, Time, run

FORWARD, BACKWARD, WEIGHT = "forward", "backward", "weight"
"""Kinds of work. Where an order has WEIGHT, backward is split: BACKWARD then makes the gradient of the input alone."""


class Work(NamedTuple):
    """The forward, backward or weight gradient of one micro-batch in one chunk of a stage (all counted from 0)."""

    kind: str
    micro_batch: int
    chunk: int = 0


Orders: TypeAlias = list[list[Work]]
"""For each stage, its work in the order in which it does it."""


def gpipe(stages: int, micro_batches: int) -> Orders:
    """All forwards, then all backwards, on every stage.

    >>> [work.kind[0] + str(work.micro_batch) for work in gpipe(2, 3)[0]]
    ['f0', 'f1', 'f2', 'b0', 'b1', 'b2']
    """
    _check(stages, micro_batches)
    forwards = [Work(FORWARD, m) for m in range(micro_batches)]
    backwards = [Work(BACKWARD, m) for m in range(micro_batches)]
    return [forwards + backwards for _ in range(stages)]


def one_forward_one_backward(stages: int, micro_batches: int) -> Orders:
    """1F1B: a stage runs ahead by as many forwards as there are stages after it, then alternates.

    >>> [work.kind[0] + str(work.micro_batch) for work in one_forward_one_backward(2, 3)[0]]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    _check(stages, micro_batches)
    forwards = [Work(FORWARD, m) for m in range(micro_batches)]
    backwards = [Work(BACKWARD, m) for m in range(micro_batches)]
    return [_alternate(forwards, backwards, stages - 1 - stage) for stage in range(stages)]


def interleaved(stages: int, micro_batches: int, chunks: int) -> Orders:
    """Interleaved 1F1B, in the order of Megatron-LM (Narayanan and others 2021, arXiv 2104.04473).

    A stage takes `stages` micro-batches through its first chunk, the same through its second, and so on, then the
    next `stages` micro-batches; backwards take the chunks from the last to the first. It runs ahead by
    2(stages - 1 - i) + (chunks - 1) stages forwards of a chunk. Raises ValueError where `chunks` is below 2 (that is
    1F1B) or `stages` does not divide `micro_batches`.

    >>> [work.kind[0] + str(work.micro_batch) + "." + str(work.chunk) for work in interleaved(2, 2, 2)[1]]
    ['f0.0', 'f1.0', 'f0.1', 'b0.1', 'f1.1', 'b1.1', 'b0.0', 'b1.0']
    """
    _check(stages, micro_batches)
    if chunks < 2:
        raise ValueError(f"chunks is {chunks}; interleaving needs at least 2 chunks a stage, with 1 use 1F1B")
    if micro_batches % stages:
        raise ValueError(f"{micro_batches} micro_batches on {stages} stages; interleaving needs a multiple of stages")
    groups = [range(first, first + stages) for first in range(0, micro_batches, stages)]
    forwards = [Work(FORWARD, m, c) for group in groups for c in range(chunks) for m in group]
    backwards = [Work(BACKWARD, m, c) for group in groups for c in reversed(range(chunks)) for m in group]
    ahead = [2 * (stages - 1 - stage) + (chunks - 1) * stages for stage in range(stages)]
    return [_alternate(forwards, backwards, count) for count in ahead]


def zero_bubble(stages: int, micro_batches: int) -> Orders:
    """ZB-H1 (Qi and others 2023, arXiv 2401.10241): 1F1B whose backward is split, the gradients of the weights later.

    Stage i lets i of them wait: nobody needs them before the update, so they fill the end of the step. It then holds as
    many micro-batches as the first stage.

    >>> [work.kind[0] + str(work.micro_batch) for work in zero_bubble(2, 3)[1]]
    ['f0', 'b0', 'f1', 'b1', 'w0', 'f2', 'b2', 'w1', 'w2']
    """
    orders = []
    for stage, order in enumerate(one_forward_one_backward(stages, micro_batches)):
        longer: list[Work] = []
        for work in order:
            longer.append(work)
            if work.kind == BACKWARD and work.micro_batch >= stage:
                longer.append(Work(WEIGHT, work.micro_batch - stage))
        left = range(max(0, micro_batches - stage), micro_batches)
        orders.append(longer + [Work(WEIGHT, micro_batch) for micro_batch in left])
    return orders


def zero_bubble_ahead(stages: int, micro_batches: int) -> Orders:
    """A split backward with more memory, after ZB-H2 of the same paper: up to 2 `stages` - 1 micro-batches on a stage.

    Made step by step, all three kinds of work taking 1: a stage does the gradient of an input if it can, else a forward
    if it may hold one more, else a gradient of weights. The first stage then ends its step as much earlier as the last
    begins later, so that without a barrier between steps no stage waits.

    >>> [work.kind[0] + str(work.micro_batch) for work in zero_bubble_ahead(2, 4)[0]]
    ['f0', 'f1', 'f2', 'b0', 'w0', 'b1', 'f3', 'b2', 'w1', 'w2', 'b3', 'w3']
    """
    _check(stages, micro_batches)
    orders: Orders = [[] for _ in range(stages)]
    done: list[dict[str, int]] = [dict.fromkeys((FORWARD, BACKWARD, WEIGHT), 0) for _ in range(stages)]
    while any(len(order) < 3 * micro_batches for order in orders):
        before = [dict(counts) for counts in done]  # what neighbours have finished when this unit of time begins
        for stage, own in enumerate(before):
            forwards, backwards, weights = own.values()
            if backwards < (before[stage + 1][BACKWARD] if stage < stages - 1 else forwards):
                kind = BACKWARD
            elif (forwards < (before[stage - 1][FORWARD] if stage else micro_batches)
                  and forwards - weights < 2 * stages - 1):  # fmt: skip
                kind = FORWARD
            elif weights < backwards:
                kind = WEIGHT
            else:
                continue
            orders[stage].append(Work(kind, own[kind]))
            done[stage][kind] += 1
    return orders


def _alternate(forwards: list[Work], backwards: list[Work], ahead: int) -> list[Work]:
    """`ahead` forwards first, then a forward and a backward in turn, then the backwards that are left."""
    ahead = min(ahead, len(forwards))
    order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[len(forwards) - ahead :]


@dataclass(frozen=True)
class Pipeline:
    """What a schedule led to. Times in the unit of the durations given; tasks are named (stage, Work)."""

    orders: Orders
    schedule: Schedule

    @property
    def makespan(self) -> Time:
        """From the first forward to the last backward."""
        return self.schedule.makespan

    @property
    def idle_share(self) -> Time:
        """Idle time over total time, of all stages together."""
        stages = range(len(self.orders))
        return 1 - sum(self.schedule.busy(stage) for stage in stages) / (len(stages) * self.makespan)

    def start(self, stage: int, work: Work) -> Time:
        """When `stage` begins `work`."""
        return self.schedule.start[stage, work]

    def finish(self, stage: int, work: Work) -> Time:
        """When `stage` has done `work`."""
        return self.schedule.finish[stage, work]

    def in_flight(self, stage: int) -> list[tuple[Time, int]]:
        """How many chunk activations `stage` holds, as (time, count from then on).

        A micro-batch is held in a chunk from the start of its forward to the end of its backward there, both parts of
        it where backward is split.
        """
        held, history = 0, []
        last = WEIGHT if any(work.kind == WEIGHT for work in self.orders[stage]) else BACKWARD
        for work in self.orders[stage]:
            if work.kind == FORWARD:
                held += 1
                history.append((self.start(stage, work), held))
            elif work.kind == last:
                held -= 1
                history.append((self.finish(stage, work), held))
        return history

    def peak_in_flight(self) -> list[int]:
        """The most chunk activations each stage holds at once."""
        return [max(count for _, count in self.in_flight(stage)) for stage in range(len(self.orders))]


Durations: TypeAlias = Time | Sequence[Time] | Sequence[Sequence[Time]]


def simulate(
    orders: Orders, forward: Durations, backward: Durations, send: Time | Sequence[Time] = 0,
    weight: Durations | None = None,
) -> Pipeline:  # fmt: skip
    """Run the lists of all stages.

    Arguments: `orders` from a schedule above, or a list of your own; `forward` and `backward`, the time of one
    micro-batch in one whole stage, as one number, one a stage, or one for every chunk of every stage (a number for a
    stage is shared equally among its chunks); `send`, the delay from a stage to the next (from the last to the first
    between chunks), one number or one for each stage's way out, the same in both directions, and no stage waits
    while it sends; `weight`, the time of the weight gradients where the orders have them: `backward` is then that of
    the input gradient alone. Returns the Pipeline. Raises DeadlockError where an order waits for itself, ValueError
    where a micro-batch lacks a part or the counts of times and stages differ.

    >>> result = simulate(one_forward_one_backward(4, 8), forward=1, backward=2)
    >>> result.makespan, round(result.idle_share, 4), result.peak_in_flight()
    (33, 0.2727, [4, 3, 2, 1])
    """
    stages = len(orders)
    chunks = 1 + max(work.chunk for order in orders for work in order)
    kinds = {work.kind for order in orders for work in order}
    if (WEIGHT in kinds) != (weight is not None):
        raise ValueError(
            "the orders have weight gradients, so give `weight`, their time" if weight is None else
            "`weight` is given, but no order has weight gradients; leave it out"
        )  # fmt: skip
    given = {FORWARD: forward, BACKWARD: backward} | ({WEIGHT: weight} if weight is not None else {})
    times = {kind: _durations(value, stages, chunks, kind) for kind, value in given.items()}
    delays = _per_stage(send, stages, "send")
    last = stages * chunks - 1
    expected = {Work(kind, m, c) for order in orders for kind, m, _ in order for c in range(chunks)}

    def at(piece: int, kind: str, micro_batch: int) -> tuple[int, Work]:
        return piece % stages, Work(kind, micro_batch, piece // stages)

    tasks = []
    for stage, order in enumerate(orders):
        if set(order) != expected:
            missing = min(expected - set(order))
            raise ValueError(f"stage {stage} lacks {missing}; every stage does every forward and backward once")
        for work in order:
            if work.kind not in times:
                raise ValueError(f"stage {stage} has {work}; the kind of work is {' or '.join(map(repr, times))}")
            piece = work.chunk * stages + stage
            waits: list[After | tuple[int, Work]] = []
            if work.kind == FORWARD:
                if piece > 0:
                    source = (piece - 1) % stages
                    waits.append(After(at(piece - 1, FORWARD, work.micro_batch), delays[source] if stages > 1 else 0))
            elif work.kind == BACKWARD and piece < last:
                waits.append(After(at(piece + 1, BACKWARD, work.micro_batch), delays[stage] if stages > 1 else 0))
            if work.kind == BACKWARD:
                waits.append(at(piece, FORWARD, work.micro_batch))
            elif work.kind == WEIGHT:
                waits.append(at(piece, BACKWARD, work.micro_batch))
            tasks.append(Task((stage, work), stage, times[work.kind][stage][work.chunk], tuple(waits)))
    return Pipeline(orders, run(tasks))


def _check(stages: int, micro_batches: int) -> None:
    for name, value in (("stages", stages), ("micro_batches", micro_batches)):
        if value < 1:
            raise ValueError(f"{name} is {value}; a pipeline needs at least 1")


def _per_stage(value: Time | Sequence[Time], stages: int, name: str) -> list[Time]:
    values = list(value) if isinstance(value, Sequence) else [value] * stages
    if len(values) != stages:
        raise ValueError(f"{name} has {len(values)} numbers for {stages} stages; give one number, or one a stage")
    return values


def _durations(value: Durations, stages: int, chunks: int, name: str) -> list[list[Time]]:
    """Times by stage and chunk; a number for a whole stage is shared equally, exactly so for one chunk."""
    rows = []
    for entry in _per_stage(value, stages, name):
        row = list(entry) if isinstance(entry, Sequence) else [entry if chunks == 1 else entry / chunks] * chunks
        if len(row) != chunks:
            raise ValueError(f"{name} has {len(row)} numbers for {chunks} chunks of a stage; give one for each chunk")
        rows.append(row)
    return rows
