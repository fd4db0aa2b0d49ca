"""Record a small step of two processes that communicate over gloo: `python record_gloo.py FOLDER`.

Step 0: rank 1 comes late to a blocking all-reduce, so rank 0 waits for it doing nothing. Step 1: rank 0 starts the same
all-reduce, and multiplies matrices while rank 1 is late. Step 2: an all-gather, a broadcast and a message.
"""

from __future__ import annotations

import sys
import time
from multiprocessing import get_context

NUMBERS, LATE_S = 1000, 0.25


def step(number: int, rank: int) -> None:
    import torch
    from torch import distributed

    numbers = torch.ones(NUMBERS)
    if number < 2:
        if rank == 1:
            time.sleep(LATE_S)
            distributed.all_reduce(numbers)
        elif number == 0:
            distributed.all_reduce(numbers)
        else:
            work, square = distributed.all_reduce(numbers, async_op=True), torch.ones(256, 256)
            end = time.perf_counter() + LATE_S
            while time.perf_counter() < end:
                for _ in range(4):
                    square = torch.mm(square, square).clamp(-1, 1)
            work.wait()
    else:
        distributed.all_gather([torch.empty(NUMBERS) for _ in range(2)], numbers)
        distributed.broadcast(numbers, 0)
        (distributed.send(numbers, 1) if rank == 0 else distributed.recv(numbers, 0))
    distributed.barrier()


def run(rank: int, folder: str) -> None:
    import torch
    from torch import distributed
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for number in range(3):  # the first of everything is slow
        step(number, rank)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        distributed.barrier()  # starting the profiler takes one rank longer than the other
        for number in range(3):
            with record_function(f"lab_step#{number}"):
                step(number, rank)
    recorded.export_chrome_trace(f"{folder}/rank{rank}.json")
    distributed.destroy_process_group()


if __name__ == "__main__":
    workers = [get_context("spawn").Process(target=run, args=(rank, sys.argv[1])) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(max(worker.exitcode or 0 for worker in workers))
