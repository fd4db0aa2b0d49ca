"""The explorers of step 1: `roofline`, `parameters`, `state` and `activations`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from course import catalog
from course import estimate as step
from course.constrain import activation_memory
from course.errors import UserError
from course.explorers.base import Choice, Explorer, Flag, Number, Sweep, View
from course.explorers.parts import ACTIVATIONS, FLOPS, PARAMETERS, parts
from course.explorers.shared import (
    against,
    billions,
    billions_of,
    device_named,
    devices_offered,
    gib,
    models,
    powers,
    share,
)
from course.pictures import estimate as pictures
from course.pictures.estimate import rate, short
from course.pictures.live import Section, Stacks
from course.problem import Model
from course.shard import state_per_device

__all__ = [
    "activations", "activations_view", "parameters", "parameters_view", "roofline", "roofline_view", "state",
    "state_view",
]  # fmt: skip

HYPOTHETICAL = "hypothetical"
CAP_FLOPS_PER_S = 1000e9
"""Compute cap of the hypothetical device: fixed, so that only the bandwidth changes what it reaches."""
WIDTH = 5.8
"""Inches of a picture: what JupyterLab has left beside the controls and its file browser in a window of 1400 points."""
INTENSITIES = np.geomspace(0.1, 1e4, 401)
POWERS = powers(16384)
CONVENTIONS = (step.six_ps, step.palm, step.full_attention, step.causal_attention, step.executed)
WIDTHS = ("layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocabulary", "gated_mlp", "tied_embeddings")


# ---------------------------------------------------------------- roofline
def roofline_view(device: str, intensity: float, bandwidth: float) -> View:
    """The attainable rate of an operation: a resource ceiling, not a number of GPUs or work per rank.

    Args:
        device: "hypothetical" (compute cap 1000 GFLOP/s) or an accelerator, whose dense 16-bit peak is the cap.
        intensity: FLOPs for each byte moved.
        bandwidth: memory bandwidth in decimal GB/s, yours to change.

    >>> roofline_view("hypothetical", 8, 200).sentence
    'At 8 FLOP/byte and 200 GB/s an operation reaches 1,000 GFLOP/s, the compute cap: more bandwidth adds nothing.'
    """
    cap = CAP_FLOPS_PER_S if device == HYPOTHETICAL else device_named(device).peak_flops_per_s
    given = {"memory_bytes_per_s": bandwidth * 1e9, "peak_flops_per_s": cap}
    reached = step.attainable(intensity=intensity, **given)
    unlimited = step.attainable(intensity=intensity, memory_bytes_per_s=bandwidth * 1e9, peak_flops_per_s=1e30)
    bound = reached < cap
    say = partial(rate, tera=cap >= 1e13)
    where = f"At {intensity:g} FLOP/byte and {bandwidth:,g} GB/s an operation reaches {say(reached)}"
    sentence = (
        f"{where}, {share(reached, cap)} of the compute cap: bound by memory bandwidth."
        if bound
        else f"{where}, the compute cap: more bandwidth adds nothing."
    )
    return View(
        sentence,
        ("ceiling", "rate"),
        (
            ("memory bandwidth allows", say(unlimited)),
            ("compute cap", say(cap)),
            ("attainable: the lower of the two", say(reached)),
            ("ridge point: the cap binds from", f"{cap / given['memory_bytes_per_s']:,.4g} FLOP/byte"),
        ),
        {
            "intensities": INTENSITIES,
            "roofs": {f"{bandwidth:,g} GB/s": step.attainable(intensity=INTENSITIES, **given)},
            "points": {say(reached): (intensity, reached)},
            "finding": "Memory bandwidth is the ceiling" if bound else "Compute is the ceiling",
            "lowest": cap / 1e4,
            "ceiling": f"compute cap {say(cap)}",
        },
    )


def roofline(*, ask: str | None = None, **values: Any) -> Explorer:
    """The roofline instrument: set an intensity and a bandwidth, predict the rate; Play sweeps the bandwidth up to it.

    `ask` is a question to be guessed first; `values` (device, intensity, bandwidth) are those Reset comes back to.
    """
    offered = {f"hypothetical, {rate(CAP_FLOPS_PER_S)}": HYPOTHETICAL, **devices_offered()}

    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        if name != "device" or now["device"] == HYPOTHETICAL:
            return {}
        return {"bandwidth": device_named(now["device"]).memory_bytes_per_s / 1e9}

    controls = (
        Choice("device", "device", HYPOTHETICAL, offered),
        Number("intensity", "I (FLOP/byte)", 2.0, 0.1, 1e4, logarithmic=True),
        Number("bandwidth", "B (decimal GB/s)", 100.0, 1.0, 1e4, logarithmic=True),
    )
    sweep = Sweep("bandwidth", lambda now: [float(f"{b:.4g}") for b in np.linspace(0, now["bandwidth"], 21)[1:]])
    return Explorer(
        controls, roofline_view, lambda: pictures.Roofline(WIDTH, 3.9), follow=follow, sweep=sweep, ask=ask,
        values=values,
    )  # fmt: skip


# ---------------------------------------------------------------- parameters and FLOPs
def _shaped(model: str, **widths: Any) -> Model:
    """A preset with other widths; a mixture's experts are as wide as its `ffn` where every layer is a mixture."""
    preset = catalog.model(model)
    if preset.experts and not preset.dense_layers:
        widths["expert_ffn"] = widths["ffn"]
    for name in WIDTHS[:-2]:
        if not 1 <= widths[name] <= 1e8:
            raise UserError(f"{name} must be a whole number from 1 on; it is {widths[name]}.")
    return replace(preset, **widths)


def parameters_view(model: str, sequence_length: int, recompute: str, **widths: Any) -> View:
    """Parameters by part, and training FLOPs of one token by the five conventions.

    Args:
        model: preset that gives all that `widths` do not name.
        sequence_length: tokens of a sequence.
        recompute: "none", "selective" or "full"; it matters to `executed` alone.
        widths: layers, hidden, heads, kv_heads, head_size, ffn, vocabulary, gated_mlp, tied_embeddings.
    """
    shaped = _shaped(model, **widths)
    counted = step.count(shaped)
    values = asdict(shaped) | step.shape(shaped) | {
        "parameters": counted.active, "matmul_parameters": counted.matmul_active, "sequence_length": sequence_length,
        "full_recompute": float(recompute == "full"), "core_recompute": float(recompute == "selective"),
    }  # fmt: skip
    formula = step.mixture_parameters if shaped.experts else step.parameters
    held = {name: value for name, value in parts(formula, PARAMETERS, values).items() if value}
    flops = {convention.name: parts(convention, FLOPS, values) for convention in CONVENTIONS}
    spent = {convention.name: convention(**step.pick(convention, values)) for convention in CONVENTIONS}
    attention = flops["full_attention"]["attention scores"]
    largest = max(held, key=lambda name: held[name])
    name = model if shaped == catalog.model(model) else f"This shape (from {model})"
    used = f", of which a token uses {billions(counted.active)}" if shaped.experts else ""
    scores = share(attention, spent["full_attention"])
    return View(
        f"{name} has {billions(counted.total)} parameters{used}; in sequences of {sequence_length:,} a token costs "
        f"{short(spent['full_attention'], 'FLOP')} by full_attention, {scores} of it attention scores.",
        ("", "value", "share"),
        (
            ("parameters", f"{counted.total:,.0f}", ""),
            *((f"– {part}", f"{value:,.0f}", share(value, counted.total)) for part, value in held.items()),
            *((f"{key}, FLOP/token", f"{value:.4g}", f"{share(flops[key].get('attention scores', 0), value)} scores")
              for key, value in spent.items()),
        ),
        {
            "finding": f"{largest[0].upper()}{largest[1:]}: {share(held[largest], counted.total)} of the parameters",
            "sections": [
                Section("parameters", {"total": held}, short),
                Section("FLOPs of one token", flops, short),
            ],
        },
    )  # fmt: skip


def parameters(*, ask: str | None = None, **values: Any) -> Explorer:
    """Parameters and FLOPs of a shape: pick a model, then change its widths.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """

    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        preset = catalog.model(now["model"])
        return {width: getattr(preset, width) for width in WIDTHS} if name == "model" else {}

    def divisors(now: Mapping[str, Any]) -> dict[str, int]:
        if now["heads"] < 1:
            return {f"{now['kv_heads']:,}": now["kv_heads"]}
        return {f"{n:,}": n for n in range(1, min(int(now["heads"]), 4096) + 1) if now["heads"] % n == 0}

    start = catalog.model("llama-3-8b")
    controls = (
        Choice("model", "model", start.name, models()),
        Number("layers", "layers", start.layers, 1, 160, whole=True),
        Number("hidden", "hidden width", start.hidden, 64, 20480, step=64, whole=True),
        Number("heads", "heads", start.heads, 1, 160, whole=True),
        Choice("kv_heads", "key/value heads", start.kv_heads, divisors),
        Number("head_size", "head size", start.head_size, 16, 256, step=16, whole=True),
        Number("ffn", "feed-forward width", start.ffn, 64, 81920, step=64, whole=True),
        Number("vocabulary", "vocabulary", start.vocabulary, 256, 262144, step=256, whole=True),
        Flag("gated_mlp", "gated MLP (three matrices)", start.gated_mlp),
        Flag("tied_embeddings", "tied embeddings (one table)", start.tied_embeddings),
        Number("sequence_length", "sequence (tokens)", 8192, 256, 2**20, whole=True, logarithmic=True),
        Choice("recompute", "recomputation", "full", {"none": "none", "selective": "selective", "full": "full"}),
    )
    colours = pictures.PARAMETER_COLOURS | pictures.FLOP_COLOURS
    return Explorer(
        controls, parameters_view, lambda: Stacks(colours, WIDTH, 4.6), follow=follow, ask=ask, values=values
    )


# ---------------------------------------------------------------- model state
def state_view(model: str, parameters: float, recipe: str, devices: int, accelerator: str) -> View:
    """Model state of a recipe, whole and divided by a number of devices, against the memory of one.

    Args:
        model: whose parameters these are, for the title.
        parameters: in billions.
        recipe: state recipe of the catalog.
        devices: into how many equal parts the state is divided: a preview, which part goes where comes with sharding.
        accelerator: whose memory it is held against.
    """
    device, bytes_by_part = device_named(accelerator), catalog.state(recipe)
    none = {"weight_bytes": 0, "gradient_bytes": 0, "optimizer_bytes": 0}
    split = {"ranks": devices, "tensor": 1, "shard_optimizer": 1, "shard_gradients": 1, "shard_weights": 1}
    kinds = {
        "weights": {"weight_bytes": bytes_by_part.weights},
        "gradients": {"gradient_bytes": bytes_by_part.gradients},
        "extra gradients": {"gradient_bytes": bytes_by_part.extra_gradients},
        "master weights": {"optimizer_bytes": bytes_by_part.master},
        "moments": {"optimizer_bytes": bytes_by_part.moments},
    }
    number = parameters * 1e9
    whose = model if parameters == billions_of(model) else f"{billions(number)} parameters"
    kinds = {name: none | kind for name, kind in kinds.items() if any(kind.values())}
    whole = {name: step.state_bytes(parameters=number, **kind) for name, kind in kinds.items()}
    each = {name: state_per_device(stage_parameters=number, **split, **kind) for name, kind in kinds.items()}
    total, one = sum(whole.values()), sum(each.values())
    fits = one <= device.memory_bytes
    said = "It fits, before activations" if fits else "It does not fit"
    divided = "On one device that is" if devices == 1 else f"Divided by {devices:,} it is {gib(one)} GiB a device,"
    memory = gib(device.memory_bytes)
    return View(
        f"{billions(number)} parameters of {bytes_by_part.total} bytes are {short(total, 'B')} ({gib(total)} GiB). "
        f"{divided} {against(one, device.memory_bytes)} the {memory} GiB of one {device.name}. {said}.",
        ("part", "bytes a parameter", "whole (GiB)", "one device (GiB)"),
        (
            *((name, f"{max(kind.values())}", gib(whole[name]), gib(each[name])) for name, kind in kinds.items()),
            ("together", f"{bytes_by_part.total}", gib(total), gib(one)),
            ("memory", "", "", memory),
        ),
        {
            "finding": f"{whose}: the state " + ("fits" if fits else "does not fit"),
            "sections": [
                Section("whole state (GiB)", {recipe: whole}, gib),
                Section("on each device (GiB)", {f"1 of {devices:,}": each}, gib,
                        (device.memory_bytes, f"one device: {memory} GiB")),
            ],
        },
    )  # fmt: skip


def state(*, ask: str | None = None, **values: Any) -> Explorer:
    """Model state: pick parameters and a recipe, divide by devices, and hold it against one device's memory.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """

    def follow(name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        return {"parameters": billions_of(now["model"])} if name == "model" else {}

    recipes = {f"{name}: {catalog.state(name).total} bytes a parameter": name for name in catalog.names("states")}
    controls = (
        Choice("model", "model", "llama-3-8b", models()),
        Number("parameters", "parameters (billion)", billions_of("llama-3-8b"), 0.1, 1000, logarithmic=True),
        Choice("recipe", "state recipe", catalog.DEFAULT_STATE, recipes),
        Choice("devices", "divided by (devices)", 1, POWERS),
        Choice("accelerator", "accelerator", "h100-sxm", devices_offered()),
    )
    return Explorer(
        controls, state_view, lambda: Stacks(pictures.STATE_COLOURS, WIDTH, 3.4, labels=1.1), follow=follow, ask=ask,
        values=values,
    )  # fmt: skip


# ---------------------------------------------------------------- activations
def activations_view(
    model: str, sequence_length: int, micro_batch: int, recompute: str, flash_attention: bool, dropout: bool,
    accelerator: str,
) -> View:  # fmt: skip
    """What forward keeps for backward, of one layer and of all, on one device.

    Args:
        model: a dense preset.
        sequence_length: tokens of a sequence.
        micro_batch: sequences at once.
        recompute: "none", "selective" (the attention core) or "full" (a layer keeps its input alone).
        flash_attention: scores never reach memory.
        dropout: masks are kept.
        accelerator: whose memory it is held against.
    """
    shaped, device = catalog.model(model), device_named(accelerator)
    values = step.shape(shaped) | {
        "sequence_length": sequence_length, "activation_bytes": 2, "tensor": 1, "sequence_sharded": 0,
        "dropout": float(dropout), "unfused_attention": float(not flash_attention),
        "core_recompute": float(recompute == "selective"),
    }  # fmt: skip

    def held(token_bytes: float, layers: int) -> float:
        batch = {"micro_batch": micro_batch, "sequence_length": sequence_length, "in_flight": 1}
        return float(activation_memory(token_layer_bytes=token_bytes, stage_layers=layers, **batch))

    token = {name: value for name, value in parts(step.token_layer_bytes, ACTIVATIONS, values).items() if value}
    one = {name: held(value, 1) for name, value in token.items()}
    every = {name: held(value, shaped.layers) for name, value in token.items()}
    if recompute == "full":
        inputs = step.layer_input_bytes(**step.pick(step.layer_input_bytes, values))
        every = {"layer input": held(inputs, shaped.layers), **one}  # one layer at a time is whole again
    layer, total = sum(one.values()), sum(every.values())
    fits = total <= device.memory_bytes
    batch = f"{micro_batch} x {sequence_length:,} tokens"
    useless = recompute == "selective" and flash_attention
    note = " Flash attention keeps no scores, so selective recomputation saves nothing more." if useless else ""
    again = "Inputs of all layers and one layer made again" if recompute == "full" else f"All {shaped.layers} layers"
    return View(
        f"For {batch} one layer of {model} keeps {gib(layer)} GiB. {again} take {gib(total)} GiB, "
        f"{against(total, device.memory_bytes)} the {gib(device.memory_bytes)} GiB of one {device.name}.{note}",
        ("tensors", "one layer (GiB)", "share", "all layers (GiB)"),
        (
            *((name, *((gib(one[name]), share(one[name], layer)) if name in one else ("–", "–")), gib(value))
              for name, value in every.items()),
            ("together", gib(layer), "100 %", gib(total)),
        ),
        {
            "finding": f"All {shaped.layers} layers {'fit' if fits else 'do not fit'} on one device",
            "sections": [
                Section("one layer (GiB)", {"1 layer": one}, gib),
                Section(f"all {shaped.layers} layers (GiB)", {"all layers": every}, gib,
                        (device.memory_bytes, f"one device: {gib(device.memory_bytes)} GiB")),
            ],
        },
    )  # fmt: skip


def activations(*, ask: str | None = None, **values: Any) -> Explorer:
    """Activations of a micro-batch on one device, before anything is split.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("model", "model", "llama-3-8b", models(dense=True)),
        Number("sequence_length", "sequence (tokens)", 8192, 256, 2**20, whole=True, logarithmic=True),
        Choice("micro_batch", "micro-batch", 1, dict(list(POWERS.items())[:9])),
        Choice("recompute", "recomputation", "none", {"none": "none", "selective": "selective", "full": "full"}),
        Flag("flash_attention", "flash attention", True),
        Flag("dropout", "dropout", False),
        Choice("accelerator", "accelerator", "h100-sxm", devices_offered()),
    )
    return Explorer(
        controls, activations_view, lambda: Stacks(pictures.ACTIVATION_COLOURS, WIDTH, 3.4, labels=1.1), ask=ask,
        values=values,
    )  # fmt: skip
