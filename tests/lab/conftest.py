"""`measure` with fake workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab_ranks import HERE, planner

from course.lab import protocol
from course.lab.measuring import measure


@pytest.fixture
def fake_measure(tmp_path: Path) -> Callable[..., Any]:
    """`measure` with fake workers; the report lies at lab.json of the test's folder."""

    def run(requests: Sequence[protocol.Request], **more: Any) -> Any:
        usual = {
            "output": tmp_path / "lab.json",
            "here": HERE,
            "collective_timeout_s": 2.5,
            "silence_s": 6.0,
            "show": False,
        }
        return measure(requests=requests, **{**usual, "planner": planner, **more})

    return run
