"""Exercises, answered at once: right, not yet, or which mistake this looks like.

>>> from course.grading import check
>>> check("estimate.1", None)
estimate.1: not answered yet.

Importing this loads nothing heavy. The right answers are computed in a process of their own, so nothing that is done in
a notebook changes them.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from course.grading.report import Progress
from course.grading.result import Note, Result
from course.grading.session import Session

__all__ = ["Note", "Progress", "Result", "ask", "check", "fresh", "hint", "progress"]

_session = Session()
if "ipykernel" in sys.modules:
    with contextlib.suppress(OSError):  # said at the first check
        _session.oracle.start()  # it loads the library while the learner reads


def check(question: str, answer: Any = None, seed: int | None = None) -> Result:
    """Grade an answer at once.

    Args:
        question: an id such as `"estimate.3"`.
        answer: a number (in the unit asked for), a text with a unit such as `"3.6e25 FLOP"`, an expression, a function,
            a pair (choice, reason), a layout; None or `...` while there is none.
        seed: the seed that `fresh` showed, when the answer is to those numbers.

    Returns:
        A Result; it is true when the answer is right. Nothing is raised for any answer.

    >>> check("estimate.1", "").status
    'unanswered'
    """
    return _session.check(question, answer, seed)


def hint(question: str) -> Note:
    """The next of three hints; each call gives one more, and remembers.

    >>> hint("estimate.none")
    There is no question 'estimate.none'. ...
    """
    return _session.hint(question)


def ask(question: str) -> Note:
    """The question in words, with the numbers of the printed exercise.

    >>> "estimate.1" in repr(ask("estimate.1"))
    True
    """
    return _session.ask(question)


def fresh(question: str, seed: int | None = None) -> Note:
    """The question with new numbers; `check(question, answer, seed=…)` grades those. Without a seed, one is drawn.

    >>> repr(fresh("estimate.1", seed=3)) == repr(fresh("estimate.1", seed=3))
    True
    """
    return _session.ask(question, seed, fresh=True)


def progress(step: str | None = None) -> Progress:
    """What is done, by step: a table, and in a notebook a picture beside it.

    Args:
        step: one step alone, such as `"estimate"`; all of them when left out. A step that is not there is said so.

    >>> [row["step"] for row in progress("estimate").rows()]
    ['estimate']
    """
    return _session.progress(step)
