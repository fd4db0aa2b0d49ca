"""The frame of the explorers: one picture redrawn, no traceback, the same bytes where nobody looks."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from course import authoring, kernel
from course.errors import UserError
from course.explorers import Choice, Explorer, Flag, Number, View
from course.explorers import estimate as explorers
from course.explorers.base import WIDGET
from course.explorers.widgets import Panel
from course.pictures import live
from course.pictures.estimate import Roofline
from tests.every_explorer import NAMES, made

FRONT_END = ("COURSE_STATIC", "JPY_SESSION_NAME", "VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG",
             "KAGGLE_KERNEL_RUN_TYPE")  # fmt: skip


@pytest.fixture(autouse=True)
def _nobody_looks(monkeypatch):
    for name in FRONT_END:
        monkeypatch.delenv(name, raising=False)


# ---------------------------------------------------------------- the frame, without a front end
@pytest.mark.parametrize("name", NAMES)
def test_static(name):
    static = made(name).static()
    assert static.sentence in str(static)
    assert static.figure._repr_png_().startswith(b"\x89PNG")
    assert all(len(row) == len(static.headings) for row in static.rows)


@pytest.mark.parametrize("name", NAMES)
def test_where_nobody_looks_the_picture_stands_alone(name, monkeypatch):
    bundle = made(name)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png"}
    assert bundle == made(name)._repr_mimebundle_()
    width = made(name).picture().figure.get_figwidth()
    assert Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))).width == round(100 * width)
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    assert set(made(name)._repr_mimebundle_()) == {"text/plain", "image/png", WIDGET}
    monkeypatch.setenv("COURSE_STATIC", "1")
    assert WIDGET not in made(name)._repr_mimebundle_()


def test_a_question_hides_the_answer():
    bundle = explorers.roofline(intensity=8, bandwidth=200, ask="Which rate?")._repr_mimebundle_()
    assert set(bundle) == {"text/plain"}
    assert "Which rate?" in bundle["text/plain"]
    assert "1,000" not in bundle["text/plain"]


def test_a_wrong_start_is_a_sentence():
    bundle = explorers.roofline(intensity=-8)._repr_mimebundle_()
    assert "intensity" in bundle["text/plain"]
    assert "image/png" not in bundle
    with pytest.raises(UserError, match="no control 'bandwith'; the nearest is 'bandwidth'"):
        explorers.roofline(bandwith=50)


def test_the_library_takes_any_error_as_a_sentence():
    def broken(**_: object) -> View:
        raise ZeroDivisionError("division by zero")

    explorer = Explorer((), broken, Roofline)
    assert explorer.said({}) == (None, "division by zero")


@pytest.mark.parametrize("name", NAMES)
def test_no_default_is_outside_its_own_slider(name):
    for control in made(name).controls:
        if isinstance(control, Number):
            stops = control.stops()
            assert stops[0] <= control.default <= stops[-1]
            assert list(stops) == sorted(set(stops))


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_gives_a_view_or_a_sentence(name):
    explorer = made(name)
    for control in explorer.controls:
        options = list(control.legal(explorer.start).values()) if isinstance(control, Choice) else [control.default]
        for value in options:
            view, said = explorer.said(explorer.settled({control.name: value}, explorer.start))
            assert view is not None or said.endswith("."), (control.name, value, said)


@pytest.mark.parametrize("name", NAMES)
def test_one_picture_drawn_twice_has_the_same_bytes(name):
    explorer = made(name)
    picture = explorer.picture()
    picture.update(**explorer.view().picture)
    first = picture.png()
    assert first.startswith(b"\x89PNG")
    assert first == picture.png()


# ---------------------------------------------------------------- widgets
def panel(name: str, **values: object) -> Panel:
    return Panel(made(name, **values))


def others(explorer: Explorer, control: object, values: dict[str, object]) -> list[object]:
    """A few other values of a control."""
    if isinstance(control, Flag):
        return [not values[control.name]]
    every = control.legal(values).values() if isinstance(control, Choice) else control.stops()
    return [value for value in every if value != values[control.name]][:12]


@pytest.mark.parametrize("name", NAMES)
def test_every_control_matters(name):
    """At the start, or once another control stands elsewhere: stages matter to a schedule only where there are some."""
    explorer = made(name)

    def shown(values: dict[str, object]) -> object:
        view, said = explorer.said(values)
        return said if view is None else (view.sentence, view.rows)

    for control in explorer.controls:
        bases = [explorer.start] + [
            explorer.settled({other.name: value}, explorer.start)
            for other in explorer.controls
            if other is not control
            for value in others(explorer, other, explorer.start)
        ]
        assert any(
            shown(explorer.settled({control.name: value}, base)) != shown(base)
            for base in bases
            for value in others(explorer, control, base)
        ), control.name


@pytest.mark.parametrize("name", NAMES)
def test_every_control_is_wired(name):
    shown, pictures = panel(name), 0
    for control in shown.explorer.controls:
        widget, drawn = shown.inputs[control.name], shown.image.value
        assert widget.description == control.label
        if isinstance(control, Number):
            slider = shown.sliders[control.name]
            slider.value = slider.value - 1 if slider.value else 1
            assert widget.value == control.stops()[slider.value]
        else:
            (wanted, *_) = others(shown.explorer, control, shown.values)
            widget.value = wanted
        assert shown.values[control.name] == widget.value
        pictures += shown.image.value != drawn
        shown.reset.click()
    assert pictures
    assert shown.values == shown.explorer.start
    assert {name: widget.value for name, widget in shown.inputs.items()} == shown.explorer.start


def test_one_picture_is_redrawn():
    shown = panel("estimate.roofline")
    picture, artists = shown.picture, len(shown.picture.figure.findobj())
    for bandwidth in (50.0, 60.0, 70.0):
        shown.inputs["bandwidth"].value = bandwidth
    assert shown.picture is picture
    assert len(picture.figure.findobj()) == artists


def test_a_box_holds_what_lies_between_two_stops():
    shown = panel("estimate.roofline")
    shown.inputs["bandwidth"].value = 123.0
    assert shown.inputs["bandwidth"].value == 123.0
    assert shown.sliders["bandwidth"].value == 42  # 10^(42/20) = 125.9 is nearer than 112.2
    assert "and 123 GB/s" in shown.sentence.value


@pytest.mark.parametrize(("name", "control", "value", "told"), [
    ("roofline", "bandwidth", 0.0, "memory_bytes_per_s"), ("roofline", "intensity", -1.0, "intensity"),
    ("roofline", "intensity", float("nan"), "intensity"), ("parameters", "layers", 0, "layers"),
    ("parameters", "heads", 0, "heads"), ("parameters", "vocabulary", -5, "vocabulary"),
    ("parameters", "sequence_length", 0, "sequence_length"), ("state", "parameters", -3.0, "parameters"),
    ("activations", "sequence_length", -1, "sequence_length"),
])  # fmt: skip
def test_a_wrong_value_is_a_sentence(name, control, value, told):
    shown = panel(f"estimate.{name}")
    good = shown.inputs[control].value
    shown.inputs[control].value = value
    assert told in shown.sentence.value
    assert shown.image.layout.visibility == "hidden"
    assert shown.table.value == ""
    shown.inputs[control].value = good
    assert shown.image.layout.visibility is None
    assert shown.table.value


def test_play_sweeps_and_comes_back():
    shown = panel("estimate.roofline", intensity=8, bandwidth=50)
    end = shown.sentence.value
    shown.play.value = 1
    assert "2.5 GB/s" in shown.sentence.value
    assert shown.inputs["bandwidth"].value == 50
    shown.play.value = 20
    assert shown.sentence.value == end
    shown.play.value = 3
    shown.inputs["bandwidth"].value = 100.0
    assert "800 GFLOP/s" in shown.sentence.value
    assert shown.play.value == 20


def test_the_guess_comes_before_the_answer():
    shown = panel("estimate.roofline", intensity=8, bandwidth=200, ask="Which <rate>?")
    assert shown.answer.layout.display == "none"
    shown.show.click()
    assert "Write a guess first" in shown.note.value
    assert shown.answer.layout.display == "none"
    shown.guess.value = "<b>1600"
    shown.show.click()
    assert shown.answer.layout.display is None
    assert "You said <b>&lt;b&gt;1600</b>" in shown.note.value
    assert "1,000 GFLOP/s" in shown.sentence.value
    shown.inputs["bandwidth"].value = 100.0
    assert shown.note.value == ""
    shown.reset.click()
    assert shown.answer.layout.display == "none"
    assert shown.guess.value == ""


def test_words_are_escaped():
    def answer(**_: object) -> View:
        return View("<script>", ("<a>",), (("<b>",),), explorers.roofline().view().picture)

    shown = Panel(Explorer((), answer, Roofline))
    assert "<script>" not in shown.sentence.value
    assert "<b>" not in shown.table.value


# ---------------------------------------------------------------- fast pictures
def test_the_fast_png_holds_the_same_pixels():
    pixels = np.random.default_rng(1).integers(0, 256, (7, 5, 4), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(live._pack(pixels)))), pixels)


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_picture_looks_like_the_slow_one(name):
    explorer = made(name)
    picture = explorer.picture()
    picture.update(**explorer.view().picture)
    fast, slow = (
        np.asarray(Image.open(io.BytesIO(png)).convert("RGB").reduce(10)).astype(float)
        for png in (picture.png(), live.png(picture.figure))
    )
    # letters differ by a fraction of a pixel, which squares of ten by ten hardly see; a bar that is missing they do
    assert np.abs(fast - slow).max() < 70
    assert np.abs(255 - slow).max() > 140


# ---------------------------------------------------------------- built notebooks
def test_a_notebook_with_explorers_builds_the_same_twice_and_passes_nbval(tmp_path: Path):
    cells = ("from course import explorers", *(f"explorers.{name}()" for name in NAMES if name.startswith("estimate.")))
    source = tmp_path / "00_try.md"
    source.write_text("".join(f"```{{code-cell}} ipython3\n{cell}\n```\n\n" for cell in cells))
    authoring.build(source)
    book = source.with_suffix(".ipynb")
    assert authoring.render(source) == book.read_bytes()
    assert b"widget-view" not in book.read_bytes()
    config = tmp_path / "pytest.ini"
    config.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", config, "--rootdir", tmp_path, "-p", "no:cacheprovider", "-q",
               "--nbval", "--nbval-current-env", book]  # fmt: skip
    environment = kernel.environment(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(cells)} passed" in done.stdout
