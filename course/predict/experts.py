"""Layers with experts: what they hold, what their matmuls cost, and how their tokens travel.

Routing is taken as balanced: every expert gets the same share of the copies, no copy is dropped, and every copy
travels. Experts fold into the tensor, context and data ranks of a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp

from course.constrain import layer_parameters
from course.estimate import expert_parameters, pick, shape
from course.formula import Formula, Step
from course.place import ring_all_gather_time
from course.predict.constants import Constants
from course.problem import Model, Run
from course.shard import EXPERT_TRANSFERS, expert_data_ranks, expert_transfer_bytes, tensor_units
from course.symbols import symbols
from course.units import DEVICE, TOKEN

if TYPE_CHECKING:
    from course.predict.stages import Stages
    from course.predict.traffic import Link

Columns = dict[str, np.ndarray]
HOST_RATIO = 3.0
"""Operations the host launches for a mixture layer over those for a dense one, counted: some 12 in a dense layer
(norms, projections, rotary turn, attention, sums, MLP), 24 more for router, top-k, balance, counts, sorts and sends."""

NOTE = "experts get equal shares of the tokens, none is dropped, and every copy of a token travels"

k_E, E, E_p, E_tp, T_p, C_p, D_p, B, T = symbols(
    "experts_per_token", "experts", "expert", "expert_tensor", "tensor", "context", "data", "micro_batch",
    "sequence_length",
)  # fmt: skip
b_a, h, s_p = symbols("activation_bytes", "hidden", "sequence_sharded")
n, k, X, beta_up, beta_out, alpha_up, alpha_out = symbols(
    "ranks", "ranks_per_node", "payload_bytes", "scale_up_bytes_per_s", "scale_out_bytes_per_s", "scale_up_latency_s",
    "scale_out_latency_s",
)  # fmt: skip
_own = B * T / C_p / TOKEN  # tokens of a micro-batch on one context rank
_held = s_p / T_p + 1 - s_p  # what a tensor rank holds of them around the layer

expert_rows = Formula(
    "expert_rows",
    "m_E",
    k_E * B * T / C_p / TOKEN * E_p * E_tp / (T_p * E),
    "1",
    "rows of one expert's matmul: copies of tokens that reach it from one micro-batch of every rank it serves",
    assumptions=("routing is balanced; no capacity limit drops a copy",),
    derivation=(
        Step("k_E copies of the tokens of all D_p replicas, over the experts of the E_dp groups that hold them all",
             k_E * D_p * B * T / TOKEN / (E * expert_data_ranks.expression)),
    ),
)  # fmt: skip

routing_bytes = Formula(
    "routing_bytes",
    "Q_E",
    b_a * h * _own * _held * (2 + 2 * k_E) / DEVICE,
    "byte/device",
    "bytes of one layer's routing forward: tokens sorted into copies by expert, and the results added up",
    derivation=(
        Step("a token is read, k_E copies are written; k_E results are read, their sum is written",
             b_a * h * _own * (s_p / T_p + (1 - s_p)) * ((1 + k_E) + (k_E + 1)) / DEVICE),
    ),
)  # fmt: skip

expert_inputs_bytes = Formula(
    "expert_inputs_bytes",
    "A_E",
    b_a * h * k_E * E_tp / T_p / TOKEN,
    "byte/token",
    "bytes a mixture layer saves for one token beside a dense one: the inputs of its experts, a copy for each",
    assumptions=(
        "expert-tensor ranks each hold the copies of all of them",
        "the experts' inner widths are counted as those of an MLP k_E times as wide",
    ),
    derivation=(
        Step("copies of B T D_p tokens over the E_p E_dp groups of ranks, a token of a context rank at a time",
             (b_a * h * k_E * B * T * D_p / TOKEN) / (E_p * expert_data_ranks.expression) / (B * T / C_p)),
    ),
)  # fmt: skip

expert_payload_bytes = Formula(
    "expert_payload_bytes",
    "X_all",
    b_a * h * k_E * _own / DEVICE * _held,
    "byte/device",
    "copies of the tokens one rank holds around a mixture layer: what an all-to-all spreads over the expert ranks",
    derivation=(
        Step("what travels in one transfer, and the share that stays at home",
             expert_transfer_bytes.expression * E_p / (E_p - 1)),
    ),
)  # fmt: skip

expert_exchange_time = Formula(
    "expert_exchange_time",
    "t_EP",
    sp.Max(
        alpha_up * sp.Min(1, k - 1) + (k - 1) / n * X / beta_up,
        alpha_out * sp.Min(1, n - k) + (n - k) / n * X / beta_out,
    ),
    "s",
    "time of an all-to-all of X bytes a rank over n ranks, k of them on each node",
    assumptions=(
        "a message straight to each of the others, all under way at once: a latency is paid once",
        "fast links and network work side by side; each device has a network card of its own",
    ),
    derivation=(
        Step("an n-th for each of the k - 1 on the node, and for each of the n - k elsewhere: the later of the two",
             sp.Max(X / n * (n - k) / beta_out + alpha_out * sp.Min(1, n - k),
                    X / n * (k - 1) / beta_up + alpha_up * sp.Min(1, k - 1))),
    ),
)  # fmt: skip


def kinds(model: Model) -> tuple[Model, Model]:
    """The model with dense layers alone and with mixture layers alone.

    >>> from course import catalog
    >>> [kind.dense_layers for kind in kinds(catalog.model("deepseek-v3"))]
    [61, 0]
    """
    without = {"experts": 0, "experts_per_token": 0, "shared_experts": 0, "expert_ffn": 0, "router_bias": False}
    dense = replace(model, **without, dense_layers=model.layers)  # type: ignore[arg-type]
    return dense, replace(model, dense_layers=0)


def routed_layer(model: Model) -> float:
    """Parameters of the routed experts of one layer.

    >>> from course import catalog
    >>> routed_layer(catalog.model("mixtral-8x7b")) / 1e6
    1409.286144
    """
    given = {**shape(model), "layers": 1, "dense_layers": 0, "experts": model.experts, "expert_ffn": model.expert_ffn}
    return float(expert_parameters(**pick(expert_parameters, given)))


def shared_layers(model: Model) -> tuple[float, float]:
    """Parameters of one layer outside the routed experts: of a dense layer, and of a mixture layer.

    >>> from course import catalog
    >>> [round(count / 1e6, 3) for count in shared_layers(catalog.model("deepseek-v3"))]
    [583.483, 232.997]
    """
    dense, mixture = kinds(model)
    return layer_parameters(dense), layer_parameters(mixture) - routed_layer(model)


def routed_parameters(model: Model, stages: Stages) -> np.ndarray:
    """Parameters of the routed experts of each representative stage, before expert ranks divide them."""
    return stages.mixture * (routed_layer(model) if model.experts else 0.0)


def active_width(model: Model) -> int:
    """The MLP width one token meets in a mixture layer: its own experts and the shared ones side by side."""
    return (model.experts_per_token + model.shared_experts) * model.expert_ffn


Matmul = Callable[..., np.ndarray]


def matmul_time(model: Model, columns: Columns, rows: np.ndarray, matmul: Matmul) -> np.ndarray:
    """Seconds of the matmuls of a mixture layer behind its attention: router, routed experts, shared experts.

    `rows` are the tokens of a tensor group; `matmul(inner, outer, rows, tensor)` gives the time of one matmul.
    """
    inward = shape(model)["mlp_matrices"] - 1
    around = rows * (columns["sequence_parallel"] / columns["tensor"] + 1 - columns["sequence_parallel"])
    each = expert_rows(
        experts_per_token=model.experts_per_token, micro_batch=rows * columns["context"], sequence_length=1,
        context=columns["context"], expert=columns["expert"], expert_tensor=columns["expert_tensor"],
        tensor=columns["tensor"], experts=model.experts,
    )  # fmt: skip
    one = matmul(model.hidden, inward * model.expert_ffn, each, columns["expert_tensor"]) + matmul(
        model.hidden, model.expert_ffn, each, columns["expert_tensor"]
    )
    time = matmul(model.hidden, model.experts, around, 1.0) + one * (model.experts / columns["expert"])
    if model.shared_experts:
        width = model.shared_experts * model.expert_ffn
        time = time + matmul(model.hidden, inward * width) + matmul(model.hidden, width)
    return time


def exchange(run: Run, columns: Columns, link: dict[str, Link], constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """Seconds one mixture layer's tokens travel for one micro-batch, (forward, backward).

    Copies to the experts' ranks and results back; where ranks share an expert's matrices, a gather of its tokens before
    them and a scatter after. Full recomputation sends the forward ones once more.
    """
    model, fabric, full = run.model, run.cluster.fabric, columns["full_recompute"]
    given: dict[str, Any] = {
        "activation_bytes": 2.0, "hidden": model.hidden, "experts_per_token": model.experts_per_token,
        "micro_batch": columns["micro_batch"], "sequence_length": run.training.sequence_length,
        "context": columns["context"], "tensor": columns["tensor"], "sequence_sharded": columns["sequence_parallel"],
    }  # fmt: skip
    place = link["expert"]
    once = expert_exchange_time(
        ranks=columns["expert"], ranks_per_node=np.minimum(place.on_node, columns["expert"]),
        payload_bytes=expert_payload_bytes(**given), scale_up_bytes_per_s=constants.scale_up_bytes_per_s,
        scale_out_bytes_per_s=constants.scale_out_bytes_per_s, scale_up_latency_s=fabric.scale_up_latency_s,
        scale_out_latency_s=fabric.scale_out_latency_s,
    )  # fmt: skip
    # without expert ranks a token is gathered before it is copied
    copies = np.where(columns["expert"] > 1, float(model.experts_per_token), 1.0)
    tokens = columns["micro_batch"] * run.training.sequence_length / columns["context"]
    inner = link["expert_tensor"]
    unit = ring_all_gather_time(
        ranks=columns["expert_tensor"], latency=inner.latency_s, bandwidth=inner.bytes_per_s,
        payload_bytes=2.0 * model.hidden * copies * tokens * columns["expert_tensor"] / columns["tensor"],
    )  # fmt: skip
    forward, backward = tensor_units(full, float(run.software.tensor_regather))
    half = EXPERT_TRANSFERS / 2
    return half * once + forward / 2 * unit, half * (1 + full) * once + backward / 2 * unit


def tensor_share(model: Model) -> float:
    """Tensor-parallel collectives of a mixture layer over those of a dense one: attention's half, shared experts' half.

    >>> from course import catalog
    >>> tensor_share(catalog.model("mixtral-8x7b")), tensor_share(catalog.model("deepseek-v3"))
    (0.5, 1.0)
    """
    return 1.0 if model.shared_experts else 0.5
