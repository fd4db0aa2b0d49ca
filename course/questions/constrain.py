"""Step 2, constrain: what is asked about fitting, activations, splitting and mixtures, from easy to hard."""

from __future__ import annotations

from course.questions import constrain_activations, constrain_hunts, constrain_splits, constrain_state
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (
    *constrain_state.QUESTIONS,
    *constrain_activations.QUESTIONS,
    *constrain_splits.QUESTIONS,
    *constrain_hunts.QUESTIONS,
)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
