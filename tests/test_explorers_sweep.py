"""The explorers of step 8 against the records, the stops and numbers done by hand; and the panel behind them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from course import records
from course.compare.panel import names, panel
from course.explorers import View
from course.explorers import sweep as explorers
from course.pictures.sweep import further_axes, ordered_rightly


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


# ---------------------------------------------------------------- the panel
def test_a_panel_is_the_rows_of_the_records():
    one = panel("8.86B", 64)
    rates = [
        row["tokens_per_s_per_device"] for row in records.runs()
        if records.key(row) == "usp" and records.ran(row) and row["model"] == "llama-like 8.86B"
        and row["n_devices"] == 64
    ]  # fmt: skip
    assert one.best_s == pytest.approx(256 * 4096 / 64 / max(rates))
    assert one.regret(int(np.nanargmin(one.time_s))) == 0
    assert one.after_trial(1) == pytest.approx(one.regret(int(one.order[0])))
    assert one.after_trial(len(one.order)) == pytest.approx(0)
    tried = one.time_s[one.order[:3]]
    assert one.trial_hours(50) == pytest.approx(50 * tried.sum() * 64 / 3600)
    worst = int(np.nanargmax(one.time_s))
    assert one.wasted_hours(worst, 10) == pytest.approx(10 * (one.time_s[worst] - one.best_s) * 64 / 3600)


@pytest.mark.parametrize("name", [("1.34B", 8), ("8.86B", 64), ("80B", 128)])
def test_a_panel_is_ranked_as_a_sweep_ranks(name):
    """Row by row: what is held to fit first, ties simplest first, all others by time; failures are stepped over."""
    one = panel(*name)
    room = one.run.cluster.accelerator.memory_bytes / 2**30
    places = [place for place in range(len(one.layouts)) if np.isfinite(one.predicted_s[place])]
    best = min(one.predicted_s[place] for place in places if one.predicted_gib[place] <= room)

    def key(place):
        layout, fits = one.layouts[place], one.predicted_gib[place] <= room
        tied = fits and one.predicted_s[place] <= 1.05 * best
        axes, rung = (layout.tensor > 1) + (layout.pipeline > 1), ("none", "zero1").index(layout.sharding)
        simple = (axes, layout.tensor * layout.pipeline, rung) if tied else ()
        return not fits, not tied, simple, one.predicted_s[place]

    assert [key(place) for place in one.ranked] == sorted(map(key, places))
    assert list(one.order) == [place for place in one.ranked if np.isfinite(one.time_s[place])]
    third = list(one.ranked).index(one.order[2])
    assert one.failed_starts() == third - 2
    assert one.trial_hours(0, start_s=3600) == pytest.approx((third + 1) * one.devices)


def test_a_layout_nobody_tried_is_an_error():
    with pytest.raises(LookupError, match="Nobody tried"):
        panel("1.34B", 8).find(tensor=3)


def test_three_are_enough_to_thirty_two_nodes():
    regrets = [panel(*name).after_trial() for name in names() if name[1] <= 256]
    assert len(regrets) == 16
    assert max(regrets) < 0.04


# ---------------------------------------------------------------- explorers
def test_devices_by_hand():
    view = explorers.devices().view()
    rows = {name.split(" <")[0]: cells for name, cells in table(view).items()}
    points = {f"{p.devices:,}": p for p in explorers.counts("8.86B")}
    steps = 1e12 / (256 * 4096)
    for name, point in points.items():
        assert point.days == pytest.approx(point.fastest.time_s * steps / 86400)
        assert number(rows[name][2]) == pytest.approx(24 * point.devices * point.days / 1000, abs=0.06)
    saved = points["128"].days - points["256"].days
    dearer = 256 * points["256"].days - 128 * points["128"].days
    assert number(rows["256"][4]) == pytest.approx(2 * dearer / saved, rel=0.01)
    assert rows["1,024"][4:] == ("slower", "no")
    assert "The deadline stops at 128" in view.sentence
    assert "the break-even at 512" in view.sentence


def test_a_budget_may_leave_no_count():
    view = explorers.devices().view(days=10, budget=45)
    assert "No count meets the deadline" in view.sentence


def test_doubling_by_hand():
    view = explorers.doubling().view(baseline=512)
    before, after = (number(cell) for cell in table(view)["step (s)"][:2])
    assert after > before
    assert "slower: stop before" in view.sentence
    assert f"efficiency {before / after / 2:.2f}" in view.sentence


def test_choose_tells_what_a_layout_did():
    explorer = explorers.choose()
    assert "10% slower" in explorer.view().sentence
    assert "886% slower" in explorer.view(tensor=8).sentence
    # 50 steps of three layouts, and four starts of ten minutes: one of those ranked before the third failed
    asked = panel("8.86B", 64)
    hours = (50 * asked.time_s[asked.order[:3]].sum() + 4 * 600) * 64 / 3600
    assert f"takes {hours:.0f} accelerator-hours" in explorer.view().sentence
    best = explorer.view(tensor=1, pipeline=2, micro_batch=1, sharding="zero1")
    assert "0% slower than the best" in best.sentence
    assert table(best)["yours"][1:] == table(best)["best"][1:]
    assert "failed" in explorer.view(tensor=1, pipeline=1).sentence


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("devices", {"days": 0}, "days must be above 0"),
        ("choose", {"days": -1}, "days must be above 0"),
        ("choose", {"tensor": 3}, "Nobody tried"),
    ],
)
def test_a_wrong_number_is_a_sentence(name, values, said):
    explorer = getattr(explorers, name)()
    view, sentence = explorer.said({**explorer.start, **values})
    assert view is None
    assert said in sentence


def test_answers_are_fast_once_swept():
    made = [explorers.devices(), explorers.doubling(), explorers.choose()]
    for explorer in made:
        explorer.view()
        took = []
        for _ in range(3):
            start = time.perf_counter()
            explorer.view()
            took.append(time.perf_counter() - start)
        assert min(took) < 0.1


# ---------------------------------------------------------------- pictures
def test_further_axes_draws_the_median_of_what_fits():
    made = further_axes([[1.3, 1.0], [float("nan"), 1.2]], "a finding")
    median = next(line for line in made.axes[0].lines if line.get_label() == "median")
    assert list(median.get_ydata()) == pytest.approx([30, 10])


def test_ordered_rightly_draws_its_shares():
    made = ordered_rightly([0, 0.1, 0.5], [0.5, 0.9], "a finding")
    assert [bar.get_height() for bar in made.axes[0].patches] == pytest.approx([50, 90])
