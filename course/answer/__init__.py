"""The whole answer to a run file: eight steps, each with numbers and a reason, a layout, a short sweep to measure.

>>> from course.examples import path
>>> from course.problem import load
>>> found = answer(load(path("llama-3-8b-8-h100")))
>>> [step["name"] for step in found["steps"]][:3], found["recommended"]["layout"]["tensor"]
(['estimate', 'constrain', 'shard'], 1)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from course.answer.facts import Facts, gather
from course.answer.later import batch, mfu, overlap, sweep
from course.answer.questions import four_questions
from course.answer.steps import constrain, estimate, place, shard
from course.problem import Run
from course.sweep import proposal

__all__ = ["STEPS", "Facts", "answer", "answer_from", "gather"]

STEPS = (estimate, constrain, shard, place, batch, mfu, overlap, sweep)
"""The steps in their order; each takes the facts and gives its numbers and its reason."""


def answer(run: Run, fix: Iterable[str] = ()) -> dict[str, Any]:
    """Answer a run file; the document is that of `course answer --json`.

    `recommended` is None where nothing fits; the reasons then name what removed the last candidate.

    Args:
        run: the question; of its layout only the fields named in `fix` are held.
        fix: fields of the layout to hold at the values of the run file.

    Raises:
        UserError: a fixed field is not given, the search is too large, or a measured step or peak cannot be.
    """
    return answer_from(gather(run, fix))


def answer_from(facts: Facts) -> dict[str, Any]:
    """The document of facts already gathered."""
    found = facts.found
    steps = []
    for step in STEPS:
        numbers, reason = step(facts)
        steps.append({"name": step.__name__, "numbers": numbers, "reason": reason})
    return {
        "steps": steps,
        "recommended": facts.best,
        "proposal": [{"layout": dataclasses.asdict(found.layout(row))} for row in proposal(found)],
        "four_questions": four_questions(facts),
    }
