"""Step 4, collectives: bus bandwidth, alpha and beta, ring against tree, two levels, a torus."""

from __future__ import annotations

import random
from typing import Any

from course import place
from course.questions.draws import picks
from course.questions.kinds import Expression, Function, Given, Mistake, Number, Question
from course.symbols import symbols

__all__ = ["QUESTIONS"]

n, X, alpha, beta = symbols("ranks", "payload_bytes", "latency", "bandwidth")


def _measured(given: Given) -> dict[str, float]:
    return {"payload_bytes": given["gibibytes"] * 2.0**30, "communication_time": given["milliseconds"] / 1e3}


_bus = Number(
    id="place.9",
    title="Bus bandwidth",
    prompt=(
        "An all-reduce of {gibibytes:g} GiB on {ranks} ranks takes {milliseconds:g} ms. Which bus bandwidth is that, "
        "to be held against the rate of a link?"
    ),
    given={"gibibytes": 4, "ranks": 16, "milliseconds": 47.0},
    draw=picks(gibibytes=(1, 2, 4), ranks=(4, 8, 16), milliseconds=(31.0, 47.0, 83.0)),
    answer=lambda g: place.all_reduce_bus_bandwidth(ranks=g["ranks"], **_measured(g)) / 1e9,
    unit="GB/s",
    mistakes=(
        Mistake("algorithm bandwidth", lambda g: place.algorithm_bandwidth(**_measured(g)) / 1e9),
        Mistake("another collective", lambda g: place.all_gather_bus_bandwidth(ranks=g["ranks"], **_measured(g)) / 1e9,
                "That is the factor of an all-gather; an all-reduce sends twice as much."),
    ),
    hints=(
        "Which bytes did one rank send? Not the buffer once.",
        "A reduce-scatter and an all-gather: each sends (n-1)/n of the buffer. And a GiB is more than a GB.",
        "2 (n-1)/n times the buffer in GB, over the seconds.",
    ),
    difficulty=1,
    minutes=4,
    source="COM-01, NVIDIA/nccl-tests#159: algorithm bandwidth was compared with the link",
)  # fmt: skip

_gathered = Number(
    id="place.10",
    title="Whose size",
    prompt=(
        "All-gather: each of {ranks} ranks contributes {gigabytes:g} GB, and after {milliseconds:g} ms every rank has "
        "them all. Which bus bandwidth?"
    ),
    given={"ranks": 16, "gigabytes": 1.5, "milliseconds": 52.0},
    draw=picks(ranks=(4, 8, 16), gigabytes=(0.5, 1.5, 3.0), milliseconds=(21.0, 33.0, 52.0)),
    answer=lambda g: place.all_gather_bus_bandwidth(
        ranks=g["ranks"], payload_bytes=g["ranks"] * g["gigabytes"] * 1e9, communication_time=g["milliseconds"] / 1e3
    ) / 1e9,
    unit="GB/s",
    mistakes=(
        Mistake("share for whole buffer",
                lambda g: (g["ranks"] - 1) / g["ranks"] * g["gigabytes"] / g["milliseconds"] * 1e3),
        Mistake("another collective", lambda g: 2 * (g["ranks"] - 1) * g["gigabytes"] / g["milliseconds"] * 1e3,
                "That is the factor of an all-reduce."),
        Mistake("algorithm bandwidth", lambda g: g["ranks"] * g["gigabytes"] / g["milliseconds"] * 1e3),
    ),
    hints=(
        "The buffer of an all-gather is the complete one. How large is it?",
        "Each rank receives all parts but its own, and passes on as many.",
        "(n-1) parts over the time.",
    ),
    difficulty=1,
    minutes=4,
    source="COM-03, NVIDIA/nccl-tests#45: one rank's size taken for the buffer",
)  # fmt: skip


def _ring(given: Given) -> float:
    return float(place.ring_all_reduce_time(
        ranks=given["ranks"], payload_bytes=given["megabytes"] * 1e6, latency=given["microseconds"] * 1e-6,
        bandwidth=given["rate"] * 1e9)) * 1e3  # fmt: skip


_ring_time = Number(
    id="place.11",
    title="A ring, latency counted",
    prompt=(
        "Ring all-reduce of {megabytes:g} MB over {ranks} ranks: {microseconds:g} us for every step, {rate:g} GB/s one "
        "way. How many milliseconds?"
    ),
    given={"megabytes": 64.0, "ranks": 64, "microseconds": 9.6, "rate": 50.0},
    draw=picks(megabytes=(64.0, 128.0), ranks=(32, 64), microseconds=(9.6, 12.0), rate=(25.0, 50.0)),
    answer=_ring,
    unit="ms",
    mistakes=(
        Mistake("latency forgotten", lambda g: _ring({**g, "microseconds": 0})),
        Mistake("another collective", lambda g: _ring(g) / 2,
                "Only one half was counted: an all-reduce scatters, then gathers."),
    ),
    hints=(
        "Two parts: what waits, and what is carried.",
        "2 (n-1) steps; in each a rank sends an n-th of the buffer.",
        "2 (n-1) times (latency + buffer / n / rate).",
    ),
    difficulty=2,
    minutes=5,
    source="the alpha-beta model; latency of a network step as in NCCL's own table",
)  # fmt: skip

_gather_expression = Expression(
    id="place.12",
    title="All-gather on a ring",
    prompt=(
        "Write the time of a ring all-gather: `n` ranks end with a buffer of `X` bytes; a message costs `alpha` "
        "seconds and then its bytes over `beta` byte/s."
    ),
    symbols=("ranks", "payload_bytes", "latency", "bandwidth"),
    answer=lambda _: place.ring_all_gather_time,
    mistakes=(
        Mistake("latency forgotten", lambda _: alpha + (n - 1) / n * X / beta,
                "One latency was counted; a step begins when the one before has arrived."),
        Mistake("share for whole buffer", lambda _: (n - 1) * (alpha + X / beta),
                "X was sent whole in every step; it is the complete buffer, and a rank sends one chunk at a time."),
        Mistake("rule for another case", lambda _: X / n / beta,
                "A printed solution had this: the bytes of one chunk, sent once."),
    ),
    hints=(
        "Follow one chunk. How many times is it passed on?",
        "n - 1 steps; in each, every rank sends one chunk of X / n.",
        "(n - 1) times the time of one message of X / n bytes.",
    ),
    difficulty=2,
    minutes=4,
    source="COM-23, jax-ml/scaling-book#128: B/(N W) was printed",
)  # fmt: skip


def _crossover(given: Given, ring_share: float = 1.0) -> float:
    """Both times are straight lines over the buffer; where they meet."""
    message = {"latency": given["microseconds"] * 1e-6, "bandwidth": given["rate"] * 1e9}

    def ring(payload: float) -> float:
        return ring_share * float(
            place.ring_all_reduce_time(ranks=2 ** given["levels"], payload_bytes=payload, **message)
        )

    def tree(payload: float) -> float:
        return float(place.tree_all_reduce_time(levels=given["levels"], payload_bytes=payload, **message))

    # slopes over 1 GB: a single byte would drown in rounding
    rises = (tree(1e9) - tree(0) - ring(1e9) + ring(0)) / 1e9
    return (ring(0) - tree(0)) / rises / 1e6


_tree = Number(
    id="place.13",
    title="Where the ring overtakes the tree",
    prompt=(
        "A tree all-reduce over 2^{levels} ranks sends the whole buffer up {levels} levels and down again, one message "
        "a level. A ring cuts it in chunks. Each message costs {microseconds:g} us, then {rate:g} GB/s. From how many "
        "megabytes on is the ring faster?"
    ),
    given={"levels": 6, "microseconds": 9.6, "rate": 50.0},
    draw=picks(levels=(5, 6, 7, 8), microseconds=(3.4, 9.6, 12.0), rate=(25.0, 50.0)),
    answer=_crossover,
    unit="MB",
    mistakes=(
        Mistake("another collective", lambda g: _crossover(g, 0.5),
                "A ring all-gather was held against a tree all-reduce: both must do the whole."),
        Mistake("latency forgotten", lambda g: 2**g["levels"] * g["microseconds"] * 1e-6 * g["rate"] * 1e3,
                "That is where a ring's latency equals its bytes; the tree is not in it."),
    ),
    hints=(
        "Write both times with the buffer X in them; each has a part with X and a part without.",
        "Tree: 2 l (alpha + X / beta). Ring: 2 (n-1) (alpha + X / n / beta).",
        "Set them equal: X = alpha beta (n - 1 - l) / (l - (n-1)/n).",
    ),
    difficulty=3,
    minutes=8,
    source="course.place.tree_all_reduce_time and ring_all_reduce_time",
)  # fmt: skip


def _two_level_case(source: random.Random) -> dict[str, Any]:
    return {"payload": 10 ** source.uniform(4, 10), "node_size": source.choice((1, 2, 4, 8, 72)),
            "nodes": source.randint(1, 64), "inside": 10 ** source.uniform(10, 12),
            "card": 10 ** source.uniform(9, 11)}  # fmt: skip


def _two_level(payload: Any, node_size: Any, nodes: Any, inside: Any, card: Any) -> Any:
    return place.hierarchical_all_reduce_time(
        ranks_per_node=node_size, nodes=nodes, payload_bytes=payload, scale_up_bytes_per_s=inside,
        scale_up_latency_s=0, scale_out_bytes_per_s=card, scale_out_latency_s=0,
    )  # fmt: skip


_two_levels = Function(
    id="place.14",
    title="Two levels as a function",
    prompt=(
        "Write `two_level(payload, node_size, nodes, inside, card)`: seconds of an all-reduce of `payload` bytes that "
        "scatters inside the node, reduces each piece over the nodes through its own card, and gathers inside. "
        "`inside` and `card` are one device's rates in byte/s. Leave latency out; one phase follows the other."
    ),
    arguments=("payload", "node_size", "nodes", "inside", "card"),
    case=_two_level_case,
    edges=({"payload": 1e9, "node_size": 1, "nodes": 4, "inside": 1e11, "card": 1e10},
           {"payload": 1e9, "node_size": 8, "nodes": 1, "inside": 1e11, "card": 1e10}),
    answer=lambda **case: _two_level(**case),
    unit="s",
    mistakes=(
        Mistake("one card for all",
                lambda _: lambda payload, node_size, nodes, inside, card: (
                    2 * payload * ((node_size - 1) / node_size / inside + (nodes - 1) / nodes / card)),
                "The whole buffer went through one card; each card carries one piece of it."),
        Mistake("another collective",
                lambda _: lambda payload, node_size, nodes, inside, card: payload * (
                    (node_size - 1) / node_size / inside + (nodes - 1) / nodes / (node_size * card)),
                "Every part was counted once; scatter and gather, and the two halves of the all-reduce, are two each."),
        Mistake("rule for another case",
                lambda _: lambda payload, node_size, nodes, inside, card: 2 * payload * (
                    (node_size * nodes - 1) / (node_size * nodes)) / min(inside, node_size * card),
                "That is one ring over all ranks, at the slower of the two rates."),
    ),
    hints=(
        "Three phases, each a collective you can time. Which buffer does each one work on?",
        "Inside: the whole payload over node_size ranks, scattered and later gathered. Between: one node_size-th of "
        "it.",
        "2 (k-1)/k X / inside + 2 (m-1)/m (X / k) / card.",
    ),
    difficulty=2,
    minutes=8,
    source="COM-11: every card takes its piece; course.simulators.two_level",
)  # fmt: skip


def _torus(given: Given, axes: float | None = None, both: float = 1.0) -> float:
    used = given["axes"] if axes is None else axes
    ranks = given["side"] ** given["axes"]
    return float(given["megabytes"] * (ranks - 1) / ranks / (2 * used * both * given["link"]))


_torus_time = Number(
    id="place.15",
    title="A gather on a torus",
    prompt=(
        "{ranks} chips form a torus of {axes} axes of {side}, every axis closed to a ring; a link carries {link:g} "
        "GB/s each way. All chips gather a buffer that is {megabytes:g} MB when complete, over all axes at once. How "
        "many milliseconds, latency left out?"
    ),
    given={"ranks": 64, "axes": 3, "side": 4, "link": 90.0, "megabytes": 2500.0},
    draw=lambda source: _torus_shape(source),
    answer=_torus,
    unit="ms",
    mistakes=(
        Mistake("another link", lambda g: _torus(g, 1.0), "One axis was used; a torus has links on each of them."),
        Mistake("both directions counted", lambda g: _torus(g, both=0.5),
                "A chip has two neighbours on each axis, and sends to both at once: two links an axis."),
        Mistake("share for whole buffer", lambda g: _torus(g) / g["ranks"],
                "The complete buffer is given; it was divided by the chips once more."),
    ),
    hints=(
        "Which bytes must arrive at a chip, and over how many links can they come?",
        "Two neighbours on every axis. All but the chip's own part must arrive.",
        "(n-1)/n of the buffer, over 2 links for each axis.",
    ),
    difficulty=2,
    minutes=5,
    source="course.place.torus_all_gather_time; links of the catalog carry 50 to 100 GB/s",
)  # fmt: skip


def _torus_shape(source: random.Random) -> dict[str, Any]:
    side, axes = source.choice((4, 8, 12)), 3
    return {"ranks": side**axes, "axes": axes, "side": side, "link": source.choice((45.0, 90.0)),
            "megabytes": source.choice((200.0, 700.0, 1500.0))}  # fmt: skip


QUESTIONS: tuple[Question, ...] = (
    _bus, _gathered, _ring_time, _gather_expression, _tree, _two_levels, _torus_time,
)  # fmt: skip
