"""JupyterLab as a learner meets it: started by `course open`, driven in Chromium.

Screenshots go to the folder that COURSE_ARTEFACTS names, else to pytest's temporary one. Without Chromium these tests
skip, unless COURSE_REQUIRE_BROWSER is set.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 120
RUN_SECONDS = 180
# Each names a person's own settings; a test has none.
OWN_FOLDERS = (
    "IPYTHONDIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "XDG_DATA_HOME",
)
IDLE = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook-ExecutionIndicator[data-status='idle']"
FAILED = ", ".join(f"[data-mime-type='application/vnd.jupyter.{kind}']" for kind in ("error", "stderr"))


def _program(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("COURSE_REQUIRE_BROWSER"):
            pytest.fail(f"no {names[0]} is installed, and COURSE_REQUIRE_BROWSER forbids to skip")
        pytest.skip(f"no {names[0]} is installed: this test drives JupyterLab in a browser")
    return found


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("COURSE_ARTEFACTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One JupyterLab at a time, in however many processes the tests run: two that start together may take one port."""
    try:
        import fcntl
    except ImportError:  # no such lock on this system
        yield
        return
    with (tmp_path_factory.getbasetemp().parent / "browser.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.fixture
def driver(tmp_path: Path, alone: None) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = _program(*BROWSERS)
    for flag in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--disable-dev-shm-usage", "--window-size=1400,1000", f"--user-data-dir={tmp_path / 'profile'}"),
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # A named driver: selenium then looks for none and downloads nothing.
    service = webdriver.ChromeService(executable_path=_program("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    yield browser
    browser.quit()


@dataclass
class Lab:
    """A running JupyterLab in a learner's folder, and the browser that looks at it."""

    folder: Path
    address: str
    driver: Any
    artefacts: Path

    def wait(self, what: str, ready: Callable[[], Any], seconds: float = START_SECONDS) -> Any:
        from selenium.common.exceptions import WebDriverException

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if found := ready():
                    return found
            except (WebDriverException, OSError):
                pass  # the page was just redrawn, or the server is not ready to say
            time.sleep(0.2)
        picture = self.artefacts / "waited_in_vain.png"
        self.driver.save_screenshot(str(picture))
        pytest.fail(f"{what} did not come within {seconds} s; see {picture}; the page says {self.page_errors()}")

    def find(self, css: str) -> Any:
        return self.wait(css, lambda: next(iter(self.all(css)), None))

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def open(self, name: str = "notebooks/00_start.ipynb") -> None:
        """Show a notebook and wait until its kernel is there."""
        self.driver.get(self.address.replace("notebooks/00_start.ipynb", name))
        self.find(".jp-NotebookPanel .jp-Notebook .jp-Cell")
        self.wait("an idle kernel", self.idle)

    def idle(self) -> bool:
        """Whether the server has a kernel that waits, and the page knows."""
        server, _, token = self.address.partition("/lab/tree/notebooks/00_start.ipynb")
        with urllib.request.urlopen(f"{server}/api/kernels{token}", timeout=5) as reply:
            states = [kernel["execution_state"] for kernel in json.load(reply)]
        return bool(states) and set(states) == {"idle"} and bool(self.all(IDLE))

    def menu(self, title: str, command: str) -> None:
        """Choose an entry of the menu bar, as a mouse does."""
        label = f"//div[contains(@class, 'lm-MenuBar-itemLabel') and normalize-space() = '{title}']"
        self.wait(title, lambda: self.driver.find_elements("xpath", label))
        entry = f".lm-Menu li[data-command='{command}']:not(.lm-mod-disabled)"

        def opened() -> Any:
            if not self.all(entry):
                self.driver.find_element("xpath", label).click()
            return next(iter(self.all(entry)), None)

        self.wait(f"{title}: {command}", opened).click()

    def run_all(self, name: str = "notebooks/00_start.ipynb") -> dict[str, Any]:
        """Run every cell by the menu, wait for the kernel to be idle, save, and return the saved notebook."""
        path = self.folder / name
        book = json.loads(path.read_bytes())
        for cell in book["cells"]:
            if cell["cell_type"] == "code":
                # So that a count in the saved notebook shows that the cell was run here.
                cell.update(execution_count=None, outputs=[])
        path.write_text(json.dumps(book), encoding="utf-8")
        self.open(name)
        self.menu("Run", "runmenu:run-all")

        def saved() -> Any:
            if not self.idle():
                return None
            self.menu("File", "docmanager:save")
            time.sleep(0.5)
            book = json.loads(path.read_bytes())
            code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
            # A cell that fails ends the run: the later ones keep no count.
            failed = any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
            return book if failed or all(cell["execution_count"] for cell in code) else None

        result: dict[str, Any] = self.wait("the end of the last cell", saved, RUN_SECONDS)
        return result

    def shown_errors(self) -> list[str]:
        """Errors and stderr that the page shows below cells."""
        return [element.text for element in self.all(FAILED)]

    def page_errors(self) -> list[str]:
        """What the page itself complained of: scripts that failed, things not found."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture
def lab(tmp_path: Path, driver: Any, artefacts: Path) -> Iterator[Lab]:
    folder = tmp_path / "learner"
    environment = {**os.environ, **{name: str(tmp_path / name.lower()) for name in OWN_FOLDERS}}
    command = [sys.executable, "-m", "course", "open", str(folder), "--no-browser"]
    log = (tmp_path / "jupyter.log").open("w", encoding="utf-8")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        address = next((line.split()[1] for line in lines if line.startswith("JupyterLab: ")), None)
        assert address, (tmp_path / "jupyter.log").read_text()
        lab = Lab(folder, address, driver, artefacts)
        lab.wait("JupyterLab", lambda: _answers(address))
        yield lab
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        log.close()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
