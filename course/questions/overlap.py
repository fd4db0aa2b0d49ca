"""Step 7, overlap: what is asked about streams, critical paths, slow ranks and traces, from easy to hard."""

from __future__ import annotations

from course.questions import overlap_batches, overlap_hunts, overlap_ranks, overlap_streams, overlap_traces
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (
    *overlap_streams.QUESTIONS,
    *overlap_batches.QUESTIONS,
    *overlap_ranks.QUESTIONS,
    *overlap_traces.QUESTIONS,
    *overlap_hunts.QUESTIONS,
)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
