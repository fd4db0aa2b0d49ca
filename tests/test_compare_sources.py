"""Sources beside the baseline: what is scored, what is in-sample, and regrets on hand-made runs."""

from __future__ import annotations

import numpy as np
import pytest

from course import records
from course.compare import compare
from course.compare.playbook import first_rows
from course.compare.sources import CALIBRATES, Source, calibrated_on, sources
from course.compare.trials import trial


def test_medians_are_those_of_the_comparison():
    """Two ways to the same rows: one evaluation a source, and `compare`, which leaves out repeated measurements too."""
    document = {one["name"]: one for one in compare(first_rows("kor", "nar", "nemo")).document["sources"]}
    mine = {one.key: one for one in sources()}
    for key in ("kor", "nar", "nemo"):
        found = float(np.median(np.abs(mine[key].ratio(mine[key].ours) - 1)))
        assert found == pytest.approx(document[key]["throughput"]["median"], rel=1e-9)


def test_every_source_is_in_the_records_and_the_largest_comes_first():
    found = sources()
    assert {one.key for one in found} <= {records.key(row) for row in records.runs()}
    counts = [int(one.scored.sum()) for one in found]
    assert counts == sorted(counts, reverse=True) and min(counts) > 0
    assert all(np.isfinite(one.ratio(one.ours)).all() for one in found)


def test_a_failed_run_is_never_scored():
    usp = next(one for one in sources() if one.key == "usp")
    assert not any(records.failed(row) for row, kept in zip(usp.rows.rows, usp.scored, strict=True) if kept)


def test_what_calibrated_a_constant_is_said():
    assert all(calibrated_on(key) for key in CALIBRATES)
    assert not calibrated_on("mxt") and not calibrated_on("mlp") and not calibrated_on("no such source")


def hand_made(ours: list[float], measured: list[float]) -> Source:
    """Layouts of one question: rows of one grid of the playbook, with times written by hand."""
    rows = [
        row for row in first_rows("usp")
        if (row["model"], row["n_devices"]) == ("llama-like 1.34B", 8) and records.ran(row)
    ][: len(ours)]  # fmt: skip
    one = trial(rows)
    timed = type(one)(one.rows, one.runs, np.array(measured), one.peak_gib, one.legal, one.questions)
    return Source("usp", timed, np.array(ours), np.array(measured)[::-1].copy(), one.peak_gib)


def test_regrets_by_hand():
    found = hand_made([1.0, 2.0, 3.0, 4.0], [8.0, 6.0, 5.0, 4.0]).regrets()
    assert found is not None
    assert found["ours"] == (pytest.approx(8 / 4 - 1), pytest.approx(5 / 4 - 1))
    assert found["random"][0] == pytest.approx((8 + 6 + 5 + 4) / 4 / 4 - 1)
    assert found["random"][1] == pytest.approx((4 + 4 + 4 + 5) / 4 / 4 - 1)  # three of four miss the best once in four


def test_a_perfect_order_has_no_regret_and_one_layout_asks_no_question():
    found = hand_made([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]).regrets()
    assert found is not None and found["ours"] == (0.0, 0.0)
    assert hand_made([1.0], [1.0]).regrets() is None
