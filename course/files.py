"""Files written whole or not at all, and a user's file read with one sentence for whatever is wrong with it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from course.errors import UserError
from course.fields import show

__all__ = ["digest", "read_bytes", "read_text", "user_data", "write_atomically"]


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


def user_data() -> Path:
    """The folder of a learner's progress and measurements: COURSE_DATA where it is set, else the platform's own.

    >>> user_data().is_absolute() or bool(os.environ.get("COURSE_DATA"))
    True
    """
    named = os.environ.get("COURSE_DATA")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_data_dir("strong-scaling-course", appauthor=False))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_bytes(path: str | Path, what: str, wanted: str, error: type[UserError] = UserError) -> bytes:
    """Read a user's file whole.

    Arguments: path names the file; what it should be ("trace"); wanted is the path to give in its place ("a JSON
    file"); error is the kind raised. Raises `error` with one or two sentences, whatever is wrong with the path.

    >>> read_bytes(".", "trace", "a JSON file")
    Traceback (most recent call last):
        ...
    course.errors.UserError: "." is a folder, not a trace. Give the path of a JSON file.
    """
    shown = show(str(path))
    try:
        file = Path(path)
        if file.is_dir():
            raise error(f"{shown} is a folder, not a {what}. Give the path of {wanted}.")
        if file.exists() and not file.is_file():
            raise error(f"{shown} is not a regular file. Give the path of {wanted}.")
        return file.read_bytes()
    except FileNotFoundError:
        raise error(f"There is no file {shown}. Check the path.") from None
    except PermissionError:
        raise error(f"{shown} may not be read. Change its permissions or copy it.") from None
    except UserError:
        raise
    except (OSError, ValueError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else str(reason)
        raise error(f"{shown} cannot be read: {why}. Check the path.") from None


def read_text(path: str | Path, what: str, wanted: str, not_text: str, error: type[UserError] = UserError) -> str:
    """Read a user's file as text in UTF-8, a byte-order mark dropped.

    Arguments are those of `read_bytes`; not_text says what to do where the file is no text.
    Raises `error` with one or two sentences, whatever is wrong with the file.

    >>> read_text("no such file.toml", "run file", "a TOML file", "")
    Traceback (most recent call last):
        ...
    course.errors.UserError: There is no file "no such file.toml". Check the path.
    """
    data = read_bytes(path, what, wanted, error)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{show(str(path))} is not text{not_text}") from None
