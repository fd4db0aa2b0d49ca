"""A learner's folder: the course's notebooks are laid into it, and what the learner wrote is never touched.

The folder keeps, in `.course.json`, the hash of every file as it was last laid. From it each file is one of three:
not there (it is added), as it was laid (a newer version replaces it), or changed by the learner (it stays as it is, and
a newer version is written once beside it, as `00_start.new.ipynb`). Who wants a fresh copy deletes or renames a file.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from course.errors import UserError
from course.files import digest, write_atomically

__all__ = ["FIRST", "PARTS", "Report", "lay", "material", "material_root", "server", "start"]

PARTS = ("notebooks", "exercises")
FIRST = "notebooks/00_start.ipynb"
MANIFEST = ".course.json"


@dataclass
class Report:
    """What `lay` did, as names relative to the folder."""

    added: list[str] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        """Return one line for each kind of thing that was done.

        >>> Report(added=["notebooks/00_start.ipynb"]).sentences()
        ['Added: notebooks/00_start.ipynb.']
        """
        said = (
            ("Added", self.added),
            ("Brought up to date", self.refreshed),
            ("A newer version of a notebook you changed lies beside yours", self.beside),
        )
        lines = [f"{what}: {', '.join(names)}." for what, names in said if names]
        if self.kept:
            lines.append(f"Your own changes stay as they are: {', '.join(self.kept)}.")
        return lines or ["Everything is up to date."]


def material_root() -> Path:
    """Return the folder that holds `notebooks`: inside the package when installed from a wheel, else the checkout.

    >>> (material_root() / "notebooks").is_dir()
    True
    """
    package = Path(__file__).resolve().parent
    packed = package / "_material"
    return packed if packed.is_dir() else package.parent


def material() -> dict[str, bytes]:
    """Return every notebook and exercise of the course: its name relative to the folder, and its bytes.

    >>> FIRST in material()
    True
    """
    root = material_root()
    paths = sorted(path for part in PARTS for path in (root / part).glob("*.ipynb"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def lay(folder: Path, files: Mapping[str, bytes] | None = None) -> Report:
    """Copy the course's notebooks and exercises to folder, which is made if it is not there.

    Arguments: folder; files, names relative to it and their bytes (the course's own when left out).
    Returns a Report. Raises UserError when folder is a file, the course's own source, or cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     first = lay(Path(home, "mine"), {"notebooks/00_start.ipynb": b"one"})
    ...     _ = Path(home, "mine/notebooks/00_start.ipynb").write_bytes(b"my work")
    ...     second = lay(Path(home, "mine"), {"notebooks/00_start.ipynb": b"two"})
    >>> first.added, second.added, second.kept, second.beside
    (['notebooks/00_start.ipynb'], [], ['notebooks/00_start.ipynb'], ['notebooks/00_start.new.ipynb'])
    """
    if files is None:
        files = material()
        if not files:
            raise UserError("This installation holds no notebooks; install the course again, or run `course build`.")
        root, here = material_root(), folder.resolve()
        sources = [Path(__file__).resolve().parent, *(root / part for part in PARTS)]
        if here == root or any(source == here or source in here.parents for source in sources):
            raise UserError(f"{folder} is the course's own source; name another folder.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder, or a new name for one.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        laid = _manifest(folder)
        report = Report()
        try:
            for name, data in files.items():
                _lay_one(folder, name, data, laid, report)
        finally:
            # Even when a later file fails, remember the ones that were laid.
            text = json.dumps({"format": 1, "files": dict(sorted(laid.items()))}, indent=1) + "\n"
            write_atomically(folder / MANIFEST, text.encode())
    except OSError as error:
        where = error.filename or folder
        raise UserError(f"Cannot write {where} ({error.strerror or error}); name a folder you may write to.") from error
    return report


def _manifest(folder: Path) -> dict[str, str]:
    """The hashes of the last laying. Unreadable ones count as none: then every file that differs is the learner's."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return {str(name): str(value) for name, value in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _lay_one(folder: Path, name: str, data: bytes, laid: dict[str, str], report: Report) -> None:
    path, new = folder / name, digest(data)
    if path.is_dir():
        raise UserError(f"{path} is a folder where a notebook belongs; rename it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    there = digest(path.read_bytes()) if path.exists() else None
    last = laid.get(name)
    if there is None:
        write_atomically(path, data)
        report.added.append(name)
    elif there != new and there == last:
        write_atomically(path, data)
        report.refreshed.append(name)
    elif there != new:
        report.kept.append(name)
        if last != new:
            _offer(folder, path.with_suffix(".new.ipynb"), data, laid, report)
    laid[name] = new


def _offer(folder: Path, path: Path, data: bytes, laid: dict[str, str], report: Report) -> None:
    """Write the newer version beside the learner's file, unless what lies there became the learner's work too."""
    name = path.relative_to(folder).as_posix()
    if path.exists() and digest(path.read_bytes()) not in (laid.get(name), digest(data)):
        report.kept.append(name)
        return
    write_atomically(path, data)
    laid[name] = digest(data)
    report.beside.append(name)


def _free_port() -> int:
    """The first free port from 8888 up, as Jupyter would choose; any free one when ten are taken."""
    for port in (*range(8888, 8898), 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UserError("No free port was found on 127.0.0.1; name one with --port.")


def server(folder: Path, port: int | None = None, browser: bool = True) -> tuple[list[str], dict[str, str], str]:
    """Return how to start JupyterLab on the first notebook: the command line, its environment, and the address.

    Arguments: folder, a learner's; port on 127.0.0.1 (a free one when left out); browser, whether to open one.
    Raises UserError when JupyterLab is not installed or no port is free.

    >>> command, environment, address = server(Path("mine"), port=8888)
    >>> address.split("?")[0]
    'http://127.0.0.1:8888/lab/tree/notebooks/00_start.ipynb'
    """
    if find_spec("jupyterlab") is None:
        raise UserError(f"JupyterLab is not installed beside {sys.executable}; install the course again with pip.")
    port = _free_port() if port is None else port
    token = secrets.token_hex(24)
    command = [
        *(sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder.resolve()}"),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
        f"--LabApp.default_url=/lab/tree/{FIRST}",
    ]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # in a container the only user is often root, whom Jupyter else refuses
    # `labconfig` in the package switches off JupyterLab's question about news: the course needs no network.
    own = str(Path(__file__).resolve().parent)
    environment = {
        **os.environ,
        # The token goes by the environment, which other users of the machine cannot list; a command line they can.
        "JUPYTER_TOKEN": token,
        # The kernel is this environment's, not one that another installation left in the user's folder.
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, (own, os.environ.get("JUPYTER_CONFIG_PATH")))),
    }
    return command, environment, f"http://127.0.0.1:{port}/lab/tree/{FIRST}?token={token}"


def start(command: list[str], environment: dict[str, str]) -> int:
    """Run JupyterLab until it ends; return its exit code. On POSIX it takes the place of this process."""
    if sys.platform == "win32":
        return subprocess.run(command, env=environment, check=False).returncode
    os.execve(command[0], command, environment)
