"""The lab, the reader's own results: what the report at hand says, measured here or shipped with the course.

The right answers follow from that report when they are asked for, so they change with it.
"""

from __future__ import annotations

from course.lab.at_hand import at_hand
from course.lab.figures import exposed_share, median_s
from course.lab.fitting import Prediction, fit, predict
from course.lab.points import held_out, scaled, twins
from course.lab.report import Cell, Report
from course.questions.kinds import Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS", "prediction", "says", "term"]

HAND = "In the report at hand (`open_report()`; engine torch, family strong, the most devices with a core each), "
CLOSE = 0.05
"""Efficiencies closer than this are called equal."""


def says(report: Report) -> str:
    """What the efficiency does with the batch: "a" rises, "b" falls, "c" stays."""
    found = scaled(report)
    change = found[-1]["efficiency"] - found[0]["efficiency"]
    return "a" if change > CLOSE else "b" if change < -CLOSE else "c"


def prediction(report: Report, cell: Cell) -> Prediction:
    """The step of a cell by a fit that has not seen it."""
    return predict(fit(report, leave_out=twins(report, cell["id"])), cell)


def term(report: Report) -> str:
    """The part that takes most of the fitted step at the smallest batch: overhead, compute or communication."""
    return predict(fit(report), report[scaled(report)[0]["id"]]).largest()


_efficiency = Number(
    id="lab.12",
    title="Your efficiency",
    prompt=HAND + "what is the strong-scaling efficiency at the smallest batch, against one device?",
    answer=lambda _: scaled(at_hand())[0]["efficiency"],
    unit="1",
    mistakes=(Mistake("speedup for efficiency", lambda _: scaled(at_hand())[0]["speedup"]),),
    hints=(
        "Two cells of one work unit: their ids end in the same batch.",
        'Medians, `cell["step_time_s"]["p50"]`.',
        "The baseline's time over the devices times their time.",
    ),
    difficulty=1,
    minutes=3,
    source="the report at hand",
)


def _most_exposed(report: Report) -> Cell:
    return max((report[row["id"]] for row in scaled(report)), key=lambda cell: exposed_share(cell) or 0.0)


_exposed = Number(
    id="lab.13",
    title="Your exposed share",
    prompt=HAND + (
        "take the batch whose exposed share is largest, by the difference to steps that do not exchange gradients. "
        "Which share of its step is exposed?"
    ),
    answer=lambda _: exposed_share(_most_exposed(at_hand())) or 0.0,
    unit="1",
    absolute=1e-3,
    hints=(
        "`cell[\"exposed_communication_s\"]` is the difference of two medians.",
        "The base is the step with the exchange.",
        "Divide it by `cell[\"step_time_s\"][\"p50\"]` for each batch, and take the largest.",
    ),
    difficulty=1,
    minutes=3,
    source="the report at hand; COM-21, facebookresearch/HolisticTraceAnalysis#162",
)  # fmt: skip

_curve = Judgement(
    id="lab.14",
    title="What your curve says",
    prompt=HAND + "what does the efficiency do from the smallest to the largest batch, and what does that tell?",
    choices={"a": "it rises by more than 0.05", "b": "it falls by more than 0.05", "c": "neither"},
    reasons={
        "1": "how this model's step scales on these devices at these batches, and nothing about other devices",
        "2": "that more devices would raise it further",
        "3": "how the program will scale on a cluster of such hosts",
        "4": "that large batches train better",
    },
    answer=lambda _: (says(at_hand()), "1"),
    mistakes=(
        Mistake("one host for a cluster", lambda _: (None, "3")),
        Mistake("drawn beyond the data", lambda _: (None, "2")),
        Mistake("throughput for quality", lambda _: (None, "4")),
    ),
    hints=(
        "Compare the two ends of the curve.",
        "Which claim needs only what was measured?",
        "No network between hosts was measured, and no other number of devices.",
    ),
    difficulty=1,
    minutes=3,
    source="the report at hand; SCA-05 and SCA-17: one line drawn through different regimes",
)

_PARTS = {"overhead": "a", "compute": "b", "communication": "c"}

_term = Judgement(
    id="lab.15",
    title="What limits you next",
    prompt=HAND + (
        "fit the step with `lab.fit` and take its parts at the smallest batch. Which one is the next limit, and how do "
        "you test that?"
    ),
    choices={"a": "overhead", "b": "compute", "c": "what only several devices pay (the part `communication`)"},
    reasons={
        "1": "it takes most of the fitted step: change it alone, say before what the step becomes, and measure",
        "2": "it takes most of the step at the largest batch",
        "3": "more devices are the only test of a limit",
        "4": "the fit says so, so nothing is left to test",
    },
    answer=lambda _: (_PARTS[term(at_hand())], "1"),
    mistakes=(
        Mistake("share of another size", lambda _: (None, "2")),
        Mistake("fit for test", lambda _: (None, "4")),
    ),
    hints=(
        "`lab.predict(lab.fit(report), cell).parts` has three.",
        "The largest at that batch, not at another.",
        "A limit is tested by changing it and nothing else.",
    ),
    difficulty=2,
    minutes=5,
    source="the report at hand; the second source document: predict the next limit, then test it",
)  # fmt: skip

_held = Number(
    id="lab.16",
    title="A batch left out",
    prompt=HAND + (
        "leave out the largest batch but the last (`course.lab.points.held_out`) with the cells that repeat its step "
        "(`points.twins(report, its id)`): fit all others with `lab.fit(report, leave_out=...)` and predict its step, "
        "in ms."
    ),
    answer=lambda _: 1e3 * prediction(at_hand(), held_out(at_hand())).time_s,
    unit="ms",
    hints=(
        "`held_out(report)` is the cell; its id ends in the batch.",
        "What is left out may not be in the fit, or nothing was predicted.",
        "`lab.predict(fitted, report[id]).time_s`, in ms.",
    ),
    difficulty=2,
    minutes=5,
    source="the report at hand",
)  # fmt: skip


def _missed(report: Report) -> tuple[str, str]:
    cell = held_out(report)
    inside = prediction(report, cell).holds(median_s(cell))
    return ("a", "1") if inside else ("b", "2")


_gap = Judgement(
    id="lab.17",
    title="In the band?",
    prompt=HAND + "did the measured step of that batch fall into the band of `lab.predict`, and what follows?",
    choices={"a": "inside", "b": "outside"},
    reasons={
        "1": "the fit has passed one test; it may be used between the batches that were measured",
        "2": "a part of the step is missing, or the cell was disturbed: look at its noise, then at the parts",
        "3": "the fit holds for any number of devices",
        "4": "put the cell into the fit, and it will be inside",
    },
    answer=lambda _: _missed(at_hand()),
    mistakes=(
        Mistake("drawn beyond the data", lambda _: (None, "3")),
        Mistake("fit for test", lambda _: (None, "4")),
    ),
    hints=(
        "`prediction.holds(seconds)` answers the first part.",
        "One hit is one test, of one batch.",
        "A miss is accounted for, not fitted away.",
    ),
    difficulty=2,
    minutes=4,
    source="the report at hand; SCA-09: what is surprising is explained, not celebrated",
)

QUESTIONS: tuple[Question, ...] = (_efficiency, _exposed, _curve, _term, _held, _gap)
