"""An explorer's widgets: they carry values to its function and show the view that comes back; they compute nothing.

Every slider has a number box beside it: the box has a label that a screen reader speaks, the slider has none.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets as w

from course.explorers.base import Choice, Control, Explorer, Flag, Number, View

__all__ = ["Panel"]

LABEL = {"description_width": "142px"}


class Panel:
    """One explorer on the screen. `box` is the widget; `values` are those that the picture shows."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.values = dict(explorer.start)
        self.picture = explorer.picture()
        self.quiet = False
        self.inputs: dict[str, Any] = {}
        self.sliders: dict[str, Any] = {}
        rows = [self._row(control) for control in explorer.controls]
        self.reset = w.Button(description="Reset", tooltip="Back to the values at the start", layout={"width": "90px"})
        self.reset.on_click(lambda _: self._reset())
        self.play = self._play()
        left = w.VBox([*rows, w.HBox([self.reset, *([self.start, self.play] if self.play else [])])])
        left.layout.width = "382px"
        self.sentence = w.HTML()
        self.image = w.Image(format="png", layout={"max_width": "calc(100% - 4px)", "object_fit": "contain"})
        self.image.layout.align_self = "flex-start"
        self.table = w.HTML()
        self.answer = w.VBox([self.sentence, self.image, self.table], layout={"overflow": "hidden"})
        grow = {"flex": "1 1 420px", "min_width": "0", "overflow": "hidden"}
        right = w.VBox([*self._gate(), self.answer], layout=grow)
        self.box = w.HBox([left, right], layout={"flex_flow": "row wrap", "align_items": "flex-start"})
        self._lock()
        self.draw()

    # ---------------------------------------------------------------- controls
    def _row(self, control: Control) -> Any:
        if isinstance(control, Choice):
            options = list(control.legal(self.values).items())
            widget = w.Dropdown(options=options, value=self.values[control.name], description=control.label)
        elif isinstance(control, Number):
            kind = w.IntText if control.whole else w.FloatText
            widget = kind(value=self.values[control.name], description=control.label)
        else:
            widget = w.Checkbox(value=self.values[control.name], description=control.label, indent=False)
            widget.layout.margin = "2px 2px 2px 150px"
        if not isinstance(control, Flag):
            widget.style = LABEL
        widget.layout.width = {Choice: "370px", Number: "252px", Flag: "auto"}[type(control)]
        self.inputs[control.name] = widget
        widget.observe(lambda change, name=control.name: self._changed(name, change["new"]), "value")
        if not isinstance(control, Number):
            return widget
        # The slider counts its stops, so that a box may hold what lies between two of them.
        stops = control.stops()
        slider = w.IntSlider(
            value=_place(control, self.values[control.name]), min=0, max=len(stops) - 1, readout=False,
            tooltip=control.label, layout={"width": "118px"},
        )  # fmt: skip
        self.sliders[control.name] = slider
        slider.observe(lambda change: self._slid(widget, stops[change["new"]]), "value")
        return w.HBox([widget, slider])

    def _slid(self, box: Any, value: float) -> None:
        if not self.quiet:
            box.value = value

    def _changed(self, name: str, value: Any) -> None:
        if self.quiet:
            return
        try:
            self.values = self.explorer.settled({name: value}, self.values)
        except Exception as error:
            self._wrong(str(error))
            return
        self._rest()
        if self.explorer.ask and self.locked.layout.display == "none":
            self.note.value = ""  # the guess was about other values
        self.draw()
        self._show_values()

    def _show_values(self) -> None:
        """Put the values into the widgets, without taking that for the reader's own changes."""
        self.quiet = True
        try:
            for control in self.explorer.controls:
                value, widget = self.values[control.name], self.inputs[control.name]
                if isinstance(control, Choice):
                    options = tuple(control.legal(self.values).items())
                    if tuple(widget.options) != options:
                        widget.options = options
                if widget.value != value:
                    widget.value = value
                if isinstance(control, Number):
                    self.sliders[control.name].value = _place(control, value)
        finally:
            self.quiet = False

    def _reset(self) -> None:
        self.values = dict(self.explorer.start)
        self._rest()
        self._lock()
        self.draw()
        self._show_values()

    # ---------------------------------------------------------------- play
    def _play(self) -> Any:
        """The widget that counts frames, hidden, and a button that starts it: its own buttons have no names."""
        if self.explorer.sweep is None:
            return None
        steps = len(self.explorer.sweep.through(self.values))
        play = w.Play(value=steps, min=1, max=steps, interval=self.explorer.sweep.milliseconds)
        play.layout.display = "none"
        play.observe(self._frame, "value")
        self.start = w.Button(description="Play", tooltip=f"Sweep {self.explorer.sweep.name} up to what is set")
        self.start.layout.width = "90px"
        self.start.on_click(lambda _: setattr(play, "playing", not play.playing))
        play.observe(lambda change: setattr(self.start, "description", "Pause" if change["new"] else "Play"), "playing")
        return play

    def _frame(self, change: Any) -> None:
        """Show one value of the sweep; the control keeps what the reader set, and the last value is that one."""
        sweep = self.explorer.sweep
        if self.quiet or sweep is None:
            return
        try:
            value = sweep.through(self.values)[change["new"] - 1]
        except Exception as error:
            self._wrong(str(error))
            return
        self.draw(**{sweep.name: value})

    def _rest(self) -> None:
        """Stop a sweep and put it at its end, where the picture shows the values that are set."""
        if self.play is not None:
            self.quiet = True
            self.play.playing = False
            self.play.value = self.play.max
            self.quiet = False

    # ---------------------------------------------------------------- the reader's guess
    def _gate(self) -> Sequence[Any]:
        if not self.explorer.ask:
            return ()
        self.guess = w.Text(description="Your guess", style={"description_width": "initial"})
        self.show = w.Button(description="Show", tooltip="Lock the guess and show the answer")
        self.show.on_click(lambda _: self._guessed())
        self.note = w.HTML()
        self.locked = w.VBox([w.HTML(f"<p><b>Predict:</b> {escape(self.explorer.ask)}</p>"),
                              w.HBox([self.guess, self.show])])  # fmt: skip
        return (self.locked, self.note)

    def _lock(self) -> None:
        if self.explorer.ask:
            self.guess.value, self.note.value = "", ""
            self.locked.layout.display, self.answer.layout.display = None, "none"

    def _guessed(self) -> None:
        if not self.guess.value.strip():
            self.note.value = "<p>Write a guess first, however rough: a guess is what makes the answer stick.</p>"
            return
        self.note.value = f"<p>You said <b>{escape(self.guess.value.strip())}</b>.</p>"
        self.locked.layout.display, self.answer.layout.display = "none", None

    # ---------------------------------------------------------------- the answer
    def draw(self, **instead: Any) -> None:
        """Ask the explorer and show what it says, the picture first."""
        view, wrong = self.explorer.said({**self.values, **instead})
        if view is None:
            self._wrong(wrong)
            return
        self.picture.update(**view.picture)
        self.image.value = self.picture.png()
        self.image.layout.visibility = None
        self.sentence.value = _paragraph(view.sentence)
        self.table.value = _table(view)

    def _wrong(self, sentence: str) -> None:
        """Say what is wrong; the last picture is hidden, so that nobody takes it for the answer."""
        self.image.layout.visibility = "hidden"
        self.sentence.value = _paragraph(sentence)
        self.table.value = ""


def _place(control: Number, value: float) -> int:
    """Which stop of the slider is nearest."""
    stops = control.stops()
    after = bisect.bisect_left(stops, value)
    near = [place for place in (after - 1, after) if 0 <= place < len(stops)]
    return min(near, key=lambda place: abs(stops[place] - value))


def _paragraph(text: str) -> str:
    return f'<p role="status" style="line-height:1.45;font-size:15px;margin:4px 0">{escape(text)}</p>'


def _table(view: View) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        style = "padding:1px 14px 1px 4px;border-bottom:1px solid #8885;text-align:"
        sides = ("left", *["right"] * len(cells))
        parts = zip(cells, sides, strict=False)
        inner = (f'<{tag} style="{style}{side}">{escape(cell)}</{tag}>' for cell, side in parts)
        return f"<tr>{''.join(inner)}</tr>"

    body = "".join(line(row, "td") for row in view.rows)
    return f'<table style="border-collapse:collapse;line-height:1.4">{line(view.headings, "th")}{body}</table>'
