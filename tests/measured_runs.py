"""A hand-made run and how to measure it: what the tests of comparison share."""

from __future__ import annotations

import csv
import io
from typing import Any

from course.compare import Skipped, run_of
from course.predict import predict

TINY = {
    "id": "own-1", "model": "llama-3-8b", "seq_len": 4096, "global_batch_seqs": 64, "micro_batch": 1,
    "software": "torch-fsdp", "accelerator": "H100-80GB", "n_devices": 16, "dtype": "bf16", "dp": 16, "tp": 1, "pp": 1,
    "sharding": "zero3", "mfu_convention_code": "full_attention",
}  # fmt: skip
LAYOUTS = [{"dp": 16, "tp": 1}, {"dp": 8, "tp": 2}, {"dp": 4, "tp": 4}, {"dp": 2, "tp": 8}]


def step(row: dict[str, Any]) -> float:
    """The predicted step time by the other way in: one run, one layout."""
    run = run_of(row)
    assert not isinstance(run, Skipped), run
    return float(predict(run)["step"]["time_s"])


def measured(row: dict[str, Any], factor: float, **more: Any) -> dict[str, Any]:
    """A row that was measured `factor` times as long as predicted."""
    full = {**row, **more}
    return {**full, "step_time_s": step(full) * factor}


def text_of(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
