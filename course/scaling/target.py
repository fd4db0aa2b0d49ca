"""What a larger batch costs: steps and sequences to one target, by the model of a critical batch.

>>> given = {"least_steps": 100, "least_sequences": 51200}
>>> steps_to_target(**given, global_batch_sequences=512), sequences_to_target(**given, global_batch_sequences=512)
(200.0, 102400.0)
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.symbols import symbols

n_min, e_min, B_c, B_g, t_step, D = symbols(
    "least_steps", "least_sequences", "critical_batch", "global_batch_sequences", "step_time", "scaled_devices"
)
_n = sp.Symbol("n", positive=True)
_SOURCE = "McCandlish et al. 2018, sections 2.2 to 2.3"
_MODEL = (
    "a model, good to some per cent: one noise of the gradient over the whole run, and the best learning rate for "
    "each batch",
    "steps are valid updates, sequences are those they used",
)

gain_share = Formula(
    "gain_share",
    "eta_B",
    B_g / (B_g + B_c),
    "1",
    "progress of one step with its best learning rate over that of a step on the exact gradient; for plain gradient "
    "descent also that learning rate over the largest useful one",
    assumptions=(
        "loss is a parabola along the step; noise of a mean of B_g sequences is that of one, divided by B_g",
        "adaptive optimizers change the rate more slowly, with a power of the batch between 1/2 and 1",
    ),
    source=_SOURCE,
    derivation=(
        Step("signal over signal and noise, where B_c is the batch at which both are equal", 1 / (1 + B_c / B_g)),
    ),
)

critical_batch = Formula(
    "critical_batch",
    "B_c",
    e_min / n_min,
    "sequence",
    "critical batch: there a run takes twice the fewest steps and twice the fewest sequences",
    assumptions=_MODEL,
    source=_SOURCE,
)

steps_to_target = Formula(
    "steps_to_target",
    "n",
    n_min + e_min / B_g,
    "1",
    "optimizer steps to the target with this batch",
    assumptions=_MODEL,
    source=_SOURCE,
    derivation=(
        Step("each step makes a share of the largest progress", n_min / gain_share.expression.subs(
            B_c, critical_batch.expression)),
        Step("(n/n_min - 1)(e/e_min - 1) = 1 with e = n B_g, solved for n",
             sp.solve((_n / n_min - 1) * (_n * B_g / e_min - 1) - 1, _n)[-1]),
    ),
)  # fmt: skip

sequences_to_target = Formula(
    "sequences_to_target",
    "e",
    e_min + n_min * B_g,
    "sequence",
    "sequences to the target with this batch: the valid work of the run",
    assumptions=_MODEL,
    source=_SOURCE,
    derivation=(Step("steps times the batch", B_g * steps_to_target.expression),),
)

time_to_target = Formula(
    "time_to_target",
    "t_target",
    (n_min + e_min / B_g) * t_step,
    "s",
    "productive time to the target",
    assumptions=(*_MODEL, "every step takes as long; evaluations and start left out"),
    derivation=(Step("steps times their time", steps_to_target.expression * t_step),),
)

device_time_to_target = Formula(
    "device_time_to_target",
    "H_target",
    (n_min + e_min / B_g) * t_step * D,
    "device*s",
    "device time to the target",
    assumptions=time_to_target.assumptions,
    derivation=(Step("devices times the time", time_to_target.expression * D),),
)
