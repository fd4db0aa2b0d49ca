"""The explorers of step 6 against numbers done by hand and published ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from course.errors import UserError
from course.examples import path
from course.explorers import View
from course.explorers import mfu as explorers
from course.pictures.mfu import LOSS_COLOURS, Waterfall, utilisations, waterfall
from course.predict import predict
from course.problem import load


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


def share(text: str) -> float:
    return float(text.removesuffix(" %")) / 100


def test_conventions_of_a_published_run():
    # MosaicML: 0.4125 and 0.55 at 1,007 tokens/s, the second with the head counted again
    rows = table(explorers.conventions().view())
    assert share(rows["palm"][1]) == pytest.approx(0.4125, abs=6e-4)
    assert share(rows["executed"][1]) == pytest.approx(0.55, abs=2e-3)
    assert share(rows["six_ps"][1]) == pytest.approx(6 * 64.862e9 * 1007 / 989.4e12, abs=6e-4)


def test_more_than_the_peak_is_said():
    assert "Above 100 % by" in explorers.conventions().view(rate=5000).sentence


@pytest.mark.parametrize("spare", [0, 64])
def test_losses_add_up_over_all_devices_held(spare):
    view = explorers.losses().view(spare=spare)
    rows = table(view)
    parts = [share(value[0]) for value in rows.values()]
    assert sum(parts) == pytest.approx(1, abs=4e-3)  # each is rounded
    assert share(rows["unused devices"][0]) == pytest.approx(spare / (1024 + spare), abs=6e-4)


def test_losses_leave_the_predicted_mfu():
    document = predict(load(path("gpt-3-175b-1024-a100")))
    rows = table(explorers.losses().view())
    assert share(rows["MFU (full_attention)"][0]) == pytest.approx(document["mfu"]["full_attention"], abs=6e-4)
    repeated = document["hfu"] - document["mfu"]["full_attention"]
    assert share(rows["recomputation"][0]) == pytest.approx(repeated, abs=6e-4)
    took = document["step"]
    assert share(rows["bubbles"][0]) == pytest.approx(took["bubble_s"] / took["time_s"], abs=6e-4)


def test_a_layout_that_cannot_run_is_a_sentence():
    explorer = explorers.losses()
    view, sentence = explorer.said({**explorer.start, "run": "llama-3.1-405b-16384-h100", "micro_batch": 4})
    assert view is None
    assert "cannot run" in sentence


def test_faults_by_hand():
    explorer = explorers.faults()
    right, halved = explorer.view(), explorer.view(sparse_peak=True)
    assert share(table(halved)["MFU"][0]) == pytest.approx(share(table(right)["MFU"][1]) / 2, abs=1e-3)
    assert "nothing is wrong" in right.sentence
    assert "it cannot be" in explorer.view(one_devices_peak_for_many=True).sentence
    assert "seldom reached" in explorer.view(sparse_peak=True, all_experts_counted=True).sentence  # 75.7 %
    assert "plausible" in explorer.view(recomputation_as_useful_work=True, causal_half=True).sentence  # 56.8 %
    # 16 replicas of 8 micro-batches of 4,096 tokens, a fifth of them padding
    assert table(right)["tokens a step"] == (f"{16 * 8 * 4096 * 0.8:,.0f}",) * 2


def test_scaling_by_hand():
    # 3,863,808 against 321,200 tokens/s, on 16 times the devices
    view = explorers.scaling().view()
    assert table(view)["128"][:2] == ("12 of 16", f"{3863808 / 321200 / 16:.2f}")
    assert table(view)["512"][-1] == "slower"
    assert view.sentence.startswith("Fastest on 256 devices")
    other = explorers.scaling().view(baseline=64)
    assert table(other)["128"][1] == f"{3863808 / 2003008 / 2:.2f}"
    assert table(other)["128"][2:] == table(view)["128"][2:]  # days and money know no baseline


def test_replicas_by_hand():
    rows = table(explorers.replicas().view())
    assert [float(rows[v][0]) for v in ("1", "4", "8")] == pytest.approx([47 / 31, 143 / 79, 271 / 143], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("replicas", {"micro_batches": 7}, "micro_batches must be a multiple of 2"),
        ("losses", {"spare": -1}, "spare must be 0 or more"),
        ("faults", {"step_time": 0}, "step_time must be above 0"),
        ("scaling", {"billions": 0}, "tokens must be above 0"),
        ("conventions", {"rate": -1}, "tokens_per_step"),
    ],
)
def test_a_wrong_number_is_a_sentence(name, values, said):
    explorer = getattr(explorers, name)()
    view, sentence = explorer.said({**explorer.start, **values})
    assert view is None
    assert said in sentence


def test_only_series_of_three_sizes_are_offered():
    assert set(explorers.series_named().values()) == {"G0005", "G0021", "G0029"}


# ---------------------------------------------------------------- pictures
def test_a_waterfall_begins_each_bar_where_the_last_ended():
    losses = {"communication": 0.25, "slow kernels": 0.35}
    picture = Waterfall()
    picture.update(finding="a finding", losses=losses)
    bars = [bar for bar in picture._bars if bar.get_visible()]
    scale = bars[0].get_width()
    assert [round(bar.get_width() / scale, 3) for bar in bars] == [1, 0.25, 0.35, 0.4]
    for above, below in pairwise(bars[1:-1]):
        assert below.get_x() + below.get_width() == pytest.approx(above.get_x())
    assert bars[-1].get_x() == bars[0].get_x()
    written = [text.get_text() for text in picture._values if text.get_visible()]
    assert written == ["100.0 %", "25.0 %", "35.0 %", "40.0 %"]
    assert waterfall(dict.fromkeys(LOSS_COLOURS, 0.1), "all").axes


def test_utilisations_draw_what_they_are_given():
    figure = utilisations({"palm": {"matrices": 0.3, "attention scores": 0.1}}, "a finding")
    assert {"a finding", "palm", "40.0 %"} <= {text.get_text() for text in figure.axes[0].texts}


def test_errors_name_the_control():
    with pytest.raises(UserError, match="no control"):
        explorers.scaling().view(prize=3)
