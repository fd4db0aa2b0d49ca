"""The MFU that published runs usually reach: what may be claimed before anything was measured.

>>> 0.3 < usual_mfu("h100-sxm", "bf16", False) < 0.5, usual_mfu("b200-sxm", "bf16", False) < 0.5
(True, True)
"""

from __future__ import annotations

from functools import lru_cache
from statistics import median

from course import catalog, records
from course.compare.mapping import precision_of

__all__ = ["highest_with_experts", "usual_mfu"]

GPUS = ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm")
"""Accelerators of the kind that is asked about, of which many runs were published."""
NEWEST = "h100-sxm"
"""The one that stands for those of which none was."""
USEFUL = ("palm", "full_attention", "causal_attention")


@lru_cache(maxsize=1)
def _published() -> dict[tuple[str, str, bool], list[float]]:
    """(Accelerator, precision, with experts) -> the best MFU of each model on each number of devices, by source."""
    best: dict[tuple[str, str, bool], dict[tuple[object, ...], float]] = {}
    for row in records.runs():
        use, notes = row["mfu_reported"], str(row["notes"] or "")
        if not isinstance(use, float) or row["mfu_convention_code"] not in USEFUL:
            continue
        if "ANOMALY" in notes or records.failed(row):
            continue
        try:
            chip = catalog.find("accelerators", str(row["accelerator"]))
        except catalog.UnknownName:
            continue
        kind = best.setdefault((chip, precision_of(row), bool(row["moe_experts"])), {})
        key = (row["source"], row["model"], row["n_devices"])
        kind[key] = max(use, kind.get(key, 0.0))
    return {kind: list(values.values()) for kind, values in best.items()}


@lru_cache(maxsize=64)
def usual_mfu(accelerator: str, precision: str, experts: bool) -> float:
    """Median MFU, 0 to 1, of the best published run of each model on each number of devices.

    Args:
        accelerator: its catalog id; where nobody published, the newest device with many runs stands for it.
        precision: of the matmuls.
        experts: whether the model is a mixture of experts: such runs of any accelerator, for few were published.

    Dense models: the lower of the median of the device and that of all GPUs, since what is published is chosen.
    """
    found = _published()
    if experts:
        return median(value for (_, _, mixed), values in found.items() if mixed for value in values)
    own = found.get((accelerator, precision, False)) or found[NEWEST, "bf16", False]
    every = [value for chip in GPUS for value in found.get((chip, "bf16", False), [])]
    return min(median(own), median(every))


def highest_with_experts() -> float:
    """The highest MFU, 0 to 1, published of a mixture of experts on any accelerator."""
    return max(value for (_, _, mixed), values in _published().items() if mixed for value in values)
