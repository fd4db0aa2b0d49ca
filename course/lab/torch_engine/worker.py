"""A launch from its configuration to its last line: cells one after another, those of one name in alternated blocks.

The worker measures and leaves word; it judges nothing and survives nothing. What goes wrong is written down, and the
process ends: whoever started it knows what to do.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from course.errors import UserError
from course.lab.torch_engine.mesh import made_by_all
from course.lab.torch_engine.parts import OPERATIONS, collective, matmul, message
from course.lab.torch_engine.ranks import Ranks
from course.lab.torch_engine.request import Request, read
from course.lab.torch_engine.timing import Lane, gathered, measure
from course.lab.torch_engine.training import Training

__all__ = ["is_out_of_memory", "run"]

Finished = Callable[[], dict[str, Any]]
Maker = Callable[[Request, Ranks], tuple[Lane, dict[str, Any], Callable[[], None]]]
_current = ""
_launch = round(time.time(), 3)
"""When this process began: blocks of two cells are neighbours in time only where one launch measured both."""



def run(config: Mapping[str, Any]) -> None:
    """Measure all cells of a configuration; ends the process where one fails.

    Args:
        config: folder, cells, and optionally seed, threads and collective_timeout_s.
    """
    folder = Path(config["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    # PyTorch warns of its own changes of name and of views in FSDP; none of it is for who measures.
    warnings.filterwarnings("ignore", module=r"torch\.")
    try:
        torch.set_num_threads(int(config.get("threads") or 1))
        gc.collect()
        gc.freeze()  # what the imports made stays; looking through it again would take longer than a small step
        ranks = Ranks(folder, float(config.get("collective_timeout_s") or 30))
        for group in together(config["cells"]):
            _group(group, ranks, int(config.get("seed") or 0))
        ranks.close()
    except Exception as error:
        _fail(folder, error)


def together(cells: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Cells in the order asked for, those with the same `alternate` name side by side.

    >>> [[cell["id"] for cell in group] for group in together(
    ...     [{"id": 1, "alternate": "a"}, {"id": 2}, {"id": 3, "alternate": "a"}])]
    [[1, 3], [2]]
    """
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for index, cell in enumerate(cells):
        groups.setdefault(cell.get("alternate") or index, []).append(cell)
    return list(groups.values())


def _at(cell: str) -> None:
    global _current
    _current = cell


def _group(cells: Sequence[Mapping[str, Any]], ranks: Ranks, seed: int) -> None:
    made: list[tuple[Mapping[str, Any], Ranks, list[Lane], Finished, float]] = []
    blocks = 1
    for cell in cells:
        _at(str(cell.get("id")))
        start = time.perf_counter()
        team = ranks.team(min(int(cell.get("devices") or ranks.world), ranks.world))
        try:
            request = read(cell, team.world)
            make = _maker(request)
        except UserError as reason:  # every rank reads the same cell and comes to the same refusal
            _line(cell, {"status": "refused", "reason": str(reason)}, team)
            continue
        team.beat(request.id, 0)
        if request.trains:
            made_by_all(request, ranks.device.kind)
        lanes, finished = _made(request, make, team, seed) if team.takes_part else ([], dict)
        ranks.meet()
        blocks = max(blocks, request.blocks)
        made.append((cell, team, lanes, finished, time.perf_counter() - start))
    start = time.perf_counter()
    measure([(str(cell.get("id")), team, lanes) for cell, team, lanes, _, _ in made], blocks, _at)
    timed = time.perf_counter() - start
    for cell, team, lanes, finished, making in made:
        _at(str(cell.get("id")))
        start = time.perf_counter()
        team.beat(_current, 0)
        if team.takes_part:
            found = finished()
            found["extra"]["seconds"] = {
                "making": making, "timed": timed * len(lanes) / sum(len(some) for _, _, some, _, _ in made),
                "after": time.perf_counter() - start,
            }  # fmt: skip
            _line(cell, {"status": "ok", "reason": None, **found}, team)
        ranks.meet()


def _made(request: Request, make: Maker | None, ranks: Ranks, seed: int) -> tuple[list[Lane], Finished]:
    """What to time of a cell, and what to call when it is done."""
    if make is None:
        training = Training(request, ranks, seed)
        return training.lanes, training.finish
    lane, facts, close = make(request, ranks)
    for _ in range(request.warmup):
        ranks.barrier()
        lane.step()
    ranks.device.synchronize()

    def finish() -> dict[str, Any]:
        close()
        found = gathered(lane, ranks)
        times = found["step_time_s"]
        parts = facts.get("halves", facts.get("repeats", 1))
        for name in ("p10", "p50", "p90", "min"):
            times[name] /= parts
        if "flops" in facts:
            best = max(ranks.gather(min(lane.own)))  # of the slowest rank, at its best
            found["matmul_flops_per_s"] = facts["flops"] * parts / best
            found["extra"]["matmul_median_flops_per_s"] = facts["flops"] / times["p50"]
        else:
            found["payload_bytes"] = facts["payload_bytes"]
            found["communication_s"] = times["p50"]
            found["busbw_bytes_per_s"] = facts["payload_bytes"] * facts["factor"] / times["p50"]
        found["idle_share"] = None
        return found

    return [lane], finish


def _maker(request: Request) -> Maker | None:
    """What makes a cell's lane; None for a training cell. Raises UserError for a family that is not one."""
    if request.trains:
        return None
    if request.family == "p2p" and request.devices < 2:
        raise UserError("A message needs two ranks, and there is one.")
    if request.family == "collective" and request.operation not in (None, *OPERATIONS):
        raise UserError(f"operation is one of {', '.join(OPERATIONS)}, not {request.operation}.")
    make = {"collective": collective, "p2p": message, "matmul": matmul}.get(request.family)
    if make is None:
        raise UserError(f"family {request.family} is not one that this engine measures.")
    return make


def _line(cell: Mapping[str, Any], found: dict[str, Any], ranks: Ranks) -> None:
    """One line of cells.jsonl, on disk before the next cell begins."""
    if ranks.rank != 0:
        return
    extra = found.setdefault("extra", {})
    extra["versions"] = {"torch": torch.__version__, "python": sys.version.split()[0]}
    extra["threads"] = torch.get_num_threads()
    extra["launch"] = _launch
    line = {"id": cell.get("id"), "engine": "torch", "placement": ranks.placement, **found}
    with (ranks.folder / "cells.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: a device's, or the host's in one of the words PyTorch has for it.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    True
    """
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, (MemoryError, getattr(torch, "OutOfMemoryError", MemoryError))) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )


def _fail(folder: Path, error: Exception) -> NoReturn:
    """Leave word and end at once: a neighbour may wait in a collective, and nothing here can free it."""
    cause: BaseException = error
    while cause.__cause__ is not None:  # the pipeline wraps what a stage raised
        cause = cause.__cause__
    rank = os.environ.get("RANK", "0")
    word = {
        "time": time.time(),
        "cell": _current,
        "type": "OutOfMemory" if is_out_of_memory(cause) else type(cause).__name__,
        "message": " ".join(str(cause).split()),
    }
    (folder / f"error.{rank}.json").write_text(json.dumps(word), encoding="utf-8")
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1)
