"""The page of the seven mistakes: every section and question it names exists, and its numbers are wrong and right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from course.questions import common
from course.questions.kinds import Judgement
from course.questions.registry import default

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_is_up_to_date():
    written = (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8")
    assert written == common.page(), "run `python -m course.questions.common docs/mistakes.md`"


@pytest.mark.parametrize("row", common.ROWS, ids=lambda row: row.question)
def test_every_section_and_question_exists(row):
    for notebook, heading in row.places:
        text = (ROOT / "notebooks" / f"{notebook}.md").read_text(encoding="utf-8")
        assert f"\n## {heading}\n" in text, (notebook, heading)
    question = default().get(row.question)
    assert row.known in {one.name for one in question.mistakes}
    exercise = next((ROOT / "solutions").glob(f"*_{question.step}.md")).read_text(encoding="utf-8")
    assert f"{{{{question {row.question}}}}}" in exercise


@pytest.mark.parametrize("row", common.ROWS, ids=lambda row: row.question)
def test_the_mistake_is_named_in_one_of_its_sections(row):
    """The words of the mistake, loosely: two in three of its longer words stand in a section it names."""
    words = {word[:6] for word in re.findall(r"[a-z]{5,}", row.mistake.lower())}
    found = 0.0
    for notebook, heading in row.places:
        text = (ROOT / "notebooks" / f"{notebook}.md").read_text(encoding="utf-8")
        section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0].lower()
        found = max(found, sum(word in section for word in words) / len(words))
    assert found >= 2 / 3, row.mistake


@pytest.mark.parametrize("row", common.ROWS, ids=lambda row: row.question)
def test_wrong_and_right_differ(row):
    wrong, right = row.numbers()
    assert wrong != right
    assert re.search(r"\d", wrong)
    assert re.search(r"\d", right)


def test_by_hand():
    said = {row.question: row.numbers() for row in common.ROWS}
    assert said["mfu.2"] == ("55% of peak", "41% of peak")  # 172/312, and three quarters of it
    assert said["sweep.22"] == (f"{989.4 / 312:.2f} times", f"{989.4 * 0.4 / (312 * 0.52):.2f} times")
    assert said["sweep.14"] == ("400,000 tokens/s", "346,154 tokens/s")


def test_all_seven():
    assert len({row.mistake for row in common.ROWS}) == 7
    assert any(isinstance(default().get(row.question), Judgement) for row in common.ROWS)
