"""The clean process: answers requests about questions, one line of JSON each, out of reach of a notebook.

Right answers are computed here. What a notebook does to the library, to NumPy or to Python stays in the notebook.

>>> handle({"do": "hint", "id": "estimate.1", "level": 1})["text"][:12]
'Hint 1 of 3:'
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

from course.errors import UserError
from course.grading import judge
from course.grading.exercise import asked_unit
from course.questions.registry import default

__all__ = ["handle", "main"]

Data = dict[str, Any]


def handle(request: Data) -> Data:
    """Answer one request. `do` is "check", "hint", "ask" or "list"; a wrong id gives `problem`, a sentence."""
    try:
        return _ACTIONS[request["do"]](request)
    except UserError as error:
        return {"problem": str(error)}


def _check(request: Data) -> Data:
    question = default().get(request["id"])
    answer, nonce = request["answer"], int(request.get("nonce", 0))
    if answer["kind"] == "function" and (calls := judge.calls(question, nonce)) is not None:
        return {"calls": calls, "apart": question.kind == "bug hunt"}
    if answer["kind"] == "record" and "nonce" in request and answer.get("nonce", 0) != nonce:
        return {"status": "error", "mistake": None, "message": "This record belongs to another run."}
    return judge.grade(question, answer, request.get("seed")).data()


def _hint(request: Data) -> Data:
    question = default().get(request["id"])
    level = max(1, int(request["level"]))
    if level <= len(question.hints):
        text = f"Hint {level} of {len(question.hints)}: {question.hints[level - 1]}"
        return {"text": text, "most": len(question.hints)}
    again = "\n".join(f"{number}. {hint}" for number, hint in enumerate(question.hints, 1))
    return {"text": f"There are no more hints. These were:\n\n{again}"}


def _ask(request: Data) -> Data:
    question = default().get(request["id"])
    seed = request.get("seed")
    if request.get("fresh"):
        if question.draw is None:
            return {"problem": f"{question.id} has no numbers that could change."}
        seed = random.SystemRandom().randrange(1, 1_000_000) if seed is None else seed
    level = {1: "easy", 2: "middling", 3: "hard"}[question.difficulty]
    head = f"{question.id}: {question.title} ({level}, about {question.minutes} min)"
    call = f'check("{question.id}", answer' + (f", seed={seed})" if seed is not None else ")")
    return {"head": head, "text": question.text(seed) + asked_unit(question), "call": call, "seed": seed}


def _list(request: Data) -> Data:  # noqa: ARG001
    rows = [[q.id, q.step, q.title, q.kind, q.difficulty, q.minutes] for q in default().all()]
    return {"questions": rows}


_ACTIONS = {"check": _check, "hint": _hint, "ask": _ask, "list": _list}


def main() -> None:
    """Serve requests from stdin until it closes."""
    into = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing that is printed may look like an answer
    for line in sys.stdin:
        number = None
        try:
            request = json.loads(line)
            number = request.get("number")
            reply = handle(request)
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"}
        into.write(json.dumps({**reply, "number": number}) + "\n")
        into.flush()
