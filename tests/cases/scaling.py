"""Cases about rates on more devices."""

from __future__ import annotations

from cases.book import case
from course import batch, mfu


def _efficiency(rate: float, base: float, devices: float, base_devices: float = 1) -> float:
    """Of rates of the same work: time is one over the rate."""
    return mfu.scaling_efficiency(
        baseline_time=1 / base, baseline_devices=base_devices, scaled_time=1 / rate, scaled_devices=devices
    )


@case("SCA-01", e4="e4")
def _(given):
    r = given["r"]
    return {
        "e4": _efficiency(r["4"], r["1"], 4),
        "e8": _efficiency(r["8"], r["1"], 8),
        "step_4_to_8": _efficiency(r["8"], r["4"], 8, 4),
    }


@case("SCA-03")
def _(given):
    first, second = given["t1"] * given["g1"], given["t2"] * given["g2"]
    hours = [
        mfu.accelerator_hours(devices=n, time=1 / rate, goodput=1)
        for n, rate in ((given["g1"], first), (given["g2"], second))
    ]
    return {
        "total1": first,
        "total2": second,
        "speedup": mfu.speedup(baseline_time=1 / first, scaled_time=1 / second),
        "efficiency": _efficiency(second, first, given["g2"], given["g1"]),
        "gpu_hours_per_token": hours[1] / hours[0],
    }


@case("SCA-05")
def _(given):
    n, small = given["n"], given["t1_small"]
    one = {"baseline_devices": 1}
    eight_small = sum(small for _ in range(n))  # the whole batch on one device, in small pieces
    return {
        "strong": mfu.scaling_efficiency(baseline_time=given["t1"], scaled_time=given["t8"], scaled_devices=n, **one),
        "weak": mfu.scaling_efficiency(baseline_time=eight_small, scaled_time=given["t8"], scaled_devices=n, **one),
        "kernel_share": mfu.scaling_efficiency(
            baseline_time=given["t1"], scaled_time=eight_small, scaled_devices=1, **one
        ),
    }


@case("SCA-07")
def _(given):
    def samples(data: int) -> float:
        return batch.tokens_per_step(
            data=data, micro_batch=given["mb"], sequence_length=1, accumulation=given["steps1"]
        )

    steps = batch.accumulation(global_batch_sequences=samples(1), data=given["n"], micro_batch=given["mb"])
    return {"same_work_steps": steps, "samples_1": samples(1), "samples_4_unchanged": samples(given["n"])}


@case("SCA-11")
def _(given):
    return {f"e{size}": _efficiency(given[f"b{size}"]["8"], given[f"b{size}"]["1"], 8) for size in (20, 40)}


@case("SCA-15")
def _(given):
    faster = mfu.speedup(baseline_time=given["a"], scaled_time=given["b"])
    return {"input_share": 1 - 1 / faster, "speedup": faster}


@case("SCA-17")
def _(given):
    r = given["r"]
    return {
        "e16": _efficiency(r["16"], r["8"], 16, 8),
        "e384": _efficiency(r["384"], r["8"], 384, 8),
        "step_64_128": _efficiency(r["128"], r["64"], 128, 64),
    }
