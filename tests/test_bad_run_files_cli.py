"""Whatever is wrong with a run file, the commands say so in a sentence or two: exit code 2, nothing on stdout."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_run_files import BAD, LATER, write

from course.cli import main
from course.fields import FIELDS

Course = Callable[..., "subprocess.CompletedProcess[str]"]
COMMANDS = ("answer", "predict", "sweep")
SMALL = {
    "model": {"layers": "4", "hidden": "64", "heads": "8", "ffn": "256", "vocabulary": "1000"},
    "training": {"tokens": "1e9", "sequence_length": "128", "global_batch_sequences": "16"},
    "cluster": {
        "peak_flops_per_s": "1e14", "memory_bytes": "8e10", "memory_bytes_per_s": "1e12", "node_size": "4",
        "scale_up_bytes_per_s": "1e11", "scale_out_bytes_per_s": "1e10", "devices": "8",
    },
    "layout": {"data": "8"},
}  # fmt: skip
PROCESSES = (
    "no tokens", "misspelt field", "misspelt preset", "negative tokens", "NaN tokens", "infinite tokens",
    "huge devices", "half a device", "more key heads", "unknown axis", "not TOML", "zero bytes",
)  # fmt: skip


def assert_sentence(said: str, command: str) -> None:
    """One line of at most two sentences from the named command, with nothing of Python in it."""
    assert said.startswith(f"course {command}: ")
    assert said.count("\n") == 1 and said.endswith(("." + "\n", "?" + "\n")), said
    assert len(said) < 600
    assert not re.search(r"Traceback|<class|object at|KeyError|NoneType|Error:", said), said
    assert len(re.findall(r"[.?] [A-Z`]", said)) <= 1, said


def assert_refused(file: Path, command: str, *more: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([command, str(file), *more])
    assert code == 2
    assert out.getvalue() == ""
    assert_sentence(err.getvalue(), command)


@pytest.mark.parametrize("text", [row[1] for row in BAD + LATER], ids=[row[0] for row in BAD + LATER])
def test_every_bad_run_file_is_refused_by_every_command(text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    for command in COMMANDS:
        assert_refused(file, command)
        assert_refused(file, command, "--json")


@pytest.mark.parametrize("name", PROCESSES)
def test_in_a_process_of_its_own(name: str, course: Course, tmp_path: Path) -> None:
    text = next(text for known, text, _ in BAD if known == name)
    file = tmp_path / "run.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    for command in COMMANDS[PROCESSES.index(name) % 3 :][:1]:
        done = course(command, file, "--json")
        assert (done.returncode, done.stdout) == (2, "")
        assert_sentence(done.stderr, command)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_that_is_no_run_file(command: str, course: Course, tmp_path: Path) -> None:
    (tmp_path / "picture.toml").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "empty.toml").write_bytes(b"")
    for wrong, word in (
        (tmp_path / "missing.toml", "no file"), (tmp_path, "is a folder"), (tmp_path / "picture.toml", "not text"),
        (tmp_path / "empty.toml", "empty"),
    ):  # fmt: skip
        done = course(command, wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert word in done.stderr
        assert_sentence(done.stderr, command)


def outcome(text: str, command: str, folder: Path) -> int:
    """The exit code; anything but an answer or a sentence raises."""
    file = folder / "run.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([command, str(file), "--json"])
    assert code in (0, 1, 2)
    if code == 2:
        assert out.getvalue() == ""
        assert_sentence(err.getvalue(), command)
    else:
        assert err.getvalue() == ""
        assert not re.search(r"\b(NaN|Infinity)\b", out.getvalue())
    return code


def small(*changes: str) -> str:
    return write(*changes, **SMALL)


def test_the_small_run_is_answered(tmp_path: Path) -> None:
    assert {outcome(small(), command, tmp_path) for command in COMMANDS} == {0}


EXTREME = st.sampled_from(
    ["0", "1", "-1", "1e-9", "1e-300", "0.5", "3", "7", "17", "1000", "99999", "1e6", "10000000", "1e9", "1e12", "1e14",
     "1e16", "1e18", "1e30", "1e308", "true", "false", '"zero3"', '"full"', '"selective"', '"interleaved"', '"gpipe"',
     '"maxtext"', '"nanotron-2025"', '"megatron-2021"', '"torch-fsdp"', '"none"', '"first-extra"', '"fp32-16"']
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(FIELDS)), EXTREME), min_size=1, max_size=3))
def test_changed_fields_get_an_answer_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[tuple[str, str], str]]
) -> None:
    """Legal but absurd numbers (a step of 1e30 s, a model wider than any memory) are answered or refused."""
    text = small(*(f"{table}.{name} = {value}" for (table, name), value in changes))
    outcome(text, "predict", tmp_path_factory.getbasetemp())


@settings(max_examples=30, deadline=None)
@given(st.tuples(st.sampled_from(sorted(FIELDS)), EXTREME), st.sampled_from(["answer", "sweep"]))
def test_one_extreme_field_is_answered_or_refused(
    tmp_path_factory: pytest.TempPathFactory, change: tuple[tuple[str, str], str], command: str
) -> None:
    (table, name), value = change
    outcome(small(f"{table}.{name} = {value}"), command, tmp_path_factory.getbasetemp())
