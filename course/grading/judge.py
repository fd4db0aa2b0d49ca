"""One door to all kinds: what is needed to grade a question, and the verdict on an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course.grading import functions, hunts
from course.grading.answers import Encoded
from course.grading.verdict import Verdict, refused
from course.questions.kinds import BugHunt, Expression, Function, Judgement, LayoutQuestion, Number, Question

__all__ = ["calls", "grade"]


def calls(question: Question, nonce: int) -> list[list[Any]] | None:
    """The calls a learner's function must be tried on, or None when the question takes no function."""
    if isinstance(question, Function):
        return functions.cases(question, nonce)
    if isinstance(question, BugHunt):
        return hunts.versions(question, nonce)
    return None


def grade(question: Question, answer: Encoded, seed: int | None = None) -> Verdict:
    """Grade an encoded answer, with the numbers of `seed` or the printed ones. Raises nothing for any answer.

    A function is given as what it did: `{"kind": "record", "cases": […], "end": …, "nonce": …}`.
    """
    if answer["kind"] == "unanswered":
        return Verdict("unanswered")
    given = question.numbers(seed)
    if isinstance(question, Function | BugHunt):
        return _called(question, given, answer)
    if answer["kind"] == "record":
        return refused("A function was given; something else is asked for.")
    if answer["kind"] == "function" and not isinstance(question, LayoutQuestion):
        return refused(f"The function {answer['name']} itself was given; call it, and give what it returns.")
    if isinstance(question, Number):
        from course.grading import numbers

        return numbers.judge(question, given, answer)
    if isinstance(question, Expression):
        from course.grading import expressions

        return expressions.judge(question, given, answer)
    if isinstance(question, Judgement):
        from course.grading import judgements

        return judgements.judge(question, given, answer)
    if isinstance(question, LayoutQuestion):
        from course.grading import layouts

        return layouts.judge(question, given, answer)
    raise TypeError(f"{type(question).__name__} is no kind of question.")


def _called(question: Function | BugHunt, given: Mapping[str, Any], answer: Encoded) -> Verdict:
    names = question.arguments if isinstance(question, Function) else (question.function,)
    if answer["kind"] == "refused":
        return refused(answer["why"])
    if answer["kind"] != "record":
        return functions.not_a_function(answer["kind"], names)
    if answer.get("end") not in ("done", None) and answer["end"].get("how") in ("source", "start"):
        from course.grading.outcomes import trouble

        return refused(trouble(answer, "", "") or "")
    if isinstance(question, Function):
        return functions.judge(question, given, answer)
    return hunts.judge(question, answer)
