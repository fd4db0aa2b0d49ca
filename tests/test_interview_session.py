"""The interview as people meet it: what they write is read, the clock runs, Ctrl-C saves, the notebook has the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from course.cli import main
from course.errors import UserError
from course.interview import reference
from course.interview.drills import draw
from course.interview.session import Session, resume, start
from course.interview.sheet import SHEET, Field
from course.interview.values import letters, read
from course.interview.widgets import Form, widget

FIELDS = {field.name: field for step in SHEET for field in step.fields}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("parameters", "70B", 70e9), ("parameters", "405 billion", 405e9), ("parameters", "70e9 parameters", 70e9),
        ("flops", "8.4e23", 8.4e23), ("flops", "6*70e9*2e12 FLOP", 8.4e23), ("peak", "1 PFLOP/s", 1000.0),
        ("state", "1.26 TB", 1260.0), ("state", "1 GiB", 2**30 / 1e9), ("capacity", "80 GiB", 80.0),
        ("between_rate", "400 Gb/s", 50.0), ("mfu", "0.42", 42.0), ("mfu", "42 %", 42.0), ("mfu", "42", 42.0),
        ("days", "336 hours", 14.0), ("tensor", "8", 8), ("crosses", "none", ()),
        ("order", "tp, dp > pipeline", ("tensor", "data", "pipeline")),
        ("grid", "tensor 4 8; sharding zero1 ZeRO-2", {"tensor": [4, 8], "sharding": ["zero1", "zero2"]}),
        ("fates", "tensor exposed, data part", {"tensor": "exposed", "data": "partly"}),
        ("notes_mfu", " I think so ", "I think so"), ("days", "", None),
    ],
)  # fmt: skip
def test_what_is_written_is_read(name: str, text: str, value: object):
    found = read(FIELDS[name], text)
    assert found == (pytest.approx(value) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("state", "12 days", "write it in GB"), ("state", "a lot", "A number is asked for"),
        ("tensor", "eight", "whole"),
        ("tensor", "0", "from 1"), ("verdict", "z", "a to c"), ("order", "gpu", "Name axes"),
        ("order", "expert tensor", "fold"), ("order", "data data", "once"), ("grid", "tensor", "values"),
        ("grid", "speed 9", "Name axes"), ("fates", "tensor", "such as"), ("fates", "tensor late", "hidden, partly"),
        ("days", "-3", "below zero"), ("grid", "sharding all", "zero1"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_answered_in_one_sentence(name: str, text: str, said: str):
    with pytest.raises(UserError, match=said) as error:
        read(FIELDS[name], text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_letters_of_reasons_go_up_to_two():
    why = Field("why", "reasons", "Why?")
    options = {"six": "6", "state": "s", "eight": "8"}
    assert read(why, "a c", options) == ("six", "eight") == read(why, "ac", options) == read(why, "(a), c.", options)
    with pytest.raises(UserError, match="two reasons"):
        read(why, "abc", options)


# ---------------------------------------------------------------- the session
def test_the_clock_counts_the_step_at_hand_and_the_state_survives(tmp_path: Path):
    times: Iterator[float] = iter([0.0, 90.0, 150.0])
    session = start(7)
    session.clock = lambda: next(times)
    session.tick()
    session.tick()
    assert session.spent("estimate") == pytest.approx(1.5)
    session.write("estimate", "parameters", 70e9)
    session.ask("dead")
    session.place = 3
    session.tick()
    session.save(tmp_path / "one.json")
    back = resume(tmp_path / "one.json")
    assert back is not None and back.prompt == session.prompt and back.place == 3 and back.asked == ("deadline",)
    assert back.answers == session.answers and back.spent() == pytest.approx(2.5)
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"done": false, "seed": "x"}', "no json"])
def test_a_file_that_holds_no_interview_is_named(tmp_path: Path, text: str):
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(UserError, match=r"one\.json"):
        resume(tmp_path / "one.json")


def test_a_question_that_has_changed_is_not_taken_up(tmp_path: Path):
    start(7).save(tmp_path / "one.json")
    held = json.loads((tmp_path / "one.json").read_text())
    (tmp_path / "one.json").write_text(json.dumps({**held, "question": "another"}))
    with pytest.raises(UserError, match="another version"):
        resume(tmp_path / "one.json")


# ---------------------------------------------------------------- the terminal
def typed(session: Session) -> list[str]:
    """The reference sheet of a session as somebody would type it, blank by blank."""
    sheet, lines = reference(session.prompt), [f"ask {topic}" for topic in session.prompt.withheld]
    while (here := session.current) is not None:
        step, field = here
        value = sheet[step.name].get(field.name)
        named = {key: letter for letter, key, _ in letters(session.choices(step, field))}
        if value is None:
            lines.append("")
        elif field.kind == "choice":
            lines.append(named[value])
        elif field.kind in ("several", "reasons"):
            lines.append(" ".join(named[key] for key in value) or "none")
        elif isinstance(value, dict):
            join = "; " if field.kind == "grid" else ", "
            lines.append(
                join.join(f"{name} {' '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in value.items())
            )
        else:
            lines.append(" ".join(value) if isinstance(value, tuple) else f"{value!r} {field.unit}".strip())
        session.write(step.name, field.name, value)
        session.place += 1
    return lines


def typing(monkeypatch: pytest.MonkeyPatch, lines: list[str], end: type[BaseException] = EOFError) -> None:
    """Let `input` give these lines, then raise."""
    given = iter(lines)

    def answer(_: str = "") -> str:
        for line in given:
            return line
        raise end

    monkeypatch.setattr("builtins.input", answer)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", [4, 11])
def test_the_reference_typed_in_scores_a_hundred(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    lines = typed(start(seed))
    typing(monkeypatch, lines)
    assert main(["interview", "--seed", str(seed)]) == 0
    assert "SCORE 100 of 100: strong" in capsys.readouterr().out
    assert json.loads(Path(f"interview-{seed}.json").read_text())["done"]


def test_ctrl_c_saves_and_the_same_seed_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    lines = typed(start(11))
    typing(monkeypatch, ["seventy", "z", *lines[:9]], KeyboardInterrupt)
    assert main(["interview", "--seed", "11"]) == 130
    said = capsys.readouterr().out
    assert "Choose by letter" in said and "Saved in interview-11.json" in said
    typing(monkeypatch, ["back", "clock", "question", *lines[8:]])
    assert main(["interview", "--seed", "11"]) == 0
    said = capsys.readouterr().out
    assert "Taken up" in said and "SCORE 100" in said


def test_done_grades_what_is_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    typing(monkeypatch, ["a", "done"])
    assert main(["interview", "--seed", "7"]) == 0
    said = capsys.readouterr().out
    assert "left blank: parameters of the model" in said and "Your weakest step" in said


@pytest.mark.parametrize("words", [["--seed", "x"], ["--seed", "-1"], ["--level", "9"], ["--seed", "9" * 30]])
def test_a_wrong_option_is_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["interview", *words])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_the_file_of_another_interview_is_not_overwritten(capsys: pytest.CaptureFixture[str]):
    start(3).save(Path("mine.json"))
    assert main(["interview", "--seed", "7", "--file", "mine.json"]) == 2
    assert "seed 3" in capsys.readouterr().err
    Path("mine.json").write_text("notes of mine")
    assert main(["interview", "--file", "mine.json"]) == 2
    assert Path("mine.json").read_text() == "notes of mine"


def test_the_interviewers_copy_and_the_drills(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert main(["interview", "--seed", "10", "--pair"]) == 0
    said = capsys.readouterr().out
    assert "Keep back" in said and said.count("Red flags") == 8 and "WHAT IF" in said
    answers = [f"{drill.answer * factor:.4g}" for drill, factor in zip(draw(3), (1, 1.2, 1.7, 9, 1), strict=True)]
    typing(monkeypatch, ["x", *answers])
    assert main(["interview", "--drills", "--seed", "3"]) == 0
    assert "3.5 of 5 points" in capsys.readouterr().out


# ---------------------------------------------------------------- drills and the notebook
def test_an_estimate_is_graded_by_its_factor():
    for drill in draw(5, 8):
        right = drill.answer
        assert [drill.score(right * factor).points for factor in (1, 1.24, 1 / 1.24)] == [1, 1, 1]
        assert [drill.score(right * factor).points for factor in (1.27, 1.99, 0.52)] == [0.5] * 3
        assert [drill.score(right * factor).points for factor in (2.1, 0.4, 1e3)] == [0] * 3
        with pytest.raises(UserError):
            drill.score("about")
    with pytest.raises(UserError, match="above zero"):
        draw(1)[0].score(0)


def test_the_form_is_the_same_interview(tmp_path: Path):
    shown = widget(11, path=tmp_path / "sheet.json")
    form = Form(shown.session, shown.path)
    form.rows["estimate", "parameters"].value = "70B"
    form.rows["shard", "tensor"].value = "many"
    assert shown.session.answers["estimate"]["parameters"] == 70e9
    assert "whole number" in form.notes["shard", "tensor"].value
    form.ask("deadline")
    assert "days" in form.said.value
    form.grade()
    assert "SCORE" in form.result.value and (tmp_path / "sheet.json").exists()
    assert str(shown).count("\n") >= 6
