"""Text sources become the same notebook every time, and what must not be in one stops the build."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import nbformat
import pytest

from course import authoring, cli
from course.errors import UserError

HEAD = "---\njupytext:\n  text_representation:\n    format_name: myst\n---\n\n"

STEADY = """# A title

A paragraph.

+++ {"tags": ["mark"]}

Another cell.

```{code-cell} ipython3
import sys, pathlib
sys.executable, pathlib.Path.cwd().name
```

```{code-cell} ipython3
for name in sorted({"one", "two", "three"}):
    print(name, flush=True)
{"one", "two", "three"}
```

```{code-cell} ipython3
import ipywidgets
number = ipywidgets.BoundedIntText(value=3, description="tensor")
display(number, number)
ipywidgets.VBox([number])
```

```{code-cell} ipython3
import matplotlib.pyplot as plt
_ = plt.plot([1, 2, 4])
```

```{code-cell} ipython3
:tags: [timed]

import time
time.perf_counter_ns()
```
"""


def cell(code: str) -> str:
    return f"```{{code-cell}} ipython3\n{code}\n```\n"


def write(folder: Path, text: str, name: str = "00_try.md") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / name
    source.write_text(HEAD + text, encoding="utf-8")
    return source


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    source = write(tmp_path_factory.mktemp("steady") / "notebooks", STEADY)
    return source, authoring.render(source)


def test_a_second_run_differs_only_in_the_timed_output(steady: tuple[Path, bytes]):
    source, first = steady
    second = authoring.render(source)
    assert first != second
    one, two = json.loads(first), json.loads(second)
    for book in (one, two):
        assert book["cells"][-1]["outputs"].pop()["output_type"] == "execute_result"
    assert one == two
    assert authoring.differences(first, second) == []


def test_the_notebook_holds_nothing_of_the_machine_or_the_moment(steady: tuple[Path, bytes]):
    data = steady[1]
    book = nbformat.reads(data.decode(), as_version=4)
    nbformat.validate(book)
    assert [c.id for c in book.cells] == [f"00_try-{index:03d}" for index in range(7)]
    assert [c.cell_type for c in book.cells] == ["markdown"] * 2 + ["code"] * 5
    assert [c.execution_count for c in book.cells[2:]] == [1, 2, 3, 4, 5]
    assert set(book.metadata) == {"kernelspec", "language_info", "course"}
    assert "version" not in book.metadata.language_info
    assert {key for c in book.cells for key in c.metadata} == {"tags"}
    assert book.cells[1].metadata.tags == ["mark"]
    assert book.cells[-1].metadata.tags == ["timed", "nbval-ignore-output"]


def test_the_kernel_is_this_interpreter_in_the_sources_folder(steady: tuple[Path, bytes]):
    shown = json.loads(steady[1])["cells"][2]["outputs"][0]["data"]["text/plain"]
    assert "".join(shown) == repr((sys.executable, "notebooks"))


def test_prints_are_one_output_and_sets_have_one_order(steady: tuple[Path, bytes]):
    outputs = json.loads(steady[1])["cells"][3]["outputs"]
    assert [output["output_type"] for output in outputs] == ["stream", "execute_result"]
    assert outputs[0]["text"] == ["one\n", "three\n", "two\n"]


def test_widgets_are_numbered_in_order_of_appearance(steady: tuple[Path, bytes]):
    outputs = json.loads(steady[1])["cells"][4]["outputs"]
    ids = [output["data"][authoring.WIDGET]["model_id"] for output in outputs]
    assert [int(model, 16) for model in ids] == [1, 1, 2]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "00_bad.md: cell 2 ('1 / 0') raises ZeroDivisionError: division by zero"),
        (":tags: [raises-exception]\n\nint('x')", "cell 2 (\"int('x')\") raises ValueError"),
        ("import warnings\nwarnings.warn('old')", "cell 2 ('import warnings') writes to stderr"),
        ("import sys\nprint('oh', file=sys.stderr)", "cell 2 ('import sys') writes to stderr: oh"),
        ("import os\nos._exit(3)", "00_bad.md: the kernel died"),
        ("raise SystemExit(3)", "cell 2 ('raise SystemExit(3)') raises SystemExit"),
    ],
)
def test_a_bad_cell_fails_and_is_named(tmp_path: Path, code: str, said: str):
    source = write(tmp_path, "Some text.\n\n" + cell(code), "00_bad.md")
    with pytest.raises(authoring.BuildError) as failed:
        authoring.build(source)
    assert said in str(failed.value)
    assert not source.with_suffix(".ipynb").exists()


def test_a_cell_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(authoring, "CELL_SECONDS", 2)
    with pytest.raises(authoring.BuildError, match="took over 2 s"):
        authoring.build(write(tmp_path, cell("while True: pass")))


def test_a_source_that_is_not_text(tmp_path: Path):
    source = tmp_path / "00_bad.md"
    source.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(authoring.BuildError, match="not readable"):
        authoring.read(source)


def changed(data: bytes, change: object) -> bytes:
    book = copy.deepcopy(json.loads(data))
    change(book)
    return json.dumps(book).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda book: book["cells"][0].update(source=["# Another"]), ["cell 1"]),
        (lambda book: book["cells"][1]["metadata"].update(tags=[]), ["cell 2"]),
        (lambda book: book["cells"][2].update(execution_count=7), ["cell 3"]),
        (lambda book: book["cells"][3].update(outputs=[]), ["the output of cell 4"]),
        (lambda book: book["cells"].pop(), ["the number of cells (6, built 7)"]),
        (lambda book: book["metadata"].update(author="me"), ["the notebook's metadata"]),
        (lambda book: book["cells"][6].update(outputs=[]), []),
        (lambda book: book["cells"][5]["outputs"][0]["data"].update({"image/png": "AAAA"}), ["the output of cell 6"]),
    ],
)
def test_differences_are_named(steady: tuple[Path, bytes], change: object, said: list[str]):
    assert authoring.differences(changed(steady[1], change), steady[1]) == said


def test_pictures_of_another_matplotlib_are_not_compared(steady: tuple[Path, bytes]):
    def redraw(book: dict) -> None:
        book["metadata"]["course"]["matplotlib"] = "0.1"
        book["cells"][5]["outputs"][0]["data"]["image/png"] = "AAAA"

    assert authoring.differences(changed(steady[1], redraw), steady[1]) == []

    def retitle(book: dict) -> None:
        redraw(book)
        book["cells"][5]["outputs"][0]["data"]["text/plain"] = ["<Figure>"]

    assert authoring.differences(changed(steady[1], retitle), steady[1]) == ["the output of cell 6"]


def test_rubbish_is_a_difference(steady: tuple[Path, bytes]):
    assert authoring.differences(b"{", steady[1]) == ["it is not a notebook"]
    assert authoring.differences(b'{"cells": 3}', steady[1]) == ["it is not a notebook"]


def test_build_and_check_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("course.commands.build.material_root", lambda: tmp_path)
    source = write(tmp_path / "notebooks", cell("6 * 7"), "01_good.md")
    write(tmp_path / "solutions", cell("1 / 0"), "02_bad.md")

    assert cli.main(["build", "--check", "01_good"]) == 1
    assert "notebooks/01_good.ipynb is not there" in capsys.readouterr().err
    assert cli.main(["build"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "built notebooks/01_good.ipynb\n"
    assert "02_bad.md: cell 1 ('1 / 0') raises ZeroDivisionError" in shown.err

    assert cli.main(["build", "--check", "01_good"]) == 0
    assert capsys.readouterr().out == "same notebooks/01_good.ipynb\n"
    source.write_text(source.read_text().replace("6 * 7", "6 * 8"))
    assert cli.main(["build", "--check", "01_good"]) == 1
    assert "notebooks/01_good.ipynb differs from its source in cell 1" in capsys.readouterr().err

    source.unlink()
    assert cli.main(["build", "--check"]) == 1
    assert "notebooks/01_good.ipynb has no text source" in capsys.readouterr().err
    assert cli.main(["build", "03_none"]) == 2
    assert "There is no source named '03_none'; the sources are 02_bad." in capsys.readouterr().err


def test_no_sources(tmp_path: Path):
    with pytest.raises(UserError, match="needs a checkout"):
        authoring.find(tmp_path)
