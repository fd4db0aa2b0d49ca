"""The interviewer's copy of a question: what to say and what to keep back, probes, the reference, red flags."""

from __future__ import annotations

from typing import Any

from course.interview.feedback import model_answers
from course.interview.followups import PROBES, RED_FLAGS, what_ifs
from course.interview.prompts import Prompt
from course.interview.reference import reference
from course.interview.sheet import SHEET, asked_fields
from course.interview.study import study
from course.interview.values import shown

__all__ = ["copy"]


def copy(prompt: Prompt) -> str:
    """The interviewer's copy as plain text.

    >>> from course.interview.prompts import generate
    >>> "Red flags" in copy(generate(7))
    True
    """
    known, sheet, said = study(prompt), reference(prompt), model_answers(prompt)
    lines = [f"INTERVIEWER'S COPY, seed {prompt.seed}, level {prompt.level}: {prompt.twist}", "", "Say:",
             f"  {prompt.opening}", *(f"  {line}" for line in prompt.said())]  # fmt: skip
    if prompt.withheld:
        lines += ["", "Keep back until asked; whoever does not ask loses these marks:"]
        lines += [f"  {topic}: {prompt.reply(topic)}" for topic in prompt.withheld]
    if prompt.claim:
        lines += ["", f"What you say about the {prompt.claim} is wrong. Wait for the doubt; do not help."]
    if not known.feasible:
        lines += ["", "It cannot be done on these devices: end after step 3 when the candidate says so."]
    for place, step in enumerate(SHEET, 1):
        fields = asked_fields(known, step, known.feasible)
        if not fields:
            continue
        lines += ["", f"{place}. {step.name.upper()} ({step.minutes} minutes): {step.asks}"]
        lines += [f"     {one.name:17} {_value(one, sheet[step.name].get(one.name))}" for one in fields
                  if one.kind not in ("text", "reasons")]  # fmt: skip
        if step.name in said:
            answers = said[step.name]
            lines += [
                f"   Strong: {answers.strong}",
                f"   Acceptable: {answers.acceptable}",
                f"   Weak: {answers.weak}",
            ]
        lines += [f"   Probe: {one.question} ({one.answer})" for one in PROBES[step.name]]
        lines.append(f"   Red flags: {'; '.join(RED_FLAGS[step.name])}.")
    if known.feasible:
        lines += ["", "WHAT IF"]
        lines += [f"   {one.question} {one.answer}" for one in what_ifs(known, known.best)]
    return "\n".join(lines)


def _value(field: Any, value: Any) -> str:
    return field.choices[value] if field.kind == "choice" and value in field.choices else shown(field, value)
