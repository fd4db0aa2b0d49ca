"""Every shipped notebook is the one its source makes, was run, and gives the same outputs when nbval runs it again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from course import authoring, kernel

ROOT = Path(__file__).resolve().parent.parent
BOOKS = sorted(path for folder in authoring.SOURCES for path in (ROOT / folder).glob("*.ipynb"))
names = pytest.mark.parametrize("book", BOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")


@pytest.fixture(scope="module", autouse=True)
def _fonts():
    authoring.warm_fonts()


def test_every_source_has_its_notebook_and_every_notebook_its_source():
    assert [source.with_suffix(".ipynb") for source in authoring.find(ROOT)] == BOOKS
    assert authoring.orphans(ROOT) == []


@names
def test_every_code_cell_was_run(book: Path):
    # nbval compares nothing in a notebook whose outputs were stripped.
    cells = [cell for cell in json.loads(book.read_bytes())["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


@pytest.fixture(autouse=True)
def _no_questions_but_the_courses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COURSE_QUESTIONS", raising=False)  # the tests of the grading add a step of their own


@names
def test_the_source_makes_it(book: Path):
    assert authoring.differences(book.read_bytes(), authoring.render(book.with_suffix(".md"))) == []


def nbval(book: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    config = scratch / "pytest.ini"
    config.write_text("[pytest]\n")
    command = [
        *(sys.executable, "-m", "pytest", "-c", config, "--rootdir", book.parent, "-p", "no:cacheprovider", "-q"),
        *("--nbval", "--nbval-current-env", "--nbval-cell-timeout", str(authoring.CELL_SECONDS), book),
    ]
    environment = {**kernel.environment(scratch), "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=book.parent)


@names
def test_nbval_strict(book: Path, tmp_path: Path):
    done = nbval(book, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nbval_finds_a_changed_output(tmp_path: Path):
    source = tmp_path / "00_try.md"
    source.write_text(
        "```{code-cell} ipython3\n6 * 7\n```\n\n```{code-cell} ipython3\n:tags: [timed]\n\nid(object())\n```\n"
    )
    (book,) = authoring.build(source)
    assert nbval(book, tmp_path).returncode == 0
    book.write_text(book.read_text().replace('"42"', '"41"'))
    done = nbval(book, tmp_path)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
