"""Is this machine ready for the course? One finding for each need, and what to do where it is missing."""

from __future__ import annotations

import asyncio
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from course.files import user_data

__all__ = ["DISTRIBUTION", "Finding", "examine"]

DISTRIBUTION = "strong-scaling-course"
LAB = ("torch", "jax")
KERNEL_SECONDS = 60
PROBE = "import course"


@dataclass(frozen=True)
class Finding:
    """One line of the examination: ok is True, False (the course cannot run) or None (only the lab asks for it).

    >>> print(Finding(True, "Python", "3.12.1"))
    ok     Python: 3.12.1
    """

    ok: bool | None
    name: str
    text: str

    def __str__(self) -> str:
        """Return the finding as one line."""
        mark = {True: "ok", False: "wrong", None: "lab"}[self.ok]
        return f"{mark:<6} {self.name}: {self.text}"


def examine() -> Iterator[Finding]:
    """Yield the findings one by one, the slow ones last: interpreter, packages, lab engines, folders, kernel."""
    yield python()
    yield from packages()
    yield widgets()
    for name in LAB:
        yield engine(name)
    yield writable("this folder", Path.cwd())
    yield writable("folder of your progress", user_data())
    yield kernel()


def python() -> Finding:
    """Return whether this interpreter is one the course supports.

    >>> python().ok
    True
    """
    found = platform.python_version()
    try:
        wanted = metadata(DISTRIBUTION)["Requires-Python"]
    except PackageNotFoundError:
        wanted = ""
    if SpecifierSet(wanted).contains(found, prereleases=True):
        return Finding(True, "Python", f"{found}, {sys.executable}")
    return Finding(False, "Python", f"{found}; the course needs {wanted}: use a newer one")


def packages() -> Iterator[Finding]:
    """Yield, for each package the course depends on, its version and whether it is in the supported range."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        yield Finding(False, DISTRIBUTION, "not installed; type `python -m pip install .` in the course's folder")
        return
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield package(requirement)


def package(requirement: Requirement) -> Finding:
    """Return whether the installed version of one package meets the requirement.

    >>> package(Requirement("numpy>=1")).ok, package(Requirement("numpy>=1000")).ok
    (True, False)
    """
    mend = f"type `python -m pip install '{requirement.name}{requirement.specifier}'`"
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return Finding(False, requirement.name, f"not installed; {mend}")
    if requirement.specifier.contains(found, prereleases=True):
        return Finding(True, requirement.name, found)
    return Finding(False, requirement.name, f"{found} is outside {requirement.specifier}; {mend}")


def widgets() -> Finding:
    """Return whether JupyterLab has the part that draws the widgets of ipywidgets."""
    name = "widgets in JupyterLab"
    try:
        lines = requires("ipywidgets") or []
        needed = next(Requirement(line) for line in lines if Requirement(line).name == "jupyterlab_widgets")
    except (PackageNotFoundError, StopIteration):
        return Finding(False, name, "ipywidgets is not installed; type `python -m pip install ipywidgets`")
    part = package(needed)
    # Where pip puts the browser's half; a JupyterLab of another environment would not look here.
    place = Path(sys.prefix, "share", "jupyter", "labextensions", "@jupyter-widgets", "jupyterlab-manager")
    if part.ok and not place.is_dir():
        mend = "type `python -m pip install --force-reinstall jupyterlab_widgets`"
        return Finding(False, name, f"the browser's half is not in {place}; {mend}")
    return Finding(part.ok, name, part.text)


def engine(name: str) -> Finding:
    """Return the version of a lab engine, or how to get it; one that is missing does not keep the course from running.

    >>> engine("no-such-engine").ok is None
    True
    """
    try:
        return Finding(True, name, version(name))
    except PackageNotFoundError:
        how = f"type `python -m pip install '{DISTRIBUTION}[lab]'`, or '.[lab]' in a checkout"
        return Finding(None, name, f"not installed; only measuring on your own devices needs it: {how}")


def writable(name: str, folder: Path) -> Finding:
    """Return whether a file can be written in folder, or in the first folder above it that is there.

    >>> with tempfile.TemporaryDirectory() as home:
    ...     writable("home", Path(home, "not", "yet", "there")).ok
    True
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return Finding(True, name, f"{folder} can be written")
    except OSError as error:
        return Finding(False, name, f"{folder} cannot be written ({error.strerror}); go to a folder of your own")


def kernel() -> Finding:
    """Return whether a notebook kernel of this interpreter starts and computes."""
    try:
        return asyncio.run(_kernel())
    except Exception as error:  # whatever a broken installation raises is the finding
        mend = "type `python -m pip install --force-reinstall ipykernel`"
        reason = str(error) or type(error).__name__
        return Finding(False, "kernel", f"does not start ({reason.splitlines()[0]}); {mend}")


async def _kernel() -> Finding:
    from course.kernel import manager

    started = manager()
    await started.start_kernel()
    try:
        client = started.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=KERNEL_SECONDS)
            reply = await client.execute_interactive(PROBE, timeout=KERNEL_SECONDS, output_hook=lambda _: None)
        finally:
            client.stop_channels()
    finally:
        await started.shutdown_kernel(now=True)
    if reply["content"]["status"] != "ok":
        return Finding(False, "kernel", f"starts, but `{PROBE}` fails in it ({reply['content']['evalue']})")
    return Finding(True, "kernel", "starts and imports the course")
