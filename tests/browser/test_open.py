"""The README's first command ends in JupyterLab on the first notebook, and every cell of it runs there."""

from __future__ import annotations

import json
from pathlib import Path


def test_every_cell_of_the_first_notebook_runs(lab, artefacts: Path):
    book = lab.run_all()
    picture = artefacts / "00_start.png"
    assert lab.driver.save_screenshot(str(picture))
    print(f"screenshot: {picture}")
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    failed = [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]
    noise = [output for cell in code for output in cell["outputs"] if output.get("name") == "stderr"]
    assert not failed
    assert not noise
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert lab.shown_errors() == []
    assert lab.page_errors() == []
    assert lab.driver.title.startswith("00_start")


def test_a_failing_cell_is_seen(lab):
    path = lab.folder / "notebooks" / "00_start.ipynb"
    book = json.loads(path.read_bytes())
    next(cell for cell in book["cells"] if cell["cell_type"] == "code")["source"] = "1 / 0"
    path.write_text(json.dumps(book), encoding="utf-8")
    lab.run_all()
    assert any("ZeroDivisionError" in text for text in lab.shown_errors())
