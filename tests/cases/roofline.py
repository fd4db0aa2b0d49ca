"""Cases about arithmetic intensity and time of one operation."""

from __future__ import annotations

from cases.book import GIGA, TERA, case
from course import estimate, mfu, overlap, place


@case("ROF-01", direction="not one of ours")
def _(given):
    wide = {"inner": 1e12, "columns": 1e12}  # so wide that activations do not count

    def rows(weight_bytes: float, peak: float) -> float:
        found = estimate.matmul_intensity.solve("rows", equals=peak / given["W"], activation_bytes=weight_bytes, **wide)
        above = estimate.matmul_intensity(rows=2 * float(found.expression), activation_bytes=weight_bytes, **wide)
        reach = {"peak_flops_per_s": peak, "memory_bytes_per_s": given["W"]}
        assert estimate.attainable(intensity=above, **reach) == peak  # above it compute is the limit
        return float(found.expression)

    return {"bf16": rows(2, given["C"]), "int8_weights": rows(1, given["C"]), "int8": rows(1, given["C8"])}


@case("ROF-03")
def _(given):
    device = {"peak_flops_per_s": given["C"] * TERA, "memory_bytes_per_s": given["W"] * TERA}
    # the given FLOPs are multiply-adds, two FLOPs each
    work = estimate.matmul_flops(rows=given["batch"], inner=given["flops"], columns=1)
    intensity = work / estimate.state_bytes(
        parameters=given["params"], weight_bytes=given["bytes"], gradient_bytes=0, optimizer_bytes=0
    )
    ridge = estimate.attainable.solve("intensity", equals=device["peak_flops_per_s"], **device).value
    return {
        "intensity": intensity,
        "ridge": ridge,
        "attainable": estimate.attainable(intensity=intensity, **device) / TERA,
    }


@case("ROF-05")
def _(given):
    moved = 3 * 4 * given["n"]  # read x, read y, write y
    return {"GBs": place.algorithm_bandwidth(payload_bytes=moved, communication_time=given["ms"] * 1e-3) / GIGA}


@case("ROF-07")
def _(given):
    one, both = (
        place.algorithm_bandwidth(payload_bytes=size, communication_time=given["ms"] * 1e-3) / GIGA
        for size in (given["B"], 2 * given["B"])
    )
    return {"sum_GBs": both, "per_direction_GBs": one}


@case("ROF-09")
def _(given):
    n = given["n"]
    flops = estimate.matmul_flops(rows=n, inner=n, columns=n)

    def took(element_bytes: float, peak: float) -> float:
        moved = flops / estimate.matmul_intensity(rows=n, inner=n, columns=n, activation_bytes=element_bytes)
        return estimate.operation_time(
            kernel_flops=flops, kernel_bytes=moved, peak_flops_per_s=peak, efficiency=1, memory_bytes_per_s=given["W"]
        )

    launch = given["launch_us"] * 1e-6
    slow, fast = (
        overlap.step_upper_bound(compute_time=t, communication_time=launch)
        for t in (took(2, given["C"]), took(1, 2 * given["C"]))
    )
    faster = mfu.speedup(baseline_time=slow, scaled_time=fast)
    return {"roofline_us": took(2, given["C"]) * 1e6, "with_launch_us": slow * 1e6, "speedup": faster}
