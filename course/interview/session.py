"""One interview in progress: the sheet, what was asked, the clock; saved whole after every answer."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.files import digest, read_text, write_atomically
from course.interview.judge import Result, grade
from course.interview.prompts import Prompt, generate
from course.interview.sheet import SHEET, Field, Step, asked_fields, empty
from course.interview.statements import offered
from course.interview.study import study
from course.interview.twists import ASKABLE

__all__ = ["MINUTES", "Session", "resume", "start"]

FORMAT = 2
SHUFFLED = ("check_route", "record", "held", "stop", "convention")
"""Choices without an order of their own."""
MINUTES = sum(step.minutes for step in SHEET)
"""What a whole interview may take."""


@dataclass
class Session:
    """The state of one interview.

    `place` counts the blanks answered or passed over; `seconds` is the time spent on each step; `clock` gives seconds.
    """

    prompt: Prompt
    answers: dict[str, dict[str, Any]] = field(default_factory=empty)
    asked: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    place: int = 0
    clock: Callable[[], float] = time.monotonic
    started: float | None = None

    # ---------------------------------------------------------------- the sheet
    def blanks(self) -> list[tuple[Step, Field]]:
        """The blanks of this interview in order; later ones fall away where nothing is said to fit."""
        ends = self.answers["shard"].get("feasible") == "no"
        known, found = study(self.prompt), []
        for step in SHEET:
            fields = asked_fields(known, step, not (ends and step.name not in ("estimate", "constrain")))
            found += [(step, one) for one in fields]
        return found

    @property
    def current(self) -> tuple[Step, Field] | None:
        """The blank that is next, or None at the end."""
        blanks = self.blanks()
        return blanks[self.place] if self.place < len(blanks) else None

    def choices(self, step: Step, blank: Field) -> dict[str, str]:
        """The choices of a blank; reasons depend on the layout chosen so far."""
        if blank.kind != "reasons":
            options = list((blank.choices or {}).items())
            if blank.name in SHUFFLED:
                random.Random(f"choices/{self.prompt.seed}/{step.name}/{blank.name}").shuffle(options)
            return dict(options)
        chosen = {**self.answers["shard"], **self.answers["batch"], **self.answers["place"]}
        known = study(self.prompt)
        layout = known.completed(chosen) if self.answers["shard"].get("tensor") else None
        return {one.key: one.text for one in offered(known, step.name, layout)}

    def write(self, step: str, name: str, value: Any) -> None:
        """Fill in one blank."""
        self.answers[step][name] = value

    def ask(self, topic: str) -> str:
        """Ask the interviewer about a topic; returns the reply.

        Raises:
            UserError: nobody can answer that; the sentence names the topics.
        """
        word = topic.strip().lower()
        found = [name for name in ASKABLE if word and name.startswith(word)]
        if len(found) != 1:
            about = "; ".join(f"{name} ({words})" for name, words in ASKABLE.items())
            raise UserError(f"Ask about one of these: {about}.")
        if found[0] not in self.asked:
            self.asked = (*self.asked, found[0])
        return self.prompt.reply(found[0])

    # ---------------------------------------------------------------- the clock
    def tick(self) -> None:
        """Add the time since the last tick to the step at hand."""
        now = self.clock()
        if self.started is not None:
            here = self.current
            name = here[0].name if here else SHEET[-1].name
            self.seconds[name] = self.seconds.get(name, 0.0) + max(0.0, now - self.started)
        self.started = now

    def spent(self, step: str | None = None) -> float:
        """Minutes spent, on one step or in all."""
        return (sum(self.seconds.values()) if step is None else self.seconds.get(step, 0.0)) / 60

    def grade(self) -> Result:
        """The verdict on what is filled in."""
        return grade(self.prompt, self.answers, self.asked)

    # ---------------------------------------------------------------- the file
    def save(self, path: Path) -> None:
        """Write the state to a file, whole or not at all."""
        document = {
            "format": FORMAT, "seed": self.prompt.seed, "level": self.prompt.level, "twist": self.prompt.twist,
            "question": _mark(self.prompt), "asked": list(self.asked), "answers": self.answers,
            "seconds": {name: round(spent, 1) for name, spent in self.seconds.items()}, "place": self.place,
            "done": self.current is None,
        }  # fmt: skip
        write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def start(seed: int, level: int | None = None, twist: str | None = None) -> Session:
    """A new interview.

    >>> session = start(7)
    >>> session.current[1].name, session.ask("dead")[:7]
    ('doubt', 'It must')
    """
    return Session(generate(seed, level, twist))


def resume(path: Path) -> Session:
    """The interview a file holds; one that was finished stands at its end.

    Raises:
        UserError: it is no such file, or the question of its seed is another one now.
    """
    text = read_text(path, "interview", "the file of an interview", ", so no interview stands in it. Move it away.")
    no = f"{path.name} holds no interview that can be taken up. Move it away to begin anew."
    try:
        held = json.loads(text)
        session = Session(generate(held["seed"], held["level"], held["twist"]))
        if held["format"] != FORMAT or held["question"] != _mark(session.prompt):
            raise UserError(f"{path.name} was written by another version, whose question for this seed was another. "
                            "Move it away to begin anew.")  # fmt: skip
        for step, fields in session.answers.items():
            fields.update({name: _value(value) for name, value in held["answers"][step].items() if name in fields})
        session.asked = tuple(topic for topic in held["asked"] if topic in ASKABLE)
        session.seconds = {str(name): max(0.0, float(spent)) for name, spent in held["seconds"].items()}
        session.place = len(session.blanks()) if held["done"] else max(0, int(held["place"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(no) from None
    return session


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _mark(prompt: Prompt) -> str:
    return digest(" ".join([prompt.opening, *prompt.said(tuple(ASKABLE))]).encode())[:16]
