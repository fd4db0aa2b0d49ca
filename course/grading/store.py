"""Progress on disk: one JSON file, changed under a lock, written whole or not at all.

Two notebooks add to the same file; a crash at any moment leaves the old file or the new one. What cannot be read is set
aside under another name and never lost. What cannot be written is kept in memory, and said once.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     store = Store(Path(folder))
...     store.add("estimate.1", "wrong")
...     store.add("estimate.1", "right")
...     Store(Path(folder)).read()["estimate.1"]["attempts"]
2
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from course.files import user_data, write_atomically

__all__ = ["VERSION", "Store"]

VERSION = 1
NAME = "progress.json"
LOCK_SECONDS = 3.0

Entry = dict[str, Any]
Entries = dict[str, Entry]


class Store:
    """The progress of one learner.

    An entry is `{"status", "attempts", "hints", "mistake", "changed"}`; ids that no question has any more are kept, and
    so are fields that this version does not know.
    """

    def __init__(self, where: Path | None = None) -> None:
        self.path = (where or user_data()) / NAME
        self._pending: list[Callable[[Entries], None]] = []
        self._said: set[str] = set()
        self._notes: list[str] = []

    # ---------------------------------------------------------------- what others call
    def read(self) -> Entries:
        """All entries, with what could not be written yet."""
        entries, _, _ = self._load(set_aside=False)
        for change in self._pending:
            change(entries)
        return entries

    def add(self, name: str, status: str, mistake: str | None = None) -> None:
        """Count one attempt at a question. Once right, a question stays right."""
        moment = _now()

        def change(entries: Entries) -> None:
            entry = entries.setdefault(name, {})
            entry["attempts"] = _count(entry, "attempts") + 1
            if entry.get("status") != "right":
                entry["status"] = status
                entry["mistake"] = mistake
            entry["changed"] = moment

        self._apply(change)

    def hint(self, name: str) -> int:
        """Count one more hint of a question and return which it is, from 1."""
        level = 0

        def change(entries: Entries) -> None:
            nonlocal level
            entry = entries.setdefault(name, {})
            level = entry["hints"] = _count(entry, "hints") + 1

        self._apply(change)
        return level or self.hints(name)

    def hints(self, name: str) -> int:
        """How many hints of a question were given."""
        return _count(self.read().get(name, {}), "hints")

    def note(self) -> str:
        """What must be said about the file, each thing once; empty when there is nothing."""
        said, self._notes = " ".join(self._notes), []
        return said

    # ---------------------------------------------------------------- the file
    def _apply(self, change: Callable[[Entries], None]) -> None:
        self._pending.append(change)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.with_suffix(".lock")) as held:
                if not held:
                    return  # another notebook holds it; the change goes with the next one
                entries, rest, writable = self._load(set_aside=True)
                if not writable:
                    return
                for waiting in self._pending:
                    waiting(entries)
                document = {**rest, "version": VERSION, "questions": dict(sorted(entries.items()))}
                self._sweep()
                write_atomically(self.path, (json.dumps(document, indent=1) + "\n").encode())
                self._pending.clear()
        except OSError as error:
            self._say(
                f"Your progress cannot be saved in {self.path.parent} ({error.strerror or error}); it is kept until "
                "this kernel stops."
            )

    def _load(self, set_aside: bool) -> tuple[Entries, dict[str, Any], bool]:
        """Entries, the rest of the document, and whether the file may be written over."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}, {}, True
        except OSError as error:
            self._say(f"Your progress in {self.path} cannot be read ({error.strerror}); this session counts by itself.")
            return {}, {}, False
        try:
            document = json.loads(data)
            entries = dict(document["questions"])
            version = int(document["version"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}, {}, self._aside() if set_aside else True
        if version > VERSION:
            self._say(
                f"Your progress was saved by a newer version of the course; this one leaves {self.path} as it is."
            )
            return {n: e for n, e in entries.items() if isinstance(e, dict)}, {}, False
        good = {str(name): dict(entry) for name, entry in entries.items() if isinstance(entry, dict)}
        if len(good) < len(entries) and set_aside:
            self._aside(copy=True)
        return good, {key: value for key, value in document.items() if key != "questions"}, True

    def _aside(self, copy: bool = False) -> bool:
        """Keep an unreadable file under another name; return whether that was possible."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for number in range(1000):
            target = self.path.with_name(f"{NAME}.broken-{stamp}{f'-{number}' if number else ''}")
            if target.exists():
                continue
            try:
                write_atomically(target, self.path.read_bytes()) if copy else self.path.rename(target)
            except OSError as error:
                self._say(f"Your progress in {self.path} cannot be read, nor set aside ({error.strerror}).")
                return False
            self._say(f"Your progress could not be read; the file is kept as {target.name}, and counting starts again.")
            return True
        return False

    def _sweep(self) -> None:
        """Remove what a crash in the middle of a write left behind. Called under the lock, so nobody is writing."""
        for left in self.path.parent.glob(f".{NAME}.*.part"):
            with contextlib.suppress(OSError):
                left.unlink()

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._notes.append(sentence)


def _count(entry: Entry, key: str) -> int:
    value = entry.get(key, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file; False when another process keeps it for too long. The system frees it after a crash."""
    with open(path, "a+b") as file:  # noqa: PTH123
        deadline = time.monotonic() + LOCK_SECONDS
        while not (held := _try_lock(file)) and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield held
        finally:
            if held:
                _unlock(file)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: Any) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: Any) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(file: Any) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: Any) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
