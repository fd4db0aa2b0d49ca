"""A learner's function, judged by what it returned in the sandbox: against the library, case by case.

The values come from another process, as plain data; this module computes what they should have been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from course.grading.cell import decode, encode_value
from course.grading.numbers import expected
from course.grading.outcomes import trouble
from course.grading.verdict import Verdict, refused, right, wrong
from course.questions.kinds import Function, Given

__all__ = ["cases", "judge"]


def cases(question: Function, nonce: int) -> list[list[Any]]:
    """The calls to make, each a list of encoded arguments in the order of the question."""
    return [[encode_value(case[name]) for name in question.arguments] for case in question.cases(nonce)]


def judge(question: Function, given: Given, record: Mapping[str, Any]) -> Verdict:
    """Grade what a sandbox recorded: `cases` (an outcome each), `end` (how the process ended), `nonce`."""
    inputs = question.cases(int(record.get("nonce", 0)))
    outcomes = record["cases"]
    for case, outcome in zip(inputs, outcomes, strict=False):
        where = f"for {_show(case)}"
        said = trouble(outcome, where, f"a number is expected. {expected(question.unit)}")
        if said:
            return wrong(said)
        target = np.asarray(question.answer(**case), dtype=float)
        value = decode(outcome["value"])
        if np.shape(value) != target.shape:
            return wrong(f"Your function returns {_form(value)} {where}; {_form(target)} is expected.")
        if not _agree(value, target, question):
            return _named(question, given, inputs, outcomes) or wrong(
                f"Your function is wrong {where}: it returns {_figure(value)}. {expected(question.unit)}"
            )
    if record["end"] != "done" or len(outcomes) < len(inputs):
        place = min(len(outcomes), len(inputs) - 1)
        return wrong(
            trouble({"end": record["end"]}, f"for {_show(inputs[place])}", "") or "Your function did not return."
        )
    return right(_manners(outcomes))


def _agree(value: Any, target: np.ndarray, question: Function) -> bool:
    return bool(
        np.all(
            np.abs(np.asarray(value, float) - target)
            <= np.maximum(question.relative * np.abs(target), question.absolute)
        )
    )


def _named(question: Function, given: Given, inputs: list[dict[str, Any]], outcomes: list[Any]) -> Verdict | None:
    """The known wrong function that returns what this one does, where there is one."""
    for mistake in question.mistakes:
        wrong_function: Callable[..., Any] = mistake.value(given)
        pairs = zip(inputs, outcomes, strict=False)
        if len(outcomes) == len(inputs) and all(_same(wrong_function(**case), out, question) for case, out in pairs):
            return wrong(f"{mistake.sentence()} {expected(question.unit)}", mistake.name)
    return None


def _same(target: Any, outcome: Mapping[str, Any], question: Function) -> bool:
    if "value" not in outcome or outcome["value"].get("kind") not in ("number", "array"):
        return False
    value = decode(outcome["value"])
    target = np.asarray(target, dtype=float)
    return np.shape(value) == target.shape and _agree(value, target, question)


def _manners(outcomes: list[Any]) -> str:
    if any(outcome.get("mutated") for outcome in outcomes):
        return "But it changes the array it is given: return a new one, or a caller's numbers are spoilt."
    if any(outcome.get("printed") for outcome in outcomes):
        return "It prints as well; only what it returns counts."
    return ""


def _form(value: Any) -> str:
    shape = np.shape(value)
    return f"an array of {' x '.join(map(str, shape))}" if shape else "one number"


def _figure(value: Any) -> str:
    shown = np.asarray(value, float).ravel()
    return f"{shown[0]:.6g}" if shown.size == 1 else "[" + ", ".join(f"{x:.6g}" for x in shown[:4]) + ", ...]"


def _show(case: Mapping[str, Any]) -> str:
    def one(value: Any) -> str:
        if isinstance(value, np.ndarray):
            return "array([" + ", ".join(f"{x:.6g}" for x in value.ravel()[:6]) + "])"
        return f"{value:.6g}" if isinstance(value, float) else repr(value)

    return ", ".join(f"{name} = {one(value)}" for name, value in case.items())


def not_a_function(kind: str, arguments: tuple[str, ...]) -> Verdict:
    """What to say when something else was given."""
    words = {"number": "a number", "text": "a text", "sequence": "several values", "mapping": "a dictionary"}
    what = words.get(kind, "this")
    return refused(f"A function of {', '.join(arguments)} is asked for, not {what}; give its name without brackets.")
