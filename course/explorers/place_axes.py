"""The explorers of step 4 about axes: `bounds` of each by communication, and the `mix` of FSDP and tensor ranks."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from course import catalog
from course import place as step
from course.errors import UserError
from course.estimate import count
from course.explorers.base import Choice, Explorer, Number, View
from course.explorers.place_links import FABRICS, MODELS, WIDTH, fabric_of, named
from course.pictures.place import Curves, Line
from course.problem import Fabric, Model

__all__ = ["bounds", "bounds_view", "legal_degrees", "mix", "mix_view", "mixed_times"]

DEVICES = {
    "h100-ib400": "h100-sxm", "a100-ib200": "a100-sxm-80gb", "b200-ib400": "b200-sxm", "gb200-nvl72": "gb200",
    "tpu-v5p": "tpu-v5p",
}  # fmt: skip
"""The accelerator each fabric joins."""


@cache
def _peak(fabric: str) -> float:
    return catalog.accelerator(DEVICES[fabric]).peak_flops_per_s


def _at_least_one(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value >= 1:
            raise UserError(f"{name} must be 1 or more; it is {value:g}.")


# ---------------------------------------------------------------- bounds
UNITS = 8
"""Gathers and scatters of a layer, forward and backward: no recomputation, inputs kept whole."""
TOKENS = np.geomspace(16, 65536, 121)


EXPERT_RANKS = 64
"""Devices the experts of a layer are spread over, in `bounds`."""


def _layer(shape: Model) -> float:
    """Matmul parameters of one layer, without the output head."""
    return (count(shape).matmul_active - shape.vocabulary * shape.hidden) / shape.layers


def _step_latency(links: Fabric, together: int) -> float:
    """Mean latency of a step of a ring with `together` of its ranks on each node: one hop of them leaves it."""
    return ((together - 1) * links.scale_up_latency_s + links.scale_out_latency_s) / together


def _rate(links: Fabric, together: int) -> float:
    return float(step.group_bandwidth(
        scale_up_bytes_per_s=links.scale_up_bytes_per_s, scale_out_bytes_per_s=links.scale_out_bytes_per_s,
        ranks_per_node=together))  # fmt: skip


def _ratios(
    fabric: str, model: str, tensor: int, ranks: int, stage_layers: int, expert_width: int, tokens: Any
) -> dict[str, Any]:
    """Communication over compute of six axes: tensor inside the node while it fits, the rest over the network.

    A tensor group wider than a node fills nodes, so that its rings have all their cards.
    """
    links, shape, peak = fabric_of(fabric), catalog.model(model), _peak(fabric)
    size, wide = links.node_size, tensor > links.node_size
    together = max(1, size // tensor)  # ranks of a data or FSDP group on a node
    inside = {"latency": _step_latency(links, size) if wide else links.scale_up_latency_s,
              "bandwidth": _rate(links, size) if wide else links.scale_up_bytes_per_s}  # fmt: skip
    layer = {"layer_parameters": _layer(shape), "peak_flops_per_s": peak}
    common = {"tokens_per_device": tokens, **layer}
    block = {"hidden": shape.hidden, "activation_bytes": 2}
    spread = {"ranks": ranks, "bandwidth": _rate(links, together), "latency": _step_latency(links, together),
              "reduced_gradient_bytes": 2, "tensor": tensor}  # fmt: skip
    card = {"bandwidth": links.scale_out_bytes_per_s}
    near = size >= EXPERT_RANKS  # all experts of a layer by the links of the node
    experts = step.expert_ratio(
        ranks=EXPERT_RANKS, ranks_per_node=1 if near else size, mlp_matrices=3, expert_ffn=expert_width,
        activation_bytes=2, peak_flops_per_s=peak,
        bandwidth=links.scale_up_bytes_per_s if near else links.scale_out_bytes_per_s,
    )  # fmt: skip
    return {
        "data": step.data_ratio(**common, **spread),
        "FSDP": step.fsdp_ratio(**common, **spread, weight_bytes=2),
        f"tensor {tensor}": step.tensor_ratio(
            **common, **block, **inside, tensor=tensor, tensor_units=UNITS),
        "pipeline": step.pipeline_ratio(
            **common, **block, **card, stage_layers=stage_layers, latency=links.scale_out_latency_s),
        "context": step.context_ratio(  # the tensor ranks of a group hold a block together
            **card, sequence_length=tokens * tensor, context=1, heads=shape.heads, kv_heads=shape.kv_heads,
            activation_bytes=2, peak_flops_per_s=peak),
        "experts": experts + 0 * tokens,
    }  # fmt: skip


def _limit(values: Any) -> str:
    """Tokens at which a ratio of the form a + b / tokens is 1."""
    few, many = TOKENS[0], TOKENS[-1]
    falling = (values[0] - values[-1]) / (1 / few - 1 / many)
    constant = values[-1] - falling / many
    if falling < 1e-9:  # the batch cancels
        return "none helps" if constant > 1 else "never"
    if constant >= 1:
        return "none helps"
    return f"{falling / (1 - constant):,.0f}"


def bounds_view(
    fabric: str, model: str, tensor: int, ranks: int, stage_layers: int, expert_width: int, tokens: float
) -> View:
    """Communication over the compute that may cover it, against tokens of a device; above 1 links decide.

    Args:
        fabric: of the catalog, with the accelerator it joins.
        model: of the catalog.
        tensor: tensor degree, inside the node; data and FSDP groups have the node's other ranks.
        ranks: ranks of a data or FSDP group.
        stage_layers: layers of a pipeline stage, or of a chunk where stages are interleaved.
        expert_width: width of gated experts spread over 64 devices, whatever the model.
        tokens: tokens of a micro-batch for each device.
    """
    _at_least_one(tokens=tokens, stage_layers=stage_layers, ranks=ranks, expert_width=expert_width)
    chosen = (fabric, model, tensor, ranks, stage_layers, expert_width)
    now = {name: float(value) for name, value in _ratios(*chosen, tokens).items()}
    over = _ratios(*chosen, TOKENS)
    bound = [name for name, value in now.items() if value > 1]
    said = f"{' and '.join(bound)} would be bound by communication" if bound else "no axis is bound by communication"
    if len(bound) > 2:
        said = f"{', '.join(bound[:-1])} and {bound[-1]} would be bound by communication"
    limits = {name: _limit(np.asarray(values)) for name, values in over.items()}
    return View(
        f"At {tokens:,.0f} tokens a device, {said}.",
        ("axis", "communication / compute", "bound below about (tokens)"),
        tuple((name, f"{value:.3g}", limits[name]) for name, value in now.items()),
        {
            "finding": f"{model} on {fabric}: above 1, links decide",
            "curves": {name: Line(TOKENS, values) for name, values in over.items() if np.any(np.asarray(values) > 0)},
            "level": (1.0, "as long as compute"),
            "place": (tokens, f"{tokens:,.0f}"),
        },
    )


def bounds(*, ask: str | None = None, **values: Any) -> Explorer:
    """When each axis is bound by communication.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("fabric", "links", "h100-ib400", named(FABRICS)),
        Choice("model", "model", "llama-3-70b", named(MODELS)),
        Choice("tensor", "tensor", 8, {str(size): size for size in (1, 2, 4, 8, 16, 32, 64)}),
        Choice("ranks", "ranks of data or FSDP", 128, {f"{size:,}": size for size in (8, 32, 128, 512, 2048)}),
        Number("stage_layers", "layers of a stage", 8, 1, 32, whole=True),
        Number("expert_width", "width of an expert", 2048, 256, 32768, whole=True, logarithmic=True),
        Number("tokens", "tokens a device", 1024.0, 16, 65536, whole=True, logarithmic=True),
    )
    picture = ("tokens of a micro-batch for each device", "communication / compute")
    return Explorer(controls, bounds_view, lambda: Curves(*picture, WIDTH, 4.2), ask=ask, values=values)


# ---------------------------------------------------------------- FSDP beside tensor parallelism
DEGREES = np.geomspace(1, 128, 673)
V5P_LINK = 90e9
"""Byte/s one way that the JAX Scaling Book counts for a link of a TPU v5p; the data sheet prints 100."""


def mixed_times(fabric: str, model: str, devices: int, tokens: float, tensor: Any) -> Any:
    """Communication of one layer over its compute, for FSDP beside tensor parallelism of degree `tensor`.

    On a torus two axes carry FSDP and one tensor parallelism; without tensor ranks FSDP has all three. On nodes the
    rates follow the degree: FSDP has the cards of the ranks its group has on a node, and a tensor group wider than a
    node leaves it.
    """
    links, shape, peak = fabric_of(fabric), catalog.model(model), _peak(fabric)
    layer = _layer(shape)
    degree = np.asarray(tensor, dtype=float)
    if fabric.startswith("tpu"):
        axis = 2 * V5P_LINK
        fsdp, inside = np.where(degree > 1, 2 * axis, 3 * axis), np.full_like(degree, axis)
    else:
        k = np.maximum(1, links.node_size / degree)
        up, out = links.scale_up_bytes_per_s, links.scale_out_bytes_per_s
        rates = {"scale_up_bytes_per_s": up, "scale_out_bytes_per_s": out}
        fsdp = step.group_bandwidth(**rates, ranks_per_node=k)
        across = step.group_bandwidth(**rates, ranks_per_node=links.node_size)
        inside = np.where(degree <= links.node_size, links.scale_up_bytes_per_s, across)
    moved = step.fsdp_tensor_time(
        weight_bytes=2, reduced_gradient_bytes=2, layer_parameters=layer, tensor_units=UNITS, activation_bytes=2,
        hidden=shape.hidden, tokens_per_device=tokens, tensor=degree, devices=devices, scale_out_bytes_per_s=fsdp,
        scale_up_bytes_per_s=inside,
    )  # fmt: skip
    return moved / (6 * layer * tokens / peak)


def legal_degrees(model: str, devices: int) -> list[int]:
    """Tensor degrees that divide the heads, the key/value heads or a multiple of them, the width and the devices."""
    shape = catalog.model(model)
    every = (size for size in range(1, 129) if shape.heads % size == 0 and devices % size == 0)
    return [size for size in every if shape.kv_heads % size == 0 or size % shape.kv_heads == 0]


def _degree(model: str, size: int) -> str:
    return f"{size}" if catalog.model(model).kv_heads % size == 0 else f"{size} (copies key/value heads)"


def mix_view(fabric: str, model: str, devices: int, tokens: float) -> View:
    """What FSDP and tensor parallelism communicate together, over compute, by tensor degree.

    Args:
        fabric: of the catalog, with the accelerator it joins.
        model: of the catalog.
        devices: FSDP ranks times tensor ranks.
        tokens: tokens of a micro-batch for each device.
    """
    _at_least_one(tokens=tokens)
    legal = [size for size in legal_degrees(model, devices) if size <= devices]
    values = {size: float(mixed_times(fabric, model, devices, tokens, size)) for size in legal}
    degrees = DEGREES[1:] if fabric.startswith("tpu") else DEGREES  # at 1 the curve of a torus has a step
    curve = mixed_times(fabric, model, devices, tokens, degrees)
    best = min(values, key=lambda size: values[size])
    coarse = degrees[int(np.argmin(curve))]
    near = np.clip(coarse * np.geomspace(0.99, 1.01, 401), degrees[0], None)
    lowest = float(near[int(np.argmin(mixed_times(fabric, model, devices, tokens, near)))])
    verdict = "below compute" if values[best] < 1 else "above compute: links decide"
    return View(
        f"The curve is lowest at {lowest:.3g}; of the degrees that divide, {best} is best, with {values[best]:.3g} of "
        f"the compute time, {verdict}.",
        ("tensor degree", "FSDP ranks", "communication / compute"),
        tuple((_degree(model, size), f"{devices // size:,}", f"{value:.3g}") for size, value in values.items()),
        {
            "finding": f"Best degree {best}, at {tokens:,.0f} tokens a device",
            "curves": {"any degree": Line(degrees, curve),
                       "degrees that divide": Line(list(values), list(values.values()), marks=True)},
            "level": (1.0, "as long as compute"),
            "place": (lowest, f"{lowest:.3g}"),
        },
    )  # fmt: skip


def mix(*, ask: str | None = None, **values: Any) -> Explorer:
    """FSDP beside tensor parallelism: where the sum is least.

    `ask` is a question to be guessed first; `values` are those Reset comes back to.
    """
    controls = (
        Choice("fabric", "links", "tpu-v5p", named(("tpu-v5p", *FABRICS))),
        Choice("model", "model", "llama-3-70b", named(MODELS)),
        Choice("devices", "devices", 1024, {f"{size:,}": size for size in (64, 256, 1024, 4096, 8960, 16384)}),
        Number("tokens", "tokens a device", 1024.0, 16, 65536, whole=True, logarithmic=True),
    )
    picture = ("tensor degree", "communication / compute")
    return Explorer(controls, mix_view, lambda: Curves(*picture, WIDTH, 4.2), ask=ask, values=values)
