"""Out to a training engine and back: launch settings of the proposed layouts, and a table for what is measured.

`request` looks at the arguments before a search is done, `export` writes the files. What a layout asks for and the
engine cannot do is said in one sentence, in the files and in what `export` returns; the row of `results.csv` holds what
the engine really runs, so that `course compare` judges the prediction of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from course.errors import UserError
from course.export import megatron, results, scripts, torchtitan
from course.export.folder import checked, lay
from course.export.port import Settings, asked_of
from course.fields import nearest, show
from course.problem import Run

__all__ = ["ENGINES", "Request", "engine_of", "export", "files", "request"]

ENGINES = ("torchtitan", "megatron", "sbatch")
"""What can be asked for; `sbatch` is a job script for the engine that the run's software recipe names."""

_WRITERS = {"torchtitan": torchtitan.settings, "megatron": megatron.settings}
GPU_VENDORS = ("NVIDIA", "AMD")
WIDTH = 100


@dataclass(frozen=True)
class Request:
    """An export asked for: which kind, and the folder it goes to."""

    kind: str
    folder: Path


def request(kind: str | None, folder: str | None) -> Request | None:
    """What `--export KIND --output DIR` ask for; None where neither is given.

    Raises:
        UserError: one is given without the other, the kind is unknown, or the folder is a file or cannot be made.

    >>> request("megatorn", "out")
    Traceback (most recent call last):
        ...
    course.errors.UserError: --export "megatorn" is no engine: torchtitan, megatron or sbatch; the nearest is megatron.
    """
    if kind is None and folder is None:
        return None
    if kind is None:
        raise UserError("--output DIR is where --export writes to: add --export torchtitan, megatron or sbatch.")
    if kind not in ENGINES:
        known = f"{', '.join(ENGINES[:-1])} or {ENGINES[-1]}"
        raise UserError(f"--export {show(kind)} is no engine: {known}; the nearest is {nearest(kind, ENGINES)}.")
    if not folder:
        raise UserError(f"--export {kind} writes several files: add --output DIR, a folder that is made if missing.")
    return Request(kind, checked(folder))


def engine_of(kind: str, run: Run) -> str:
    """The engine behind a kind of export: `sbatch` launches the one that the run's software recipe stands for."""
    if kind != "sbatch":
        return kind
    return "torchtitan" if run.software.recipe == torchtitan.RECIPE else "megatron"


def files(run: Run, document: Mapping[str, Any], kind: str) -> tuple[dict[str, str], Settings]:
    """The files of an export by name, and the settings behind them.

    Args:
        run: the question; its own layout is not used, except for `stage_layers`, which a sweep holds.
        document: what `course.sweep.sweep` returned for it, with at least one layout that fits.
        kind: one of `ENGINES`.

    Raises:
        UserError: the engine cannot train this model, or does not run on this accelerator.
    """
    vendor = run.cluster.accelerator.vendor
    if vendor and vendor not in GPU_VENDORS:
        raise UserError(
            f"{run.cluster.accelerator.name} is no GPU, and the settings written here for torchtitan and Megatron-LM "
            "are for GPUs. Export for another accelerator, or set the layouts in your own engine by hand."
        )
    engine = engine_of(kind, run)
    settings = _WRITERS[engine](run, asked_of(run, document))
    table, said = results.table(run, settings)
    settings = settings.with_said(said)
    found = {**settings.files, "run.sh": scripts.run(run, settings)}
    if kind == "sbatch":
        found["sweep.sbatch"] = scripts.sbatch(run, settings)
    found[results.NAME] = table
    return found, settings


def export(run: Run, document: Mapping[str, Any], wanted: Request) -> list[str]:
    """Write the settings of the proposed layouts; what to say of it, the next steps last. Arguments as for `files`.

    Raises:
        UserError: as `files`; or a file there is not ours or was changed, or cannot be written.
    """
    if not document["proposal"]:
        return ["Nothing to export: no legal layout fits, so no settings were written."]
    found, settings = files(run, document, wanted.kind)
    written = lay(wanted.folder, {name: text.encode() for name, text in found.items()})
    said = [_wrapped(line) for line in (written, *settings.sentences())]
    return [*said, scripts.next_steps(wanted.kind, wanted.folder, settings)]


def _wrapped(line: str) -> str:
    return fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
