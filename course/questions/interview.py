"""The interview: two-minute estimates on a napkin, then judgements an interviewer asks for, from easy to hard."""

from __future__ import annotations

from course.questions import interview_judgements, interview_napkin
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (*interview_napkin.QUESTIONS, *interview_judgements.QUESTIONS)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the interview, by number."""
