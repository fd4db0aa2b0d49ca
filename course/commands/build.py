"""Make the notebooks from their text sources; with --check, say where a committed notebook differs from its source."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course import authoring
from course.workspace import material_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course build`."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, as 00_start; default all")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a notebook differs")


def run(arguments: argparse.Namespace) -> int:
    """Build or check the notebooks; a failing one is named on stderr and the others still run."""
    root = material_root()
    sources = authoring.find(root, arguments.names)
    authoring.warm_fonts()
    failed = False
    for source in sources:
        try:
            if arguments.check:
                done = [_check(target, source, student) for target, student in authoring.targets(source).items()]
            else:
                done = [f"built {target.relative_to(root)}" for target in authoring.build(source)]
        except authoring.BuildError as error:
            failed = True
            print(f"course build: {error}", file=sys.stderr)
        else:
            print("\n".join(done), flush=True)
    if arguments.check and not arguments.names:
        for orphan in authoring.orphans(root):
            failed = True
            print(f"course build: {orphan.relative_to(root)} has no text source; remove it.", file=sys.stderr)
    return int(failed)


def _check(target: Path, source: Path, student: bool) -> str:
    name = f"{target.parent.name}/{target.name}"
    if not target.exists():
        raise authoring.BuildError(f"{name} is not there; run `course build`.")
    found = authoring.differences(target.read_bytes(), authoring.render(source, student))
    if found:
        raise authoring.BuildError(f"{name} differs from its source in {', '.join(found)}; run `course build`.")
    return f"same {name}"
