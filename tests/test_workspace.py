"""A learner's folder: nothing a learner wrote is ever lost, and what they did not touch follows the course."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import files, workspace
from course.errors import UserError

NAME = "notebooks/00_start.ipynb"
BESIDE = "notebooks/00_start.new.ipynb"


def test_a_new_folder_gets_everything(tmp_path: Path):
    report = workspace.lay(tmp_path / "a" / "b")
    assert report.added == sorted(workspace.material())
    assert NAME in report.added
    for name, data in workspace.material().items():
        assert (tmp_path / "a" / "b" / name).read_bytes() == data


def test_laying_twice_changes_nothing(tmp_path: Path):
    workspace.lay(tmp_path)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.ipynb")}
    report = workspace.lay(tmp_path)
    assert report.sentences() == ["Everything is up to date."]
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.ipynb")}


def test_an_untouched_notebook_follows_the_course(tmp_path: Path):
    workspace.lay(tmp_path, {NAME: b"one"})
    report = workspace.lay(tmp_path, {NAME: b"two", "exercises/01.ipynb": b"new"})
    assert report.sentences() == ["Added: exercises/01.ipynb.", f"Brought up to date: {NAME}."]
    assert (tmp_path / NAME).read_bytes() == b"two"


def test_a_changed_notebook_stays_and_the_new_one_lies_beside_it_once(tmp_path: Path):
    workspace.lay(tmp_path, {NAME: b"one"})
    (tmp_path / NAME).write_bytes(b"mine")
    assert workspace.lay(tmp_path, {NAME: b"one"}).beside == []
    report = workspace.lay(tmp_path, {NAME: b"two"})
    assert (report.kept, report.beside) == ([NAME], [BESIDE])
    assert (tmp_path / NAME).read_bytes() == b"mine"
    assert (tmp_path / BESIDE).read_bytes() == b"two"
    (tmp_path / BESIDE).unlink()
    assert workspace.lay(tmp_path, {NAME: b"two"}).beside == []
    assert not (tmp_path / BESIDE).exists()


def test_a_deleted_notebook_comes_back(tmp_path: Path):
    workspace.lay(tmp_path, {NAME: b"one"})
    (tmp_path / NAME).unlink()
    assert workspace.lay(tmp_path, {NAME: b"one"}).added == [NAME]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"a": 1}}', "\0"])
def test_an_unreadable_record_loses_nothing(tmp_path: Path, text: str):
    workspace.lay(tmp_path, {NAME: b"one"})
    (tmp_path / NAME).write_bytes(b"mine")
    (tmp_path / ".course.json").write_text(text)
    workspace.lay(tmp_path, {NAME: b"two"})
    assert (tmp_path / NAME).read_bytes() == b"mine"
    assert NAME in json.loads((tmp_path / ".course.json").read_text())["files"]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("upgrade"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["write", "write beside"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["delete", "delete beside", "forget", "open"]), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_no_history_loses_what_the_learner_wrote(tmp_path_factory: pytest.TempPathFactory, actions: list):
    folder = tmp_path_factory.mktemp("learner")
    shipped = b"course 0"
    workspace.lay(folder, {NAME: shipped})
    for action, number in actions:
        path = folder / (BESIDE if "beside" in action else NAME)
        if action == "upgrade":
            shipped = f"course {number}".encode()
        elif action.startswith("write"):
            path.write_bytes(f"learner {number}".encode())
        elif action.startswith("delete"):
            path.unlink(missing_ok=True)
        elif action == "forget":
            (folder / ".course.json").unlink(missing_ok=True)
        own = {
            p: p.read_bytes() for p in (folder / NAME, folder / BESIDE) if p.exists() and b"learner" in p.read_bytes()
        }
        workspace.lay(folder, {NAME: shipped})
        for kept, data in own.items():
            assert kept.read_bytes() == data
        if folder / NAME not in own and action != "forget":
            assert (folder / NAME).read_bytes() == shipped


def test_no_folder_where_a_file_is(tmp_path: Path, course):
    (tmp_path / "taken").write_text("my notes")
    done = course("open", tmp_path / "taken", "--no-lab")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"course open: {tmp_path / 'taken'} is a file; name a folder, or a new name for one.\n"
    assert (tmp_path / "taken").read_text() == "my notes"


@pytest.mark.parametrize("name", ["taken/inside", "long" * 100, "dir-in-the-way", "file-in-the-way"])
def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path, name: str, course):
    (tmp_path / "taken").write_text("")
    (tmp_path / "dir-in-the-way" / NAME).mkdir(parents=True)
    (tmp_path / "file-in-the-way").mkdir()
    (tmp_path / "file-in-the-way" / "notebooks").write_text("")
    done = course("open", tmp_path / name, "--no-lab")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("course open: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UserError, match="Cannot write"):
            workspace.lay(tmp_path, {NAME: b"one"})
    finally:
        tmp_path.chmod(0o700)


def test_a_failing_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workspace.lay(tmp_path, {NAME: b"one"})
    before = sorted(tmp_path.rglob("*"))

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        workspace.lay(tmp_path, {NAME: b"two"})
    assert (tmp_path / NAME).read_bytes() == b"one"
    assert sorted(tmp_path.rglob("*")) == before


def test_the_source_itself_is_refused(root: Path):
    for folder in (root, root / "notebooks", root / "notebooks" / "mine"):
        with pytest.raises(UserError, match="own source"):
            workspace.lay(folder)
    assert not (root / ".course.json").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links and modes are POSIX here")
def test_written_files_keep_links_and_modes(tmp_path: Path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    files.write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_server_takes_a_free_port_and_hides_its_token():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        command, environment, address = workspace.server(Path("mine"), browser=False)
        assert f":{port}/" not in address
    token = environment["JUPYTER_TOKEN"]
    assert address.endswith(f"/lab/tree/{NAME}?token={token}")
    assert len(token) == 48
    assert not any(token in word for word in command)
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--no-browser" in command
    assert "--no-browser" not in workspace.server(Path("mine"), port)[0]


def test_server_without_jupyterlab(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workspace, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="JupyterLab is not installed"):
        workspace.server(Path("mine"), 8888)
