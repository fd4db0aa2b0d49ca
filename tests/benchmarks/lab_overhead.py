"""What the lab's harness adds to a step: the timed loop of the Torch engine against the same loop by hand, one rank.

    python tests/benchmarks/lab_overhead.py [STEPS] [BATCH]

Both run in one process, in alternated blocks, on models of their own with the same weights and batch. Printed are both
medians, both tenth percentiles, and their ratios: the lab's over by hand. Noise of the machine meets both alike; below
a ratio of 1.02 the harness costs nothing that could be seen.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
from torch.nn import functional

from course.lab.torch_engine.device import Device
from course.lab.torch_engine.model import whole
from course.lab.torch_engine.program import LEARNING_RATE, batch
from course.lab.torch_engine.ranks import Ranks
from course.lab.torch_engine.request import read
from course.lab.torch_engine.timing import Lane, spread
from course.lab.torch_engine.training import Training

BLOCK = 8


def main(steps: int = 240, sequences: int = 4) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.setdefault("MASTER_PORT", "29511")
    cell = {"id": "lab", "family": "strong", "global_batch_sequences": sequences, "steps": steps, "profile": False}
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(Path(folder), 60.0)
        request = read(cell, 1)
        lane: Lane = Training(request, ranks, 0).lanes[0]

        device = Device(0)
        model = whole(request.shape, request.sequence_length, 0).to(device.torch)
        model.positions = model.positions.to(device.torch)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        rows = batch(request, 0).to(device.torch)
        inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

        def by_hand(count: int, into: list[float]) -> None:
            for _ in range(count):
                start = time.perf_counter()
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
                loss.backward()
                optimizer.step()
                device.synchronize()
                into.append(time.perf_counter() - start)

        hand: list[float] = []
        by_hand(5, [])
        # The lab's own clock would leave out what lies between its steps: whole blocks are timed as well.
        lab_blocks, hand_blocks = [], []
        for block in range(steps // BLOCK):
            for is_lab in (True, False) if block % 2 == 0 else (False, True):
                start = time.perf_counter()
                if is_lab:
                    lane.run(ranks, BLOCK)
                    lab_blocks.append((time.perf_counter() - start) / BLOCK)
                else:
                    by_hand(BLOCK, hand)
                    hand_blocks.append((time.perf_counter() - start) / BLOCK)
        ranks.close()
    print(f"{len(hand)} steps each of {sequences} sequences, in turns of {BLOCK}, one rank on {device.name}")
    for name, lab, own in (("a step", lane.own, hand), ("a step by its block", lab_blocks, hand_blocks)):
        one, other = spread(lab), spread(own)
        print(
            f"{name}: lab {1e3 * one['p50']:.3f} ms (p10 {1e3 * one['p10']:.3f}), by hand {1e3 * other['p50']:.3f} ms "
            f"(p10 {1e3 * other['p10']:.3f}); ratio of medians {one['p50'] / other['p50']:.4f}, "
            f"of p10 {one['p10'] / other['p10']:.4f}"
        )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
