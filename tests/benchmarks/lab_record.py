"""Make the report and the traces that come with the course: on quiet cores, for all lessons show them.

    python tests/benchmarks/lab_record.py FOLDER

What FOLDER holds already (lab.json, traces) is gone on with, not measured again. A report with a noisy cell is refused.
Of the traces everything goes that says where they were recorded: hosts, paths, process numbers, the hour. Build the
notebooks 10a to 10c afterwards.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from course.lab.measuring import measure
from course.lab.report import write

RECORDED = Path(__file__).parents[2] / "course" / "lab" / "recorded"
TRACES = ("torch.strong.2.gb8", "torch.layout.2.tp2", "torch.pipeline.2.1f1b-m4")
KEPT = ("user_annotation", "cpu_op")


def bare(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace's events alone, from time 0, with threads numbered as they come."""
    events = [one for one in trace["traceEvents"] if one.get("ph") == "X" and one.get("cat") in KEPT]
    threads: dict[Any, int] = {}
    for one in events:
        threads.setdefault(one["tid"], len(threads) + 2)
    start = min(one["ts"] for one in events)
    names = [("process_name", 1, "python"), *(("thread_name", place, f"thread {place}") for place in threads.values())]
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": kind, "ts": 0, "pid": 1, "tid": place, "args": {"name": name}}
        for kind, place, name in names
    ]
    found += [
        {"ph": "X", "cat": one["cat"], "name": one["name"], "pid": 1, "tid": threads[one["tid"]],
         "ts": round(one["ts"] - start, 3), "dur": one["dur"], "args": {}}
        for one in events
    ]  # fmt: skip
    return {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": found}


def main(folder: Path) -> int:
    report = measure(folder / "lab.json", traces=folder / "traces")
    noisy = [cell["id"] for cell in report if cell["status"] != "ok"]
    if noisy:
        print("Not recorded, for these cells are not ok: " + ", ".join(map(str, noisy)))
        return 1
    write(RECORDED / "two_cpu_cores.json", report)
    for name in TRACES:
        trace = bare(json.loads((folder / "traces" / f"{name}.json").read_text(encoding="utf-8")))
        packed = gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), mtime=0)
        (RECORDED / "traces" / f"{name}.json.gz").write_bytes(packed)
    print(f"Recorded {len(report.cells)} cells and {len(TRACES)} traces.")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
