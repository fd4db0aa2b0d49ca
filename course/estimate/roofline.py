"""The roofline: what a resource lets an operation reach, as a rate and as a time."""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import FLOP

C, W_mem, intensity, F_k, Q, eta = symbols(
    "peak_flops_per_s", "memory_bytes_per_s", "intensity", "kernel_flops", "kernel_bytes", "efficiency"
)
m_r, k_r, n_r, b_a = symbols("rows", "inner", "columns", "activation_bytes")

matmul_intensity = Formula(
    "matmul_intensity",
    "I",
    2 * m_r * k_r * n_r * FLOP / (b_a * (m_r * k_r + k_r * n_r + m_r * n_r)),
    "FLOP/byte",
    "arithmetic intensity of a matmul that reads both matrices once and writes the third",
    derivation=(
        Step("divide above and below by the product of the three widths",
             2 * FLOP / (b_a * (1 / n_r + 1 / m_r + 1 / k_r))),
    ),
)  # fmt: skip

attainable = Formula(
    "attainable",
    "C_att",
    sp.Min(C, intensity * W_mem),
    "FLOP/s/device",
    "roofline: the rate an operation can reach, capped by memory bandwidth and by compute",
    source="the second source document; Williams, Waterman and Patterson 2009",
)

operation_time = Formula(
    "operation_time",
    "t_op",
    sp.Max(F_k / (C * eta), Q / W_mem),
    "s",
    "time of one operation: its FLOPs at the reached share of peak, or its bytes at memory bandwidth",
    source="roofline, read as a time",
    derivation=(Step("the slower of the two", sp.Max(Q / W_mem, F_k / C / eta)),),
)
