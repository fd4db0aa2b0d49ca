"""Progress survives a crash at any moment, two notebooks at once, an upgrade, a broken file, a folder not its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course.files import user_data
from course.grading import store as module
from course.grading.report import Progress
from course.grading.session import Session
from course.grading.store import VERSION, Store

WRITER = """
import sys
from pathlib import Path
from course.grading.store import Store
store = Store(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    store.add(f"{sys.argv[2]}.{number}", "right")
    print(number, flush=True)
"""


def writer(where: Path, name: str, count: int, root: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, str(where), name, str(count)]
    return subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True)


def test_it_counts_attempts_and_stays_right(tmp_path: Path):
    store = Store(tmp_path)
    store.add("demo.1", "wrong", "sign")
    assert store.read()["demo.1"]["mistake"] == "sign"
    store.add("demo.1", "right")
    store.add("demo.1", "wrong")
    entry = Store(tmp_path).read()["demo.1"]
    assert (entry["status"], entry["attempts"]) == ("right", 3)
    assert [store.hint("demo.1") for _ in range(4)] == [1, 2, 3, 4]
    assert Store(tmp_path).read()["demo.1"]["hints"] == 4


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path, root: Path):
    kept = 0
    for round_ in range(12):
        child = writer(tmp_path, f"r{round_}", 10_000, root)
        assert child.stdout is not None
        confirmed = -1
        for line in child.stdout:
            confirmed = int(line)
            if confirmed >= 3 + 5 * round_:
                break
        time.sleep(0.0007 * round_)
        child.kill()
        confirmed = max([confirmed, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        entries = json.loads((tmp_path / module.NAME).read_text())["questions"]
        mine = [name for name in entries if name.startswith(f"r{round_}.")]
        assert len(mine) >= confirmed + 1, "what was confirmed is on disk"
        kept += len(mine)
        assert len(entries) == kept, "what earlier rounds wrote is still there"
    Store(tmp_path).add("last.1", "right")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["progress.json", "progress.lock"]


def test_two_notebooks_at_once_lose_nothing(tmp_path: Path, root: Path):
    children = [writer(tmp_path, name, 60, root) for name in ("one", "two", "three")]
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    assert len(Store(tmp_path).read()) == 180


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 1}',
        '{"questions": 3, "version": 1}',
        "\x00\x00",
        '{"version": "x", "questions": {}}',
        "[" * 100_000,
    ],
)
def test_an_unreadable_file_is_set_aside_and_said_once(tmp_path: Path, text: str):
    (tmp_path / module.NAME).write_text(text)
    store = Store(tmp_path)
    assert store.read() == {}
    assert (tmp_path / module.NAME).read_text() == text, "reading changes nothing"
    store.add("demo.1", "right")
    (aside,) = tmp_path.glob("*.broken-*")
    assert aside.read_text() == text
    assert aside.name in store.note() and store.note() == ""
    assert Store(tmp_path).read()["demo.1"]["status"] == "right"
    (tmp_path / module.NAME).write_text(text)
    Store(tmp_path).add("demo.2", "right")
    assert len(list(tmp_path.glob("*.broken-*"))) == 2


def test_a_single_bad_entry_costs_no_other(tmp_path: Path):
    (tmp_path / module.NAME).write_text(
        '{"version": 1, "questions": {"demo.1": 7, "demo.2": {"status": "right", "attempts": "x"}}}'
    )
    store = Store(tmp_path)
    store.add("demo.2", "right")
    assert store.read()["demo.2"]["attempts"] == 1
    assert len(list(tmp_path.glob("*.broken-*"))) == 1


def test_an_upgrade_keeps_what_it_does_not_know(tmp_path: Path):
    old = {"version": 1, "theme": "dark", "questions": {"gone.1": {"status": "right", "attempts": 2, "stars": 5}}}
    (tmp_path / module.NAME).write_text(json.dumps(old))
    Store(tmp_path).add("demo.1", "right")
    new = json.loads((tmp_path / module.NAME).read_text())
    assert new["questions"]["gone.1"] == old["questions"]["gone.1"]
    assert new["theme"] == "dark" and new["version"] == VERSION


def test_a_newer_file_is_left_alone(tmp_path: Path):
    text = json.dumps({"version": VERSION + 1, "questions": {"demo.1": {"status": "right"}}})
    (tmp_path / module.NAME).write_text(text)
    store = Store(tmp_path)
    store.add("demo.2", "right")
    assert set(store.read()) == {"demo.1", "demo.2"}
    assert "newer version" in store.note()
    assert (tmp_path / module.NAME).read_text() == text


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "data")
    store.add("demo.1", "wrong")
    assert "cannot be saved" in store.note()
    store.add("demo.1", "right")
    assert store.note() == ""
    assert store.read()["demo.1"]["attempts"] == 2
    assert [store.hint("demo.1"), store.hint("demo.1")] == [1, 2]


def test_a_full_disk_is_said_and_counting_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = Store(tmp_path)
    store.add("demo.1", "wrong")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_atomically", full)
        store.add("demo.2", "right")
        assert "No space left" in store.note()
    assert set(Store(tmp_path).read()) == {"demo.1"}
    store.add("demo.3", "right")
    assert set(Store(tmp_path).read()) == {"demo.1", "demo.2", "demo.3"}


def test_a_lock_that_is_held_delays_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.05)
    store = Store(tmp_path)
    with module._locked(tmp_path / "progress.lock") as held:
        assert held
        store.add("demo.1", "right")
        assert not (tmp_path / module.NAME).exists()
        assert store.hint("demo.1") == 1
    store.add("demo.2", "right")
    assert set(Store(tmp_path).read()) == {"demo.1", "demo.2"}


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    assert user_data() == tmp_path == Store().path.parent
    monkeypatch.delenv("COURSE_DATA")
    assert user_data().name == "strong-scaling-course"


# ---------------------------------------------------------------- through the session
def test_checks_hints_and_progress_of_a_session(session: Session):
    assert repr(session.check("demo.1", None)) == "demo.1: not answered yet."
    assert session.store.read() == {}
    assert repr(session.check("demo.1", "14 GB")) == "demo.1: right."
    assert (
        repr(session.check("demo.1", 13.04))
        == "demo.1: not yet. That is the right quantity in GiB. The unit expected is GB."
    )
    assert repr(session.hint("demo.1")) == "Hint 1 of 3: first"
    assert repr(session.hint("demo.1")) == "Hint 2 of 3: second"
    session.hint("demo.1")
    assert "no more hints" in repr(session.hint("demo.1"))
    assert "no more hints" in repr(session.hint("demo.1"))
    assert "Did you mean 'demo.1'" in repr(session.check("demo.1x", 3)) or "demo.1" in repr(session.check("demo.1x", 3))
    shown = session.progress()
    row = next(row for row in shown.rows() if row["step"] == "demo")
    assert (row["right"], row["questions"], row["hints"]) == (1, 12, 3)
    assert "demo" in repr(shown) and "| demo |" in shown._repr_markdown_()
    assert shown.figure().axes
    assert [row["step"] for row in session.progress("demo").rows()] == ["demo"]
    assert "There is no step 'dmo'" in repr(session.progress("dmo"))
    fresh = session.ask("demo.1", 5, fresh=True)
    assert "seed=5" in repr(fresh) and "how many GB? Unit: GB.\n" in repr(fresh)
    assert "no numbers that could change" in repr(session.ask("demo.2", 5, fresh=True))
    assert "whole number" in session.check("demo.1", 14, seed="5").message
    assert "whole number" in repr(session.ask("demo.1", 0.5, fresh=True))


def test_a_notebook_shows_progress_as_a_picture_that_is_always_the_same(monkeypatch: pytest.MonkeyPatch):
    shown: list[dict] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    some = Progress((("demo.1", "demo", "One", "number", 1, 3),), {"demo.1": {"status": "right"}}, "")
    for _ in range(2):
        some._ipython_display_()
    assert "| demo |" in shown[0]["text/markdown"] and shown[1]["image/png"][1:4] == b"PNG"
    assert shown[:2] == shown[2:]


def test_importing_loads_nothing_heavy(root: Path):
    code = "import sys, course.grading; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    heavy = {"numpy", "sympy", "matplotlib", "ipywidgets", "torch", "jax", "IPython"}
    assert heavy & set(shown.stdout.split()) == set()


def test_a_shadowed_module_in_the_learners_folder_changes_nothing(tmp_path: Path, root: Path):
    (tmp_path / "numpy.py").write_text("raise RuntimeError('shadow')")
    (tmp_path / "random.py").write_text("raise RuntimeError('shadow')")
    code = "from course.grading import check; print(check('estimate.1', 6.3e24))"
    environment = {**os.environ, "PYTHONPATH": str(root), "COURSE_DATA": str(tmp_path / "data")}
    shown = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert shown.stdout == "estimate.1: right.\n", shown.stderr
