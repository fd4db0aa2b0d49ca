"""Answers of the lab by independent arithmetic, and answers that follow the report at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course.errors import UserError
from course.grading import judge
from course.grading.answers import encode
from course.lab import at_hand, points
from course.lab.held import held_bytes
from course.lab.jax_engine import compiled
from course.lab.report import Report, write
from course.questions import lab_own
from course.questions.kinds import Function, Judgement, Number
from course.questions.registry import Registry

REGISTRY = Registry(["course.questions.lab"])


def answer(name: str, **given: object) -> float:
    question = REGISTRY.get(name)
    assert isinstance(question, Number)
    return question.answer({**question.numbers(), **given})


def test_by_hand():
    assert answer("lab.1") == pytest.approx(1.5 * (2**25 - 2**12) / 8e-3 / 1e9)
    assert answer("lab.7") == pytest.approx(4 + 30 + 4.8)
    # 4 layers of 12 x 16^2 and ends of 1024 x 16 in quarters, 9 norms of 16, 8 bytes each
    assert answer("lab.8") == 8 * ((4 * 12 * 16**2 + 1024 * 16) // 4 + 9 * 16)
    assert answer("lab.11", micro_batches=8, idle=0.24) == pytest.approx(0.24 - 1 / 9)


def test_functions_by_hand():
    step, loss = REGISTRY.get("lab.3"), REGISTRY.get("lab.4")
    assert isinstance(step, Function) and isinstance(loss, Function)
    assert step.answer([90.0, 10.0, 30.0, 10.0], [80.0, 30.0, 10.0, 30.0], 1) == 30
    assert loss.answer([6.0, 6.0, 9.0], [3, 3, 2]) == 54 / 8


def test_counts_are_those_of_the_compiler():
    cells = {cell["id"]: cell["extra"] for cell in compiled.recorded()["cells"]}
    assert answer("lab.9", layers=4) == cells["jax.layout.2.zero3"]["collectives"]["all-gather"]
    given = REGISTRY.get("lab.10").numbers()
    for key, name in (("one", "1.serial"), ("data", "2.data"), ("tensor", "2.tensor")):
        assert given[key] == round(cells[f"jax.layout.{name}"]["flops_per_device"] / 1e9, 4)


def test_bytes_held_are_those_that_programs_counted_of_themselves():
    cells = [*at_hand.at_hand().cells, *compiled.recorded()["cells"]]
    counted = [cell for cell in cells if cell["held_bytes"] and cell["family"] in ("layout", "pipeline", "strong")]
    layouts = {str(cell["layout"]) for cell in counted}
    assert len(layouts) > 12
    assert [held_bytes(cell) for cell in counted] == [cell["held_bytes"] for cell in counted]


def test_traces_of_the_lab_read_as_marked_steps():
    for name in at_hand.recorded_traces():
        trace = at_hand.trace(name)
        assert len(trace.steps) == 3 and trace.communication_s > trace.exposed_s * 0.99 > 0
    with pytest.raises(UserError, match="There are torch"):
        at_hand.trace("torch.strong.2.gb3")


# ---------------------------------------------------------------- the report at hand
def changed(report: Report, family: str, devices: int, factor: float) -> Report:
    """The report, with the steps of some cells longer by a factor."""
    text = json.loads(report.text())
    for cell in text["cells"]:
        if cell["family"] == family and cell["devices"] == devices and cell["step_time_s"]:
            cell["step_time_s"] = {key: value if key == "n" else value * factor
                                   for key, value in cell["step_time_s"].items()}  # fmt: skip
    return Report(text["machine"], text["cells"])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    monkeypatch.delenv("COURSE_LAB", raising=False)
    shipped = at_hand.at_hand()
    write(at_hand.own_file(), changed(shipped, "strong", 2, 2.0))
    return tmp_path


def test_answers_follow_the_report_that_was_chosen(own: Path, monkeypatch: pytest.MonkeyPatch):
    before = answer("lab.12")
    (own / "lab-choice.txt").write_text("own")
    assert answer("lab.12") == pytest.approx(before / 2)
    assert judge.grade(REGISTRY.get("lab.12"), encode(before / 2)).status == "right"
    monkeypatch.setenv("COURSE_LAB", "recorded")
    assert answer("lab.12") == pytest.approx(before)
    monkeypatch.delenv("COURSE_LAB")
    at_hand.open_report("recorded", show=False)
    assert answer("lab.12") == pytest.approx(before)


def test_without_engine_or_devices_one_line_says_so(own: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    for names, device, said in (([], 2, "Neither torch nor jax"), (["jax"], 2, "torch is not installed"),
                                (["torch"], 1, "One device has nothing")):  # fmt: skip
        monkeypatch.setattr(at_hand, "engines", lambda names=names: names)
        monkeypatch.setattr(at_hand, "devices", dict)
        monkeypatch.setattr(at_hand, "device_count", lambda _, device=device: device)
        assert at_hand.open_report("quick").of("strong")
        line = capsys.readouterr().out
        assert said in line and "Recorded results: " in line and line.count("\n") == 1
    with pytest.raises(UserError, match='mode "fast"'):
        at_hand.open_report("fast")


def test_a_measurement_becomes_the_report_at_hand(own: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    asked = []
    monkeypatch.setattr("course.lab.measuring.measure", lambda *args, **more: asked.append((args, more)))
    monkeypatch.setattr(at_hand, "_lacking", lambda: None)
    shipped = answer("lab.12")
    found = at_hand.open_report("quick")
    assert asked == [((own / "lab.json",), {"quick": True, "traces": own / "traces", "grid": False})]
    assert found.cells and answer("lab.12") == pytest.approx(shipped / 2)
    assert capsys.readouterr().out.startswith("Measured here: ")


def test_no_fit_sees_what_it_predicts():
    report = at_hand.at_hand()
    cell = points.held_out(report)
    for name in points.twins(report, cell["id"]):
        assert name not in lab_own.fit(report, leave_out=points.twins(report, cell["id"])).cells
    weak = next(one for one in report.of("weak", "torch", 2))
    same = [one for one in report.of("strong", "torch", 2)
            if one["global_batch_sequences"] == weak["global_batch_sequences"]]  # fmt: skip
    assert set(points.twins(report, weak["id"])) >= {weak["id"], same[0]["id"]}


def test_what_a_curve_says():
    report = at_hand.at_hand()
    said = lab_own.says(report)
    rows = points.scaled(report)
    assert (said == "a") == (rows[-1]["efficiency"] - rows[0]["efficiency"] > 0.05)
    question = REGISTRY.get("lab.14")
    assert isinstance(question, Judgement)
    for wrong, mistake in (("3", "one host for a cluster"), ("2", "drawn beyond the data")):
        assert judge.grade(question, encode((said, wrong))).mistake == mistake
