"""Files written whole or not at all, so that a crash at any moment leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

__all__ = ["digest", "write_atomically"]


def digest(data: bytes) -> str:
    """Return the SHA-256 of data as hexadecimal digits.

    >>> digest(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file at path by data in one step; its folder must exist.

    A symbolic link is followed: the file it names is replaced, not the link. Raises OSError when the folder cannot be
    written; the old file is then still there.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "notes.txt"), b"6PS")
    ...     Path(folder, "notes.txt").read_bytes(), len(os.listdir(folder))
    (b'6PS', 1)
    """
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes the file private; a notebook is as readable as any other file of its owner.
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
