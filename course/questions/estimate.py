"""Step 1, estimate: what is asked about rates, counts of FLOPs and parameters, and memory, from easy to hard."""

from __future__ import annotations

from course.questions import estimate_counts, estimate_memory, estimate_rates, estimate_runs
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (
    *estimate_rates.QUESTIONS,
    *estimate_counts.QUESTIONS,
    *estimate_memory.QUESTIONS,
    *estimate_runs.QUESTIONS,
)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
