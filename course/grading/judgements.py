"""A judgement: a choice by letter and its reason by number, right only together."""

from __future__ import annotations

import re

from course.grading.answers import Encoded
from course.grading.verdict import Verdict, refused, right, wrong
from course.questions.kinds import Given, Judgement

__all__ = ["judge"]


def judge(question: Judgement, given: Given, answer: Encoded) -> Verdict:
    """Grade an encoded answer such as `("b", 2)`, `"b2"`, `"b, 2"` or `{"choice": "b", "reason": 2}`."""
    how = f"Give the letter of a choice and the number of a reason, as in {_example(question)}."
    if answer["kind"] == "refused":
        return refused(f"{answer['why']} {how}")
    parts = _parts(answer)
    if parts is None:
        return refused(how)
    choice = next((part for part in parts if part in question.choices), None)
    reason = next((part for part in parts if part in question.reasons), None)
    unknown = [part for part in parts if part not in question.choices and part not in question.reasons]
    if unknown or len(parts) > 2:
        return refused(f"{(unknown or parts)[-1][:30]!r} is none of the choices and reasons. {how}")
    if choice is None and reason is None:
        return Verdict("unanswered")
    if reason is None:
        return refused(f"A reason is missing: the choice alone does not count. {how}")
    if choice is None:
        return refused(f"A choice is missing. {how}")
    best = question.answer(given)
    if (choice, reason) == best:
        return right()
    for mistake in question.mistakes:
        wanted = mistake.value(given)
        if wanted[0] in (None, choice) and wanted[1] in (None, reason):
            return wrong(mistake.sentence(), mistake.name)
    if choice == best[0]:
        return wrong("The choice holds, but not for the reason given.", "right for another reason")
    return wrong("Another choice holds here.")


def _example(question: Judgement) -> str:
    return f'("{next(iter(question.choices))}", {next(iter(question.reasons))})'


def _parts(answer: Encoded) -> list[str] | None:
    """The letters and numbers given, in small letters; None when the answer has another form."""
    if answer["kind"] == "text":
        text = answer["text"].strip().lower()
        found = re.findall(r"[a-z]+|\d+", re.sub(r"\b(choice|reason|and|because)\b", " ", text))
        return found or None
    if answer["kind"] == "number":
        return [_whole(answer["value"])]
    if answer["kind"] == "mapping":
        return _parts({"kind": "sequence", "items": [item for _, item in answer["items"]]})
    if answer["kind"] != "sequence":
        return None
    parts = []
    for item in answer["items"]:
        if item["kind"] == "unanswered":
            continue
        if item["kind"] not in ("text", "number"):
            return None
        word = item["text"].strip().lower().strip("()") if item["kind"] == "text" else _whole(item["value"])
        parts.append(word)
    return parts


def _whole(text: str) -> str:
    return text.removesuffix(".0")
