"""Run files of real runs, to be read, copied and changed."""

from __future__ import annotations

import csv
from importlib.resources import files
from pathlib import Path

from course.errors import UserError


def names() -> list[str]:
    """The examples by name.

    >>> "llama-3-8b-8-h100" in names()
    True
    """
    found = [item.name for item in files(__package__).iterdir()]
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def path(name: str) -> Path:
    """The file of one example.

    Raises:
        UserError: there is no example of that name.
    """
    if name not in names():
        raise UserError(f"There is no example {name!r}; there are {', '.join(names())}.")
    return Path(str(files(__package__) / f"{name}.toml"))


def published(name: str) -> dict[str, str | float]:
    """What was printed about one example's run: rate in FLOP/s a device, MFU, source; numbers as floats.

    Raises:
        UserError: nothing was published, or there is no such example.

    >>> published("llama-3.1-405b-16384-h100")["flops_per_s_per_device"]
    400000000000000.0
    """
    text = (files(__package__) / "published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row.pop("example") == name:
            return {key: value if key == "source" else float(value) for key, value in row.items()}
    raise UserError(f"Nothing published is kept of {name!r}.")
