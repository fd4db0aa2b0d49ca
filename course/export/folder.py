"""The folder an export writes to: files are written whole, and nothing that is not ours is overwritten.

The folder keeps, in `.course-export.json`, the hash of each file as it was written. A file that still has that hash is
ours, unchanged, and may be replaced; one that differs may hold measurements or your own settings, and is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from course.errors import UserError
from course.fields import show
from course.files import digest, write_atomically

__all__ = ["MANIFEST", "checked", "lay"]

MANIFEST = ".course-export.json"


def checked(name: str) -> Path:
    """The path of a folder to write to, looked at before any work is done.

    Raises:
        UserError: it is a file, or its parent is not a folder.

    >>> checked("no such folder/out")
    Traceback (most recent call last):
        ...
    course.errors.UserError: --output "no such folder/out" has no folder "no such folder" to stand in. Make that first.
    """
    folder = Path(name)
    try:
        is_file = folder.exists() and not folder.is_dir()
        there = "\0" not in name and (folder.is_dir() or folder.absolute().parent.is_dir())
    except (OSError, ValueError):
        is_file = there = False
    if is_file:
        raise UserError(f"--output {show(name)} is a file. Give the name of a folder; it is made if missing.")
    if not there:
        raise UserError(f"--output {show(name)} has no folder {show(str(folder.parent))} to stand in. Make that first.")
    return folder


def lay(folder: Path, files: Mapping[str, bytes]) -> str:
    """Write files into a folder, made if missing; the sentence that names them.

    All are looked at before the first is written.

    Raises:
        UserError: a file is there that is not ours as we wrote it, or the folder cannot be written.
    """
    try:
        folder.mkdir(exist_ok=True)
        ours = _manifest(folder)
        there = {name: (folder / name).read_bytes() for name in files if (folder / name).exists()}
        kept = [name for name, data in there.items() if data != files[name] and digest(data) != ours.get(name)]
        if kept:
            raise UserError(
                f"{', '.join(kept)} in {show(str(folder))} was not written by this export or was changed since, and "
                "stays as it is. Choose another folder for --output."
            )
        for name, data in files.items():
            if there.get(name) != data:
                write_atomically(folder / name, data)
        hashes = {**ours, **{name: digest(data) for name, data in files.items()}}
        write_atomically(folder / MANIFEST, (json.dumps(hashes, indent=1, sort_keys=True) + "\n").encode())
    except OSError as error:
        raise UserError(f"--output {show(str(folder))} cannot be written: {error.strerror}. Choose another.") from None
    return f"Wrote in {folder}: {', '.join(files)}."


def _manifest(folder: Path) -> dict[str, str]:
    """The hashes as last written; an empty table where there is none or it cannot be read."""
    try:
        hashes = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in hashes.items()} if isinstance(hashes, dict) else {}
