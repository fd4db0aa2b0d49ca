"""Peak memory of a layout: the fullest stage's state, activations, logits and buffers, and a visible margin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from course.batch import gpipe_in_flight, interleaved_in_flight, one_f_one_b_in_flight, zero_bubble_in_flight
from course.constrain import activation_memory, gathered_weights, whole_gradients
from course.estimate import LOGIT_BYTES, layer_input_bytes, logits_bytes, pick, token_layer_bytes
from course.formula import Formula, Step
from course.legality import SCHEDULES
from course.predict.constants import LOGIT_GRADIENT_BYTES, MARGIN_BYTES, MARGIN_SHARE, SAVED_LOGIT_BYTES
from course.predict.context import buffer_bytes
from course.predict.experts import active_width, expert_inputs_bytes, routed_layer, routed_parameters, shared_layers
from course.predict.latent import latent_saved_bytes, widths
from course.predict.stages import Stages, layer_parameters, stage_parameters
from course.problem import Run
from course.shard import expert_state_per_device, state_per_device
from course.symbols import symbols
from course.units import TOKEN

Columns = dict[str, np.ndarray]
h, a, a_kv, d, f, n_mlp, b_a, T_p, s_p = symbols(
    "hidden", "heads", "kv_heads", "head_size", "ffn", "mlp_matrices", "activation_bytes", "tensor", "sequence_sharded"
)

eager_copies_bytes = Formula(
    "eager_copies_bytes",
    "A",
    b_a * ((a + 2 * a_kv) * d + (n_mlp - 2) * f) / T_p / TOKEN,
    "byte/token",
    "bytes one layer saves for one token besides, where element-wise operations run one by one",
    assumptions=("queries, keys and values are copied after the rotary turn, and a gate's activation is a tensor too",),
    derivation=(
        Step("copies of Q, K and V, and the activated gate, where there is one",
             (b_a * a * d + 2 * b_a * a_kv * d + b_a * f * (n_mlp - 2)) / T_p / TOKEN),
    ),
)  # fmt: skip

kept_inputs_bytes = Formula(
    "kept_inputs_bytes",
    "A",
    2 * b_a * h * s_p * (1 - 1 / T_p) / TOKEN,
    "byte/token",
    "bytes one layer saves for one token besides, where gathered inputs of its column-split matrices stay whole",
    derivation=(Step("two inputs whole instead of one t-th of them", 2 * (b_a * h - b_a * h / T_p) * s_p / TOKEN),),
)

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "margin")


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest stage, by part, and which stage that is; columns over layouts."""

    parts: dict[str, np.ndarray]
    peak: np.ndarray
    stage: np.ndarray


def memory(run: Run, columns: Columns, stages: Stages) -> Memory:
    """Peak memory of each layout, in bytes a device.

    Norms and biases are counted as if tensor ranks split them: under 0.1 % of the state.
    """
    wide = {name: column[:, None] for name, column in columns.items()}
    model, state, software = run.model, run.training.state, run.software
    held = stage_parameters(run, columns, stages)

    def state_part(**bytes_by_part: float) -> np.ndarray:
        values = {"weight_bytes": 0.0, "gradient_bytes": 0.0, "optimizer_bytes": 0.0, **bytes_by_part}
        flags = {name: wide[name] for name in ("shard_optimizer", "shard_gradients", "shard_weights")}
        place = {"stage_parameters": held, "tensor": wide["tensor"], "ranks": wide["shard_group"]}
        state = np.asarray(state_per_device(**place, **flags, **values))
        if model.experts:
            state = state + expert_state_per_device(
                expert_parameters=routed_parameters(model, stages), expert=wide["expert"],
                expert_tensor=wide["expert_tensor"], expert_data=wide["expert_shards"], **flags, **values,
            )  # fmt: skip
        return state

    # a context rank holds its own share of every sequence
    sequence = {
        "micro_batch": wide["micro_batch"], "sequence_length": run.training.sequence_length / wide["context"],
    }  # fmt: skip
    flight = in_flight(wide, stages)
    activations = _activations(run, wide, stages, flight, sequence)
    one_logit = LOGIT_BYTES["fused" if software.fused_loss else "unfused"]
    # GPipe makes the logits of every micro-batch before the first backward: what the loss saved of the others waits
    waiting = np.where(wide["schedule"] == SCHEDULES.index("gpipe"), SAVED_LOGIT_BYTES * (flight - 1), 0.0)
    split = wide["schedule"] == SCHEDULES.index("zero-bubble")
    if split.any():  # the last stage puts off the head's gradient, which needs that of the logits
        waiting = np.where(split, LOGIT_GRADIENT_BYTES * (flight - 1), waiting)
    logits = stages.has_head * logits_bytes(
        logit_bytes=one_logit + waiting, vocabulary=model.vocabulary, tensor=wide["tensor"],
        **sequence,
    )  # fmt: skip
    # a vocabulary table is gathered and reduced whole, as a layer is
    table = float(model.vocabulary * model.hidden) * np.maximum(stages.has_input, stages.has_head)
    one = np.minimum(stages.layers, 1) * layer_parameters(run)
    if model.experts:
        one = np.maximum(
            *(np.minimum(count, 1) * size for count, size in
              zip((stages.layers - stages.mixture, stages.mixture), shared_layers(model), strict=True))
        )  # fmt: skip
    largest = np.maximum(one, table)
    flags = {"tensor": wide["tensor"], "ranks": wide["shard_group"]}
    tokens = wide["micro_batch"] * run.training.sequence_length / wide["context"]
    gathered_input = 2.0 * model.hidden * tokens * wide["sequence_parallel"]
    buffers = (
        gathered_weights(
            **flags, layer_parameters=(one + largest) / 2, weight_bytes=float(state.weights),
            shard_weights=wide["shard_weights"],
        )
        + whole_gradients(
            **flags, layer_parameters=largest, gradient_bytes=float(state.all_gradients),
            shard_gradients=wide["shard_gradients"],
        )
        + gathered_input
    )  # fmt: skip
    if (wide["context"] > 1).any():
        buffers = buffers + buffer_bytes(run, wide)
    if model.experts:
        buffers = buffers + _expert_buffers(run, wide, stages)
    capacity = run.cluster.accelerator.memory_bytes
    parts = {
        "weights": state_part(weight_bytes=float(state.weights)),
        "gradients": state_part(gradient_bytes=float(state.all_gradients)),
        "optimizer": state_part(optimizer_bytes=float(state.optimizer)),
        "activations": activations,
        "logits": logits,
        "buffers": buffers,
        "margin": MARGIN_SHARE * capacity + MARGIN_BYTES,
    }
    whole = sum(np.broadcast_to(part, stages.layers.shape) for part in parts.values())
    whole = np.where(stages.stands_for > 0, whole, 0.0)
    fullest = np.argmax(whole, axis=1)
    row = np.arange(len(fullest))
    chosen = {name: np.broadcast_to(part, whole.shape)[row, fullest] for name, part in parts.items()}
    return Memory(chosen, whole[row, fullest], np.where(split, last_alike(stages), stages.index)[row, fullest])


def _activations(run: Run, wide: Columns, stages: Stages, flight: np.ndarray, sequence: dict[str, Any]) -> np.ndarray:
    """What is saved for backward, of every kind of layer a stage holds."""
    model, software, full = run.model, run.software, wide["full_recompute"]
    saved = {
        **widths(model), **sequence, "sequence_length": run.training.sequence_length, "activation_bytes": 2.0,
        "tensor": wide["tensor"], "dropout": float(software.dropout), "sequence_sharded": wide["sequence_parallel"],
        "core_recompute": wide["core_recompute"], "unfused_attention": float(not software.flash_attention),
        "expert_tensor": wide["expert_tensor"], "experts_per_token": model.experts_per_token, "q_lora": model.q_lora,
        "kv_lora": model.kv_lora,
    }  # fmt: skip
    inputs = np.asarray(layer_input_bytes(**pick(layer_input_bytes, saved)))
    besides: Any = latent_saved_bytes(**pick(latent_saved_bytes, saved)) if model.kv_lora else 0.0
    if not software.tensor_regather:
        besides = besides + kept_inputs_bytes(**pick(kept_inputs_bytes, saved | {"hidden": float(model.hidden)}))

    def with_copies(layer: Any, widths: dict[str, Any]) -> np.ndarray:
        if software.eager_kernels:
            layer = layer + eager_copies_bytes(**pick(eager_copies_bytes, widths))
        return np.asarray(layer)

    plain = with_copies(token_layer_bytes(**pick(token_layer_bytes, saved)) + besides, saved)
    held = [(stages.layers - stages.mixture, plain)]
    if model.experts:
        routed = saved | {"ffn": active_width(model)}
        one = token_layer_bytes(**pick(token_layer_bytes, routed)) + besides
        one = one + expert_inputs_bytes(**pick(expert_inputs_bytes, routed))
        held.append((stages.mixture, with_copies(one, routed)))
    kept, whole = 0.0, 0.0
    split = (wide["schedule"] == SCHEDULES.index("zero-bubble")) & (full > 0)
    for count, layer in held:
        kept = kept + activation_memory(
            token_layer_bytes=np.where(full > 0, inputs, layer), stage_layers=count, in_flight=flight, **sequence
        )
        if split.any():
            # what was computed again for the input's gradient stays until the weights have theirs: stage i lets i
            # micro-batches wait, and one more until its own turn comes
            wait = np.minimum(last_alike(stages) + 1, flight)
            kept = kept + activation_memory(
                token_layer_bytes=(layer - inputs) * split, stage_layers=count, in_flight=wait, **sequence
            )
        # under full recomputation one layer at a time is whole again
        whole = np.maximum(
            whole,
            activation_memory(
                token_layer_bytes=layer * (full * ~split), stage_layers=np.minimum(count, 1), in_flight=1.0, **sequence
            ),
        )
    return np.asarray(kept + whole)


def _expert_buffers(run: Run, wide: Columns, stages: Stages) -> np.ndarray:
    """Routed experts of one layer, gathered and reduced whole where the rest of the layer is too."""
    state = run.training.state
    given = {
        "tensor": wide["expert"] * wide["expert_tensor"], "ranks": wide["expert_shards"],
        "layer_parameters": np.minimum(stages.mixture, 1) * routed_layer(run.model),
    }  # fmt: skip
    return np.asarray(
        gathered_weights(**given, weight_bytes=float(state.weights), shard_weights=wide["shard_weights"])
        + whole_gradients(**given, gradient_bytes=float(state.all_gradients), shard_gradients=wide["shard_gradients"])
    )


def in_flight(columns: Columns, stages: Stages) -> np.ndarray:
    """Micro-batches each representative stage holds at once, in whole stages, by the schedule of each layout."""
    place = {"pipeline": columns["pipeline"], "stage": np.minimum(stages.index, columns["pipeline"] - 1)}
    m, v = columns["micro_batches"], columns["interleave"]
    choices = {
        "gpipe": gpipe_in_flight(micro_batches=m),
        "1f1b": one_f_one_b_in_flight(micro_batches=m, **place),
        "interleaved": interleaved_in_flight(micro_batches=m, interleave=v, **place),
        "zero-bubble": zero_bubble_in_flight(micro_batches=m, pipeline=columns["pipeline"]),
    }
    # without a pipeline backward follows each forward, whatever the schedule is called
    flight = np.select([columns["schedule"] == SCHEDULES.index(name) for name in choices], list(choices.values()), 1.0)
    return np.where(columns["pipeline"] > 1, flight, 1.0)


def last_alike(stages: Stages) -> np.ndarray:
    """The last of the stages that each representative stands for: under zero-bubble later ones let more work wait."""
    return np.asarray(stages.index + np.maximum(stages.stands_for, 1.0) - 1)
