"""The outcome of grading before it is shown: status, recognised mistake, sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Verdict", "refused", "right", "wrong"]


@dataclass(frozen=True)
class Verdict:
    """Status ("right", "wrong", "unanswered", "error"), name of the mistake or None, one or two sentences."""

    status: str
    mistake: str | None = None
    message: str = ""

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def right(message: str = "") -> Verdict:
    """The answer is right."""
    return Verdict("right", None, message)


def wrong(message: str, mistake: str | None = None) -> Verdict:
    """The answer is wrong, by a recognised mistake or not."""
    return Verdict("wrong", mistake, message)


def refused(message: str) -> Verdict:
    """The answer is of a kind that cannot be graded."""
    return Verdict("error", None, message)
