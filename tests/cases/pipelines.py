"""Cases about bubbles and the order of work."""

from __future__ import annotations

from cases.book import case
from course import batch
from course.simulators.pipeline import BACKWARD, FORWARD, Work, gpipe, one_forward_one_backward, simulate


@case("PIP-01")
def _(given):
    shape = {"pipeline": given["p"], "micro_batches": given["M"], "interleave": 1}
    return {"bubble_over_ideal": batch.bubble_overhead(**shape), "bubble_fraction": batch.bubble_share(**shape)}


@case("PIP-03")
def _(given):
    bubble = batch.bubble_share(pipeline=given["p"], micro_batches=given["M"], interleave=given["v"])
    return {"bubble": bubble, "efficiency": 1 - bubble}


@case("PIP-07")
def _(given):
    shape = {"pipeline": given["p"], "interleave": 1}
    bubble = batch.bubble_share(micro_batches=given["M"], **shape)
    fewest = batch.bubble_share.solve("micro_batches", equals=given["limit"], **shape).value
    return {"bubble": bubble, "reachable": bubble <= given["limit"], "min_M": fewest}


@case("PIP-09")
def _(given):
    times = [f + b for f, b in zip(given["F"], given["B"], strict=True)]

    def took(slowest: float) -> float:
        return batch.pipeline_time(
            micro_batches=given["M"], interleave=1, slowest_stage_time=slowest, sum_stage_times=sum(times)
        )

    step, stages_ = took(max(times)), len(times)
    even = 1 - batch.bubble_share(pipeline=stages_, micro_batches=given["M"], interleave=1)
    return {"step": step, "efficiency": given["M"] * sum(times) / stages_ / step, "balanced_formula_eff": even}


@case("PIP-11")
def _(given):
    stages_, number = given["p"], given["mb"] - 1  # the row counts from 1
    scheduled = simulate(one_forward_one_backward(stages_, given["M"]), forward=1, backward=1)
    backward = Work(BACKWARD, number)
    early = gpipe(stages_, given["mb"])
    for order in early:  # nothing before it but the forwards it needs
        order.sort(
            key=lambda work: (work.kind != FORWARD, -work.micro_batch if work.kind == BACKWARD else work.micro_batch)
        )
    bound = simulate(early, forward=1, backward=1)
    return {"dependency_bound": bound.start(0, backward), "in_1f1b": scheduled.start(0, backward)}
