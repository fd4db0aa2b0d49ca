"""A learner whose progress lies in a folder of the test, and the toy step beside the course's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from course.grading.oracle import Oracle
from course.grading.session import Session
from course.grading.store import Store
from course.questions.registry import EXTRA, Registry

DEMO = "tests.grading.demo"


@pytest.fixture(scope="session")
def demo() -> Registry:
    return Registry([DEMO])


@pytest.fixture(scope="session", autouse=True)
def _with_the_toy_step() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EXTRA, DEMO)
        yield


@pytest.fixture(scope="session")
def oracle(_with_the_toy_step: None) -> Iterator[Oracle]:
    with Oracle() as shared:
        yield shared


@pytest.fixture
def session(oracle: Oracle, tmp_path: Path) -> Session:
    made = Session(Store(tmp_path / "data"))
    made.oracle = oracle
    return made
