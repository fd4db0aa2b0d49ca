"""One idea: sum inside the node first, so that only one k-th of the array must leave by each network card.

Three phases: a reduce-scatter among the k ranks of each node, an all-reduce of each piece over the nodes, an all-gather
inside each node. A rank begins the next phase when it is done with the one before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course.simulators import ring
from course.simulators.ring import Array, Collective, Links


def two_level_all_reduce(arrays: Sequence[Array], node_size: int, inside: Links, across: Links) -> Collective:
    """Every rank ends with the sum of all arrays (in their shape); rank r sits on node r // node_size.

    `inside` and `across` are the ways out of a rank within its node and through its network card, alike for all ranks.
    Raises ValueError where nodes are not full.

    >>> result = two_level_all_reduce([np.ones(4)] * 4, 2, Links(bandwidth=16.0), Links(bandwidth=8.0))
    >>> result.arrays[3].tolist(), result.time, result.bytes_sent[0]
    ([4.0, 4.0, 4.0, 4.0], 4.0, 48)
    """
    if len(arrays) % node_size:
        raise ValueError(f"{len(arrays)} ranks do not fill nodes of {node_size}")
    nodes = [range(first, first + node_size) for first in range(0, len(arrays), node_size)]
    scattered = [ring.reduce_scatter([arrays[rank] for rank in node], inside) for node in nodes]
    summed = [ring.all_reduce([node.arrays[place] for node in scattered], across) for place in range(node_size)]
    gathered = [
        ring.all_gather([summed[place].arrays[number] for place in range(node_size)], inside)
        for number in range(len(nodes))
    ]
    sent = [
        scattered[node].bytes_sent[place] + summed[place].bytes_sent[node] + gathered[node].bytes_sent[place]
        for node in range(len(nodes))
        for place in range(node_size)
    ]
    # phases meet at every rank: all ranks are alike, so the slowest of each phase paces the next
    time = sum(max(one.time for one in phase) for phase in (scattered, summed, gathered))
    steps = scattered[0].steps + summed[0].steps + gathered[0].steps
    results = [np.reshape(gathered[node].arrays[place], arrays[0].shape)
               for node in range(len(nodes)) for place in range(node_size)]  # fmt: skip
    return Collective(results, sent, steps, time)
