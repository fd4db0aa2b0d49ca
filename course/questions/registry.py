"""Questions by id and by step, found in the modules of this package.

>>> default().get("estimate.1").step
'estimate'
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

from course.errors import UserError
from course.questions.kinds import Question

__all__ = ["STEPS", "Registry", "default"]

STEPS = (
    "start", "estimate", "constrain", "shard", "place", "batch", "mfu", "overlap", "sweep", "scaling", "lab",
    "interview",
)  # fmt: skip
"""Steps in the order of the course; one that has no module yet is passed over."""

EXTRA = "COURSE_QUESTIONS"
"""Environment variable: more modules with a `QUESTIONS` tuple, joined by commas."""


class Registry:
    """The questions of some modules, each of which holds a tuple `QUESTIONS`."""

    def __init__(self, modules: Iterable[str]) -> None:
        self._questions: dict[str, Question] = {}
        for name in modules:
            for question in import_module(name).QUESTIONS:
                if question.id in self._questions:
                    raise ValueError(f"Two questions have the id {question.id}.")
                self._questions[question.id] = question

    def get(self, name: str) -> Question:
        """Return the question of an id.

        Raises:
            UserError: there is none; the message names the nearest.
        """
        found = self._questions.get(name) if isinstance(name, str) else None
        if found is None:
            near = difflib.get_close_matches(str(name)[:100], self._questions, n=1, cutoff=0.6)
            hint = f"Did you mean {near[0]!r}?" if near else 'An id looks like "estimate.3".'
            raise UserError(f"There is no question {str(name)[:100]!r}. {hint}")
        return found

    def all(self) -> tuple[Question, ...]:
        """Every question, in the order of the course."""
        return tuple(self._questions.values())

    def steps(self) -> dict[str, tuple[Question, ...]]:
        """The questions by step."""
        names = dict.fromkeys(question.step for question in self.all())
        return {name: tuple(q for q in self.all() if q.step == name) for name in names}


def default() -> Registry:
    """The questions of the course, and those of the modules that COURSE_QUESTIONS names."""
    extra = tuple(name for name in os.environ.get(EXTRA, "").split(",") if name)
    return _registry(extra)


@lru_cache(maxsize=8)
def _registry(extra: tuple[str, ...]) -> Registry:
    own = [f"course.questions.{step}" for step in STEPS]
    return Registry([name for name in own if find_spec(name) is not None] + list(extra))
