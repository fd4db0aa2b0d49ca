"""The held-out prediction, over and over: fit some cells, predict the others, measure them, count.

Not among the tests, for it takes minutes and wants a quiet machine:

    python tests/benchmarks/lab_heldout.py [--runs 10] [--batch 16] [--keep FOLDER] [--read FOLDER]

Each run measures matmuls, all-reduces and the strong cells of one and two devices anew (model and steps are the
protocol's). Two things are held out, one at a time: the batch on two devices (fitted on the other batches of one and
two devices), and the device count (fitted on one device and on matmuls at once; nothing tells of overlap). Printed
are, for each run, the measured and the predicted step, the error, whether the band holds the measured one, and the
noise; at the end the median errors and how often the band held. `--keep` writes the reports to a folder, `--read`
takes them from there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from course.lab import devices, protocol
from course.lab.fitting import fit, predict
from course.lab.measuring import measure
from course.lab.report import Report, load


def reports(arguments: argparse.Namespace) -> Iterator[Report]:
    if arguments.read is not None:
        yield from (load(file) for file in sorted(Path(arguments.read).glob("*.json")))
        return
    here = devices()
    wanted = [
        cell for cell in protocol.cells(here, engine="torch", families=("strong", "collective", "matmul"), grid=False)
        if cell["devices"] <= 2 and not cell["loader_s"] and cell["operation"] in (None, "all_reduce")
    ]  # fmt: skip
    for run in range(arguments.runs):
        output = None if arguments.keep is None else Path(arguments.keep, f"run-{run:02}.json")
        yield measure(output, requests=wanted, show=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16, help="the batch held out on two devices")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--read", metavar="FOLDER")
    arguments = parser.parse_args()
    held_id = f"torch.strong.2.gb{arguments.batch}"
    found: dict[str, list[tuple[float, bool, bool]]] = {"batch": [], "devices": []}
    for run, report in enumerate(reports(arguments)):
        held = report[held_id]
        measured = held["step_time_s"]["p50"]
        fits = {"batch": fit(report, leave_out=[held_id]), "devices": fit(report, devices=[1])}
        for what, fitted in fits.items():
            predicted = predict(fitted, held)
            inside, error = predicted.holds(measured), predicted.time_s / measured - 1
            found[what].append((abs(error), inside, held["status"] == "ok"))
            foreign = (held["noise"] or {}).get("foreign_cores")
            print(
                f"run {run + 1:2}, {what:7} held out: measured {1e3 * measured:6.1f} ms, predicted "
                f"{1e3 * predicted.time_s:6.1f} ({1e3 * predicted.low_s:.1f} to {1e3 * predicted.high_s:.1f}), "
                f"error {100 * error:+5.1f} %, {'in' if inside else 'OUTSIDE'}; {held['status']}, foreign {foreign}",
                flush=True,
            )
    for what, rows in found.items():
        quiet = [error for error, _, ok in rows if ok]
        said = f"{100 * statistics.median(quiet):.1f} %" if quiet else "-"
        middle = statistics.median(error for error, *_ in rows)
        print(
            f"{what} held out: median error {100 * middle:.1f} % of {len(rows)} runs, "
            f"{said} of {len(quiet)} quiet ones; inside the band {sum(inside for _, inside, _ in rows)} of {len(rows)}"
        )


if __name__ == "__main__":
    main()
