"""What a question is: its words, its numbers, its right answer as a function of them, and the mistakes that are known.

Six kinds. A number with a unit; an expression; a function; a judgement, a choice with its reason; a layout; a bug hunt.
A question holds no figure that can be computed: the right answer and every wrong one follow from `given`.

>>> double = Number(id="demo.1", title="Twice", prompt="Twice {x:g}?", given={"x": 4.0}, answer=lambda g: 2 * g["x"],
...                 hints=("one", "two", "three"), difficulty=1, minutes=1, source="made up", unit="1")
>>> double.text(), double.answer(double.numbers())
('Twice 4?', 8.0)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from course.questions.mistakes import MISTAKES

__all__ = [
    "BugHunt",
    "Draw",
    "Expression",
    "Fault",
    "Function",
    "Given",
    "Judgement",
    "LayoutQuestion",
    "Mistake",
    "Number",
    "Question",
]

Given = Mapping[str, Any]
Draw = Callable[[random.Random], dict[str, Any]]


@dataclass(frozen=True)
class Mistake:
    """One known wrong answer.

    Args:
        name: a key of `course.questions.mistakes.MISTAKES`.
        value: the wrong answer as a function of the numbers: a number, an expression, a function, or a pair
            (choice, reason) in which None stands for any.
        message: what to say; it names the mistake and gives nothing of the answer away. The mistake's line if empty.
    """

    name: str
    value: Callable[[Given], Any]
    message: str = ""

    def __post_init__(self) -> None:
        if self.name not in MISTAKES:
            raise ValueError(f"{self.name!r} is not in the table of mistakes.")

    def sentence(self) -> str:
        """The message, or the line of the table."""
        return self.message or MISTAKES[self.name]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What all kinds share.

    Args:
        id: step and number, `"estimate.3"`.
        title: two to six words.
        prompt: the question, a `str.format` template over the numbers.
        hints: three, from a nudge to nearly all of the way.
        difficulty: 1 to 3.
        minutes: how long it takes, about.
        source: where the confusion comes from: a case id, a thread, a published figure.
        given: the numbers of the printed exercise.
        draw: fresh numbers from a random generator; None when the question has none.
        mistakes: the known wrong answers.
    """

    id: str
    title: str
    prompt: str
    hints: tuple[str, str, str]
    difficulty: int
    minutes: int
    source: str
    given: Given = field(default_factory=dict)
    draw: Draw | None = None
    mistakes: tuple[Mistake, ...] = ()

    def __post_init__(self) -> None:
        if len(self.hints) != 3 or not all(self.hints):
            raise ValueError(f"{self.id} needs three hints.")
        if self.difficulty not in (1, 2, 3) or self.minutes < 1:
            raise ValueError(f"{self.id}: difficulty is 1 to 3, minutes at least 1.")

    @property
    def step(self) -> str:
        """The part of the id before the dot."""
        return self.id.rpartition(".")[0]

    @property
    def kind(self) -> str:
        """The kind in a word, as people see it."""
        return _KIND_WORDS[type(self).__name__]

    def numbers(self, seed: int | None = None) -> dict[str, Any]:
        """The numbers of the exercise, or fresh ones for a seed; the same seed gives the same numbers."""
        if seed is None or self.draw is None:
            return dict(self.given)
        # the id takes part, so that one seed gives different numbers to questions with one draw
        return {**self.given, **self.draw(random.Random(f"{self.id}/{seed}"))}

    def text(self, seed: int | None = None) -> str:
        """The question in words, with its numbers in place."""
        return self.prompt.format(**self.numbers(seed))


@dataclass(frozen=True, kw_only=True)
class Number(Question):
    """A number with a unit; right within `relative` of the answer, or `absolute` of it where it may be zero."""

    answer: Callable[[Given], float]
    unit: str
    relative: float = 0.01
    absolute: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Expression(Question):
    """A formula in the symbols named by key; graded by equivalence, so every way to write it counts."""

    answer: Callable[[Given], Any]
    symbols: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Function(Question):
    """A function of the arguments named; graded on random inputs against the library.

    `case(random)` draws the arguments of one call, by name: numbers or NumPy arrays. `edges` are calls made always.
    """

    arguments: tuple[str, ...]
    case: Draw
    answer: Callable[..., Any]
    unit: str
    edges: tuple[dict[str, Any], ...] = ()
    calls: int = 12
    relative: float = 1e-6
    absolute: float = 1e-12

    def cases(self, nonce: int = 0) -> list[dict[str, Any]]:
        """The edges, then random calls; another nonce gives others."""
        source = random.Random(f"{self.id}/cases/{nonce}")
        return [dict(edge) for edge in self.edges] + [self.case(source) for _ in range(self.calls)]


@dataclass(frozen=True, kw_only=True)
class Judgement(Question):
    """A choice by letter and a reason by number; only both together are right."""

    choices: Mapping[str, str]
    reasons: Mapping[str, str]
    answer: Callable[[Given], tuple[str, str]]

    def text(self, seed: int | None = None) -> str:
        """The question, then the choices and the reasons, one a line."""
        options = [f"- ({key}) {words}" for key, words in (*self.choices.items(), *self.reasons.items())]
        numbers = self.numbers(seed)
        return "\n".join([super().text(seed), "", *(line.format(**numbers) for line in options)])


@dataclass(frozen=True, kw_only=True)
class LayoutQuestion(Question):
    """A layout for a run; graded by the model: legal, fitting, and within `within` of the best step time."""

    run: Callable[[Given], Any]
    within: float = 0.05


@dataclass(frozen=True)
class Fault:
    """A faulty version of a function: its source, and what to say when a test lets it pass."""

    source: str
    message: str


@dataclass(frozen=True, kw_only=True)
class BugHunt(Question):
    """A test to write: a function that takes a function, and fails on the faulty versions alone.

    Sources are text, complete in themselves, and all define `function`.
    """

    function: str
    good: str
    faults: tuple[Fault, ...]


_KIND_WORDS = {
    "Number": "number",
    "Expression": "expression",
    "Function": "function",
    "Judgement": "judgement",
    "LayoutQuestion": "layout",
    "BugHunt": "bug hunt",
}
