"""Step 9, strong and weak scaling: what is asked about work units, families, batches and laws, from easy to hard."""

from __future__ import annotations

from course.questions import scaling_batches, scaling_hunts, scaling_laws, scaling_units
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (*scaling_units.QUESTIONS, *scaling_batches.QUESTIONS, *scaling_laws.QUESTIONS, *scaling_hunts.QUESTIONS)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
