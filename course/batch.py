"""Step 5, batch: tokens of a step, accumulation, pipeline bubbles, and which layouts may be compared at all.

>>> bubble_share(pipeline=16, interleave=1, micro_batches=16), bubble_share(pipeline=16, interleave=8, micro_batches=16)
(0.4838709677419355, 0.1048951048951049)
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from course.errors import UserError
from course.formula import Formula, Step
from course.problem import Run
from course.symbols import symbols

D_p, B, T, G, B_g, P_p, v, M, i = symbols(
    "data", "micro_batch", "sequence_length", "accumulation", "global_batch_sequences", "pipeline", "interleave",
    "micro_batches", "stage",
)  # fmt: skip
t_max, t_sum = symbols("slowest_stage_time", "sum_stage_times")
t_F, t_B, t_W, f_max, b_max, t_send = symbols(
    "stage_forward_time", "input_gradient_time", "weight_gradient_time", "slowest_forward_time",
    "slowest_backward_time", "send_time",
)  # fmt: skip

tokens_per_step = Formula(
    "tokens_per_step",
    "S_step",
    D_p * B * T * G,
    "token",
    "tokens of one optimizer step",
    source="the first source document",
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
        "with other uneven stages and one ratio of backward to forward on all of them: exact under GPipe, an upper "
        "bound under 1F1B; where the ratio differs from stage to stage both may take longer",
        "under interleaving an upper bound if a stage's chunks are equal and backward is one multiple of forward; with "
        "a heavy first and a heavy last chunk (embedding and head) the simulator finds more",
        "sends between stages are free or hidden",
    ),
    derivation=(
        Step("the slowest stage's work, and one v-th of what the rest takes", M * t_max + t_sum / v - t_max / v),
    ),
)

gpipe_time = Formula(
    "gpipe_time",
    "t_gpipe",
    t_sum + (M - 1) * (f_max + b_max) + 2 * (P_p - 1) * t_send,
    "s",
    "time of all micro-batches through a pipeline under GPipe, whatever its stages and sends take",
    assumptions=("every send takes the same time, and no stage waits while it sends",),
    derivation=(
        Step(
            "one micro-batch there and back, sends included, then M - 1 more paced by the slowest of each pass",
            (t_sum + 2 * P_p * t_send - 2 * t_send) + (M - 1) * f_max + (M - 1) * b_max,
        ),
    ),
)

zero_bubble_time = Formula(
    "zero_bubble_time",
    "t_ZBH1",
    M * (t_F + t_B + t_W) + (P_p - 1) * (t_F + t_B) - (sp.Min(M, P_p) - 1) * t_W,
    "s",
    "time of all micro-batches under ZB-H1, which delays the gradients of the weights",
    assumptions=(
        "even stages, free sends",
        "exact where t_W is at most t_F and at most t_B; elsewhere it may be too short",
    ),
    source="Qi et al. 2023, schedule ZB-H1",
    derivation=(
        Step(
            "1F1B, less the weight gradients that the first micro-batch no longer meets on its way back, one for each "
            "stage but one, and less those that the last stage puts off until the others have their turn",
            (M + P_p - 1) * (t_F + t_B + t_W) - (P_p - 1) * t_W - (sp.Min(M, P_p) - 1) * t_W,
        ),
    ),
)

synchronous_floor = Formula(
    "synchronous_floor",
    "t_floor",
    M * (t_F + t_B + t_W) + (P_p - 1) * t_F,
    "s",
    "a time no schedule undercuts that has one chunk a stage, if all stages begin and end the step together",
    assumptions=(
        "even stages, free sends",
        "every stage waits for the update of all before its next step",
        "one chunk a stage, and all micro-batches enter at the same end; with v chunks P_p - 1 forwards of a chunk "
        "remain, t_F/v each",
        "reached by ZB-H1 where t_B = t_W <= t_F and there are at least P_p micro-batches; elsewhere a lower bound",
    ),
    derivation=(
        Step(
            "the last stage waits for P_p - 1 forwards, and then has its own work to do",
            (P_p - 1) * t_F + M * t_F + M * t_B + M * t_W,
        ),
    ),
)

zero_bubble_in_flight = Formula(
    "zero_bubble_in_flight",
    "m",
    sp.Min(M, P_p),
    "1",
    "micro-batches any stage holds under ZB-H1, held until the gradients of the weights are made",
    assumptions=(
        "counted whole until the end: a program may free a part once the input's gradient is made, but then keeps the "
        "gradients of its matmuls' outputs; with flash attention, fused kernels and a gated MLP that is as many bytes",
    ),
    source="Qi et al. 2023: delayed so that no stage holds more than the first one does under 1F1B",
    derivation=(Step("stage i holds P_p - i as under 1F1B, and i more whose weights wait", sp.Min(P_p - i + i, M)),),
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

IN_FLIGHT = {
    "gpipe": gpipe_in_flight, "1f1b": one_f_one_b_in_flight, "interleaved": interleaved_in_flight,
    "zero-bubble": zero_bubble_in_flight,
}  # fmt: skip
"""What a stage holds by the schedule of a run file. There zero-bubble is ZB-H1, which holds what 1F1B's first stage
does; ZB-H2, the order of the same paper that leaves no bubble, holds up to 2 P_p - 1 micro-batches and no barrier."""


PLAN = ("data", "micro_batch", "sequence_length", "accumulation")


def held(plans: Mapping[str, Mapping[str, int]]) -> float:
    """The tokens of one step that every plan holds.

    Args:
        plans: name to `data`, `micro_batch` (sequences), `sequence_length` (tokens) and `accumulation`.

    Raises:
        UserError: a plan lacks one of these, or does other work than the first one; the text says what to change.

    >>> one = {"data": 8, "micro_batch": 2, "sequence_length": 4096, "accumulation": 4}
    >>> held({"8 replicas": one, "16 replicas": {**one, "data": 16, "accumulation": 2}})
    262144.0
    """
    if not plans:
        raise UserError("There is no plan to compare; give each a name and its degrees.")
    for name, plan in plans.items():
        missing = [field for field in PLAN if field not in plan]
        if missing:
            raise UserError(f"{name} lacks {missing[0]}; a plan has {', '.join(PLAN)}.")
    (first, base), *others = plans.items()
    sequences = base["data"] * base["micro_batch"] * base["accumulation"]
    for name, plan in others:
        if plan["sequence_length"] != base["sequence_length"]:
            raise UserError(
                f"{name} has sequences of {plan['sequence_length']:,} tokens and {first} of "
                f"{base['sequence_length']:,}; attention then does other work for each token. "
                "Give both the same sequence_length."
            )
        at_once = plan["data"] * plan["micro_batch"]
        if at_once * plan["accumulation"] != sequences:
            whole = sequences % at_once == 0
            repair = f"With accumulation {sequences // at_once} it would hold {sequences:,}."
            never = f"Its {at_once:,} sequences at once do not divide {sequences:,}: change data or micro_batch."
            raise UserError(
                f"{name} takes {at_once * plan['accumulation']:,} sequences a step and {first} {sequences:,}: not the "
                f"same work. {repair if whole else never}"
            )
    return float(tokens_per_step(**{field: base[field] for field in PLAN}))


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
