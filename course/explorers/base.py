"""The frame of every explorer: declared controls, one plain function from values to a view, one picture redrawn.

The function (`answer`) is all that an explorer knows; the frame turns widgets into its arguments and its `View` into
a sentence, a table and a picture. Where no front end is, the same view becomes a static picture with the same numbers.
"""

from __future__ import annotations

import base64
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from course.errors import UserError
from course.fields import nearest
from course.pictures.live import Live

__all__ = ["GIB", "Choice", "Control", "Explorer", "Flag", "Number", "Static", "View", "front_end"]

GIB = 2.0**30
Values = Mapping[str, Any]
WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True)
class Number:
    """A number box with a slider beside it. The slider covers `low` to `high`; the box takes any number.

    A linear slider stops every `step`, a logarithmic one at powers of two where the number is `whole`, else at twenty
    places a decade.

    >>> Number("sequence_length", "sequence", 8192, 256, 2048, whole=True, logarithmic=True).stops()
    (256, 512, 1024, 2048)
    """

    name: str
    label: str
    default: float
    low: float
    high: float
    step: float = 1.0
    whole: bool = False
    logarithmic: bool = False

    def stops(self) -> tuple[float, ...]:
        """The values of the slider, rising."""
        if not self.logarithmic:
            values = [self.low + self.step * place for place in range(int((self.high - self.low) / self.step) + 1)]
        elif self.whole:
            values = [self.low * 2**place for place in range(int(math.log2(self.high / self.low)) + 1)]
        else:
            places = round(20 * math.log10(self.high / self.low))
            values = [float(f"{self.low * 10 ** (place / 20):.3g}") for place in range(places + 1)]
        return tuple(values)


@dataclass(frozen=True)
class Choice:
    """A dropdown: label to value, or a function of the other values where what is legal depends on them."""

    name: str
    label: str
    default: Any
    options: Mapping[str, Any] | Callable[[Values], Mapping[str, Any]]

    def legal(self, values: Values) -> Mapping[str, Any]:
        """The options for these values of the other controls."""
        return self.options(values) if callable(self.options) else self.options


@dataclass(frozen=True)
class Flag:
    """A checkbox."""

    name: str
    label: str
    default: bool


Control = Number | Choice | Flag


@dataclass(frozen=True)
class View:
    """What an explorer answers: a sentence, a table, and the keyword arguments of the picture's `update`."""

    sentence: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    picture: Mapping[str, Any]


class Static(NamedTuple):
    """An explorer without its controls."""

    figure: Figure
    sentence: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def __str__(self) -> str:
        lines = (self.headings, *self.rows)
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        table = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.sentence, *(line.rstrip() for line in table)])


@dataclass(frozen=True)
class Sweep:
    """What Play does: the control it moves, and the values it passes through from the values that are set."""

    name: str
    through: Callable[[Values], Sequence[float]]
    milliseconds: int = 150


class Explorer:
    """Controls, a picture, a sentence and a table around one function.

    Args:
        controls: in the order of display.
        answer: takes the values by name, returns a `View`; a mistake raises an error whose text says what to change.
        picture: makes the picture that shows `View.picture`.
        follow: values that change with another one: takes the name just changed and all values, returns the changes.
        sweep: what Play does, if there is a Play button.
        ask: a question whose guess is to be entered before anything is shown.
        values: values to start from, and to come back to by Reset.

    Raises:
        UserError: a name in `values` is no control.
    """

    def __init__(
        self, controls: Sequence[Control], answer: Callable[..., View], picture: Callable[[], Live], *,
        follow: Callable[[str, Values], Values] | None = None, sweep: Sweep | None = None, ask: str | None = None,
        values: Values | None = None,
    ) -> None:  # fmt: skip
        self.controls = tuple(controls)
        self.answer, self.picture = answer, picture
        self.follow, self.sweep, self.ask = follow, sweep, ask
        self.start = self.settled(values or {}, {control.name: control.default for control in self.controls})

    # ---------------------------------------------------------------- plain functions of values
    def settled(self, changes: Values, values: Values) -> dict[str, Any]:
        """All values after some of them were set: what follows from them has followed, every choice is a legal one.

        Raises:
            UserError: a name is no control, or a value is none of a control's choices.
        """
        names = [control.name for control in self.controls]
        for name in changes:
            if name not in names:
                raise UserError(
                    f"This explorer has no control {name!r}; the nearest is {nearest(name, names)!r}, and there are "
                    f"{', '.join(names)}."
                )
        now = dict(values)
        for name in (name for name in names if name in changes):
            now[name] = changes[name]
            if self.follow:
                now |= {key: value for key, value in self.follow(name, now).items() if key not in changes}
        for control in self.controls:
            if isinstance(control, Choice):
                now[control.name] = _legal(control, now, asked=control.name in changes)
        return now

    def view(self, **values: Any) -> View:
        """The answer for these values, the others at their start."""
        return self.answer(**self.settled(values, self.start))

    def static(self, **values: Any) -> Static:
        """The same picture without controls: its `figure`, `sentence` and table.

        Raises:
            ValueError: a value is wrong; the text says which and what to change.
        """
        view, picture = self.view(**values), self.picture()
        picture.update(**view.picture)
        return Static(picture.figure, view.sentence, view.headings, view.rows)

    def said(self, values: Values) -> tuple[View | None, str]:
        """The view, or None and the sentence that says what is wrong: nothing a reader enters ends in a traceback."""
        try:
            return self.answer(**values), ""
        except Exception as error:
            return None, str(error) or type(error).__name__

    # ---------------------------------------------------------------- in a notebook
    def widget(self) -> Any:
        """The explorer as a widget, made anew."""
        from course.explorers.widgets import Panel

        return Panel(self).box

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:  # noqa: ARG002
        bundle: dict[str, Any] = {}
        if self.ask:
            # Whoever reads without a kernel, or has not run the cell yet, must not meet the answer before guessing.
            bundle["text/plain"] = f"Predict: {self.ask}\nRun this cell, write your guess, then see."
        else:
            try:
                static = self.static()
            except ValueError as error:
                bundle["text/plain"] = str(error)
            else:
                bundle["text/plain"] = str(static)
                picture = static.figure._repr_png_()  # type: ignore[attr-defined]  # of Live's figures
                bundle["image/png"] = base64.b64encode(picture).decode() + "\n"
        if front_end():
            bundle[WIDGET] = self.widget()._repr_mimebundle_()[WIDGET]
        return bundle


def _legal(control: Choice, values: Values, *, asked: bool) -> Any:
    """The value of a choice, or the nearest legal one where another change made it illegal."""
    options = list(control.legal(values).values())
    value = values[control.name]
    if value in options or not options:
        return value
    if asked:
        raise UserError(f"{control.name} can be {', '.join(map(str, options))}, not {value!r}.")
    below = [option for option in options if isinstance(option, int | float) and option <= value]
    return max(below) if below else options[0]


def front_end() -> bool:
    """Whether somebody looks at this kernel who can move a control: JupyterLab, VS Code, Colab or a browser's Python.

    Where notebooks are only executed, the static picture stands alone, the same bytes each time. COURSE_STATIC=1 asks
    for that everywhere.
    """
    if os.environ.get("COURSE_STATIC"):
        return False
    signs = ("JPY_SESSION_NAME", "VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
    return sys.platform == "emscripten" or any(sign in os.environ for sign in signs)
