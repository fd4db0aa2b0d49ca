"""The main program of a fresh process that runs one learner's function from its source. See `sandbox`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from course.grading import cell

__all__ = ["main"]


def main() -> None:
    """Read a task from stdin, define the function, call it on every case, write outcomes to what was stdout; exit."""
    task = json.loads(sys.stdin.buffer.read())
    into = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)

    def write(line: bytes) -> None:
        while line:
            line = line[os.write(into, line) :]

    source = task["source"]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    failed: dict[str, Any] | None = None
    for statement in source["before"]:
        try:
            exec(compile(statement, "<notebook>", "exec"), namespace)
        except Exception as error:
            failed = {"raised": type(error).__name__, "said": str(error)[:300]}
    write(b"ready\n")
    cell.limit(task["seconds"], task["memory"])
    function = namespace.get(source["name"])
    if function is None:
        write(json.dumps(failed or {"raised": "NameError", "said": source["name"]}).encode() + b'\n{"end": "done"}\n')
    else:
        try:
            cell.work(function, task["cases"], write)
        except BaseException:
            os._exit(70)
    os._exit(0)
