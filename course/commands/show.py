"""Show the catalog with its sources and doubts, why a layout is rejected, or a formula with its derivation."""

from __future__ import annotations

import argparse
import textwrap

from course import catalog
from course.errors import UserError
from course.fields import TABLES, describe, fields_of, nearest, show

KINDS = ("models", "accelerators", "fabrics", "states", "software", "rejections", "formulas", "fields")
WIDTH = 100

RULES: dict[str, str] = {
    "devices": "data x tensor x pipeline x context must equal the devices of the cluster",
    "batch": "the sequences of the global batch must split into whole micro-batches on the replicas",
    "heads": "the attention heads of the model must split over the tensor ranks",
    "kv_heads": "the key/value heads of the model must split over the tensor ranks where the program copies none",
    "ffn": "the feed-forward width of the model must split over the tensor ranks",
    "sequence": "the tokens of a sequence must split over the tensor and context ranks, as sequence parallelism wants",
    "context": "a sequence must split into an early and a late chunk for every context rank, so that each gets an even "
    "share of the causal half (Megatron and torchtitan; a program that gives each rank one piece needs only that)",
    "no_experts": "expert and expert_tensor need a model with experts",
    "experts": "the experts of a layer must spread evenly over the expert ranks",
    "expert_ffn": "the width of an expert must split over the expert-tensor ranks",
    "shared_ffn": "the width of the shared experts together must split over the tensor ranks",
    "expert_fold": "expert x expert_tensor must divide tensor x context x data: experts fold into the ranks of a stage "
    "(Megatron since 2024, torchtitan; older programs and DeepSpeed want expert to divide data)",
    "expert_tokens": "where tensor ranks meet expert ranks, or share experts less finely than the rest, sequence "
    "parallelism must share out the tokens",
    "layers": "the layers, or the layers + 2 with embedding and head counted, must spread over all stages and chunks",
    "stage_layers": "stage_layers must list as many stages as pipeline says, and add up to the layers of the model",
    "interleave": "several chunks a stage need the interleaved schedule and at least 2 stages, and that schedule at "
    "least 2 chunks",
    "rounds": "the micro-batches must be a multiple of the stages, where the program's interleaved schedule wants that",
    "few_micro_batches": "there must be as many micro-batches as the program needs to start all stages",
    "split_backward": "the zero-bubble schedule, which makes gradients of weights while stages would wait, needs at "
    "least 2 stages",
    "shard_group": "the shard group must divide the data-parallel ranks",
    "sequence_parallel": "sequence parallelism needs tensor parallelism: tensor above 1",
    "memory": "the fullest stage needs more than the memory of a device, its margin counted; `course "
    "predict` shows the parts",
}
"""Why a layout is rejected: code -> the rule it breaks, in words."""

_LISTED = {
    "models": ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "published_total"),
    "accelerators": ("year", "peak_bf16_flops_per_s", "memory_bytes", "memory_bytes_per_s"),
    "fabrics": ("scale_up", "scale_out", "accelerators"),
    "states": ("weights", "gradients", "extra_gradients", "master", "moments"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course show`."""
    parser.add_argument("kind", choices=KINDS, help="what to show")
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them, with its source; all in a table without")


def run(arguments: argparse.Namespace) -> int:
    """Print the table of a kind, or all that is known of one name."""
    kind, name = arguments.kind, arguments.name
    if kind == "formulas":
        print(_all_formulas() if name is None else _formula(name))
    elif kind == "rejections":
        print(_rejections(name))
    elif kind == "fields":
        print(_fields(name))
    elif name is None:
        print(_software() if kind == "software" else _table(kind))
    else:
        print("\n\n".join(_facts(dict(row)) for row in catalog.facts(kind, name)))
    return 0


def _table(kind: str) -> str:
    rows = [["name", *(column.replace("_", " ") for column in _LISTED[kind])]]
    for name in catalog.names(kind):
        row = catalog.facts(kind, name)[0]
        rows.append([name, *(row[column] for column in _LISTED[kind])])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", f"`course show {kind} NAME` gives every figure, with its source and its doubt."])


def _software() -> str:
    lines = []
    for name in catalog.names("software"):
        about = next(row["value"] for row in catalog.facts("software", name) if row["field"] == "name")
        lines.append(_wrapped(name, about, 16))
    return "\n".join([*lines, "", "`course show software NAME` gives every habit, with its reason and its source."])


def _facts(row: dict[str, str]) -> str:
    width = max(len(column) for column in row) + 2
    return "\n".join(_wrapped(column, value, width) for column, value in row.items() if value)


def _wrapped(label: str, text: str, width: int) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=label.ljust(width), subsequent_indent=" " * width, break_on_hyphens=False
    )


def _rejections(name: str | None) -> str:
    if name is not None and name not in RULES:
        raise UserError(
            f"There is no rejection {show(name)}; the nearest name is {nearest(name, RULES)}. "
            "`course show rejections` lists them all."
        )
    return "\n".join(_wrapped(code, text, 20) for code, text in RULES.items() if name in (None, code))


def _fields(table: str | None) -> str:
    """The fields of a run file with meaning, unit, choices and default: of one table, or of all."""
    if table is not None and table not in TABLES:
        raise UserError(f"A run file has no table {show(table)}; the nearest name is {nearest(table, TABLES)}.")
    lines = []
    for name in TABLES if table is None else (table,):
        lines += ["", f"[{name}] {TABLES[name]}"]
        for field in fields_of(name).values():
            about = describe(field) + (f": {', '.join(field.choices)}" if field.choices else "")
            about += f" (default {field.default})" if field.default else ""
            about += "; refused for now" if field.later else ""
            lines.append(_wrapped(f"  {field.name}", about, 34))
    return "\n".join(lines[1:])


def _all_formulas() -> str:
    from course.formulas import formulas

    lines = [_wrapped(name, formula.meaning, 38) for name, formula in formulas().items()]
    return "\n".join([*lines, "", "`course show formulas NAME` gives one with its derivation."])


def _formula(name: str) -> str:
    """A formula with its meaning, its symbols, its assumptions, its source and its checked derivation."""
    from course.formulas import find, formulas

    formula = find(name)
    full = next(known for known, value in formulas().items() if value is formula)
    unit = "no unit" if formula.unit == "1" else f"in {formula.unit}"
    lines = [full, "", _wrapped("  ", str(formula), 6), "", _wrapped("meaning", f"{formula.meaning} ({unit})", 14), ""]
    for entry in formula.inputs:
        about = entry.meaning + ("" if entry.unit == "1" else f", in {entry.unit}")
        lines.append(_wrapped(f"  {entry.symbol}", f"{about} [{entry.key}]", 14))
    lines += [
        "",
        *(_wrapped("assumes", text, 14) for text in formula.assumptions),
        _wrapped("source", formula.source, 14),
    ]
    if formula.derivation:
        lines += ["", "derivation"]
        for place, line in enumerate(str(formula.show_derivation()).splitlines()[:-1], 1):
            lines.append(_wrapped(f"  {place}.", line, 6))
        lines.append(_wrapped("  so", str(formula), 6))
    return "\n".join(lines)
