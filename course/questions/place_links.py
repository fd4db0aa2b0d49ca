"""Step 4, links: what a printed rate means, and what groups of ranks share."""

from __future__ import annotations

import random
from typing import Any

from course import place
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]

_one_way = Number(
    id="place.1",
    title="One way, per device",
    prompt=(
        "A data sheet says: {links} links a device, {both:g} GB/s a link, both directions together. At which rate can "
        "one device send?"
    ),
    given={"links": 12, "both": 50.0},
    draw=picks(links=(4, 6, 12, 18), both=(50.0, 100.0, 128.0)),
    answer=lambda g: g["links"] * g["both"] / 2,
    unit="GB/s",
    mistakes=(
        Mistake("both directions counted", lambda g: g["links"] * g["both"]),
        Mistake("another link", lambda g: g["both"] / 2, "One link was counted; the device sends over all of them."),
    ),
    hints=(
        "Sending and receiving use the two directions of a link at once.",
        "What can one link carry in the direction away from the device?",
        "Half of the printed rate of a link, times the links.",
    ),
    difficulty=1,
    minutes=2,
    source="COM-05, open-mpi/hwloc#574: 50 GB/s a link is both directions",
)

_cards = Number(
    id="place.2",
    title="Cards in bits, tools in bytes",
    prompt=(
        "A node has {cards} network cards of {gigabits:,} Gb/s. A benchmark prints {reached:g} GB/s for what leaves "
        "the node. Which share of the cards' rate is that?"
    ),
    given={"cards": 8, "gigabits": 200, "reached": 90.0},
    draw=picks(cards=(4, 8), gigabits=(200, 400), reached=(60.0, 75.0, 90.0)),
    answer=lambda g: g["reached"] / (g["cards"] * g["gigabits"] / 8),
    unit="1",
    mistakes=(
        Mistake("bits for bytes", lambda g: g["reached"] / (g["cards"] * g["gigabits"])),
        Mistake(
            "another link",
            lambda g: g["reached"] / (g["gigabits"] / 8),
            "The rate of all cards was divided by that of one.",
        ),
    ),
    hints=(
        "Two units are mixed here. Which is sold, which is printed?",
        "A byte has 8 bits. What do all cards carry in bytes a second?",
        "Cards times Gb/s, over 8, is the node's rate in GB/s; divide the benchmark's by it.",
    ),
    difficulty=1,
    minutes=3,
    source="COM-09, NVIDIA/nccl#495: 600 Gb/s reached of 8 cards of 100 Gb/s",
)

_both_ways = Number(
    id="place.3",
    title="Two copies at once",
    prompt=(
        "Two copies of {gigabytes:g} GB run at the same time over one link, in opposite directions, and take "
        "{milliseconds:g} ms. At which rate did the link carry bytes in one direction?"
    ),
    given={"gigabytes": 3.0, "milliseconds": 55.0},
    draw=picks(gigabytes=(1.0, 3.0, 5.0), milliseconds=(35.0, 40.0, 55.0)),
    answer=lambda g: place.algorithm_bandwidth(
        payload_bytes=g["gigabytes"] * 1e9, communication_time=g["milliseconds"] / 1e3
    ) / 1e9,
    unit="GB/s",
    mistakes=(
        Mistake("both directions counted", lambda g: 2 * g["gigabytes"] / g["milliseconds"] * 1e3),
        Mistake(
            "share for ratio",
            lambda g: g["gigabytes"] / g["milliseconds"] * 1e3 / 2,
            "Each direction had the whole time for itself: they do not take turns.",
        ),
    ),
    hints=(
        "What did one direction carry, and for how long?",
        "The directions do not share: each carried one copy in the whole time.",
        "One copy over the time.",
    ),
    difficulty=1,
    minutes=2,
    source="ROF-07, ROCm/hip#223: which figure is compared with the data sheet must be said",
)  # fmt: skip


def _fabric(given: Given) -> dict[str, float]:
    return {"scale_up_bytes_per_s": given["up"] * 1e9, "scale_out_bytes_per_s": given["out"] * 1e9}


def _rate(given: Given, k: float) -> float:
    return float(place.group_bandwidth(**_fabric(given), ranks_per_node=k)) / 1e9


_shared = Number(
    id="place.4",
    title="Whose cards",
    prompt=(
        "Nodes of 8 devices: {up:g} GB/s one way inside, a network card of {out:g} GB/s for each device. Tensor degree "
        "{tensor}, innermost; the other axis is data parallel over {data} ranks. All data-parallel groups reduce at "
        "once. At which rate does the ring of one of them run?"
    ),
    given={"up": 450.0, "out": 50.0, "tensor": 4, "data": 32},
    draw=picks(up=(300.0, 450.0, 900.0), out=(25.0, 12.5), tensor=(2, 4), data=(16, 32, 64)),
    answer=lambda g: _rate(
        g, place.on_node({"tensor": g["tensor"], "data": g["data"]}, ("tensor", "data"), "data", 8)
    ),
    unit="GB/s",
    mistakes=(
        Mistake("cards not shared", lambda g: _rate(g, 8)),
        Mistake("one card for all", lambda g: _rate(g, 1)),
        Mistake("another link", lambda g: g["up"], "The rate inside the node was given; the ring leaves the node."),
    ),
    hints=(
        "How many ranks of one data-parallel group are on the same node?",
        "Neighbours in the group are as far apart as the tensor degree. Each rank brings its own card.",
        "Cards of the ranks on one node, but no more than the links inside.",
    ),
    difficulty=2,
    minutes=5,
    source="the predictor's own error before it shared cards: 6.8 for 5.4 % (median), 542 published rows",
)  # fmt: skip


def _crossing(given: Given, order: tuple[str, str]) -> float:
    degrees = {"tensor": given["tensor"], "data": given["data"]}
    axis_on_node = place.on_node(degrees, order, "data", 8)
    payload = given["billions"] * 1e9 * 2 / given["tensor"]
    return float(place.crossing_bytes(ranks=given["data"], ranks_per_node=axis_on_node, payload_bytes=payload)) / 1e9


_leaving = Number(
    id="place.5",
    title="Bytes out of the node",
    prompt=(
        "{billions:g} billion parameters, gradients in 2 bytes, tensor degree {tensor} innermost, {data} data-parallel "
        "ranks, nodes of 8. Gradients are all-reduced once a step, in rings that follow the order of the devices. How "
        "many gigabytes leave a node in a step for each of its devices?"
    ),
    given={"billions": 8.0, "tensor": 2, "data": 32},
    draw=picks(billions=(7.0, 8.0, 13.0, 34.0), tensor=(2, 4), data=(16, 32, 64)),
    answer=lambda g: _crossing(g, ("tensor", "data")),
    unit="GB",
    mistakes=(
        Mistake(
            "cards not shared",
            lambda g: _crossing(g, ("tensor", "data")) * 8 / g["tensor"],
            "What a rank sends was given; of a group's ranks on a node only one sends to another node.",
        ),
        Mistake("another collective", lambda g: _crossing(g, ("tensor", "data")) / 2,
                "An all-reduce is a reduce-scatter and an all-gather; one of them was counted."),
        Mistake("nothing sharded", lambda g: _crossing(g, ("tensor", "data")) * g["tensor"],
                "Each tensor rank holds, and reduces, only its part of the gradients."),
    ),
    hints=(
        "First the bytes one rank sends in its ring. Then: which of the ring's hops leave the node?",
        "A rank reduces 2 bytes for each parameter of its tensor share, and sends nearly twice that.",
        "2 (n-1)/n of the buffer, over the ranks of the group that are on one node.",
    ),
    difficulty=2,
    minutes=7,
    source="COM-13: what a link carries and what leaves a node are two figures; COM-15 for the bytes of a rank",
)  # fmt: skip

_egress = Number(
    id="place.6",
    title="An all-to-all over nodes",
    prompt=(
        "{nodes} nodes of {per_node} devices do one all-to-all over all ranks; each rank exchanges {rate:g} GB in a "
        "second (its whole buffer counted). How many gigabytes a second leave each node?"
    ),
    given={"nodes": 4, "per_node": 8, "rate": 6.0},
    draw=picks(nodes=(2, 3, 4), per_node=(4, 8), rate=(4.0, 6.0, 10.0)),
    answer=lambda g: g["per_node"] * g["rate"] * (g["nodes"] - 1) / g["nodes"],
    unit="GB/s",
    mistakes=(
        Mistake("per device for total", lambda g: g["rate"] * (g["nodes"] - 1) / g["nodes"],
                "That leaves the node for one device; the node has several."),
        Mistake(
            "another collective",
            lambda g: g["rate"] * (1 - 1 / (g["nodes"] * g["per_node"])),
            "The bus bandwidth of a rank was given; parts for ranks of the same node do not leave it.",
        ),
        Mistake("share for whole buffer", lambda g: g["per_node"] * g["rate"],
                "All bytes were sent out; some of them are for ranks of the same node."),
    ),
    hints=(
        "A rank's buffer has an equal part for every rank. For which of them must it leave the node?",
        "Of all ranks, one node's worth are at home.",
        "Devices of the node, times the rate, times the share of ranks that are elsewhere.",
    ),
    difficulty=2,
    minutes=5,
    source="COM-13, NVIDIA/nccl-tests#181",
)  # fmt: skip

_more_cards = Judgement(
    id="place.7",
    title="More ranks, less time",
    prompt=(
        "A two-level all-reduce of 1 GB over two nodes takes 0.27 s with one GPU a node, 0.13 s with two and 0.067 s "
        "with four; each GPU has a network card of its own. What will eight a node take, and why?"
    ),
    choices={"a": "about 0.034 s", "b": "about 0.067 s, as with four", "c": "about 0.13 s"},
    reasons={
        "1": "each GPU brings a card, and the cards of a node share the buffer between them",
        "2": "a rank sends 2(n-1)/n of the buffer, which hardly changes with n",
        "3": "a ring over twice the ranks makes twice the steps",
        "4": "the links inside the node carry the larger part of the bytes",
    },
    answer=lambda _: ("a", "1"),
    mistakes=(
        Mistake(
            "one card for all",
            lambda _: (None, "2"),
            "That is so for each rank in one ring. But a second ring may run over the second card with half of the "
            "buffer, and so on.",
        ),
        Mistake("rule for another case", lambda _: (None, "3"),
                "Steps cost latency, microseconds each; here a second is made of bytes."),
        Mistake("another link", lambda _: (None, "4"),
                "What the node's links carry is not what takes the time: the network is slower."),
    ),
    hints=(
        "In two levels a card carries its k-th of the buffer. Divide by the time, for the three runs.",
        "The rate of a card is the same in all three. What grew?",
        "The bytes that must cross are the same, the cards that carry them are twice as many each time.",
    ),
    difficulty=2,
    minutes=4,
    source="COM-11, NVIDIA/nccl#1250: more ranks were expected to be slower",
)  # fmt: skip


def _leaf(source: random.Random) -> dict[str, Any]:
    return {"nodes": source.choice((8, 16, 32)), "factor": source.choice((2, 4))}


_oversubscribed = Judgement(
    id="place.8",
    title="Four to one above the leaf",
    prompt=(
        "{nodes} nodes share a leaf switch, and its uplinks carry a {factor}th of what their cards send ({factor}:1 "
        "oversubscription). Rings of data parallelism go through the nodes in order. Mixture layers do all-to-alls "
        "over devices of all leaves. Which of the two is slowed, and why?"
    ),
    given={"nodes": 16, "factor": 4},
    draw=_leaf,
    choices={"a": "both", "b": "the rings", "c": "the all-to-alls", "d": "neither"},
    reasons={
        "1": "all traffic between nodes passes the uplinks",
        "2": "of a ring only one hop in {nodes} climbs; of an all-to-all most bytes do",
        "3": "a ring waits for its slowest hop, and its slowest hop is the uplink",
        "4": "a leaf switch gives every card its full rate",
    },
    answer=lambda g: ("c", "2") if place.leaf_bandwidth(
        scale_out_bytes_per_s=1e9, leaf_nodes=g["nodes"], oversubscription=g["factor"]) == 1e9 else ("a", "3"),
    mistakes=(
        Mistake("rule for another case", lambda _: (None, "1"),
                "Nodes below one leaf reach each other without its uplinks."),
        Mistake(
            "right for another reason",
            lambda _: (None, "3"),
            "It would, if the uplink were its slowest hop. How many rings climb there at once, and what can the "
            "uplinks carry together?",
        ),
        Mistake("rule for another case", lambda _: (None, "4"), "Within the leaf. What lies above is the question."),
    ),
    hints=(
        "Count who climbs: for each ring that passes the leaf, how many of its hops leave it?",
        "If every card sends, one in {nodes} of these sends climbs when rings are in order.".replace("{nodes}", "n"),
        "The uplinks carry a share of all cards; compare that share with the share of sends that climb.",
    ),
    difficulty=3,
    minutes=5,
    source="course.place.leaf_bandwidth; fat trees are sold with 2:1 to 4:1 above the leaf",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (
    _one_way, _cards, _both_ways, _shared, _leaving, _egress, _more_cards, _oversubscribed,
)  # fmt: skip
