"""One learner at work: `check`, `hint`, `fresh`, `ask` and `progress`, over clean process, sandbox and store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from course.grading import sandbox
from course.grading.answers import Encoded, encode
from course.grading.oracle import Oracle
from course.grading.report import Progress
from course.grading.result import Note, Result
from course.grading.store import Store

__all__ = ["RECORD_FILE", "RECORD_NONCE", "Session"]

RECORD_FILE = "COURSE_GRADE_FILE"
"""Environment variable: a file that every check appends a line to, for `course grade` and `course build`."""
RECORD_NONCE = "COURSE_GRADE_NONCE"
"""Environment variable: a number that decides which calls a function is tried on, so that no old record fits."""


class Session:
    """What the public functions of `course.grading` work on. `oracle` and `store` are made when first needed."""

    def __init__(self, store: Store | None = None) -> None:
        self.oracle = Oracle()
        self._store = store

    @property
    def store(self) -> Store:
        """The learner's progress."""
        if self._store is None:
            self._store = Store()
        return self._store

    # ---------------------------------------------------------------- the public functions
    def check(self, name: str, answer: Any = None, seed: int | None = None) -> Result:
        """Grade an answer. See `course.grading.check`."""
        name = str(name)
        if not _whole(seed):
            return Result(name, "error", None, f"The seed must be a whole number, not {str(seed)[:40]!r}.")
        encoded = encode(answer)
        reply = self._grade(name, encoded, answer, seed)
        if "problem" in reply:
            return Result(name, "error", None, reply["problem"])
        if "failed" in reply:
            slow = "Grading this answer took too long; write it more simply." if reply.get("slow") else ""
            return Result(name, "error", None, slow or f"This answer could not be graded: {reply['failed']}.")
        result = Result(name, reply["status"], reply["mistake"], reply["message"])
        if result.status in ("right", "wrong") and seed is None:
            self.store.add(name, result.status, result.mistake)
        note = self._store.note() if self._store is not None else ""
        return Result(name, result.status, result.mistake, f"{result.message} {note}".strip())

    def hint(self, name: str) -> Note:
        """The next hint of a question. See `course.grading.hint`."""
        name = str(name)
        first = self.oracle.ask({"do": "hint", "id": name, "level": 1})
        if "text" not in first:
            return self._note(first)
        most = first["most"]  # a call after the last hint is not counted
        level = most + 1 if self.store.hints(name) >= most else self.store.hint(name)
        return self._note(self.oracle.ask({"do": "hint", "id": name, "level": level}))

    def ask(self, name: str, seed: int | None = None, fresh: bool = False) -> Note:
        """The words of a question. See `course.grading.ask` and `course.grading.fresh`."""
        if not _whole(seed):
            return Note(f"The seed must be a whole number, not {str(seed)[:40]!r}.")
        reply = self.oracle.ask({"do": "ask", "id": str(name), "seed": seed, "fresh": fresh})
        if "text" in reply:
            reply = {"text": f"{reply['head']}\n\n{reply['text']}\n\nAnswer with `{reply['call']}`."}
        return self._note(reply)

    def progress(self, step: str | None = None) -> Progress:
        """What is done by step. See `course.grading.progress`."""
        rows = [tuple(row) for row in self.oracle.ask({"do": "list"}).get("questions", ())]
        kept = tuple(row for row in rows if step in (None, row[1]))
        entries, note = self.store.read(), self.store.note()
        if rows and not kept:
            steps = ", ".join(dict.fromkeys(row[1] for row in rows))
            note = f"There is no step {str(step)[:40]!r}; the steps are {steps}. {note}".strip()
        return Progress(kept, entries, note)

    # ---------------------------------------------------------------- grading
    def _grade(self, name: str, encoded: Encoded, answer: Any, seed: int | None) -> dict[str, Any]:
        nonce = _nonce()
        request = {"do": "check", "id": name, "seed": seed, "nonce": nonce, "answer": encoded}
        reply = self.oracle.ask(request)
        if "calls" in reply:
            request["answer"] = encoded = self._called(answer, reply, nonce)
            reply = self.oracle.ask(request)
        _keep({"id": name, "seed": seed, "answer": encoded, "status": reply.get("status", "error")})
        return reply

    def _called(self, function: Callable[..., Any], reply: dict[str, Any], nonce: int) -> Encoded:
        """Run the learner's function; a bug hunt's versions each in a process of their own."""
        if not reply["apart"]:
            return {"kind": "record", "nonce": nonce, **sandbox.run(function, reply["calls"])}
        outcomes = []
        for call in reply["calls"]:
            done = sandbox.run(function, [call])
            if not done["cases"] and done["end"]["how"] in ("source", "start"):
                return {"kind": "record", "nonce": nonce, "cases": [], "end": done["end"]}
            outcomes.append(done["cases"][0] if done["cases"] else {"end": done["end"]})
        return {"kind": "record", "nonce": nonce, "cases": outcomes, "end": "done"}

    def _note(self, reply: dict[str, Any]) -> Note:
        text = reply.get("text") or reply.get("problem") or f"There is no reply: {reply.get('failed')}."
        note = self._store.note() if self._store is not None else ""
        return Note(f"{text}\n\n{note}".strip() if note else text)


def _whole(seed: Any) -> bool:
    return seed is None or (isinstance(seed, int) and not isinstance(seed, bool) and abs(seed) < 2**63)


def _nonce() -> int:
    value = os.environ.get(RECORD_NONCE, "0")
    return int(value) if value.isdigit() else 0


def _keep(line: dict[str, Any]) -> None:
    """Append a line for whoever runs this notebook; the line holds the answer, and its status only for the builder."""
    path = os.environ.get(RECORD_FILE)
    if path:
        try:
            with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(json.dumps(line) + "\n")
        except OSError:
            return  # the runner then counts the question as not answered
