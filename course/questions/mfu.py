"""Step 6, MFU: what is asked about utilisation, conventions, hours, speedup and efficiency, from easy to hard."""

from __future__ import annotations

from course.questions import mfu_hours, mfu_hunts, mfu_scaling, mfu_use
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (*mfu_use.QUESTIONS, *mfu_hours.QUESTIONS, *mfu_scaling.QUESTIONS, *mfu_hunts.QUESTIONS)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
