"""What the learner sees: plain sentences in a terminal, the same sentences with a bold head in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Note", "Result"]

STATUSES = ("right", "wrong", "unanswered", "error")
_HEADS = {"right": "right", "wrong": "not yet", "unanswered": "not answered yet", "error": "cannot be graded"}


@dataclass(frozen=True)
class Result:
    """The outcome of one check.

    Attributes:
        id: the question.
        status: "right", "wrong", "unanswered" or "error" (the answer is of a kind that cannot be graded).
        mistake: the name of the recognised mistake, or None.
        message: one or two sentences; never the answer.

    >>> Result("estimate.1", "right", None, "")
    estimate.1: right.
    >>> bool(Result("estimate.1", "unanswered", None, ""))
    False
    """

    id: str
    status: str
    mistake: str | None
    message: str

    def __bool__(self) -> bool:
        return self.status == "right"

    @property
    def head(self) -> str:
        """The status in words."""
        return _HEADS[self.status]

    def __repr__(self) -> str:
        return f"{self.id}: {self.head}. {self.message}".rstrip()

    def _repr_markdown_(self) -> str:
        return f"**{self.id}: {self.head}.** {self.message}".rstrip()


@dataclass(frozen=True)
class Note:
    """A text to read: a question or a hint.

    >>> Note("A hint.")
    A hint.
    """

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text
