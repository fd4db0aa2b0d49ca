"""Every explorer in JupyterLab: each control moved by keyboard, the changed result read, nothing complained of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.explorers import Page, notebook, summary

UP, DOWN, SPACE = Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.SPACE
# For each explorer its controls: the label, and the text to type into a box or the key to press.
MOVES = {
    "roofline": {"I (FLOP/byte)": "8", "B (decimal GB/s)": "50", "device": DOWN},
    "parameters": {
        "layers": "16", "hidden width": "2048", "heads": "16", "key/value heads": UP, "head size": "64",
        "feed-forward width": "8192", "vocabulary": "50257", "gated MLP (three matrices)": SPACE,
        "tied embeddings (one table)": SPACE, "sequence (tokens)": "4096", "recomputation": UP, "model": DOWN,
    },
    "state": {
        "parameters (billion)": "70", "state recipe": DOWN, "divided by (devices)": DOWN, "accelerator": DOWN,
        "model": DOWN,
    },
    "activations": {
        "sequence (tokens)": "4096", "micro-batch": DOWN, "flash attention": SPACE, "dropout": SPACE,
        "recomputation": DOWN, "accelerator": DOWN, "model": DOWN,
    },
}  # fmt: skip
TIMED = {
    "roofline": ("B (decimal GB/s)", [UP] * 16),
    "parameters": ("layers", [UP] * 16),
    "state": ("parameters (billion)", [UP] * 16),
    "activations": ("sequence (tokens)", ["4096", "6000"] * 8),
}


def quiet(lab) -> None:
    assert lab.shown_errors() == []
    assert lab.page_errors() == []


def test_every_control_by_keyboard(lab, artefacts: Path):
    name = "notebooks/explorers.ipynb"
    notebook(lab.folder / name, *(f"explorers.estimate.{one}()" for one in MOVES))
    lab.run_all(name)
    for cell, (explorer, moves) in enumerate(MOVES.items(), 1):
        page = Page(lab, cell).ready()
        start = page.changed("", "running the cell")
        # every control has an accessible name, and is moved below
        assert set(page.labels()) == set(moves)
        for label, move in moves.items():
            (page.type if move[0].isdigit() else page.press)(label, move)
        assert lab.driver.save_screenshot(str(artefacts / f"explorer_{explorer}.png"))
        before = page.result()
        page.button("Reset").send_keys(Keys.ENTER)
        page.changed(before, "Reset")
        lab.wait("the values at the start", lambda page=page, start=start: page.result() == start)
        print(summary(explorer, page.times(*TIMED[explorer])))
        quiet(lab)


def test_the_instrument_of_the_roofline(lab, artefacts: Path):
    name = "notebooks/roofline.ipynb"
    notebook(lab.folder / name, "explorers.estimate.roofline()")
    lab.run_all(name)
    page = Page(lab, 1).ready()
    for bandwidth, rate in (("50", "400 GFLOP/s"), ("100", "800 GFLOP/s"), ("200", "1,000 GFLOP/s")):
        before = page.result()
        page.button("Reset").send_keys(Keys.ENTER)
        if bandwidth != "50":
            page.changed(before, "Reset")
        page.type("I (FLOP/byte)", "8")
        if bandwidth != "100":  # where Reset leaves it
            page.type("B (decimal GB/s)", bandwidth)
        assert f"8 FLOP/byte and {bandwidth} GB/s an operation reaches {rate}" in page.sentence()
        # Play sweeps the bandwidth from a twentieth up to what is set
        first = page.changed("", "setting")
        page.button("Play").send_keys(Keys.ENTER)
        lab.wait("a frame of the sweep", lambda page=page, first=first: page.result() != first)
        lab.wait("the end of the sweep", lambda first=first: page.result() == first)
    assert lab.driver.save_screenshot(str(artefacts / "explorer_roofline_200.png"))
    quiet(lab)


def test_a_wrong_value_is_a_sentence(lab, artefacts: Path):
    name = "notebooks/wrong.ipynb"
    notebook(lab.folder / name, "explorers.estimate.parameters()")
    lab.run_all(name)
    page = Page(lab, 1).ready()
    page.type("layers", "0")
    assert "layers must be" in page.sentence()
    assert "Traceback" not in page.root.text
    assert lab.driver.save_screenshot(str(artefacts / "explorer_wrong.png"))
    page.type("layers", "32")
    assert "8.03 billion parameters" in page.sentence()
    quiet(lab)


def test_the_guess_comes_first(lab, artefacts: Path):
    name = "notebooks/guess.ipynb"
    notebook(lab.folder / name, "explorers.estimate.roofline(intensity=8, bandwidth=200, ask='Which rate?')")
    lab.run_all(name)
    page = Page(lab, 1)
    page.lab.wait("the question", lambda: "Which rate?" in page.root.text)
    assert "GFLOP/s, the compute cap" not in page.root.text
    assert lab.driver.save_screenshot(str(artefacts / "explorer_ask.png"))
    page.button("Show").send_keys(Keys.ENTER)
    page.lab.wait("a request for a guess", lambda: "Write a guess first" in page.root.text)
    page.input("Your guess").send_keys("1600 GFLOP/s", Keys.TAB)
    page.button("Show").send_keys(Keys.ENTER)
    page.lab.wait("the answer", lambda: "1,000 GFLOP/s, the compute cap" in page.root.text)
    assert "You said 1600 GFLOP/s" in page.root.text
    assert lab.driver.save_screenshot(str(artefacts / "explorer_answered.png"))
    quiet(lab)


def shipped(root: Path) -> dict[str, list[str]]:
    """By step, the code cells that bring its explorers into scope and that show them, as the lessons have them."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        cells = [
            "".join(cell["source"]) for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"
        ]
        shown = [cell for cell in cells if re.match(r"explor(e|ers\.\w+)\.\w+\(", cell)]
        scope = [
            line
            for cell in cells
            for line in cell.splitlines()
            if "explorers import" in line or "import explorers" in line
        ]
        if shown:
            found.setdefault(path.stem[:2], []).extend([*scope, *shown])
    return found


LESSONS = shipped(Path(__file__).resolve().parents[2])


@pytest.mark.parametrize("step", LESSONS)
def test_the_explorers_of_a_step(lab, artefacts: Path, step: str):
    name = f"notebooks/explorers_{step}.ipynb"
    notebook(lab.folder / name, *LESSONS[step])
    saved = lab.run_all(name)
    code = [cell for cell in saved["cells"] if cell["cell_type"] == "code"]
    shown = [
        index
        for index, cell in enumerate(code)
        if any("application/vnd.jupyter.widget-view+json" in out.get("data", {}) for out in cell["outputs"])
    ]
    assert len(shown) == sum("import" not in cell for cell in LESSONS[step]), "an explorer came without controls"
    for cell in shown:
        page = Page(lab, cell)
        lab.wait(f"the explorer of cell {cell + 1}", lambda page=page: page.root.text)
        lab.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", page.root)
        assert lab.driver.save_screenshot(str(artefacts / f"{step}_explorer_{cell}.png"))
    quiet(lab)
