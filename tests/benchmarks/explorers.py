"""Control to picture: how long a reader waits, in the kernel alone and in JupyterLab, over every explorer.

Not among the tests, for it measures the machine as well: `python -m pytest -s tests/benchmarks/explorers.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import pytest

from course.explorers import Choice, Flag, Number
from course.explorers.widgets import Panel
from tests.browser.conftest import alone, artefacts, driver, lab  # noqa: F401
from tests.browser.explorers import Page, notebook, summary
from tests.every_explorer import NAMES, STEPS, made

REPEATS, WARM = 40, 5


def moves(panel: Panel) -> Iterator[tuple[str, object]]:
    """Every other value of every control, over and over."""
    while True:
        for control in panel.explorer.controls:
            now = panel.values[control.name]
            if isinstance(control, Flag):
                yield control.name, not now
            elif isinstance(control, Choice):
                others = [value for value in control.legal(panel.values).values() if value != now]
                for value in others[:2]:
                    if value in control.legal(panel.values).values():  # the change before may have closed it
                        yield control.name, value
            else:
                yield from ((control.name, value) for value in control.stops()[1:6:2] if value != now)


def typed(name: str) -> tuple[str, list[str]]:
    """The label of a number box, and two whole numbers that redraw the picture when they are typed in turn."""
    panel = Panel(made(name))
    for control in panel.explorer.controls:
        found: dict[bytes, str] = {}
        for value in control.stops() if isinstance(control, Number) else ():
            if value == int(value) and value != control.default:
                before, panel.inputs[control.name].value = panel.image.value, value
                if panel.image.value not in (before, *found):
                    found[panel.image.value] = f"{value:.0f}"
                if len(found) == 2:
                    return control.label, list(found.values())
        panel.reset.click()
    return "", []


@pytest.mark.parametrize("name", NAMES)
def test_in_the_kernel(name):
    panel = Panel(made(name))
    times: dict[str, list[float]] = {}
    change = moves(panel)
    for _ in range(5 * REPEATS):
        control, value = next(change)
        before, start = panel.image.value, time.perf_counter()
        panel.inputs[control].value = value
        took = 1e3 * (time.perf_counter() - start)
        if panel.image.value == before:  # an illegal value answers with a sentence, and draws nothing
            panel.reset.click()
            continue
        times.setdefault(control, []).append(took)
        if sum(map(len, times.values())) == REPEATS:
            break
    every = [value for found in times.values() for value in found][WARM:]
    slowest = max(times, key=lambda control: median(times[control]))
    print(
        f"\n{name}: in the kernel, median {median(every):.0f} ms of {len(every)}; "
        f"slowest control {slowest}, median {median(times[slowest]):.0f} ms"
    )
    assert median(every) < 100


def test_in_the_page(lab):  # noqa: F811
    name = "notebooks/explorers.ipynb"
    steps = "".join(f", {step}" for step in STEPS)
    notebook(lab.folder / name, f"from course.explorers import {steps[2:]}", *(f"{one}()" for one in NAMES))
    lab.run_all(name)
    medians = {}
    print()
    for cell, explorer in enumerate(NAMES, 2):
        label, keys = typed(explorer)
        if not keys:
            print(f"{explorer}: no number changes its picture, timed in the kernel")
            continue
        page = Page(lab, cell).ready()
        page.changed("", "running the cell")
        page.times(label, keys * 3)
        times = page.times(label, keys * (REPEATS // 2))
        print(summary(explorer, times))
        medians[explorer] = median(times[0])
    assert max(medians.values()) < 100, medians
