"""Every failure of a measurement, provoked for real: what the user sees, and that no process is left.

Not among the tests, for it takes minutes:

    python tests/benchmarks/lab_failures.py [--only hang]

For each failure three cells are asked for: a good one, the one that fails, a good one. Printed are the failed cell's
status and sentence, what became of the other two, the seconds it took, and the processes that were left (none). Ranks
are real Torch workers under torchrun, on CPUs with gloo; `lab_saboteur.py` makes one of them fail. Where no engine is
installed is played by hiding the packages. Ctrl-C and a killed launcher are sent to a launcher of their own.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from course.errors import UserError
from course.lab import launch, machine, protocol
from course.lab.launch import left_running
from course.lab.measuring import measure

SABOTEUR = Path(__file__).with_name("lab_saboteur.py")
SABOTAGE = {
    "exit": "a rank dies with an exit code", "silent": "a rank leaves without a word", "kill": "a rank is killed",
    "raise": "a rank raises", "memory": "a rank runs out of memory", "hang": "a rank hangs",
}  # fmt: skip
REFUSED = {
    "too many": "more ranks than cores (times are marked, losses hold)", "odd": "an odd device count",
    "divide": "a batch that does not divide",
}  # fmt: skip
TIMEOUT_S = 5.0


def planner(engine: str, ranks: int, config: Path, threads: int = 1, pin: Sequence[int] = ()) -> launch.Plan:
    """As the lab's own plan, with the saboteur for the worker."""
    made = launch.plan(engine, ranks, config, threads, pin)
    commands = [[*command[: command.index(f"course.lab.{engine}_engine") - 1], str(SABOTEUR), str(config)]
                for command in made.commands]  # fmt: skip
    return launch.Plan(commands, made.environments, made.torchrun, made.pin)


def cell(batch: int, devices: int = 2, **more: Any) -> protocol.Request:
    return protocol.training({"kind": "cpu"}, "torch", "strong", devices, batch, steps=6, **more)


def sabotage(what: str) -> None:
    title = SABOTAGE[what]
    began = time.monotonic()
    report = measure(
        requests=[cell(2), cell(4, sabotage={"do": what, "rank": 1}), cell(8)], planner=planner, attempts=1, show=False,
        collective_timeout_s=TIMEOUT_S,
    )  # fmt: skip
    bad = report["torch.strong.2.gb4"]
    others = [report[f"torch.strong.2.gb{batch}"]["status"] for batch in (2, 8)]
    tell(title, f"{bad['status']}: {bad['reason']}", f"before it {others[0]}, after it {others[1]}", began)


def refusals(what: str) -> None:
    began = time.monotonic()
    cores = machine.devices()["cores"]
    asked = {"too many": cell(2 * (cores + 1), cores + 1), "odd": cell(8, 3, layout={"data": 2}), "divide": cell(8, 3)}[
        what
    ]
    report = measure(requests=[asked, cell(4)], attempts=1, show=False)
    bad = report[asked["id"]]
    tell(
        REFUSED[what], f"{bad['status']}: {bad['reason']}", f"after it {report['torch.strong.2.gb4']['status']}", began
    )


def missing(engine: str) -> None:
    began = time.monotonic()
    found = machine.find_spec
    machine.find_spec = lambda name, package=None: None if name == engine else found(name, package)
    try:
        measure(engine=engine, show=False)
        said = "measured all the same"
    except UserError as error:
        said = str(error)
    finally:
        machine.find_spec = found
    tell(f"no {engine}", said, "the command ends with 2", began)


def interrupted(name: signal.Signals) -> None:
    """A launcher that is stopped in the middle of a cell."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "lab.json")
        command = [
            sys.executable,
            "-m",
            "course",
            "lab",
            "measure",
            "--quick",
            "--engine",
            "torch",
            "--output",
            str(output),
        ]
        launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not output.exists() and launcher.poll() is None:
            time.sleep(0.1)
        time.sleep(1)
        workers = psutil.Process(launcher.pid).children(recursive=True)
        launcher.send_signal(name)
        code = launcher.wait(timeout=60)
        psutil.wait_procs(workers, timeout=10)
        kept = output.read_text(encoding="utf-8").count('"status"') if output.exists() else 0
    then = f"{len(workers)} processes below it, {kept} cells kept"
    tell(f"{name.name} to the launcher", f"exit code {code}", then, began, launcher.pid)


def tell(title: str, said: str, then: str, began: float, launcher: int | None = None) -> None:
    left = left_running(launcher)
    print(f"{title}  [{time.monotonic() - began:.0f} s]\n  {said}\n  {then}; processes left: {len(left)}", flush=True)
    if left:
        print(f"  LEFT RUNNING: {[process.pid for process in left]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {**dict.fromkeys(SABOTAGE, sabotage), **dict.fromkeys(REFUSED, refusals)}
    last = ("torch", "jax", "SIGINT", "SIGTERM", "SIGKILL")
    parser.add_argument("--only", choices=(*kinds, *last))
    only = parser.parse_args().only
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    for what, provoke in kinds.items():
        if only in (None, what):
            provoke(what)
    for engine in ("torch", "jax"):
        if only in (None, engine):
            missing(engine)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if only in (None, name.name):
            interrupted(name)


if __name__ == "__main__":
    main()
