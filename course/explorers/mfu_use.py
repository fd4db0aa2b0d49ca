"""The explorers of step 6 about one run: utilisation by `conventions`, its `losses`, and a log with `faults`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from course import catalog, examples
from course import estimate as counting
from course import mfu as step
from course.errors import UserError
from course.explorers.base import Choice, Control, Explorer, Flag, Number, View
from course.explorers.parts import FLOPS, parts
from course.explorers.shared import device_named, devices_offered, models
from course.mfu.logs import token_flops, tokens
from course.pictures import mfu as pictures
from course.pictures.estimate import FLOP_COLOURS, short
from course.pictures.live import Section, Stacks
from course.pictures.mfu import share_of_peak
from course.predict import predict
from course.problem import Run, RunFileError, load

__all__ = ["conventions", "conventions_view", "faults", "faults_view", "losses", "losses_view"]

WIDTH = 5.8
RECOMPUTE = {"none": "none", "selective": "selective", "full": "full"}
CONVENTIONS = (counting.six_ps, counting.palm, counting.full_attention, counting.causal_attention, counting.executed)


# ---------------------------------------------------------------- conventions
def conventions_view(model: str, device: str, rate: float, sequence_length: int, recompute: str) -> View:
    """Utilisation of one device's tokens a second by the five conventions.

    Args:
        model: of the catalog.
        device: of the catalog; its dense 16-bit peak counts.
        rate: tokens a second of one device.
        sequence_length: tokens of a sequence.
        recompute: "none", "selective" or "full"; it matters to `executed` alone.
    """
    shape, peak = catalog.model(model), device_named(device).peak_flops_per_s
    counted = counting.count(shape)
    values = asdict(shape) | counting.shape(shape) | {
        "parameters": counted.active, "matmul_parameters": counted.matmul_active, "sequence_length": sequence_length,
        "full_recompute": float(recompute == "full"), "core_recompute": float(recompute == "selective"),
    }  # fmt: skip
    counts = {formula.name: parts(formula, FLOPS, values) for formula in CONVENTIONS}
    spent = {name: {part: of[part] for part in FLOP_COLOURS if part in of} for name, of in counts.items()}
    share = {
        name: {part: float(step.step_mfu(flops_per_token=flops, tokens_per_step=rate, devices=1, step_time=1,
                                         peak_flops_per_s=peak)) for part, flops in of.items()}
        for name, of in spent.items()
    }  # fmt: skip
    total = {name: sum(of.values()) for name, of in share.items()}
    model_work = {name: value for name, value in total.items() if name != "executed"}
    low, high = min(model_work, key=lambda n: model_work[n]), max(model_work, key=lambda n: model_work[n])
    above = [name for name, value in total.items() if value > 1]
    verdict = (
        f" Above 100 % by {', '.join(above)}: no device can; check the rate, the peak and the convention."
        if above
        else ""
    )
    return View(
        f"At {rate:,g} tokens/s a device MFU is {share_of_peak(total[low])} ({low}) to {share_of_peak(total[high])} "
        f"({high}), and HFU {share_of_peak(total['executed'])}.{verdict}",
        ("convention", "FLOP/token", "share of peak"),
        tuple((name, short(sum(of.values())), share_of_peak(total[name])) for name, of in spent.items()),
        {
            "finding": "One rate, five utilisations",
            "sections": [Section("share of the dense peak", share, share_of_peak)],
        },
    )


def conventions(*, ask: str | None = None, **values: Any) -> Explorer:
    """One rate by the five conventions.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("model", "model", "mpt-70b", models()),
        Choice("device", "device", "h100-sxm", devices_offered()),
        Number("rate", "tokens/s a device", 1007.0, 10, 1e5, logarithmic=True),
        Number("sequence_length", "sequence (tokens)", 2048, 256, 2**18, whole=True, logarithmic=True),
        Choice("recompute", "recomputation", "full", RECOMPUTE),
    )
    return Explorer(
        controls, conventions_view, lambda: Stacks(FLOP_COLOURS, WIDTH, 4.0), ask=ask, values=values
    )  # fmt: skip


# ---------------------------------------------------------------- losses
@cache
def _example(name: str) -> Run:
    return load(examples.path(name))


@cache
def _predicted(name: str, recompute: str, micro_batch: int) -> dict[str, Any]:
    run = _example(name)
    assert run.layout is not None
    layout = replace(run.layout, recompute=recompute, micro_batch=micro_batch)
    found = predict(replace(run, layout=layout))
    if not found["legal"]:
        raise RunFileError(f"This layout cannot run: {found['reasons'][0]}")
    return found


def losses_view(run: str, recompute: str, micro_batch: int, spare: int) -> View:
    """Where the peak of all held devices goes, by the predicted parts of a step.

    Args:
        run: an example of the course.
        recompute: "none", "selective" or "full".
        micro_batch: sequences of a micro-batch.
        spare: devices held beside those of the run.
    """
    if spare < 0:
        raise UserError(f"spare must be 0 or more; it is {spare}.")
    document, cluster = _predicted(run, recompute, micro_batch), _example(run).cluster
    took, per_token = document["step"], document["flops_per_token"]
    held = {"devices": cluster.devices, "held_devices": cluster.devices + spare}
    work = {
        "executed_flops": per_token["executed"] * document["tokens_per_step"],
        "model_flops": per_token["full_attention"] * document["tokens_per_step"],
    }
    exposed = sum(axis["exposed_s"] for axis in took["communication"].values())
    waits = {"host and optimizer": took["other_s"], "communication": exposed, "bubbles": took["bubble_s"]}
    peak = {"peak_flops_per_s": cluster.accelerator.peak_flops_per_s}
    lost = {
        "unused devices": step.unused_share(**held),
        **{name: step.waiting_share(**held, waiting_time=time, step_time=took["time_s"])
           for name, time in waits.items()},
        "slow kernels": step.slow_kernels_share(
            **held, **peak, busy_time=took["compute_s"], executed_flops=work["executed_flops"],
            step_time=took["time_s"]),
        "recomputation": step.repeated_share(
            held_devices=held["held_devices"], **work, **peak, step_time=took["time_s"]),
    }  # fmt: skip
    left = step.mfu_of_parts(
        held_devices=held["held_devices"], model_flops=work["model_flops"], **peak, busy_time=took["compute_s"],
        waiting_time=sum(waits.values()),
    )  # fmt: skip
    lost = {name: float(value) for name, value in lost.items()}
    worst = max(lost, key=lambda name: lost[name])
    fits = "" if document["memory"]["fits"] else " It does not fit in memory."
    return View(
        f"MFU over all {held['held_devices']:,} devices held is {share_of_peak(left)}; {worst} takes most, "
        f"{share_of_peak(lost[worst])} of the peak.{fits}",
        ("part", "share of peak", "time of a step"),
        (
            *((name, share_of_peak(value), f"{waits[name]:.2f} s" if name in waits else "")
              for name, value in lost.items()),
            ("MFU (full_attention)", share_of_peak(left), f"{took['time_s']:.2f} s in all"),
        ),
        {"finding": f"Predicted: {share_of_peak(left)} of the peak is left", "losses": lost},
    )  # fmt: skip


def losses(*, ask: str | None = None, **values: Any) -> Explorer:
    """From peak to MFU, part by part, for the example runs as the course predicts them.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    names = tuple(examples.names())

    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        layout = _example(now["run"]).layout
        if name != "run" or layout is None:
            return {}
        return {"recompute": layout.recompute, "micro_batch": layout.micro_batch}

    controls = (
        Choice("run", "run", "gpt-3-175b-1024-a100", {name: name for name in names}),
        Choice("recompute", "recomputation", "full", RECOMPUTE),
        Choice("micro_batch", "micro-batch", 1, {str(size): size for size in (1, 2, 4)}),
        Number("spare", "spare devices held", 0, 0, 512, step=8, whole=True),
    )
    return Explorer(
        controls, losses_view, lambda: pictures.Waterfall(WIDTH, 3.8, 1.6), follow=follow, ask=ask, values=values
    )  # fmt: skip


# ---------------------------------------------------------------- a log with faults
LOG = step.Log(
    "mixtral-8x7b", "h100-sxm", devices=16, step_time=5.0, sequence_length=4096, data=16, accumulation=8,
    recompute="full", real=0.8,
)  # fmt: skip
"""Sixteen H100 train a mixture; a fifth of its tokens are padding, and every layer is recomputed."""
SELDOM = 0.6
"""A dense model's MFU above this is rare on GPUs: of the course's records few reach it."""
FLAGS = {fault.replace(" ", "_").replace("'", ""): fault for fault in step.FAULTS}


def faults_view(step_time: float, **chosen: bool) -> View:
    """What a program prints that makes the chosen faults, beside the right MFU.

    Args:
        step_time: seconds of a step.
        chosen: the faults, by name with underscores.
    """
    if not step_time > 0:
        raise UserError(f"step_time must be above 0 seconds; it is {step_time:g}.")
    log = replace(LOG, step_time=step_time)
    made = [FLAGS[name] for name, on in chosen.items() if on]
    right, wrong = step.utilisation(log), step.utilisation(log, made)
    said = f"{wrong / right:.3g} times the right one" if made else "nothing is wrong with it"
    verdict = ""
    if wrong > SELDOM:
        verdict = " Above 100 %: it cannot be." if wrong > 1 else " So much is seldom reached: it wants an explanation."
    elif made and wrong > 0.2:
        verdict = " It looks plausible."
    rows = {"MFU": {"right": right}, "printed": {"by this log": wrong}}
    return View(
        f"The log prints an MFU of {share_of_peak(wrong)}, {said}.{verdict}",
        ("", "printed", "right"),
        (
            ("tokens a step", f"{tokens(log, made):,.0f}", f"{tokens(log):,.0f}"),
            ("FLOP a token", short(token_flops(log, made)), short(token_flops(log))),
            ("MFU", share_of_peak(wrong), share_of_peak(right)),
        ),
        {
            "finding": f"Printed {share_of_peak(wrong)}, true {share_of_peak(right)}",
            "sections": [Section("share of peak", rows, share_of_peak, (1.0, "peak"))],
        },
    )


def faults(*, ask: str | None = None, **values: Any) -> Explorer:
    """Nine faults in the arithmetic of one log, each with a switch.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls: tuple[Control, ...] = (
        Number("step_time", "step (s)", LOG.step_time, 2.0, 20.0, step=0.5),
        *(Flag(name, fault, False) for name, fault in FLAGS.items()),
    )
    return Explorer(
        controls, faults_view, lambda: Stacks(pictures.LOG_COLOURS, WIDTH, 2.6, 1.0), ask=ask, values=values
    )  # fmt: skip
