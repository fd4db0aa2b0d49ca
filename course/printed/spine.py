"""The formulas of the one page, by full name, each with the notebook that derives it.

The eight steps in their order, then what a scaling claim means. Whoever can write these thirty from shapes alone can
hold the interview.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SPINE", "STEPS", "Derived", "brief"]


@dataclass(frozen=True)
class Derived:
    """A formula by its full name in `course.formulas`, and the notebook that derives or first shows it."""

    name: str
    notebook: str


def _of(notebook: str, *names: str) -> tuple[Derived, ...]:
    return tuple(Derived(name, notebook) for name in names)


STEPS: Mapping[str, str] = {
    "estimate": "1  Estimate", "constrain": "2  Constrain", "shard": "3  Shard", "place": "4  Place",
    "batch": "5  Batch", "mfu": "6  MFU", "overlap": "7  Overlap", "sweep": "8  Sweep",
    "scaling": "Strong and weak",
}  # fmt: skip
"""Heads of the page; the first eight are the steps of the interview."""

SPINE: Mapping[str, tuple[Derived, ...]] = {
    "estimate": (
        *_of("01a_estimate", "estimate.parameters", "estimate.six_ps_run", "estimate.full_attention"),
        *_of("01a_estimate", "estimate.attainable"),
        *_of("01b_estimate", "estimate.state_bytes"),
    ),
    "constrain": (
        *_of("02a_constrain", "constrain.activation_memory"),
        *_of("02b_constrain", "constrain.checkpointed_memory"),
    ),
    "shard": (
        *_of("03a_shard", "shard.state_per_device", "shard.all_reduce_bytes", "shard.data_parallel_traffic"),
        *_of("03a_shard", "shard.zero3_traffic"),
        *_of("03b_shard", "shard.tensor_unit_bytes", "shard.context_unit_bytes"),
        *_of("03c_shard", "shard.pipeline_send_bytes", "shard.expert_transfer_bytes"),
    ),
    "place": (
        *_of("04a_place", "place.ring_all_reduce_time"),
        *_of("04b_place", "place.group_bandwidth"),
        *_of("04c_place", "place.tensor_ratio"),
    ),
    "batch": (
        *_of("05a_batch", "batch.tokens_per_step", "batch.bubble_share"),
        *_of("05b_batch", "batch.one_f_one_b_in_flight", "batch.pipeline_time"),
    ),
    "mfu": (
        *_of("06a_mfu", "mfu.mfu"),
        *_of("06b_mfu", "mfu.run_time", "mfu.accelerator_hours"),
        *_of("06c_mfu", "mfu.scaling_efficiency"),
    ),
    "overlap": _of("07a_overlap", "overlap.exposed_reduction"),
    "sweep": _of("06b_mfu", "mfu.devices_for_deadline"),
    "scaling": (
        *_of("09b_strong_and_weak", "scaling.weak_efficiency"),
        *_of("09d_strong_and_weak", "scaling.amdahl_speedup"),
    ),
}


def brief(meaning: str) -> str:
    """A meaning without its brackets, up to the first colon or semicolon.

    >>> brief("a unit (of traffic): an all-gather"), brief("attention (query) heads of a layer")
    ('a unit', 'attention heads of a layer')
    """
    return re.sub(r" \([^)]*\)", "", meaning).split(":")[0].split(";")[0]
