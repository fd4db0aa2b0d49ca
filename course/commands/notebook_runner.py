"""Runs one notebook in this process and its kernel, with limits, and reports in one line of JSON. Not a command.

`run` starts it as a child, waits, and kills whatever the notebook left behind: a notebook may do anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course.grading.folder import Ran

__all__ = ["Limits", "main", "run"]

TOKEN = "COURSE_GRADE_TOKEN"
START_SECONDS = 60.0


class Limits:
    """Limits of one notebook: seconds in all, seconds a cell, bytes of memory of its kernel (Linux alone keeps it)."""

    def __init__(self, seconds: float = 180.0, cell_seconds: float = 60.0, memory_gib: float = 4.0) -> None:
        self.seconds, self.cell_seconds, self.memory_gib = seconds, min(cell_seconds, seconds), memory_gib


def run(notebook: Path, variables: Mapping[str, str], limits: Limits) -> Ran:
    """Run a notebook in a process of its own; return how it went. Raises nothing for anything the notebook does."""
    token = secrets.token_hex(16)
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **variables, TOKEN: token, "PYTHONPATH": path}
    words = [str(notebook), str(limits.seconds), str(limits.cell_seconds), str(limits.memory_gib)]
    start = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "course.commands.notebook_runner", *words], env=environment, cwd=notebook.parent,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    said, late = b"", False
    try:
        said, _ = child.communicate(timeout=limits.seconds + START_SECONDS)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        _kill_all(child, token)
    seconds = time.monotonic() - start
    if late:
        return Ran(seconds, f"It was stopped: it took over {limits.seconds:g} s.")
    try:
        error = json.loads(said)["error"]
        return Ran(seconds, None if error is None else str(error)[:500])
    except (ValueError, KeyError, TypeError):
        return Ran(seconds, "It ended the process that ran it, so nothing after that cell was run.")


def _kill_all(child: subprocess.Popen[bytes], token: str) -> None:
    """Kill the child and every process that carries its token: the kernel, and what the notebook started."""
    for process in _carriers(token):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    with contextlib.suppress(OSError):
        child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _carriers(token: str) -> list[int]:
    import psutil  # type: ignore[import-untyped]

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(TOKEN) == token:
                found.append(int(process.pid))
    return found


# ---------------------------------------------------------------- inside the child
def main(words: list[str]) -> int:
    """Run the notebook named first within the limits that follow; write `{"error": sentence or null}` to stdout."""
    report = os.dup(1)  # not inherited by the kernel, whose stdout then goes nowhere
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    notebook, seconds, cell_seconds, memory = Path(words[0]), float(words[1]), float(words[2]), float(words[3])
    _limit(int(memory * 2**30))
    error = _execute(notebook, seconds, cell_seconds)
    os.write(report, json.dumps({"error": error}).encode())
    return 0


def _limit(memory: int) -> None:
    with contextlib.suppress(ImportError):
        import resource

        for what, amount in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 2**28), (resource.RLIMIT_CORE, 0)):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(what, (amount, amount))


def _execute(path: Path, seconds: float, cell_seconds: float) -> str | None:
    """Run every code cell, also after one that raises; return the first thing that went wrong, in one sentence."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    from course.kernel import environment, manager

    try:
        notebook = nbformat.read(path, as_version=4)
        language = notebook.metadata.get("kernelspec", {}).get("language", "python")
        nbformat.validate(notebook)
    except Exception as error:  # the reader raises a dozen kinds
        return f"It is not a notebook that can be read ({type(error).__name__})."
    if language != "python":
        return f"It is written for a {language} kernel; the course's notebooks are Python."
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="course-kernel-", ignore_cleanup_errors=True) as scratch:
        client = _client(NotebookClient)(
            notebook, km=manager(), allow_errors=True, timeout=cell_seconds, interrupt_on_timeout=True,
            record_timing=False, store_widget_state=False, resources={"metadata": {"path": str(path.parent)}},
        )  # fmt: skip
        client.deadline = deadline
        try:
            client.execute(env=environment(Path(scratch)), cleanup_kc=True)
        except DeadKernelError:
            return _at(client, "ends the kernel: it left Python, crashed it, or used up its memory")
        except (CellTimeoutError, _OutOfTime):
            return f"It was stopped: it took over {seconds:g} s."
        except Exception as error:
            return _at(client, f"could not be run to its end ({type(error).__name__})")
    return _first_error(notebook, client)


class _OutOfTime(Exception):
    """The notebook's time is over between two cells."""


def _client(base: Any) -> Any:
    """A client that remembers its cell, notes the cells it interrupted, and stops when the time is over."""

    class Client(base):  # type: ignore[misc]
        deadline = float("inf")
        place = -1

        async def async_execute_cell(self, cell: Any, cell_index: int, *rest: Any, **more: Any) -> Any:
            self.place = cell_index
            if time.monotonic() > self.deadline:
                raise _OutOfTime
            return await super().async_execute_cell(cell, cell_index, *rest, **more)

        async def _async_handle_timeout(self, timeout: int, cell: Any = None) -> Any:
            self.late = getattr(self, "late", self.place)
            if time.monotonic() > self.deadline:
                raise _OutOfTime
            return await super()._async_handle_timeout(timeout, cell)

    return Client


def _at(client: Any, what: str) -> str:
    return f"Cell {client.place + 1} {what}."


def _first_error(notebook: Any, client: Any) -> str | None:
    for index, cell in enumerate(notebook.cells):
        if index == getattr(client, "late", None):
            return f"Cell {index + 1} took over {client.timeout:g} s and was interrupted."
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                return (
                    f"Cell {index + 1} raises {output.ename}: {' '.join(str(output.evalue).split())[:200]}".rstrip(": ")
                    + "."
                )
    return None


if __name__ == "__main__":
    # The kernel is a child of this process, and every thread of the client must end with it.
    code = main(sys.argv[1:])
    os._exit(code)
