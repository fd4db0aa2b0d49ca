"""What every test may use: the root of the checkout, and a command run as a person would run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def course() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `course WORDS…` in a process of its own."""

    def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "course", *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=600, **{"cwd": ROOT, **options}
        )

    return run
