"""Rank all legal layouts of a run file and say why the others fell out. Exit code 1 when none is legal and fits."""

from __future__ import annotations

import argparse
import dataclasses
import io
from typing import TYPE_CHECKING

from course.commands._output import (
    add_run_file,
    check_target,
    csv_text,
    flat,
    json_text,
    plain,
    question,
    same_file,
    write,
)
from course.errors import UserError

if TYPE_CHECKING:
    from course.problem import Run

PLOTS = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course sweep`."""
    add_run_file(parser, fix=True)
    parser.add_argument(
        "--top",
        type=_count,
        default=10,
        metavar="N",
        help="how many layouts to describe, besides those proposed; default 10",
    )
    parser.add_argument("--csv", metavar="FILE", help="write the layouts as CSV, the keys of --json joined by dots")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw step time against memory, and wall time against accelerator-hours over device counts: "
        ".png, .svg or .pdf",
    )
    engines = "torchtitan, megatron, or sbatch: a Slurm job for the engine of the run's software recipe"
    parser.add_argument("--export", metavar="ENGINE", help=f"write launch settings of the proposed layouts: {engines}")
    parser.add_argument("--output", metavar="DIR", help="the folder that --export writes to, made if missing")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of layouts: a whole number from 1 to 1,000,000")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Print the sweep and write the files asked for; 1 when nothing is legal and fits."""
    from course.sweep import across_devices, described, search

    wanted = None
    if arguments.export is not None or arguments.output is not None:
        from course.export import export, request

        wanted = request(arguments.export, arguments.output)
    table = check_target(arguments.csv, read=arguments.run_file) if arguments.csv is not None else None
    picture = check_target(arguments.plot, PLOTS, arguments.run_file) if arguments.plot is not None else None
    if table is not None and picture is not None and same_file(table, picture):
        raise UserError("--csv and --plot name the same file, of which one would be lost. Give each its own.")
    with question(arguments) as asked:
        found = search(asked, arguments.fix)
        counts = across_devices(asked, None if arguments.fix else found)
        document = described(asked, found, arguments.top, not arguments.fix, counts)
        written = []
        if table is not None:
            written.append(write(table, csv_text(document["layouts"], _columns(asked)).encode()))
        if picture is not None:
            from course.pictures.sweep import sweep as drawing

            drawn = io.BytesIO()
            drawing(document, counts, asked.goal).savefig(drawn, format=picture.suffix[1:].casefold())
            written.append(write(picture, drawn.getvalue()))
        if wanted is not None:
            written += export(asked, document, wanted)
        if arguments.json:
            print(json_text(document))
        else:
            from course.commands import _sweep_text
            from course.commands.show import RULES
            from course.sweep.advice import advice

            change = advice(asked, found, arguments.fix, counts)
            text = _sweep_text.sweep(document, asked, RULES, arguments.top, counts, change)
            print("\n".join([text, *written]))
    return 0 if document["fitting"] else 1


def _columns(asked: Run) -> list[str]:
    """The columns of the CSV: the same for every sweep, however many layouts it found."""
    from course.predict import predict
    from course.problem import Layout
    from course.sweep.why import REASONED

    layout = Layout()
    template = predict(dataclasses.replace(asked, layout=layout))
    return [
        *flat({"layout": plain(dataclasses.asdict(layout))}),
        *(f"why.{axis}" for axis in REASONED),
        *flat(template),
    ]
