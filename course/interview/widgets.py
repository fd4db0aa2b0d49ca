"""The interview in a notebook: a form over the same session, with buttons to ask, a clock, and the verdict as text.

Where no front end is, the question stands as text; `course.interview.grade` takes a sheet as a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from course.errors import UserError
from course.explorers.base import WIDGET, front_end
from course.interview.session import MINUTES, Session, start
from course.interview.sheet import SHEET, Field, Step, asked_fields
from course.interview.study import study
from course.interview.text import verdict
from course.interview.twists import ASKABLE
from course.interview.values import letters, read, shown

__all__ = ["Form", "Interview", "widget"]

WIDE = {"description_width": "initial"}


class Interview:
    """What a cell shows: the form where somebody can fill it in, else the question."""

    def __init__(self, session: Session, path: Path | None = None) -> None:
        self.session, self.path = session, path

    def __str__(self) -> str:
        prompt = self.session.prompt
        return "\n".join([prompt.opening, *(f"- {line}" for line in prompt.said(self.session.asked))])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:  # noqa: ARG002
        bundle: dict[str, Any] = {"text/plain": str(self)}
        if front_end():
            bundle[WIDGET] = Form(self.session, self.path).box._repr_mimebundle_()[WIDGET]
        return bundle


def widget(seed: int, level: int | None = None, path: str | Path | None = None) -> Interview:
    """The interview of a seed, to be shown in a notebook.

    Args:
        seed: the same number asks the same question.
        level: 1 to 3; by default the seed decides.
        path: a file that keeps the sheet; None keeps it in memory alone.

    >>> "train" in str(widget(7)).lower()
    True
    """
    return Interview(start(seed, level), None if path is None else Path(path))


class Form:
    """The form of one session. `box` is the widget; `rows` are its text boxes by step and field."""

    def __init__(self, session: Session, path: Path | None = None) -> None:
        import ipywidgets as w

        self.session, self.path = session, path
        session.tick()
        self.said = w.HTML()
        self.note = w.HTML()
        self.rows: dict[tuple[str, str], Any] = {}
        self.notes: dict[tuple[str, str], Any] = {}
        self.labels: dict[tuple[str, str], Any] = {}
        asks = []
        for topic, words in ASKABLE.items():
            button = w.Button(description=f"Ask: {topic}", tooltip=words, layout={"width": "130px"})
            button.on_click(lambda _, topic=topic: self.ask(topic))
            asks.append(button)
        self.pages = [self._page(w, step) for step in SHEET]
        self.body = w.Accordion(children=self.pages, selected_index=0)
        for place, step in enumerate(SHEET):
            self.body.set_title(place, f"{place + 1}. {step.name} ({step.minutes} min)")
        self.done = w.Button(description="Grade the sheet", layout={"width": "130px"})
        self.done.on_click(lambda _: self.grade())
        self.result = w.HTML()
        self.box = w.VBox([self.said, w.HBox(asks, layout={"flex_flow": "row wrap"}), self.body, self.done, self.note,
                           self.result])  # fmt: skip
        self._say()

    def _page(self, w: Any, step: Step) -> Any:
        rows: list[Any] = [w.HTML(f"<p>{escape(step.asks)}</p>")]
        for field in asked_fields(study(self.session.prompt), step):
            held = self.session.answers[step.name].get(field.name)
            box = w.Text(value="" if held is None else shown(field, held), style=WIDE, continuous_update=False,
                         description=field.name.replace("_", " "), layout={"width": "420px"})  # fmt: skip
            note = w.HTML()
            self.rows[step.name, field.name], self.notes[step.name, field.name] = box, note
            box.observe(self._writer(step, field), "value")
            self.labels[step.name, field.name] = w.HTML(self._label(step, field))
            rows += [self.labels[step.name, field.name], w.HBox([box, note])]
        return w.VBox(rows)

    def _label(self, step: Step, field: Field) -> str:
        unit = f" [{field.unit}]" if field.unit else ""
        options = letters(self.session.choices(step, field))
        listed = "".join(f"<br>&emsp;{letter}) {escape(words)}" for letter, _, words in options)
        return f"<b>{escape(field.asks)}</b>{escape(unit)}{listed}"

    def _writer(self, step: Step, field: Field) -> Callable[[Any], None]:
        def write(change: Any) -> None:
            note = self.notes[step.name, field.name]
            try:
                value = read(field, change["new"], self.session.choices(step, field))
            except UserError as error:
                note.value = escape(str(error))
                return
            note.value = escape(shown(field, value)) if value is not None else ""
            self.session.write(step.name, field.name, value)
            if step.name in ("shard", "batch") and field.kind != "reasons":
                self._relabel()
            self._keep()

        return write

    def _relabel(self) -> None:
        """Reasons depend on the layout: show those of the layout as it stands."""
        for step in SHEET:
            for field in step.fields:
                if field.kind == "reasons" and (step.name, field.name) in self.labels:
                    self.labels[step.name, field.name].value = self._label(step, field)

    def ask(self, topic: str) -> None:
        """Ask the interviewer; the reply stands among what was said."""
        self.note.value = f"<p>{escape(self.session.ask(topic))}</p>"
        self._say()
        self._keep()

    def grade(self) -> None:
        """Show the verdict under the form."""
        self._keep()
        self.result.value = f"<pre>{escape(verdict(self.session, self.session.grade()))}</pre>"

    def _say(self) -> None:
        prompt = self.session.prompt
        lines = "".join(f"<li>{escape(line)}</li>" for line in prompt.said(self.session.asked))
        self.said.value = f"<p><b>{escape(prompt.opening)}</b></p><ul>{lines}</ul><p>{MINUTES} minutes.</p>"

    def _keep(self) -> None:
        self.session.tick()
        if self.path is not None:
            self.session.save(self.path)
