"""Measure the cells of the protocol, launch by launch; the report is whole on disk after every cell."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.lab import finish, launch, legality, machine, protocol
from course.lab.causes import Beat
from course.lab.noise import loudness
from course.lab.progress import Progress, duration
from course.lab.report import Cell, Report, load, write

__all__ = ["ATTEMPTS", "COLLECTIVE_TIMEOUT_S", "groups", "measure"]

ATTEMPTS = 3
"""How often a noisy cell is measured at most; the quietest counts, and cells of one `alternate` only together."""

COLLECTIVE_TIMEOUT_S = 30
LAUNCH_S = 4.0
TRACED = ("layout.2.dp2-zero3", "layout.2.tp2", "pipeline.2.1f1b-m4")
"""Cells without their engine, beside the strong curve: weights gathered, activations reduced, activations sent."""

REPEAT_SHARE, REPEAT_SHARE_QUICK = 0.5, 0.15
REPEAT_LEAST_S = 10.0
"""Repeats may take this share of the time that the first pass took, or so many seconds."""

Requests = Sequence[protocol.Request]
Planner = Callable[[str, int, Path, int, Sequence[int]], launch.Plan]


def measure(
    output: str | Path | None = None, *, engine: str | None = None, quick: bool = False,
    families: Iterable[str] | None = None, requests: Requests | None = None, grid: bool | None = None,
    traces: str | Path | None = None, here: Mapping[str, Any] | None = None, attempts: int = ATTEMPTS,
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S, silence_s: float | None = None, show: bool = True,
    planner: Planner = launch.plan,
) -> Report:  # fmt: skip
    """Measure scaling on the devices that are there and return the report.

    Args:
        output: the report's file; it is whole at every moment, and what it holds already is not measured again (cells
            that failed are). Without it the report is only returned.
        engine: "torch" or "jax"; None for all that are installed.
        quick: fewer cells and steps, and less time for repeats; about a fifth of the time.
        families: only these (`report.FAMILIES`); grid: whether to measure layouts of more ranks than there are devices.
        requests: these cells instead of the protocol's, as `protocol.training` makes them.
        traces: a folder for traces of a few steps, one a cell: all-reduce, all-gather and a pipeline, by Torch.
        here: the machine; found out when None.
        attempts: how often a noisy cell is measured at most.
        collective_timeout_s: how long ranks wait for each other; silence_s how long without any sign of them.
        show: whether to tell on stderr how far it is.
        planner: makes the commands of a launch; tests put their own workers here.

    Raises:
        UserError: an engine is unknown or not installed, or the file holds the report of another machine.
    """
    if requests is None:
        for name in [engine] if engine else machine.engines() or ["torch"]:
            machine.require(name)
    about = dict(machine.devices() if here is None else here)
    wanted = list(requests) if requests is not None else [
        cell for name in ([engine] if engine else machine.engines())
        for cell in protocol.cells(about, quick, name, families, grid)
    ]  # fmt: skip
    if traces is not None:
        wanted = _traced(wanted, Path(traces))
    run = _Run(about, output, show, collective_timeout_s, silence_s, planner)
    todo = [request for request in wanted if not run.has(request)]
    run.start(todo, len(wanted) - len(todo))
    try:
        for group in groups(todo, run.there):
            run.group(group)
        run.repeat(wanted, attempts, REPEAT_SHARE_QUICK if quick else REPEAT_SHARE)
    finally:
        run.progress.close()
    run.sort(wanted)
    return run.report


def groups(requests: Requests, there: int | None = None) -> list[list[protocol.Request]]:
    """Cells that one launch measures, in the order given.

    For JAX the same processes, devices and pinning. For Torch all that leave each rank a device of its own: the first
    ranks of the launch are the devices of a smaller cell, so that one device and two are measured in turns.

    Args:
        there: devices of this machine; None where nobody knows: then cells of one device count go together.

    >>> here = {"kind": "cpu", "cores": 2}
    >>> some = [protocol.training(here, "torch", "strong", n, 8) for n in (1, 2, 4, 1)]
    >>> [[cell["devices"] for cell in group] for group in groups(some, 2)]
    [[1, 2, 1], [4]]
    """
    found: dict[tuple[Any, ...], list[protocol.Request]] = {}
    for request in requests:
        key: tuple[Any, ...] = (request["processes"], request["devices"], bool(request.get("pin")))
        if request["engine"] == "torch" and there is not None and request["devices"] <= there:
            key = ("each its own device", bool(request.get("pin")))
        found.setdefault((request["engine"], *key), []).append(request)
    return list(found.values())


class _Run:
    """One measurement: the report so far, and how launches are made."""

    def __init__(
        self, about: dict[str, Any], output: str | Path | None, show: bool, collective_timeout_s: float,
        silence_s: float | None, planner: Planner,
    ) -> None:  # fmt: skip
        self.there = machine.device_count(about)
        self.about, self.output, self.show, self.planner = about, output, show, planner
        self.collective_timeout_s = collective_timeout_s
        self.silence_s = collective_timeout_s + launch.SILENCE_BEYOND_COLLECTIVES_S if silence_s is None else silence_s
        self.report = Report(about)
        self.took_s = 0.0
        self.held_back: dict[tuple[str, str], dict[str, tuple[Cell, protocol.Request]]] = {}
        self.progress = Progress(0.0, 0, show=False)
        if output is not None:
            path = Path(output)
            if path.is_dir() or not path.parent.is_dir():
                raise UserError(
                    f"{path.name} cannot be written there. Give the path of a JSON file in a folder that exists."
                )
            if path.exists() and path.stat().st_size:
                self.report = _resumed(path, about)

    def has(self, request: protocol.Request) -> bool:
        """Whether the report holds this cell, measured as asked; what failed is tried again."""
        if request["id"] not in self.report:
            return False
        cell = self.report[request["id"]]
        if request["trace"] and not Path(request["trace"]).exists():
            return False
        return cell["status"] not in ("failed", "timeout") and _same(cell.get("request"), request)

    def guess(self, requests: Requests) -> float:
        """Seconds that measuring the cells may take, their launches among them."""
        return sum(map(protocol.seconds, requests)) + LAUNCH_S * len(groups(requests, self.there))

    def start(self, todo: Requests, there: int) -> None:
        guess = self.guess(todo)
        self.progress = Progress(guess, len(todo), show=self.show)
        if there:
            self.progress.say(f"{there} cells are in {Path(str(self.output)).name} already and are not measured again.")
        if todo:
            self.progress.say(f"{len(todo)} cells to measure, about {duration(guess)} on a quiet machine.")

    def group(self, requests: Requests, again: bool = False) -> None:
        """Measure one group, in a new launch after each failure."""
        pending = []
        for request in requests:
            why = legality.refusal(request, self.about)
            if why:
                self.keep(finish.failed(request, self.about, "refused", why), request)
            else:
                pending.append(request)
        while pending:
            done: set[str] = set()
            outcome = self.launch(pending, done, again)
            failure = outcome.failure
            pending = [request for request in pending if request["id"] not in done]
            if failure is None or not pending:
                return
            lost = [request for request in pending if request["id"] == failure.cell] if outcome.started else pending
            for request in lost or pending[:1]:
                if not again:
                    self.keep(finish.failed(request, self.about, failure.status, failure.reason), request)
            gone = {request["id"] for request in lost or pending[:1]}
            pending = [request for request in pending if request["id"] not in gone]
            if pending and not again:
                self.progress.say(
                    f"{failure.cell or 'the launch'}: {failure.reason}. The other cells go on in a new launch."
                )

    def launch(self, requests: Requests, done: set[str], again: bool) -> launch.Outcome:
        first, names = requests[0], {request["id"]: request for request in requests}
        guess = sum(map(protocol.seconds, requests)) + LAUNCH_S

        def on_cell(line: dict[str, Any]) -> None:
            request = names[line["id"]]
            done.add(line["id"])
            cell = finish.finished(request, line, self.about, finish.serial(self.report, request))
            if again and request["alternate"]:
                self.held_back.setdefault(_blocks(request), {})[request["id"]] = cell, request
                return
            if again and request["id"] in self.report:
                cell = _quieter(self.report[request["id"]], cell)
            self.keep(cell, request, tell=not again)

        with tempfile.TemporaryDirectory(prefix="course-lab-") as name:
            folder, config = Path(name), Path(name, "config.json")
            config.write_text(json.dumps({
                "engine": first["engine"], "folder": name, "collective_timeout_s": self.collective_timeout_s, "seed": 0,
                "threads": 1, "cells": list(requests),
            }), encoding="utf-8")  # fmt: skip
            ranks = max(int(request["processes"]) for request in requests)
            pin = _cores()[:ranks] if first.get("pin") else ()
            outcome = launch.launch(
                self.planner(first["engine"], ranks, config, 1, pin), folder, list(names), ranks=ranks,
                timeout_s=300 + 20 * guess, silence_s=self.silence_s, on_cell=on_cell,
                on_beat=lambda beat: self.heard(beat, names.get(beat.cell)),
            )  # fmt: skip
        self.took_s += outcome.seconds
        return outcome

    def heard(self, beat: Beat, request: protocol.Request | None) -> None:
        if request is not None:
            self.progress.at(beat.cell, beat.step, protocol.seconds(request), request["steps"])

    def keep(self, cell: Cell, request: protocol.Request, tell: bool = True) -> None:
        """Put a cell into the report and the report on disk."""
        report = self.report.with_cell(cell)
        self.report = Report(report.machine, finish.rated(report.cells, self.about))
        if self.output is not None:
            write(self.output, self.report)
        if tell:
            self.progress.finished(str(cell["id"]), protocol.seconds(request), _said(cell))

    def sort(self, wanted: Requests) -> None:
        """Cells in the order in which they were asked for, behind those of earlier calls."""
        places = {request["id"]: place for place, request in enumerate(wanted)}
        cells = sorted(self.report.cells, key=lambda cell: places.get(cell["id"], -1))
        if cells != self.report.cells:
            self.report = Report(self.report.machine, cells)
            if self.output is not None:
                write(self.output, self.report)

    def repeat(self, wanted: Requests, attempts: int, share: float) -> None:
        """Measure noisy cells again, with those they alternate with, and keep the quietest of all attempts."""
        allowed = max(REPEAT_LEAST_S, share * self.took_s)
        for attempt in range(2, attempts + 1):
            noisy = [request for request in wanted if request["id"] in self.report
                     and self.report[request["id"]]["status"] == "noisy"]  # fmt: skip
            before = self.took_s
            chosen: list[protocol.Request] = []
            for request in noisy:  # as many as the time allows, in the protocol's order
                if request in chosen:
                    continue
                together = [one for one in wanted if one["id"] in self.beside(request)] or [request]
                if self.guess([*chosen, *together]) < allowed:
                    chosen += together
            if not chosen:
                if noisy:
                    self.progress.say(f"{len(noisy)} cells stay noisy: there is no time left to measure them again.")
                return
            self.progress.say(f"{len(chosen)} cells, noisy or beside such, are measured again, attempt {attempt} of "
                              f"{attempts}.")  # fmt: skip
            for group in groups(chosen, self.there):
                self.group(group, again=True)
            self.settle()
            allowed -= self.took_s - before


    def beside(self, request: protocol.Request) -> set[str]:
        """Ids of the measured cells that alternate with this one, itself among them."""
        return {
            str(cell["id"]) for cell in self.report
            if request["alternate"] and cell["status"] in ("ok", "noisy") and cell.get("request")
            and _blocks(cell["request"]) == _blocks(request)
        }  # fmt: skip

    def settle(self) -> None:
        """Of cells that alternate keep one attempt for all: the quieter as a whole, or their pairing would be lost."""
        for together in self.held_back.values():
            old = [self.report[name] for name in together]
            new = [cell for cell, _ in together.values()]
            whole = all(cell["status"] in ("ok", "noisy") for cell in new) and set(together) == self.beside(
                next(iter(together.values()))[1]
            )
            lower = sum(loudness(one.get("noise")) for one in new) < sum(loudness(one.get("noise")) for one in old)
            kept = new if whole and lower else old
            for before, cell, (_, request) in zip(old, kept, list(together.values()), strict=True):
                attempts = int((before.get("noise") or {}).get("attempts") or 1) + 1
                self.keep({**cell, "noise": {**(cell.get("noise") or {}), "attempts": attempts}}, request, tell=False)
        self.held_back = {}


def _blocks(request: Mapping[str, Any]) -> tuple[str, str]:
    """Cells with equal answers ran in alternated blocks of one launch."""
    return str(request["engine"]), str(request["alternate"])


def _quieter(old: Cell, new: Cell) -> Cell:
    """The better of two attempts at a cell, with the number of attempts among its noise figures."""
    attempts = int((old.get("noise") or {}).get("attempts") or 1) + 1
    better = new if new["status"] == "ok" or (
        new["status"] == "noisy" and loudness(new.get("noise")) < loudness(old.get("noise"))
    ) else old  # fmt: skip
    return {**better, "noise": {**(better.get("noise") or {}), "attempts": attempts}}


def _resumed(path: Path, about: Mapping[str, Any]) -> Report:
    report = load(path)
    for key in ("kind", "accelerator", "cores", "gpus", "versions"):
        if report.machine.get(key) != about.get(key):
            raise UserError(
                f"{path.name} was measured on another machine ({key} differs): its cells cannot be gone on with. Give "
                "another file, and `course lab merge` to join the two."
            )
    return report


def _same(one: Any, other: Mapping[str, Any]) -> bool:
    """Whether two requests ask for the same; a trace is an addition to a measurement, not a part of it."""
    asked = {**other, "trace": None}
    return bool(json.loads(json.dumps(one)) == json.loads(json.dumps(asked)))


def _said(cell: Cell) -> str:
    if cell["status"] in ("ok", "noisy"):
        time = (cell.get("step_time_s") or {}).get("p50")
        shown = "measured" if time is None else f"{1e3 * time:,.2f} ms"
        return shown if cell["status"] == "ok" else f"{shown}, noisy ({cell['reason']})"
    return f"{cell['status']}, {cell['reason']}"


def _traced(requests: Requests, folder: Path) -> list[protocol.Request]:
    """Ask for traces of the strong curve and of one cell of each other kind of communication, on two devices."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        {**request, "trace": str((folder / f"{request['id']}.json").resolve())}
        if str(request["id"]).partition(".")[2] in TRACED or (
            request["family"] == "strong" and request["devices"] == 2 and request["alternate"]) else request
        for request in requests
    ]  # fmt: skip


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
