"""What groups of ranks share: the network cards of a node, and the links above a leaf switch.

>>> group_bandwidth(scale_up_bytes_per_s=450e9, scale_out_bytes_per_s=50e9, ranks_per_node=8) / 1e9
400.0
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.shard import all_reduce_bytes
from course.symbols import symbols

n, X, k, beta_up, beta_out, o, n_L, n_N, alpha_up, alpha_out = symbols(
    "ranks", "payload_bytes", "ranks_per_node", "scale_up_bytes_per_s", "scale_out_bytes_per_s", "oversubscription",
    "leaf_nodes", "nodes", "scale_up_latency_s", "scale_out_latency_s",
)  # fmt: skip

group_bandwidth = Formula(
    "group_bandwidth",
    "beta",
    sp.Min(beta_up, k * beta_out),
    "byte/s/device",
    "rate a ring reaches that crosses nodes with k of its ranks on each: it may use the network cards of all k",
    assumptions=(
        "each device has its share of the node's network cards, and every group on the node communicates at once",
        "a ring enters and leaves each node once; several rings, one a card, share the buffer",
    ),
    derivation=(Step("the slower of the node's links and k cards", sp.Min(k * beta_out, beta_up)),),
)

crossing_bytes = Formula(
    "crossing_bytes",
    "X_out",
    2 * X * (n - 1) / n / k,
    "byte/device",
    "bytes of an all-reduce of X that leave the node, for each device on it",
    assumptions=("rings in order: of the k ranks a group has on a node, one sends to another node",),
    derivation=(Step("one of k ranks sends its bytes out", all_reduce_bytes.expression / k),),
)

scattered_bytes = Formula(
    "scattered_bytes",
    "X_out",
    X * (n - k) / n,
    "byte/device",
    "bytes of an all-to-all, X on each rank, that leave the node, for each device on it",
    assumptions=("every part is sent by itself, straight to its rank; k ranks of the group share the node",),
    derivation=(Step("an n-th for each rank; those for the k on the node stay", X - k * X / n),),
)

ring_nodes_latency = Formula(
    "ring_nodes_latency",
    "t_lat",
    2 * n_N * alpha_out + (2 * n_N * (k - 1) - 2) * alpha_up,
    "s",
    "latency of a ring all-reduce over nodes with k of its ranks on each",
    assumptions=(
        "two nodes or more, three ranks or more on each, in order",
        "a way out is free for the next message while the latency of the last one passes",
    ),
    source="derived here; NCCL's own model counts the steps that leave a node in the same way",
    derivation=(
        Step("a chunk makes 2(n - 1) hops, twice round but for two; each time round it leaves every node once",
             2 * n_N * alpha_out + (2 * (n_N * k - 1) - 2 * n_N) * alpha_up),
    ),
)  # fmt: skip

leaf_bandwidth = Formula(
    "leaf_bandwidth",
    "beta",
    beta_out * sp.Min(1, n_L / o),
    "byte/s/device",
    "network rate of one device for rings in order whose ranks fill the leaf switch they leave",
    assumptions=(
        "each ring goes through all nodes below a leaf before it leaves it, so one hop in n_L climbs",
        "traffic of which every byte climbs, such as a ring in a bad order, gets one o-th of the card",
    ),
    derivation=(
        Step("a ring that passes n_L nodes may use an o-th of each of their cards upwards, for its one hop that climbs",
             sp.Min(beta_out, n_L * beta_out / o)),
    ),
)  # fmt: skip
