"""What a collective makes each rank send, in bytes: the four of which all parallelism is made.

>>> all_reduce_bytes(ranks=8, payload_bytes=1e9) / 1e9
1.75
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols

__all__ = ["all_gather_bytes", "all_reduce_bytes", "all_to_all_bytes", "reduce_scatter_bytes"]

n, X = symbols("ranks", "payload_bytes")
_j = sp.Symbol("j", integer=True, positive=True)
_share = (n - 1) / n  # what a rank sends to the others of a buffer spread over n ranks

reduce_scatter_bytes = Formula(
    "reduce_scatter_bytes",
    "X_RS",
    X * _share,
    "byte/device",
    "bytes a rank sends to sum a buffer over n ranks and keep one n-th of it",
    assumptions=("ring: a chunk of X/n to the neighbour, n - 1 times",),
    derivation=(Step("n - 1 steps of one chunk each", sp.Sum(X / n, (_j, 1, n - 1))),),
)

all_gather_bytes = Formula(
    "all_gather_bytes",
    "X_AG",
    X * _share,
    "byte/device",
    "bytes a rank sends so that every rank holds the whole buffer, X when complete",
    assumptions=("ring: a chunk of X/n to the neighbour, n - 1 times",),
    derivation=(Step("n - 1 steps of one chunk each", sp.Sum(X / n, (_j, 1, n - 1))),),
)

all_reduce_bytes = Formula(
    "all_reduce_bytes",
    "X_AR",
    2 * X * _share,
    "byte/device",
    "bytes a rank sends so that every rank holds the sum",
    derivation=(
        Step("a reduce-scatter, then an all-gather", reduce_scatter_bytes.expression + all_gather_bytes.expression),
        Step("almost 2X for many ranks, half of that for two", 2 * X - 2 * X / n),
    ),
)

all_to_all_bytes = Formula(
    "all_to_all_bytes",
    "X_A2A",
    X * _share,
    "byte/device",
    "bytes a rank sends when it has one n-th of its buffer for each of n ranks, itself among them",
    assumptions=("every rank is sent equally much; the part for itself does not move",),
    derivation=(
        Step("a chunk to each of the n - 1 others", sp.Sum(X / n, (_j, 1, n - 1))),
        Step("the buffer, less what stays at home", X - X / n),
    ),
)
