"""Step 4, tiers: a tensor group over two nodes, what leaves a pod, an all-to-all on a torus, whom a batch helps."""

from __future__ import annotations

from course import place
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]


def _wide(given: Given, rate: float | None = None, extra: int = 0, units: int = 8) -> float:
    """Share of the matmuls that a tensor group over full nodes of 8 takes; `rate` in GB/s instead of the group's."""
    shared = place.group_bandwidth(
        scale_up_bytes_per_s=given["up"] * 1e9, scale_out_bytes_per_s=given["out"] * 1e9, ranks_per_node=8)  # fmt: skip
    return float(place.tensor_ratio(
        tensor=given["tensor"] + extra, tensor_units=units, hidden=given["hidden"], activation_bytes=2, latency=0,
        layer_parameters=12 * given["hidden"] ** 2, tokens_per_device=1024,
        bandwidth=shared if rate is None else rate * 1e9, peak_flops_per_s=given["peak"] * 1e12))  # fmt: skip


_two_nodes = Number(
    id="place.30",
    title="Tensor ranks on full nodes",
    prompt=(
        "{tensor} tensor ranks fill {nodes} nodes of 8, {up:g} GB/s one way inside and a card of {out:g} GB/s for each "
        "device. Layers of 12 h^2 parameters, h = {hidden:,}, bf16, eight gathers and scatters a layer in forward and "
        "backward together, devices of {peak:g} TFLOP/s. Which share of the time of the layer's matmuls do they take? "
        "Leave latency out."
    ),
    given={"tensor": 16, "nodes": 2, "up": 300.0, "out": 25.0, "hidden": 16384, "peak": 312.0},
    draw=picks(tensor=(16,), nodes=(2,), up=(450.0, 900.0), out=(25.0, 50.0), hidden=(8192, 16384),
               peak=(312.0, 989.4)),
    answer=_wide,
    unit="1",
    mistakes=(
        Mistake("one card for all", lambda g: _wide(g, rate=g["out"])),
        Mistake("another link", lambda g: _wide(g, rate=g["up"]),
                "The rate inside the node was used; the group leaves it."),
        Mistake("backward forgotten", lambda g: _wide(g, units=4),
                "Four of the eight collectives were held against forward and backward."),
        Mistake("rule for another case", lambda g: _wide(g, extra=1), "A rank sends to the others, not to itself."),
    ),
    hints=(
        "How many ranks of the group share a node? As many rings share the buffer.",
        "Eight cards, but no more than the links inside. A unit sends 2 h (T_p - 1) bytes for each token of a device.",
        "8 times 2 h (T_p - 1) over the rate, divided by 72 h^2 over the peak.",
    ),
    difficulty=2,
    minutes=7,
    source="course.place.group_bandwidth and tensor_ratio; runs of 8.86B on 16 H100 in course.records",
)  # fmt: skip


def _climbs(given: Given, tier: int | None = None, halves: float = 1.0) -> float:
    """GB of the gradients that leave a tier of so many devices, for each of them."""
    degrees = {"tensor": given["tensor"], "data": given["data"]}
    together = place.on_node(degrees, ("tensor", "data"), "data", given["pod"] if tier is None else tier)
    payload = 2e9 * given["billions"] / given["tensor"]
    out = place.crossing_bytes(ranks=given["data"], ranks_per_node=together, payload_bytes=payload)
    return halves * float(out) / 1e9


_pod = Number(
    id="place.31",
    title="Bytes out of a pod",
    prompt=(
        "{billions:g} billion parameters, gradients in 2 bytes, all-reduced once a step; tensor degree {tensor} "
        "innermost, then {data} data-parallel ranks; nodes of 8, pods of {pod:,} devices. Rings follow the order of "
        "the devices. How many gigabytes leave a pod in a step for each of its devices?"
    ),
    given={"billions": 70.0, "tensor": 8, "data": 256, "pod": 512},
    draw=picks(billions=(34.0, 70.0), tensor=(4, 8), data=(256, 512), pod=(256, 512)),
    answer=_climbs,
    unit="GB",
    mistakes=(
        Mistake("cards not shared", lambda g: _climbs(g, tier=g["tensor"]),
                "What a rank sends was given; of the group's ranks in a pod only one sends to another pod."),
        Mistake("half an all-reduce", lambda g: _climbs(g, halves=0.5)),
        Mistake("nothing sharded", lambda g: _climbs(g, halves=g["tensor"]),
                "Each tensor rank holds, and reduces, only its part of the gradients."),
    ),
    hints=(
        "For what hangs below it a pod is what a node is for its devices. How many ranks of a group are in one?",
        "Neighbours in the group are as far apart as the tensor degree.",
        "Twice the rank's gradients, less an n-th, over the ranks of the group in a pod.",
    ),
    difficulty=2,
    minutes=6,
    source="the report on Llama 3 (pods of 3,072 devices, 7:1 between them); course.place.crossing_bytes",
)  # fmt: skip


def _exchange(given: Given, both: float = 1.0) -> float:
    return float(place.torus_all_to_all_time(
        torus_axes=1, torus_side=given["side"], payload_bytes=given["megabytes"] * 1e6, latency=0,
        link_bytes_per_s=given["link"] * 1e9)) * 1e3 * both  # fmt: skip


_ring_exchange = Number(
    id="place.32",
    title="All to all on a ring",
    prompt=(
        "{side} chips form one closed ring; a link carries {link:g} GB/s each way. Each chip holds {megabytes:g} MB, "
        "an equal part for every chip, and sends each part the shorter way. How many milliseconds, latency left out?"
    ),
    given={"side": 8, "link": 90.0, "megabytes": 600.0},
    draw=picks(side=(4, 8, 16, 32), link=(45.0, 90.0), megabytes=(300.0, 600.0, 900.0)),
    answer=_exchange,
    unit="ms",
    mistakes=(
        Mistake("another link", lambda g: _exchange(g, both=2.0),
                "That is twice the time: one direction was used, or the longest way counted for every part."),
        Mistake("another collective", lambda g: g["megabytes"] * (g["side"] - 1) / g["side"] / (2 * g["link"]),
                "That is a gather: here a part passes several links on its way, and loads each of them."),
        Mistake("share for whole buffer", lambda g: _exchange(g) / g["side"],
                "The buffer of a chip is given; it was divided by the chips once more."),
    ),
    hints=(
        "How many links does a part cross on average, the shorter way?",
        "A quarter of the ring. All chips together have two links each.",
        "X s / 4 hop-bytes for each chip, over 2 links: X s / 8 over the link's rate.",
    ),
    difficulty=2,
    minutes=6,
    source="course.place.torus_all_to_all_time; the JAX Scaling Book, chapter 3: a quarter of a gather",
)  # fmt: skip

_batch = Judgement(
    id="place.33",
    title="Whom a batch helps",
    prompt=(
        "On one cluster three layouts wait for their links: A shards weights (FSDP), B spreads experts, C splits "
        "layers over tensor ranks. The batch is doubled on the same devices, so that each has twice the tokens of a "
        "micro-batch. Latency does not matter. Who waits a smaller share of the time, and why?"
    ),
    choices={"a": "A", "b": "A and B", "c": "all three", "d": "none"},
    reasons={
        "1": "a gather of weights costs the same for more tokens; bytes of B and C grow with the tokens, as their "
        "FLOPs do",
        "2": "more tokens mean more FLOPs, and FLOPs hide communication",
        "3": "A and B are spread over many devices, C over few",
        "4": "all bytes grow with the batch",
    },
    answer=lambda _: ("a", "1"),
    mistakes=(
        Mistake("rule for another case", lambda _: (None, "2"),
                "Do the bytes stay as they are? Write them down for one token."),
        Mistake("rule for another case", lambda _: (None, "3"),
                "Spread does not decide it; what moves does: weights, or vectors of tokens?"),
        Mistake("rule for another case", lambda _: (None, "4"),
                "Weights have a size of their own, whatever the batch."),
    ),
    hints=(
        "For each of the three: bytes on the link and FLOPs, for tau tokens.",
        "FSDP moves weights; experts and tensor ranks move the tokens' vectors.",
        "Which ratio of bytes to FLOPs still holds a tau?",
    ),
    difficulty=1,
    minutes=4,
    source="course.place.fsdp_ratio, expert_ratio and tensor_ratio",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_two_nodes, _pod, _ring_exchange, _batch)
