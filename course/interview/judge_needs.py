"""Grading steps 1 and 2: what it needs, and what does not fit."""

from __future__ import annotations

import math
from typing import Any

from course.interview.marks import Mark, Own, copied, measured, near, noted, reasons, ruled
from course.interview.reference import verdict
from course.interview.rough import rough_parameters
from course.interview.study import GIB, Study

__all__ = ["constrain", "estimate"]

RECIPES = (16, 20)
"""Bytes a parameter of the mixed-precision recipes in use, from least to most."""
LONG = 1.5
"""FLOPs with attention over 6PS from which leaving attention out is a mistake and not an approximation."""


def estimate(known: Study, own: Own, asked: tuple[str, ...]) -> list[Mark]:
    """Marks of step 1."""
    run, total = known.run, known.parameters["total"]
    marks = [_asked(topic, topic in asked) for topic in known.prompt.withheld]
    marks.append(_doubt(known, own.get("estimate", "doubt")))
    other = {"active for total": [known.parameters["active"]]} if run.model.experts else {}
    marks.append(measured(own, "estimate", "parameters", [total], 1.2, other, 1.35))
    marks.append(_route(own, "estimate", ("shapes",)))
    mine, second = own.number("estimate", "parameters"), own.number("estimate", "check_parameters")
    rough = rough_parameters(run.model)
    if copied(mine, second) and second != rough:
        marks.append(ruled("estimate", "check_parameters", 0.0, "same route twice"))
    else:
        marks.append(measured(own, "estimate", "check_parameters", [rough, total], 1.35))
    marks.append(_flops(known, own))
    peak = run.cluster.accelerator.peak_flops_per_s / 1e12
    marks.append(_named(measured(own, "estimate", "peak", [peak], 1.06, {"sparse peak": [2 * peak]}), "another peak"))
    marks += _state(known, own)
    saved = known.limits["activations"] / GIB
    known_wrong = {"one layer for all": [saved / run.model.layers],
                   "one token for all": [saved / run.training.sequence_length]}  # fmt: skip
    marks.append(measured(own, "estimate", "activations", [saved], 1.5, known_wrong, 2.0))
    value = own.number("estimate", "activations")
    if marks[-1].credit == 1 and value and not near(value, saved, 1.2):
        left = " A token that passes several experts is held once for each." if run.model.experts else ""
        said = f"Close enough; with all that backward needs it is {saved:,.3g} GiB.{left}"
        marks.append(noted("estimate", "activations", said))
    return [*marks, reasons(known, own, "estimate", None)]


def _named(mark: Mark, name: str) -> Mark:
    """A number that is off by no known mistake, under a better name."""
    if mark.mistake != "number off":
        return mark
    return ruled(mark.step, mark.name, 0.0, name, mark.message.partition("may miss by. ")[2])


def _asked(topic: str, done: bool) -> Mark:
    if done:
        return Mark("estimate", f"asked {topic}", 1.0, 2.0, "reason")
    said = f"You did not ask for the {topic}: nothing of it was said. Everything after depends on it."
    return Mark("estimate", f"asked {topic}", 0.0, 2.0, "reason", "not asked", said)


def _doubt(known: Study, said: Any) -> Mark:
    claim, impossible = known.prompt.claim, verdict(known) == "impossible"
    right = {claim} if claim else set()
    right |= {"deadline"} if impossible else set()
    told = dict(known.prompt.lines).get("claim", "")
    if said is None:
        return ruled("estimate", "doubt", 0.0, "unanswered")
    if said in right or (not right and said == "nothing"):
        return ruled("estimate", "doubt", 1.0)
    if not right and said == "deadline":
        return ruled("estimate", "doubt", 0.5, "", "The deadline is not beyond the peak of these devices; whether a "
                     "plan meets it is for step 6.")  # fmt: skip
    if said == "nothing":
        about = f'You were told: "{told}"' if claim else (
            f"At full peak it takes {known.least_days:.3g} days of {known.run.goal.days or 0:g}.")  # fmt: skip
        return ruled("estimate", "doubt", 0.0, "premise accepted", about)
    return ruled("estimate", "doubt", 0.0, "premise doubted", f'What is wrong: "{told}"' if claim else "")


def _route(own: Own, step: str, good: tuple[str, ...]) -> Mark:
    said = own.get(step, "check_route")
    if said in good:
        return ruled(step, "check_route", 1.0)
    wrong = {None: "unanswered", "none": "not cross-checked"}
    return ruled(step, "check_route", 0.0, wrong.get(said, "same route twice"))


def _flops(known: Study, own: Own) -> Mark:
    tokens, total, active = known.run.training.tokens, known.parameters["total"], known.parameters["active"]
    flops, six = known.flops, 6 * active * tokens
    mine = own.number("estimate", "parameters")
    right = [flops["full_attention"], flops["palm"], flops["causal_attention"]]
    long = flops["full_attention"] / six > LONG
    if mine and not known.run.model.experts:
        right.append(6 * mine * tokens * max(1.0, flops["full_attention"] / six))
        right += [] if long else [6 * mine * tokens]
    right += [] if long else [six]
    wrong = {
        "backward forgotten": [2 * active * tokens], "recomputation as useful work": [8 * active * tokens],
        "multiply-add counted once": [3 * active * tokens],
        "attention left out": [six] if long else [],
        "all experts counted": [6 * total * tokens] if known.run.model.experts else [],
    }  # fmt: skip
    return measured(own, "estimate", "flops", right, 1.25, wrong, 1.5)


def _state(known: Study, own: Own) -> list[Mark]:
    each, least, most = own.number("estimate", "state_bytes"), *RECIPES
    if each is None:
        bytes_mark = ruled("estimate", "state_bytes", 0.0, "unanswered")
    elif least <= each <= most:
        bytes_mark = ruled("estimate", "state_bytes", 1.0)
    elif 12 <= each <= 24:
        said = f"Mixed precision with Adam is {least} to {most} bytes; list the parts."
        bytes_mark = ruled("estimate", "state_bytes", 0.0, "another state recipe", said)
    elif each < least:
        bytes_mark = ruled("estimate", "state_bytes", 0.0, "optimizer forgotten", f"You said {each:g} bytes.")
    else:
        bytes_mark = ruled("estimate", "state_bytes", 0.0, "number off", f"You said {each:g} bytes.")
    total, recipe = known.parameters["total"], float(known.run.training.state.total)
    sizes = [count * one / 1e9 for count in own.either("estimate", "parameters", total)
             for one in own.either("estimate", "state_bytes", recipe)]  # fmt: skip
    if each is None:
        sizes += [total * one / 1e9 for one in RECIPES]
    wrong = {
        "GiB for GB": [size * 1e9 / GIB for size in sizes],
        "optimizer forgotten": [total * one / 1e9 for one in (2, 4, 6)],
        "wrong prefix": [size * scale for size in sizes for scale in (1e3, 1e-3)],
    }
    return [bytes_mark, measured(own, "estimate", "state", sizes, 1.2, wrong, 1.4)]


def constrain(known: Study, own: Own) -> list[Mark]:
    """Marks of step 2."""
    have, total = known.capacity / GIB, known.parameters["total"]
    marks = [_named(measured(own, "constrain", "capacity", [have], 1.09, {"memory taken": [2 * have]}), "memory taken")]
    truth, held = known.first_limit(), own.number("constrain", "capacity") or have
    mine = [known.first_limit(each, room) for each in (None, _bytes(known, own)) for room in (None, held * GIB)]
    for name, right in (("first_limit", {one[0] for one in mine}), ("how_far", {one[1] for one in mine})):
        said = own.get("constrain", name)
        if said is None:
            marks.append(ruled("constrain", name, 0.0, "unanswered"))
        elif said in right or (_own_fits(own) and said in ("activations", "time", "one layer")):
            marks.append(ruled("constrain", name, 1.0))
        else:
            marks.append(ruled("constrain", name, 0.0, "first limit missed", _limit_said(known, truth)))
    marks.append(_least(known, own, total))
    fits = "yes" if known.limits["one layer"] <= known.capacity else "no"
    said = own.get("constrain", "one_layer")
    need = (
        f"One layer with its gradients and activations takes {known.limits['one layer'] / GIB:.3g} of {have:.3g} GiB."
    )
    marks.append(
        ruled("constrain", "one_layer", 1.0) if said == fits
        else ruled("constrain", "one_layer", 0.0, "unanswered" if said is None else "first limit missed", need)
    )  # fmt: skip
    return [*marks, reasons(known, own, "constrain", None)]


def _bytes(known: Study, own: Own) -> float:
    """The candidate's bytes a parameter, as their own parameters would make it for the true model."""
    each = own.number("estimate", "state_bytes") or float(known.run.training.state.total)
    return each * (own.number("estimate", "parameters") or known.parameters["total"]) / known.parameters["total"]


def _own_fits(own: Own) -> bool:
    """Whether the candidate's own state fits their own memory while the true one does not."""
    state, have = own.number("estimate", "state"), own.number("constrain", "capacity")
    return bool(state and have and state * 1e9 <= have * GIB)


def _limit_said(known: Study, truth: tuple[str, str]) -> str:
    needs = ", ".join(f"{name} {need / GIB:,.3g}" for name, need in known.limits.items()
                      if name in ("optimizer state", "gradients", "weights", "activations"))  # fmt: skip
    return f"In GiB, asked one after the other: {needs}; a device has {known.capacity / GIB:.3g} (here: {truth[1]})."


def _least(known: Study, own: Own, total: float) -> Mark:
    value = own.number("constrain", "least_devices")
    if value is None:
        return ruled("constrain", "least_devices", 0.0, "unanswered")
    states = [total * known.run.training.state.total, *(total * one for one in RECIPES)]
    states += [1e9 * one for one in own.either("estimate", "state", 0.0)[1:]]
    states.append(total * _bytes(known, own))
    right = [math.ceil(state / have / GIB) for state in states
             for have in own.either("constrain", "capacity", known.capacity / GIB)]  # fmt: skip
    if any(abs(value - one) <= (0.2 * one if one > 3 else 0) for one in right):
        return ruled("constrain", "least_devices", 1.0)
    about = f"About {right[0]:,}: the state over the memory of one, rounded up. You said {value:,.0f}."
    if any(near(value, one, 1.35) for one in right):
        return ruled("constrain", "least_devices", 0.5, "", about)
    alone = math.ceil(total * 2 / known.capacity)
    return ruled(
        "constrain", "least_devices", 0.0, "optimizer forgotten" if value <= 1.2 * alone else "number off", about
    )
