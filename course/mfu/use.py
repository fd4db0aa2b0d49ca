"""Useful work over peak (MFU), executed work over peak (HFU), and tokens a second."""

from __future__ import annotations

from course.errors import UserError
from course.formula import Formula, Step
from course.symbols import symbols

F_model, F_executed, R, C, t, F_t, t_step, S_step = symbols(
    "model_flops", "executed_flops", "devices", "peak_flops_per_s", "time", "flops_per_token", "step_time",
    "tokens_per_step",
)  # fmt: skip

mfu = Formula(
    "mfu",
    "MFU",
    F_model / (R * C * t),
    "1",
    "model FLOPs utilization: FLOPs the model needs over what the held devices could have done",
    assumptions=(
        "dense peak of the precision executed",
        "recomputation is not counted: with `executed` FLOPs this is HFU",
        "t is productive time; over all time held the share of the peak is MFU times goodput",
    ),
    source="the first source document",
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

hfu = Formula(
    "hfu",
    "HFU",
    F_executed / (R * C * t),
    "1",
    "hardware FLOPs utilization: all FLOPs executed over what the held devices could have done",
    assumptions=("dense peak of the precision executed",),
    source="the first source document; PaLM paper, appendix B",
    derivation=(
        Step("MFU, times the FLOPs executed for each one of the model",
             mfu.expression * F_executed / F_model),
    ),
)  # fmt: skip

CAUSES_ABOVE_ONE = (
    "too low a peak (another device's or precision's), FLOPs of all devices over one device's peak, tokens counted "
    "once for every device that shares them, padding, all experts of a mixture, recomputation, or the full attention "
    "square under a kernel that skips half of it"
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
