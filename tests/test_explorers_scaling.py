"""The explorers of step 9 against numbers done by hand and published ones."""

from __future__ import annotations

import numpy as np
import pytest

from course.errors import UserError
from course.explorers import View
from course.explorers import scaling as explorers
from course.explorers.scaling_batches import EVERY, fitted, used
from course.pictures import scaling as pictures
from course.pictures.place import Line


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


def test_strong_by_hand():
    view = explorers.strong().view(series="G0005")
    rows = table(view)
    assert rows["128"][2:4] == ("12.03", f"{3863808 / 321200 / 16:.2f}")
    assert "tp 2" in rows["128"][5] and "micro 4" in rows["128"][5]
    other = table(explorers.strong().view(series="G0005", baseline=64))
    assert other["128"][3] == f"{3863808 / 2003008 / 2:.2f}"
    assert other["128"][:2] == rows["128"][:2]  # seconds know no baseline


def test_a_band_of_two_exact_points_is_between_a_line_and_amdahl():
    view = explorers.strong().view(error=0.0)
    at, low, high = view.picture["band"]
    first, second = 17.469278955, 8.989849108
    shared = 2 * (first - second)
    assert high[list(at).index(256)] == pytest.approx(first - shared + shared / 32, rel=1e-6)
    assert low[list(at).index(256)] == pytest.approx(first * (second / first) ** 5, rel=1e-6)


def test_weak_by_hand():
    rows = table(explorers.weak().view())
    assert rows["512"][0] == "3,072"
    assert rows["512"][-1] == f"{9670 / 10643:.3f}"
    assert rows["512"][2] == f"{6 * 2048 / 9670:.4g}"


def test_model_sizes_compare_rates():
    # Narayanan et al. 2021, table 1: 137 TFLOP/s on 32, 163 on 3,072, counted alike
    assert table(explorers.model_sizes().view())["3072"][-1] == f"{163 / 137:.2f}"
    assert table(explorers.model_sizes().view(baseline=3072))["32"][-1] == f"{137 / 163:.2f}"


def test_laws_by_hand():
    view = explorers.laws().view(error=0.0)
    rows = table(view)
    first, second = 17.469278955, 8.989849108
    shared = 2 * (first - second)
    assert rows["Amdahl"][0] == f"{first - shared + shared / 32:.3g}"
    growth = second - first / 2
    assert rows["growing part"][0] == f"{first / 32 + 31 * growth:.3g}"
    assert rows["straight line"][1] == f"{first * (second / first) ** 5 / 0.7546057 - 1:+.0%}"
    assert "31.1 times the work" in view.sentence  # 32 - 31 (2 x 8.990/17.469 - 1)


def test_batches_by_hand():
    steps, least = fitted(8, 128, (3072, 11136))
    assert (steps, least) == pytest.approx((67.2, 2534.4))
    rows = table(explorers.batches().view())
    assert rows["64"][1] == f"{2534.4 + 67.2 * 64:,.0f}"
    assert rows["16"][4] == "128"  # devices in proportion to the batch
    assert "critical batch 38" in explorers.batches().view().sentence


@pytest.mark.parametrize("benchmark", EVERY)
def test_runs_stop_at_an_evaluation(benchmark):
    entries = [value for values in used(benchmark).values() for value in values]
    off = [abs(2 * value / EVERY[benchmark] - round(2 * value / EVERY[benchmark])) for value in entries]
    assert np.mean(np.array(off) < 0.2) > 0.9  # halves: the median of ten runs


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("strong", {"error": 60}, "error .* from 0 to 50"),
        ("laws", {"first": 64, "second": 64}, "second .* more than first"),
        ("batches", {"small": 64, "large": 16}, "large .* above small"),
        ("batches", {"step_time": 0}, "step_time must be above 0"),
    ],
)
def test_a_wrong_number_is_a_sentence(name, values, said):
    explorer = getattr(explorers, name)()
    with pytest.raises(UserError, match=said):
        explorer.answer(**{**explorer.start, **values})


def test_a_batch_that_needs_no_more_cannot_be_fitted():
    with pytest.raises(UserError, match="needed more sequences"):
        fitted(2048, 2560, (589_899, 588_757))


# ---------------------------------------------------------------- pictures
def test_a_band_is_drawn_where_it_is():
    picture = pictures.Bands("devices", "seconds")
    at, low, high = [8, 16], [1.0, 0.5], [2.0, 1.5]
    picture.update(finding="a finding", curves={"measured": Line(at, [1.5, 1.0], marks=True)}, band=(at, low, high))
    assert picture.band.get_xy()[:4].tolist() == [[8, 1.0], [16, 0.5], [16, 1.5], [8, 2.0]]
    picture.update(finding="a finding", curves={"measured": Line(at, [1.5, 1.0], marks=True)})
    assert not picture.band.get_visible()


def test_parts_are_shares_of_their_own_step():
    figure = pictures.step_parts({"8": {"compute": 3.0, "data": 1.0}}, "a finding")
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"a finding", "8, 4 s", "75%", "25%"} <= texts
