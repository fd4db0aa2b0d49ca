"""Copy the notebooks and exercises to a folder and start JupyterLab there.

What you changed is never overwritten: a newer version of such a notebook is written beside it, as NAME.new.ipynb.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from course import workspace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course open`."""
    parser.add_argument("folder", nargs="?", default="strong-scaling-course", type=Path, metavar="FOLDER")
    parser.add_argument("--no-browser", action="store_true", help="start JupyterLab, print its address, open nothing")
    parser.add_argument("--no-lab", action="store_true", help="copy the files and stop")
    parser.add_argument("--port", type=_port, help="port on 127.0.0.1; default the first free one from 8888")


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a whole number from 1 to 65535")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Lay the files, say what was done, and start JupyterLab."""
    folder: Path = arguments.folder
    for sentence in workspace.lay(folder).sentences():
        print(sentence)
    if arguments.no_lab:
        return 0
    command, environment, address = workspace.server(folder, arguments.port, browser=not arguments.no_browser)
    print(f"JupyterLab: {address}\nEnd it with Ctrl-C.", flush=True)
    return workspace.start(command, environment)
