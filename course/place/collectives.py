"""What a collective costs: an alpha for every message that must wait for another, a beta for every byte on a link.

>>> print(ring_all_gather_time)
t_AG = X*(n - 1)/(beta*n) + alpha*(n - 1)
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.shard import all_gather_bytes, all_reduce_bytes, reduce_scatter_bytes
from course.symbols import symbols

n, X, alpha, beta, t_x = symbols("ranks", "payload_bytes", "latency", "bandwidth", "communication_time")
beta_up, beta_out, alpha_up, alpha_out, k, n_N = symbols(
    "scale_up_bytes_per_s", "scale_out_bytes_per_s", "scale_up_latency_s", "scale_out_latency_s", "ranks_per_node",
    "nodes",
)  # fmt: skip
l_t, d_t, s_t, beta_l = symbols("levels", "torus_axes", "torus_side", "link_bytes_per_s")
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

all_to_all_time = Formula(
    "all_to_all_time",
    "t_A2A",
    (n - 1) * alpha + (n - 1) / n * X / beta,
    "s",
    "time of an all-to-all in which each rank holds X bytes, an n-th of them for each rank",
    assumptions=("every pair of ranks has a path of its own at the full rate: a switch, not a ring or a torus",),
    derivation=(Step("a message of X/n straight to each of the others", sp.Sum(alpha + X / n / beta, (_j, 1, n - 1))),),
)

tree_all_reduce_time = Formula(
    "tree_all_reduce_time",
    "t_tree",
    2 * l_t * (alpha + X / beta),
    "s",
    "time of a tree all-reduce over 2^levels ranks: sums go up level by level, the result comes down",
    assumptions=(
        "the whole buffer moves at each level, in one piece; libraries cut it in pieces that follow each other",
        "a number of ranks between two powers of two needs the levels of the larger one",
    ),
    derivation=(
        Step("every level up and every level down is one message",
             sp.Sum(alpha + X / beta, (_j, 1, l_t)) + sp.Sum(alpha + X / beta, (_j, 1, l_t))),
    ),
)  # fmt: skip

hierarchical_all_reduce_time = Formula(
    "hierarchical_all_reduce_time",
    "t_2lev",
    2 * ((k - 1) * alpha_up + (k - 1) / k * X / beta_up)
    + 2 * ((n_N - 1) * alpha_out + (n_N - 1) / n_N * X / (k * beta_out)),
    "s",
    "time of a two-level all-reduce: scatter inside the node, all-reduce over the nodes, gather inside the node",
    assumptions=("one phase after the other; a program that cuts the buffer in pieces overlaps them",),
    derivation=(
        Step("reduce-scatter inside, an all-reduce of one k-th over the nodes on each card, all-gather inside",
             2 * ring_all_gather_time.expression.subs({n: k, alpha: alpha_up, beta: beta_up})
             + ring_all_reduce_time.expression.subs({n: n_N, X: X / k, alpha: alpha_out, beta: beta_out})),
    ),
)  # fmt: skip

torus_all_gather_time = Formula(
    "torus_all_gather_time",
    "t_torus",
    d_t * sp.floor(s_t / 2) * alpha + X / (2 * d_t * beta_l) * (1 - s_t**-d_t),
    "s",
    "time of an all-gather of X bytes, or of a reduce-scatter, over a torus of d axes with s devices on each",
    assumptions=(
        "every axis closes to a ring, and a device uses both directions of all its 2d links at once",
        "the buffer is cut in d parts; each part passes the axes in another order, so that none waits for an axis",
    ),
    derivation=(
        Step("in pass j each axis carries what passes 1 to j - 1 have made whole, half in either direction",
             d_t * sp.floor(s_t / 2) * alpha
             + sp.simplify(sp.Sum((s_t - 1) / 2 * X / d_t * s_t ** (_j - 1) / s_t**d_t, (_j, 1, d_t)).doit())
             / beta_l),
    ),
)  # fmt: skip

torus_all_reduce_time = Formula(
    "torus_all_reduce_time",
    "t_torusAR",
    2 * d_t * sp.floor(s_t / 2) * alpha + X / (d_t * beta_l) * (1 - s_t**-d_t),
    "s",
    "time of an all-reduce of X bytes over a torus of d axes with s devices on each",
    assumptions=torus_all_gather_time.assumptions,
    derivation=(
        Step("sums go backwards the way a gather comes, then the gather", 2 * torus_all_gather_time.expression),
    ),
)

torus_all_to_all_time = Formula(
    "torus_all_to_all_time",
    "t_torusA2A",
    d_t * sp.floor(s_t / 2) * alpha + X * sp.floor(s_t**2 / 4) / (2 * s_t * beta_l),
    "s",
    "time of an all-to-all in which each rank of a torus holds X bytes, an n-th of them for each rank",
    assumptions=(
        "every axis closes to a ring, and a device uses both directions of all its 2d links at once",
        "parts take the shorter way along each axis; those straight across are split between both ways",
    ),
    derivation=(
        Step("on each axis a part travels floor(s^2/4)/s hops on average, and 2d links of each device share the d X of "
             "them",
             d_t * sp.floor(s_t / 2) * alpha + d_t * X * (sp.floor(s_t**2 / 4) / s_t) / (2 * d_t * beta_l)),
    ),
)  # fmt: skip

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
