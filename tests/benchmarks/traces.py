"""How long a trace of 100 MB takes to read, and how much memory: a process of its own reads one that is made here.

Not among the tests, for it measures the machine as well: `python -m pytest -s tests/benchmarks/traces.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SIZE, SECONDS, BYTES = 100e6, 20.0, 2e9
LAYERS = 1000  # of a step: each launches a kernel and, now and then, a collective behind it
READ = """
import resource, sys, time
start = time.perf_counter()
from course.traces import read_trace
trace = read_trace(sys.argv[1])
figures = trace.compute_s, trace.exposed_s, len(trace.collectives), trace.summary()
took = time.perf_counter() - start
memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(took, time.process_time(), memory, len(trace.steps), *figures[:3])
"""


def write(path: Path) -> int:
    """A trace as PyTorch writes it: operators, launches, arrows, kernels. The number of its steps."""
    steps = number = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 8}, "traceEvents": [\n')
        while file.tell() < SIZE:
            at = 4_458_676_522_690.5 + 60.0 * number
            host = {"ph": "X", "pid": 1, "tid": 1}
            mark = {"cat": "user_annotation", "name": f"ProfilerStep#{steps}", "ts": at, "dur": 60.0 * LAYERS - 1}
            file.write(json.dumps({**host, **mark}))
            for _ in range(LAYERS):
                at, number = at + 60, number + 1
                ids = {"External id": number, "correlation": number}
                device = {"ph": "X", "cat": "kernel", "pid": 0, "ts": at + 30.25}
                shape = {"device": 0, "queued": 0, "context": 1, "registers per thread": 96, "shared memory": 87568,
                         "blocks per SM": 4.740741, "warps per SM": 75.851852, "grid": [512, 1, 1],
                         "block": [512, 1, 1], "est. achieved occupancy %": 75, **ids}  # fmt: skip
                some = [
                    {**host, "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 40.5,
                     "args": {"External id": number, "Record function id": 0, "Fwd thread id": 0, "Ev Idx": number}},
                    {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 5, "dur": 4.25,
                     "args": {"cbid": 211, **ids}},
                    {"ph": "s", "id": number, "pid": 1, "tid": 1, "ts": at + 5, "cat": "ac2g", "name": "ac2g"},
                    {**device, "tid": 7, "dur": 50.0, "args": {**shape, "stream": 7},
                     "name": "void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_bf16_128x256_ldg8>(Params)"},
                ]  # fmt: skip
                if number % 10 == 5:
                    told = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
                            "Group size": 8, "dtype": "BFloat16"}  # fmt: skip
                    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                    told |= {**shape, "stream": 20}
                    some.append({**device, "tid": 20, "dur": 55.0, "name": name, "args": told})
                file.write("".join(",\n" + json.dumps(one) for one in some))
            steps += 1
            file.write(",\n" if file.tell() < SIZE else "\n]}\n")
    return steps


def test_a_trace_of_a_hundred_megabytes(tmp_path: Path):
    path = tmp_path / "large.json"
    steps = write(path)
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    took, busy, memory, counted, compute, exposed, collectives = map(float, done.stdout.split())
    size = path.stat().st_size / 1e6
    print(f"\n{size:.0f} MB, {steps} steps: {busy:.1f} s of one core in {took:.1f} s, {memory / 1e9:.2f} GB at most")
    assert counted == steps - 1
    kernels = counted * LAYERS
    assert compute == pytest.approx(50e-6 * kernels, rel=1e-3)
    assert collectives == kernels / 10
    assert exposed == pytest.approx(5e-6 * collectives, rel=1e-3)  # 55 us of which 50 are behind a kernel
    assert busy < SECONDS and memory < BYTES  # reading waits for nothing: on a quiet machine the clock shows the same
