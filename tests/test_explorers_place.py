"""The explorers of step 4 against rings that were run and numbers done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from course.errors import UserError
from course.explorers import View
from course.explorers import place as explorers
from course.pictures.place import Curves, Line, Panel, cells, lines
from course.pictures.place_nodes import two_nodes
from course.simulators import ring

LAYER = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672
"""Matmul parameters of a layer of Llama 3 70B."""


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


# ---------------------------------------------------------------- chunks
@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "all_reduce"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_chunks_end_where_the_arrays_do(collective, size):
    """Rank r brings 2**r to every chunk, so that a sum tells who is in it."""
    states = explorers.chunk_states(collective, size)
    if collective == "all_gather":
        assert all(len(held) == size for row in states[-1] for held in row)
        assert [[len(held) for held in row] for row in states[0]] == (np.eye(size, dtype=int) * size).tolist()
    else:
        arrays = [np.full(size, 2**rank) for rank in range(size)]
        done = getattr(ring, collective)(arrays).arrays
        for rank, row in enumerate(states[-1]):
            sums = [sum(2**one for one in held) for held in row]
            assert (sums[rank] if collective == "reduce_scatter" else sums) == (
                int(done[rank][0]) if collective == "reduce_scatter" else done[rank].tolist()
            )
    assert len(states) - 1 == (2 if collective == "all_reduce" else 1) * (size - 1)


def test_time_of_the_chunks_by_hand():
    # 4 ranks, 64 MB: 6 steps of 3.4 us and 16 MB at 450 GB/s
    view = explorers.chunks_view("all_reduce", 4, 4, 64.0, 3.4, 450.0)
    assert table(view)["time (us)"] == (f"{3.4 + 16e6 / 450e9 * 1e6:,.4g}", f"{6 * (3.4 + 16e6 / 450e9 * 1e6):,.4g}")
    assert "each rank has sent 64 MB" in view.sentence
    assert explorers.chunks().sweep.through({"ranks": 4}) == list(range(7))


# ---------------------------------------------------------------- collectives
def test_collective_by_hand():
    # 1 GB on 8 H100: 14 x 3.4 us and 2 x 7/8 GB at 450 GB/s
    view = explorers.collective_view("h100-ib400", 8, 1000.0)
    assert table(view)["ring"][0] == f"{(14 * 3.4e-6 + 1.75e9 / 450e9) * 1e3:.3g} ms"
    assert "two levels" not in table(view)
    over = explorers.collective_view("h100-ib400", 64, 1000.0)
    assert over.picture["level"][0] == 400  # eight cards of 50
    assert "over 8 nodes" in over.sentence


def test_small_buffers_want_a_tree_and_large_ones_a_ring():
    assert "tree is fastest" in explorers.collective_view("h100-ib400", 512, 0.05).sentence
    assert "ring is fastest" in explorers.collective_view("h100-ib400", 512, 1e5).sentence


@pytest.mark.parametrize("ranks", [16, 64])
def test_latency_of_a_ring_over_nodes_is_that_of_the_simulator(ranks):
    ways = ([3.4e-6] * 7 + [9.6e-6]) * (ranks // 8)
    links = ring.Links(latency=ways, in_flight=True)
    simulated = ring.all_reduce([np.zeros(ranks, np.uint8)] * ranks, links).time
    assert table(explorers.collective_view("h100-ib400", ranks, 1e-9))["ring"][0] == f"{simulated * 1e3:.3g} ms"


# ---------------------------------------------------------------- ranks
def test_groups_on_nodes_by_hand():
    view = explorers.ranks().view(layout="2 nodes of 8", tensor=4, pipeline=2, axis="pipeline")
    rows = [[text for _, text in row] for row in view.picture["panels"][0].rows]
    assert rows == [["0", "1", "2", "3", "0", "1", "2", "3"], ["4", "5", "6", "7", "4", "5", "6", "7"]]
    assert "Group 0 of pipeline (2 ranks) stays in one node." in view.sentence
    assert "in a step of llama-3-70b: 8 micro-batches of one sequence of 8,192 tokens a replica" in view.sentence


def test_tensor_outermost_sends_everything_out():
    explorer = explorers.ranks(layout="4 nodes of 8", tensor=4, pipeline=1)
    usual, reverse = (explorer.view(order=order) for order in ("tensor, pipeline, data", "data, pipeline, tensor"))
    assert table(usual)["tensor"][3] == "0"
    assert table(reverse)["tensor"][2] == table(reverse)["tensor"][3]  # all that is sent leaves


def test_degrees_offered_divide_the_devices():
    explorer = explorers.ranks()
    with pytest.raises(UserError, match="pipeline can be"):
        explorer.view(layout="2 nodes of 8", tensor=16, pipeline=2)
    assert explorer.settled({"tensor": 32}, explorer.start)["pipeline"] == 1


# ---------------------------------------------------------------- bounds and mix
def test_bounds_by_hand():
    view = explorers.bounds_view("h100-ib400", "llama-3-70b", 8, 128, 8, 2048, 512)
    # a gather: 127 steps of 9.6 us, and 127/128 of an eighth of a layer in bf16 on one card
    gather = 127 * 9.6e-6 + 127 / 128 * 2 * LAYER / 8 / 50e9
    assert float(table(view)["FSDP"][0]) == pytest.approx(gather / (2 * LAYER * 512 / 989.4e12), rel=5e-3)
    assert table(view)["FSDP"][1] == f"{gather / (2 * LAYER / 989.4e12):,.0f}"
    # a block of keys and values is 8 x 512 tokens; 64 heads on 8 of keys: 2 x 8/64 x C / beta tokens
    assert float(table(view)["context"][0]) == pytest.approx(0.25 * 989.4e12 / 50e9 / 4096, rel=5e-3)
    # 56 of 64 copies leave the node, 8 bytes a number in all, against 18 FLOPs a number of the width
    assert float(table(view)["experts"][0]) == pytest.approx(8 * 56 / 64 / 50e9 / (18 * 2048 / 989.4e12), rel=5e-3)
    assert table(view)["experts"][1] == "none helps"
    assert "data, FSDP, context and experts would be bound" in view.sentence
    assert table(explorers.bounds_view("gb200-nvl72", "llama-3-70b", 8, 128, 8, 2048, 512))["experts"][1] == "never"


def test_a_tensor_group_wider_than_a_node_has_the_cards_of_all_its_ranks():
    view = explorers.bounds_view("h100-ib400", "llama-3-70b", 16, 128, 8, 2048, 4096)
    wait = (7 * 3.4e-6 + 9.6e-6) / 8
    ours = 8 * 15 * (wait + 2 * 8192 * 4096 / 400e9) / (6 * LAYER * 4096 / 989.4e12)
    assert float(table(view)["tensor 16"][0]) == pytest.approx(ours, rel=5e-3)


def test_the_lowest_point_is_the_one_by_calculus():
    # sqrt(A / B) on the torus of the lesson: A = 6 x 855.6e6 / 360e9, B = 16 x 8192 x 1024 / 180e9
    assert "lowest at 4.37" in explorers.mix_view("tpu-v5p", "llama-3-70b", 1024, 1024).sentence


def test_mix_on_nodes_is_flat_for_fsdp_up_to_the_node():
    one, eight = (float(explorers.mixed_times("h100-ib400", "llama-3-70b", 4096, 2048, size)) for size in (1, 8))
    tensor_part = 8 * 2 * 8192 * 2048 * 7 / 450e9 / (6 * LAYER * 2048 / 989.4e12)
    assert eight - one == pytest.approx(tensor_part, rel=0.01)


def test_degrees_that_divide():
    assert explorers.legal_degrees("llama-3-70b", 1024) == [1, 2, 4, 8, 16, 32, 64]
    assert explorers.legal_degrees("gpt3-175b", 64) == [1, 2, 4, 8, 16, 32]


# ---------------------------------------------------------------- pictures
def test_two_nodes_name_the_rings_of_each_panel():
    figure = two_nodes((1, 4, 8), "a finding")
    said = [axes.texts[0].get_text() for axes in figure.axes]
    assert said == ["k = 8: 8 rings, X/8 each", "k = 2: 2 rings, X/2 each", "k = 1: 1 ring, all of X"]
    across = [sum(abs(text.xy[1] - text.xyann[1]) > 1 for text in axes.texts if hasattr(text, "xyann"))
              for axes in figure.axes]  # fmt: skip
    assert across == [16, 4, 2]  # each ring goes over and comes back


def test_pictures_draw_what_they_are_given():
    grid = cells([Panel("a panel", [[("#ffffff", "7"), ("#009e73", "8")]], ["row"], ["c0", "c1"])], "a finding")
    texts = {text.get_text() for text in grid.axes[0].texts}
    assert {"a finding", "a panel", "7", "8", "row", "c0", "c1"} <= texts
    assert len([patch for patch in grid.axes[0].patches if patch.get_visible()]) == 2
    drawn = lines({"one": Line([1, 10], [2, 20]), "two": Line([1, 10], [3, 30], marks=True)}, "a finding", "x (MB)",
                  "y (s)", level=(5, "here"))  # fmt: skip
    data = [list(line.get_ydata()) for line in drawn.axes[0].lines if len(line.get_xdata()) == 2 and line.get_visible()]
    assert [2, 20] in data and [3, 30] in data and [5, 5] in data
    assert drawn.axes[0].get_xlabel() == "x (MB)"


def test_a_picture_keeps_its_ranges_while_it_can():
    picture = Curves("x", "y")
    for values in ([2.0, 20.0], [2.1, 19.0]):
        picture.update(finding="f", curves={"one": Line([1.0, 10.0], values)})
        before = picture._background
        picture.png()
    assert before is picture._background is not None


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("bounds", {"tokens": 0}, "tokens must be 1 or more"),
        ("bounds", {"stage_layers": 0}, "stage_layers must be 1 or more"),
        ("mix", {"tokens": -1}, "tokens must be 1 or more"),
        ("chunks", {"bandwidth": 0}, "bandwidth"),
        ("collective", {"payload": -1}, "payload_bytes"),
    ],
)
def test_a_wrong_number_is_a_sentence(name, values, said):
    explorer = getattr(explorers, name)()
    view, sentence = explorer.said({**explorer.start, **values})
    assert view is None
    assert said in sentence
