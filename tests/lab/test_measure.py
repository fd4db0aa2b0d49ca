"""Losses are held against the serial run, noisy cells are repeated, reports resume, progress tells what is left."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys

import pytest
from lab_ranks import HERE, cell

from course.errors import UserError
from course.lab import noise
from course.lab.measuring import measure
from course.lab.progress import Progress
from course.lab.report import load


def test_another_loss_has_no_speed(fake_measure):
    """6.401390 for 6.401020 is what three ranks make of a batch of eight that they cut into 3, 3 and 2."""
    asked = [cell(8, 1, loss=6.401020), cell(8, 2, loss=6.401390), cell(4, 1), cell(4, 2, loss=5.0 + 1e-5)]
    report = fake_measure(asked)
    wrong, right = report["torch.strong.2.gb8"], report["torch.strong.2.gb4"]
    assert wrong["status"] == "failed"
    assert wrong["loss_difference"] == pytest.approx(5.78e-5, rel=0.01)
    assert wrong["step_time_s"] is wrong["tokens_per_s"] is wrong["mfu"] is None
    assert wrong["loss"] == 6.401390
    assert wrong["reason"].startswith("its loss 6.401390 differs from the serial run's 6.401020 by 5.8e-05")
    assert right["status"] == "ok" and right["loss_difference"] == pytest.approx(2e-6)


def test_a_noisy_cell_is_measured_again_and_the_quietest_counts(fake_measure, tmp_path):
    loud = cell(4, 2, quieter=str(tmp_path / "tries"), time_s=0.02)
    report = fake_measure([cell(2, 1), loud])
    # foreign cores 0.9, 0.6, 0.3: still above 0.15 after three attempts
    kept = report["torch.strong.2.gb4"]
    assert kept["status"] == "noisy" and kept["reason"] == "other programs took 0.30 cores"
    assert kept["noise"] == {"foreign_cores": pytest.approx(0.3), "runq_wait": 0.0, "cpu_per_wall": 1.0, "attempts": 3}
    assert report["torch.strong.1.gb2"]["noise"].get("attempts") is None


def test_cells_that_alternate_are_measured_again_together(fake_measure, tmp_path):
    """One of a pair is noisy: both are measured again, and both come from one attempt."""
    loud = {**cell(4, 2, quieter=str(tmp_path / "tries"), time_s=0.02), "alternate": "pair"}
    calm = {**cell(8, 2), "alternate": "pair"}
    report = fake_measure([calm, loud, cell(2, 1)])
    assert [one["noise"].get("attempts") for one in report] == [3, 3, None]
    assert report["torch.strong.2.gb4"]["noise"]["foreign_cores"] == pytest.approx(0.3)
    assert len({report[name]["extra"]["pid"] for name in ("torch.strong.2.gb4", "torch.strong.2.gb8")}) == 1


def test_one_launch_holds_every_cell_that_has_a_device_for_each_rank(fake_measure):
    """Rank 1 is there for a cell of one device, and for no cell of two does anybody share a core."""
    report = fake_measure([cell(4, 1), cell(4, 2), cell(4, 4), cell(8, 1)])
    pids = [one["extra"]["pid"] for one in report]
    assert pids[0] == pids[1] == pids[3] != pids[2]


def test_finished_cells_are_not_measured_again_but_failed_and_changed_ones_are(fake_measure, tmp_path):
    first = fake_measure([cell(2), cell(4), cell(8, do="exit", rank=0)])
    pids = {one["id"]: (one["extra"] or {}).get("pid") if "extra" in one else None for one in first}
    again = fake_measure([cell(2), {**cell(4), "steps": 9}, cell(8)])
    assert again["torch.strong.2.gb2"]["extra"]["pid"] == pids["torch.strong.2.gb2"]
    assert again["torch.strong.2.gb4"]["extra"]["pid"] != pids["torch.strong.2.gb4"]
    assert again["torch.strong.2.gb8"]["status"] == "ok"
    assert load(tmp_path / "lab.json").cells == again.cells


def test_the_report_of_another_machine_is_not_gone_on_with(fake_measure):
    fake_measure([cell(2)])
    with pytest.raises(UserError, match=r"lab.json was measured on another machine \(cores differs\)"):
        fake_measure([cell(2)], here={**HERE, "cores": 3})


def test_an_engine_that_is_not_there_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr("course.lab.machine.find_spec", lambda _: None)
    for engine in (None, "torch", "jax"):
        with pytest.raises(UserError) as caught:
            measure(engine=engine, here=HERE, show=False)
        assert str(caught.value).startswith(f"{engine or 'torch'} is not installed")
        assert "pip install" in str(caught.value)
    with pytest.raises(UserError, match="There is no engine 'tensorflow'"):
        measure(engine="tensorflow", here=HERE)


def test_the_lab_loads_no_engine():
    code = (
        "import sys, course.lab; from course.lab import cells, devices, measure, merge\n"
        "devices(); print([name for name in ('torch', 'jax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["[]"]


def test_a_report_names_no_host_and_no_folder(fake_measure, tmp_path):
    fake_measure([cell(2)])
    text = (tmp_path / "lab.json").read_text()
    assert str(tmp_path) not in text and "course-lab-" not in text
    assert os.uname().nodename not in json.loads(text)["machine"].values()


@pytest.mark.parametrize(
    ("figures", "ranks", "waits", "said"),
    [
        ({"foreign_cores": 0.05, "cpu_per_wall": 0.99}, 2, True, None),
        ({"foreign_cores": 0.45, "cpu_per_wall": 0.5}, 2, True, "other programs took 0.45 cores"),
        ({"foreign_cores": 0.45, "cpu_per_wall": 0.99}, 1, False, None),  # one rank leaves a core to others
        ({"foreign_cores": 0.45, "cpu_per_wall": 0.7}, 1, False, "the rank had 0.70 of a core"),
        ({"foreign_cores": None, "cpu_per_wall": None}, 2, True, None),
        (None, 2, True, None),
        ({"foreign_cores": 2.0, "cpu_per_wall": 0.4}, 4, True, None),  # ranks that share cores disturb each other
    ],
)
def test_what_counts_as_noisy(figures, ranks, waits, said):
    assert noise.noisy(figures, ranks, 2, waits) == said


def test_a_tick_of_the_clock_is_no_neighbour(monkeypatch):
    """A cell of 30 ms on two cores: one tick of 10 ms on each may have been counted that nobody used."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.sysconf", lambda _: 100, raising=False)
    start = noise.Sample(0, 0, 0, 0)
    assert noise.between(start, noise.Sample(0.03, 0.03, 0.05, 0))["foreign_cores"] == 0
    assert noise.between(start, noise.Sample(2, 2, 3.02, 0))["foreign_cores"] == pytest.approx(0.5)


def test_noise_of_a_neighbour_is_seen():
    """A process that computes beside this one is foreign; this one's own work is not."""
    if noise.sample().all_cpu_s is None:
        pytest.skip("the system does not count it")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        first = noise.sample()
        while noise.sample().wall_s - first.wall_s < 1.0:
            random.random()
        found = noise.between(first, noise.sample())
    finally:
        busy.kill()
        busy.wait()
    assert found["foreign_cores"] > 0.2
    assert 0 < found["cpu_per_wall"] < 1.1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    for stream, marks in ((Terminal(), True), (io.StringIO(), False)):
        progress = Progress(10.0, 2, stream)
        progress.at("a", 1, 5.0, 2)
        progress.finished("a", 5.0, "1 ms")
        progress.finished("b", 5.0, "2 ms")
        shown = stream.getvalue()
        assert ("█" in shown) == ("\r" in shown) == marks
        assert "2/2" in shown and "left" in shown
        assert marks or shown.count("\n") == 2


def test_time_left_follows_the_pace():
    slow, quick = Progress(100.0, 10, io.StringIO()), Progress(100.0, 10, io.StringIO())
    for progress, spent in ((slow, 100.0), (quick, 20.0)):
        progress.began -= spent
        progress.finished("a", 20.0, "")
    assert 70 < quick.left_s() < 90 < 300 < slow.left_s()


def test_the_face_gives_functions_whatever_was_imported_before():
    code = (
        "import course.lab.measuring, course.lab.fitting, course.lab.report\n"
        "import course.lab as lab; print([name for name in lab.__all__ if not callable(getattr(lab, name))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["[]"]
