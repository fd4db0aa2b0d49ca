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
    wide_peak,
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

eager_bytes = Formula(
    "eager_bytes",
    "Q",
    b_a * _tokens * (6 * h * (s_p / T_p + 1 - s_p) + (6 * (a + a_kv) * d + 3 * (n_mlp - 2) * f) / T_p) / DEVICE,
    "byte/device",
    "bytes that element-wise passes of one layer forward move besides, where operations run one by one",
    derivation=(
        Step("2 norms pass an fp32 copy of their input: written and read, half again each; the rotary turn reads "
             "and writes the two halves of queries and keys and joins them; the gate's activation goes and comes apart",
             b_a * _tokens * (2 * 3 * h * (1 - s_p + s_p / T_p) + 6 * (a * d + a_kv * d) / T_p
                              + 3 * f * (n_mlp - 2) / T_p) / DEVICE),
    ),
)  # fmt: skip

narrow_cast_bytes = Formula(
    "narrow_cast_bytes",
    "Q",
    2 * b_a * _tokens * (h * (s_p / T_p + 1 - s_p) * 2 + (a * d + f) / T_p) / DEVICE,
    "byte/device",
    "bytes of one layer forward for casting matmul inputs to 8 bits or fewer",
    assumptions=("a cast reads 16 bits and writes 8 twice, as they lie and transposed for the weight's gradient",),
    derivation=(
        Step("inputs of the four matmuls: hidden, attention's output, hidden, the MLP's inner vector",
             (b_a + 2 * b_a / 2) * _tokens * (2 * h * (1 - s_p + s_p / T_p) + a * d / T_p + f / T_p) / DEVICE),
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
    `column_split` is backward's time in the matrices that tensor parallelism splits by columns. The two `core` parts
    are those of attention, which a ring of context ranks runs beside. The two `weight` parts are those of backward that
    make gradients of weights: one of the two matmuls that each matmul has there, and nothing of attention or of the
    element-wise passes. Recomputation comes before both gradients, so it stays with the input's.
    """

    forward: np.ndarray
    backward: np.ndarray
    forward_idle: np.ndarray
    backward_idle: np.ndarray
    column_split: np.ndarray
    head_forward: np.ndarray
    head_backward: np.ndarray
    core_forward: np.ndarray
    core_backward: np.ndarray
    weight: np.ndarray
    head_weight: np.ndarray


def layer_times(run: Run, columns: dict[str, np.ndarray], constants: Constants, mixture: bool = False) -> LayerTimes:
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

    def matmul(
        inner: float, outer: float, rows: Any = rows, tensor: Any = columns["tensor"], wide: bool = False
    ) -> np.ndarray:
        parts = {"rows": rows, "inner": inner, "columns": outer, "tensor": tensor}
        flops = shard_matmul_flops(**parts)
        moved = shard_matmul_bytes(**parts, activation_bytes=2.0)
        return _time(run, flops, moved, constants.wide_share if wide else constants.matmul_share, wide)

    column_split: Any = 0.0  # of latents and experts nothing is counted as hidden
    if model.kv_lora:
        matmuls = latent.matmul_time(model, columns, rows, matmul)
    else:
        column_split = matmul(model.hidden, query + 2 * key)
        matmuls = column_split + matmul(model.hidden, query)
    if mixture:
        matmuls = matmuls + experts.matmul_time(model, columns, rows, matmul)
        widths["ffn"] = experts.active_width(model)
    else:
        upward = matmul(model.hidden, inward * model.ffn)
        column_split = column_split + upward
        matmuls = matmuls + upward + matmul(model.hidden, model.ffn)
    moved = element_wise_bytes(**pick(element_wise_bytes, widths)) / context
    if software.eager_kernels:
        moved = moved + eager_bytes(**pick(eager_bytes, widths)) / context
    if run.training.precision in ("fp8", "fp4"):
        moved = moved + narrow_cast_bytes(**pick(narrow_cast_bytes, widths)) / context
    if mixture or model.kv_lora:
        moved = moved + _more_passes(run, widths | {"context": context}, mixture)
    memory_rate = constants.memory_share * run.cluster.accelerator.memory_bytes_per_s
    element_wise = moved / memory_rate
    core_forward, core_backward = _attention(run, widths, context, constants)
    device_forward = matmuls + core_forward + element_wise
    device_backward = 2 * matmuls + core_backward + 2 * element_wise
    launches = experts.HOST_RATIO if mixture else 1.0
    host_forward, host_backward = _host_times(run, columns, constants)
    forward = layer_time(device_time=device_forward, host_time=host_forward * launches)
    backward = layer_time(device_time=device_backward, host_time=host_backward * launches)
    forward_idle = forward - device_forward
    backward_idle = backward - device_backward + columns["full_recompute"] * forward_idle
    again = columns["full_recompute"] * forward + columns["core_recompute"] * core_forward
    weight = matmuls * backward / device_backward  # where the host sets the pace both halves wait for it alike
    head = matmul(model.hidden, model.vocabulary, wide=True)
    loss_forward, loss_backward = LOSS_BYTES["fused" if software.fused_loss else "unfused"]
    logits = rows * model.vocabulary / columns["tensor"] / memory_rate
    return LayerTimes(
        forward, backward + again, forward_idle, backward_idle, np.broadcast_to(2 * column_split, forward.shape),
        head + logits * loss_forward, 2 * head + logits * loss_backward, core_forward, core_backward,
        weight, head,
    )  # fmt: skip


def _host_times(run: Run, columns: dict[str, np.ndarray], constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """The host's floor of a layer, forward and backward."""
    tensor, pipeline = columns["tensor"], columns["pipeline"]
    more = constants.host_tensor_s * (tensor > 1)
    forward, backward = constants.host_forward_s + more, constants.host_backward_s + more
    bound = (tensor > 1) & (pipeline > 1) & (run.cluster.devices > run.cluster.fabric.node_size)
    floor = np.where(bound, constants.host_pipeline_s + constants.host_pipeline_rank_s * tensor, 0.0)
    share = forward / np.maximum(forward + backward, 1e-12)
    return np.maximum(forward, share * floor), np.maximum(backward, (1 - share) * floor)


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
        forward = _time(run, flops, np.zeros_like(flops), constants.attention_share, wide=True)
        return forward, FLASH_BACKWARD * forward
    count = score_count(**pick(score_count, widths)) / context
    scores = count * SCORE_BYTES_FORWARD / run.cluster.accelerator.memory_bytes_per_s
    forward = _time(run, 2 * flops, np.zeros_like(flops), constants.wide_share, wide=True) + scores
    return forward, 2 * forward


def _time(run: Run, flops: np.ndarray, moved: np.ndarray, share: float, wide: bool = False) -> np.ndarray:
    """Time of an operation; `wide` for one that computes in 16 bits in every run."""
    accelerator = run.cluster.accelerator
    peak = wide_peak(accelerator) if wide else accelerator.peak_flops_per_s
    return np.asarray(
        operation_time(
            kernel_flops=flops, kernel_bytes=moved, peak_flops_per_s=peak, efficiency=share,
            memory_bytes_per_s=accelerator.memory_bytes_per_s,
        )
    )  # fmt: skip
