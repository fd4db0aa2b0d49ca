"""The seven common mistakes, each with the place where a reader makes it, its wrong number, repair and question.

`python -m course.questions.common docs/mistakes.md` writes the page again. Its numbers are those of graded questions,
or of the library: none is typed.

>>> [row.question for row in ROWS][:2]
['sweep.2', 'sweep.14']
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from course import examples
from course.explorers.sweep import counts
from course.files import write_atomically
from course.predict import predict
from course.problem import Layout, load
from course.questions.kinds import Number
from course.questions.registry import default

__all__ = ["ROWS", "Row", "page"]


@dataclass(frozen=True)
class Row:
    """One mistake.

    Args:
        mistake: as the first document words it.
        places: notebook and heading of the sections in which the reader makes it and repairs it.
        question: id of the graded question.
        known: the name under which the grader recognises it.
        numbers: gives the wrong number and the right one, in words.
        repair: what to do instead.
    """

    mistake: str
    places: tuple[tuple[str, str], ...]
    question: str
    known: str
    numbers: Callable[[], tuple[str, str]]
    repair: str


def _of_question(name: str, known: str, say: Callable[[float], str]) -> Callable[[], tuple[str, str]]:
    """The wrong answer that a question knows by this name, and its right one."""

    def numbers() -> tuple[str, str]:
        question = default().get(name)
        assert isinstance(question, Number)
        given = question.numbers()
        wrong = next(one.value(given) for one in question.mistakes if one.name == known)
        return say(wrong), say(question.answer(given))

    return numbers


def _three_axes() -> tuple[str, str]:
    run = load(examples.path("llama-2-70b-64-a100"))
    three = Layout(data=2, tensor=8, pipeline=4, sharding="zero1", micro_batch=1, schedule="1f1b")
    one = Layout(data=32, tensor=2, sharding="zero3", micro_batch=1)
    wrong, right = (predict(replace(run, layout=layout))["step"]["time_s"] for layout in (three, one))
    return f"2 x 8 x 4: {wrong:.1f} s a step", f"32 x 2: {right:.1f} s"


def _collapsed() -> tuple[str, str]:
    at = {point.devices: point for point in counts("8.86B")}
    many, few = at[1024], at[512]
    return (
        f"{many.devices:,} devices: {many.days:.1f} days, {many.accelerator_hours:,.0f} hours",
        f"{few.devices:,}: {few.days:.1f} days, {few.accelerator_hours:,.0f} hours",
    )


def _hours() -> tuple[str, str]:
    wrong, right = _of_question("sweep.8", "wall time alone", lambda share: f"{share:.0%}")()
    return f"{wrong} less wall time", f"{right} more accelerator-hours"


ROWS = (
    Row(
        "Starting with three-dimensional parallelism before checking what fits",
        (("08a_sweep", "Three dimensions first"), ("08c_sweep", "The panel as the judge")),
        "sweep.2",
        "three axes first",
        _three_axes,
        "Ask of each axis which problem of fit or speed it solves; start with none.",
    ),
    Row(
        "Comparing layouts with different global batches",
        (("05a_batch", "Three tables"), ("08c_sweep", "The same batch")),
        "sweep.14",
        "another global batch",
        _of_question("sweep.14", "another global batch", lambda rate: f"{rate:,.0f} tokens/s"),
        "Write the tokens of a step into every row, and refuse rows in which they differ.",
    ),
    Row(
        "Reporting peak FLOPs instead of MFU",
        (("06a_mfu", "A rate against a peak"),),
        "sweep.22",
        "peak for rate",
        _of_question("sweep.22", "peak for rate", lambda times: f"{times:.2f} times"),
        "Multiply the peak by the utilisation measured, and name its convention.",
    ),
    Row(
        "Calling recomputation useful model work",
        (("06a_mfu", "More FLOPs, not more tokens"), ("08b_sweep", "The rule")),
        "mfu.2",
        "recomputation as useful work",
        _of_question("mfu.2", "recomputation as useful work", lambda share: f"{share:.0%} of peak"),
        "Count what the model asks for; what is computed again is HFU.",
    ),
    Row(
        "Assuming all communication overlaps",
        (("07a_overlap", "Hidden and exposed"), ("07a_overlap", "Small batches lose their cover")),
        "overlap.1",
        "all hidden",
        _of_question("overlap.1", "all hidden", lambda time: f"{time:g} ms"),
        "Draw both streams: the step ends when both are done, and the last bucket has nothing to hide behind.",
    ),
    Row(
        "Using more devices after strong-scaling efficiency has collapsed",
        (("06c_mfu", "When to stop"), ("08b_sweep", "The second stop: the break-even")),
        "sweep.12",
        "past the break-even",
        _collapsed,
        "Compare what a doubling saves of compute with what it adds in all the rest.",
    ),
    Row(
        "Optimizing wall time while ignoring total accelerator-hours",
        (("06c_mfu", "When to stop"), ("08b_sweep", "Wall time alone")),
        "sweep.8",
        "wall time alone",
        _hours,
        "Price the hours that a doubling saves; take the cheapest count that meets the deadline.",
    ),
)


def page() -> str:
    """The whole page as Markdown."""
    lines = [
        "| mistake | where you make it | the wrong number | the right one | the repair | graded in |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        wrong, right = row.numbers()
        places = "; ".join(f"`{notebook}`, *{heading}*" for notebook, heading in row.places)
        lines.append(f"| {row.mistake} | {places} | {wrong} | {right} | {row.repair} | `{row.question}` |")
    intro = (
        "The seven common mistakes of the first document, each with the section in which you make it, see the wrong\n"
        "number and repair it, and a graded question that recognises it. Written by\n"
        "`python -m course.questions.common docs/mistakes.md`: the numbers are computed, from the question's own "
        "figures\n"
        "or by the library."
    )
    return "# Seven mistakes, and where you make them\n\n" + intro + "\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_atomically(Path(sys.argv[1]), page().encode())
