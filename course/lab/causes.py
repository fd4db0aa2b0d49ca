"""Which rank failed, and of what: one sentence, made from what ranks left behind.

The rank that complains is seldom the one that failed: when a rank dies, the others see their connections close, and
when one hangs, the others run into a timeout. So a neighbour's complaint is believed last.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Beat", "Failure", "exits_of_torchrun", "explain"]

OUT_OF_MEMORY = re.compile(
    r"out ?of ?memory|can't allocate memory|cannot allocate memory|MemoryError|bad_alloc|RESOURCE_EXHAUSTED",
    re.IGNORECASE,
)
TIMEOUT = re.compile(r"tim(?:ed|e) ?-?out|deadline.?exceeded|DEADLINE_EXCEEDED|watchdog", re.IGNORECASE)
NEIGHBOUR = re.compile(
    r"closed by peer|reset by peer|connection (?:closed|reset|refused|was)|broken pipe|gloo|nccl|"
    r"Dist(?:Network|Store|Backend)Error|distributed service|coordination service|UNAVAILABLE|remote (?:process|error)",
    re.IGNORECASE,
)
SENT_BY_US = {signal.SIGTERM, signal.SIGABRT}
"""SIGTERM is how torchrun ends the others; SIGABRT how the watchdogs of NCCL and JAX end a rank that is left alone."""

LONGEST = 240


@dataclass(frozen=True)
class Beat:
    """The latest sign of a rank: the cell, the step (-1: it has no part in it), and the second of the wall clock."""

    rank: int
    cell: str
    step: int
    time: float

    @classmethod
    def read(cls, folder: Path, rank: int) -> Beat | None:
        """Read heartbeat.RANK; None before the first one."""
        file = folder / f"heartbeat.{rank}"
        try:
            text, when = file.read_text(encoding="utf-8").split(), file.stat().st_mtime
            return cls(rank, text[0], int(text[1]), when)
        except (OSError, ValueError, IndexError):
            return None


@dataclass(frozen=True)
class Failure:
    """A launch that failed: the status of its cell, the sentence, the cell's id and the rank where they are known."""

    status: str
    reason: str
    cell: str | None
    rank: int | None


def exits_of_torchrun(text: str) -> dict[int, int]:
    """Exit codes by rank in torchrun's closing words; signals are negative.

    >>> exits_of_torchrun("  rank      : 1 (local_rank: 1)\\n  exitcode  : -9 (pid: 77)\\n")
    {1: -9}
    """
    found = re.findall(r"rank\s*: (\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*: (-?\d+)", text)
    return {int(rank): int(code) for rank, code in found}


def explain(
    folder: Path, ranks: int, exits: Mapping[int, int], unfinished: Sequence[str], stopped: str | None,
    heard: Mapping[int, Beat], now: float,
) -> Failure:  # fmt: skip
    """Name the rank and the cause.

    Args:
        folder: of the launch, with error.RANK.json files.
        ranks: how many there were; exits: codes of those that ended by themselves, as far as known.
        unfinished: ids of cells that have no result, in order.
        stopped: "timeout" or "silence" where the launcher ended them; now: the time, in seconds of the wall clock.
        heard: the latest sign of each rank.
    """
    errors = _errors(folder, ranks)
    where = _Where(heard, unfinished)
    own = [error for error in errors if not _neighbour(error)]
    if own:
        return _raised(own[0], where)
    silent = [rank for rank in range(ranks) if rank not in {error["rank"] for error in errors}]
    killed = [rank for rank, code in exits.items() if code < 0 and -code not in SENT_BY_US]
    died = [rank for rank in silent if exits.get(rank, 0) > 0]
    aborted = [rank for rank in silent if exits.get(rank) == -signal.SIGABRT]
    for rank in killed:
        name = signal.Signals(-exits[rank]).name
        guess = {"SIGKILL": " (out of memory?)", "SIGSEGV": " (a crash in compiled code)"}.get(name, "")
        return where.failure("failed", rank, f"was killed by {name}{guess}")
    for rank in died:
        return where.failure("failed", rank, f"died with exit code {exits[rank]}{_last_words(folder)}")
    timeouts = [error for error in errors if TIMEOUT.search(_text(error))]
    if stopped or (errors and len(timeouts) == len(errors)):
        return _hung(errors, silent, where, stopped, ranks, now)
    left = [rank for rank in silent if exits.get(rank, 0) == 0]
    if (errors and left) or (left and not aborted and exits):
        rank = _earliest(_taking_part(left, heard), heard)
        return where.failure("failed", rank, "left without a word (exit code 0) before its work was done")
    if aborted:
        return where.failure("failed", aborted[0], f"was ended by SIGABRT{_last_words(folder)}")
    if errors:
        return _raised(errors[0], where)
    cell = unfinished[0] if unfinished else None
    return Failure("failed", f"the workers ended before their work was done{_last_words(folder)}", cell, None)


@dataclass(frozen=True)
class _Where:
    """Where a rank was last heard."""

    heard: Mapping[int, Beat]
    unfinished: Sequence[str]

    def cell(self, rank: int | None, named: Any = None) -> str | None:
        beat = self.heard.get(rank) if rank is not None else None
        for name in (named, beat.cell if beat else None):
            if name in self.unfinished:
                return str(name)
        return self.unfinished[0] if self.unfinished else None

    def failure(self, status: str, rank: int, what: str, named: Any = None) -> Failure:
        return Failure(status, f"rank {rank} {what}", self.cell(rank, named), rank)

    def last(self, rank: int) -> str:
        beat = self.heard.get(rank)
        return f"in {beat.cell} at step {beat.step}" if beat else "before its first step"


def _raised(error: Mapping[str, Any], where: _Where) -> Failure:
    message = _short(str(error.get("message") or ""))
    if OUT_OF_MEMORY.search(_text(error)):
        more = f": {message}" if message else ""
        return where.failure("oom", error["rank"], f"ran out of memory{more}", error.get("cell"))
    said = f"raised {error.get('type') or 'an exception'}" + (f": {message}" if message else "")
    return where.failure("failed", error["rank"], said, error.get("cell"))


def _hung(
    errors: Sequence[Mapping[str, Any]], silent: Sequence[int], where: _Where, stopped: str | None, ranks: int,
    now: float,
) -> Failure:  # fmt: skip
    suspects = _taking_part([rank for rank in silent if rank < ranks] or range(ranks), where.heard)
    rank = _earliest(suspects, where.heard)
    ended = float(errors[0].get("time") or now) if errors else now
    beat = where.heard.get(rank)
    ago = f", {max(0.0, ended - beat.time):.0f} s before " if beat else ", "
    if errors:
        waiting = " and ".join(str(error["rank"]) for error in errors)
        end = f"{'rank' if len(errors) == 1 else 'ranks'} {waiting} gave up waiting"
    else:
        end = "the launch was stopped" if stopped == "timeout" else "the launch was stopped for silence"
    joined = ago + end if beat else f": {end}"
    return where.failure("timeout", rank, f"hung: it was last heard {where.last(rank)}{joined}")


def _taking_part(ranks: Sequence[int], heard: Mapping[int, Beat]) -> Sequence[int]:
    """Those of the ranks that have a part in the cell they were last heard in; the others only wait for its end."""
    return [rank for rank in ranks if rank not in heard or heard[rank].step >= 0] or ranks


def _earliest(ranks: Sequence[int], heard: Mapping[int, Beat]) -> int:
    """The rank not heard for longest; one never heard comes first."""
    return min(ranks, key=lambda rank: heard[rank].time if rank in heard else 0.0)


def _errors(folder: Path, ranks: int) -> list[dict[str, Any]]:
    """What ranks wrote about their own failures, the first in time first."""
    found = []
    for rank in range(ranks):
        try:
            error = json.loads((folder / f"error.{rank}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(error, dict):
            found.append({**error, "rank": rank})
    return sorted(found, key=lambda error: float(error.get("time") or 0.0))


def _text(error: Mapping[str, Any]) -> str:
    return f"{error.get('type')}: {error.get('message')}"


def _neighbour(error: Mapping[str, Any]) -> bool:
    """Whether an error speaks of another rank's end rather than of this one's own fault."""
    text = _text(error)
    return not OUT_OF_MEMORY.search(text) and bool(NEIGHBOUR.search(text) or TIMEOUT.search(text))


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = re.sub(r"^\[[^\]]*\]\s*(?:err == 0\.\s*)?", "", lines[0]) if lines else ""
    return first if len(first) <= LONGEST else f"{first[:LONGEST]} ..."


def _last_words(folder: Path) -> str:
    """The last line of the output that looks like an error, behind a colon; nothing where there is none."""
    try:
        text = (folder / "output.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in reversed(text.splitlines()):
        named = re.match(r"(?:\[rank\d+\]:\s*)?\s*[\w.]*(?:Error|Exception)\b\s*:", line)
        if named and "ChildFailedError" not in line and not NEIGHBOUR.search(line):
            return f": {_short(line)}"
    return ", without a message"
