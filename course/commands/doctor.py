"""Is this machine ready for the course? One line each: versions, kernel, widgets, torch, jax, write access."""

from __future__ import annotations

import argparse
import sys

from course import doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: `course doctor` takes no arguments."""


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001
    """Print the findings as they are made; return 1 when the course cannot run here."""
    ready = True
    for finding in doctor.examine():
        print(finding, flush=True)
        ready &= finding.ok is not False
    print("Ready." if ready else "Not ready: mend the lines marked wrong.", file=sys.stdout if ready else sys.stderr)
    return 0 if ready else 1
