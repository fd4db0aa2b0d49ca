"""Oracles of the roofline: arrays that are really multiplied, and two engines side by side."""

from __future__ import annotations

import random
from itertools import product

import numpy as np

from course.simulators.engine import Task, run
from course.simulators.shapes import Matmul
from oracles.checking import Answers, Check, agrees


def arrays_of_a_matmul() -> Answers:
    for (rows, inner, columns), kind in product(((2, 3, 5), (40, 7, 3), (3, 50, 9), (64, 64, 64)), ("f2", "f4", "f8")):
        left, right = np.zeros((rows, inner), kind), np.zeros((inner, columns), kind)
        moved = left.nbytes + right.nbytes + (left @ right).nbytes
        yield (
            {
                "rows": rows,
                "inner": inner,
                "columns": columns,
                "activation_bytes": left.itemsize,
            },
            Matmul("", rows, inner, columns).flops / moved,
        )


def _two_engines(flops: float, flops_per_s: float, moved: float, bytes_per_s: float) -> float:
    """Arithmetic and memory work side by side on one operation; it ends when both are done."""
    tasks = [Task("arithmetic", "units", flops / flops_per_s), Task("memory", "bus", moved / bytes_per_s)]
    return float(run(tasks).makespan)


def rate_of_two_engines() -> Answers:
    for flops, moved, peak, bandwidth in ((8e9, 2e9, 3e12, 1e12), (9e9, 1e7, 3e12, 1e12), (5.0, 4.0, 3.0, 2.0)):
        rate = flops / _two_engines(flops, peak, moved, bandwidth)
        yield {"peak_flops_per_s": peak, "memory_bytes_per_s": bandwidth, "intensity": flops / moved}, rate


def time_of_two_engines() -> Answers:
    draw = random.Random(10)
    for _ in range(12):
        flops, moved = draw.uniform(1, 9) * 1e12, draw.uniform(1, 90) * 1e9
        peak, share, bandwidth = draw.uniform(1, 9) * 1e14, draw.uniform(0.3, 0.9), draw.uniform(0.2, 2) * 1e12
        yield (
            {
                "kernel_flops": flops,
                "kernel_bytes": moved,
                "peak_flops_per_s": peak,
                "efficiency": share,
                "memory_bytes_per_s": bandwidth,
            },
            _two_engines(flops / share, peak, moved, bandwidth),
        )


def square_matmul_of_512() -> Answers:
    # openxla/xla #40680: 2 x 512^3 FLOPs and 3 x 512^2 x 2 bytes at 312 TFLOP/s and 2 TB/s
    given = {"kernel_flops": 2 * 512**3, "kernel_bytes": 3 * 512 * 512 * 2, "efficiency": 1}
    yield given | {"peak_flops_per_s": 312e12, "memory_bytes_per_s": 2e12}, 0.8603701e-6


ORACLES: dict[str, list[Check]] = {
    "estimate.matmul_intensity": [agrees(arrays_of_a_matmul)],
    "estimate.attainable": [agrees(rate_of_two_engines)],
    "estimate.operation_time": [agrees(time_of_two_engines), agrees(square_matmul_of_512, 1e-6)],
}
