"""Step 6, MFU: useful work over peak, wall time, accelerator-hours, cost, speedup and efficiency.

>>> round(mfu(model_flops=400e12, devices=1, peak_flops_per_s=989.4e12, time=1), 4)
0.4043
"""

from __future__ import annotations

from course.errors import UserError
from course.formula import Formula, Step
from course.symbols import symbols
from course.units import FLOP, HOUR, SECOND, TOKEN

F_model, R, C, t, S, P, F_t, t_step, S_step, MFU, gamma, p_h = symbols(
    "model_flops", "devices", "peak_flops_per_s", "time", "tokens", "parameters", "flops_per_token", "step_time",
    "tokens_per_step", "mfu", "goodput", "price_per_accelerator_hour",
)  # fmt: skip
t_0, t_D, D_0, D = symbols("baseline_time", "scaled_time", "baseline_devices", "scaled_devices")

mfu = Formula(
    "mfu",
    "MFU",
    F_model / (R * C * t),
    "1",
    "model FLOPs utilization: FLOPs the model needs over what the held devices could have done",
    assumptions=(
        "dense peak of the precision executed",
        "recomputation is not counted: with `executed` FLOPs this is HFU",
    ),
    source="the first seed document",
    derivation=(Step("reached rate of one device, over its peak", F_model / t / R / C),),
)

step_mfu = Formula(
    "step_mfu",
    "MFU",
    F_t * S_step / (R * C * t_step),
    "1",
    "MFU of one optimizer step, with the FLOPs of a token by a named convention",
    derivation=(
        Step(
            "the FLOPs of a step in place of those of a run",
            mfu.expression.subs([(F_model, F_t * S_step), (t, t_step)]),
        ),
    ),
)

tokens_per_s = Formula(
    "tokens_per_s", "S_rate", S_step / t_step, "token/s", "tokens a second of the whole cluster",
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
    derivation=(
        Step("run_time with the lost time in it, solved for R", 6 * P * S * FLOP / TOKEN / (C * MFU) / (gamma * t)),
    ),
)

speedup = Formula(
    "speedup",
    "s",
    t_0 / t_D,
    "1",
    "speedup of the same work",
    assumptions=("both times are for the same work unit",),
    source="the first seed document",
)

scaling_efficiency = Formula(
    "scaling_efficiency",
    "E",
    t_0 * D_0 / (t_D * D),
    "1",
    "strong-scaling efficiency against any feasible baseline: speedup over the ideal D/D_0",
    source="both seed documents",
    derivation=(
        Step("speedup over D/D_0", speedup.expression / (D / D_0)),
        Step("device time of the baseline over device time of the run", (t_0 * D_0) / (t_D * D)),
    ),
)

CAUSES_ABOVE_ONE = (
    "a sparse or wrong peak, FLOPs of all devices over one device's peak, gradient accumulation or padding counted "
    "twice, or the full attention square under a kernel that skips half of it"
)


def refuse_above_one(utilisation: float, what: str = "MFU") -> float:
    """Return a utilisation of peak, or refuse one above 1 with the likely causes.

    Raises:
        UserError: the utilisation is above 1: no device exceeds its dense peak.

    >>> refuse_above_one(0.41)
    0.41
    """
    if utilisation > 1:
        raise UserError(f"{what} = {utilisation:.0%} of peak cannot be. Likely causes: {CAUSES_ABOVE_ONE}.")
    return utilisation


def ideal_speedup(baseline_devices: float, devices: float) -> float:
    """What perfect strong scaling would give: D/D_0.

    >>> ideal_speedup(64, 128)
    2.0
    """
    return devices / baseline_devices
