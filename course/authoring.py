"""Text sources to executed notebooks, the same bytes on every run.

A source is MyST Markdown; its notebook lies beside it. A source in `solutions` makes the learner's notebook in
`exercises` as well: every check must be right in the one, and not answered in the other. A cell that raises or
writes to stderr fails the build. What would differ from run to run is fixed: cell ids follow from the notebook's name
and the cell's place, widget ids are numbered, no times and no widget state are stored. Outputs of a cell tagged `timed`
may differ; nothing compares them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.files import write_atomically
from course.grading import exercise
from course.grading.session import RECORD_FILE

__all__ = [
    "SOURCES",
    "BuildError",
    "build",
    "differences",
    "execute",
    "find",
    "orphans",
    "read",
    "render",
    "targets",
    "warm_fonts",
]

SOURCES = ("notebooks", "solutions")
EXERCISES = "exercises"
TIMED = "timed"
CELL_SECONDS = 300
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
# Without the interpreter's version, so that every supported Python builds the same file.
LANGUAGE = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3"}
WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = "image/png"

Notebook = Any  # nbformat's NotebookNode: a dict with attribute access, without types


class BuildError(Exception):
    """A source that does not become a notebook: the message names the source, the cell and what happened."""


def find(root: Path, names: Sequence[str] = ()) -> list[Path]:
    """Return the text sources under root, sorted; only those whose stem is in names, when names are given.

    Raises UserError when there is no source at all, or none of a given name.

    >>> import course.workspace
    >>> [path.stem for path in find(course.workspace.material_root(), ["00_start"])]
    ['00_start']
    """
    paths = [path for folder in SOURCES for path in sorted((root / folder).glob("*.md")) if path.stem != "README"]
    if not paths:
        raise UserError("There is no text source here: `course build` needs a checkout of the course.")
    stems = sorted({path.stem for path in paths})
    for name in names:
        if name not in stems:
            raise UserError(f"There is no source named {name!r}; the sources are {', '.join(stems)}.")
    return [path for path in paths if not names or path.stem in names]


def read(source: Path) -> Notebook:
    """Return the notebook of a MyST Markdown source, not yet executed: cells with fixed ids and only their tags.

    Raises BuildError when the source cannot be read.
    """
    import jupytext
    import nbformat

    try:
        text = source.read_text(encoding="utf-8")
        raw = jupytext.reads(text, fmt={"extension": ".md", "format_name": "myst"})
    except Exception as error:  # the reader raises a dozen kinds
        raise BuildError(f"{source.name}: not readable as MyST Markdown ({error}).") from error
    new = nbformat.v4
    makers: dict[str, Any] = {"code": new.new_code_cell, "markdown": new.new_markdown_cell, "raw": new.new_raw_cell}
    cells = []
    for index, cell in enumerate(raw.cells):
        tags = list(cell.metadata.get("tags", ()))
        if TIMED in tags:
            tags.append("nbval-ignore-output")
        try:
            fresh = makers[cell.cell_type](exercise.fill(cell.source) if cell.cell_type == "markdown" else cell.source)
        except UserError as error:
            raise BuildError(f"{source.name}: {error}") from error
        fresh.id = re.sub(r"[^A-Za-z0-9_-]", "-", source.stem)[:50] + f"-{index:03d}"
        if tags:
            fresh.metadata["tags"] = tags
        cells.append(fresh)
    return new.new_notebook(cells=cells)


def execute(notebook: Notebook, source: Path, wanted: str | None = None) -> Notebook:
    """Run every cell of the notebook by this interpreter, in the source's folder; return the notebook with outputs.

    Arguments: wanted, the status that every check must have ("right", "unanswered"); None asks for none.
    Raises BuildError that names the cell when one raises, writes to stderr, or takes over 300 s, and the check that has
    another status.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    from course.kernel import environment, manager

    with tempfile.TemporaryDirectory(prefix="course-build-", ignore_cleanup_errors=True) as scratch:
        client = NotebookClient(
            notebook,
            km=manager(),
            timeout=CELL_SECONDS,
            record_timing=False,
            store_widget_state=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(source.parent)}},
        )
        record = Path(scratch, "checks.jsonl")
        apart = {"COURSE_DATA": str(Path(scratch, "data")), RECORD_FILE: str(record)}
        try:
            client.execute(env={**environment(Path(scratch)), **apart}, cleanup_kc=True)
        except CellExecutionError:
            pass  # told below, with the cell's number
        except CellTimeoutError as error:
            raise BuildError(f"{source.name}: a cell took over {CELL_SECONDS} s.") from error
        except DeadKernelError as error:
            raise BuildError(f"{source.name}: the kernel died.") from error
        checked = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                raise BuildError(f"{_place(source, index, cell)} raises {output.ename}: {_line(output.evalue)}")
            if output.output_type == "stream" and output.name == "stderr":
                raise BuildError(f"{_place(source, index, cell)} writes to stderr: {_line(output.text)}")
    for entry in map(json.loads, checked):
        if wanted is not None and entry["status"] != wanted:
            raise BuildError(
                f"{source.name}: the check of {entry['id']} is {entry['status']}, where {wanted} is wanted."
            )
    return notebook


def compose(source: Path, student: bool = False) -> Notebook:
    """Return the notebook of a source before it is run; if `student` the learner's, without answers.

    Raises BuildError as `read` does, and where an exercise is written wrong.
    """
    import nbformat

    notebook = read(source)
    if source.parent.name == "solutions":
        try:
            notebook.cells = exercise.student(notebook.cells) if student else exercise.solved(notebook.cells)
        except (exercise.ExerciseError, SyntaxError) as error:
            raise BuildError(f"{source.name}: {error}") from error
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": LANGUAGE})
    return notebook


def render(source: Path, student: bool = False) -> bytes:
    """Return the bytes of the executed notebook of a source; if `student` of the learner's, without answers.

    Raises BuildError as `compose` and `execute` do.
    """
    import nbformat

    wanted = ("unanswered" if student else "right") if source.parent.name == "solutions" else None
    notebook = execute(compose(source, student), source, wanted)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": LANGUAGE})
    if _settle(notebook):
        notebook.metadata["course"] = {"matplotlib": version("matplotlib")}
    nbformat.validate(notebook)
    return (str(nbformat.writes(notebook)).rstrip("\n") + "\n").encode()


def targets(source: Path) -> dict[Path, bool]:
    """Return the notebooks of a source, and for each whether it is a learner's.

    >>> [path.as_posix() for path in targets(Path("solutions/01_estimate.md"))]
    ['solutions/01_estimate.ipynb', 'exercises/01_estimate.ipynb']
    """
    made = {source.with_suffix(".ipynb"): False}
    if source.parent.name == "solutions":
        made[source.parent.parent / EXERCISES / f"{source.stem}.ipynb"] = True
    return made


def build(source: Path) -> list[Path]:
    """Write the executed notebooks of a source and return their paths; nothing is written when one of them fails."""
    made = {target: render(source, student) for target, student in targets(source).items()}
    for target, data in made.items():
        target.parent.mkdir(exist_ok=True)
        write_atomically(target, data)
    return list(made)


def differences(committed: bytes, built: bytes) -> list[str]:
    """Return what differs between two notebooks, in words; nothing when they agree.

    Outputs of cells tagged `timed` are not compared, pictures only where both were drawn by one version of Matplotlib.

    >>> differences(b'{"cells": [], "metadata": {}}', b'{"cells": [], "metadata": {}}')
    []
    """
    try:
        old = json.loads(committed)
        old_cells = list(old["cells"])
    except (ValueError, KeyError, TypeError):
        return ["it is not a notebook"]
    new = json.loads(built)
    drawn_by = [book.get("metadata", {}).pop("course", None) for book in (old, new)]
    keep_pictures = drawn_by[0] == drawn_by[1]
    found = []
    if {**old, "cells": 0} != {**new, "cells": 0}:
        found.append("the notebook's metadata")
    if len(old_cells) != len(new["cells"]):
        return [*found, f"the number of cells ({len(old_cells)}, built {len(new['cells'])})"]
    for index, (one, two) in enumerate(zip(old_cells, new["cells"], strict=True)):
        if {**one, "outputs": 0} != {**two, "outputs": 0}:
            found.append(f"cell {index + 1}")
        elif TIMED not in two["metadata"].get("tags", ()):
            outputs = [_comparable(cell.get("outputs", []), keep_pictures) for cell in (one, two)]
            if outputs[0] != outputs[1]:
                found.append(f"the output of cell {index + 1}")
    return found


def orphans(root: Path) -> list[Path]:
    """Return the notebooks under root that no text source makes.

    >>> import course.workspace
    >>> orphans(course.workspace.material_root())
    []
    """
    sources = {folder: folder for folder in SOURCES} | {EXERCISES: "solutions"}
    books = [(path, origin) for folder, origin in sources.items() for path in sorted((root / folder).glob("*.ipynb"))]
    return [path for path, origin in books if not (root / origin / f"{path.stem}.md").exists()]


def warm_fonts() -> None:
    """Let Matplotlib make its list of fonts now; the first kernel on a new machine would say so on stderr."""
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], capture_output=True, check=False)


def _comparable(outputs: list[dict[str, Any]], pictures: bool) -> list[dict[str, Any]]:
    if pictures:
        return outputs
    return [
        {**output, "data": {**output["data"], PNG: None}} if PNG in output.get("data", ()) else output
        for output in outputs
    ]


def _settle(notebook: Notebook) -> bool:
    """Number the widgets in order of appearance; return whether a picture is among the outputs."""
    numbers: dict[str, str] = {}
    pictures = False
    for data in _data(notebook):
        pictures |= PNG in data
        if WIDGET in data:
            model = data[WIDGET]["model_id"]
            data[WIDGET]["model_id"] = numbers.setdefault(model, f"{len(numbers) + 1:032x}")
    return pictures


def _data(notebook: Notebook) -> Iterator[dict[str, Any]]:
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "data" in output:
                yield output["data"]


def _place(source: Path, index: int, cell: Notebook) -> str:
    return f"{source.name}: cell {index + 1} ({_line(cell.source)!r})"


def _line(text: str) -> str:
    """The first line that is not blank, shortened: enough to find the cell or know the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else ""
