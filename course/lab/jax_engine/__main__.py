"""The worker: one argument, a file of cells; one JSON line for each that is finished.

`python -m course.lab.jax_engine CONFIG.json`, alone or as one of several processes that RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT describe. What JAX and its libraries print goes to output.RANK.txt beside the records.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["groups", "main"]


def main(words: Sequence[str]) -> int:
    """Run the worker; return its exit code: 0 where every cell has its record, 1 after an error, 2 without a file."""
    if len(words) != 1:
        print("usage: python -m course.lab.jax_engine CONFIG.json", file=sys.stderr)
        return 2
    config = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    folder, rank = Path(config["folder"]), int(os.environ.get("RANK", 0))
    folder.mkdir(parents=True, exist_ok=True)
    terminal = _keep_quiet(folder / f"output.{rank}.txt")
    at = ["start"]
    try:
        _work(config, folder, rank, at)
    except BaseException as reason:
        traceback.print_exc()
        message = str(reason).strip().splitlines() or [""]
        kind = "OutOfMemory" if _out_of_memory(reason) else type(reason).__name__
        told = {"time": time.time(), "cell": at[0], "type": kind, "message": message[0]}
        (folder / f"error.{rank}.json").write_text(json.dumps(told), encoding="utf-8")
        terminal.write(f"{kind}: {message[0]}\n")
        terminal.flush()
        sys.stdout.flush()
        # Leaving the usual way waits for the other ranks, who wait for this one.
        os._exit(1)
    return 0


def _work(config: Mapping[str, Any], folder: Path, rank: int, at: list[str]) -> None:
    from course.lab.jax_engine.processes import start

    def told(name: str, steps: int) -> None:
        at[0] = name
        (folder / f"heartbeat.{rank}").write_text(f"{name} {steps}", encoding="utf-8")

    told("start", 0)
    world = start(config, os.environ)
    from course.lab.jax_engine.cells import measure, refused

    seed = int(config.get("seed", 0))
    for group in groups(config["cells"]):
        records = [record for request in group if (record := refused(request, world))]
        no = {record["id"] for record in records}
        if runnable := [request for request in group if request["id"] not in no]:
            records += measure(runnable, world, seed, told)
        if rank == 0:
            _append(folder / "cells.jsonl", records)
    if world.size > 1:
        import jax

        jax.distributed.shutdown()


def groups(cells: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the cells that are measured together: those of one `alternate` name, each other one alone.

    >>> [[cell["id"] for cell in group] for group in groups(
    ...     [{"id": "a", "alternate": "x"}, {"id": "b", "alternate": None}, {"id": "c", "alternate": "x"}])]
    [['a', 'c'], ['b']]
    """
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        name = cell.get("alternate")
        found.setdefault(("together", name) if name else ("alone", cell["id"]), []).append(cell)
    yield from found.values()


def _append(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _keep_quiet(path: Path) -> Any:
    """Send what this process and its libraries print to a file; return the terminal, for a last sentence."""
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    return terminal


def _out_of_memory(reason: BaseException) -> bool:
    return isinstance(reason, MemoryError) or "RESOURCE_EXHAUSTED" in str(reason) or "bad_alloc" in str(reason)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
