"""What went wrong in the sandbox, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["trouble"]

_ENDS = {
    "timeout": "does not come back {where}: after {seconds} s it was stopped. Is there a loop without an end?",
    "exit": "ends its process {where} instead of returning, by os._exit or by closing what it was started with.",
    "memory": "is killed {where}, as the system does when memory runs out; {gib} GiB are allowed.",
    "crash": "crashes Python itself {where} ({signal}); deep recursion and foreign memory do that.",
    "flood": "returns or writes more than can be read {where}.",
    "source": "cannot be run apart: {why}",
    "start": "could not be run: no process could be started on this machine ({why}).",
}


def trouble(outcome: Mapping[str, Any], where: str, wanted: str, who: str = "Your function") -> str | None:
    """Return a sentence when an outcome holds no usable value, else None.

    Arguments: outcome, of one call, or `{"end": …}` of the whole process; where, as "for P = 3"; wanted, what should
    have come.

    >>> trouble({"refused": "starts a process"}, "for n = 2", "")
    'Your function starts a process for n = 2, which a calculation does not need and the check does not allow.'
    """
    if "refused" in outcome:
        what = outcome["refused"]
        return f"{who} {what} {where}, which a calculation does not need and the check does not allow."
    if "end" in outcome:
        return _end(outcome["end"], where, who)
    if "raised" in outcome:
        return _raised(outcome["raised"], str(outcome.get("said", "")), where, who)
    value = outcome.get("value")
    if not isinstance(value, Mapping):
        return f"{who} gave nothing that can be read {where}."
    kind = value.get("kind")
    if kind in ("number", "array"):
        return None
    if kind == "nan":
        return f"{who} returns NaN {where}; {wanted}"
    if kind == "infinite":
        return f"{who} returns infinity {where}; {wanted}"
    if kind == "none":
        return f"{who} returns nothing {where}: is the `return` missing?"
    return f"{who} returns {_article(str(value.get('type', 'something')))} {where}; {wanted}"


def _article(word: str) -> str:
    return f"an object of type {word}" if word not in ("generator", "function", "complex") else f"a {word}"


def _end(end: Mapping[str, Any] | str, where: str, who: str) -> str | None:
    if end == "done":
        return None
    details = dict(end) if isinstance(end, Mapping) else {"how": end}
    how = str(details.pop("how", "exit"))
    sentence = _ENDS.get(how, _ENDS["exit"])
    values = {"seconds": "", "gib": "", "signal": "", "why": "", **details, "where": where}
    return f"{who} {sentence.format(**values)}".replace("  ", " ")


def _raised(name: str, said: str, where: str, who: str) -> str:
    said = " ".join(said.split())[:200]
    if name == "RecursionError":
        return f"{who} calls itself without end {where}."
    if name == "MemoryError":
        return f"{who} asks for more memory than it is allowed {where}; the calculation needs a few numbers only."
    if name in ("SystemExit", "KeyboardInterrupt"):
        return f"{who} leaves the program {where} ({name}) instead of returning."
    if name == "TypeError" and "argument" in said:
        return f"{who} cannot be called {where}: {said}."
    return f"{who} raises {name} {where}{': ' + said if said else ''}."
