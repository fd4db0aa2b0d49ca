"""A worker that honours the lab's contract and measures nothing: it fails on request, in every way the launcher knows.

A cell's `fake` says what happens: {"do": "exit", "rank": 1, "at": 3} ends rank 1 with code 13 at step 3. Ranks meet
through files; one whose neighbour is gone says what gloo says, one whose neighbour hangs runs into the timeout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


class Gone(RuntimeError):
    pass


def main(path: str) -> None:
    config = json.loads(Path(path).read_text())
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path(config["folder"])
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    cell = {"id": None}
    try:
        for cell in config["cells"]:
            measure(cell, folder, rank, world, float(config["collective_timeout_s"]))
    except Exception as error:
        found = {"time": time.time(), "cell": cell["id"], "type": type(error).__name__, "message": str(error)}
        if isinstance(error, MemoryError):
            found["type"] = "OutOfMemory"
        (folder / f"error.{rank}.json").write_text(json.dumps(found))
        sys.exit(1)


def measure(cell: dict, folder: Path, rank: int, world: int, timeout_s: float) -> None:
    fake = cell.get("fake") or {}
    steps = 4
    for step in range(steps):
        (folder / f"heartbeat.{rank}").write_text(f"{cell['id']} {step}")
        if fake.get("rank") == rank and fake.get("at", 1) == step:
            fail(fake)
        meet(folder, f"{cell['id']}.{step}", rank, world, timeout_s)
    if rank == 0:
        time_s = fake.get("time_s", 0.01)
        line = {
            "id": cell["id"], "status": "ok", "reason": None, "loss": fake.get("loss", 5.0),
            "step_time_s": {"p10": 0.9 * time_s, "p50": time_s, "p90": 1.1 * time_s, "n": steps},
            "noise": fake.get("noise") or {"foreign_cores": 0.0, "runq_wait": 0.0, "cpu_per_wall": 1.0},
            "extra": {"pid": os.getpid(), "trace": str(folder / "trace.json")},
        }  # fmt: skip
        if fake.get("quieter"):  # each attempt finds a quieter machine
            count = Path(fake["quieter"])
            tries = int(count.read_text() or 0) if count.exists() else 0
            count.write_text(str(tries + 1))
            line["noise"]["foreign_cores"] = max(0.0, 0.9 - 0.3 * tries)
        with (folder / "cells.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def fail(fake: dict) -> None:
    what = fake["do"]
    if what == "exit":
        os._exit(13)
    if what == "silent":
        os._exit(0)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ValueError("the batch is empty")
    if what == "memory":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        bytearray(2**34)
    if what == "hang":
        time.sleep(600)


def meet(folder: Path, name: str, rank: int, world: int, timeout_s: float) -> None:
    (folder / f"met.{name}.{rank}").touch()
    began = time.monotonic()
    for other in range(world):
        while not (folder / f"met.{name}.{other}").exists():
            pid = folder / f"pid.{other}"
            if pid.exists() and not alive(int(pid.read_text() or os.getpid())):
                time.sleep(0.05)
                if not (folder / f"met.{name}.{other}").exists():
                    raise Gone(
                        "[gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:20443: Connection reset by peer"
                    )
            if not pid.exists():  # a neighbour that starts slowly hangs in nothing
                began = time.monotonic()
            if time.monotonic() - began > timeout_s:
                raise Gone(
                    f"[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting {1000 * timeout_s:.0f}ms for recv"
                )
            time.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1])
