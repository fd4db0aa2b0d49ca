"""The lessons of the lab run on a report of the reader's own, whose batches are those of a quick measurement.

nbval runs them on the recorded report. Here every cell runs on what a quick measurement leaves: fewer batches, no grid,
a trace of its own, and one cell marked noisy.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from course import authoring
from course.lab import protocol, recorded
from course.lab.report import Report, write

ROOT = Path(__file__).parents[2]
LESSONS = ("10a_lab", "10b_lab", "10c_lab")
RUN = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for name, cells in json.load(sys.stdin).items():
    shell.reset()
    for cell in cells:
        if not shell.run_cell(cell, silent=True).success:
            sys.exit(f"{name}: {cell}")
"""


@pytest.fixture
def quick(tmp_path: Path) -> Report:
    """The cells of the recorded report that a quick measurement has too, as the report at hand."""
    text = json.loads(recorded()["two_cpu_cores"].text())
    wanted = {cell["id"] for engine in ("torch", "jax") for cell in protocol.cells(text["machine"], True, engine)}
    report = Report(text["machine"], [cell for cell in text["cells"] if cell["id"] in wanted])
    report["torch.strong.2.gb2"]["status"] = "noisy"
    write(tmp_path / "lab.json", report)
    (tmp_path / "lab-choice.txt").write_text("own")
    (tmp_path / "traces").mkdir()
    packed = files("course.lab").joinpath("recorded", "traces", "torch.strong.2.gb8.json.gz").read_bytes()
    (tmp_path / "traces" / "torch.strong.2.gb16.json").write_bytes(gzip.decompress(packed))
    return report


def test_the_lessons_run_on_a_quick_report(quick: Report, tmp_path: Path) -> None:
    batches = {cell["global_batch_sequences"] for cell in quick.of("strong", "torch", 2)}
    assert batches == {2, 8, 16} and max(cell["devices"] for cell in quick) == 2
    books = {name: authoring.compose(ROOT / "notebooks" / f"{name}.md")["cells"] for name in LESSONS}
    cells = {
        name: [cell["source"].replace("%matplotlib inline", "") for cell in book if cell["cell_type"] == "code"]
        for name, book in books.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(cells), cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, "COURSE_DATA": str(tmp_path), "COURSE_LAB": "", "IPYTHONDIR": str(tmp_path / "ipython"),
             "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Measured here" in done.stdout
