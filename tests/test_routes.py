"""From the README to the end: heads say what is needed, what for and how long; a workshop's three routes add up.

The guide's tables are read as a participant reads them: a lesson takes the minutes of its head, an exercise those of
its question, and nothing is asked for that the rows before did not bring or the row does not say is told in its place.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from course.interview.sheet import SHEET
from course.printed.terms import TERMS
from course.questions.registry import default

ROOT = Path(__file__).resolve().parent.parent
LESSONS = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
GUIDE = (ROOT / "docs" / "workshop" / "guide.md").read_text(encoding="utf-8")
HEAD = re.compile(r"You need (.+?) In about (\d+) minutes,? you will be able to (.+?)\.", re.DOTALL)


# ---------------------------------------------------------------- heads
@cache
def head(lesson: str) -> tuple[str, int, str]:
    """What a lesson needs, its minutes and what one is then able to do, as its first Markdown cell says."""
    cells = json.loads((ROOT / "notebooks" / f"{lesson}.ipynb").read_bytes())["cells"]
    first = "".join(next(cell for cell in cells if cell["cell_type"] == "markdown")["source"])
    found = HEAD.search(" ".join(first.split()))
    assert found, f"{lesson}: the first cell must say 'You need …. In about N minutes you will be able to ….'"
    return found[1], int(found[2]), found[3]


def of_step(number: int) -> set[str]:
    return {lesson for lesson in LESSONS if int(lesson[:2]) == number}


def called(short: str) -> str:
    """The lesson of a short name, 07a for 07a_overlap."""
    (lesson,) = (name for name in LESSONS if name.partition("_")[0] == short)
    return lesson


def named(text: str) -> set[str]:
    """Every lesson that a text names: 00_start, `03b_shard`, 09a to 09c, 01 to 04, step 3, steps 1 to 8."""
    text = text.replace("`", "")
    found: set[str] = set()
    for first, last in re.findall(r"\bsteps? (\d+)(?: to (\d+))?", text):
        found |= {name for number in range(int(first), int(last or first) + 1) for name in of_step(number)}
    for first, last in re.findall(r"\b(\d\d) to (\d\d)\b", text):
        found |= {name for number in range(int(first), int(last) + 1) for name in of_step(number)}
    for step, first, last in re.findall(r"\b(\d?\d)([a-e])(?:_\w+)?\b(?: to \1([a-e])\b)?", text):
        found |= {called(f"{step:0>2}{letter}") for letter in "abcde" if first <= letter <= (last or first)}
    return found | {name for name in LESSONS if re.search(rf"\b{name}\b", text)}


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_head_says_what_is_needed_what_for_and_how_long(lesson: str):
    needs, minutes, able = head(lesson)
    assert 20 <= minutes <= 75
    assert len(able.split()) >= 8
    before = LESSONS[: LESSONS.index(lesson)]
    if before:
        assert named(needs), f"{lesson} names no lesson before it"
    assert named(needs) <= set(before), f"{lesson} needs what comes later"


@pytest.mark.parametrize(
    ("text", "lessons"),
    [
        ("`03c_shard`, `02c_constrain` and paper", {"03c_shard", "02c_constrain"}),
        ("04a to 04c and paper", {"04a_place", "04b_place", "04c_place"}),
        ("`09a` to `09c`, paper", {"09a_strong_and_weak", "09b_strong_and_weak", "09c_strong_and_weak"}),
        ("the bubbles of step 5", {"05a_batch", "05b_batch", "05c_batch"}),
        ("08a, 06c and paper", {"08a_sweep", "06c_mfu"}),
        ("what a transformer is", set()),
    ],
)
def test_lessons_are_found_in_words(text: str, lessons: set[str]):
    assert named(text) == lessons


# ---------------------------------------------------------------- exercises
@cache
def needed_by(question: str) -> set[str]:
    """The lessons that the head of an exercise notebook asks for before a question."""
    number = question.rpartition(".")[2]
    source = next(
        text for path in (ROOT / "solutions").glob("*.md")
        if f"{{{{question {question}}}}}" in (text := path.read_text(encoding="utf-8"))
    )  # fmt: skip
    asked = " ".join(re.search(r"You need (.+?)\. ", source.replace("\n", " "))[1].split()).replace("`", "")  # type: ignore[index]
    rest = {called(short) for short in re.findall(r"\b(\d\d[a-e])(?![a-z])", asked)}
    if "step" in asked:
        rest |= named(asked)
    listed: set[str] = set()
    for lesson, numbers in re.findall(r"(\d\d[a-e])(?:_\w+)? for ((?:\d+(?: to \d+)?(?:,? and |, |$|(?=;)))+)", asked):
        spans = re.findall(r"(\d+)(?: to (\d+))?", numbers)
        if any(int(first) <= int(number) <= int(last or first) for first, last in spans):
            listed.add(called(lesson))
        rest -= {called(lesson)}
    return listed or rest


@pytest.mark.parametrize("step", [step for step in default().steps() if step != "demo"])
def test_the_head_of_an_exercise_notebook_places_every_question(step: str):
    for question in default().steps()[step]:
        lessons = needed_by(question.id)
        assert lessons, f"{question.id}: the head of the exercises says of no lesson that this needs it"
        assert step == "interview" or len(lessons) <= 2, (question.id, lessons)


def test_lessons_of_exercises_are_read_from_their_heads():
    assert needed_by("estimate.8") == {"01a_estimate"}
    assert needed_by("estimate.9") == {"01b_estimate"}
    assert needed_by("constrain.22") == {"02b_constrain"}
    assert needed_by("mfu.15") == {"06c_mfu"}
    assert needed_by("place.22") == {"04d_place"}
    assert "08a_sweep" in needed_by("interview.1")


# ---------------------------------------------------------------- routes
@dataclass(frozen=True)
class Row:
    at: str
    what: str
    minutes: int
    told: str

    @property
    def lesson(self) -> str | None:
        names = re.findall(r"`(\d\d[a-e]?_\w+)`", self.what)
        assert len(names) < 2, f"one lesson a row: {self.what}"
        return names[0] if names else None

    @property
    def questions(self) -> list[str]:
        return re.findall(r"`([a-z]+\.\d+)`", self.what)


@dataclass(frozen=True)
class Route:
    name: str
    words: str
    days: list[tuple[int, list[Row]]]
    """For each day its box in minutes and its rows."""

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in self.days for row in rows]


def routes() -> dict[str, Route]:
    found = {}
    for part in re.split(r"^## ", GUIDE, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if "| at |" not in body:
            continue
        days, words = [], re.search(r"From the glossary[^:]*:\s+(.+?)\.\n", body, re.DOTALL)
        for box, table in re.findall(r"box of (\d+) minutes:\n\n((?:\|.*\n)+)", body):
            lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
            assert lines[0] == ["at", "what", "minutes", "told in its place"]
            days.append((int(box), [Row(at, what, int(minutes), told) for at, what, minutes, told in lines[2:]]))
        found[title] = Route(title, " ".join(words[1].split()) if words else "", days)
    return found


ROUTES = routes()
every_route = pytest.mark.parametrize("route", ROUTES.values(), ids=list(ROUTES))


def test_there_are_three_routes():
    assert [name.partition(":")[0] for name in ROUTES] == ["Tonight", "A day", "A week"]
    assert [len(route.days) for route in ROUTES.values()] == [1, 1, 5]


@every_route
def test_minutes_are_those_of_the_heads_and_questions_and_fill_the_box(route: Route):
    for box, rows in route.days:
        clock = 0
        for row in rows:
            if row.what == "**end**":
                assert row.minutes == clock == box, (row, clock, box)
            hours, minutes = map(int, row.at.split(":"))
            assert 60 * hours + minutes == clock, (row, clock)
            if row.lesson:
                assert row.minutes == head(row.lesson)[1], row
            elif row.questions:
                assert row.minutes == sum(default().get(name).minutes for name in row.questions), row
            elif "mock interview" in row.what:
                assert row.minutes == sum(step.minutes for step in SHEET), row
            clock += row.minutes
        assert rows[-1].what == "**end**"


@every_route
def test_nothing_is_asked_for_that_was_not_brought(route: Route):
    brought: set[str] = set()
    for row in route.rows:
        told = named(row.told)
        needs = named(head(row.lesson)[0]) if row.lesson else set()
        for question in row.questions:
            needs |= needed_by(question)
        missing = needs - brought - told
        assert not missing, f"{route.name}, {row.what}: {sorted(missing)} neither came before nor is told in its place"
        if told:
            assert len(row.told.split()) >= 10, f"{row.what}: say what is told"
        brought |= told | ({row.lesson} if row.lesson else set())


# ---------------------------------------------------------------- words
def prose(lesson: str) -> str:
    """A lesson's text without code, names of files, issues and the pointer to the next one."""
    text = (ROOT / "notebooks" / f"{lesson}.md").read_text(encoding="utf-8")
    text = re.sub(r"```\{code-cell\}.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`|\([\w.-]+/[\w.-]+#\d+\)|https?://\S+", "", text)
    return " ".join(re.sub(r"^Next:.*", "", text, flags=re.MULTILINE).split())


@cache
def uses(lesson: str) -> frozenset[str]:
    """The glossary's words that a lesson's text uses."""
    text, found = prose(lesson), set()
    for term in TERMS:
        spelt = "|".join(rf"(?<![\w-]){re.escape(name)}s?(?!\w)" for name in (term.name, *term.also))
        if re.search(spelt, text, 0 if term.name.isupper() or term.name[0].isdigit() else re.IGNORECASE):
            found.add(term.name)
    return frozenset(found)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_a_word_is_explained_where_it_is_first_used(term):
    first = next(lesson for lesson in LESSONS if term.name in uses(lesson))
    assert term.notebook == first


@every_route
def test_a_route_uses_no_word_that_is_not_explained_before(route: Route):
    lessons: set[str] = set()
    missing: set[str] = set()
    for row in route.rows:
        if row.lesson:
            lessons.add(row.lesson)
            missing |= {term.name for term in TERMS if term.name in uses(row.lesson) and term.notebook not in lessons}
    given = {word.strip() for word in route.words.split(",") if word.strip()}
    assert missing <= given, f"{route.name}: the guide must hand out {sorted(missing - given)}"
    assert given <= {term.name for term in TERMS}, given
