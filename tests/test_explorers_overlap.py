"""The explorers of step 7 against numbers done by hand, and the pictures against what they are given."""

from __future__ import annotations

import numpy as np
import pytest

from course.errors import UserError
from course.explorers import View
from course.explorers import overlap as explorers
from course.pictures.overlap import Streams, drawn, slowest, timeline
from course.pictures.place import Line
from course.simulators.small_step import GRAPH, small_step
from course.simulators.timeline import bucketed_step, sharded_step


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


def test_buckets_by_hand():
    # 108 ms of bytes; with one bucket nothing is hidden, with 4 the last quarter and a latency of 1 ms
    rows = table(explorers.buckets().view(count=4))
    assert rows["1"] == ("109", "109")
    assert rows["4"] == ("112", "28")
    # 64: a bucket of 2.34 ms of backward takes 2.69 on the link
    assert rows["64"][1] == f"{172 - 150 + 150 / 64:.3g}"
    assert "keeps up" in explorers.buckets().view(count=16).sentence
    assert "falls behind" in explorers.buckets().view(count=64).sentence


def test_cover_by_hand():
    # bf16 over 50 GB/s against 500 TFLOP/s: 10,000 tokens, but for the rank's own share of 1,024
    rows = table(explorers.cover().view())
    assert [row[2] for row in rows.values()] == ["9,990", "9,990"]
    wide = table(explorers.cover().view(gradient_bytes=4))
    assert wide["data"][2] == "19,980"
    assert wide["FSDP"][2] == "14,985"
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336  # Llama 3 8B, 32 of them
    sent, backward = 4 * layer * 1023 / 1024 / 50e9, 4 * layer * 4096 / 500e12
    for tokens, late in ((16384, sent), (4096, sent + 31 * (sent - backward))):
        assert table(explorers.cover().view(tokens=tokens))["data"][0] == f"{late:.3g}"


@pytest.mark.parametrize(
    ("piece", "factor", "time"),
    [("both reductions", 1, 32), ("B1", 0.5, 32), ("both reductions", 0.5, 27.5), ("B2", 0.5, 29), ("R2", 0.5, 31),
     ("input", 0, 28), ("B1", 2, 37)],
)  # fmt: skip
def test_the_small_step_by_hand(piece, factor, time):
    view = explorers.critical().view(piece=piece, factor=factor)
    assert f": {time:g} ms. The path" in view.sentence


def test_what_each_piece_can_spare():
    rows = table(explorers.critical().view())
    assert {name: row[1] for name, row in rows.items() if row[1] != "0"} == {"B1": "1"}


def test_tails_by_hand():
    rows = table(explorers.tails().view())
    assert rows["1,024"][:2] == ("3.25", "65")
    assert rows["8"][:2] == ("1.42", "28.5")
    assert rows["1,024"][3] == f"{500 * (1 - 0.9999**1024):.3g}"
    rarely = table(explorers.tails().view(steps=16))
    assert float(rarely["1,024"][1]) == pytest.approx(65 / 4, abs=0.06)
    lasting = table(explorers.tails().view(steps=16, fresh=0, lasting=2))
    assert lasting["1,024"][1] == "65"


def test_wrong_values_are_sentences():
    for name, values in (("buckets", {"bandwidth": 0}), ("cover", {"rate": 0}), ("critical", {"factor": -1}),
                         ("tails", {"mean_ms": 0})):  # fmt: skip
        with pytest.raises(UserError, match="must be"):
            getattr(explorers, name)().view(**values)
    with pytest.raises(ValueError, match="no piece 'B3'"):
        small_step(B3=2)


# ---------------------------------------------------------------- pictures
def test_every_piece_is_drawn_as_long_as_it_took_and_every_wait_as_an_arrow():
    step = bucketed_step([5] * 4, [10] * 4, [(layer, 12) for layer in (3, 2, 1, 0)])
    picture = Streams(8.5, 2.3)
    picture.update(finding="t", panels={"": drawn(step)})
    scale = (picture.right - picture.left) / 78
    lengths = [box[1][0] - box[0][0] for box in picture._boxes[-12:]]
    assert sorted(lengths) == pytest.approx([one * scale for one in (5, 5, 5, 5, 10, 10, 10, 10, 12, 12, 12, 12)])
    assert len(picture._lines) == 4
    assert {"t", "78 ms", "forward", "backward", "reduction", "exposed", "compute", "1", "4"} <= {
        text.get_text() for text in picture.words()
    }


def test_exposed_time_is_red():
    runs = {f"{ahead}": sharded_step([5] * 4, [10] * 4, 3, 4, prefetch=ahead) for ahead in (0, 1)}
    made = timeline(runs, "two")
    picture = Streams(8.5, 3)
    picture.update(finding="two", panels={"": drawn(runs["1"])})
    red = [box[1][0] - box[0][0] for box, face in zip(picture._boxes, picture._faces, strict=True) if face == "#D55E00"]
    scale = (picture.right - picture.left) / runs["1"].step_time
    assert sum(red[1:]) == pytest.approx(runs["1"].exposed_time * scale)  # the first is the legend's
    assert made.get_size_inches()[1] > 3


def test_marked_waits_are_those_of_the_path():
    picture = explorers.critical().static()
    assert picture.figure is not None
    streams = Streams(7, 2.9)
    streams.update(**explorers.critical().view().picture)
    assert streams._inks.count("#D55E00") == 3  # input to F1, B2 to R2, R1 to the update
    assert len(streams._inks) == 5
    assert len(GRAPH) == 8


def test_slowest_says_the_means():
    x = np.linspace(-1, 1, 5)
    made = slowest({"8 ranks": Line(x, x**2)}, {"8 ranks": 1.42}, "t")
    words = [text.get_text() for text in made.axes[0].get_legend().get_texts()]
    assert words == ["8 ranks: 1.42"]
