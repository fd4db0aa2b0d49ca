"""From MFU to days, accelerator-hours and money: every device held, for as long as it is held."""

from __future__ import annotations

from course.formula import Formula, Step
from course.symbols import symbols
from course.units import FLOP, HOUR, SECOND, TOKEN

F_model, R, C, t, S, P, MFU, gamma, p_h, n_s, t_lost, t_held = symbols(
    "model_flops", "devices", "peak_flops_per_s", "time", "tokens", "parameters", "mfu", "goodput",
    "price_per_accelerator_hour", "interruptions", "lost_time", "held_time",
)  # fmt: skip

run_time = Formula(
    "run_time",
    "t",
    F_model / (MFU * R * C),
    "s",
    "time the run needs at a given MFU, before lost time is added",
    derivation=(Step("MFU solved for the time", F_model / (R * C) / MFU),),
)

wall_time = Formula(
    "wall_time",
    "t_wall",
    t / gamma,
    "s",
    "time from start to end when a share gamma of it makes progress",
)

accelerator_hours = Formula(
    "accelerator_hours",
    "H",
    R * t / gamma / (3600 * SECOND / HOUR),
    "device*hour",
    "accelerator-hours: every device held, for as long as it is held",
    assumptions=("R counts every device held, spares too; t is productive time",),
    derivation=(Step("devices times wall time, in hours", R * wall_time.expression / (3600 * SECOND / HOUR)),),
)

cost = Formula(
    "cost",
    "cost",
    p_h * R * t / gamma / (3600 * SECOND / HOUR),
    "currency",
    "price of the run",
    derivation=(Step("accelerator-hours at their price", p_h * accelerator_hours.expression),),
)

devices_for_deadline = Formula(
    "devices_for_deadline",
    "R",
    6 * P * S * FLOP / TOKEN / (MFU * C * t * gamma),
    "device",
    "devices that finish by a deadline t at a given MFU and goodput, by the short rule 6PS",
    assumptions=(
        "the MFU is one by 6PS: for another convention scale R by its FLOPs of a token over 6P",
        "t is all the time up to the deadline; gamma t of it is productive",
    ),
    derivation=(
        Step("run_time with the lost time in it, solved for R", 6 * P * S * FLOP / TOKEN / (C * MFU) / (gamma * t)),
    ),
)

goodput_of_stops = Formula(
    "goodput_of_stops",
    "gamma",
    1 - n_s * t_lost / t_held,
    "1",
    "goodput when each of n_s stops costs t_lost: work since the last checkpoint, and the restart",
    assumptions=("stops do not overlap", "nothing else is lost"),
    derivation=(Step("held time without what the stops took, over held time", (t_held - n_s * t_lost) / t_held),),
)
