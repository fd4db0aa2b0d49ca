"""The examination says what is missing and what to do, and its exit code follows."""

from __future__ import annotations

import asyncio
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from course import cli, doctor, kernel


def test_this_machine_is_ready(capsys: pytest.CaptureFixture[str]):
    code = cli.main(["doctor"])
    shown = capsys.readouterr()
    assert code == 0, shown.out
    lines = shown.out.splitlines()
    names = [line[7:].split(":")[0] for line in lines[:-1]]
    assert lines[-1] == "Ready."
    assert {"Python", "numpy", "jupyterlab", "widgets in JupyterLab", "torch", "jax", "this folder", "kernel"} <= set(
        names
    )
    assert len(names) == len(set(names))


def test_one_wrong_line_makes_it_not_ready(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    findings = [doctor.Finding(True, "Python", "3.12"), doctor.Finding(False, "kernel", "does not start")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))
    assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "wrong  kernel: does not start"
    assert "Not ready" in shown.err


def test_a_missing_engine_is_no_fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(doctor, "examine", lambda: iter([doctor.engine("no-such-engine")]))
    assert cli.main(["doctor"]) == 0
    assert "strong-scaling-course[lab]" in capsys.readouterr().out


def test_packages():
    assert not doctor.package(Requirement("no-such-package>=1")).ok
    old = doctor.package(Requirement("numpy>=1000"))
    assert not old.ok
    assert "pip install 'numpy>=1000'" in old.text


def test_a_course_that_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", missing)
    assert [finding.ok for finding in doctor.packages()] == [False]
    assert not doctor.widgets().ok


def test_widgets_of_another_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert not doctor.widgets().ok


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert not doctor.writable("folder", tmp_path / "file").ok


def test_a_kernel_that_does_not_start(monkeypatch: pytest.MonkeyPatch):
    async def broken() -> None:
        raise RuntimeError("No module named ipykernel_launcher\nmore")

    monkeypatch.setattr(doctor, "_kernel", broken)
    finding = doctor.kernel()
    assert not finding.ok
    assert "No module named ipykernel_launcher)" in finding.text


def test_a_course_that_the_kernel_cannot_import(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "PROBE", "import no_such_course")
    finding = asyncio.run(doctor._kernel())
    assert not finding.ok
    assert "no_such_course" in finding.text


def test_the_kernel_is_this_interpreter():
    import sys

    assert kernel.manager().kernel_spec.argv[0] == sys.executable
