"""The order of the questions, and the first limit: what does not fit on one device, what remedies it, what that costs.

The order is fixed: optimizer state, gradients, weights, one layer, activations, then time and budget. Parts leave a
device in that order. So the first limit, the first question answered no, is the optimizer state whenever the state does
not fit whole; the last part that must leave with it says how far to shard.

>>> from course import catalog
>>> large = catalog.model("llama-2-70b"), catalog.accelerator("h100-sxm"), catalog.state("bf16-18"), 8192
>>> first_limit(*large), how_far(*large)
('optimizer state', 'weights')
"""

from __future__ import annotations

from dataclasses import dataclass

from course.constrain.activations import activation_memory, checkpointed_memory
from course.estimate import (
    LOGIT_BYTES,
    count,
    flops_per_token,
    latent_attention_saved,
    layer_input_bytes,
    logits_bytes,
    pick,
    shape,
    state_bytes,
    token_layer_bytes,
)
from course.estimate.model import latent
from course.problem import Accelerator, Model, Run, Software, State


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


def held(
    model: Model, state: State, sequence_length: int, micro_batch: int = 1, recompute: str = "none",
    software: Software | None = None, checkpoint_layers: int = 1,
) -> dict[str, float]:  # fmt: skip
    """Bytes one device would hold if it trained the whole model alone, by part.

    The parts are `weights`, `gradients`, `optimizer`, `activations` and `logits`. In a mixture a token's activations
    are those of the experts it passes, and of a copy of it for each of them; latent attention is kept wide.

    Args:
        model: the shape.
        state: bytes a parameter.
        sequence_length: tokens of a sequence.
        micro_batch: sequences worked on at once.
        recompute: "none", or "full": each layer keeps its input, and one layer at a time is whole.
        software: whether attention stores scores, dropout masks are kept, the loss is fused; by default the first two
            are no and the last is yes.
        checkpoint_layers: under full recomputation, layers between two saved inputs.

    >>> from course import catalog
    >>> parts = held(catalog.model("llama-3-8b"), catalog.state("bf16-18"), 8192)
    >>> {name: round(size / 2**30, 1) for name, size in parts.items()}
    {'weights': 15.0, 'gradients': 29.9, 'optimizer': 89.7, 'activations': 34.0, 'logits': 5.9}
    """
    widths, total = shape(model), count(model).total
    copies = 0
    if model.experts:
        widths["ffn"] = (model.experts_per_token + model.shared_experts) * model.expert_ffn
        copies = 2 * model.experts_per_token * model.hidden
    per_token = copies + token_layer_bytes(
        **pick(
            token_layer_bytes, widths, sequence_length=sequence_length, activation_bytes=2, tensor=1,
            sequence_sharded=0, core_recompute=0,
            unfused_attention=float(software is not None and not software.flash_attention),
            dropout=float(software is not None and software.dropout),
        )
    )  # fmt: skip
    if model.kv_lora:  # latent attention keeps other vectors than queries, keys, values and output of `head_size`
        plain = 2 * 2 * (model.heads + model.kv_heads) * model.head_size
        kept = latent(model) | {"heads": model.heads, "activation_bytes": 2, "latent_recompute": 0}
        per_token += latent_attention_saved(**pick(latent_attention_saved, kept)) - plain
    batch = {"micro_batch": micro_batch, "sequence_length": sequence_length}
    if recompute == "full":
        inputs = layer_input_bytes(hidden=model.hidden, activation_bytes=2, sequence_sharded=0, tensor=1)
        activations = checkpointed_memory(
            token_layer_bytes=per_token,
            input_bytes=inputs,
            stage_layers=model.layers,
            in_flight=1,
            checkpoint_layers=checkpoint_layers,
            **batch,
        )
    else:
        activations = activation_memory(token_layer_bytes=per_token, stage_layers=model.layers, in_flight=1, **batch)
    none = {"parameters": total, "weight_bytes": 0, "gradient_bytes": 0, "optimizer_bytes": 0}
    fused = software is None or software.fused_loss
    return {
        "weights": state_bytes(**none | {"weight_bytes": state.weights}),
        "gradients": state_bytes(**none | {"gradient_bytes": state.all_gradients}),
        "optimizer": state_bytes(**none | {"optimizer_bytes": state.optimizer}),
        "activations": activations,
        "logits": logits_bytes(
            vocabulary=model.vocabulary, tensor=1, logit_bytes=LOGIT_BYTES["fused" if fused else "unfused"], **batch
        ),
    }


def layer_parameters(model: Model) -> float:
    """Parameters of one layer: those of the model less tables and what else lies outside, divided by the layers.

    >>> from course import catalog
    >>> layer_parameters(catalog.model("llama-3-8b")) / 1e6
    218.112
    """
    widths = shape(model)
    outside = widths["embedding_tables"] * model.vocabulary * model.hidden + widths["outer_vectors"]
    return float((count(model).total - outside) / model.layers)


def _failing(model: Model, accelerator: Accelerator, state: State, sequence_length: int) -> list[str]:
    """The questions that one device answers with no, in the order in which they are asked."""
    parts, have = held(model, state, sequence_length), accelerator.memory_bytes
    kept = parts["weights"] + parts["gradients"]
    whole = kept + parts["optimizer"]
    layer = (state.weights + state.all_gradients) * layer_parameters(model) + parts["activations"] / model.layers
    asked = {"optimizer state": whole, "gradients": kept, "weights": parts["weights"], "one layer": layer}
    if whole <= have:  # beside a state that must leave, a sequence is asked about again once it has
        asked["activations"] = sum(parts.values())
    return [name for name, need in asked.items() if need > have]


def first_limit(model: Model, accelerator: Accelerator, state: State, sequence_length: int) -> str:
    """The first question, in the fixed order, that one device answers with no.

    "optimizer state" whenever weights, gradients and optimizer state do not fit together, whatever else does not;
    "activations" when they do and one sequence beside them does not ("one layer" when not even that layer's part of
    it does); "time" when everything fits.

    Args:
        model: the shape.
        accelerator: whose whole memory is asked, without a margin.
        state: bytes a parameter.
        sequence_length: tokens of the one sequence.

    >>> from course import catalog
    >>> first_limit(catalog.model("llama-3.1-405b"), catalog.accelerator("h100-sxm"), catalog.state("bf16-18"), 8192)
    'optimizer state'
    """
    return next(iter(_failing(model, accelerator, state, sequence_length)), "time")


def how_far(model: Model, accelerator: Accelerator, state: State, sequence_length: int) -> str:
    """The last question answered with no: how far down the order parts must leave one device.

    "optimizer state" when weights and gradients fit, "gradients" when only the weights do, "weights" when only one
    layer does, "one layer" when not even that does; "activations" and "time" as in `first_limit`, whose arguments it
    takes.

    >>> from course import catalog
    >>> how_far(catalog.model("llama-3-8b"), catalog.accelerator("h100-sxm"), catalog.state("bf16-18"), 8192)
    'optimizer state'
    """
    failing = _failing(model, accelerator, state, sequence_length)
    if failing == ["one layer", "activations"]:
        return "one layer"
    return failing[-1] if failing else "time"


def limits(run: Run, shards: int = 1) -> list[Limit]:
    """What fits and what does not, in the order of the questions, for one device or with the state divided by `shards`.

    The memory questions are cumulative: gradients are asked about beside the weights, the optimizer beside both. So the
    first that does not fit names the part to shard, and a later one that still does not fit names the next.
    Activations are those of one sequence, every layer, before any recomputation, asked about alone; `first_limit` asks
    about them beside a state that fits.

    Args:
        run: the question; its layout is not used.
        shards: into how many parts the model state is divided (a preview of step 3).

    >>> from course.problem import load
    >>> from course.examples import path
    >>> [limit.name for limit in limits(load(path("llama-3.1-405b-16384-h100"))) if not limit.fits][:2]
    ['optimizer state', 'gradients']
    """
    model, state, cluster = run.model, run.training.state, run.cluster
    have, length = cluster.accelerator.memory_bytes, run.training.sequence_length
    needs = held(model, state, length, software=run.software)
    weights, gradients, optimizer = (needs[name] / shards for name in ("weights", "gradients", "optimizer"))
    activations = needs["activations"]
    layer = (state.weights + state.all_gradients) * layer_parameters(model) + activations / model.layers
    inputs = layer_input_bytes(hidden=model.hidden, activation_bytes=2, sequence_sharded=0, tensor=1)
    one = {"micro_batch": 1, "sequence_length": length, "in_flight": 1}
    recomputed = activation_memory(token_layer_bytes=inputs, stage_layers=model.layers, **one)
    ratios = flops_per_token(model, length, "full")
    extra = ratios["executed"] / ratios["full_attention"] - 1
    rows = [
        ("optimizer state", weights + gradients + optimizer, "shard optimizer state (ZeRO-1)",
         "an all-gather of updated weights in place of half the all-reduce: no extra bytes"),
        ("gradients", weights + gradients, "shard gradients as well (ZeRO-2)",
         "a reduction for every micro-batch that leaves the device"),
        ("weights", weights, "shard weights as well (ZeRO-3), or split layers over tensor and pipeline ranks",
         "half more traffic, for every micro-batch; or activation collectives in every layer; or bubbles"),
        ("one layer", layer, "work on the layer in pieces, or split it (tensor parallelism)",
         "smaller matmuls, or activation collectives in every layer"),
        ("activations", activations, "smaller micro-batch, recomputation, or sequence and tensor parallelism",
         f"full recomputation keeps {recomputed / 2**30:.1f} GiB and adds {extra:.0%} to the FLOPs executed"),
    ]  # fmt: skip
    return [Limit(name, need, have, "bytes", need <= have, remedy, price) for name, need, remedy, price in rows]
