"""One text source of an exercise, two notebooks: the solved one, and the learner's, in which the answers are missing.

Tags of the cells say which is which. `solution`: in the learner's notebook the answers become stubs, the checks stay.
`stub`: stands in the learner's notebook alone; right behind a `solution` cell it takes that cell's place.
`solution-only`: stands in the solved notebook alone. `{{question estimate.3}}` in a text becomes the question.

>>> print(stub('P, S = 70e9, 15e12\\nflops = 6 * P * S\\ncheck("estimate.1", flops)'))
flops = None  # your answer
check("estimate.1", flops)
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["ExerciseError", "fill", "solved", "stub", "student"]

SOLUTION, STUB, SOLUTION_ONLY = "solution", "stub", "solution-only"
_PLACE = re.compile(r"\{\{\s*question\s+([\w.]+)\s*\}\}")

Cell = Any  # nbformat's NotebookNode


class ExerciseError(ValueError):
    """A source whose answers cannot be taken out; the message is a sentence."""


def _tags(cell: Cell) -> list[str]:
    return list(cell.metadata.get("tags", ()))


def solved(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of the solved notebook."""
    return [cell for cell in cells if STUB not in _tags(cell)]


def student(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of the learner's notebook; solution cells are changed in place.

    Raises:
        ExerciseError: a check in a solution cell does not name its answer.
    """
    kept = []
    for index, cell in enumerate(cells):
        tags = _tags(cell)
        if SOLUTION_ONLY in tags:
            continue
        if SOLUTION in tags:
            replaced = index + 1 < len(cells) and STUB in _tags(cells[index + 1])
            if replaced or cell.cell_type != "code":
                continue
            cell.source = stub(cell.source)
        left = [tag for tag in tags if tag not in (SOLUTION, STUB)]
        if tags and not left:
            del cell.metadata["tags"]  # a learner's cell does not say that an answer was here
        elif tags:
            cell.metadata["tags"] = left
        kept.append(cell)
    return kept


def stub(source: str) -> str:
    """A solution cell without its answers: checks and imports stay, what is checked becomes None or an empty function.

    Raises:
        ExerciseError: the cell has no check, or checks something that has no name.
    """
    tree = ast.parse(source)
    answers, checks = _checks(tree)
    if not checks:
        raise ExerciseError("A cell tagged solution checks nothing; tag it solution-only.")
    lines = source.splitlines()
    kept: list[str] = []
    for node in tree.body:
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        if isinstance(node, ast.FunctionDef) and node.name in answers:
            kept.append(_empty(node))
            answers.remove(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            kept.append(text)
        elif node in checks:
            names = [name for name in _names(node) if name in answers]
            kept += [f"{name} = None  # your answer" for name in names]
            answers = [name for name in answers if name not in names]
            kept.append(text)
    return "\n".join(kept)


def _checks(tree: ast.Module) -> tuple[list[str], list[ast.stmt]]:
    """Names of the answers, and the statements that check them."""
    answers: list[str] = []
    statements: list[ast.stmt] = []
    for node in tree.body:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            continue
        call = node.value
        if isinstance(call.func, ast.Name) and call.func.id == "check":
            if len(call.args) < 2 or not isinstance(call.args[1], ast.Name):
                raise ExerciseError(f"Give the answer a name before it is checked: {ast.unparse(call)[:80]}.")
            answers.append(call.args[1].id)
            statements.append(node)
    return list(dict.fromkeys(answers)), statements


def _names(node: ast.stmt) -> list[str]:
    return list(dict.fromkeys(part.id for part in ast.walk(node) if isinstance(part, ast.Name)))


def _empty(node: ast.FunctionDef) -> str:
    """The function's head and docstring, and an ellipsis."""
    body: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
    if ast.get_docstring(node) is not None:
        body.insert(0, node.body[0])
    bare = copy.copy(node)
    bare.body = body
    text = ast.unparse(ast.fix_missing_locations(bare))
    return re.sub(r"\.\.\.$", "...  # your answer", text)


def asked_unit(question: Any) -> str:
    """What a question's words end with: the unit asked for, or nothing where it is a plain number or no number."""
    unit = getattr(question, "unit", "")
    return f" Unit: {unit}." if unit not in ("", "1") else ""


def fill(text: str, ask: Callable[[str], str] | None = None) -> str:
    """Put questions in the place of `{{question ID}}`, with the numbers that are graded.

    Raises:
        UserError: there is no question of an id.
    """
    return _PLACE.sub(lambda match: (ask or _words)(match[1]), text) if "{{" in text else text


def _words(name: str) -> str:
    from course.questions.registry import default

    question = default().get(name)
    level = {1: "easy", 2: "middling", 3: "hard"}[question.difficulty]
    more = f'; other numbers: `fresh("{name}", 1)`' if question.draw is not None else ""
    return (
        f"**{name}: {question.title}** ({level}, about {question.minutes} min)\n\n"
        f"{question.text()}{asked_unit(question)}\n\n"
        f'Stuck: `hint("{name}")`{more}.'
    )
