"""Step 5, batch: what is asked about batches held, accumulation and pipeline schedules, from easy to hard."""

from __future__ import annotations

from course.questions import batch_held, batch_hunts, batch_memory, batch_programs, batch_schedules, batch_zero
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (
    *batch_held.QUESTIONS,
    *batch_schedules.QUESTIONS,
    *batch_memory.QUESTIONS,
    *batch_zero.QUESTIONS,
    *batch_hunts.QUESTIONS,
    *batch_programs.QUESTIONS,
)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
