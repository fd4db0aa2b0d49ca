"""Control to picture: how long a reader waits, in the kernel alone and in JupyterLab.

Not among the tests, for it measures the machine as well: `python -m pytest -s tests/benchmarks/explorers.py`.
"""

from __future__ import annotations

import time
from statistics import median

import pytest
from selenium.webdriver.common.keys import Keys

from course.explorers import Number, estimate
from course.explorers.widgets import Panel
from tests.browser.conftest import artefacts, driver, lab  # noqa: F401
from tests.browser.explorers import Page, notebook, summary

CONTROLS = {
    "roofline": "bandwidth", "parameters": "layers", "state": "parameters", "activations": "sequence_length",
}  # fmt: skip
REPEATS = 40


@pytest.mark.parametrize("name", CONTROLS)
def test_in_the_kernel(name):
    shown = Panel(getattr(estimate, name)())
    times = []
    for step in range(REPEATS):
        start = time.perf_counter()
        shown.inputs[CONTROLS[name]].value += 1 if step % 2 else 2
        times.append(1e3 * (time.perf_counter() - start))
    print(f"\n{name}: in the kernel, median {median(times[5:]):.0f} ms of {REPEATS - 5}")


def test_in_the_page(lab):  # noqa: F811
    name = "notebooks/explorers.ipynb"
    notebook(lab.folder / name, *(f"explorers.estimate.{one}()" for one in CONTROLS))
    lab.run_all(name)
    medians = {}
    print()
    for cell, (explorer, control) in enumerate(CONTROLS.items(), 1):
        page = Page(lab, cell).ready()
        page.changed("", "running the cell")
        label = next(
            one.label
            for one in getattr(estimate, explorer)().controls
            if isinstance(one, Number) and one.name == control
        )
        # one token more would change no digit of the picture, so these are typed
        moves = ["4096", "6000"] if explorer == "activations" else [Keys.ARROW_UP] * 2
        page.times(label, moves * 3)
        times = page.times(label, moves * (REPEATS // 2))
        print(summary(explorer, times))
        medians[explorer] = median(times[0])
    assert max(medians.values()) < 100, medians
