"""The worker: `python -m course.lab.torch_engine CONFIG.json`, started once a rank."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the configuration that the one argument names."""
    if len(arguments) != 1:
        sys.stderr.write("One argument: the configuration, a JSON file.\n")
        return 2
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported, so before it
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells of its start and stop otherwise
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from course.lab.torch_engine.worker import run

    run(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
