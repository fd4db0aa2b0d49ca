"""An oracle that imports the formula it judges judges nothing: the simulators stand on Python and numpy alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import course.simulators

FILES = sorted(Path(course.simulators.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_simulator_imports_python_numpy_and_simulators(path):
    imported = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.append(node.module)
    for name in imported:
        own = name.startswith("course.simulators")
        assert own or name.split(".")[0] in {*sys.stdlib_module_names, "numpy"}, name


def test_all_of_them_were_looked_at():
    assert {"engine", "pipeline", "ranks", "ring", "saved", "shapes", "timeline"} <= {path.stem for path in FILES}
