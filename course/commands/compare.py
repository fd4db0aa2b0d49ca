"""Measured runs beside what we predict of them, with the errors. RUNS.csv has the columns of the packaged records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from course.commands._output import check_target, csv_text, json_text, write
from course.errors import UserError

TO_FILL = (
    "fill step_time_s (seconds a step) or tokens_per_s_per_device of each run, peak_mem_gib where it is known, and "
    "start notes with FAILED where it did not run"
)
MOST_GROUPS, MOST_DUPLICATES = 40, 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course compare`."""
    parser.add_argument(
        "runs", nargs="?", metavar="RUNS.csv|LAB.json",
        help="measured runs, or a report of the lab; the packaged records when left out",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--output", metavar="FILE", help="write each row with what is predicted of it, as CSV")


def run(arguments: argparse.Namespace) -> int:
    """Print the scores and write the rows; 0 whatever the scores are."""
    from course import records
    from course.commands._text import paragraph
    from course.compare import compare, read, unmeasured
    from course.compare.rows import ADDED

    source = records.path() if arguments.runs is None else arguments.runs
    target = check_target(arguments.output) if arguments.output else None
    table = read(source)
    if target is not None and target.exists() and target.samefile(source):
        raise UserError(f"{arguments.output} is the file of runs itself. Choose another file for --output.")
    found = compare(table.rows)
    blank = unmeasured(found.rows)
    if blank and blank == len(found.rows):
        raise UserError(f"{table.name[:80]} has no measurement yet: {TO_FILL}.")
    said = None
    if target is not None:
        said = write(target, csv_text(found.table(), [*table.columns, *ADDED]).encode())
    if blank and not arguments.json:
        print(paragraph(f"{blank} of {len(found.rows)} rows have no measurement and are not scored: {TO_FILL}.") + "\n")
    name = "the packaged records" if arguments.runs is None else table.name
    print(json_text(found.document) if arguments.json else _text(found.document, name))
    if said is not None and not arguments.json:
        print(said)
    return 0


def _text(document: Mapping[str, Any], name: str) -> str:
    """Errors by source, ranking by group, fit, what was skipped, what was filled in, what was measured twice."""
    from course.commands._text import paragraph, table

    rows = [["source", "rows", "predicted", "time: median", "P90", "memory: median", "P90"]]
    for source in (*document["sources"], document["overall"]):
        errors = [_percent(source[what][figure]) for what in ("throughput", "memory") for figure in ("median", "p90")]
        rows.append([source["name"][:24], f"{source['rows']:,}", f"{source['predicted']:,}", *errors])
    parts = [
        f"{name[:40]}: errors are |measured / predicted - 1|; overall each source weighs the same.",
        table(rows),
        *_groups(document["groups"]),
        paragraph(_fit(document["fit"])),
    ]
    if document["skipped"]:
        rows = [[f"{count:,}", reason] for reason, count in document["skipped"].items()]
        parts.append("Not predicted\n" + _counted(rows))
    if document["inferred"]:
        rows = [[f"{count:,}", what] for what, count in document["inferred"].items()]
        parts.append("Filled in where the row is blank, or noted\n" + _counted(rows))
    if document["duplicates"]:
        parts.append(_duplicates(document["duplicates"]))
    return "\n\n".join(parts)


def _groups(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    from course.commands._text import table

    if not groups:
        return []
    listed = sorted(groups, key=lambda group: -group["rows"])[:MOST_GROUPS]
    rows = [["group", "rows", "rank corr.", "regret", "best of 3"]]
    for group in listed:
        rank = "-" if group["spearman"] is None else f"{group['spearman']:.2f}"
        regrets = [_percent(group[name]) for name in ("regret", "regret_top3")]
        rows.append([shorten(group["id"], 64, placeholder=" …"), f"{group['rows']:,}", rank, *regrets])
    more = f"\n  and {len(groups) - len(listed):,} smaller groups" if len(groups) > len(listed) else ""
    title = "One question, several layouts: regret is what our choice costs over the best measured"
    return [f"{title}\n{table(rows)}{more}"]


def _fit(fit: Mapping[str, Mapping[str, int]]) -> str:
    failed, ran = fit["failed"], fit["ran"]
    return (
        f"Does it fit: of {failed['rows']:,} runs that failed we refuse {failed['refused_memory']:,} for memory and "
        f"{failed['refused_legal']:,} as illegal; of {ran['rows']:,} that ran we refuse {ran['refused']:,}."
    )


def _duplicates(found: Sequence[Mapping[str, Any]]) -> str:
    """Measurements made several times; the first counts."""
    from course.commands._text import table

    widest = sorted(found, key=lambda one: -(one["spread"] or 0))[:MOST_DUPLICATES]
    rows = [
        ["-" if one["spread"] is None else f"{one['spread']:.2f} x", ", ".join(one["ids"][:6])[:80]] for one in widest
    ]
    title = f"Measured several times: {len(found):,} layouts; the first counts, the spread of times is"
    return f"{title}\n{table(rows, left=2)}"


def _counted(rows: Sequence[Sequence[str]]) -> str:
    width = max(len(count) for count, _ in rows)
    return "\n".join(f"  {count:>{width}}  {shorten(what, 88, placeholder=' …')}" for count, what in rows)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:,.1f} %"
