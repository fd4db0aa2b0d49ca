"""A bug hunt: the learner's test must pass on the good version of a function and fail on every faulty one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from course.grading.outcomes import trouble
from course.grading.verdict import Verdict, right, wrong
from course.questions.kinds import BugHunt

__all__ = ["judge", "versions"]


def _order(question: BugHunt, nonce: int) -> list[int]:
    """The order of the versions, -1 the good one; it differs with the nonce, so that counting calls is no test."""
    order = [-1, -1, *range(len(question.faults))]
    random.Random(f"{question.id}/order/{nonce}").shuffle(order)
    return order


def versions(question: BugHunt, nonce: int) -> list[list[Any]]:
    """The calls to make: the learner's test with one version each, every call in a process of its own."""
    sources = [question.good if index < 0 else question.faults[index].source for index in _order(question, nonce)]
    return [[{"kind": "source", "name": question.function, "text": text}] for text in sources]


def judge(question: BugHunt, record: Mapping[str, Any]) -> Verdict:
    """Grade what the sandboxes recorded: `cases`, one outcome a version in the order of the nonce."""
    outcomes = list(record["cases"])
    order = _order(question, int(record.get("nonce", 0)))
    if len(outcomes) != len(order):
        return wrong("Your test could not be run on every version.")
    good = [outcome for index, outcome in zip(order, outcomes, strict=True) if index < 0]
    for outcome in good:
        said = _on_good(outcome)
        if said:
            return wrong(said)
    for index, outcome in zip(order, outcomes, strict=True):
        if index >= 0 and ("refused" in outcome or "end" in outcome):
            return wrong(trouble(outcome, "on one version", "", "Your test") or "Your test could not be run.")
        if index >= 0 and not _fails(outcome):
            return wrong(f"Your test passes on a faulty version. {question.faults[index].message}", "half a test")
    return right()


def _fails(outcome: Mapping[str, Any]) -> bool:
    return "raised" in outcome or outcome.get("value", {}).get("false", False)


def _on_good(outcome: Mapping[str, Any]) -> str | None:
    if outcome.get("raised") == "AssertionError":
        return "Your test fails on the correct version: what it asserts does not hold there."
    if _fails(outcome) and "raised" not in outcome:
        return "Your test returns False on the correct version."
    if "refused" in outcome or "end" in outcome or "raised" in outcome:
        return trouble(outcome, "on the correct version", "", "Your test")
    return None
