"""Every shipped notebook is the one its source makes, was run, and gives the same outputs when nbval runs it again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest

from course import authoring, kernel

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (*authoring.SOURCES, authoring.EXERCISES)
BOOKS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.ipynb"))
TARGETS = {
    book: (source, student) for source in authoring.find(ROOT) for book, student in authoring.targets(source).items()
}


def label(book: Path) -> str:
    return f"{book.parent.name}/{book.stem}"


names = pytest.mark.parametrize("book", BOOKS, ids=label)


@pytest.fixture(scope="module", autouse=True)
def _fonts():
    authoring.warm_fonts()


def test_every_source_has_its_notebook_and_every_notebook_its_source():
    assert sorted(TARGETS) == BOOKS
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
def test_it_has_the_cells_of_its_source(book: Path):
    # What they put out is compared below, pictures too: a notebook need not be run twice.
    made = json.loads(nbformat.writes(authoring.compose(*TARGETS[book])))
    shipped = json.loads(book.read_bytes())
    kept = ("id", "cell_type", "source", "metadata")
    assert [[cell[key] for key in kept] for cell in shipped["cells"]] == [
        [cell[key] for key in kept] for cell in made["cells"]
    ]
    assert shipped["metadata"]["kernelspec"] == authoring.KERNELSPEC
    assert shipped["metadata"]["language_info"] == authoring.LANGUAGE


CHECKED = re.compile(r"^check\(\"([\w.]+)\"", re.MULTILINE)


@pytest.mark.parametrize("book", [book for book in BOOKS if book.parent.name != "notebooks"], ids=label)
def test_every_solution_is_right_and_every_untouched_exercise_unanswered(book: Path):
    # Each check must have said so, under the name of its question, when the notebook was run.
    wanted = "not answered yet" if TARGETS[book][1] else "right"
    asked = 0
    for cell in json.loads(book.read_bytes())["cells"]:
        for name in CHECKED.findall("".join(cell["source"])) if cell["cell_type"] == "code" else ():
            said = ["".join(output.get("data", {}).get("text/plain", "")) for output in cell["outputs"]]
            assert any(text.startswith(f"{name}: {wanted}") for text in said), (name, said)
            asked += 1
    assert asked >= 10


# nbval leaves pictures out; one version of Matplotlib draws the same bytes again.
PICTURES = """
from nbval.plugin import IPyNbFile

made = IPyNbFile.__init__


def with_pictures(self, *args, **kwargs):
    made(self, *args, **kwargs)
    self.skip_compare = tuple(key for key in self.skip_compare if key != "image/png")


IPyNbFile.__init__ = with_pictures
"""


def nbval(books: Sequence[Path], scratch: Path) -> subprocess.CompletedProcess[str]:
    config = scratch / "pytest.ini"
    config.write_text("[pytest]\n")
    drawn_by = {json.loads(book.read_bytes())["metadata"].get("course", {}).get("matplotlib") for book in books}
    (scratch / "pictures.py").write_text(PICTURES if drawn_by <= {version("matplotlib"), None} else "")
    seconds, folder = str(authoring.CELL_SECONDS), books[0].parent
    command = [
        *(sys.executable, "-m", "pytest", "-c", config, "--rootdir", folder, "-p", "no:cacheprovider", "-q"),
        *("-p", "pictures", "--nbval", "--nbval-current-env", "--nbval-cell-timeout", seconds, *books),
    ]
    environment = {**kernel.environment(scratch), "PYTEST_ADDOPTS": "", "PYTHONPATH": str(scratch)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)


CHAPTERS = sorted({(book.parent.name, book.stem[:2]) for book in BOOKS})


@pytest.mark.parametrize("chapter", CHAPTERS, ids="/".join)
def test_nbval_strict(chapter: tuple[str, str], tmp_path: Path):
    # one start of pytest a chapter, one kernel a notebook
    done = nbval([book for book in BOOKS if (book.parent.name, book.stem[:2]) == chapter], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nbval_finds_a_changed_picture(tmp_path: Path):
    source = tmp_path / "00_try.md"
    draw = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(figsize=(1, 1))\nax.plot([0, 1])\nplt.close()\nfig"
    source.write_text(f"```{{code-cell}} ipython3\n{draw}\n```\n")
    (book,) = authoring.build(source)
    assert nbval([book], tmp_path).returncode == 0
    shipped = json.loads(book.read_text())
    picture = shipped["cells"][0]["outputs"][0]["data"]
    picture["image/png"] = picture["image/png"][:-8] + "AAAAAAA="
    book.write_text(json.dumps(shipped))
    assert nbval([book], tmp_path).returncode == 1


def test_nbval_finds_a_changed_output(tmp_path: Path):
    source = tmp_path / "00_try.md"
    source.write_text(
        "```{code-cell} ipython3\n6 * 7\n```\n\n```{code-cell} ipython3\n:tags: [timed]\n\nid(object())\n```\n"
    )
    (book,) = authoring.build(source)
    assert nbval([book], tmp_path).returncode == 0
    book.write_text(book.read_text().replace('"42"', '"41"'))
    done = nbval([book], tmp_path)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
