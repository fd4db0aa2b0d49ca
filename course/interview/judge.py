"""A sheet graded by the library, step by step; a mistake counts at the step where it is made and not where it leads.

>>> from course.interview.prompts import generate
>>> from course.interview.reference import reference
>>> asked = generate(7)
>>> grade(asked, reference(asked), asked.withheld).score
1.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from course.interview import judge_cost, judge_layout, judge_needs
from course.interview.clean import cleaned
from course.interview.marks import Mark, Own, once
from course.interview.prompts import Prompt
from course.interview.sheet import SHEET, Answers, Step, asked_fields
from course.interview.study import Study, study
from course.problem import Layout

__all__ = ["Result", "StepResult", "grade"]

STRONG, ACCEPTABLE = 0.8, 0.5
"""Scores from which a step, or the whole, is called strong or acceptable."""


NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class StepResult:
    """One step judged; `reached` is False where the interview ended before it."""

    name: str
    marks: tuple[Mark, ...]
    reached: bool = True

    @property
    def score(self) -> float:
        """Share of the weight that was earned, 0 to 1."""
        whole = sum(mark.weight for mark in self.marks)
        return sum(mark.credit * mark.weight for mark in self.marks) / whole if whole else 0.0

    @property
    def counts(self) -> bool:
        """Whether anything of it is part of the score."""
        return any(mark.weight for mark in self.marks)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Names of the mistakes made in this step, each once."""
        return tuple(dict.fromkeys(mark.mistake for mark in self.marks if mark.mistake and mark.weight))

    @property
    def word(self) -> str:
        """Strong, acceptable or weak; "not reached" where nothing was asked."""
        if not self.reached:
            return "not reached"
        return "strong" if self.score >= STRONG else "acceptable" if self.score >= ACCEPTABLE else "weak"


@dataclass(frozen=True)
class Result:
    """An interview judged."""

    steps: tuple[StepResult, ...]

    @property
    def score(self) -> float:
        """Mean over the steps that count, 0 to 1."""
        counted = [step.score for step in self.steps if step.counts]
        return sum(counted) / len(counted) if counted else 0.0

    @property
    def word(self) -> str:
        """Strong, acceptable or weak."""
        return "strong" if self.score >= STRONG else "acceptable" if self.score >= ACCEPTABLE else "weak"

    @property
    def weakest(self) -> StepResult:
        """The step with the lowest score of those that were reached, the first of them."""
        return min((step for step in self.steps if step.reached and step.counts), key=lambda step: step.score,
                   default=self.steps[0])  # fmt: skip


def grade(prompt: Prompt, answers: Answers, asked: Iterable[str] = ()) -> Result:
    """Grade a sheet.

    Args:
        prompt: the question.
        answers: step -> field -> value, in the units of the sheet.
        asked: topics the candidate asked the interviewer about.

    Returns the marks of every step. What is no value of its blank counts as left blank; nothing is raised for it.
    A step that the library cannot judge says so in a sentence and does not count; the others are judged.
    """
    known, own = study(prompt), Own(cleaned(answers))
    marks: dict[str, list[Mark]] = {
        "estimate": _judged("estimate", lambda: judge_needs.estimate(known, own, tuple(asked))),
        "constrain": _judged("constrain", lambda: judge_needs.constrain(known, own)),
        "shard": _judged("shard", lambda: judge_layout.shard(known, own)),
    }
    ended = not known.feasible or own.get("shard", "feasible") == "no"
    if not ended:
        later = _judged("batch", lambda: judge_layout.batch(known, own, marks["shard"]))
        layouts = _else([known.best], lambda: judge_layout.variants(known, own, [*marks["shard"], *later]))
        placed = _judged("place", lambda: judge_layout.place(known, own, layouts))
        layouts = _else(layouts, lambda: judge_layout.replaced(known, layouts, placed))
        marks |= {
            "place": placed, "batch": later,
            "mfu": _judged("mfu", lambda: judge_cost.mfu(known, own, layouts)),
            "overlap": _judged("overlap", lambda: judge_cost.overlap(known, own, layouts)),
            "sweep": _judged("sweep", lambda: judge_cost.sweep(known, own, layouts)),
        }  # fmt: skip
    steps = []
    for step in SHEET:
        found = _counted(known, step, marks.get(step.name, ()))
        if not found and known.feasible:  # given up early: these steps were there to be answered
            found = (Mark(step.name, "left", 0.0, 1.0, "reason"),)
        steps.append(StepResult(step.name, found, step.name in marks))
    return Result(tuple(steps))


def _judged(step: str, judge: Callable[[], list[Mark]]) -> list[Mark]:
    """The marks of one step; whatever goes wrong inside becomes a sentence, since a sheet must never be lost."""
    try:
        return once(judge())
    except Exception as error:
        said = f"The library could not judge this step ({type(error).__name__}: {error}); it is left out of the score."
        return [Mark(step, NOT_JUDGED, 0.0, 0.0, "reason", "", said)]


def _else(fallback: list[Layout], find: Callable[[], list[Layout]]) -> list[Layout]:
    """The layouts found, or the fallback where that cannot be done with what was written."""
    try:
        return find()
    except Exception:
        return fallback


def _counted(known: Study, step: Step, marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The marks without those of blanks that this interview does not ask for."""
    skipped = {field.name for field in step.fields} - {field.name for field in asked_fields(known, step)}
    return tuple(mark for mark in marks if mark.name not in skipped)
