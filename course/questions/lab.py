"""The lab: what is asked about measuring, fitting and one's own results, from easy to hard."""

from __future__ import annotations

from course.questions import lab_compiled, lab_hunts, lab_measure, lab_own
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (*lab_measure.QUESTIONS, *lab_compiled.QUESTIONS, *lab_own.QUESTIONS, *lab_hunts.QUESTIONS)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the lab, by number."""
