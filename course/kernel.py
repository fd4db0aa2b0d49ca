"""A kernel of this very interpreter, not of another Python that a kernel list or the PATH may name."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

__all__ = ["environment", "manager"]


class _ThisInterpreter(KernelSpecManager):
    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002
        # The log level keeps the kernel's remark about unencrypted local sockets off our stderr.
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=40"]
        return KernelSpec(argv=argv, language="python", display_name="Python 3 (ipykernel)")


def manager() -> Any:
    """Return a jupyter_client kernel manager whose kernel is `sys.executable`, not yet started.

    >>> manager().kernel_spec.argv[0] == sys.executable
    True
    """
    return AsyncKernelManager(kernel_name="python3", kernel_spec_manager=_ThisInterpreter())


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a kernel whose outputs depend on nobody's own settings.

    Arguments: scratch, a folder that takes what a kernel would keep for its user (history, progress).

    >>> environment(Path("scratch"))["PYTHONHASHSEED"]
    '0'
    """
    package = Path(__file__).resolve().parent
    fixed = {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONHASHSEED": "0",
        # The course that builds is the course that the kernel imports, installed or not.
        "PYTHONPATH": os.pathsep.join(filter(None, (str(package.parent), os.environ.get("PYTHONPATH")))),
        "IPYTHONDIR": str(scratch / "ipython"),
        "XDG_DATA_HOME": str(scratch / "data"),
        "COURSE_DATA": str(scratch / "data"),  # a build must not touch anybody's progress, on any platform
        "COURSE_STATIC": "1",  # explorers as pictures: a stored notebook has no front end
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    matplotlib = find_spec("matplotlib")
    if matplotlib is not None and matplotlib.origin:
        fixed["MATPLOTLIBRC"] = str(Path(matplotlib.origin).parent / "mpl-data" / "matplotlibrc")
    return {**os.environ, **fixed}
