"""What grading hands on: a mark for every blank, and the candidate's own values, from which later steps are judged.

A number is right within a factor, of what follows from the truth or from the candidate's own earlier numbers: so a
mistake is marked where it is made, and not again where it leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from course.interview.mistakes import explain
from course.interview.sheet import SHEET, Answers, Field
from course.interview.statements import offered
from course.interview.study import Study
from course.problem import Layout

__all__ = ["Known", "Mark", "Own", "copied", "measured", "noted", "once", "reasons", "ruled"]

FIELDS: dict[tuple[str, str], Field] = {(step.name, field.name): field for step in SHEET for field in step.fields}
EXACT = 0.006
"""Relative distance within which a number is taken for a known wrong one."""
APART = 0.03
"""Relative distance from every right one that it must then have."""


@dataclass(frozen=True)
class Mark:
    """One blank judged: `credit` 0 to 1, `weight` in its step, the `mistake` by name or "", what to say.

    A weight of 0 means not asked, or not to be judged after an earlier mistake.
    """

    step: str
    name: str
    credit: float
    weight: float
    group: str
    mistake: str = ""
    message: str = ""


Known = Mapping[str, Iterable[float]]
"""Mistake -> the wrong values it leads to."""


@dataclass(frozen=True)
class Own:
    """A candidate's answers, cleaned: what is no value of its blank is left out."""

    answers: Answers

    def get(self, step: str, name: str) -> Any:
        """The value as it stands, or None."""
        return self.answers.get(step, {}).get(name)

    def number(self, step: str, name: str) -> float | None:
        """A finite number from 0, or None."""
        value = self.get(step, name)
        return None if value is None else float(value)

    def either(self, step: str, name: str, truth: float) -> list[float]:
        """The truth, and the candidate's own number where there is one above 0."""
        mine = self.number(step, name)
        return [truth] if not mine else [truth, mine]

    def layout(self) -> dict[str, Any]:
        """The fields of steps 3 to 5 that make a layout."""
        return {**self.answers.get("shard", {}), **self.answers.get("batch", {}), **self.answers.get("place", {})}


def ruled(
    step: str, name: str, credit: float, mistake: str = "", message: str = "", weight: float | None = None
) -> Mark:
    """A mark for a blank, with its own weight and group, and the mistake's line before the message."""
    field = FIELDS[step, name]
    said = f"{explain(mistake)} {message}".strip() if mistake else message
    return Mark(step, name, credit, field.weight if weight is None else weight, field.group, mistake, said)


def noted(step: str, name: str, message: str) -> Mark:
    """A remark on a blank that changes no score."""
    return Mark(step, f"{name}, a note", 1.0, 0.0, "reason", "", message)


def once(marks: list[Mark]) -> list[Mark]:
    """The marks of a step with a mistake that a number shows already not counted again in the reasons.

    >>> wrong = Mark("estimate", "peak", 0.0, 1.0, "number", "sparse peak")
    >>> [mark.weight for mark in once([wrong, Mark("estimate", "why_estimate", 0.0, 4.0, "reason", "sparse peak")])]
    [1.0, 0.0]
    """
    seen = {mark.mistake for mark in marks if mark.mistake and not mark.name.startswith("why_")}
    return [replace(mark, weight=0.0) if mark.name.startswith("why_") and mark.mistake in seen else mark
            for mark in marks]  # fmt: skip


def near(value: float, target: float, factor: float) -> bool:
    """Whether two numbers are within a factor of each other."""
    return value == target if not value or not target else max(value / target, target / value) <= factor


def measured(
    own: Own, step: str, name: str, targets: Iterable[float], factor: float, known: Known | None = None,
    acceptable: float = 0.0, unit: str = "", absolute: float = 0.0,
) -> Mark:  # fmt: skip
    """A number against the right ones: full marks within `factor` of any, half within `acceptable`.

    Args:
        own: the answers.
        step: the step of the blank.
        name: its name.
        targets: the right numbers, that of the truth first.
        factor: what a napkin may miss by.
        known: mistake -> wrong numbers, recognised when they are met closely.
        acceptable: a wider factor for half marks; 0 for none.
        unit: how to write it; the unit of the blank if empty.
        absolute: a difference that is as good as none.
    """
    value, right = own.number(step, name), [float(target) for target in targets]
    unit = unit or FIELDS[step, name].unit
    if value is None:
        return ruled(step, name, 0.0, "unanswered")
    about = f"About {_said(right[0])} {unit} is right; you said {_said(value)}.".replace(" %", " %")
    apart = all(abs(value - target) > max(APART * target, absolute) for target in right)
    for mistake, wrongs in (known or {}).items():
        if apart and any(wrong > 0 and abs(value / wrong - 1) < EXACT for wrong in wrongs):
            return ruled(step, name, 0.0, mistake, about)
    if any(near(value, target, factor) or abs(value - target) <= absolute for target in right):
        return ruled(step, name, 1.0)
    if acceptable and any(near(value, target, acceptable) for target in right):
        return ruled(step, name, 0.5, "", f"Rough. {about}")
    for mistake, wrongs in (known or {}).items():
        if any(near(value, wrong, 1.04) for wrong in wrongs):
            return ruled(step, name, 0.0, mistake, about)
    return ruled(step, name, 0.0, "number off", about)


def copied(first: float | None, second: float | None) -> bool:
    """Whether a second figure is the first once more: equal to more digits than two routes would share.

    >>> copied(70.5537e9, 70.5537e9), copied(70.55e9, 70.55e9)
    (True, False)
    """
    if not first or not second or abs(second / first - 1) > 1e-9:
        return False
    return float(f"{first:.4g}") != first


def _said(value: float) -> str:
    if value and not 0.01 <= abs(value) < 1e7:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def reasons(known: Study, own: Own, step: str, layout: Layout | None) -> Mark:
    """The reasons picked: all marks for two sound ones, most for one, none where one is a known mistake."""
    name = f"why_{step}"
    picked = own.get(step, name)
    keys = [picked] if isinstance(picked, str) else list(picked or ())
    there = {statement.key: statement for statement in offered(known, step, layout)}
    chosen = [there[key] for key in keys if key in there][:2]
    for statement in chosen:
        if statement.mistake:
            return ruled(step, name, 0.0, statement.mistake, f"You said: {statement.text}")
    if not chosen:
        return ruled(step, name, 0.0, "no reason")
    return ruled(step, name, 1.0 if len(chosen) > 1 else 0.75, "", "" if len(chosen) > 1 else "One reason is good; two "
                 "show that you have weighed it.")  # fmt: skip
