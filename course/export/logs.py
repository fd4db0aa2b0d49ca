"""From the logs of an engine to the measured cells of `results.csv`: `python -m course.export.logs DIR`.

torchtitan prints a line with memory and tokens per second of a device; Megatron-LM the time of an iteration, and once
the memory of each stage. Lines of the first steps do not count; of the others the median does. A cell that holds
something already stays as it is.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from course.errors import UserError
from course.export.port import WARMED_UP
from course.export.results import MEASURED, NAME
from course.fields import show
from course.files import read_text, write_atomically

__all__ = ["Measurement", "fill", "main", "measure"]

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TITAN = re.compile(r"(?<!validate )step:\s*(\d+)\s.*?memory:\s*([\d.]+)GiB.*?tps:\s*([\d,]+)")
ITERATION = re.compile(r"iteration\s+(\d+)/.*?elapsed time per iteration \(ms\):\s*([\d.]+)")
MEMORY = re.compile(r"memory \(MB\).*?\bmax allocated:\s*([\d.]+)")
OUT_OF_MEMORY = re.compile(r"CUDA out of memory|HIP out of memory|OutOfMemoryError")
FAILED = "FAILED: out of memory."


@dataclass(frozen=True)
class Measurement:
    """What the logs of one layout say: step time in s, tokens/s of a device, peak memory in GiB; None where nothing."""

    step_time_s: float | None = None
    tokens_per_s_per_device: float | None = None
    peak_mem_gib: float | None = None
    out_of_memory: bool = False

    @property
    def timed(self) -> bool:
        """True where a time or a rate was found."""
        return self.step_time_s is not None or self.tokens_per_s_per_device is not None


def measure(texts: Iterable[str]) -> Measurement:
    """Read the logs of one layout, one text a host. The peak is that of the fullest device that printed it.

    Megatron's "MB" are 2^20 bytes, and count what was allocated; torchtitan prints what was reserved.

    >>> line = "step: {}  loss: 8.1  grad_norm: 1.2  memory: 61.50GiB(77.2%)  tps: {}  tflops: 1.0  mfu: 40.0%"
    >>> measure([line.format(5, "90") + chr(10) + line.format(15, "5,000") + chr(10) + line.format(20, "5,200")])
    Measurement(step_time_s=None, tokens_per_s_per_device=5100.0, peak_mem_gib=61.5, out_of_memory=False)
    """
    times: list[float] = []
    rates: list[float] = []
    peaks: list[float] = []
    full = False
    for text in texts:
        for line in COLOURS.sub("", text).splitlines():
            full = full or OUT_OF_MEMORY.search(line) is not None
            if found := TITAN.search(line):
                peaks.append(float(found[2]))
                if int(found[1]) > WARMED_UP:
                    rates.append(float(found[3].replace(",", "")))
            elif found := ITERATION.search(line):
                if int(found[1]) > WARMED_UP:
                    times.append(float(found[2]) / 1000)
            elif found := MEMORY.search(line):
                peaks.append(float(found[1]) / 1024)
    step, rate = (median(seen) if seen else None for seen in (times, rates))
    if full and not times and not rates:
        return Measurement(out_of_memory=True)
    return Measurement(step or None, rate or None, max(peaks, default=None))


def fill(folder: Path) -> list[str]:
    """Fill the measured cells of `results.csv` from `logs/`; a sentence for each layout.

    Raises:
        UserError: there is no table, it is not the one that was exported, or it cannot be written.
    """
    path = folder / NAME
    text = read_text(path, "table of results", "a folder that `course sweep --export` wrote", "")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise UserError(f"{show(str(path))} is no CSV: {error}. Mend that line.") from None
    columns = list(rows[0]) if rows else []
    if not rows or {"id", "notes", *MEASURED} - set(columns) or any(None in row for row in rows):
        raise UserError(f"{show(str(path))} is not the table that --export wrote. Export again into another folder.")
    said = [_fill(row, folder / "logs") for row in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        if out.getvalue() != text:
            write_atomically(path, out.getvalue().encode())
    except OSError as error:
        raise UserError(f"{show(str(path))} cannot be written: {error.strerror}. Change its permissions.") from None
    return said


def _fill(row: dict[str, str], logs: Path) -> str:
    """Fill one row in place."""
    name = f"layout_{row['id'].rpartition('-')[2]}"
    found = sorted(logs.glob(f"{name}.*.log"))
    if not found:
        return f"{name}: no log."
    try:
        measured = measure(path.read_text("utf-8", errors="replace") for path in found)
    except OSError as error:
        raise UserError(f"{show(str(logs))} cannot be read: {error.strerror}. Change its permissions.") from None
    if measured.out_of_memory:
        if not row["notes"].startswith("FAILED"):
            row["notes"] = f"{FAILED} {row['notes']}".strip()
        return f"{name}: ran out of memory."
    if not measured.timed:
        return f"{name}: no step after the first {WARMED_UP} in {len(found)} logs; see why it stopped in {found[0]}."
    parts = []
    for column in MEASURED:
        value = getattr(measured, column)
        if value is not None and not row[column].strip():
            row[column] = f"{value:.6g}"
            parts.append(f"{column} {value:.6g}")
    return f"{name}: {', '.join(parts)}." if parts else f"{name}: filled before, left as it is."


def main(arguments: Sequence[str]) -> int:
    """`python -m course.export.logs DIR`: 0 done, 2 the folder is wrong."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m course.export.logs DIR   (the folder of `course sweep --export`)", file=sys.stderr)
        return 2
    try:
        print("\n".join(fill(Path(arguments[0]))))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
