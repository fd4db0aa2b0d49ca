"""The command finds its subcommands, says in one sentence what is wrong, and imports only what it uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from course import cli, doctor
from course.errors import UserError


def test_help_lists_what_is_there_and_nothing_else(capsys: pytest.CaptureFixture[str]):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    listed = [
        line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line.split()[0] in cli.COMMANDS
    ]
    assert listed == cli.available()
    assert {"open", "build", "doctor"} <= set(listed)


@pytest.mark.parametrize("name", cli.available())
def test_every_command_has_its_help(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    assert f"course {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["opne"], "There is no command 'opne'; the commands are open"),
        (["open", "--port", "0"], "'0' is not a port"),
        (["open", "--port", "many"], "'many' is not a port"),
        (["open", "a", "b"], "Unrecognized arguments: b"),
        (["build", "--chek"], "Unrecognized arguments: --chek"),
        (["--nothing"], "Unrecognized arguments: --nothing"),
    ],
)
def test_a_wrong_argument_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    shown = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("devices is missing."), 2, "course doctor: devices is missing.\n"),
        (PermissionError(13, "Permission denied", "report.csv"), 2, "course doctor: report.csv: Permission denied.\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_of_a_command(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail() -> None:
        raise error

    monkeypatch.setattr(doctor, "examine", fail)
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().err == said


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "examine", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["doctor"])


def test_a_closed_pipe_is_quiet():
    reader = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
    command = [
        sys.executable,
        "-c",
        "import time, sys; time.sleep(1); from course.cli import main; sys.exit(main(['doctor']))",
    ]
    writer = subprocess.run(command, stdout=reader.stdin, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    reader.communicate()
    assert writer.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_that_cannot_be_written_is_a_sentence():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "course", "show", "states"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr == "course show: the output cannot be written: No space left on device.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="closes a stream as a POSIX shell does")
def test_a_closed_output_is_no_fault():
    command = ["sh", "-c", '"$0" -m course show states >&-', sys.executable]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_letter_the_terminal_lacks_is_a_question_mark(tmp_path: Path):
    from course.examples import path

    run = tmp_path / "größe.toml"
    run.write_bytes(path("llama-3-8b-8-h100").read_bytes())
    command = [sys.executable, "-m", "course", "predict", str(run)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("gr??e: llama-3-8b")


def test_only_the_command_asked_for_is_imported():
    code = (
        "import sys; from course.cli import main; main([])\n"
        "print([name for name in sys.modules if name.startswith('course.commands.')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert shown.splitlines()[-1] == "[]"
