"""The figures of accuracy draw the runs they are given where they belong; that of the README can be drawn again."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from course.pictures import accuracy

ROOT = Path(__file__).resolve().parent.parent
POINTS = {"mpt": [(1.0, 1.1), (4.0, 3.0)], "own": [(2.0, 2.0)]}
RATIOS = {
    "ours": {"one": (0.9, 1.0, 1.2), "two": (0.8, 1.1, 3.0)},
    "flat": {"one": (0.5, 1.0, 2.0), "two": (0.4, 1.0, 4.0)},
}
FIGURES = {
    "beside": lambda: accuracy.beside(POINTS, "time of a step (s)", "a finding"),
    "spreads": lambda: accuracy.spreads(RATIOS, "a finding"),
    "by_micro_batch": lambda: accuracy.by_micro_batch(
        {"measured": [(2, 3.0), (1, 2.0)]}, {"predicted": [(1, 2.5), (2, 3.5)]}, "memory (GiB)", "a finding"
    ),
    "overview": lambda: accuracy.overview(POINTS, RATIOS, ("a finding", "another")),
}


def texts(figure: Figure) -> str:
    figure.draw_without_rendering()
    return " ".join(text.get_text() for text in figure.findobj(plt.Text))


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_states_its_finding_and_is_not_shown_twice(name: str):
    before = plt.get_fignums()
    assert "a finding" in texts(FIGURES[name]())
    assert plt.get_fignums() == before


def test_every_run_is_drawn_at_its_prediction_and_measurement():
    figure = FIGURES["beside"]()
    axes = figure.axes[0]
    drawn = {
        (float(x), float(y))
        for line in axes.lines if line.get_linestyle() == "None"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }  # fmt: skip
    assert drawn == {pair for pairs in POINTS.values() for pair in pairs}
    assert axes.get_xlim() == axes.get_ylim()
    said = texts(figure)
    assert "llm-foundry (2)" in said and "own (1)" in said and "predicted time of a step (s)" in said


def test_the_bands_are_a_tenth_and_a_factor_of_two():
    axes = FIGURES["beside"]().axes[0]
    edges = []
    for band in axes.collections:
        corners = band.get_paths()[0].vertices
        ratio = corners[:, 1] / corners[:, 0]
        edges.append((ratio.min(), ratio.max()))
    assert np.allclose(edges, [(0.5, 2.0), (0.9, 1.1)])


def test_a_spread_reaches_from_its_tenth_to_its_ninetieth_and_marks_its_median():
    axes = FIGURES["spreads"]().axes[0]
    bars = {tuple(map(float, line.get_xdata())) for line in axes.lines if line.get_linewidth() == 5}
    assert bars == {(low, high) for rows in RATIOS.values() for low, _, high in rows.values()}
    marks = sorted(float(line.get_xdata()[0]) for line in axes.lines if len(line.get_xdata()) == 1)
    assert marks == sorted(float(middle) for rows in RATIOS.values() for _, middle, _ in rows.values())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]


def test_micro_batches_are_drawn_in_their_order():
    axes = FIGURES["by_micro_batch"]().axes[0]
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2], [1, 2]]
    assert list(axes.lines[0].get_ydata()) == [2.0, 3.0] and axes.get_ylim()[0] == 0


def test_every_source_with_a_colour_has_a_name():
    assert set(accuracy.COLOURS) == set(accuracy.NAMES)
    assert len(set(accuracy.COLOURS.values())) == len(accuracy.COLOURS)


def test_the_picture_of_the_readme_can_be_drawn_again(tmp_path: Path):
    accuracy.write_overview(tmp_path / "again.png")
    again, kept = imread(tmp_path / "again.png"), imread(ROOT / "docs" / "accuracy.png")
    assert again.shape == kept.shape
    assert abs(again - kept).mean() < 0.01  # letters may differ by a version of Matplotlib; marks and labels may not
    assert 0.02 < (again[..., :3].min(axis=2) < 0.9).mean() < 0.6  # something is drawn, and paper is left
    assert "docs/accuracy.png" in (ROOT / "README.md").read_text()
