"""The page of numbers is the one the catalog makes, and its figures agree with what the vendors and authors print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from course import numbers

PAGE = Path(__file__).resolve().parent.parent / "docs" / "numbers.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == numbers.page(), "run `python -m course.numbers docs/numbers.md`"


def test_every_number_is_a_number():
    for table in (numbers.accelerators(), numbers.links(), numbers.models(), numbers.states()):
        for row in table.rows:
            assert all(re.match(r"\d", cell) for cell in row[1:]), row


@pytest.mark.parametrize(
    ("table", "row"),
    [
        # 312 TFLOP/s over 2.039 TB/s; 989.4 over 3.35; both data sheets, dense
        (numbers.accelerators(["A100"]), ("A100 SXM 80 GB", "312", "2.04", "153", "79.2")),
        (numbers.accelerators(["H100"]), ("H100 SXM 80 GB", "989", "3.35", "295", "79.6")),
        # 900 GB/s two-way and 400 Gb/s on the sheets
        (numbers.links(["h100-ib400"]), ("8 x H100 a node, 400 Gb/s InfiniBand a device", "8", "450", "50")),
        # 46.7 and 12.9 billion: Mistral AI's announcement of Mixtral
        (
            numbers.models(["mixtral-8x7b"]),
            ("mixtral-8x7b", "32", "4,096", "32 (8)", "14,336", "32,000", "46.7", "12.88"),
        ),
    ],
)
def test_rows(table: numbers.Table, row: tuple[str, ...]):
    assert table.rows == (row,)


def test_states_are_the_sum_of_their_parts():
    for name, *parts, total in numbers.states().rows:
        assert sum(map(int, parts)) == int(total), name


def test_a_table_as_markdown_has_one_bar_more_than_columns_on_each_line():
    lines = numbers.units()._repr_markdown_().splitlines()
    assert len(lines) == len(numbers.units().rows) + 2
    assert {line.count("|") for line in lines} == {3}
