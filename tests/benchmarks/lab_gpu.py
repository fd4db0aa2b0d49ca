"""One accelerator, all that one device can tell, in one go: for the first time somebody has one.

    python tests/benchmarks/lab_gpu.py FOLDER [--rehearse] [--largest 64]

Measured are all cells of the protocol that one device takes, by Torch, with a trace, and a sweep over the micro-batch
that goes on until memory runs out. Printed are the best matmul beside the catalog's peak, the sweep with MFU, step and
peak memory beside what the course predicts of each, and what the trace says. The report and the trace stay in FOLDER.
Without an accelerator `--rehearse` goes the same way on a CPU, for which the catalog has no peak and nothing is
predicted. It was rehearsed so, and run on no GPU yet.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course import compare
from course.lab import devices, figures, protocol
from course.lab.describe import machine_text
from course.lab.finish import CONVENTION
from course.lab.measuring import measure
from course.lab.report import Report
from course.traces import read_trace

GIB = 2**30


def requests(here: dict[str, object], largest: int, trace: Path) -> list[protocol.Request]:
    """The protocol's cells of one device, and larger micro-batches, each of which may run out of memory."""
    found = [cell for cell in protocol.cells(here, engine="torch", grid=False) if cell["devices"] == 1]
    batches = {cell["global_batch_sequences"] for cell in found if cell["family"] == "strong"}
    batch = max(batches)
    while batch < largest:
        batch *= 2
        found.append(protocol.training(here, "torch", "strong", 1, batch, steps=12))
    return [{**cell, "trace": str(trace)} if cell["id"] == "torch.strong.1.gb8" else cell for cell in found]


def peaks(report: Report) -> None:
    """The matmuls, and their best beside the data sheet's figure."""
    rates = {}
    for cell in report.of("matmul", "torch"):
        shape = "x".join(map(str, cell["request"]["shape"]))
        rates[shape] = cell["matmul_flops_per_s"]
        print(f"  matmul {shape:18} {rates[shape] / 1e12:10.3f} TFLOP/s")
    said = report.of("matmul", "torch")[0]["peak_flops_per_s"]
    if said["catalog"] is None:
        print(f"  the best {max(rates.values()) / 1e12:.3f} TFLOP/s; the catalog has no peak of this device")
    else:
        share = max(rates.values()) / said["catalog"]
        print(f"  the best is {share:.1%} of the catalog's {said['catalog'] / 1e12:.1f} TFLOP/s")


def sweep(report: Report, file: Path) -> None:
    """Step, MFU and memory over the micro-batch, measured beside predicted."""
    found = {one.row["id"]: one for one in compare.compare(compare.read(file).rows).rows}
    print(f"  MFU by {CONVENTION}; predicted of an accelerator of the catalog, with its own constants")
    for cell in report:
        if cell["family"] != "strong" or cell["request"]["loader_s"]:
            continue
        ours, batch = found[cell["id"]], cell["micro_batch"]
        if cell["status"] not in ("ok", "noisy"):
            print(f"  {batch:4} sequences: {cell['status']}, {cell['reason']}")
            continue
        said = f"nothing predicted ({ours.skipped})"
        if ours.predicted_time_s is not None:
            fits = "" if ours.fits else ", predicted not to fit"
            said = (f"predicted {1e3 * ours.predicted_time_s:.1f} ms, MFU {ours.mfu or 0:.1%}, "
                    f"{ours.peak_gib or 0:.2f} GiB{fits}")  # fmt: skip
        print(
            f"  {batch:4} sequences: {1e3 * figures.median_s(cell):8.1f} ms, MFU {cell['mfu'] or 0:6.1%}, "
            f"{cell['peak_memory_gib'] or 0:6.2f} GiB, held {(cell['held_bytes'] or 0) / GIB:.2f}; {said}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="go on where there is no accelerator")
    parser.add_argument("--largest", type=int, default=64, help="the largest micro-batch that is tried")
    arguments = parser.parse_args()
    here = devices()
    print(machine_text(here))
    if here["kind"] != "gpu" and not arguments.rehearse:
        print("No accelerator is here. --rehearse goes on with the CPU.")
        return 1
    arguments.folder.mkdir(parents=True, exist_ok=True)
    file, trace = arguments.folder / "lab-gpu.json", arguments.folder / "lab-gpu-trace.json.gz"
    report = measure(file, requests=requests(here, arguments.largest, trace))
    print("\nThe peak")
    peaks(report)
    print("\nThe micro-batch")
    sweep(report, file)
    print("\nThe trace of torch.strong.1.gb8")
    if trace.exists():
        try:
            print(read_trace(trace).summary())
        except Exception as reason:  # a lone CPU rank sends nothing; whatever else, the figures above stay
            print(f"  {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
