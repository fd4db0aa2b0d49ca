"""Grading steps 3 to 5: the split, its place, and the batch, each given what was chosen before.

A layout is judged by the model: is it legal, does it fit, how far is it from the best in time and in accelerator-hours.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from course.batch import bubble_share
from course.interview.marks import Mark, Own, measured, near, reasons, ruled
from course.interview.study import AXES, DEGREES, ROOM, Study, layout_of
from course.problem import Layout

__all__ = ["batch", "place", "replaced", "shard", "variants", "why_not"]

NEAR, FAR = 1.10, 1.30
"""Step time over the best: full marks up to the first, half up to the second."""
PIECES = 1.20
"""The same for the micro-batch and the chunks alone, over the best with the degrees chosen."""


def degrees(own: Own) -> dict[str, Any] | None:
    """The fields of step 3, or None where none of the degrees was given."""
    given = {name: own.get("shard", name) for name in DEGREES}
    if given["expert_tensor"] is None:  # not said: the best of them
        del given["expert_tensor"]
    if all(given[name] is None for name in ("tensor", "pipeline", "sharding")):
        return None
    empty = {"sharding": "none", "recompute": "none"}
    return {name: value if value is not None else empty.get(name, 1) for name, value in given.items()}


def shard(known: Study, own: Own) -> list[Mark]:
    """Marks of step 3."""
    said, wanted = own.get("shard", "feasible"), degrees(own)
    claims = said == "yes" or (said is None and wanted is not None)
    layout = known.completed(own.layout())
    why = reasons(known, own, "shard", layout)
    if not known.feasible:
        least = (f"The state alone is {known.parameters['total'] * known.run.training.state.total / 2**30:,.0f} GiB; "
                 f"all devices have {known.run.cluster.devices * known.capacity / 2**30:,.0f}.")  # fmt: skip
        if said == "no":
            return [ruled("shard", "feasible", 1.0), why]
        return [ruled("shard", "feasible", 0.0, "planned what cannot fit" if claims else "unanswered", least)]
    if not claims:
        return [ruled("shard", "feasible", 0.0, "given up early" if said == "no" else "unanswered"), why]
    marks = [ruled("shard", "feasible", 1.0), *_layout(known, wanted)]
    marks.append(_smallest(known, own))
    return [*marks, why]


def _layout(known: Study, wanted: dict[str, Any] | None) -> list[Mark]:
    """Legal, fits, near the best: three marks on the degrees, whatever else is chosen later."""
    weights = {"legal": 1.0, "fits": 2.0, "near": 3.0}

    def mark(name: str, credit: float, mistake: str = "", message: str = "", asked: bool = True) -> Mark:
        one = ruled("shard", "tensor", credit, mistake, message, weights[name] if asked else 0.0)
        return dataclasses.replace(one, name=name)

    if wanted is None:
        return [mark("legal", 0.0, "unanswered"), mark("fits", 0.0), mark("near", 0.0)]
    found = known.fastest(wanted)
    if found is None:
        reason, legal = why_not(known, wanted)
        if not legal:
            return [mark("legal", 0.0, "illegal layout", reason), mark("fits", 0.0), mark("near", 0.0)]
        return [mark("legal", 1.0), mark("fits", 0.0, "does not fit", reason), mark("near", 0.0)]
    over, hours = found[0] / known.least_time_s, known.predicted(found[1])["run"]["accelerator_hours"]
    marks = [mark("legal", 1.0), mark("fits", 1.0)]
    if known.crowded(found[1]):
        memory = known.predicted(found[1])["memory"]
        risk = (f"It fits, at {memory['peak_gib']:.0f} of {memory['capacity_gib']:.0f} GiB. Nobody plans above "
                f"{ROOM:.0%}: buffers and fragments take the rest.")  # fmt: skip
        marks[1] = mark("fits", 0.75, "", risk)
    if over <= NEAR:
        return [*marks, mark("near", 1.0)]
    about = (f"At best it takes {found[0]:.3g} s a step, {over - 1:.0%} more than the best, and "
             f"{hours * (1 - 1 / over):,.0f} accelerator-hours more.")  # fmt: skip
    if over <= FAR:
        return [*marks, mark("near", 0.5, "", about)]
    return [*marks, mark("near", 0.0, "far from the best", about)]


def why_not(known: Study, wanted: dict[str, Any]) -> tuple[str, bool]:
    """Why no layout with these degrees is left, and whether any was legal."""
    run = known.run
    try:
        group = int(wanted["tensor"]) * int(wanted["pipeline"]) * int(wanted["context"])
    except (TypeError, ValueError):
        return "A degree is a whole number.", False
    if group < 1 or run.cluster.devices % group:
        return f"{run.cluster.devices:,} devices do not divide by tensor x pipeline x context = {group:,}.", False
    data, reason = run.cluster.devices // group, ""
    said = wanted.get("micro_batch"), wanted.get("interleave")
    for micro in (said[0],) if said[0] else (1, 2, 4, 8):
        for chunks in (said[1],) if said[1] else (1, 2, 4):
            layout = layout_of(run, {**wanted, "data": data, "micro_batch": micro, "interleave": chunks})
            if layout is None:
                return "A degree must be at least 1.", False
            found = known.predicted(layout)
            if found["legal"]:
                memory = found["memory"]
                return (f"With a micro-batch of {micro} the fullest device needs {memory['peak_gib']:.0f} of "
                        f"{memory['capacity_gib']:.0f} GiB."), True  # fmt: skip
            reason = reason or found["reasons"][0]
    return f"{reason[:1].upper()}{reason[1:]}.", False


def _smallest(known: Study, own: Own) -> Mark:
    said, right = own.number("shard", "smallest_group"), known.smallest[0]
    if said is None:
        return ruled("shard", "smallest_group", 0.0, "unanswered")
    about = f"Something fits with tensor x pipeline = {right}, and nothing with less."
    if said == right:
        return ruled("shard", "smallest_group", 1.0)
    if said and right and near(said, right, 2):
        return ruled("shard", "smallest_group", 0.5, "", about)
    return ruled("shard", "smallest_group", 0.0, "smallest group missed", about)


def variants(known: Study, own: Own, marks: list[Mark]) -> list[Layout]:
    """Layouts that later steps may speak of: the candidate's own, and where that is marked down those it stands for."""
    layout = known.completed(own.layout())
    sound = layout is not None and known.predicted(layout)["legal"]
    found = [layout] if layout is not None and sound else []
    if found and not any(mark.mistake for mark in marks if mark.group == "layout"):
        return found
    wanted = degrees(own)
    near_best = known.fastest(wanted) if wanted else None
    return [*found, *([near_best[1]] if near_best else []), known.best]


def place(known: Study, own: Own, layouts: list[Layout]) -> list[Mark]:
    """Marks of step 4."""
    fabric = known.run.cluster.fabric
    inside, between = fabric.scale_up_bytes_per_s / 1e9, fabric.scale_out_bytes_per_s / 1e9
    marks = [_order(known, own, layouts), _crosses(known, own, layouts)]
    right = [inside, fabric.scale_up_measured_bytes_per_s / 1e9 if fabric.scale_up_measured_bytes_per_s else inside]
    marks.append(measured(own, "place", "inside_rate", right, 1.12, {"two-way for one-way": [2 * inside]}, 1.4))
    wrong = {"bits or a node's total": [8 * between], "two-way for one-way": [2 * between]}
    marks.append(measured(own, "place", "between_rate", [between], 1.15, wrong, 1.4))
    sents = [known.sent(layout) for layout in layouts]
    busiest = own.get("place", "busiest")
    if busiest is None:
        marks.append(ruled("place", "busiest", 0.0, "unanswered"))
    elif any(_sent(sent, busiest, layout) * 1.5 >= max(sent.values())
             for sent, layout in zip(sents, layouts, strict=True)):  # fmt: skip
        marks.append(ruled("place", "busiest", 1.0))
    else:
        about = ", ".join(f"{axis} {sents[0][axis] / 1e9:,.3g}" for axis in AXES if sents[0][axis] > 0)
        marks.append(ruled("place", "busiest", 0.0, "another axis sends most", f"In GB a step: {about}."))
    amounts = [sent[busiest] / 1e9 for sent in sents if busiest in AXES and sent[busiest]]
    amounts = amounts or [max(sent.values()) / 1e9 for sent in sents]
    marks.append(measured(own, "place", "busiest_bytes", amounts, 2.0, None, 3.0))
    return [*marks, reasons(known, own, "place", layouts[0])]


def _sent(sent: dict[str, float], axis: Any, layout: Layout) -> float:
    """Bytes of an axis; what cut experts exchange may be counted with tensor where there are no expert ranks."""
    if axis not in AXES:
        return 0.0
    return sent[axis] + (sent["expert"] if axis == "tensor" and layout.expert == 1 else 0.0)


def replaced(known: Study, layouts: list[Layout], marks: list[Mark]) -> list[Layout]:
    """The layouts that steps 6 to 8 may speak of: where the place was marked down, those in a better order as well."""
    if not any(mark.name == "order" and mark.mistake for mark in marks):
        return layouts
    return [*layouts, *(dataclasses.replace(layout, order=known.best_order(layout)[1]) for layout in layouts)]


def _ordered(layout: Layout, own: Own, known: Study) -> Layout:
    """A layout with the candidate's own order of the axes."""
    said = own.get("place", "order")
    plain = layout_of(known.run, {"order": said}) if said else None
    return layout if plain is None else dataclasses.replace(layout, order=plain.order)


def _order(known: Study, own: Own, layouts: list[Layout]) -> Mark:
    said = own.get("place", "order")
    if not said:
        return ruled("place", "order", 0.0, "unanswered")
    layout = _ordered(layouts[0], own, known)
    best, order = known.best_order(layout)
    time = known.predicted(layout)["step"]["time_s"]
    over = time / best if time and best else 1.0
    better = f"Innermost first, {', '.join(axis for axis in order if getattr(layout, axis) > 1) or 'any'} is faster"
    rate = f" ({over - 1:.0%} a step)." if over > 1.005 else "."
    crosses, inside = known.crosses(layout), known.crosses(dataclasses.replace(layout, order=order))
    if layout.tensor > 1 and crosses.get("tensor") and not inside.get("tensor"):
        return ruled("place", "order", 0.0, "tensor across nodes", better + rate)
    if over <= 1.05:
        return ruled("place", "order", 1.0)
    if over <= 1.15:
        return ruled("place", "order", 0.5, "", better + rate)
    return ruled("place", "order", 0.0, "placed slowly", better + rate)


def _crosses(known: Study, own: Own, layouts: list[Layout]) -> Mark:
    said = own.get("place", "crosses")
    if said is None:
        return ruled("place", "crosses", 0.0, "unanswered")
    named, right = {said} if isinstance(said, str) else set(said), []
    for plain in layouts:
        better = dataclasses.replace(plain, order=known.best_order(plain)[1])
        for layout in (_ordered(plain, own, known), better):
            crosses, sent = known.crosses(layout), known.sent(layout)
            noted = {axis for axis in crosses if sent[axis] > 0.01 * sum(sent.values())}
            right.append({axis for axis, out in crosses.items() if out})
            if named & noted == right[-1] & noted and named - noted <= set(crosses):
                return ruled("place", "crosses", 1.0)
    about = f"These leave a node: {', '.join(sorted(right[0])) or 'none'}."
    return ruled("place", "crosses", 0.0, "nodes miscounted", about)


def batch(known: Study, own: Own, marks: list[Mark]) -> list[Mark]:
    """Marks of step 5."""
    run, wanted = known.run, degrees(own)
    bad = any(mark.mistake for mark in marks if mark.name in ("legal", "fits"))
    data, micro = own.number("batch", "data"), own.number("batch", "micro_batch")
    count, chunks = own.number("batch", "accumulation"), own.number("batch", "interleave") or 1.0
    group = 1
    if wanted is not None:
        group = int(wanted["tensor"] or 1) * int(wanted["pipeline"] or 1) * int(wanted["context"] or 1)
    best = known.best
    replicas = {run.cluster.devices / max(group, 1)} | ({float(best.data)} if bad else set())
    found = [_data(run.cluster.devices, data, replicas, wanted)]
    found += _held(known, data, micro, count, replicas)
    pieces = _pieces(known, own, wanted, bad)
    found += pieces
    whole = float(run.training.tokens_per_step)
    right = [whole]
    if data and micro and count:
        right.append(data * micro * count * run.training.sequence_length)
    wrong = {"per device for total": [whole / run.cluster.devices, whole / (data or 1)]} if data and data > 1 else {}
    found.append(measured(own, "batch", "tokens_per_step", right, 1.06, wrong))
    held = [run.training.global_batch_sequences / (one * (micro or 1)) for one in replicas]
    loose = pieces[0].mistake == "illegal layout"
    found.append(_bubble(own, wanted, best, [count or held[0], *held], chunks, bad, loose))
    return [*found, reasons(known, own, "batch", known.completed(own.layout()))]


def _data(devices: int, data: float | None, right: set[float], wanted: dict[str, Any] | None) -> Mark:
    if data is None:
        return ruled("batch", "data", 0.0, "unanswered")
    if data in right:
        return ruled("batch", "data", 1.0)
    about = f"{min(right):,.0f} of them; you said {data:,.0f}."
    if data == devices:
        return ruled("batch", "data", 0.0, "devices for replicas", about)
    expert = float((wanted or {}).get("expert") or 1)
    name = "experts multiplied in" if expert > 1 and data * expert in right else "replicas wrong"
    return ruled("batch", "data", 0.0, name, about)


def _held(
    known: Study, data: float | None, micro: float | None, count: float | None, replicas: set[float]
) -> list[Mark]:
    """Whether replicas x micro-batch x accumulation is the global batch, for the candidate's own replicas."""
    sequences = known.run.training.global_batch_sequences
    if not (data and micro and count):
        return [ruled("batch", "accumulation", 0.0, "unanswered", weight=3.0)]
    if any(one * micro * count == sequences for one in (data, *replicas)):
        return [ruled("batch", "accumulation", 1.0, weight=3.0)]
    about = f"{data:,.0f} x {micro:,.0f} x {count:,.0f} is {data * micro * count:,.0f} of {sequences:,} sequences."
    alone = data * micro == sequences or (count == 1 and data * micro < sequences)
    name = "accumulation forgotten" if alone else "another global batch"
    return [ruled("batch", "accumulation", 0.0, name, about, weight=3.0)]


def _pieces(known: Study, own: Own, wanted: dict[str, Any] | None, bad: bool) -> list[Mark]:
    """The micro-batch and the chunks, among layouts with the degrees chosen."""
    micro, chunks = own.number("batch", "micro_batch"), own.number("batch", "interleave") or 1.0
    if micro is None:
        return [ruled("batch", "micro_batch", 0.0, "unanswered")]
    best = known.fastest(wanted) if wanted else None
    if bad or best is None or wanted is None:
        return [ruled("batch", "micro_batch", 0.0, weight=0.0)]
    found = known.fastest({**wanted, "micro_batch": micro, "interleave": chunks})
    if found is None:
        said = {**wanted, "data": best[1].data, "micro_batch": micro, "interleave": chunks}
        layout = layout_of(known.run, said)
        outcome: dict[str, Any] = (
            known.predicted(layout) if layout is not None else {"legal": False, "reasons": ["none"]}
        )
        if not outcome["legal"]:
            return [ruled("batch", "micro_batch", 0.0, "illegal layout", f"Here: {outcome['reasons'][0]}.", weight=2.0)]
        need = f"{outcome['memory']['peak_gib']:.0f} of {outcome['memory']['capacity_gib']:.0f} GiB."
        return [ruled("batch", "micro_batch", 0.0, "does not fit", f"With this micro-batch: {need}", weight=2.0)]
    over = found[0] / best[0]
    about = f"Another micro-batch or number of chunks saves {1 - 1 / over:.0%} of the step."
    if over <= PIECES:
        return [ruled("batch", "micro_batch", 1.0, weight=2.0)]
    if over <= 1.5:
        return [ruled("batch", "micro_batch", 0.5, "", about, weight=2.0)]
    return [ruled("batch", "micro_batch", 0.0, "far from the best", about, weight=2.0)]


def _bubble(
    own: Own, wanted: dict[str, Any] | None, best: Layout, counts: list[float], chunks: float, bad: bool,
    loose: bool = False,
) -> Mark:  # fmt: skip
    """The idle share, for the micro-batches that were said or that hold the batch."""
    pipeline, chunks = float((wanted or {}).get("pipeline") or 1), max(chunks, 1.0)
    splits = [(pipeline, chunks)] + ([(float(best.pipeline), float(best.interleave))] if bad else [])
    splits += [(pipeline, pieces) for pieces in (1.0, 2.0, 4.0)] if loose else []  # its chunks are marked already
    right = [
        100 * float(bubble_share(pipeline=stages, interleave=pieces, micro_batches=max(count, 1)))
        for stages, pieces in splits for count in counts
    ]  # fmt: skip
    count = max(counts[0], 1.0)
    wrong = {
        "other bubble": [100 * (pipeline - 1) / (chunks * count)],
        "chunks forgotten": [100 * float(bubble_share(pipeline=pipeline, interleave=1, micro_batches=count))],
        "stages for gaps": [100 * pipeline / (pipeline + count)], "work for bubble": [100 - right[0]],
    }  # fmt: skip
    return measured(own, "batch", "bubble", right, 1.25, wrong, 1.6, absolute=1.0)
