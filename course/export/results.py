"""The table for what is measured: a row for every layout as the engine runs it, as `course compare` reads it.

Measured cells are blank. Whether a row means the same as the run file is found by reading it back as compare does.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any

from course import catalog
from course.compare import Skipped, run_of
from course.export.port import Ported, Settings
from course.problem import Run
from course.records.columns import OPTIONAL, RUN_COLUMNS, typed

__all__ = ["MEASURED", "NAME", "row", "table"]

NAME = "results.csv"
MEASURED = ("step_time_s", "tokens_per_s_per_device", "peak_mem_gib")
"""Columns to fill: a time or a rate, and the memory where it is known."""

COLUMNS = (*RUN_COLUMNS, *OPTIONAL)


def table(run: Run, settings: Settings) -> tuple[str, tuple[str, ...]]:
    """The table as CSV, and what it cannot hold of the run file, in sentences."""
    rows = [row(run, settings, one) for one in settings.ported]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue(), _said(run, settings, rows[0])


def row(run: Run, settings: Settings, one: Ported) -> dict[str, Any]:
    """The cells of one layout, blank ones left out."""
    model, layout = run.model, one.layout
    accelerator, fabric = run.cluster.accelerator, run.cluster.fabric
    cells: dict[str, Any] = {
        "id": f"{run.name}-{one.name.removeprefix('layout_')}", "source": f"own run, {settings.engine}",
        "model": model.name, "n_layers": model.layers, "hidden": model.hidden, "n_heads": model.heads,
        "n_kv_heads": model.kv_heads, "ffn_hidden": model.ffn, "vocab": model.vocabulary, "head_size": model.head_size,
        "moe_experts": model.experts or "", "moe_topk": model.experts_per_token or "", "gated_mlp": model.gated_mlp,
        "tied_embeddings": model.tied_embeddings, "seq_len": run.training.sequence_length,
        "global_batch_seqs": run.training.global_batch_sequences, "micro_batch": layout.micro_batch,
        "software": settings.recipe, "accelerator": accelerator.id, "n_devices": run.cluster.devices,
        "dp": layout.data, "tp": layout.tensor, "pp": layout.pipeline, "vpp": layout.interleave, "cp": layout.context,
        "ep": layout.expert, "sharding": layout.sharding, "shard_group": layout.shard_group,
        "recompute": layout.recompute, "attn": "flash" if run.software.flash_attention else "",
        "sequence_parallel": layout.sequence_parallel, "schedule": layout.schedule, "order": " ".join(layout.order),
        "notes": " ".join(one.cannot), **one.columns,
    }  # fmt: skip
    if fabric.id in catalog.names("fabrics"):
        cells |= {"fabric": fabric.id, "node_size": fabric.node_size}
    return {name: int(value) if isinstance(value, bool) else value for name, value in cells.items()}


def _said(run: Run, settings: Settings, cells: dict[str, Any]) -> tuple[str, ...]:
    """What compare will take for something else than the run file says, found by reading a row back."""
    said = []
    if run.software.recipe != settings.recipe:
        said.append(
            f"The sweep was predicted for the program {run.software.recipe}; compare predicts these runs again as "
            f"{settings.recipe}, which stands for {settings.engine.partition(' ')[0]}."
        )
    if any(one.layout.stage_layers is not None for one in settings.ported):
        said.append("results.csv has no column for stage_layers: compare spreads the layers by the program's rule.")
    if any(one.layout.expert_tensor > 1 for one in settings.ported):
        said.append("results.csv has no column for expert_tensor: compare takes each expert as whole on one device.")
    back = run_of(typed({name: str(cells.get(name, "")) for name in COLUMNS}))
    if isinstance(back, Skipped):
        return (*said, f"compare cannot predict these runs yet: {back.reason}.")
    other = [
        what
        for what, same in (
            ("model", dataclasses.replace(back.model, name=run.model.name) == run.model),
            ("accelerator", back.cluster.accelerator == run.cluster.accelerator),
            ("links", back.cluster.fabric == run.cluster.fabric),
        )
        if not same
    ]
    if other:
        said.append(
            f"results.csv cannot hold all that the run file says of {' and '.join(other)}: compare takes what is known "
            "by their names."
        )
    return tuple(said)
