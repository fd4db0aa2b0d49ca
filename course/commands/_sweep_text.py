"""A sweep as text: the ranking, why the first layout has what it has, what fell out, other device counts, the stops."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from course.answer.words import LONGER, number
from course.commands._text import WIDTH, given, heading, item, paragraph, shown, table
from course.problem import Run
from course.stops import WORTH, Point, front

SHOWN = (
    "data", "tensor", "pipeline", "context", "expert", "interleave", "micro_batch", "sharding", "recompute",
)  # fmt: skip
RARE = ("context", "expert")
"""Axes that get no column where no layout has them."""
HEADS = {
    "pipeline": "pipe", "context": "ctx", "expert": "exp", "interleave": "chunks",
    "micro_batch": "micro", "recompute": "again",
}  # fmt: skip


def sweep(
    document: Mapping[str, Any],
    run: Run,
    rules: Mapping[str, str],
    top: int,
    counts: Sequence[Point] = (),
    advice: Sequence[str] = (),
) -> str:
    """The ranked layouts, why the first has its axes, why the others fell out, other device counts, when to stop.

    Args:
        document: what `course.sweep.sweep` gives.
        run: the question.
        rules: what each rejection means.
        top: how many layouts were asked for.
        counts: the best of each device count.
        advice: what to change where nothing was found.
    """
    parts = [heading(run)]
    parts.append(
        paragraph(
            f"{document['candidates']:,} candidates, {document['legal']:,} legal, {document['fitting']:,} fit. "
            f"Ranked by {document['ranked_by']}."
        )
    )
    layouts = document["layouts"]
    if layouts:
        parts.append(_ranking(document, top, run.software.order))
        why = [item(f"{axis}: {reason}.") for axis, reason in layouts[0]["why"].items()]
        parts.append("Why the first has what it has\n" + "\n".join(why or ["  Nothing is split."]))
    else:
        parts.append(paragraph(f"No layout is legal and fits. {' '.join(advice)}"))
    if document["rejected"]:
        parts.append(_rejected(document["rejected"], rules))
    if counts:
        parts.append(_across(counts, run))
    parts.append(_stops(document["stops"], counts, run))
    if layouts:
        parts.append(given(layouts[0], free=True))
    return "\n\n".join(parts)


def _ranking(document: Mapping[str, Any], top: int, usual: Sequence[str]) -> str:
    layouts = document["layouts"]
    # an axis that no layout has gets no column
    folded = any(entry["layout"]["expert_tensor"] > 1 for entry in layouts)
    axes = [
        axis
        for axis in SHOWN
        if axis not in RARE or any(entry["layout"][axis] > 1 for entry in layouts) or (axis == "expert" and folded)
    ]
    moved = any(tuple(entry["layout"]["order"]) != tuple(usual) for entry in layouts)
    named = [HEADS.get(axis, axis) for axis in axes]
    head = ["", *named, *(["order"] if moved else []), "s/step", "MFU*", "GiB", "days"]
    rows = [head, *(_line(document, place, axes, moved) for place in range(len(layouts)))]
    key = (
        "= ties with the best; m proposed to measure; p no other here beats it in wall time and accelerator-hours. "
        "* full_attention. micro: sequences of a micro-batch; again: what backward computes again; /n: sharded over "
        "groups of n ranks, each with a copy; g: the schedule is gpipe, z: zero-bubble; s: without sequence "
        "parallelism."
    )
    if folded:
        key += " exp: expert ranks x expert-tensor ranks."
    if moved:
        key += " order: initials of the axes, innermost first."
    if len(layouts) > top:
        key += f" Those after row {top} are proposed from further down the ranking."
    return f"{table(rows, left=1, indent=' ')}\n{paragraph(key)}"


def _line(document: Mapping[str, Any], place: int, axes: Sequence[str], moved: bool) -> list[str]:
    entry = document["layouts"][place]
    layout = entry["layout"]
    marks = "".join(mark for mark, key in (("=", "ties"), ("m", "proposal"), ("p", "pareto")) if place in document[key])
    cells = {axis: f"{layout[axis]}" for axis in axes}
    if layout["sharding"] != "none" and layout["shard_group"] < layout["data"] * layout["context"]:
        cells["sharding"] += f"/{layout['shard_group']}"
    cells["interleave"] += {"gpipe": "g", "zero-bubble": "z"}.get(layout["schedule"], "")
    if "expert" in cells and layout["expert_tensor"] > 1:
        cells["expert"] += f"x{layout['expert_tensor']}"
    cells["tensor"] += "s" * (layout["tensor"] > 1 and not layout["sequence_parallel"])
    return [
        f"{place + 1}{marks}",
        *cells.values(),
        *(["".join(axis[0] for axis in layout["order"])] if moved else []),
        f"{entry['step']['time_s']:.4g}",
        "-" if entry["mfu"]["full_attention"] is None else f"{entry['mfu']['full_attention']:.3f}",
        f"{entry['memory']['peak_gib']:.1f}",
        number(entry["run"]["days"]),
    ]


def _rejected(rejected: Mapping[str, int], rules: Mapping[str, str]) -> str:
    rows = [[code, f"{count:,}"] for code, count in rejected.items()]
    width = max(len(code) for code, _ in rows)
    many = max(len(count) for _, count in rows)
    lines = [
        textwrap.fill(
            rules[code], WIDTH, initial_indent=f"  {code:<{width}}  {count:>{many}}  ",
            subsequent_indent=" " * (width + many + 6),
        )
        for code, count in rows
    ]  # fmt: skip
    return "Rejected, each by the first rule it breaks\n" + "\n".join(lines)


def _across(counts: Sequence[Point], run: Run) -> str:
    """The fastest layout of each device count, and what each doubling saves and adds."""
    best = {point.devices for point in front(counts)}
    money = run.goal.price_per_accelerator_hour is not None
    axes = [
        axis
        for axis in ("data", "tensor", "pipeline", "context", "expert", "interleave")
        if axis not in RARE or any(getattr(p.fastest.layout, axis) > 1 for p in counts)
    ]
    priced = ["cost"] if money else []
    head = ["", "devices", *(HEADS.get(axis, axis) for axis in axes), "s/step", "days", "hours", *priced]
    rows = [[*head, "saves", "adds"]]
    before: Point | None = None
    for point in counts:
        saved = added = "-"
        if before is not None and point.devices == 2 * before.devices:
            now, then = before.fastest, point.fastest
            saved = f"{now.compute_s - then.compute_s:.3g}"
            added = f"{then.time_s - then.compute_s - (now.time_s - now.compute_s):.3g}"
        rows.append(
            ["p" if point.devices in best else "", f"{point.devices:,}",
             *(f"{getattr(point.fastest.layout, axis):,}" for axis in axes), f"{point.fastest.time_s:.4g}",
             number(point.days), f"{point.accelerator_hours:.4g}",
             *([] if point.cost is None else [f"{point.cost:.4g}"]), saved, added]
        )  # fmt: skip
        before = point
    key = (
        "p: no other count beats it in wall time and accelerator-hours (hours). saves, adds: seconds of compute a step "
        "that the doubling saves, and seconds of communication, idle time and overhead that it adds."
    )
    title = "The fastest layout of each device count, the global batch held"
    return f"{title}\n{table(rows, left=1, indent=' ')}\n{paragraph(key)}"


def _stops(stops: Mapping[str, int | None], counts: Sequence[Point], run: Run) -> str:
    rows = [
        ["devices beyond which a doubling adds more than it saves", shown(stops["break_even_devices"])],
        ["devices beyond which a doubling costs more than the deadline is worth", shown(stops["deadline_devices"])],
    ]
    text = "When to stop\n" + table(rows)
    if run.goal.days is None:
        return text
    said = [f"What the deadline of {number(run.goal.days)} days is worth: {WORTH}."]
    at = {point.devices: point for point in counts}
    stop = stops["deadline_devices"]
    if stop is not None and 2 * stop in at:
        now, then = at[stop], at[2 * stop]
        more = then.accelerator_hours - now.accelerator_hours
        money = "" if now.cost is None or then.cost is None else f" ({number(then.cost - now.cost)} in money)"
        said.append(
            f"The next doubling would take {number(abs(more))} accelerator-hours {'more' if more > 0 else 'less'}"
            f"{money} and end {number(now.days - then.days)} days earlier."
        )
    elif stop is None:
        said.append("No device count looked at meets it within the budget." if run.goal.budget_accelerator_hours
                    else "No device count looked at meets it.")  # fmt: skip
    return f"{text}\n{paragraph(' '.join([*said, LONGER]), '  ')}"
