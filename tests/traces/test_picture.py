"""The picture of a trace draws the intervals it is given, in the colours its legend names."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from course.pictures import BLUE, GREY, ORANGE, PURPLE, VERMILION
from course.pictures.traces import streams
from course.traces import sample


def painted(figure: Figure) -> dict[tuple[int, str], float]:
    """Milliseconds that each colour covers in each row."""
    found: dict[tuple[int, str], float] = {}
    for artist in figure.axes[0].findobj(PolyCollection):
        colour = to_hex(artist.get_facecolor()[0]).upper()
        for path in artist.get_paths():
            box = path.get_extents()
            key = round((box.y0 + box.y1) / 2), colour
            found[key] = found.get(key, 0.0) + box.width
    return found


def texts(figure: Figure) -> list[str]:
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(plt.Text)]


def test_bars_are_the_seconds_of_the_trace():
    trace, before = sample(), plt.get_fignums()
    figure = streams(trace, "a finding")
    bars, rows = painted(figure), len(trace.streams)
    assert bars[rows, VERMILION] == pytest.approx(1e3 * trace.exposed_s)
    assert bars[rows + 1, GREY] == pytest.approx(1e3 * trace.idle_s)
    for row, stream in enumerate(trace.streams):
        for colour, seconds in ((BLUE, stream.compute_s), (ORANGE, stream.communication_s), (PURPLE, stream.copies_s)):
            assert bars.get((row, colour), 0.0) == pytest.approx(1e3 * seconds)
    assert plt.get_fignums() == before


def test_what_is_drawn_is_named():
    said = texts(streams(sample(), "a finding"))
    assert {"a finding", "stream 7", "stream 203", "exposed", "idle"} <= set(said)
    assert {"all-to-all", "all-reduce", "all-gather"} <= set(said)
    assert "exposed 28.7 %" in said and "idle 53.6 %" in said
    assert any("(ms)" in text for text in said)


def test_a_window_is_shown_without_the_shares_of_the_whole():
    figure = streams(sample(), "a finding", window_s=(0.25, 0.35))
    assert figure.axes[0].get_xlim() == pytest.approx((250, 350))
    said = texts(figure)
    assert not [text for text in said if "%" in text]
    assert "all-reduce" in said and "all-gather" not in said
