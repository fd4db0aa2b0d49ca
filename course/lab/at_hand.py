"""The report a lesson reads: measured here, or the one that came with the course.

A lesson, its questions and the command line may run in different processes, so the choice is kept in a file of the
learner's data folder. COURSE_LAB=recorded|quick|full decides over it.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from course.errors import UserError
from course.files import user_data
from course.lab.machine import device_count, devices, engines
from course.lab.report import Report, load, recorded
from course.traces import Trace, read_trace

__all__ = ["MODES", "at_hand", "name", "open_report", "own_file", "recorded_traces", "trace", "traces"]

MODES = ("recorded", "quick", "full")
SHIPPED = "two_cpu_cores"
TRACES = "traces"


def open_report(mode: str | None = None, *, folder: str | Path | None = None, show: bool = True) -> Report:
    """The report for a lesson, and one line that says whose it is.

    Args:
        mode: "quick" or "full" measure here (what an interrupted run finished is not measured again); "recorded" goes
            back to the course's report; None: COURSE_LAB where it is set, else what was chosen last.
        folder: where own reports are kept; the learner's data folder when None.
        show: whether to print the line.

    Without an engine or with one device there is nothing to scale: then it is the recorded report, as the line says.
    Raises UserError for another mode.

    >>> open_report("recorded", folder="nowhere", show=False).of("strong") != []
    True
    """
    mode = mode or os.environ.get("COURSE_LAB") or None
    if mode is not None and mode not in MODES:
        raise UserError(f'mode "{mode}" is none of {", ".join(MODES)}. Write "quick" to measure here.')
    lacking = _lacking() if mode in ("quick", "full") else None
    if mode in ("quick", "full") and lacking is None:
        _measure(mode, folder)
    elif mode is not None:
        _choose("recorded", folder)
    report = at_hand(folder)
    if show:
        own = _own(report)
        why = f"{lacking} " if lacking else ""
        print(f"{why}{'Measured here' if own else 'Recorded results'}: {name(report)}.")
    return report


def at_hand(folder: str | Path | None = None) -> Report:
    """The report chosen last: an own one, or the recorded.

    >>> at_hand("nowhere").machine["kind"]
    'cpu'
    """
    own = own_file(folder)
    forced = os.environ.get("COURSE_LAB") == "recorded"
    if forced or not own.exists() or _choice(folder) != "own":
        return _shipped()
    return _read(str(own), own.stat().st_mtime_ns)


def name(report: Report) -> str:
    """The hardware of a report, in words.

    >>> name(Report({"accelerator": "A", "cores": 2, "hosts": 1, "versions": {"torch": "2"}}, []))
    'A, 2 cores, torch 2'
    """
    machine = report.machine
    gpus = machine.get("gpus") or []
    parts = [f"{len(gpus)} x {machine.get('accelerator')}" if gpus else str(machine.get("accelerator"))]
    if not gpus and machine.get("cores"):
        parts.append(f"{machine['cores']} cores")
    versions = machine.get("versions") or {}
    return ", ".join(parts + [f"{key} {versions[key]}" for key in ("torch", "jax") if versions.get(key)])


def own_file(folder: str | Path | None = None) -> Path:
    """Where the report of this machine lies; traces stand in a folder beside it."""
    return (user_data() if folder is None else Path(folder)) / "lab.json"


def recorded_traces() -> list[str]:
    """Names of the traces that came with the course: ids of cells.

    >>> all("." in name for name in recorded_traces())
    True
    """
    there = files("course.lab").joinpath("recorded").joinpath(TRACES)
    return sorted(one.name.removesuffix(".json.gz") for one in there.iterdir() if one.name.endswith(".json.gz"))


def traces(report: Report, folder: str | Path | None = None) -> list[str]:
    """Names of the traces that go with a report: this machine's own, or those that came with the course.

    >>> traces(at_hand("nowhere")) == recorded_traces()
    True
    """
    own = own_file(folder).parent / TRACES
    if not _own(report) or not own.is_dir():
        return recorded_traces()
    return sorted(one.stem for one in own.glob("*.json"))


def trace(cell: str, report: Report | None = None, folder: str | Path | None = None) -> Trace:
    """The trace of a cell: this machine's where `report` is its own and the cell was traced, else the recorded one.

    Raises UserError where there is none.
    """
    if report is not None and _own(report):
        own = own_file(folder).parent / TRACES / f"{cell}.json"
        if own.exists():
            return read_trace(own)
    if cell not in recorded_traces():
        raise UserError(f'No trace of "{cell}" was recorded. There are {", ".join(recorded_traces())}.')
    with as_file(files("course.lab").joinpath("recorded").joinpath(TRACES).joinpath(f"{cell}.json.gz")) as file:
        return read_trace(file)


def _own(report: Report) -> bool:
    """Whether a report, or a part of it, was measured here; a part has the machine of the whole."""
    return report.machine is not _shipped().machine


@cache
def _shipped() -> Report:
    return recorded()[SHIPPED]


@cache
def _read(path: str, changed: int) -> Report:  # noqa: ARG001
    return load(path)


def _measure(mode: str, folder: str | Path | None) -> None:
    from course.lab.measuring import measure

    own = own_file(folder)
    own.parent.mkdir(parents=True, exist_ok=True)
    measure(own, quick=mode == "quick", traces=own.parent / TRACES, grid=mode == "full")
    _choose("own", folder)


def _lacking() -> str | None:
    if not engines():
        return "Neither torch nor jax is installed (pip install 'strong-scaling-course[lab]')."
    if "torch" not in engines():
        return "torch is not installed (pip install torch)."
    there = device_count(devices())
    return "One device has nothing to scale to." if there < 2 else None


def _choose(which: str, folder: str | Path | None) -> None:
    file = own_file(folder).with_name("lab-choice.txt")
    if which == "own" or file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(which, encoding="utf-8")


def _choice(folder: str | Path | None) -> str:
    file = own_file(folder).with_name("lab-choice.txt")
    return file.read_text(encoding="utf-8").strip() if file.exists() else "recorded"


