"""Answers and predictions as text of at most 100 columns: short sentences, aligned tables, units."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course.answer.words import LONGER, ZERO, illegal, large, layout_name, number, percent, whole_group
from course.problem import Run

WIDTH = 100
CONVENTIONS = ("six_ps", "palm", "full_attention", "causal_attention")
PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "margin")
UNITS = (
    ("_gib_per_sequence", "GiB a sequence"), ("_gib_per_device", "GiB a device"), ("_gb_per_step", "GB a step"),
    ("_gb_per_s", "GB/s"), ("_gib", "GiB"), ("_ms", "ms"), ("_days", "days"), ("_share", "%"),
    ("_sequences", "sequences"),
    ("_per_s_per_device", "/s a device"), ("_per_s", "/s"), ("_s", "s"),
)  # fmt: skip
"""Ending of a name and the unit it stands for, the longer endings first."""


OF = {
    "step_time_s": "recommended", "estimated_step_time_s": "recommended", "measured_step_time_s": "file's",
    "measured_over_estimate": "file's", "estimated_peak_gib": "file's", "measured_peak_gib": "file's",
}  # fmt: skip
"""Numbers of one table that may belong to different layouts; where the file has none, all are of the recommended."""


def paragraph(text: str, indent: str = "") -> str:
    """Text wrapped to the width of a page."""
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def item(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)


def table(rows: Sequence[Sequence[str]], left: int = 1, indent: str = "  ") -> str:
    """Rows in aligned columns: the first `left` columns to the left, the others to the right.

    >>> print(table([["a", "1"], ["bc", "10"]], indent=""))
    a    1
    bc  10
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def shown(value: float | None, unit: str = "") -> str:
    """A number with its unit, `-` where there is none."""
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "-"}[value]
    if unit == "%":
        return percent(value)
    return f"{number(value)} {unit}".rstrip()


def heading(run: Run) -> str:
    """What is asked, in a line or two."""
    training, cluster = run.training, run.cluster
    return paragraph(
        f"{run.name}: {run.model.name}, {large(training.tokens)} tokens, "
        f"{training.global_batch_sequences:,} sequences of "
        f"{training.sequence_length:,} a step, on {cluster.devices:,} {cluster.accelerator.name} "
        f"({cluster.fabric.id}), "
        f"{run.software.recipe}."
    )


def answer(document: Mapping[str, Any], run: Run, own: Mapping[str, Any] | None) -> str:
    """The eight steps, the recommended layout beside the file's own, the sweep to measure, the four questions."""
    parts = [heading(run)]
    for place, step in enumerate(document["steps"], 1):
        title = "MFU" if step["name"] == "mfu" else step["name"].capitalize()
        numbers = _numbers(step["numbers"], own is not None)
        parts.append(f"{place}. {title}\n{paragraph(step['reason'], '   ')}\n{numbers}")
    best = document["recommended"]
    if best is None:
        parts.append("No layout is recommended: none is legal and fits.")
    else:
        by = "" if run.measured.step_time_s is None else ", by the estimate that no measurement scales"
        parts.append(f"Recommended layout{by}\n" + compared(
            [("recommended", best["layout"], best), *_own(run, own)], run.software.order
        ))
        rows = [
            textwrap.fill(
                layout_name(entry["layout"], run.software.order), WIDTH, initial_indent=f"  {f'{place}.':<5}",
                subsequent_indent=" " * 7,
            )
            for place, entry in enumerate(document["proposal"], 1)
        ]  # fmt: skip
        parts.append("Short sweep to measure, the global batch held\n" + "\n".join(rows))
    lines = ["The four questions"]
    for question in document["four_questions"]:
        lines += [f"  {question['question']}", paragraph(question["answer"], "    ")]
        lines.append(f"    -> {shown(question['number'])} {question['unit']}")
    parts.append("\n".join(lines))
    if best is not None:
        parts.append(given(best, free=True))
    return "\n\n".join(parts)


def _own(run: Run, own: Mapping[str, Any] | None) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    return [] if own is None or run.layout is None else [("in the file", vars(run.layout), own)]


def _numbers(numbers: Mapping[str, float | None], beside: bool) -> str:
    """Names and values, two pairs a line; `beside`: the file has a layout too, and names say whose."""
    cells = []
    for name, value in numbers.items():
        ending, unit = next(((end, unit) for end, unit in UNITS if name.endswith(end)), ("", ""))
        label = name.removesuffix(ending).replace("_", " ")
        if beside and name in OF:
            label = f"{label.replace('step time', 'step')} ({OF[name]})"
        cells.append((label, shown(value, unit)))
    rows = []
    for place in range(0, len(cells), 2):
        pair = cells[place : place + 2]
        rows.append([cell for name, value in pair for cell in (name, value)] + [""] * (4 - 2 * len(pair)))
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    return "\n".join(
        f"     {a.ljust(widths[0])}  {b.rjust(widths[1])}    {c.ljust(widths[2])}  {d.rjust(widths[3])}".rstrip()
        for a, b, c, d in rows
    )


def compared(entries: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]], usual: Sequence[str] = ()) -> str:
    """Layouts side by side: (title, layout, prediction) each a column.

    The usual fields always stand there, of the others those that are not at their default in one of the layouts, so
    that what stands there can be copied into a run file. `usual` is the order of the recipe, the default of `order`.
    """
    rows = [["", *(title for title, _, _ in entries)]]

    def add(name: str, values: Sequence[str]) -> None:
        rows.append([name, *values])

    layouts, found = [layout for _, layout, _ in entries], [document for _, _, document in entries]
    for name, always, default, cell in FIELDS:
        if always or any(layout[name] != default(layout, usual) for layout in layouts):
            label = {"recompute": "recomputation"}.get(name, name.replace("_", "-"))
            add(label, [cell(layout[name]) for layout in layouts])
    add("step time", [shown(d["step"]["time_s"], "s") for d in found])
    add("peak memory", [shown(d["memory"]["peak_gib"], "GiB") for d in found])
    add("capacity", [shown(d["memory"]["capacity_gib"], "GiB") for d in found])
    add("fits", [{True: "yes", False: "no", None: "illegal"}[d["memory"]["fits"]] for d in found])
    for convention in CONVENTIONS:
        add(f"MFU ({convention})", [shown(d["mfu"][convention]) for d in found])
    add("HFU (executed)", [shown(d["hfu"]) for d in found])
    add("tokens/s a device", [shown(d["tokens_per_s_per_device"]) for d in found])
    add("wall time", [shown(d["run"]["days"], "days") for d in found])
    add("accelerator-hours", [shown(d["run"]["accelerator_hours"]) for d in found])
    add("cost", [shown(d["run"]["cost"]) for d in found])
    lines = []  # lists are too long for a column
    for title, layout, _ in entries:
        if usual and tuple(layout["order"]) != tuple(usual):
            lines.append(f"order, {title}: {', '.join(layout['order'])}")
        if layout["stage_layers"] is not None:
            lines.append(f"stage-layers, {title}: {', '.join(map(str, layout['stage_layers']))}")
    return "\n".join([table(rows), *(paragraph(line, "  ") for line in lines)])


def _count(value: int) -> str:
    return f"{value:,}"


Field = tuple[str, bool, Callable[[Mapping[str, Any], Sequence[str]], Any], Callable[[Any], str]]
FIELDS: tuple[Field, ...] = (
    *((name, name in ("data", "tensor", "pipeline"), lambda _, __: 1, _count)
      for name in ("data", "tensor", "pipeline", "context", "expert", "expert_tensor")),
    ("schedule", False, lambda _, __: "1f1b", str),
    ("interleave", True, lambda _, __: 1, _count),
    ("micro_batch", True, lambda _, __: 1, _count),
    ("sharding", True, lambda _, __: "none", lambda value: ZERO[value]),
    ("shard_group", False, lambda layout, _: whole_group(layout), _count),
    ("recompute", True, lambda _, __: "none", str),
    ("sequence_parallel", False, lambda layout, _: layout["tensor"] > 1, lambda value: "yes" if value else "no"),
)  # fmt: skip
"""Fields of a layout in the order of a run file: name, whether it always stands there, its default, how it is said."""


def predict(document: Mapping[str, Any], run: Run) -> str:
    """One prediction: verdict, memory by part, the step by part, communication by axis, MFU by convention, the run."""
    assert run.layout is not None
    parts = [heading(run), paragraph(f"Layout: {layout_name(vars(run.layout), run.software.order)}.")]
    if not document["legal"]:
        reasons = "\n".join(item(reason + ".") for reason in illegal(document["reasons"], run.assumptions))
        return "\n\n".join([*parts, "Not legal:\n" + reasons])
    memory, step = document["memory"], document["step"]
    verdict = "fits" if memory["fits"] else "does not fit"
    rows = [[part, shown(memory["parts_gib"][part], "GiB")] for part in PARTS]
    rows.append(["peak", shown(memory["peak_gib"], "GiB")])
    parts.append(
        f"Memory: it {verdict}. The fullest stage ({memory['stage']}, counted from 0) needs "
        f"{memory['peak_gib']:.1f} of "
        f"{memory['capacity_gib']:.1f} GiB.\n{table(rows)}"
    )
    rows = [[name, shown(step[f"{name}_s"], "s")] for name in ("compute", "bubble", "other")]
    for axis, traffic in step["communication"].items():
        if traffic["link"]:
            rows.append([f"{axis}, exposed", shown(traffic["exposed_s"], "s")])
    rows.append(["step", shown(step["time_s"], "s")])
    hidden = [
        f"{axis} {shown(traffic['total_s'], 's')} in all, {traffic['link']}"
        for axis, traffic in step["communication"].items()
        if traffic["link"]
    ]
    said = paragraph("Communication: " + "; ".join(hidden) + ".") if hidden else "Nothing is sent."
    parts.append(f"Step: {document['tokens_per_step']:,.0f} tokens.\n{table(rows)}\n{said}")
    rows = [[f"MFU ({name})", shown(document["mfu"][name])] for name in CONVENTIONS]
    parts.append("Use of the dense peak\n" + table([*rows, ["HFU (executed)", shown(document["hfu"])]]))
    done = document["run"]
    goal = {
        True: f"The goal is met. {LONGER}", False: f"The goal is not met. {LONGER}", None: "No goal is given.",
    }[done["meets_goal"]]  # fmt: skip
    rows = [
        ["tokens/s", shown(document["tokens_per_s"])],
        ["tokens/s a device", shown(document["tokens_per_s_per_device"])],
        ["wall time", shown(done["days"], "days")],
        ["accelerator-hours", shown(done["accelerator_hours"])],
        ["cost", shown(done["cost"])],
    ]
    parts.append(f"Run: {goal}\n{table(rows)}")
    parts.append(given(document))
    return "\n\n".join(parts)


def given(document: Mapping[str, Any], free: bool = False) -> str:
    """What a prediction rests on that the run file does not say; `free`: its layout was found."""
    lines = [line for line in document["assumptions"] if not (free and line.startswith("[layout]"))]
    return "Taken as given\n" + "\n".join(map(item, lines))
