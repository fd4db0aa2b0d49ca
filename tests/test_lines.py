"""The line-by-line tables of the two source documents: complete, in order, and all that a line names exists."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from course import examples, records
from course.formulas import formulas
from course.questions.registry import default

ROOT = Path(__file__).resolve().parent.parent
SEEDS = ROOT.parent / "shared" / "seeds"
PAGE = ROOT / "docs" / "lines.md"
COUNTS = {1: 120, 2: 32}  # pieces of the two documents
TITLES = ("#", "sentence", "taught in", "formula", "question", "shown by")
CODE = re.compile(r"`([^`]+)`")
SECTION = re.compile(r"`(\w+)`: (.+?)(?:; (?=`\w+`: )|$)")


class Line(NamedTuple):
    """One row: its number, the sentence, and the four cells beside it."""

    number: str
    sentence: str
    taught: str
    formula: str
    question: str
    shown: str


def lines(text: str) -> list[Line]:
    """The rows of all tables of a page."""
    found = []
    for row in text.splitlines():
        if row.startswith("|"):
            cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
            assert len(cells) == len(TITLES), f"{len(cells)} cells: {row}"
            if re.fullmatch(r"\d\.\d+", cells[0]):
                found.append(Line(*cells))
            else:
                assert tuple(cells) == TITLES or set("".join(cells)) == {"-"}, row
    return found


def sentences(text: str) -> Iterator[str]:
    """A document's pieces: sentences, headings, list items, formulas and rows of its table, without their marks."""
    for row in text.splitlines():
        bare = re.sub(r"^(?:•|\d+\.)\s+", "", row.strip())
        if bare.startswith("$$"):
            yield bare
        elif bare:
            yield from (one.strip().replace("\t", " — ") for one in re.split(r"(?<=[.?:])\s+(?=[A-Z])", bare))


@cache
def notebook(name: str) -> str:
    """Source of a notebook; empty if there is none."""
    path = ROOT / "notebooks" / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def section(name: str, heading: str) -> str | None:
    """Text under a heading of a notebook, or None."""
    parts = re.split(r"^(#{1,3} .+)$", notebook(name), flags=re.MULTILINE)
    under = dict(zip((part.lstrip("# ") for part in parts[1::2]), parts[2::2], strict=True))
    return under.get(heading)


@cache
def ids() -> dict[str, frozenset[str]]:
    """What the last column may name, by kind."""
    with (ROOT / "tests" / "data" / "cases.csv").open(encoding="utf-8", newline="") as file:
        cases = {row["id"] for row in csv.DictReader(file) if row["input_json"]}
    recorded = sorted((ROOT / "course" / "lab" / "recorded").glob("*.json"))
    cells = {cell["id"] for file in recorded for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]}
    tests = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    kinds = {
        "run": {row["id"] for row in records.runs()},
        "series": {row["group_id"] for row in records.groups()},
        "case": cases,
        "cell": cells,
        "test": tests,
        "example": set(examples.names()),
    }
    return {kind: frozenset(names) for kind, names in kinds.items()}


KINDS = {
    "run": r"[a-z]+-\d{4}",
    "series": r"G\d{4}",
    "case": r"[A-Z]{3}-\d\d",
    "cell": r"(?:torch|jax)\.[a-z0-9]+\.\d\..+",
    "test": r"test_\w+",
    "example": r"[a-z0-9.-]+-\d+-[a-z]+\d+",
}


def wrong(line: Line) -> list[str]:
    """What is wrong with a line, in words."""
    said = [f"{field} is empty" for field, cell in zip(Line._fields, line, strict=True) if not cell]
    for field, cell in zip(Line._fields[2:], line[2:], strict=True):
        if cell.startswith("–"):
            if len(cell.split()) < 3:
                said.append(f"{field}: a dash without a reason")
        elif not CODE.search(cell) and not (field == "shown" and "computed there" in cell):
            said.append(f"{field}: names nothing and gives no reason")
    if not line.formula.startswith("–"):
        said += [f"no formula {name}" for name in CODE.findall(line.formula) if name not in formulas()]
    if not line.question.startswith("–"):
        known = {question.id for question in default().all()}
        said += [f"no question {name}" for name in CODE.findall(line.question) if name not in known]
    places = [] if line.taught.startswith("–") else SECTION.findall(line.taught)
    if not line.taught.startswith("–") and "; ".join(f"`{name}`: {heading}" for name, heading in places) != line.taught:
        said.append("taught in: not of the form `notebook`: heading")
    texts = {place: section(*place) for place in places}
    said += [f"no section {name}: {heading}" for (name, heading), text in texts.items() if text is None]
    if not any("{code-cell}" in (text or "") for text in texts.values()) and "computed there" in line.shown:
        said.append("computed there, but no section has a cell")
    return said + ([] if line.shown.startswith("–") else unknown(line, [name for name, _ in places]))


def unknown(line: Line, names: list[str]) -> list[str]:
    """Names of the last column that do not exist, or stand in none of the notebooks of the line."""
    said, sources = [], "\n".join(notebook(name) for name in names)
    for name in CODE.findall(line.shown):
        kind = next((kind for kind, form in KINDS.items() if re.fullmatch(form, name)), None)
        if kind is not None and name not in ids()[kind]:
            said.append(f"no {kind} {name}")
        elif name.endswith("-*"):
            if not any(row.startswith(name[:-1]) for row in ids()["run"]) or name[:-2] not in sources:
                said.append(f"no runs {name} in the records and the notebook")
        elif kind in (None, "run", "series") and name not in sources and "in no notebook" not in line.shown:
            said.append(f"{name} stands in none of {', '.join(names)}")
    return said


LINES = lines(PAGE.read_text(encoding="utf-8"))


def test_all_lines_are_there_in_order():
    assert [line.number for line in LINES] == [f"{part}.{n}" for part, n in COUNTS.items() for n in range(1, n + 1)]


def test_what_a_line_names_exists():
    said = [f"{line.number}: {'; '.join(found)}" for line in LINES if (found := wrong(line))]
    assert not said, "\n".join(said)


def test_the_sentences_are_those_of_the_documents():
    if not SEEDS.is_dir():
        pytest.skip("the two documents do not lie beside this checkout (shared/seeds)")
    wanted = [one for path in sorted(SEEDS.glob("*.txt")) for one in sentences(path.read_text(encoding="utf-8"))]
    assert [line.sentence for line in LINES] == wanted


def test_a_document_is_split():
    text = "A heading\n\n• One. Two: Three?\n1. Of $n$ items, e.g. these:\n$$a = b.$$\nleft\tright"
    pieces = ["A heading", "One.", "Two:", "Three?", "Of $n$ items, e.g. these:", "$$a = b.$$", "left — right"]
    assert list(sentences(text)) == pieces


GOOD = Line(
    "1.1", "A sentence.", "`06c_mfu`: When to stop", "`mfu.hours_ratio`", "`mfu.20`", "`G0005`: 256 against 128"
)


@pytest.mark.parametrize(
    ("field", "cell", "word"),
    [
        ("sentence", "", "sentence is empty"),
        ("question", "", "question is empty"),
        ("formula", "–", "without a reason"),
        ("formula", "mfu.hours_ratio", "names nothing"),
        ("formula", "`mfu.hour_ratio`", "no formula"),
        ("question", "`mfu.20`, `mfu.99`", "no question mfu.99"),
        ("taught", "`06c_mfu`: When to go on", "no section"),
        ("taught", "`06d_mfu`: When to stop", "no section"),
        ("taught", "When to stop", "names nothing"),
        ("taught", "`06c_mfu`: When to stop, `06b_mfu`", "no section"),
        ("taught", "see `06c_mfu`: When to stop", "not of the form"),
        ("taught", "`06c_mfu`", "not of the form"),
        ("shown", "it is well known", "names nothing"),
        ("shown", "`G9999`", "no series"),
        ("shown", "`G0155`", "stands in none"),
        ("shown", "`usp-9999`", "no run"),
        ("shown", "`usp-1653`", "stands in none"),
        ("shown", "`xyz-*`", "no runs"),
        ("shown", "`SCA-99`", "no case"),
        ("shown", "`torch.strong.2.gb3`", "no cell"),
        ("shown", "`test_that_nobody_wrote`", "no test"),
        ("shown", "`llama-9-405b-16-h100`", "no example"),
        ("shown", "`Herd of Camels`", "stands in none"),
    ],
)
def test_a_planted_error_is_found(field, cell, word):
    assert not wrong(GOOD)
    assert any(word in one for one in wrong(GOOD._replace(**{field: cell})))
