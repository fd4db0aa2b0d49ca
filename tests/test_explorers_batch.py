"""The explorers of step 5 against numbers done by hand."""

from __future__ import annotations

import pytest

from course.errors import UserError
from course.explorers import View
from course.explorers import batch as explorers


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


def test_a_plan_that_holds_and_one_that_cannot():
    held = explorers.plan_view(512, 4096, 64, 8, 2)
    assert "each accumulates 32 and the batch is held" in held.sentence
    assert table(held)["held"] == table(held)["intended"] == ("512", "2,097,152")
    other = explorers.plan_view(512, 4096, 96, 8, 2)
    assert "21.33 micro-batches each: not a whole number" in other.sentence
    assert table(other)["held"][0] == "504"  # 12 replicas x 2 x 21
    with pytest.raises(UserError, match="One replica takes 8 devices and there are 4"):
        explorers.plan_view(512, 4096, 4, 8, 2)


def test_schedules_by_hand():
    # (8 + 3) x 3; with two chunks 24 + 9/2; with a split backward 24 + 3
    said = {kind: explorers.schedule().view(kind=kind).sentence for kind in explorers.SCHEDULES.values()}
    assert "take 33, a forward taking 1; 27.3 % of it idle. The formula says 33: the same" in said["gpipe"]
    assert "take 33" in said["1f1b"]
    assert "take 28.5" in said["interleaved"]
    assert "take 27" in said["zero-bubble"]
    assert table(explorers.schedule().view(kind="1f1b"))["1"][1] == "3"


def test_a_schedule_outside_its_range_says_so():
    explorer = explorers.schedule()
    assert "outside its range of validity" in explorer.view(kind="1f1b", send=0.5).sentence
    assert "the same" in explorer.view(kind="gpipe", send=0.5, slow=2.0).sentence
    assert "the same" in explorer.view(kind="1f1b", slow=2.0).sentence
    assert "outside its range of validity" in explorer.view(kind="zero-bubble", backward=3.0).sentence


def test_interleaving_offers_whole_rounds_only():
    explorer = explorers.schedule()
    with pytest.raises(UserError, match="micro_batches can be 4, 8, 12, 16"):
        explorer.view(kind="interleaved", micro_batches=6)


def test_both_bubbles_by_hand():
    view = explorers.bubble_view(8, 32, 4)
    assert table(view) == {"1 chunk": ("17.9 %", "21.9 %"), "4 chunks": ("5.2 %", "5.5 %")}  # 7/39, 7/32, 7/135, 7/128


def test_memory_at_a_fixed_batch_by_hand():
    eight, two = (table(explorers.memory_view(64, size, 8, 2, 1.0)) for size in (8, 2))
    assert (eight["GPipe"], two["GPipe"]) == (("8", "64"), ("32", "64"))
    assert (eight["1F1B"], two["1F1B"]) == (("8", "64"), ("8", "16"))
    assert two["interleaved, 2 chunks"] == ("11.5", "23")  # 2 x 7 + 8 + 1 = 23 halves, of two sequences
    with pytest.raises(UserError, match="64 sequences are not cut into micro-batches of 3"):
        explorers.memory_view(64, 3, 8, 2, 1.0)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("plan", {"micro_batch": 0}, "micro_batch must be 1 or more"),
        ("schedule", {"backward": -1}, "backward must be 0 or more"),
        ("bubble", {"micro_batches": 0}, "micro_batches must be 1 or more"),
        ("memory", {"replica_batch": 0}, "replica_batch must be 1 or more"),
    ],
)
def test_a_wrong_number_is_a_sentence(name, values, said):
    explorer = getattr(explorers, name)()
    view, sentence = explorer.said({**explorer.start, **values})
    assert view is None
    assert said in sentence
