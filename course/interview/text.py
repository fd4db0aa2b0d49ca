"""The interview in words: the question, the blanks, the score sheet; plain text, wrapped for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping

from course.interview.feedback import layout_words, model_answers
from course.interview.followups import LESSONS, probes, what_ifs
from course.interview.judge import Result, StepResult
from course.interview.session import MINUTES, Session
from course.interview.sheet import SHEET, Step
from course.interview.study import Study, study
from course.interview.values import letters
from course.problem import Layout

WIDTH = 100
BLANK = ("unanswered", "no reason", "not asked")
"""What is marked of a step of which nothing was filled in."""

__all__ = ["HELP", "choices", "clock", "opening", "step_head", "verdict", "wrapped"]

HELP = """At any blank: Enter leaves it open or keeps what is there, `back` returns to the one before, `ask TOPIC`
asks the interviewer (precision, sequence, deadline, batch, network, goodput, shape, device), `clock` shows
the time, `question` repeats the question, `done` ends the interview and grades what is there, `quit` or
Ctrl-C saves and leaves.
Numbers take a unit: 1.3 TB, 70B, 42 %, 6.3e24. Choices go by letter."""


def wrapped(text: str, indent: str = "", first: str | None = None) -> str:
    """A paragraph, wrapped."""
    begin = indent if first is None else first
    return textwrap.fill(text, WIDTH, initial_indent=begin, subsequent_indent=indent, break_on_hyphens=False)


def opening(session: Session) -> str:
    """The question as it is put."""
    prompt = session.prompt
    lines = [f"Mock interview, seed {prompt.seed}, level {prompt.level}. {MINUTES} minutes, eight steps.", ""]
    lines += [wrapped(prompt.opening), ""]
    lines += [wrapped(line, "  ", "- ") for line in prompt.said(session.asked)]
    return "\n".join([*lines, "", HELP])


def step_head(place: int, step: Step, session: Session) -> str:
    """The heading of a step, with the clock."""
    return f"\n{place}. {step.name.upper()}  {step.asks}  [{step.minutes} min; {clock(session)}]"


def clock(session: Session) -> str:
    """The time so far."""
    spent = session.spent()
    return f"{spent:.0f} of {MINUTES} min" + (" over" if spent > MINUTES else "")


def choices(options: Mapping[str, str]) -> str:
    """Choices by letter, one a line."""
    return "\n".join(wrapped(words, "         ", f"     {letter}) ") for letter, _, words in letters(options))


def verdict(session: Session, result: Result, reveal: bool = True) -> str:
    """The score sheet: each step's word, what was wrong, three answers; then what-ifs and follow-ups.

    Args:
        session: the interview.
        result: its grades.
        reveal: print the answers of the follow-ups too.

    A step of which nothing was filled in has one line: nobody reads a hundred.
    """
    known, said = study(session.prompt), model_answers(session.prompt)
    lines = ["", f"SCORE {100 * result.score:.0f} of 100: {result.word}. Time {clock(session)}.", ""]
    for place, (step, marked) in enumerate(zip(SHEET, result.steps, strict=True), 1):
        if not marked.marks:
            lines.append(f"{place}. {step.name:10} not asked in this interview")
            continue
        lines.append(f"{place}. {step.name:10} {100 * marked.score:3.0f}  {marked.word}{_late(session, step)}")
        if marked.score == 0 and all(mark.mistake in BLANK or not mark.message for mark in marked.marks):
            lines.append("   left blank")
            continue  # left blank whole
        lines += _criticism(marked)
        if marked.score < 1:
            lines.append(f"   see lessons {LESSONS[step.name]}")
        if step.name in said:
            three = said[step.name]
            lines += [
                wrapped(three.strong, "               ", "   strong:     "),
                wrapped(three.acceptable, "               ", "   acceptable: "),
                wrapped(three.weak, "               ", "   weak:       "),
            ]
    if known.feasible and said_fields(session):
        lines += _layouts(session, known)
    weakest = result.weakest
    if weakest.score < 1:
        lines += ["", f"Your weakest step is {weakest.name}. An interviewer would go on there:"]
        lines += _asked((one.question, one.answer if reveal else "") for one in probes(result))
    return "\n".join(lines)


def _layouts(session: Session, known: Study) -> list[str]:
    """The candidate's layout beside the reference, and what would become of it."""
    try:
        layout = known.completed({**session.answers["shard"], **session.answers["batch"], **session.answers["place"]})
        legal = layout is not None and "tensor" in said_fields(session) and known.predicted(layout)["legal"]
    except Exception:  # what was written makes no layout; the steps have said so
        layout, legal = None, False
    own = layout if legal and layout is not None else known.best
    lines = ["", *([_evaluated("Yours", known, own)] if legal else []), _evaluated("Reference", known, known.best)]
    whose = "" if legal else " (of the reference layout, since yours is none that is legal)"
    return [*lines, "", f"What if?{whose}", *_asked((one.question, one.answer) for one in what_ifs(known, own))]


def _evaluated(whose: str, known: Study, layout: Layout) -> str:
    """A layout in one paragraph: what it holds, how long its step is, what is exposed."""
    found = known.predicted(layout)
    memory, step = found["memory"], found["step"]
    shows = sum(part["exposed_s"] or 0.0 for part in step["communication"].values()) / step["time_s"]
    return wrapped(
        f"{whose}: {layout_words(layout)}: holds {memory['peak_gib']:.0f} of {memory['capacity_gib']:.0f} GiB, "
        f"{step['time_s']:.3g} s a step, {shows:.0%} of it exposed communication, "
        f"an MFU of {found['mfu']['full_attention']:.0%} by the model.", "   ", "")  # fmt: skip


def said_fields(session: Session) -> set[str]:
    """The fields of step 3 that were filled in."""
    return {name for name, value in session.answers["shard"].items() if value is not None}


def _late(session: Session, step: Step) -> str:
    spent = session.spent(step.name)
    return f", {spent:.0f} min where {step.minutes} would do" if spent > 1.5 * step.minutes else ""


def _criticism(step: StepResult) -> list[str]:
    blank = [_title(step.name, mark.name) for mark in step.marks if mark.mistake == "unanswered" and mark.weight]
    lines = [
        wrapped(f"{_title(step.name, mark.name)}: {mark.message}", "     ", "   - ")
        for mark in step.marks
        if (mark.credit < 1 or not mark.weight) and mark.message and mark.mistake != "unanswered"
    ]
    if blank:
        lines.append(wrapped(f"left blank: {', '.join(blank)}.", "     ", "   - "))
    return lines


TITLES = {"legal": "is the layout legal", "fits": "does the layout fit", "near": "how far is it from the best"}
ASKS = {(step.name, field.name): field.asks for step in SHEET for field in step.fields}


def _title(step: str, name: str) -> str:
    """A blank in the words of its question.

    >>> _title("estimate", "parameters"), _title("mfu", "why_mfu"), _title("shard", "fits")
    ('parameters of the model', 'your reasons', 'does the layout fit')
    """
    if name.startswith("why_"):
        return "your reasons"
    asks = ASKS.get((step, name.removesuffix(", a note")))
    if asks is None:
        return TITLES.get(name, name)
    short = re.split(r"[.?(:;]", asks)[0].strip()
    return short if short[:3].isupper() or short[:1] == "F" else short[:1].lower() + short[1:]


def _asked(pairs: Iterable[tuple[str, str]]) -> list[str]:
    lines = []
    for question, answer in pairs:
        lines += [wrapped(question, "  ", "- "), *([wrapped(answer, "  ", "  ")] if answer else [])]
    return lines
