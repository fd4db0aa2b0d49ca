"""The layers a stage holds, by kind: what each takes to compute and what its collectives add.

A model has layers without experts, layers with them, or the first few of the one kind and the rest of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.legality import SCHEDULES
from course.predict import context, experts
from course.predict.compute import LayerTimes, layer_times
from course.predict.constants import Constants
from course.predict.stages import Stages
from course.predict.traffic import Link, tensor_layer_time
from course.problem import Run

Columns = dict[str, np.ndarray]
AXES = ("tensor", "context", "expert")
"""The axes whose collectives stand inside a layer."""


@dataclass(frozen=True)
class Kind:
    """One kind of layer: `held` counts them on each representative stage, the rest is seconds of a micro-batch.

    `total` and `seen` are, by axis, all of its collectives and what of them the layer waits for; `cover` is how long it
    takes, forward and backward, with what it waits for: other traffic can run beside that.
    """

    held: np.ndarray
    times: LayerTimes
    compute: np.ndarray
    total: dict[str, np.ndarray]
    seen: dict[str, np.ndarray]
    cover: tuple[np.ndarray, np.ndarray]


def kinds(run: Run, columns: Columns, stages: Stages, link: dict[str, Link], constants: Constants) -> list[Kind]:
    """The kinds of layers of each layout, those without experts first."""
    model, found = run.model, []
    if not model.experts or model.dense_layers:
        found.append(_kind(run, columns, stages.layers - stages.mixture, link, constants, False))
    if model.experts:
        found.append(_kind(run, columns, stages.mixture, link, constants, True))
    return found


def _kind(
    run: Run, columns: Columns, held: np.ndarray, link: dict[str, Link], constants: Constants, mixture: bool
) -> Kind:
    layer = layer_times(run, columns, constants, mixture)
    tensor_forward, tensor_backward, beneath = tensor_layer_time(
        run, columns, link["tensor"], constants, layer.column_split
    )
    if mixture:
        share = experts.tensor_share(run.model)
        tensor_forward, tensor_backward, beneath = share * tensor_forward, share * tensor_backward, share * beneath
    # two budgets, each spent once: what the device computes, beside which the program may hide collectives, and the
    # time in which it waits for the host, whose launches are a floor
    idle = [layer.forward_idle, layer.backward_idle]
    spare = [layer.forward - layer.forward_idle, layer.backward - layer.backward_idle]
    total: dict[str, np.ndarray] = {}
    seen: dict[str, np.ndarray] = {}
    cover = layer.forward, layer.backward

    def add(axis: str, whole: tuple[np.ndarray, np.ndarray], waited: tuple[np.ndarray, np.ndarray]) -> None:
        """Add an axis whose collectives take `whole`, of which the program waits for `waited` however much it has."""
        nonlocal cover
        shown = []
        for at in range(2):
            wait = np.maximum(waited[at], whole[at] - spare[at])
            spare[at] = spare[at] - (whole[at] - wait)
            shown.append(np.maximum(wait - idle[at], 0.0))
            idle[at] = np.maximum(idle[at] - wait, 0.0)
        total[axis], seen[axis] = whole[0] + whole[1], shown[0] + shown[1]
        cover = (cover[0] + shown[0], cover[1] + shown[1])

    none = np.zeros_like(tensor_forward)
    waited = (none, none) if run.software.overlap_tensor else (tensor_forward, tensor_backward - beneath)
    add("tensor", (tensor_forward, tensor_backward), waited)
    if (columns["context"] > 1).any():
        ring = link["context"]
        core = (layer.core_forward, layer.core_backward)
        add("context", *context.exchange(run, columns, core, ring.latency_s, ring.bytes_per_s))
    if mixture and ((columns["expert"] > 1) | (columns["expert_tensor"] > 1)).any():
        sent = experts.exchange(run, columns, link, constants)
        add("expert", sent, (none, none) if run.software.overlap_expert else sent)
    return Kind(held, layer, layer.forward + layer.backward, total, seen, cover)


def on_stages(kinds: list[Kind], of: str, axis: str | None = None) -> np.ndarray:
    """Seconds a micro-batch of all layers of each stage: `compute`, or of one axis its `total` or what is `seen`."""
    whole = np.zeros_like(kinds[0].held)
    for kind in kinds:
        one = getattr(kind, of) if axis is None else getattr(kind, of).get(axis)
        if one is not None:
            whole = whole + kind.held * one[:, None]
    return whole


def routed(run: Run) -> float:
    """Parameters of all routed experts of the model; 0 where it has none."""
    if not run.model.experts:
        return 0.0
    return (run.model.layers - (run.model.dense_layers or 0)) * experts.routed_layer(run.model)


def cover(run: Run, columns: Columns, kinds: list[Kind]) -> tuple[np.ndarray, np.ndarray]:
    """How long a layer takes forward and backward, on average over the model: what other traffic can run beside.

    Where backward is split a bucket's gradients are ready after its last weights' part, so that alone can cover it.
    """
    split = columns["schedule"] == SCHEDULES.index("zero-bubble")
    found = [kind.cover for kind in kinds]
    if split.any():
        found = [(kind.cover[0], np.where(split, kind.times.weight, kind.cover[1])) for kind in kinds]
    if len(found) == 1:
        return found[0]
    first = (run.model.dense_layers or 0) / run.model.layers
    (forward, backward), (rest_forward, rest_backward) = found
    return first * forward + (1 - first) * rest_forward, first * backward + (1 - first) * rest_backward
