"""A worker of the lab that fails at a chosen cell, for `lab_failures.py`: the real engine, with one rank sabotaged.

    python tests/benchmarks/lab_saboteur.py CONFIG.json

The configuration's cells carry `sabotage`: {"do": "exit|silent|kill|raise|memory|hang", "rank": 1}. The rank fails when
it says, after warming up, that it is at the second block of that cell.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def act(what: str) -> None:
    if what == "exit":
        os._exit(13)
    if what == "silent":
        os._exit(0)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ValueError("a fault in the model")
    if what == "memory":
        import torch

        torch.empty(2**46, dtype=torch.uint8).fill_(1)
    if what == "hang":
        time.sleep(3600)


def main(path: str) -> None:
    from course.lab.torch_engine.ranks import Ranks
    from course.lab.torch_engine.worker import run

    config = json.loads(Path(path).read_text(encoding="utf-8"))
    plans = {cell["id"]: cell["sabotage"] for cell in config["cells"] if cell.get("sabotage")}
    beat = Ranks.beat

    def sabotaged(self: Ranks, cell: str, step: int) -> None:
        beat(self, cell, step)
        plan = plans.get(cell.split("+")[0])
        if plan and step > 0 and plan["rank"] == self.rank:
            act(plan["do"])

    Ranks.beat = sabotaged  # type: ignore[method-assign]
    run(config)


if __name__ == "__main__":
    main(sys.argv[1])
