"""From peak to MFU: what waits, slow kernels, repetition and unused devices take, so that all parts add up to 1.

The account is in device-seconds of one step: R_held devices are held for t_step, R of them take part.
"""

from __future__ import annotations

from course.formula import Formula, Step
from course.symbols import symbols

F_model, F_executed, R, R_held, C, t_busy, t_wait, t_step = symbols(
    "model_flops", "executed_flops", "devices", "held_devices", "peak_flops_per_s", "busy_time", "waiting_time",
    "step_time",
)  # fmt: skip

unused_share = Formula(
    "unused_share",
    "w_unused",
    (R_held - R) / R_held,
    "1",
    "share of the peak that held devices outside the job would have had: spares, broken nodes, a remainder",
    derivation=(Step("all held, without those that take part", 1 - R / R_held),),
)

waiting_share = Formula(
    "waiting_share",
    "w_wait",
    R * t_wait / (R_held * t_step),
    "1",
    "share of the peak lost while the devices of the job wait: exposed communication, bubbles, or the host",
    assumptions=("time in which a device waits and computes nothing; hidden communication is none",),
    derivation=(Step("share of the step, of the devices that take part", t_wait / t_step * (R / R_held)),),
)

slow_kernels_share = Formula(
    "slow_kernels_share",
    "w_slow",
    (R * t_busy - F_executed / C) / (R_held * t_step),
    "1",
    "share of the peak lost while devices compute, but below their peak: small or memory-bound kernels",
    derivation=(
        Step("time spent computing, less the time the same FLOPs take at peak, of all device time",
             R * (t_busy - F_executed / (R * C)) / (R_held * t_step)),
    ),
)  # fmt: skip

repeated_share = Formula(
    "repeated_share",
    "w_again",
    (F_executed - F_model) / (R_held * C * t_step),
    "1",
    "share of the peak spent on FLOPs executed again to save memory",
    derivation=(
        Step("executed, less model work, over what all held devices could have done",
             F_executed / (R_held * C * t_step) - F_model / (R_held * C * t_step)),
    ),
)  # fmt: skip

_step = t_busy + t_wait

mfu_of_parts = Formula(
    "mfu_of_parts",
    "MFU",
    F_model / (R_held * C * (t_busy + t_wait)),
    "1",
    "what is left of the peak: MFU over every device held, when a step is t_busy of computing and t_wait of waiting",
    derivation=(
        Step(
            "1, less unused devices, waiting, slow kernels and repetition",
            1
            - (R_held - R) / R_held
            - R * t_wait / (R_held * _step)
            - (R * t_busy - F_executed / C) / (R_held * _step)
            - (F_executed - F_model) / (R_held * C * _step),
        ),
    ),
)
