"""The explorers of step 4 about links: `chunks` on a ring, time of a `collective`, `ranks` on nodes and on a torus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from course import catalog
from course import place as step
from course.explorers.base import Choice, Explorer, Number, Sweep, View
from course.explorers.shared import powers
from course.pictures.estimate import short
from course.pictures.place import LIGHT, Curves, Grid, Line, Panel, shades, tint
from course.problem import Fabric
from course.simulators import ring

__all__ = [
    "chunk_panel", "chunk_states", "chunks", "chunks_view", "collective", "collective_view", "rank_panel", "ranks",
    "ranks_view",
]  # fmt: skip

WIDTH = 5.8
"""Inches of a picture, as in step 1."""
FABRICS = ("h100-ib400", "a100-ib200", "b200-ib400", "gb200-nvl72")
"""Fabrics with a switch in the node: on a mesh the rate of a group inside it would depend on its size."""
MODELS = ("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "gpt3-175b")
POWERS = powers(1024)
ORDERS = {
    "tensor, pipeline, data": ("tensor", "pipeline", "data"),
    "tensor, data, pipeline": ("tensor", "data", "pipeline"),
    "pipeline, tensor, data": ("pipeline", "tensor", "data"),
    "pipeline, data, tensor": ("pipeline", "data", "tensor"),
    "data, tensor, pipeline": ("data", "tensor", "pipeline"),
    "data, pipeline, tensor": ("data", "pipeline", "tensor"),
}
SEQUENCE, MICRO_BATCHES = 8192, 8
"""What a replica does in a step, in `ranks`: micro-batches of one sequence."""
LAYOUTS = {"2 nodes of 8": (2, 8), "4 nodes of 8": (4, 8), "8 nodes of 4": (8, 4), "torus of 4 x 4": (4, 4),
           "torus of 8 x 8": (8, 8)}  # fmt: skip


@cache
def fabric_of(name: str) -> Fabric:
    """A fabric of the catalog."""
    return catalog.fabric(name)


def named(names: tuple[str, ...]) -> dict[str, str]:
    """A dropdown whose labels are its values."""
    return {name: name for name in names}


# ---------------------------------------------------------------- chunks round a ring
def chunk_states(collective: str, size: int) -> list[list[list[frozenset[int]]]]:
    """After each step, for rank and chunk: whose numbers are in the sum the rank holds (empty: it holds nothing)."""
    gather = collective == "all_gather"
    alone = [[frozenset({rank}) for _ in range(size)] for rank in range(size)]
    mine = [[frozenset(range(size)) if rank == chunk else frozenset() for chunk in range(size)] for rank in range(size)]
    state: list[list[frozenset[int]]] = mine if gather else alone
    states, sends = [state], ring.plan(collective, size)
    for now in sorted({one.step for one in sends}):
        after = [list(row) for row in state]
        for one in (one for one in sends if one.step == now):
            # what arrives is added while sums are partial, and replaces what is there once it is whole
            arrived = state[one.source][one.chunk]
            whole = len(arrived) == size
            after[one.target][one.chunk] = arrived if whole else arrived | state[one.target][one.chunk]
        states.append(after)
        state = after
    return states


def chunk_panel(state: list[list[frozenset[int]]]) -> Panel:
    """One state of `chunk_states` as a panel: each cell says of how many ranks its sum is."""
    size = len(state)

    def cell(held: frozenset[int]) -> tuple[str, str]:
        return (tint(len(held) / size), f"{len(held)} of {size}") if held else (LIGHT, "")

    rows = [[cell(held) for held in row] for row in state]
    return Panel("ranks summed, by chunk", rows, [f"rank {rank}" for rank in range(size)],
                 [f"c{chunk}" for chunk in range(size)])  # fmt: skip


def chunks_view(
    collective: str, ranks: int, step_number: int, payload: float, latency: float, bandwidth: float
) -> View:
    """Chunks on their way round a ring after some steps.

    Args:
        collective: "reduce_scatter", "all_gather" or "all_reduce".
        ranks: ranks of the ring.
        step_number: steps that are done; at most all.
        payload: whole buffer in MB.
        latency: of one message, in microseconds.
        bandwidth: of a link, one way, in GB/s.
    """
    states = chunk_states(collective, ranks)
    done, steps = min(step_number, len(states) - 1), len(states) - 1
    chunk = payload * 1e6 / ranks
    message = step.point_to_point_time(payload_bytes=chunk, latency=latency * 1e-6, bandwidth=bandwidth * 1e9)
    formula = step.ring_all_reduce_time if collective == "all_reduce" else step.ring_all_gather_time
    whole = formula(ranks=ranks, payload_bytes=payload * 1e6, latency=latency * 1e-6, bandwidth=bandwidth * 1e9)
    complete = sum(len(held) == ranks for held in states[done][0])
    name = collective.replace("_", "-")
    return View(
        f"After {done} of {steps} steps of the {name} each rank has sent {short(done * chunk, 'B')} and rank 0 holds "
        f"{complete} complete {'chunk' if complete == 1 else 'chunks'}. The whole takes {whole * 1e3:.4g} ms.",
        ("", "one step", f"{steps} steps"),
        (
            ("bytes a rank sends", short(chunk, "B"), short(steps * chunk, "B")),
            ("time (us)", f"{message * 1e6:,.4g}", f"{whole * 1e6:,.4g}"),
            ("of it latency (us)", f"{latency:,.4g}", f"{latency * steps:,.4g}"),
        ),
        {
            "finding": f"{name[0].upper()}{name[1:]}, after step {done} of {steps}",
            "panels": [chunk_panel(states[done])],
        },
    )  # fmt: skip


def chunks(*, ask: str | None = None, **values: Any) -> Explorer:
    """Watch chunks go round a ring; Play passes through the steps.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    kinds = ("reduce_scatter", "all_gather", "all_reduce")
    controls = (
        Choice("collective", "collective", "all_reduce", {name.replace("_", "-"): name for name in kinds}),
        Choice("ranks", "ranks", 4, {str(size): size for size in range(2, 9)}),
        Number("step_number", "steps done", 0, 0, 14, whole=True),
        Number("payload", "buffer (MB)", 64.0, 0.001, 1e4, logarithmic=True),
        Number("latency", "latency (us)", 3.4, 0.1, 100, logarithmic=True),
        Number("bandwidth", "one way (GB/s)", 450.0, 1, 2000, logarithmic=True),
    )
    sweep = Sweep("step_number", lambda now: list(range(2 * now["ranks"] - 1)), 600)
    return Explorer(controls, chunks_view, lambda: Grid(WIDTH, 3.6), sweep=sweep, ask=ask, values=values)


# ---------------------------------------------------------------- time of a collective
SIZES = np.geomspace(1e4, 1e11, 141)


def _all_reduces(fabric: Fabric, ranks: int, payload: Any) -> dict[str, Any]:
    """Seconds of an all-reduce by three algorithms; the ring may use all cards, one hop a node crosses the network."""
    on_node = min(ranks, fabric.node_size)
    nodes = ranks / on_node
    rate, latency = fabric.scale_up_bytes_per_s, fabric.scale_up_latency_s
    if nodes > 1:
        rate = step.group_bandwidth(
            scale_up_bytes_per_s=rate, scale_out_bytes_per_s=fabric.scale_out_bytes_per_s, ranks_per_node=on_node
        )
        waits = step.ring_nodes_latency(
            ranks_per_node=on_node, nodes=nodes, scale_up_latency_s=fabric.scale_up_latency_s,
            scale_out_latency_s=fabric.scale_out_latency_s,
        )  # fmt: skip
        latency = waits / (2 * (ranks - 1))  # of a step, on average
    link = {"payload_bytes": payload, "latency": latency, "bandwidth": rate}
    two_level = step.hierarchical_all_reduce_time(
        ranks_per_node=on_node, nodes=nodes, payload_bytes=payload, scale_up_bytes_per_s=fabric.scale_up_bytes_per_s,
        scale_up_latency_s=fabric.scale_up_latency_s, scale_out_bytes_per_s=fabric.scale_out_bytes_per_s,
        scale_out_latency_s=fabric.scale_out_latency_s,
    )  # fmt: skip
    crossing = {**link, "latency": fabric.scale_out_latency_s if nodes > 1 else latency}
    times = {
        "ring": step.ring_all_reduce_time(ranks=ranks, **link),
        "tree": step.tree_all_reduce_time(levels=int(ranks - 1).bit_length(), **crossing),
    }
    return times | ({"two levels": two_level} if nodes > 1 else {})


def collective_view(fabric: str, ranks: int, payload: float) -> View:
    """Bus bandwidth of an all-reduce against its size, by ring, tree and two levels.

    Args:
        fabric: of the catalog; its wire rates and latencies.
        ranks: devices, filling node after node.
        payload: buffer in MB.

    >>> collective_view("h100-ib400", 8, 1000).rows[0][1]
    '3.94 ms'
    """
    links = fabric_of(fabric)
    times = {name: float(value) for name, value in _all_reduces(links, ranks, payload * 1e6).items()}
    best = min(times, key=lambda name: times[name])
    over = {
        name: step.all_reduce_bus_bandwidth(ranks=ranks, payload_bytes=SIZES, communication_time=value) / 1e9
        for name, value in _all_reduces(links, ranks, SIZES).items()
    }
    bus = {name: step.all_reduce_bus_bandwidth(ranks=ranks, payload_bytes=payload * 1e6, communication_time=value) / 1e9
           for name, value in times.items()}  # fmt: skip
    inside = ranks <= links.node_size
    rate = links.scale_up_bytes_per_s if inside else min(
        links.scale_up_bytes_per_s, links.node_size * links.scale_out_bytes_per_s)  # fmt: skip
    where = "inside a node" if inside else f"over {ranks // links.node_size:,} nodes"
    return View(
        f"{short(payload * 1e6, 'B')} over {ranks:,} ranks {where}: {best} is fastest, {times[best] * 1e3:.3g} ms, a "
        f"bus bandwidth of {bus[best]:.3g} GB/s where the link carries {rate / 1e9:,.3g}.",
        ("algorithm", "time", "bus bandwidth (GB/s)"),
        tuple((name, f"{value * 1e3:.3g} ms", f"{bus[name]:.3g}") for name, value in times.items()),
        {
            "finding": f"{best[0].upper()}{best[1:]} is fastest at {short(payload * 1e6, 'B')}",
            "curves": {name: Line(SIZES / 1e6, values) for name, values in over.items()},
            "level": (rate / 1e9, f"link {rate / 1e9:,.3g} GB/s"),
            "place": (payload, short(payload * 1e6, "B")),
        },
    )


def collective(*, ask: str | None = None, **values: Any) -> Explorer:
    """Time of an all-reduce by ring, tree and two levels.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("fabric", "links", "h100-ib400", named(FABRICS)),
        Choice("ranks", "ranks", 8, {name: size for name, size in POWERS.items() if 2 <= size <= 1024}),
        Number("payload", "buffer (MB)", 100.0, 0.01, 1e5, logarithmic=True),
    )
    return Explorer(
        controls, collective_view, lambda: Curves("buffer (MB)", "bus bandwidth (GB/s)", WIDTH, 3.9), ask=ask,
        values=values,
    )  # fmt: skip


# ---------------------------------------------------------------- ranks on nodes and on a torus
def rank_panel(
    degrees: Mapping[str, int], order: tuple[str, ...], axis: str, shape: tuple[int, int], torus: bool = False
) -> Panel:
    """Every device with the number of its group of one axis; group 0 stands out."""
    group = {device: number for number, members in enumerate(step.groups(degrees, order, axis)) for device in members}
    rows = [
        [(shades(group[row * shape[1] + column]), str(group[row * shape[1] + column])) for column in range(shape[1])]
        for row in range(shape[0])
    ]
    names = [] if torus else [f"n{number}" for number in range(shape[0])]
    return Panel(f"{axis} {degrees.get(axis, 1)}: group of each", rows, names)


def ranks_view(layout: str, tensor: int, pipeline: int, order: str, axis: str, model: str) -> View:
    """Groups of an axis on the devices, and the bytes each axis sends and sends out of its node.

    Args:
        layout: key of `LAYOUTS`.
        tensor: tensor degree.
        pipeline: stages; data parallelism takes the rest of the devices.
        order: key of `ORDERS`, innermost axis first.
        axis: whose groups are drawn.
        model: of the catalog; sequences of 8,192, 8 micro-batches a step.
    """
    shape, axes = LAYOUTS[layout], ORDERS[order]
    torus = layout.startswith("torus")
    total = shape[0] * shape[1]
    degrees = {"tensor": tensor, "pipeline": pipeline, "data": total // (tensor * pipeline)}
    fabric = fabric_of("h100-ib400")
    if not torus and shape[1] != fabric.node_size:
        fabric = _resized(shape[1])
    sent = step.traffic(catalog.model(model), degrees, axes, fabric, sequence_length=SEQUENCE,
                        micro_batches=MICRO_BATCHES)  # fmt: skip
    leaving = sum(one.leaving for one in sent.values())
    rows = [len(_rows(group, shape[1])) for group in step.groups(degrees, axes, axis)[:1]]
    where = f"lies on {rows[0]} {'rows' if torus else 'nodes'}" if rows[0] > 1 else "stays in one row" if torus else (
        "stays in one node")  # fmt: skip
    said = f"Group 0 of {axis} ({degrees[axis]} ranks) {where}."
    if not torus:
        said += f" In all {short(leaving, 'B')} leave the node for each device"
    else:
        said += " The bytes are those"
    said += f" in a step of {model}: {MICRO_BATCHES} micro-batches of one sequence of {SEQUENCE:,} tokens a replica."
    return View(
        said,
        ("axis", "degree", "a node", "sent (GB)", "leaves (GB)", "link (s)"),
        tuple(
            (name, f"{degrees[name]}", "–" if torus else f"{one.on_node}", f"{one.bytes / 1e9:.3g}",
             "–" if torus else f"{one.leaving / 1e9:.3g}", "–" if torus else f"{one.seconds:.3g}")
            for name, one in sent.items()
        ),
        {
            "finding": f"Order {order}",
            "panels": [rank_panel(degrees, axes, axis, shape, torus)],
        },
    )  # fmt: skip


def _rows(group: list[int], width: int) -> list[int]:
    return step.nodes_of(group, width)


@cache
def _resized(size: int) -> Fabric:
    """The H100's links in nodes of another size."""
    return replace(fabric_of("h100-ib400"), node_size=size)


def ranks(*, ask: str | None = None, **values: Any) -> Explorer:
    """Where the groups of an axis lie, by the order of axes.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """

    def divisors(now: Mapping[str, Any], other: str) -> dict[str, int]:
        shape = LAYOUTS[now["layout"]]
        total = shape[0] * shape[1] // (now["tensor"] if other == "tensor" else 1)
        return {str(size): size for size in (1, 2, 4, 8, 16, 32, 64) if total % size == 0 and size <= total}

    controls = (
        Choice("layout", "devices", "4 nodes of 8", named(tuple(LAYOUTS))),
        Choice("tensor", "tensor", 4, lambda now: divisors(now, "")),
        Choice("pipeline", "pipeline", 2, lambda now: divisors(now, "tensor")),
        Choice("order", "order, innermost first", "tensor, pipeline, data", named(tuple(ORDERS))),
        Choice("axis", "show groups of", "data", named(("tensor", "pipeline", "data"))),
        Choice("model", "model of the bytes", "llama-3-70b", named(MODELS)),
    )
    return Explorer(controls, ranks_view, lambda: Grid(WIDTH, 3.9), ask=ask, values=values)
