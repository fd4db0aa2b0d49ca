"""Step 2, constrain: what one device must hold, what does not fit first, what remedies it and what the remedy costs.

The order of the questions is fixed: optimizer state, gradients, weights, one layer, activations, then time and budget.

>>> one = {"micro_batch": 1, "sequence_length": 8192, "in_flight": 1}
>>> activation_memory(token_layer_bytes=520192, stage_layers=126, **one) / 2**30
500.0625
"""

from __future__ import annotations

from dataclasses import dataclass

from course.estimate import count, flops_per_token, layer_input_bytes, pick, shape, token_layer_bytes
from course.formula import Formula, Step
from course.problem import Run
from course.symbols import symbols
from course.units import DEVICE

A, B, T, L_s, m, P_L, b_w, b_g, T_p, z_2, z_3, n = symbols(
    "token_layer_bytes", "micro_batch", "sequence_length", "stage_layers", "in_flight", "layer_parameters",
    "weight_bytes", "gradient_bytes", "tensor", "shard_gradients", "shard_weights", "ranks",
)  # fmt: skip

activation_memory = Formula(
    "activation_memory",
    "M_act",
    A * B * T * L_s * m / DEVICE,
    "byte/device",
    "activations a device keeps for backward: of each of its layers, for every micro-batch in flight",
    derivation=(
        Step(
            "tokens of a micro-batch, bytes of a token and layer, layers, micro-batches", B * T * A * (m * L_s) / DEVICE
        ),
    ),
)

gathered_weights = Formula(
    "gathered_weights",
    "M_gather",
    2 * z_3 * (1 - 1 / n) * P_L * b_w / T_p / DEVICE,
    "byte/device",
    "whole weights under ZeRO-3: the layer at work and the next one, fetched ahead; its own share is there already",
    derivation=(Step("two layers, less the n-th a rank stores", 2 * (P_L - P_L / n) * z_3 * b_w / T_p / DEVICE),),
)

whole_gradients = Formula(
    "whole_gradients",
    "M_grad",
    z_2 * (1 - 1 / n) * P_L * b_g / T_p / DEVICE,
    "byte/device",
    "gradients of one layer before they are reduced, when gradients are sharded",
    derivation=(Step("one layer, less the n-th a rank keeps", (P_L - P_L / n) * z_2 * b_g / T_p / DEVICE),),
)


@dataclass(frozen=True)
class Limit:
    """One question of the order: `need` against `have`, whether it `fits`, the `remedy` and what that costs."""

    name: str
    need: float
    have: float
    unit: str
    fits: bool
    remedy: str
    cost: str


def limits(run: Run, shards: int = 1) -> list[Limit]:
    """What fits and what does not, in the order of the questions, for one device or with the state divided by `shards`.

    The memory questions are cumulative: gradients are asked about beside the weights, the optimizer beside both. So the
    first that does not fit names the part to shard, and a later one that still does not fit names the next.
    Activations are those of one sequence, every layer, before any recomputation.

    Args:
        run: the question; its layout is not used.
        shards: into how many parts the model state is divided (a preview of step 3).

    >>> from course.problem import load
    >>> from course.examples import path
    >>> [limit.name for limit in limits(load(path("llama-3.1-405b-16384-h100"))) if not limit.fits][:2]
    ['optimizer state', 'gradients']
    """
    model, state, cluster = run.model, run.training.state, run.cluster
    total = count(model).total
    have = cluster.accelerator.memory_bytes
    weights = state.weights * total / shards
    gradients = state.all_gradients * total / shards
    optimizer = state.optimizer * total / shards
    widths = shape(model)
    layer = (total - _outside_layers(run)) / model.layers
    per_token = token_layer_bytes(
        **pick(
            token_layer_bytes, widths, sequence_length=run.training.sequence_length, activation_bytes=2, tensor=1,
            sequence_sharded=0, core_recompute=0, unfused_attention=float(not run.software.flash_attention),
            dropout=float(run.software.dropout),
        )
    )  # fmt: skip
    sequence = {"micro_batch": 1, "sequence_length": run.training.sequence_length}
    activations = activation_memory(token_layer_bytes=per_token, stage_layers=model.layers, in_flight=1, **sequence)
    inputs = layer_input_bytes(hidden=model.hidden, activation_bytes=2, sequence_sharded=0, tensor=1)
    recomputed = activation_memory(token_layer_bytes=inputs, stage_layers=model.layers, in_flight=1, **sequence)
    ratios = flops_per_token(model, run.training.sequence_length, "full")
    extra = ratios["executed"] / ratios["full_attention"] - 1
    rows = [
        ("optimizer state", weights + gradients + optimizer, "shard optimizer state (ZeRO-1)",
         "an all-gather of updated weights in place of half the all-reduce: no extra bytes"),
        ("gradients", weights + gradients, "shard gradients as well (ZeRO-2)",
         "a reduction for every micro-batch that leaves the device"),
        ("weights", weights, "shard weights as well (ZeRO-3), or split layers over tensor and pipeline ranks",
         "half more traffic, for every micro-batch; or activation collectives in every layer; or bubbles"),
        ("one layer", (state.weights + state.all_gradients) * layer + per_token * run.training.sequence_length,
         "split the layer (tensor parallelism)", "activation collectives in every layer"),
        ("activations", activations, "smaller micro-batch, recomputation, or sequence and tensor parallelism",
         f"full recomputation keeps {recomputed / 2**30:.1f} GiB and adds {extra:.0%} to the FLOPs executed"),
    ]  # fmt: skip
    return [Limit(name, need, have, "bytes", need <= have, remedy, price) for name, need, remedy, price in rows]


def _outside_layers(run: Run) -> float:
    widths = shape(run.model)
    return float(widths["embedding_tables"] * run.model.vocabulary * run.model.hidden + widths["outer_vectors"])
