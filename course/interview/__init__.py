"""A mock interview over one core: a question from a seed, an eight-step sheet, and a verdict by the library.

>>> asked = generate(7)
>>> asked.seed, asked.level in (1, 2, 3), bool(asked.opening)
(7, True, True)
"""

from __future__ import annotations

from course.interview.judge import Result, grade
from course.interview.prompts import LEVELS, TWISTS, Prompt, generate
from course.interview.reference import reference
from course.interview.sheet import SHEET, Step
from course.interview.study import study
from course.interview.widgets import widget

__all__ = ["LEVELS", "SHEET", "TWISTS", "Prompt", "Result", "Step", "generate", "grade", "reference", "study", "widget"]
