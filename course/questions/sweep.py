"""Step 8, sweep: what is asked about choosing a layout, device counts and small measured grids, from easy to hard."""

from __future__ import annotations

from course.questions import sweep_choose, sweep_devices, sweep_hunts, sweep_measure
from course.questions.kinds import Question

__all__ = ["QUESTIONS"]

_ALL = (*sweep_choose.QUESTIONS, *sweep_devices.QUESTIONS, *sweep_measure.QUESTIONS, *sweep_hunts.QUESTIONS)
QUESTIONS: tuple[Question, ...] = tuple(sorted(_ALL, key=lambda question: int(question.id.partition(".")[2])))
"""The questions of the step, by number."""
