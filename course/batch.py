"""Step 5, batch: tokens of a step, accumulation, pipeline bubbles, and which layouts may be compared at all.

>>> bubble_share(pipeline=16, interleave=1, micro_batches=16), bubble_share(pipeline=16, interleave=8, micro_batches=16)
(0.4838709677419355, 0.1048951048951049)
"""

from __future__ import annotations

import sympy as sp

from course.formula import Formula, Step
from course.problem import Run
from course.symbols import symbols

D_p, B, T, G, B_g, P_p, v, M, i = symbols(
    "data", "micro_batch", "sequence_length", "accumulation", "global_batch_sequences", "pipeline", "interleave",
    "micro_batches", "stage",
)  # fmt: skip
t_max, t_sum = symbols("slowest_stage_time", "sum_stage_times")

tokens_per_step = Formula(
    "tokens_per_step",
    "S_step",
    D_p * B * T * G,
    "token",
    "tokens of one optimizer step",
    source="the first seed document",
    derivation=(
        Step("replicas, sequences of each micro-batch, micro-batches, tokens of a sequence", D_p * (B * G) * T),
    ),
)

accumulation = Formula(
    "accumulation",
    "G",
    B_g / (D_p * B),
    "1",
    "micro-batches each replica accumulates to keep the global batch",
    assumptions=("a whole number, or the layout is not legal",),
    derivation=(
        Step("tokens of a step divided by what one micro-batch of all replicas holds", B_g * T / (D_p * B * T)),
    ),
)

bubble_share = Formula(
    "bubble_share",
    "b",
    (P_p - 1) / (v * M + P_p - 1),
    "1",
    "idle share of the whole pipeline time (idle over total)",
    assumptions=("even stages, free sends", "GPipe and 1F1B with v = 1; interleaved with v chunks a stage"),
    source="GPipe (Huang et al. 2019) for v = 1; Narayanan et al. 2021",
    derivation=(
        Step(
            "a stage works M times and waits for P_p - 1 chunks, each one v-th of its work",
            ((P_p - 1) / v) / (M + (P_p - 1) / v),
        ),
    ),
)

bubble_overhead = Formula(
    "bubble_overhead",
    "b_ideal",
    (P_p - 1) / (v * M),
    "1",
    "idle time over ideal time: the other published definition",
    source="Narayanan et al. 2021",
    derivation=(
        Step("from the share b of the total: b/(1 - b)", bubble_share.expression / (1 - bubble_share.expression)),
    ),
)

pipeline_time = Formula(
    "pipeline_time",
    "t_pipe",
    M * t_max + (t_sum - t_max) / v,
    "s",
    "time of all micro-batches through a pipeline: the slowest stage sets the pace, the others fill and drain",
    assumptions=(
        "exact for even stages, and for uneven ones at v = 1 when the slowest stage is last",
        "elsewhere an upper bound",
        "sends between stages are free or hidden",
    ),
    derivation=(
        Step("the slowest stage's work, and one v-th of what the rest takes", M * t_max + t_sum / v - t_max / v),
    ),
)

gpipe_in_flight = Formula(
    "gpipe_in_flight",
    "m",
    M,
    "1",
    "micro-batches a stage holds under GPipe: all forward passes come first",
)

one_f_one_b_in_flight = Formula(
    "one_f_one_b_in_flight",
    "m",
    sp.Min(M, P_p - i),
    "1",
    "micro-batches stage i holds under 1F1B: it starts backward as soon as one returns",
    assumptions=("i counts from 0: the first stage waits for P_p forwards, the last for one",),
    derivation=(
        Step("forwards before the first backward: P_p - 1 - i to warm up and one more", sp.Min(P_p - 1 - i + 1, M)),
    ),
)

interleaved_in_flight = Formula(
    "interleaved_in_flight",
    "m",
    sp.Min(v * M, 2 * (P_p - 1 - i) + (v - 1) * P_p + 1) / v,
    "1",
    "micro-batches stage i holds under the interleaved schedule, counted in whole stages (chunks over v)",
    source="Megatron-LM's order: 2(P_p - 1 - i) + (v - 1)P_p chunks to warm up",
    derivation=(
        Step(
            "in chunks: the warm-up and the one at work, never more than there are",
            sp.Min(2 * P_p - 2 - 2 * i + v * P_p - P_p + 1, M * v) / v,
        ),
    ),
)

IN_FLIGHT = {"gpipe": gpipe_in_flight, "1f1b": one_f_one_b_in_flight, "interleaved": interleaved_in_flight}


def comparable(first: Run, second: Run) -> tuple[list[str], list[str]]:
    """May two runs be compared as layouts of one training?

    Returns:
        (reasons why not, local changes worth recording). The first list empty means yes.

    What must be equal: model, global batch, sequence length, tokens, precision and state recipe. What may differ, and
    changes kernels without changing the update: micro-batch, accumulation, degrees, recomputation, schedule.
    """
    reasons = []
    for what, left, right in (
        ("model", first.model, second.model),
        ("global_batch_sequences", first.training.global_batch_sequences, second.training.global_batch_sequences),
        ("sequence_length", first.training.sequence_length, second.training.sequence_length),
        ("tokens", first.training.tokens, second.training.tokens),
        ("precision", first.training.precision, second.training.precision),
        ("state", first.training.state.id, second.training.state.id),
    ):
        if left != right:
            shown = "" if what == "model" else f": {left} and {right}"
            reasons.append(f"{what} differs{shown}; the two do not finish the same work")
    changes = []
    if first.layout is not None and second.layout is not None:
        for name in ("data", "tensor", "pipeline", "micro_batch", "recompute", "schedule", "interleave", "sharding"):
            left, right = getattr(first.layout, name), getattr(second.layout, name)
            if left != right:
                changes.append(f"{name}: {left} -> {right}")
    return reasons, changes
