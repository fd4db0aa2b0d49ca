"""The figures draw the numbers they are given, say what they show, and stay out of pyplot's list."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from course import examples
from course.pictures import start
from course.predict import predict
from course.problem import load
from course.simulators import pipeline

ROOT = Path(__file__).resolve().parent.parent
NEEDS = {"optimizer state": 900.0, "weights": 100.0, "one layer": 20.0}
STEPS = {"few": {"compute": 6.0, "tensor": 2.0, "bubble": 1.0}, "many": {"compute": 3.0, "tensor": 1.0, "bubble": 0.5}}
HELD = {"few": {"weights": 10.0, "activations": 60.0, "margin": 2.0}}
COUNTS, SHARES = [4, 8, 16], {"one": [0.8, 0.6, 0.5], "eight": [0.3, 0.2, 0.1]}


def runs() -> dict[str, pipeline.Pipeline]:
    return {
        "1F1B": pipeline.simulate(pipeline.one_forward_one_backward(3, 6), forward=1, backward=2),
        "interleaved": pipeline.simulate(pipeline.interleaved(3, 6, chunks=2), forward=1, backward=2),
    }


FIGURES = {
    "limits": lambda: start.limits(NEEDS, 80.0, "a finding"),
    "schedules": lambda: start.schedules(runs(), "a finding"),
    "bubbles": lambda: start.bubbles(COUNTS, SHARES, [8], "a finding"),
    "step_parts": lambda: start.step_parts(STEPS, {"few": 10.0}, "a finding"),
    "memory_parts": lambda: start.memory_parts(HELD, 80.0, "a finding"),
}


def bars(axes: Axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def texts(figure: Figure) -> str:
    figure.draw_without_rendering()
    return " ".join(text.get_text() for text in figure.findobj(plt.Text))


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_states_its_finding_and_units_and_is_not_shown_twice(name: str):
    before = plt.get_fignums()
    figure = FIGURES[name]()
    assert "a finding" in texts(figure)
    label = figure.axes[-1].get_xlabel()
    assert any(unit in label for unit in ("(GiB", "(s)", "(forward passes", "micro-batches")), label
    assert plt.get_fignums() == before


@pytest.mark.parametrize("name", FIGURES)
def test_letters_stay_readable_at_half_size(name: str):
    figure = FIGURES[name]()
    figure.draw_without_rendering()
    sizes = [text.get_fontsize() for text in figure.findobj(plt.Text) if text.get_text() and text.get_visible()]
    assert min(sizes) >= 10


def test_limits_draws_each_need_and_says_what_fits():
    figure = FIGURES["limits"]()
    assert [bar.get_width() for bar in bars(figure.axes[0])] == list(NEEDS.values())
    shown = texts(figure)
    assert "20 fits" in shown and "100 does not fit" in shown and "80.0 GiB" in shown


def test_schedules_draws_every_piece_of_work_for_as_long_as_it_took():
    for axes, run in zip(FIGURES["schedules"]().axes, runs().values(), strict=True):
        drawn = bars(axes)
        assert len(drawn) == sum(len(order) for order in run.orders)
        assert sum(bar.get_width() for bar in drawn) == pytest.approx(3 * 6 * (1 + 2))
        assert max(bar.get_x() + bar.get_width() for bar in drawn) == pytest.approx(run.makespan)


def test_bubbles_draws_the_shares_and_writes_the_marked_ones():
    figure = FIGURES["bubbles"]()
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert {name: lines[name] for name in SHARES} == SHARES
    assert "60.0%" in texts(figure) and "20.0%" in texts(figure) and "80.0%" not in texts(figure)


@pytest.mark.parametrize(("name", "rows"), [("step_parts", STEPS), ("memory_parts", HELD)])
def test_stacks_lay_the_parts_end_to_end_in_colours_that_differ(name: str, rows: dict[str, dict[str, float]]):
    axes = FIGURES[name]().axes[0]
    expected = [part for parts in rows.values() for part in parts.values()]
    assert [bar.get_width() for bar in bars(axes)] == expected
    for row, parts in enumerate(rows.values()):
        mine = bars(axes)[row * len(parts) : (row + 1) * len(parts)]
        assert [bar.get_x() for bar in mine] == [sum(list(parts.values())[:k]) for k in range(len(parts))]
        assert len({bar.get_facecolor() for bar in mine}) == len(parts)


def test_a_published_time_is_marked_where_it_is():
    axes = FIGURES["step_parts"]().axes[0]
    assert [list(line.get_xdata()) for line in axes.lines] == [[10.0, 10.0]]


def test_the_parts_of_a_step_are_its_time():
    document = predict(load(examples.path("llama-3.1-405b-16384-h100")))
    assert sum(start.time_parts(document).values()) == pytest.approx(document["step"]["time_s"], rel=1e-12)


@pytest.mark.parametrize("name", ["llama-3.1-405b-8192-h100", "llama-3.1-405b-16384-h100"])
def test_published_rates_agree_with_the_mfu_printed_beside_them(name: str):
    found = examples.published(name)
    peak = load(examples.path(name)).cluster.accelerator.peak_flops_per_s
    assert float(found["flops_per_s_per_device"]) / peak == pytest.approx(float(found["printed_mfu"]), abs=0.01)
    assert "2407.21783" in str(found["source"])


def test_the_picture_of_the_readme_can_be_drawn_again(tmp_path: Path):
    start.write_overview(tmp_path / "again.png")
    again, kept = imread(tmp_path / "again.png"), imread(ROOT / "docs" / "overview.png")
    assert again.shape == kept.shape
    assert abs(again - kept).mean() < 0.01  # letters may differ by a version of Matplotlib; bars and labels may not
    assert 0.02 < (again[..., :3].min(axis=2) < 0.9).mean() < 0.6  # something is drawn, and paper is left
