"""The explorers of the lab against a report whose numbers are made by a law, and sentences for wrong values."""

from __future__ import annotations

import pytest

from course.errors import UserError
from course.explorers import View
from course.explorers import lab as explorers
from course.lab.protocol import training
from course.lab.report import Report, complete

HERE = {"kind": "cpu", "cores": 2, "accelerator": "A", "hosts": 1}
EACH, FIXED, LATENCY, BANDWIDTH = 5e-3, 4e-3, 2e-4, 1e9
BYTES = 3_674_624


def timed(family: str, devices: int, batch: int, **more: object) -> dict[str, object]:
    request = training(HERE, "torch", family, devices, batch)
    wait = 2 * LATENCY + BYTES / BANDWIDTH if devices == 2 else 0.0
    seconds = FIXED + EACH * batch / devices + wait
    return complete({
        **request, "work_unit": f"{batch} sequences", "status": "ok", "request": request, "payload_bytes": BYTES,
        "placement": {"cores": 2, "shared_cores": False, "accelerator": "A"},
        "step_time_s": {"p10": seconds, "p50": seconds, "p90": seconds, "n": 20}, **more,
    })  # fmt: skip


def message(size: int) -> dict[str, object]:
    seconds = 2 * LATENCY + size / BANDWIDTH
    request = training(HERE, "torch", "collective", 2, 2, name=f"all_reduce-{size}", operation="all_reduce",
                       payload_bytes=size)  # fmt: skip
    time = {"p10": seconds, "p50": seconds, "p90": seconds, "n": 20}
    return complete({**request, "request": request, "status": "ok", "step_time_s": time})


@pytest.fixture(autouse=True)
def lawful(monkeypatch):
    cells = [timed("strong", devices, batch) for devices in (1, 2) for batch in (2, 8, 16, 32)]
    held = training(HERE, "torch", "layout", 2, 16, name="tp2", layout={"tensor": 2})
    cells += [message(4096), message(2**20), complete({**held, "request": held, "status": "ok", "held_bytes": 7})]
    report = Report(HERE, cells)
    monkeypatch.setattr(explorers, "at_hand", lambda: report)


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


@pytest.mark.parametrize("known", ["all", "one"])
def test_a_lawful_step_is_predicted(known):
    view = explorers.held_out().view(cell="torch.strong.2.gb8", known=known)
    seconds = FIXED + EACH * 4 + 2 * LATENCY + BYTES / BANDWIDTH
    rows = table(view)
    assert float(rows["measured"][0]) == pytest.approx(1e3 * seconds, abs=0.01)
    assert float(rows["predicted"][0]) == pytest.approx(1e3 * seconds, rel=0.01)
    assert float(rows["overhead"][0]) == pytest.approx(1e3 * FIXED, rel=0.01)
    assert "inside the band" in view.sentence


def test_the_curve_by_hand():
    wait = 1e3 * (2 * LATENCY + BYTES / BANDWIDTH)
    view = explorers.strong_curve().view(overhead=10)
    one, two = 1e3 * (FIXED + EACH * 8) + 10, 1e3 * (FIXED + EACH * 4) + wait + 10
    assert table(view)["8"] == ("4", f"{one:.1f}", f"{two:.1f}", f"{one / two:.2f}", f"{one / two / 2:.2f}",
                                f"{2 * two / one - 1:+.0%}")  # fmt: skip
    less = explorers.strong_curve().view()
    assert float(table(less)["8"][4]) > float(table(view)["8"][4])
    with pytest.raises(UserError, match="must be 0"):
        explorers.strong_curve().view(overhead=-1)


def test_the_next_limit_by_hand():
    message_ms = 1e3 * (2 * LATENCY + BYTES / BANDWIDTH)
    rows = table(explorers.next_limit().view(batch=2, devices=2, bandwidth=2, latency=0.5, rate=5))
    assert float(rows["communication"][0]) == pytest.approx(message_ms, rel=0.01)
    assert float(rows["communication"][1]) == pytest.approx(message_ms / 2, rel=0.01)
    assert float(rows["compute"][1]) == pytest.approx(1.0, rel=0.01)
    assert "overhead takes" in explorers.next_limit().view(batch=2, bandwidth=2, rate=5).sentence
    assert "compute takes" in explorers.next_limit().view(batch=32).sentence
    assert "beyond the data" in explorers.next_limit().view(devices=4).sentence
    assert "beyond the data" not in explorers.next_limit().view(devices=2).sentence


def test_bytes_by_hand():
    # 4 layers of 12 x 128^2, twice 512 x 128, 9 norms of 128: 4 bytes each for weight and gradient
    matrices, ends, norms = 4 * 12 * 128**2, 2 * 512 * 128, 9 * 128
    view = explorers.held_bytes_of().view(tensor=2)
    assert f"holds {8 * ((matrices + ends) // 2 + norms):,} bytes" in view.sentence
    assert "7 counted" in view.sentence
    stage = explorers.held_bytes_of().view(tensor=1, pipeline=2)
    assert f"holds {8 * (matrices // 2 + ends // 2 + 5 * 128):,} bytes" in stage.sentence
    assert "no such cell" in stage.sentence
    shard = explorers.held_bytes_of().view(tensor=1, data=4, sharding="zero3")
    assert f"holds {2 * (matrices + ends + norms):,} bytes" in shard.sentence


def test_wrong_values_are_sentences():
    with pytest.raises(UserError, match="must be"):
        explorers.next_limit().view(rate=0)
    with pytest.raises(UserError, match="has no cell"):
        explorers.held_out_view("torch.strong.2.gb9", "all")
