"""What a recorded trace says: collective time, how much of it compute hides, what is exposed, and when a device idles.

`read_trace` reads what the profilers of PyTorch (NCCL, RCCL, gloo) and JAX write. The figures are of one device:
collectives run on streams of their own beside compute, and what counts is the time in which they run alone.

`sample` is a real trace: rank 0 of a recommendation model on 128 GPUs, thinned out (not every event is kept), published
by the HolisticTraceAnalysis project (repository facebookresearch/HolisticTraceAnalysis at commit f4d0062c, file
tests/data/trace_filter/sampled_rank-0.json.gz) under the MIT licence that lies beside it. `reference` holds what that
project's program, version 0.5.0, makes of it and of two others.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType

from course.errors import UserError
from course.fields import show
from course.traces.from_jax import on_xla
from course.traces.from_torch import on_device, on_host
from course.traces.reading import RECORD_JAX, RECORD_TORCH, NotATrace, events
from course.traces.trace import Collective, Gap, KindTotal, Step, Stream, Trace, assemble

__all__ = [
    "Collective", "Gap", "KindTotal", "NotATrace", "Step", "Stream", "Trace", "read_trace", "reference", "sample",
]  # fmt: skip


def read_trace(path: str | Path, device: str | None = None) -> Trace:
    """Read a trace and count what one device did in it.

    Arguments: path names a .json or .json.gz file, or a folder with one trace (JAX's profile folder: its newest);
    device is a device's name in the trace, as `Trace.devices` lists them, None for the first.

    Steps are found in this order, and `Trace.rule` says which was used. PyTorch: the profiler's own ProfilerStep#N;
    else the user's annotations that say step and end in a number; else the whole span. On a device a kernel belongs to
    the step that launched it, the last of several steps is left out (the recording may end before its kernels do), and
    so are kernels whose launch was not recorded. On CPUs, and in JAX by its StepTraceAnnotation, all marked steps are
    counted by the host's clock: there a step must wait for its results.
    Raises `NotATrace`, a `UserError`, with what the file is and what to record instead.

    >>> trace = read_trace(sample_path())
    >>> trace.rule
    '2 steps marked ProfilerStep#551 to ProfilerStep#552: kernels and copies are counted that the host launched from the
    start of the first until the last one began; 602 of 1204 are'
    >>> f"{100 * trace.overlap_share:.2f} % of communication is hidden, the device idles {100 * trace.idle_share:.2f} %"
    '11.81 % of communication is hidden, the device idles 53.56 %'
    """
    file, about, found = events(path)
    timed = [event for event in found if event.get("ph") in ("X", "M")]
    try:
        recording = on_device(timed, device) or on_host(timed, device) or on_xla(timed, device)
    except NotATrace as reason:
        raise NotATrace(f"{show(file.name)}: {reason}") from None
    if recording is None:
        kinds = sorted({str(event.get("cat") or event.get("name")) for event in timed if event.get("ph") == "X"})
        some = ", ".join(show(kind) for kind in kinds[:3]) + (", …" if len(kinds) > 3 else "")
        raise NotATrace(
            f"{show(file.name)} is a Chrome trace of another program: its events are {some}, neither PyTorch's nor "
            f"JAX's. {RECORD_TORCH}; {RECORD_JAX}."
        )
    ranks = about.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    return assemble(recording, file, ranks.get("rank"), ranks.get("world_size"))


def sample_path() -> Path:
    """Where the sample lies as a file, for programs that want one.

    >>> sample_path().name
    'sampled_rank0.json.gz'
    """
    with as_file(files(__package__) / "data" / "sampled_rank0.json.gz") as file:
        return file


@cache
def sample() -> Trace:
    """The sampled trace of rank 0 of 128: read_trace of `sample_path()`.

    >>> sample().rank, sample().world_size
    (0, 128)
    """
    return read_trace(sample_path())


def reference(trace: str = "sampled_rank0", rounded: bool = False) -> Mapping[str, float]:
    """What HolisticTraceAnalysis 0.5.0 says of a trace: times in microseconds, shares in percent.

    Arguments: trace is "sampled_rank0", "nccl_data" (2 A100) or "mi300x_resnet" (8 MI300X); rounded: with its default,
    which rounds starts up and ends down to whole microseconds. `overlap_percent` is a share of communication, the
    others are of the span; `non_compute_percent` is the span less compute and idle.

    >>> reference()["overlap_percent"], reference("nccl_data", rounded=True)["overlap_percent"]
    (11.81, 14.31)
    """
    text = (files(__package__) / "data" / "reference.csv").read_text(encoding="utf-8")
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    for row in found:
        if row["trace"] == trace and (row["rounded"] == "yes") == rounded:
            return MappingProxyType({key: float(row[key]) for key in row if key not in ("trace", "source", "rounded")})
    names = ", ".join(sorted({row["trace"] for row in found}))
    raise UserError(f"trace names a trace with reference figures, one of {names}, not {show(trace)}.")
