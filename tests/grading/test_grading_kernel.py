"""Every hostile function again, in a real kernel: one sentence each, and the same kernel answers at the end."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from course.kernel import environment, manager
from course.questions.registry import EXTRA
from tests.grading import test_grading_sandbox as hostile

HEAD = """
import contextlib, os, signal, subprocess, sys, threading, time
import numpy as np
from course.grading import check, sandbox
sandbox.run.__defaults__ = (1.0, 2**27, None)
process = os.getpid()
"""
LAST = """
from course import estimate
estimate.six_ps_run = np.minimum = lambda *_, **__: 42.0
print(check("demo.1", 14), check("estimate.1", 42.0).status, check("estimate.1", 6.3e24).status, process == os.getpid())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")
def test_the_kernel_lives_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    functions = [function for function, _ in hostile.HOSTILE if function is not hostile.return_something_odd]
    cells = [f"{inspect.getsource(function)}\nprint(check('demo.3', {function.__name__}))" for function in functions]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (HEAD, *cells, LAST)])
    client = NotebookClient(book, km=manager(), timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    variables = {**environment(tmp_path), "COURSE_DATA": str(tmp_path), EXTRA: "tests.grading.demo"}
    client.execute(env=variables, cleanup_kc=True)
    shown = ["".join(out.get("text", "") for out in cell.outputs) for cell in book.cells[1:]]
    said = dict(hostile.HOSTILE)
    with capsys.disabled():
        print()
        for function, text in zip(functions, shown, strict=False):
            print(f"{function.__name__}: {text.strip()}")
    for function, text in zip(functions, shown, strict=False):
        assert text.startswith("demo.3: not yet. Your function ") and said[function] in text, (function, text)
        assert text.count("\n") == 1
    assert shown[-1] == "demo.1: right. wrong right True\n"
