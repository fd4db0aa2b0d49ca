"""Explorers as the keyboard and a screen reader meet them: found by label, changed by keys, timed in the page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from course import authoring

PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
RESULT = """
return [...arguments[0].querySelectorAll('[role=status], table')].map((one) => one.innerText).join('\\n');
"""
# The clock starts at the key. It stops when the picture has its new bytes; once more when they are decoded.
WATCH = """
const image = arguments[0].querySelector('img');
window.courseTimes = [];
window.courseDecoded = [];
window.courseKey = null;
if (window.courseKeys) document.removeEventListener('keydown', window.courseKeys, true);
window.courseKeys = () => { window.courseKey = performance.now(); };
document.addEventListener('keydown', window.courseKeys, true);
new MutationObserver(() => {
  const key = window.courseKey;
  if (key === null) return;
  window.courseKey = null;
  window.courseTimes.push(performance.now() - key);
  const decoded = () => window.courseDecoded.push(performance.now() - key);
  image.decode().then(decoded, decoded);
}).observe(image, {attributes: true, attributeFilter: ['src']});
"""
INPUT = """
for (const label of arguments[0].querySelectorAll('label')) {
  if (label.textContent.trim() !== arguments[1]) continue;
  const input = label.htmlFor ? document.getElementById(label.htmlFor) : label.querySelector('input');
  if (input) return input;
}
return null;
"""


def notebook(path: Path, *lines: str) -> Path:
    """A notebook with one code cell a line, after the imports."""
    new = nbformat.v4
    cells = [new.new_code_cell(line) for line in ("from course import explorers", *lines)]
    book = new.new_notebook(cells=cells, metadata={"kernelspec": authoring.KERNELSPEC})
    path.write_text(nbformat.writes(book), encoding="utf-8")
    return path


@dataclass
class Page:
    """One explorer in the page: the output area of the code cell that shows it."""

    lab: Any
    cell: int

    @property
    def root(self) -> Any:
        cells = self.lab.all(f"{PANEL} .jp-CodeCell")
        return cells[self.cell].find_element("css selector", ".jp-OutputArea-output .widget-hbox")

    def ready(self) -> Page:
        """Scroll to it and wait for its picture."""

        def shown() -> bool:
            self.lab.driver.execute_script("arguments[0].scrollIntoView({block: 'start'})", self.root)
            return bool(self.root.find_elements("css selector", "img[src]"))

        self.lab.wait(f"the explorer of cell {self.cell + 1}", shown)
        return self

    def input(self, label: str) -> Any:
        """The input that a label names; None where a label names none."""
        return self.lab.driver.execute_script(INPUT, self.root, label)

    def labels(self) -> list[str]:
        """The labels of the controls."""
        found = [element.text.strip() for element in self.root.find_elements("css selector", "label")]
        return [text for text in found if text]

    def result(self) -> str:
        """The sentence and the table, read at one moment."""
        return str(self.lab.driver.execute_script(RESULT, self.root))

    def sentence(self) -> str:
        return self.result().partition("\n")[0]

    def changed(self, before: str, what: str) -> str:
        """Wait until the result differs and stands still, and return it."""

        def settled() -> str | None:
            now = self.result()
            time.sleep(0.25)
            return now if now not in ("", before) and now == self.result() else None

        return str(self.lab.wait(f"another result after {what}", settled))

    def type(self, label: str, text: str) -> str:
        """Select what a number box holds, type over it, Enter."""
        before, box = self.result(), self.input(label)
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(text, Keys.ENTER)
        return self.changed(before, f"{label} = {text}")

    def press(self, label: str, key: str) -> str:
        """One key on a control; a dropdown is opened first, for closed its arrows would move JupyterLab's cursor."""
        before, control = self.result(), self.input(label)
        if control.tag_name == "select":
            control.send_keys(Keys.SPACE)
            ActionChains(self.lab.driver).send_keys(key).send_keys(Keys.ENTER).perform()
        else:
            control.send_keys(key)
        return self.changed(before, f"a key on {label}")

    def button(self, name: str) -> Any:
        return next(one for one in self.root.find_elements("css selector", "button") if one.text.strip() == name)

    def times(self, label: str, moves: list[str]) -> tuple[list[float], list[float]]:
        """Milliseconds from the last key of each move to the picture's bytes, and to the decoded picture.

        A move is one key, or a number to type into the box.
        """
        driver = self.lab.driver
        driver.execute_script(WATCH, self.root)
        control = self.input(label)
        for number, move in enumerate(moves, 1):
            if move.isdigit():
                control.send_keys(Keys.CONTROL, "a")
                control.send_keys(move)
                driver.execute_script("window.courseKey = null")
                control.send_keys(Keys.ENTER)
            else:
                control.send_keys(move)
            done = f"return window.courseDecoded.length >= {number}"
            self.lab.wait(f"picture {number} after {label}", lambda done=done: driver.execute_script(done))
            time.sleep(0.1)
        found = driver.execute_script("return [window.courseTimes, window.courseDecoded]")
        return found[0], found[1]


def summary(name: str, times: tuple[list[float], list[float]]) -> str:
    """One line: medians, and the share under 70 ms."""
    bytes_there, decoded = times
    quick = sum(value < 70 for value in bytes_there) / len(bytes_there)
    there = f"median {median(bytes_there):.0f} ms of {len(bytes_there)}, {quick:.0%} under 70 ms"
    return f"{name}: control to picture, {there}; decoded after {median(decoded):.0f} ms"
