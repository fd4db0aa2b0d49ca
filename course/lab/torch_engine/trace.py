"""A few steps under PyTorch's profiler, after the timed ones and on rank 0 alone: it slows what it watches.

The file is what `course.traces` reads. The same steps tell how long collectives took and how much of them nothing hid,
and on a CPU how much of a step passes outside of any operator: in Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from course.errors import UserError
from course.lab.torch_engine.ranks import Ranks
from course.traces import read_trace
from course.traces.intervals import Intervals, difference, length, rows, union
from course.traces.reading import events
from course.traces.recording import Event, timed

__all__ = ["STEPS", "profile"]

STEPS = 3
_WORK = ("aten::", "c10d::", "_c10d_functional::", "gloo:")


def profile(step: Callable[[], Any], ranks: Ranks, keep: Path | None) -> dict[str, Any]:
    """Run a few steps on all ranks; what rank 0 saw, per step, on rank 0, nothing elsewhere.

    Args:
        step: one step.
        ranks: all of which take part.
        keep: where the trace shall stay, .json or .json.gz; None for a file that is read and removed.
    """
    watching = ranks.rank == 0
    # Of a device's trace the last step is not counted, so one step takes two.
    steps = STEPS if keep is not None else 1 if ranks.device.is_cpu else 2
    file = keep or ranks.folder / "profile.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
        with torch.profiler.profile(activities=kinds) if watching else nullcontext() as seen:
            for index in range(steps):
                ranks.barrier()
                with torch.profiler.record_function(f"lab_step#{index}"):
                    step()
                    ranks.device.synchronize()
        if seen is None:
            return {}
        if keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
        seen.export_chrome_trace(str(file))
    found = _read(file, ranks)
    if ranks.device.is_cpu:
        timed_events = [event for event in events(file)[2] if event.get("ph") == "X"]
        marks = _spans(timed_events, ("lab_step#",))
        outside = difference(marks, _spans(timed_events, _WORK))
        found["host_share"] = length(outside) / length(marks) if len(marks) else None
    if keep is None:
        file.unlink(missing_ok=True)
    return found


def _spans(found: Iterable[Event], names: tuple[str, ...]) -> Intervals:
    """When events of these names ran, on whatever thread, in microseconds."""
    return union(rows(
        timed(event) for event in found if str(event.get("name")).startswith(names)
    ))  # fmt: skip


def _read(file: Path, ranks: Ranks) -> dict[str, Any]:
    try:
        trace = read_trace(file)
    except UserError as reason:
        # One rank on a CPU communicates with nobody; its trace has operators alone.
        return {"communication_s": 0.0, "exposed_s": 0.0} if ranks.world == 1 else {"unread": str(reason)}
    steps = max(1, len(trace.steps))
    return {
        "communication_s": trace.communication_s / steps,
        "exposed_s": trace.exposed_s / steps,
        "compute_s": trace.compute_s / steps,
        "idle_s": trace.idle_s / steps,
        "idle_share": trace.idle_share,
        "collectives": {total.kind: total.count / steps for total in trace.by_kind()},
    }
