"""The kernel's side of the clean process: starts it, asks it, and kills it when an answer takes too long.

>>> with Oracle() as oracle:
...     len(oracle.ask({"do": "hint", "id": "estimate.1", "level": 1})["text"]) > 12
True
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

__all__ = ["Oracle"]

SECONDS = 20.0
START_SECONDS = 90.0
_BOOT = "import sys; sys.path.insert(0, {path!r}); from course.grading.serve import main; main()"

Data = dict[str, Any]


class Oracle:
    """A process with a clean library, started when first needed. One at a time asks; a fork gets one of its own."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._owner = 0
        self._number = 0
        self._warm = False

    def start(self) -> None:
        """Start the process without waiting for it."""
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return
        package = str(Path(__file__).resolve().parents[2])
        # -I: neither the folder of the notebook nor PYTHONPATH may shadow a module of the library
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT.format(path=package)],
            cwd=package, text=True, encoding="utf-8", bufsize=1, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._owner, self._warm, self._lines = os.getpid(), False, queue.Queue()
        threading.Thread(target=self._pump, args=(self._process, self._lines), daemon=True).start()
        atexit.register(self.close)

    @staticmethod
    def _pump(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                lines.put(line)
        lines.put("")

    def ask(self, request: Data, seconds: float | None = None) -> Data:
        """Return the reply. A process that died is started again once; one that takes too long is killed.

        Returns `{"failed": sentence}` when there is no reply.
        """
        with self._lock:
            for _ in range(2):
                try:
                    self.start()
                except OSError as error:
                    return {"failed": f"no process could be started ({error.strerror})"}
                reply = self._exchange(request, seconds or self.seconds)
                if reply is not None:
                    return reply
            return {"failed": "the process that grades ended twice"}

    def _exchange(self, request: Data, seconds: float) -> Data | None:
        process = self._process
        assert process is not None and process.stdin is not None
        self._number += 1
        try:
            process.stdin.write(json.dumps({**request, "number": self._number}) + "\n")
            process.stdin.flush()
            line = self._reply(seconds if self._warm else seconds + START_SECONDS)
        except queue.Empty:
            self.close()
            return {"failed": f"grading took over {seconds:g} s", "slow": True}
        except (OSError, ValueError):
            line = ""
        except KeyboardInterrupt:
            self.close()  # its reply would be taken for that of the next request
            raise
        if not line:
            self.close()
            return None
        self._warm = True
        reply: Data = json.loads(line)
        del reply["number"]
        return reply

    def _reply(self, seconds: float) -> str:
        """The line that answers the present request; others, which nobody asked for, are passed over."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            if not line or json.loads(line).get("number") == self._number:
                return line

    def close(self) -> None:
        """End the process, if there is one and it is ours."""
        process, self._process = self._process, None
        atexit.unregister(self.close)
        if process is not None and self._owner == os.getpid():
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError, ValueError):
                    stream.close()  # type: ignore[union-attr]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
