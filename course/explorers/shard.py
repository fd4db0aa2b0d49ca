"""The explorers of step 3: `ladder`, `sequence`, `experts`, `axes`, `latents` and `legal`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from course import catalog
from course import estimate as first
from course import shard as step
from course.constrain import activation_memory
from course.errors import UserError
from course.explorers.base import GIB, Choice, Explorer, Flag, Number, View
from course.explorers.parts import parts
from course.explorers.shard_latent import latents, latents_view
from course.explorers.shard_legal import legal, legal_view
from course.explorers.shared import powers
from course.pictures import shard as pictures
from course.pictures.estimate import short
from course.pictures.live import Section, Stacks
from course.predict.constants import MARGIN_BYTES, MARGIN_SHARE
from course.problem import Layout, Model, NotYet

__all__ = [
    "axes", "axes_view", "experts", "experts_view", "ladder", "ladder_view", "latents", "latents_view", "legal",
    "legal_view", "sequence", "sequence_view",
]  # fmt: skip

WIDTH = 5.8
POWERS = powers(1024)
RUNGS = {"none": "data parallel", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
SEQUENCE = (("attention", ("heads", "kv_heads")), ("MLP", ("ffn",)), ("norms, residuals, inputs", ()))


@cache
def _models(kind: str = "any") -> dict[str, str]:
    """The models of the catalog that can be counted: any, the dense ones, or mixtures."""
    offered = {}
    for name in catalog.names("models"):
        model = catalog.model(name)
        try:
            first.count(model)
        except NotYet:
            continue
        if kind == "any" or model.is_dense == (kind == "dense"):
            offered[name] = name
    return offered


def _room(accelerator: str) -> float:
    """Bytes a device has for tensors: its memory less the margin that step 2 keeps."""
    memory = catalog.accelerator(accelerator).memory_bytes
    return memory - (MARGIN_SHARE * memory + MARGIN_BYTES)


def _gib(value: float) -> str:
    return f"{value / GIB:,.1f}"


def _gb(value: float) -> str:
    return f"{value / 1e9:,.2f}"


# ---------------------------------------------------------------- the ladder
def ladder_view(
    model: str, recipe: str, ranks: int, micro_batches: int, reduced_gradient_bytes: int, accelerator: str
) -> View:
    """State on a device and bytes it sends in a step, rung by rung.

    Args:
        model: what is trained.
        recipe: state recipe of the catalog.
        ranks: data-parallel ranks, over which state is sharded.
        micro_batches: micro-batches of a step on each rank.
        reduced_gradient_bytes: bytes of a gradient on the wire.
        accelerator: whose memory the state is held against.
    """
    total, state = first.count(catalog.model(model)).total, catalog.state(recipe)
    room = _room(accelerator)
    kinds = {"weights": "weight_bytes", "gradients": "gradient_bytes", "optimizer state": "optimizer_bytes"}
    sizes = dict(zip(kinds.values(), (state.weights, state.all_gradients, state.optimizer), strict=True))
    place = {"stage_parameters": total, "tensor": 1, "ranks": ranks}
    wire = place | {"reductions": micro_batches, "weight_bytes": state.weights}
    held, sent, rows = {}, {}, []
    fewest = step.smallest_groups(total, *sizes.values(), room_bytes=room)
    for rung, label in RUNGS.items():
        flags = step.STAGE_FLAGS[rung]
        held[label] = {
            name: step.state_per_device(**place, **flags, **{key: sizes[key] * (key == part) for key in sizes})
            for name, part in kinds.items()
        }
        formula = step.LADDER[rung]
        whole = formula(**first.pick(formula, wire | {"reduced_gradient_bytes": reduced_gradient_bytes}))
        gradients = formula(**first.pick(formula, wire | {"reduced_gradient_bytes": reduced_gradient_bytes,
                                                          "weight_bytes": 0}))  # fmt: skip
        sent[label] = {"gradients sent": gradients, "weights sent": whole - gradients}
        rows.append((label, _gib(sum(held[label].values())), _gb(whole), str(fewest[rung] or "never")))
    fits = [label for label in held if sum(held[label].values()) <= room]
    plain = sum(sent[RUNGS["none"]].values())
    memory = _gib(room)
    if fits:
        ratio = sum(sent[fits[0]].values()) / plain if plain else 1.0
        said = f"The first rung with which the state fits is {fits[0]}; it sends {ratio:.2f} times the bytes of plain "
        said += "data parallelism."
    else:
        said = "With no rung does the state fit; more ranks, or an axis that splits layers, must help."
    return View(
        f"{model} on {ranks} ranks with {memory} GiB for tensors, {micro_batches} micro-batches a step. {said}",
        ("rung", "state (GiB)", "sent a step (GB)", "fewest ranks"),
        tuple(rows),
        {
            "finding": f"{model}: what each rung keeps and sends",
            "sections": [
                Section("state on a device (GiB)", held, _gib, (room, f"{memory} GiB")),
                Section("sent in a step (GB)", sent, _gb),
            ],
        },
    )


def ladder(*, ask: str | None = None, **values: Any) -> Explorer:
    """Rungs of ZeRO: memory against traffic; `ask` is guessed first, `values` are those Reset comes back to."""
    recipes = {f"{name}: {catalog.state(name).total} bytes a parameter": name for name in catalog.names("states")}
    controls = (
        Choice("model", "model", "llama-3-8b", _models()),
        Choice("recipe", "state recipe", catalog.DEFAULT_STATE, recipes),
        Choice("ranks", "data-parallel ranks", 8, POWERS),
        Choice("micro_batches", "micro-batches a step", 1, POWERS),
        Choice("reduced_gradient_bytes", "gradient on the wire", 2, {"2 bytes": 2, "4 bytes": 4}),
        Choice("accelerator", "accelerator", "h100-sxm", {name: name for name in catalog.names("accelerators")}),
    )
    return Explorer(
        controls, ladder_view, lambda: Stacks(pictures.LADDER_COLOURS, WIDTH, 4.6, labels=1.2), ask=ask, values=values
    )


# ---------------------------------------------------------------- sequence and context
def sequence_view(
    model: str, sequence_length: int, tensor: int, sequence_parallel: bool, context: int, micro_batch: int
) -> View:
    """What one layer keeps on one device, by whether it lies around attention, in it, or in the MLP.

    Args:
        model: a dense preset.
        sequence_length: tokens of a sequence, before context ranks share it.
        tensor: tensor ranks.
        sequence_parallel: whether they share the tokens around attention and MLP.
        context: context ranks.
        micro_batch: sequences at once.
    """
    shaped = catalog.model(model)
    if shaped.heads % tensor or shaped.kv_heads % tensor:
        raise UserError(
            f"{shaped.heads} query and {shaped.kv_heads} key/value heads do not divide by {tensor} tensor ranks; "
            f"take one that divides both."
        )
    values = first.shape(shaped) | {
        "activation_bytes": 2, "tensor": tensor, "sequence_sharded": float(sequence_parallel), "core_recompute": 0,
        "unfused_attention": 0, "dropout": 0, "sequence_length": sequence_length / context,
    }  # fmt: skip
    one = {"micro_batch": micro_batch, "sequence_length": sequence_length / context, "stage_layers": 1, "in_flight": 1}
    kept = {
        name: activation_memory(token_layer_bytes=value, **one)
        for name, value in parts(first.token_layer_bytes, SEQUENCE, values).items()
    }
    batch = values | {"micro_batch": micro_batch, "sequence_length": sequence_length, "context": context}
    mine = batch | {"sequence_length": sequence_length / context}
    # what it keeps with sequence parallelism are shares of the inputs, which backward gathers again
    units = sum(step.tensor_units(0, int(sequence_parallel)))
    tensor_sent = units * step.tensor_unit_bytes(**first.pick(step.tensor_unit_bytes, mine))
    context_sent = sum(step.context_units()) * step.context_unit_bytes(**first.pick(step.context_unit_bytes, batch))
    total = sum(kept.values())
    seen = sequence_length // context
    return View(
        f"One layer of {model} keeps {_gib(total)} GiB on a device. In attention a device holds {seen:,} of "
        f"{sequence_length:,} tokens for {shaped.heads // tensor} of {shaped.heads} heads.",
        ("part", "kept (GiB)", "sent for a layer and micro-batch (GB)"),
        (
            *((name, _gib(value), "") for name, value in kept.items()),
            ("tensor collectives", "", _gb(tensor_sent)),
            ("keys and values", "", _gb(context_sent)),
        ),
        {
            "finding": f"{tensor} tensor ranks, {context} context ranks",
            "sections": [Section("kept by one layer on a device (GiB)", {"this layout": kept}, _gib)],
        },
    )


def sequence(*, ask: str | None = None, **values: Any) -> Explorer:
    """Sequence and context parallelism: what each divides; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Choice("model", "model", "llama-3-8b", _models("dense")),
        Number("sequence_length", "sequence (tokens)", 131072, 1024, 2**20, whole=True, logarithmic=True),
        Choice("tensor", "tensor ranks", 8, dict(list(POWERS.items())[:5])),
        Flag("sequence_parallel", "sequence parallelism", False),
        Choice("context", "context ranks", 1, dict(list(POWERS.items())[:6])),
        Choice("micro_batch", "micro-batch (sequences)", 1, dict(list(POWERS.items())[:5])),
    )
    return Explorer(
        controls, sequence_view, lambda: Stacks(pictures.SEQUENCE_COLOURS, WIDTH, 2.4, labels=1.1), ask=ask,
        values=values,
    )  # fmt: skip


# ---------------------------------------------------------------- experts
def experts_view(
    model: str, tensor: int, context: int, data: int, expert: int, expert_tensor: int, sharding: str, accelerator: str
) -> View:
    """A mixture's state on a device, and how its experts fold into the ranks of a stage (no pipeline).

    Args:
        model: a mixture of the catalog.
        tensor, context, data: ranks of the stage.
        expert, expert_tensor: ranks that experts are spread over, and that share one.
        sharding: rung of the ladder.
        accelerator: whose memory it is held against.
    """
    shaped, room, state = catalog.model(model), _room(accelerator), catalog.state("bf16-18")
    fold = {"tensor": tensor, "context": context, "data": data, "expert": expert, "expert_tensor": expert_tensor}
    copies = step.expert_data_ranks(**fold)
    stage = tensor * context * data
    if not copies.is_integer() or copies < 1:
        raise UserError(
            f"{expert} x {expert_tensor} expert ranks do not fold into {stage} ranks of a stage: take degrees whose "
            f"product divides {stage}."
        )
    if shaped.experts is None or shaped.experts % expert:
        raise UserError(f"{shaped.experts} experts do not spread evenly over {expert} ranks.")
    sizes = {
        "weight_bytes": state.weights, "gradient_bytes": state.all_gradients, "optimizer_bytes": state.optimizer,
        **step.STAGE_FLAGS[sharding],
    }  # fmt: skip
    given = first.shape(shaped) | {"experts": shaped.experts, "expert_ffn": shaped.expert_ffn}
    given["dense_layers"] = shaped.dense_layers or 0
    routed = first.expert_parameters(**first.pick(first.expert_parameters, given))
    others = step.state_per_device(
        stage_parameters=first.count(shaped).total - routed, tensor=tensor, ranks=data * context, **sizes
    )
    own = step.expert_state_per_device(
        expert_parameters=routed, expert=expert, expert_tensor=expert_tensor, expert_data=copies, **sizes
    )
    total, memory = own + others, _gib(room)
    fits = "fits" if total <= room else "does not fit"
    return View(
        f"{stage} ranks hold each expert {copies:.0f} times: E_tp E_p E_dp = {expert_tensor} x {expert} x "
        f"{copies:.0f}. "
        f"The state takes {_gib(total)} GiB of {memory}: it {fits}.",
        ("part", "parameters (billion)", "on a device (GiB)"),
        (
            ("experts", f"{routed / 1e9:.1f}", _gib(own)),
            ("everything else", f"{(first.count(shaped).total - routed) / 1e9:.1f}", _gib(others)),
        ),
        {
            "finding": f"{model}: the state {fits}",
            "sections": [
                Section("state on a device (GiB)", {"state": {"expert": own, "data": others}}, _gib,
                        (room, f"{memory} GiB")),
            ],
        },
    )  # fmt: skip


def experts(*, ask: str | None = None, **values: Any) -> Explorer:
    """Experts folded into the ranks of a stage; `ask` is guessed first, `values` are those Reset comes back to."""
    few = dict(list(POWERS.items())[:7])
    controls = (
        Choice("model", "model", "mixtral-8x7b", _models("mixture")),
        Choice("tensor", "tensor ranks", 1, few),
        Choice("context", "context ranks", 1, few),
        Choice("data", "data ranks", 32, POWERS),
        Choice("expert", "ranks that experts spread over", 8, few),
        Choice("expert_tensor", "ranks that share an expert", 1, few),
        Choice("sharding", "rung", "zero1", {label: rung for rung, label in RUNGS.items()}),
        Choice("accelerator", "accelerator", "h100-sxm", {name: name for name in catalog.names("accelerators")}),
    )
    return Explorer(
        controls, experts_view, lambda: Stacks(pictures.AXIS_COLOURS, WIDTH, 2.4, labels=0.8), ask=ask, values=values
    )


# ---------------------------------------------------------------- all axes
def axes_view(
    model: str, sequence_length: int, micro_batches: int, data: int, tensor: int, context: int, pipeline: int,
    expert: int, sharding: str, reduced_gradient_bytes: int, gathers_again: bool = False,
) -> View:  # fmt: skip
    """Every axis of a layout: what it splits, its collective, how often a step, the bytes a device sends.

    Args:
        model: what is trained.
        sequence_length: tokens of a sequence.
        micro_batches: micro-batches of a step on each replica.
        data, tensor, context, pipeline, expert: degrees; experts fold into the others.
        sharding: rung of the ladder.
        reduced_gradient_bytes: bytes of a gradient on the wire.
        gathers_again: whether tensor ranks keep shares of the matmuls' inputs and gather them again (10 units, not 8).
    """
    shaped = catalog.model(model)
    _legal(shaped, data * tensor * context, tensor, pipeline, expert)
    layout = Layout(
        data=data, tensor=tensor, context=context, pipeline=pipeline, expert=expert, sharding=sharding,
    )  # fmt: skip
    rows = step.axis_costs(
        shaped, layout, sequence_length=sequence_length, micro_batches=micro_batches,
        reduced_gradient_bytes=reduced_gradient_bytes, gathers_again=gathers_again,
    )  # fmt: skip
    sent = {row.axis: row.bytes_per_step for row in rows}
    most = max(sent, key=lambda axis: sent[axis]) if sent else ""
    devices = layout.devices
    said = f"most by {most}" if most else "there is nobody to send to"
    return View(
        f"On {devices} device{'s' if devices > 1 else ''} each sends {_gb(sum(sent.values()))} GB in a step, {said}.",
        ("axis", "splits", "moves", "times a step", "each", "a step (GB)"),
        tuple(
            (f"{row.axis} {row.degree}", row.splits, row.collective, f"{row.times:,.0f}", short(row.bytes_each, "B"),
             _gb(row.bytes_per_step)) for row in rows
        ),
        {
            "finding": f"{model} on {devices} devices",
            "sections": [Section("sent by a device in a step (GB)", {"this layout": sent or {"data": 0.0}}, _gb)],
        },
    )  # fmt: skip


def _legal(model: Model, stage: int, tensor: int, pipeline: int, expert: int) -> None:
    if model.heads % tensor or model.kv_heads % tensor:
        raise UserError(f"{model.heads} and {model.kv_heads} heads do not both divide by {tensor} tensor ranks.")
    if model.layers % pipeline:
        raise UserError(f"{model.layers} layers do not divide by {pipeline} stages.")
    if expert > 1 and (not model.experts or model.experts % expert or stage % expert):
        raise UserError(
            f"{model.experts or 0} experts and {stage} ranks of a stage must both divide by {expert} expert ranks."
        )


def axes(*, ask: str | None = None, **values: Any) -> Explorer:
    """All axes of a layout, in bytes; `ask` is guessed first, `values` are those Reset comes back to."""
    few = dict(list(POWERS.items())[:7])
    controls = (
        Choice("model", "model", "llama-3-8b", _models()),
        Number("sequence_length", "sequence (tokens)", 8192, 1024, 2**20, whole=True, logarithmic=True),
        Choice("micro_batches", "micro-batches a step", 8, POWERS),
        Choice("data", "data", 8, POWERS),
        Choice("tensor", "tensor", 1, few),
        Choice("context", "context", 1, few),
        Choice("pipeline", "pipeline", 1, few),
        Choice("expert", "expert", 1, few),
        Choice("sharding", "rung", "zero2", {label: rung for rung, label in RUNGS.items()}),
        Choice("reduced_gradient_bytes", "gradient on the wire", 4, {"2 bytes": 2, "4 bytes": 4}),
        Flag("gathers_again", "inputs gathered again (10 units)", False),
    )
    return Explorer(
        controls, axes_view, lambda: Stacks(pictures.AXIS_COLOURS, WIDTH, 2.4, labels=1.1), ask=ask, values=values
    )
