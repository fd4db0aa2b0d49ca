"""What the columns of a table of runs hold, and how a cell becomes a value: one rule for our tables and anybody's.

A blank cell is None: the source does not say. Degrees and counts are whole numbers, rates and times numbers, switches
true or false; every other column is text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["NUMBERS", "OPTIONAL", "RUN_COLUMNS", "SWITCHES", "WHOLE", "Row", "Value", "cell", "typed"]

Value = str | int | float | bool | None
Row = Mapping[str, Value]

RUN_COLUMNS: tuple[str, ...] = (
    "id", "source", "year", "model", "params_b", "n_layers", "hidden", "n_heads", "n_kv_heads", "ffn_hidden", "vocab",
    "moe_experts", "moe_topk", "gated_mlp", "seq_len", "global_batch_seqs", "micro_batch", "software", "accelerator",
    "n_devices", "dtype", "dp", "tp", "pp", "vpp", "cp", "ep", "sharding", "recompute", "attn", "mfu_reported",
    "mfu_convention", "mfu_convention_code", "hfu_reported", "tflops_per_device", "tokens_per_s_per_device",
    "step_time_s", "peak_mem_gib", "gpu_hours", "tokens_trained_b", "notes",
)  # fmt: skip
"""Columns of `runs.csv`, in its order."""

OPTIONAL: tuple[str, ...] = (
    "fabric", "node_size", "head_size", "tied_embeddings", "sequence_parallel", "schedule", "order", "state",
    "shard_group", "etp",
)  # fmt: skip
"""Columns a table of runs may have besides; `order` lists axes apart by blanks, innermost first."""

WHOLE = frozenset(
    {
        "year", "n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "head_size", "ffn_hidden", "vocab",
        "moe_experts", "moe_topk", "shared_experts", "dense_layers", "moe_ffn", "seq_len", "global_batch_seqs",
        "global_batch", "micro_batch", "n_devices", "dp", "tp", "pp", "vpp", "cp", "ep", "etp", "node_size",
        "shard_group", "n_rows", "nodes", "micro_batches",
        "n_nodes", "accelerators_per_node", "n_runs_ok", "n_runs_failed", "grad_accum", "payload_bytes",
    }
)  # fmt: skip

NUMBERS = frozenset(
    {
        "params_b", "mfu_reported", "hfu_reported", "tflops_per_device", "tokens_per_s_per_device", "step_time_s",
        "peak_mem_gib", "gpu_hours", "tokens_trained_b", "throughput", "speedup", "ideal", "efficiency", "minutes",
        "minutes_median", "minutes_min", "minutes_max", "throughput_tracked", "step_time_tracked",
        "samples_at_stop_median", "time_us", "algbw_GBps", "busbw_GBps", "p05", "p95",
        "forward_ms", "input_gradient_ms", "weight_gradient_ms", "send_ms", "bubble_1f1b", "bubble_zb_h1",
        "samples_per_s_per_device_1f1b", "samples_per_s_per_device_zb_1p", "memory_gb_1f1b", "memory_gb_zb_1p",
    }
)  # fmt: skip

SWITCHES = frozenset({"gated_mlp", "tied", "tied_embeddings", "sequence_parallel"})
_SAYS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def cell(column: str, text: str) -> Value:
    """The value of one cell, None where it is blank.

    Raises:
        ValueError: the text is no value of that column; the message says what it must be.

    >>> cell("n_layers", "80"), cell("n_layers", " "), cell("step_time_s", "1.5"), cell("gated_mlp", "1")
    (80, None, 1.5, True)
    >>> cell("n_layers", "eighty")
    Traceback (most recent call last):
        ...
    ValueError: must be a whole number
    """
    text = text.strip()
    if not text:
        return None
    if column in SWITCHES:
        if text.casefold() not in _SAYS:
            raise ValueError("must be 1 or 0")
        return _SAYS[text.casefold()]
    if column not in WHOLE and column not in NUMBERS:
        return text
    what = "a whole number" if column in WHOLE else "a number"
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be {what}") from None
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    if column in NUMBERS:
        return value
    if not value.is_integer():
        raise ValueError(f"must be {what}")
    return int(value)


def typed(row: Mapping[str, str]) -> dict[str, Value]:
    """A row of text as a row of values. Raises ValueError as `cell` does.

    >>> typed({"model": "mpt-7b", "tp": "1", "peak_mem_gib": ""})
    {'model': 'mpt-7b', 'tp': 1, 'peak_mem_gib': None}
    """
    return {column: cell(column, text) for column, text in row.items()}
