"""Step 4, place: what a link costs, which links a group of ranks crosses, and what they share.

>>> ring_all_reduce_time(ranks=8, payload_bytes=1e9, latency=0, bandwidth=450e9) * 1e3  # milliseconds
3.888888888888889
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.shard import all_gather_bytes, all_reduce_bytes, reduce_scatter_bytes
from course.symbols import symbols

n, X, alpha, beta, beta_up, beta_out, k, t_x = symbols(
    "ranks", "payload_bytes", "latency", "bandwidth", "scale_up_bytes_per_s", "scale_out_bytes_per_s", "ranks_per_node",
    "communication_time",
)  # fmt: skip
_j = sp.Symbol("j", integer=True, positive=True)

point_to_point_time = Formula(
    "point_to_point_time",
    "t_p2p",
    alpha + X / beta,
    "s",
    "time of one message: a latency and its bytes over the link",
    source="the alpha-beta model (Hockney 1994)",
)

ring_all_gather_time = Formula(
    "ring_all_gather_time",
    "t_AG",
    (n - 1) * alpha + (n - 1) / n * X / beta,
    "s",
    "time of a ring all-gather of X bytes, or of a reduce-scatter",
    derivation=(
        Step("n - 1 messages of one chunk", sp.Sum(alpha + X / n / beta, (_j, 1, n - 1))),
        Step("latencies, and the bytes counted in step 3", (n - 1) * alpha + all_gather_bytes.expression / beta),
    ),
)

ring_all_reduce_time = Formula(
    "ring_all_reduce_time",
    "t_AR",
    2 * (n - 1) * alpha + 2 * (n - 1) / n * X / beta,
    "s",
    "time of a ring all-reduce of X bytes",
    derivation=(
        Step("a reduce-scatter and an all-gather", 2 * ring_all_gather_time.expression),
        Step("latencies, and the bytes counted in step 3", 2 * (n - 1) * alpha + all_reduce_bytes.expression / beta),
    ),
)

algorithm_bandwidth = Formula(
    "algorithm_bandwidth",
    "B_alg",
    X / t_x,
    "byte/s/device",
    "algorithm bandwidth: size of the buffer over the time",
    source="nccl-tests, PERFORMANCE.md",
)

all_reduce_bus_bandwidth = Formula(
    "all_reduce_bus_bandwidth",
    "B_bus",
    2 * (n - 1) / n * X / t_x,
    "byte/s/device",
    "bus bandwidth of an all-reduce: what each link carried, to be compared with its rate",
    assumptions=("a ring; a switch that sums on its way may exceed the link's rate",),
    source="nccl-tests, PERFORMANCE.md",
    derivation=(Step("bytes a rank sends, over the time", all_reduce_bytes.expression / t_x),),
)

all_gather_bus_bandwidth = Formula(
    "all_gather_bus_bandwidth",
    "B_bus",
    (n - 1) / n * X / t_x,
    "byte/s/device",
    "bus bandwidth of an all-gather or a reduce-scatter",
    source="nccl-tests, PERFORMANCE.md",
    derivation=(Step("bytes a rank sends, over the time", reduce_scatter_bytes.expression / t_x),),
)

group_bandwidth = Formula(
    "group_bandwidth",
    "beta",
    sp.Min(beta_up, k * beta_out),
    "byte/s/device",
    "rate a ring reaches that crosses nodes with k of its ranks on each: it may use the network cards of all k",
    assumptions=(
        "one network card for each device, and every group on the node communicates at once",
        "a ring enters and leaves each node once; several rings, one a card, share the buffer",
    ),
    derivation=(Step("the slower of the node's links and k cards", sp.Min(k * beta_out, beta_up)),),
)


def axis_strides(degrees: dict[str, int], order: tuple[str, ...]) -> dict[str, int]:
    """Distance between neighbours of each axis in device numbers, `order` listing the innermost axis first.

    >>> axis_strides({"tensor": 8, "pipeline": 16, "data": 128}, ("tensor", "pipeline", "data"))
    {'tensor': 1, 'pipeline': 8, 'data': 128}
    """
    strides, step = {}, 1
    for axis in order:
        strides[axis] = step
        step *= degrees.get(axis, 1)
    return strides
