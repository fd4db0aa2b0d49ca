"""How far a measurement is: a bar with the time left where a person watches, else a line for each cell."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["Progress", "duration"]

WIDTH = 28
TRUST_S = 5.0
"""Seconds of work after which the pace counts as much as the guess."""


def duration(seconds: float) -> str:
    """Seconds as minutes and seconds.

    >>> duration(7), duration(95)
    ('7 s', '1 min 35 s')
    """
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


class Progress:
    """Tells the reader on a stream (stderr) what was done and how long the rest takes.

    The plan's own guess of each cell's seconds is scaled by how long the finished ones took.
    """

    def __init__(self, guess_s: float, total: int, stream: TextIO | None = None, show: bool = True) -> None:
        self.guess_s, self.total, self.show = guess_s, total, show
        self.stream = sys.stderr if stream is None else stream
        self.bar = show and self.stream is not None and self.stream.isatty()
        self.began = time.monotonic()
        self.done_s, self.done = 0.0, 0
        self._begun: dict[str, float] = {}
        self._drawn = 0.0

    def left_s(self) -> float:
        """Seconds the rest will take: by the guess at first, by the pace so far the more is done."""
        spent, done = time.monotonic() - self.began, self.done_s + sum(self._begun.values())
        return max(0.0, self.guess_s - done) * (spent + TRUST_S) / (done + TRUST_S)

    def finished(self, name: str, guess_s: float, said: str) -> None:
        """A cell is done: its guessed seconds, and how it went."""
        self._begun.pop(name, None)
        self.done_s += guess_s
        self.done += 1
        if self.bar:
            self._draw(name)
        elif self.show and self.stream is not None:
            rest = duration(self.left_s())
            print(f"[{self.done}/{self.total}] {name}: {said}; about {rest} left", file=self.stream, flush=True)

    def at(self, name: str, step: int, guess_s: float = 0.0, steps: int = 1) -> None:
        """A sign of life from a cell that is being measured: at this step of so many, its guessed seconds."""
        self._begun[name] = guess_s * min(1.0, step / max(steps, 1))
        if self.bar and time.monotonic() - self._drawn > 0.2:
            self._draw(f"{name} step {step}")

    def say(self, text: str) -> None:
        """A sentence of its own line."""
        if self.show and self.stream is not None:
            self.close()
            print(text, file=self.stream, flush=True)

    def close(self) -> None:
        """Wipe the bar."""
        if self.bar:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def _draw(self, what: str) -> None:
        self._drawn = time.monotonic()
        share = (self.done_s + sum(self._begun.values())) / max(self.guess_s, 1e-9)
        full = round(WIDTH * min(1.0, share))
        bar = "█" * full + "░" * (WIDTH - full)
        self.stream.write(f"\r\x1b[K{bar} {self.done}/{self.total}, {duration(self.left_s())} left  {what[:40]}")
        self.stream.flush()
