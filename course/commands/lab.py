"""Measure scaling on the devices that are there, and read what was measured."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Any

from course.commands._output import check_target, json_text, write
from course.errors import UserError

PLOTS = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course lab`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="devices|measure|show|job|merge")
    devices = actions.add_parser("devices", help="what is there to measure on", allow_abbrev=False)
    devices.add_argument("--json", action="store_true", help="print one JSON document and nothing else")

    measure = actions.add_parser("measure", help="measure, and write one report", allow_abbrev=False)
    measure.add_argument("--quick", action="store_true", help="fewer cells and steps: about a fifth of the time")
    measure.add_argument(
        "--engine", choices=("torch", "jax"), help="only this engine; all that are installed otherwise"
    )
    measure.add_argument(
        "--output", metavar="FILE.json", default="lab.json",
        help="the report, whole after every cell; what it holds already is not measured again; default lab.json",
    )  # fmt: skip
    measure.add_argument("--traces", metavar="DIR", help="record a trace of a few steps of each kind of communication")

    show = actions.add_parser("show", help="a report in tables", allow_abbrev=False)
    show.add_argument("report", metavar="FILE.json", help="a report of `course lab measure`")
    show.add_argument("--plot", metavar="FILE", help="draw it: .png, .svg or .pdf")
    show.add_argument("--json", action="store_true", help="print the report as one JSON document and nothing else")

    job = actions.add_parser("job", help="a launch file of the same measurement for a cluster", allow_abbrev=False)
    job.add_argument("kind", choices=("torchrun", "sbatch"), help="what starts the workers")
    job.add_argument("--nodes", type=int, default=1, metavar="N", help="hosts; default 1")
    job.add_argument("--devices-per-node", type=int, default=8, metavar="N", help="accelerators of a host; default 8")
    job.add_argument("--kind-of-device", choices=("gpu", "cpu"), default="gpu", help="default gpu")
    job.add_argument("--engine", choices=("torch", "jax"), default="torch", help="default torch")
    job.add_argument("--quick", action="store_true", help="fewer cells and steps")
    job.add_argument("--output", metavar="DIR", default=".", help="the folder the two files go to; default here")

    merge = actions.add_parser("merge", help="join the reports of several hosts", allow_abbrev=False)
    merge.add_argument("reports", nargs="+", metavar="FILE.json", help="reports, or folders that a job wrote to")
    merge.add_argument("--output", metavar="FILE.json", help="the joined report; printed when left out")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; 1 when a measurement ended with cells that failed."""
    done: int = {"devices": _devices, "measure": _measure, "show": _show, "job": _job, "merge": _merge}[
        arguments.action
    ](arguments)
    return done


def _devices(arguments: argparse.Namespace) -> int:
    from course.lab.describe import machine_text
    from course.lab.machine import devices, engines
    from course.lab.protocol import counts

    found = devices()
    if arguments.json:
        print(json_text(found))
        return 0
    print(machine_text(found))
    print(f"Topology: {found['topology']}")
    there = ", ".join(map(str, counts(found)))
    print(f"Curves have {there} devices.")
    has = engines()
    print(f"Engines: {', '.join(has)}." if has else "No engine: install torch or jax, or read the recorded reports.")
    return 0


def _measure(arguments: argparse.Namespace) -> int:
    from course.lab.describe import describe
    from course.lab.measuring import measure

    target = check_target(arguments.output, (".json",))

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {name: signal.signal(name, stop) for name in (signal.SIGTERM, signal.SIGHUP)}
    try:
        report = measure(target, engine=arguments.engine, quick=arguments.quick, traces=arguments.traces)
    finally:
        for name, old in before.items():
            signal.signal(name, old)
    print(describe(report))
    print(f"\nWrote {target}.")
    return 1 if any(cell["status"] in ("failed", "oom", "timeout") for cell in report) else 0


def _show(arguments: argparse.Namespace) -> int:
    from course.lab.describe import describe
    from course.lab.report import load

    target = check_target(arguments.plot, PLOTS, read=arguments.report) if arguments.plot is not None else None
    report = load(arguments.report)
    print(report.text().rstrip() if arguments.json else describe(report))
    if target is not None:
        import io

        from course.pictures.lab import overview

        drawn = io.BytesIO()
        overview(report).savefig(drawn, format=target.suffix.casefold().removeprefix("."))
        said = write(target, drawn.getvalue())
        if not arguments.json:
            print(f"\n{said}")
    return 0


def _job(arguments: argparse.Namespace) -> int:
    from course.lab.jobs import CONFIGURATION, configuration, job

    folder = Path(arguments.output)
    if not folder.is_dir():
        raise UserError(f"There is no folder {arguments.output}. Make it, or give another with --output.")
    config = configuration(
        arguments.nodes, arguments.devices_per_node, arguments.kind_of_device, arguments.engine, arguments.quick
    )
    text = job(
        arguments.kind, arguments.nodes, arguments.devices_per_node, engine=arguments.engine,
        device=arguments.kind_of_device,
    )  # fmt: skip
    print(write(folder / CONFIGURATION, json_text(config).encode() + b"\n"))
    print(write(folder / ("lab-job.sbatch" if arguments.kind == "sbatch" else "lab-job.sh"), text.encode()))
    start = "sbatch lab-job.sbatch" if arguments.kind == "sbatch" else "sh lab-job.sh"
    print(f"Copy both to a folder that all nodes see, with the course installed there, and type `{start}`.")
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    from course.lab.jobs import collect
    from course.lab.report import load, merge

    joined = merge(collect(name) if Path(name).is_dir() else load(name) for name in arguments.reports)
    if arguments.output is None:
        print(joined.text().rstrip())
        return 0
    target = check_target(arguments.output, (".json",))
    print(write(target, joined.text().encode()))
    return 0
