"""Step 3, shard: what is asked about the ladder, axes, latents, legal layouts, programs on ranks, from easy to hard."""

from __future__ import annotations

from course.questions import shard_axes, shard_hunts, shard_ladder, shard_latent, shard_legal, shard_programs
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (
    *shard_ladder.QUESTIONS,
    *shard_axes.QUESTIONS,
    *shard_latent.QUESTIONS,
    *shard_legal.QUESTIONS,
    *shard_hunts.QUESTIONS,
    *shard_programs.QUESTIONS,
)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
