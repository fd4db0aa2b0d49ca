"""Napkin drills: two minutes, one number, graded by the factor it is off.

The questions are the estimates of `course.questions.interview_napkin` with fresh numbers; a known mistake is named.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from course.errors import UserError
from course.grading.arithmetic import Unreadable
from course.grading.numbers import quantity
from course.questions.interview_napkin import QUESTIONS
from course.questions.kinds import Number
from course.questions.quantities import UnknownUnit, parse

__all__ = ["CLOSE", "ROUGH", "SECONDS", "Drill", "Scored", "draw"]

SECONDS = 120
"""What a drill may take."""
CLOSE, ROUGH = 1.25, 2.0
"""Factors within which an estimate is close, and within which it is of the right size."""


@dataclass(frozen=True)
class Scored:
    """An estimate judged: 1 close, 0.5 within a factor of two, 0 beyond; the factor; what to say."""

    points: float
    factor: float
    message: str


@dataclass(frozen=True)
class Drill:
    """One question with the numbers of a seed."""

    question: Number
    seed: int

    @property
    def text(self) -> str:
        """The question in words."""
        return self.question.text(self.seed)

    @property
    def answer(self) -> float:
        """The right number, in the unit of the question."""
        return float(self.question.answer(self.question.numbers(self.seed)))

    def score(self, said: float | str) -> Scored:
        """Judge an estimate.

        Args:
            said: a number in the unit of the question, or a text with a unit of its own.

        Raises:
            UserError: it is no number above zero, or measures another quantity.

        >>> one = draw(1, 1)[0]
        >>> one.score(one.answer * 1.1).points, one.score(one.answer * 1.6).points, one.score(one.answer / 9).points
        (1.0, 0.5, 0.0)
        """
        value, right = self._value(said), self.answer
        factor = max(value / right, right / value)
        is_right = f"It is {right:.3g} {self.unit}".rstrip()
        wrong = self._mistake(value)
        if wrong and factor > CLOSE:
            return Scored(0.5 if factor <= ROUGH else 0.0, factor, f"{is_right}. {wrong}")
        if factor <= CLOSE:
            return Scored(1.0, factor, f"Close: off by a factor of {factor:.2f}. {is_right}.")
        if factor <= ROUGH:
            return Scored(0.5, factor, f"The right size: off by a factor of {factor:.2f}. {is_right}.")
        return Scored(0.0, factor, f"Off by a factor of {factor:.3g}. {is_right}. {self.question.hints[2]}")

    @property
    def unit(self) -> str:
        """The unit of the answer, as it is written."""
        return "" if self.question.unit == "1" else self.question.unit

    def _mistake(self, value: float) -> str:
        given = self.question.numbers(self.seed)
        near = [one for one in self.question.mistakes if abs(value / float(one.value(given)) - 1) < 0.05]
        return near[0].sentence() if near else ""

    def _value(self, said: float | str) -> float:
        asked = parse(self.question.unit)
        try:
            value, unit = quantity(said) if isinstance(said, str) else (float(said), "")
            written = parse(unit) if unit else None
        except (Unreadable, UnknownUnit) as error:
            raise UserError(f"{str(error).rstrip('.')}. Write a number, such as 8.4e23 or 1.3 TB.") from None
        if written is not None:
            if not written.measures(asked):
                raise UserError(f"{unit!r} does not measure this: write it in {self.unit or 'plain numbers'}.")
            value *= written.factor / asked.factor
        if not 0 < value < float("inf"):
            raise UserError("An estimate is a number above zero.")
        return value


def draw(seed: int, count: int = 5) -> list[Drill]:
    """So many drills, all different while there are enough; the same seed gives the same.

    >>> [one.question.id for one in draw(3, 2)] == [one.question.id for one in draw(3, 2)]
    True
    """
    source = random.Random(f"drills/{seed}")
    numbers = [question for question in QUESTIONS if isinstance(question, Number)]
    chosen = [question for _ in range(-(-count // len(numbers))) for question in source.sample(numbers, len(numbers))]
    return [Drill(question, source.randrange(10**6)) for question in chosen[:count]]
