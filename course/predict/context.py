"""Context parallelism: keys and values travel, in a ring beside the attention or gathered before it.

Every rank has an early and a late chunk of each sequence, so that the causal half is shared out evenly: each works on
one C_p-th of it.
"""

from __future__ import annotations

import numpy as np
import sympy as sp

from course.estimate import pick
from course.formula import Formula, Step
from course.place import ring_all_gather_time
from course.predict.latent import widths
from course.problem import Run
from course.shard import context_unit_bytes, context_units
from course.symbols import symbols

Columns = dict[str, np.ndarray]

n, c, r = symbols("ranks", "compute_per_layer", "communication_per_layer")

exposed_ring = Formula(
    "exposed_ring",
    "t_exp",
    (n - 1) * sp.Max(0, r - c),
    "s",
    "time a ring of n ranks adds to the compute it serves: each works on one block while the next one arrives",
    assumptions=("n equal pieces of compute c, and n - 1 hops r; a rank begins with its own block",),
    derivation=(
        Step("n - 1 times the longer of the piece at work and the hop beside it, and the last piece; less the compute",
             (n - 1) * sp.Max(c, r) + c - n * c),
    ),
)  # fmt: skip


def _others(run: Run, columns: Columns) -> np.ndarray:
    """Bytes of the keys and values of one layer and micro-batch that a rank gets from the others."""
    given = widths(run.model) | {
        "activation_bytes": 2.0, "tensor": columns["tensor"], "context": columns["context"],
        "micro_batch": columns["micro_batch"], "sequence_length": run.training.sequence_length,
    }  # fmt: skip
    return np.asarray(context_unit_bytes(**pick(context_unit_bytes, given)))


def buffer_bytes(run: Run, columns: Columns) -> np.ndarray:
    """Bytes of other ranks' keys and values at the peak: all of one layer, or in a ring two blocks, one arriving."""
    others = _others(run, columns)
    if not run.software.overlap_context:
        return others
    blocks = np.maximum(columns["context"] - 1, 1)
    return np.asarray(others * np.minimum(2.0, blocks) / blocks)


def exchange(
    run: Run, columns: Columns, core: tuple[np.ndarray, np.ndarray], latency: np.ndarray, bandwidth: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """Seconds of one layer's keys and values for one micro-batch: (forward, backward) in all, and what shows.

    Args:
        run: the question; its program decides whether the ring runs beside attention.
        columns: layouts.
        core: seconds of the attention core, forward and backward, that a ring can hide behind.
        latency, bandwidth: of the link between neighbours.
    """
    ranks = columns["context"]
    unit = ring_all_gather_time(
        ranks=ranks, latency=latency, bandwidth=bandwidth,
        payload_bytes=_others(run, columns) * ranks / np.maximum(ranks - 1, 1),
    )  # fmt: skip
    forward, backward = (count * unit for count in context_units())
    seen = forward, backward
    if run.software.overlap_context:
        hops = np.maximum(ranks - 1, 1)
        seen = (
            exposed_ring(ranks=ranks, compute_per_layer=core[0] / ranks, communication_per_layer=forward / hops),
            exposed_ring(ranks=ranks, compute_per_layer=core[1] / ranks, communication_per_layer=backward / hops),
        )
    again = columns["full_recompute"]
    return (forward, backward + again * forward), (seen[0], seen[1] + again * seen[0])
