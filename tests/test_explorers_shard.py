"""Explorers and pictures of step 3 against numbers done by hand; what cannot be is said, not raised."""

from __future__ import annotations

import pytest

from course.explorers import shard as explorers
from course.explorers.base import View
from course.pictures import shard as pictures

GIB = 2**30


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def test_the_ladder_of_8_billion_on_8():
    view = explorers.ladder().view()
    parameters = 8_030_261_248
    rows = table(view)
    assert number(rows["ZeRO-1"][0]) == pytest.approx(parameters * (6 + 12 / 8) / GIB, abs=0.06)
    assert number(rows["ZeRO-3"][1]) == pytest.approx(parameters * 6 * 7 / 8 / 1e9, abs=0.006)
    assert rows["data parallel"][2] == "never"
    assert "ZeRO-1; it sends 1.00 times" in view.sentence
    wide = explorers.ladder().view(reduced_gradient_bytes=4, micro_batches=8)
    assert "ZeRO-1; it sends 0.75 times" in wide.sentence
    held, sent = (section.rows for section in wide.picture["sections"])
    for label in held:
        assert sum(held[label].values()) / GIB == pytest.approx(number(table(wide)[label][0]), abs=0.06)
        assert sum(sent[label].values()) / 1e9 == pytest.approx(number(table(wide)[label][1]), abs=0.006)


def test_sequence_parallelism_takes_a_part_away_and_context_all_of_it():
    explorer = explorers.sequence()
    whole, sequence, context = (
        table(explorer.view(**one)) for one in ({}, {"sequence_parallel": True}, {"context": 8})
    )
    around = "norms, residuals, inputs"
    # 4 h numbers of 2 bytes for each of 131,072 tokens, on every tensor rank
    assert number(whole[around][0]) == pytest.approx(2 * 4 * 4096 * 131072 / GIB, abs=0.06)
    assert number(sequence[around][0]) == pytest.approx(number(whole[around][0]) / 8, abs=0.06)
    assert sequence["attention"] == whole["attention"]
    assert number(context[around][0]) == pytest.approx(number(whole[around][0]) / 8, abs=0.06)
    # what it keeps are shares of the matmuls' inputs, which backward gathers again: 10 units where there were 8
    eight = number(whole["tensor collectives"][1])
    assert number(sequence["tensor collectives"][1]) == pytest.approx(eight * 10 / 8, abs=0.01)
    assert "131,072 of 131,072 tokens for 4 of 32 heads" in explorer.view(sequence_parallel=True).sentence
    assert "16,384 of 131,072" in explorer.view(context=8).sentence


def test_what_cannot_be_is_said():
    said = explorers.sequence().said({**explorers.sequence().start, "tensor": 16})[1]
    assert "do not divide by 16 tensor ranks" in said
    start = explorers.experts().start
    assert "do not fold into 32 ranks" in explorers.experts().said({**start, "expert": 64, "expert_tensor": 2})[1]
    start = explorers.axes().start
    assert "both divide by 8 expert ranks" in explorers.axes().said({**start, "expert": 8})[1]
    assert "do not divide by 64 stages" in explorers.axes().said({**start, "pipeline": 64})[1]


def test_experts_of_mixtral():
    rows = table(explorers.experts().view())
    experts = 32 * 8 * 3 * 4096 * 14336
    assert number(rows["experts"][1]) == pytest.approx(experts / 8 * (6 + 12 / 4) / GIB, abs=0.06)
    assert number(rows["everything else"][1]) == pytest.approx(
        (46_702_792_704 - experts) * (6 + 12 / 32) / GIB, abs=0.06
    )


def test_axes_of_a_layout():
    view = explorers.axes().view(model="llama-3-70b", tensor=8, sharding="zero1")
    rows = table(view)
    assert number(rows["tensor 8"][-1]) == pytest.approx(8 * 80 * 8 * 2 * 8192 * 8192 * 7 / 8 / 1e9, rel=1e-3)
    assert "most by tensor" in view.sentence
    again = table(explorers.axes().view(model="llama-3-70b", tensor=8, sharding="zero1", gathers_again=True))
    assert number(again["tensor 8"][-1]) == pytest.approx(number(rows["tensor 8"][-1]) * 10 / 8, rel=1e-3)
    latent = explorers.axes().view(model="deepseek-v3", context=8, data=8)
    assert table(latent)["context 8"][1] == "latents round a ring"
    assert "nobody to send to" in explorers.axes().view(data=1).sentence


def test_latents_beside_heads():
    rows = table(explorers.latents().view())
    assert [cells[0] for cells in rows.values()] == ["40,960", "576", "2,048"]
    assert number(rows["latent"][1]) == pytest.approx(576 * 2 * 131072 * 15 / 16 / 1e6, abs=0.06)
    cut = explorers.latents().view(tensor=8)
    assert table(cut)["latent"] == rows["latent"]
    assert "fewest bytes are those of the latent" in explorers.latents().view().sentence
    assert "fewest bytes are those of the plain heads" in cut.sentence
    # one head a rank is the least there is, however many tensor ranks
    assert table(explorers.latents().view(tensor=16))["plain heads"][0] == "256"
    assert "nobody" in explorers.latents().view(context=1).sentence


def test_who_divides_what():
    start = explorers.legal().view()
    assert start.sentence.endswith("breaks a rule: layers.")
    rows = table(start)
    assert rows["layers"] == ("80", "3", "2")
    assert rows["sequences"] == ("512", "16", "0")
    assert "is legal" in explorers.legal().view(devices=256, pipeline=1).sentence
    assert "is legal" in explorers.legal().view(model="llama-3.1-405b").sentence
    assert "context" in explorers.legal().view(context=3, pipeline=1).sentence.split("breaks")[1]
    assert "batch" in explorers.legal().view(pipeline=1).sentence
    assert "kv_heads" in explorers.legal().view(tensor=16, pipeline=1, devices=256).sentence


def test_pictures_show_what_they_are_given():
    groups = [[0, 2], [1, 3]]
    words = [text.get_text() for text in pictures.fold(groups, "Four", columns=4).axes[0].texts]
    assert words == ["rank 0\nexperts A", "rank 2\nexperts A", "rank 1\nexperts B", "rank 3\nexperts B"]
    cuts = pictures.layer_cuts()
    # each zone is cut into rows x columns pieces
    assert [len(axes.patches) for axes in cuts.axes] == [
        rows * columns for _, zones in pictures.LAYER_CUTS for rows, columns in zones
    ]
