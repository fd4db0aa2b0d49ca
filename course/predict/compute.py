"""Compute time of one layer and of the head: matmuls, attention, element-wise passes, the host's floor.

All columns are over layouts; times are in seconds, for one micro-batch on one device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from course.estimate import operation_time, pick
from course.formula import Formula, Step
from course.overlap import layer_time
from course.predict import experts, latent
from course.predict.constants import (
    FLASH_BACKWARD,
    LOSS_BYTES,
    SCORE_BYTES_FORWARD,
    Constants,
)
from course.problem import Run
from course.symbols import symbols
from course.units import DEVICE, FLOP, SEQUENCE, TOKEN

m_r, k_r, n_r, b_a, T_p, s_p = symbols("rows", "inner", "columns", "activation_bytes", "tensor", "sequence_sharded")
h, a, a_kv, d, f, n_mlp, B, T, delta = symbols(
    "hidden", "heads", "kv_heads", "head_size", "ffn", "mlp_matrices", "micro_batch", "sequence_length", "dropout"
)
w_a = symbols("sliding_window")[0]
_tokens = B * T / TOKEN

shard_matmul_flops = Formula(
    "shard_matmul_flops",
    "F_k",
    2 * m_r * k_r * n_r / T_p * FLOP / DEVICE,
    "FLOP/device",
    "FLOPs of a matmul on one tensor rank",
)

shard_matmul_bytes = Formula(
    "shard_matmul_bytes",
    "Q",
    b_a * (m_r * k_r + (k_r * n_r + m_r * n_r) / T_p) / DEVICE,
    "byte/device",
    "bytes of a matmul on one tensor rank: its input whole, its share of weights and output",
    assumptions=("the output is split; where the input is split instead, the same with the two widths exchanged",),
)

attention_flops = Formula(
    "attention_flops",
    "F_k",
    2 * a * d * T * SEQUENCE / TOKEN * _tokens / T_p * FLOP / DEVICE,
    "FLOP/device",
    "FLOPs of causal attention forward in one layer: scores and weighted values over half the square",
    derivation=(
        Step("two matmuls of 2 a d T a token, halved",
             2 * (2 * a * d * T * SEQUENCE / TOKEN) / 2 * _tokens / T_p * FLOP / DEVICE),
    ),
)  # fmt: skip

_window = w_a / TOKEN
_length = T * SEQUENCE / TOKEN

window_flops = Formula(
    "window_flops",
    "F_k",
    4 * a * d * (_window - _window**2 / (2 * _length)) * _tokens / T_p * FLOP / DEVICE,
    "FLOP/device",
    "FLOPs of causal attention forward in one layer that looks back w_a tokens, no more than a sequence has",
    assumptions=("the kernel skips what lies outside the window",),
    derivation=(
        Step("the first w_a tokens meet w_a/2 keys on average, the others w_a; two matmuls of 2 a d for each",
             2 * (2 * a * d) * (_window * _window / 2 + (_length - _window) * _window) / _length
             * _tokens / T_p * FLOP / DEVICE),
    ),
)  # fmt: skip

score_count = Formula(
    "score_count",
    "n_s",
    a * T * SEQUENCE / TOKEN * _tokens / T_p,
    "1",
    "attention scores of one layer and micro-batch on one tensor rank, the full square",
)

element_wise_bytes = Formula(
    "element_wise_bytes",
    "Q",
    b_a * _tokens * (h * (10 + 4 * delta) * (s_p / T_p + 1 - s_p) + (2 * (a + a_kv) * d + n_mlp * f) / T_p) / DEVICE,
    "byte/device",
    "bytes of the element-wise passes of one layer forward: norms, residual sums, rotary turn, activation function",
    derivation=(
        Step("2 norms read and write; 2 sums read twice and write; 2 dropouts read and write; queries and keys are "
             "read and written; the activation reads and writes each MLP matrix's output once",
             b_a * _tokens * ((2 * 2 + 2 * 3 + 2 * 2 * delta) * h * (1 - s_p + s_p / T_p)
                              + 2 * (a * d + a_kv * d) / T_p + n_mlp * f / T_p) / DEVICE),
    ),
)  # fmt: skip

optimizer_bytes_moved = Formula(
    "optimizer_bytes_moved",
    "Q",
    symbols("stage_parameters")[0]
    * (2 * symbols("optimizer_bytes")[0] + symbols("gradient_bytes")[0] + symbols("weight_bytes")[0])
    / DEVICE,
    "byte/device",
    "bytes of one optimizer step: master and moments read and written, gradients read, weights written",
)


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of one micro-batch: a layer forward and backward, and what the last stage adds.

    The two `idle` parts of a layer are those in which the device waits for the host: collectives may run in them.
    The two `core` parts are those of attention, which a ring of context ranks runs beside.
    """

    forward: np.ndarray
    backward: np.ndarray
    forward_idle: np.ndarray
    backward_idle: np.ndarray
    head_forward: np.ndarray
    head_backward: np.ndarray
    core_forward: np.ndarray
    core_backward: np.ndarray


def layer_times(
    run: Run, columns: dict[str, np.ndarray], constants: Constants, mixture: bool = False
) -> LayerTimes:
    """Compute time of a layer and of the output head, for each layout; recomputation belongs to backward.

    `mixture` asks for a layer with experts in place of one without.
    """
    model, software, context = run.model, run.software, columns["context"]
    widths: dict[str, Any] = latent.widths(model) | {
        "sequence_length": run.training.sequence_length, "activation_bytes": 2.0, "dropout": float(software.dropout),
        "micro_batch": columns["micro_batch"], "tensor": columns["tensor"],
        "sequence_sharded": columns["sequence_parallel"],
    }  # fmt: skip
    rows = columns["micro_batch"] * run.training.sequence_length / columns["context"]
    query, key = model.heads * model.head_size, model.kv_heads * model.head_size
    inward = widths["mlp_matrices"] - 1

    def matmul(inner: float, outer: float, rows: Any = rows, tensor: Any = columns["tensor"]) -> np.ndarray:
        parts = {"rows": rows, "inner": inner, "columns": outer, "tensor": tensor}
        flops = shard_matmul_flops(**parts)
        return _time(run, flops, shard_matmul_bytes(**parts, activation_bytes=2.0), constants.matmul_share)

    if model.kv_lora:
        matmuls = latent.matmul_time(model, columns, rows, matmul)
    else:
        matmuls = matmul(model.hidden, query + 2 * key) + matmul(model.hidden, query)
    if mixture:
        matmuls = matmuls + experts.matmul_time(model, columns, rows, matmul)
        widths["ffn"] = experts.active_width(model)
    else:
        matmuls = matmuls + matmul(model.hidden, inward * model.ffn) + matmul(model.hidden, model.ffn)
    passes = element_wise_bytes(**pick(element_wise_bytes, widths)) / context
    if mixture or model.kv_lora:
        passes = passes + _more_passes(run, widths | {"context": context}, mixture)
    element_wise = passes / run.cluster.accelerator.memory_bytes_per_s
    core_forward, core_backward = _attention(run, widths, context, constants)
    device_forward = matmuls + core_forward + element_wise
    device_backward = 2 * matmuls + core_backward + 2 * element_wise
    launches = experts.HOST_RATIO if mixture else 1.0
    forward = layer_time(device_time=device_forward, host_time=constants.host_forward_s * launches)
    backward = layer_time(device_time=device_backward, host_time=constants.host_backward_s * launches)
    forward_idle = forward - device_forward
    backward_idle = backward - device_backward + columns["full_recompute"] * forward_idle
    again = columns["full_recompute"] * forward + columns["core_recompute"] * core_forward
    head = matmul(model.hidden, model.vocabulary)
    loss_forward, loss_backward = LOSS_BYTES["fused" if software.fused_loss else "unfused"]
    logits = rows * model.vocabulary / columns["tensor"] / run.cluster.accelerator.memory_bytes_per_s
    return LayerTimes(
        forward, backward + again, forward_idle, backward_idle,
        head + logits * loss_forward, 2 * head + logits * loss_backward, core_forward, core_backward,
    )  # fmt: skip


def _more_passes(run: Run, widths: dict[str, Any], mixture: bool) -> Any:
    """Bytes of passes that a dense layer of plain attention does not have."""
    passes: Any = 0.0
    if mixture:
        widths = widths | {"experts_per_token": run.model.experts_per_token}
        passes = passes + experts.routing_bytes(**pick(experts.routing_bytes, widths))
    if run.model.kv_lora:
        widths = widths | {"q_lora": run.model.q_lora, "kv_lora": run.model.kv_lora}
        passes = passes + latent.latent_norm_bytes(**pick(latent.latent_norm_bytes, widths))
    return passes


def _attention(
    run: Run, widths: dict[str, Any], context: np.ndarray, constants: Constants
) -> tuple[np.ndarray, np.ndarray]:
    """The attention core forward and backward: flash kernels skip half the square, unfused ones do not.

    Context ranks share the square out evenly.
    """
    flops = attention_flops(**pick(attention_flops, widths)) / context
    if run.software.flash_attention:
        model, length = run.model, run.training.sequence_length
        if 0 < model.sliding_window < length and model.window_layers:
            widths = widths | {"sliding_window": model.sliding_window}
            local = window_flops(**pick(window_flops, widths)) / context
            flops = flops + (local - flops) * (model.window_layers / model.layers)  # the mean of all layers
        forward = _time(run, flops, np.zeros_like(flops), constants.attention_share)
        return forward, FLASH_BACKWARD * forward
    count = score_count(**pick(score_count, widths)) / context
    scores = count * SCORE_BYTES_FORWARD / run.cluster.accelerator.memory_bytes_per_s
    forward = _time(run, 2 * flops, np.zeros_like(flops), constants.matmul_share) + scores
    return forward, 2 * forward


def _time(run: Run, flops: np.ndarray, moved: np.ndarray, share: float) -> np.ndarray:
    accelerator = run.cluster.accelerator
    return np.asarray(
        operation_time(
            kernel_flops=flops, kernel_bytes=moved, peak_flops_per_s=accelerator.peak_flops_per_s, efficiency=share,
            memory_bytes_per_s=accelerator.memory_bytes_per_s,
        )
    )  # fmt: skip
