"""`course grade`: a folder of submissions, some of which misbehave; all are graded and none stops the others."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from course import cli
from course.commands import notebook_runner
from course.commands.notebook_runner import Limits
from course.errors import UserError
from course.grading import folder as folders

HEAD = "from course.grading import check, fresh, hint"
GOOD = (
    'a = "14 GB"\ncheck("demo.1", a)',
    'def t(x, y):\n    return x * y\ncheck("demo.3", t)',
    'check("demo.4", ("b", 2))',
)
HOSTILE = {
    "forger": (
        "import os, json\nfor q in ('demo.1', 'demo.3', 'demo.4'):\n"
        "    with open(os.environ['COURSE_GRADE_FILE'], 'a') as f:\n"
        "        f.write(json.dumps({'id': q, 'status': 'right', 'answer': {'kind': 'right'}}) + '\\n[]\\n{\\n')",
        "from course import grading\n"
        "grading._session._grade = lambda *a: {'status': 'right', 'mistake': None, 'message': ''}\ncheck('demo.1', 3)",
        "import course.grading.result as r\nr.STATUSES = ()\ncheck('demo.3', lambda x, y: 0)\ncheck('demo.4', 'a1')",
    ),
    "looper": (
        'check("demo.1", 14)',
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        'check("demo.4", "b2")',
    ),
    "killer": (
        'check("demo.1", 14)',
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        'check("demo.4", "b2")',
    ),
    "quitter": ('check("demo.1", 14)', "import os\nos._exit(0)", 'check("demo.4", "b2")'),
    "eater": (
        'check("demo.1", 14)',
        "x = bytearray(10**12)",
        "y = []\nwhile True: y.append(bytearray(10**8))",
        'check("demo.4", "b2")',
    ),
}
LIMITS = Limits(seconds=30, cell_seconds=10, memory_gib=3)


def submit(place: Path, *cells: str, name: str = "01_demo", language: str = "python") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (HEAD, *cells)])
    book.metadata["kernelspec"] = {"name": "whatever", "display_name": "x", "language": language}
    path = place / f"{name}.ipynb"
    nbformat.write(book, path)
    return path


def run(path: Path, variables: Any) -> folders.Ran:
    return notebook_runner.run(path, variables, LIMITS)


def statuses(learner: dict) -> dict[str, str]:
    return {row["id"]: row["status"] for book in learner["notebooks"] for row in book["questions"]}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, _with_the_toy_step: None) -> tuple[Path, dict]:
    where = tmp_path_factory.mktemp("group")
    submit(where / "ada", *GOOD)
    submit(where / "bob", 'check("demo.1", 13.04)', 'check("demo.3", lambda x, y: -x * y)', 'check("demo.4", None)')
    submit(where / "cyd", "1 / 0", *GOOD[:2], '# check("demo.4", 3)', 'check("demo.1", 14, seed=4)')
    submit(where / "dan", *GOOD, language="julia")
    (where / "eve").mkdir()
    (where / "eve" / "01_demo.ipynb").write_bytes(b"\xff not a notebook")
    (where / "fay").mkdir()
    for name, cells in HOSTILE.items():
        submit(where / name, *cells)
    expected = {"01_demo": ["demo.1", "demo.3", "demo.4"]}
    start = time.monotonic()
    document = folders.grade(where, run, expected)
    print(f"{len(document['learners'])} learners in {time.monotonic() - start:.1f} s")
    return where, document


def test_every_learner_is_there(group: tuple[Path, dict]):
    where, document = group
    assert [learner["folder"] for learner in document["learners"]] == sorted(path.name for path in where.iterdir())
    assert set(document) == {"learners", "mistakes", "questions"}
    for learner in document["learners"]:
        assert set(learner) == {"folder", "score", "notebooks"}
        for book in learner["notebooks"]:
            assert set(book) == {"name", "seconds", "error", "questions"}
            assert all(set(row) == {"id", "status", "mistake", "message"} for row in book["questions"])


def learner(document: dict, name: str) -> dict:
    return next(row for row in document["learners"] if row["folder"] == name)


@pytest.mark.parametrize(
    ("name", "score", "error"),
    [
        ("ada", 1.0, None),
        ("bob", 0.0, None),
        ("cyd", 2 / 3, "Cell 2 raises ZeroDivisionError: division by zero."),
        ("dan", 0.0, "julia kernel"),
        ("eve", 0.0, "not a notebook"),
        ("forger", 0.0, None),
        ("looper", 1 / 3, "took over"),
        ("killer", 1 / 3, "ended the process that ran it"),
        ("quitter", 1 / 3, "ends the kernel"),
        ("eater", 2 / 3, "MemoryError"),
    ],
)
def test_each_gets_its_score_and_its_sentence(group: tuple[Path, dict], name: str, score: float, error: str | None):
    found = learner(group[1], name)
    assert found["score"] == pytest.approx(score, abs=1e-3), found
    (book,) = found["notebooks"]
    assert (book["error"] is None) == (error is None), book["error"]
    assert error is None or error in book["error"]
    assert "\n" not in (book["error"] or "")


def test_mistakes_and_questions_are_counted_over_the_group(group: tuple[Path, dict]):
    document = group[1]
    assert document["mistakes"] == {"GiB for GB": 1, "sign": 1}
    assert set(document["questions"]) == {"demo.1", "demo.3", "demo.4"}
    assert all(sum(counts.values()) == 10 for counts in document["questions"].values())
    assert statuses(learner(document, "bob")) == {"demo.1": "wrong", "demo.3": "wrong", "demo.4": "unanswered"}
    assert statuses(learner(document, "cyd"))["demo.4"] == "unanswered"


def test_nothing_is_left_running(group: tuple[Path, dict]):
    for process in psutil.process_iter():
        try:
            carries = notebook_runner.TOKEN in process.environ()
        except (psutil.Error, OSError):
            continue
        assert not carries, process


def test_the_submissions_are_as_they_were(group: tuple[Path, dict]):
    for path in group[0].rglob("*"):
        assert path.is_dir() or path.name == "01_demo.ipynb"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    submit(tmp_path / "=ada", GOOD[0])
    assert cli.main(["grade", str(tmp_path), "--json", "--csv", str(tmp_path / "out.csv")]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["learners"][0]["score"] == 1.0
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(row["folder"], row["question"], row["status"]) for row in rows] == [("'=ada", "demo.1", "right")]
    submit(tmp_path / "=ada", 'check("demo.1", 112)', "raise ValueError('no')")
    assert cli.main(["grade", str(tmp_path / "=ada")]) == 1
    text = capsys.readouterr().out
    assert "bits for bytes: Bits and bytes were mixed" in text and "Cell 3 raises ValueError: no." in text
    assert cli.main(["grade", str(tmp_path / "nobody")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_who_is_a_learner(tmp_path: Path):
    with pytest.raises(UserError, match="no notebook"):
        folders.learners(tmp_path)
    for name in (
        "exercises/01_a.ipynb",
        "notebooks/00_b.ipynb",
        "exercises/01_a.new.ipynb",
        "exercises/.ipynb_checkpoints/01_a.ipynb",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (one,) = folders.learners(tmp_path)
    assert (one.folder, [path.name for path in one.notebooks]) == (tmp_path.name, ["01_a.ipynb"])
    (tmp_path / "group" / "x" / "deep").mkdir(parents=True)
    (tmp_path / "group" / "x" / "deep" / "01_a.ipynb").write_text("{}")
    (tmp_path / "group" / "y").mkdir()
    found = folders.learners(tmp_path / "group")
    assert [(person.folder, len(person.notebooks)) for person in found] == [("x", 1), ("y", 0)]


def test_questions_are_read_from_the_source():
    def book(*sources: str) -> bytes:
        return json.dumps({"cells": [{"cell_type": "code", "source": source} for source in sources]}).encode()

    assert folders.questions_in(book("check(\"a.1\", 3)\n  check( 'b.2' , x)", '# check("c.3", 1)', "check(name)")) == [
        "a.1",
        "b.2",
    ]
    assert folders.questions_in(b"{") == [] and folders.questions_in(b'{"cells": [3]}') == []


def test_the_record_of_another_run_does_not_count(oracle: Any):
    record = {"kind": "record", "nonce": 7, "cases": [], "end": "done"}
    reply = oracle.ask({"do": "check", "id": "demo.3", "seed": None, "nonce": 8, "answer": record})
    assert reply["status"] == "error"
