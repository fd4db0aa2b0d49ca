"""Step 4, place: what is asked about links, collectives, and axes on links, from easy to hard."""

from __future__ import annotations

from course.questions import place_axes, place_collectives, place_hunts, place_links, place_rules, place_tiers
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (
    *place_links.QUESTIONS,
    *place_collectives.QUESTIONS,
    *place_axes.QUESTIONS,
    *place_rules.QUESTIONS,
    *place_hunts.QUESTIONS,
    *place_tiers.QUESTIONS,
)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
