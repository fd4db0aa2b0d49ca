"""A layout, graded by the model: is it legal, does it fit, how far is it from the best."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

from course.errors import UserError
from course.grading.answers import Encoded
from course.grading.verdict import Verdict, refused, right, wrong
from course.predict import predict
from course.problem import Layout, Run
from course.questions.kinds import Given, LayoutQuestion
from course.questions.mistakes import explain
from course.sweep import search

__all__ = ["judge"]


def judge(question: LayoutQuestion, given: Given, answer: Encoded) -> Verdict:
    """Grade an encoded layout: a dictionary of fields, or a `course.problem.Layout`."""
    if answer["kind"] != "mapping":
        said = answer.get("why", "A layout is asked for")
        return refused(f'{said.rstrip(".")}: give a dictionary such as {{"tensor": 8, "data": 4}}, or a Layout.')
    run = question.run(given)
    try:
        layout = Layout(**{name: _value(item) for name, item in answer["items"]})
    except UserError as error:
        return refused(str(error))
    except (TypeError, ValueError) as error:
        return refused(f"This is no layout: {str(error).replace('Layout.__init__() ', '')}.")
    found = predict(dataclasses.replace(run, layout=layout))
    if not found["legal"]:
        return wrong(f"{explain('illegal layout')} Here: {found['reasons'][0]}.", "illegal layout")
    memory = found["memory"]
    if not memory["fits"]:
        return wrong(
            f"{explain('does not fit')} Here: stage {memory['stage']} needs {memory['peak_gib']:.1f} GiB of "
            f"{memory['capacity_gib']:.1f}.", "does not fit",
        )  # fmt: skip
    behind = found["step"]["time_s"] / _best(question.id, run) - 1
    if behind > question.within:
        return wrong(
            f"It is legal and fits, and takes {behind:.0%} longer than the best that does.", "far from the best"
        )
    return right("It is the best there is." if behind < 0.005 else f"It is within {max(behind, 0.01):.0%} of the best.")


def _value(item: Encoded) -> Any:
    if item["kind"] == "flag":
        return item["value"]
    if item["kind"] == "number":
        number = float(item["value"])
        return int(number) if number.is_integer() else number
    if item["kind"] == "text":
        return item["text"]
    if item["kind"] == "unanswered":
        return None
    if item["kind"] == "sequence":
        return tuple(_value(part) for part in item["items"])
    raise ValueError(item.get("why", "a field of it cannot be read").rstrip("."))


@lru_cache(maxsize=64)
def _best(name: str, run: Run) -> float:  # noqa: ARG001
    """Step time in s of the fastest layout that fits."""
    return float(search(dataclasses.replace(run, layout=None)).values["time_s"].min())
