"""The explorers of step 2: `memory`, `cuts`, `measured` and `experts`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from course import catalog, constrain, estimate, records
from course.batch import one_f_one_b_in_flight
from course.compare.mapping import Skipped, run_of
from course.explorers.base import GIB, Choice, Explorer, Flag, Number, View
from course.explorers.parts import parts
from course.explorers.shared import against, billions, device_named, devices_offered, gib, models, powers, share
from course.pictures.constrain import EXPERT_COLOURS, LAYER_COLOURS, MEMORY_COLOURS
from course.pictures.live import Section, Stacks
from course.predict.constants import MARGIN_BYTES, MARGIN_SHARE
from course.problem import Run
from course.records.columns import Row
from course.shard import STAGE_FLAGS, state_per_device

__all__ = ["cuts", "cuts_view", "experts", "experts_view", "measured", "measured_view", "memory", "memory_view"]

WIDTH = 5.8
"""Inches of a picture, as in step 1."""
POWERS = powers(16384)
DIVIDED = {
    "nothing": "none", "optimizer state": "zero1", "and gradients": "zero2", "and weights": "zero3",
}  # fmt: skip
NOT_MODELLED = ("not counted", "gradients of activations,", "gaps, libraries")
LAYER_GROUPS = (
    ("inside the MLP", ("ffn",)), ("inside attention", ("heads", "kv_heads")), ("around attention and MLP", ()),
)  # fmt: skip


def _margin(memory_bytes: float) -> float:
    return float(MARGIN_SHARE * memory_bytes + MARGIN_BYTES)


# ---------------------------------------------------------------- one device
def memory_view(
    model: str, accelerator: str, recipe: str, sequence_length: int, micro_batch: int, checkpoints: int, divided: str,
    devices: int,
) -> View:  # fmt: skip
    """What one device holds of a whole model, by part, with some of the state divided, and its first limit.

    Args:
        model: preset.
        accelerator: whose memory it is held against.
        recipe: state recipe of the catalog.
        sequence_length: tokens of a sequence.
        micro_batch: sequences at once.
        checkpoints: layers between two saved inputs under full recomputation; 0 when nothing is recomputed.
        divided: "none", "zero1" (optimizer state), "zero2" (and gradients) or "zero3" (and weights).
        devices: by how many the divided parts are divided.
    """
    shaped, device, state = catalog.model(model), device_named(accelerator), catalog.state(recipe)
    whole = constrain.held(
        shaped, state, sequence_length, micro_batch, "full" if checkpoints else "none",
        checkpoint_layers=max(checkpoints, 1),
    )  # fmt: skip
    sizes = {"weights": state.weights, "gradients": state.all_gradients, "optimizer": state.optimizer}
    keys = {"weights": "weight_bytes", "gradients": "gradient_bytes", "optimizer": "optimizer_bytes"}
    place = {"stage_parameters": estimate.count(shaped).total, "tensor": 1, "ranks": devices, **STAGE_FLAGS[divided]}
    none = dict.fromkeys(keys.values(), 0)
    one = {part: state_per_device(**place, **none | {keys[part]: size}) for part, size in sizes.items()}
    layer = {"layer_parameters": constrain.layer_parameters(shaped), "tensor": 1, "ranks": devices}
    flags = STAGE_FLAGS[divided]
    gathered = constrain.gathered_weights(
        **layer, weight_bytes=state.weights, shard_weights=flags["shard_weights"]
    ) + constrain.whole_gradients(
        **layer, gradient_bytes=state.all_gradients, shard_gradients=flags["shard_gradients"]
    )  # fmt: skip
    margin = _margin(device.memory_bytes)
    one |= {"activations": whole["activations"], "logits": whole["logits"], "buffers": gathered, "margin": margin}
    total, have = sum(one.values()), device.memory_bytes
    case = shaped, device, state, sequence_length
    limit, last = constrain.first_limit(*case), constrain.how_far(*case)
    said = "nothing but time" if limit == "time" else limit
    if limit != last:
        said += ", and not even one layer fits" if last == "one layer" else f", and {last} must leave as well"
    fits = "fits" if total <= have else "does not fit"
    return View(
        f"Undivided, the first limit of {model} on one {device.name} is {said}. As set it needs {gib(total)} GiB, "
        f"{against(total, have)} its {gib(have)} GiB: it {fits}.",
        ("part", "whole (GiB)", "one device (GiB)"),
        (
            *((part, gib(whole[part]) if part in whole else "–", gib(size)) for part, size in one.items()),
            ("together", gib(sum(whole.values())), gib(total)),
            NOT_MODELLED,
        ),
        {
            "finding": f"{model}: it {fits}",
            "sections": [
                Section("whole, on one device (GiB)", {"undivided": whole}, gib, (have, f"one device: {gib(have)}")),
                Section(f"as set, 1 of {devices:,} (GiB)", {"as set": one}, gib, (have, f"one device: {gib(have)}")),
            ],
        },
    )  # fmt: skip


def memory(*, ask: str | None = None, **values: Any) -> Explorer:
    """Memory of one device: pick a model and a device, then divide, recompute, shorten until it fits.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """

    def intervals(now: Mapping[str, Any]) -> dict[str, int]:
        layers = catalog.model(now["model"]).layers
        every = {f"{n} layer{'s' * (n > 1)}": n for n in range(1, layers + 1) if layers % n == 0}
        return {"nothing recomputed": 0, **every}

    recipes = {f"{name}: {catalog.state(name).total} bytes a parameter": name for name in catalog.names("states")}
    controls = (
        Choice("model", "model", "llama-3-8b", {name: name for name in catalog.names("models")}),
        Choice("accelerator", "accelerator", "h100-sxm", devices_offered()),
        Choice("recipe", "state recipe", catalog.DEFAULT_STATE, recipes),
        Number("sequence_length", "sequence (tokens)", 8192, 256, 2**20, whole=True, logarithmic=True),
        Choice("micro_batch", "micro-batch (sequences)", 1, dict(list(POWERS.items())[:7])),
        Choice("checkpoints", "recompute, an input every", 0, intervals),
        Choice("divided", "divided", "none", DIVIDED),
        Choice("devices", "by (devices)", 1, POWERS),
    )
    return Explorer(
        controls, memory_view, lambda: Stacks(MEMORY_COLOURS, WIDTH, 3.4, labels=1.1), ask=ask, values=values
    )


# ---------------------------------------------------------------- what splitting does to activations
def cuts_view(
    model: str, sequence_length: int, tensor: int, sequence_parallel: bool, context: int, pipeline: int,
    micro_batches: int,
) -> View:  # fmt: skip
    """Activations of the fullest pipeline stage, the first, before and after splitting.

    Args:
        model: a dense preset.
        sequence_length: tokens of a sequence.
        tensor: ranks that share each layer.
        sequence_parallel: whether they share what lies around attention and MLP as well.
        context: ranks that share each sequence.
        pipeline: stages that share the layers.
        micro_batches: how many pass the pipeline in one step.
    """
    shaped = catalog.model(model)
    values = estimate.shape(shaped) | {
        "sequence_length": sequence_length, "activation_bytes": 2, "dropout": 0, "unfused_attention": 0,
        "core_recompute": 0,
    }  # fmt: skip
    flight = one_f_one_b_in_flight(micro_batches=micro_batches, pipeline=pipeline, stage=0)

    def stage(degree: int, sharded: bool, tokens: float, layers: float, micro: float) -> dict[str, float]:
        each = parts(
            estimate.token_layer_bytes, LAYER_GROUPS, values | {"tensor": degree, "sequence_sharded": float(sharded)}
        )
        batch = {"micro_batch": 1, "sequence_length": tokens, "stage_layers": layers, "in_flight": micro}
        return {part: constrain.activation_memory(token_layer_bytes=size, **batch) for part, size in each.items()}

    before = stage(1, False, sequence_length, shaped.layers, 1)
    layers = shaped.layers / pipeline
    after = stage(tensor, sequence_parallel, sequence_length / context, layers, flight)
    total, left = sum(before.values()), sum(after.values())
    return View(
        f"The first stage holds {layers:g} layers for {flight:g} micro-batches: {gib(left)} GiB, "
        f"{share(left, total)} of the {gib(total)} GiB that one device with all {shaped.layers} layers keeps for one.",
        ("activations", "one device (GiB)", "first stage (GiB)", "left"),
        (
            *((part, gib(before[part]), gib(after[part]), share(after[part], before[part])) for part in LAYER_COLOURS),
            ("together", gib(total), gib(left), share(left, total)),
        ),
        {
            "finding": f"{share(left, total)} of the activations are left on the first stage",
            "sections": [Section("one micro-batch, GiB", {"one device": before, "first stage": after}, gib)],
        },
    )


def cuts(*, ask: str | None = None, **values: Any) -> Explorer:
    """What each way of splitting leaves of the activations on the fullest stage.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """

    def divisors(name: str, most: int) -> Any:
        def legal(now: Mapping[str, Any]) -> dict[str, int]:
            number = getattr(catalog.model(now["model"]), name)
            return {f"{n:,}": n for n in range(1, most + 1) if number % n == 0}

        return legal

    powers = dict(list(POWERS.items())[:8])
    controls = (
        Choice("model", "model", "llama-2-70b", models(dense=True)),
        Number("sequence_length", "sequence (tokens)", 8192, 256, 2**20, whole=True, logarithmic=True),
        Choice("tensor", "tensor ranks", 1, divisors("heads", 64)),
        Flag("sequence_parallel", "sequence parallelism", False),
        Choice("context", "context ranks", 1, powers),
        Choice("pipeline", "pipeline stages", 1, divisors("layers", 128)),
        Choice("micro_batches", "micro-batches of a step", 8, powers),
    )
    return Explorer(controls, cuts_view, lambda: Stacks(LAYER_COLOURS, WIDTH, 2.5, labels=1.1), ask=ask, values=values)


# ---------------------------------------------------------------- beside what was measured
@cache
def _printed() -> dict[str, tuple[Row, Run]]:
    """Runs of whole models, one device a replica: what this step can count. Label to row and run."""
    found = {}
    for row in records.runs():
        if (row["tp"], row["pp"]) == (1, 1) and records.key(row) == "usp":
            run = run_of(row)
            if not isinstance(run, Skipped):
                sharded = "optimizer divided" if row["sharding"] == "zero1" else "nothing divided"
                size = str(row["model"]).removeprefix("llama-like ")
                label = f"{size}, {row['n_devices']} H100, micro-batch {row['micro_batch']}, {sharded} ({row['id']})"
                found[label] = (row, run)
    return found


def measured_view(run: str, outcome: bool = True) -> View:
    """A published run: what is counted of its device, beside what was measured there.

    Args:
        run: its id.
        outcome: False shows only the parts to be added up: whole, and for one sequence.
    """
    row, asked = next(pair for pair in _printed().values() if pair[0]["id"] == run)
    layout = asked.layout
    assert layout is not None
    have, length = asked.cluster.accelerator.memory_bytes, asked.training.sequence_length
    sequences = layout.micro_batch if outcome else 1
    counted = constrain.held(asked.model, asked.training.state, length, sequences, software=asked.software)
    shared, limit = layout.shard_group or 1, (have, f"one device: {gib(have)}")
    said = f"{row['model']}, micro-batch {layout.micro_batch} on {row['n_devices']} devices"
    if not outcome:
        divided = f"optimizer state divided by {shared:,}" if row["sharding"] == "zero1" else "nothing divided"
        return View(
            f"{said}, {divided}: will it fit in {gib(have)} GiB? Add up, then tick the outcome.",
            ("part", "whole, activations and logits of one sequence (GiB)"),
            tuple((part, gib(size)) for part, size in counted.items()),
            {
                "finding": "Will it fit?",
                "sections": [Section("whole, and one sequence (GiB)", {"undivided": counted}, gib, limit)],
            },
        )
    if row["sharding"] == "zero1":
        counted["optimizer"] /= shared
    total, margin, peak = sum(counted.values()), _margin(have), row["peak_mem_gib"]
    bars = {"counted": counted | {"margin": margin}} | ({"measured": {"measured": float(peak) * GIB}} if peak else {})
    ended = f"measured were {float(peak):.1f}" if peak else "it FAILED, crashed or out of memory"
    return View(
        f"{said}: counted {gib(total)} GiB of {gib(have)}; {ended}.",
        ("part", "GiB"),
        (*((part, gib(size)) for part, size in counted.items()), ("counted", gib(total)),
         ("measured", f"{float(peak):.1f}" if peak else "FAILED"), ("margin", gib(margin)),
         (NOT_MODELLED[0], " ".join(NOT_MODELLED[1:]))),
        {
            "finding": f"Counted {gib(total)} GiB, " + (f"measured {float(peak):.1f}" if peak else "and it failed"),
            "sections": [Section("GiB on one device", bars, gib, limit)],
        },
    )  # fmt: skip


def measured(*, ask: str | None = None, **values: Any) -> Explorer:
    """Published runs, one after the other: will it fit? The count, and what was measured.

    `ask` is a question to be guessed first; `values` are those Reset comes back to. With outcome=False it is a game:
    the sum is the reader's.
    """
    offered = {label: str(row["id"]) for label, (row, _) in _printed().items()}
    controls = (Choice("run", "run", "usp-0002", offered), Flag("outcome", "outcome", True))
    return Explorer(
        controls, measured_view, lambda: Stacks(MEMORY_COLOURS, WIDTH, 2.7, labels=1.1), ask=ask, values=values
    )


# ---------------------------------------------------------------- experts
def experts_view(model: str, recipe: str, accelerator: str, devices: int, expert_devices: int) -> View:
    """Model state of a mixture of experts, its experts and all else divided by numbers of their own.

    Args:
        model: a preset with experts.
        recipe: state recipe of the catalog.
        accelerator: whose memory it is held against.
        devices: over how many a copy of all but the experts is spread.
        expert_devices: over how many a copy of the routed experts is spread.
    """
    shaped, device, size = catalog.model(model), device_named(accelerator), catalog.state(recipe).total
    counted = estimate.count(shaped)
    of_experts = ("experts", "expert_ffn", "dense_layers")
    widths = estimate.shape(shaped) | {name: getattr(shaped, name) for name in of_experts}
    routed = estimate.expert_parameters(**estimate.pick(estimate.expert_parameters, widths))
    whole = {"experts": size * routed, "all else": size * (counted.total - routed)}
    one = {"experts": whole["experts"] / expert_devices, "all else": whole["all else"] / devices}
    total, have = sum(one.values()), device.memory_bytes
    fits = "fits" if total <= have else "does not fit"
    most = max(devices, expert_devices)

    holding = f"{most:,} device{'s hold' if most > 1 else ' holds'}"

    def times(spread: int) -> str:
        return "once" if spread == most else f"{most / spread:g} times"

    return View(
        f"{share(routed, counted.total)} of {model}'s {billions(counted.total)} parameters are routed experts. "
        f"{holding} the experts {times(expert_devices)} and all else {times(devices)}. "
        f"On each the state takes {gib(total)} of {gib(have)} GiB: it {fits}.",
        ("state", "parameters", "whole (GiB)", "one device (GiB)"),
        (
            ("experts", billions(routed), gib(whole["experts"]), gib(one["experts"])),
            ("all else", billions(counted.total - routed), gib(whole["all else"]), gib(one["all else"])),
            ("together", billions(counted.total), gib(sum(whole.values())), gib(total)),
        ),
        {
            "finding": f"{model}: the state {fits}",
            "sections": [
                Section("whole (GiB)", {"state": whole}, gib),
                Section("one device (GiB)", {"1 share": one}, gib, (have, f"one device: {gib(have)}")),
            ],
        },
    )


def experts(*, ask: str | None = None, **values: Any) -> Explorer:
    """Experts and all else, divided by numbers of their own.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    mixtures = {name: name for name in catalog.names("models") if catalog.model(name).experts}
    recipes = {f"{name}: {catalog.state(name).total} bytes a parameter": name for name in catalog.names("states")}
    controls = (
        Choice("model", "model", "mixtral-8x7b", mixtures),
        Choice("recipe", "state recipe", catalog.DEFAULT_STATE, recipes),
        Choice("accelerator", "accelerator", "h100-sxm", devices_offered()),
        Choice("devices", "all else over (devices)", 1, POWERS),
        Choice("expert_devices", "experts over (devices)", 1, POWERS),
    )
    return Explorer(
        controls, experts_view, lambda: Stacks(EXPERT_COLOURS, WIDTH, 3.2, labels=1.1), ask=ask, values=values
    )
