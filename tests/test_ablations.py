"""What a term buys is what is lost without it: each line of the table is worse than the whole in some figure."""

from __future__ import annotations

from course.compare.ablations import ablations

NOTHING_LOST = {"bytes of eager operations"}
"""What the playbook's times do not show; its memory does."""


def test_each_term_removed_makes_something_worse() -> None:
    whole, *rest = ablations()
    assert whole.median < 5.9 and whole.p90 < 18
    for line in rest:
        worse = (
            line.median > whole.median, line.p90 > whole.p90, line.spearman < whole.spearman, line.regret > whole.regret
        )  # fmt: skip
        assert any(worse) or line.removed in NOTHING_LOST, line


def test_uneven_stages_are_worth_most() -> None:
    found = {line.removed: line for line in ablations()}
    assert found["stages cut by cost: layers spread evenly"].median > 1.5 * found["nothing"].median
