"""`python -m course.printed FOLDER [NAME ...]` writes the printed pack, or the named files of it, into a folder."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from course.printed import PRODUCTS


def main(words: list[str]) -> int:
    """Write the products; 2 when a name is none."""
    if not words or not set(words[1:]) <= set(PRODUCTS):
        print(f"usage: python -m course.printed FOLDER [{' | '.join(PRODUCTS)} ...]", file=sys.stderr)
        return 2
    for name in words[1:] or PRODUCTS:
        path = Path(words[0]) / f"{name}.pdf"
        import_module(f"course.printed.{name.replace('-', '_')}").write(path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
