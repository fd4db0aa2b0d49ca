"""Step 3, latent attention in traffic, and two plans held to one global batch."""

from __future__ import annotations

from course import shard
from course.questions.draws import picks
from course.questions.kinds import Expression, Given, Mistake, Number, Question
from course.shard.latent import T_p, a, d_n, d_r, d_v, r_kv

__all__ = ["QUESTIONS"]

_WIDTHS = {"kv_lora": 512, "rope_head_size": 64}
_HEADS = {"heads": 128, "nope_head_size": 128, "rope_head_size": 64, "v_head_size": 128}


def _batch(given: Given) -> dict[str, float]:
    return {
        "activation_bytes": 2, "micro_batch": 1, "sequence_length": given["thousands"] * 1024,
        "context": given["context"],
    }  # fmt: skip


def _sent(given: Given, unit: float) -> float:
    """GB of all layers and units of a sequence, from bytes of one unit of a layer."""
    return float(sum(shard.context_units()) * unit * given["layers"] / 1e9)


def _latents(given: Given) -> float:
    return _sent(given, shard.latent_context_bytes(**_batch(given), **_WIDTHS))


def _wide(given: Given, tensor: int) -> float:
    return _sent(given, shard.expanded_context_bytes(**_batch(given), **_HEADS, tensor=tensor))


_ring = Number(
    id="shard.28",
    title="Latents round a ring",
    prompt=(
        "{layers} layers of latent attention as in DeepSeek-V3: 128 heads, a latent of 512 numbers and 64 numbers of "
        "the key that all heads share. One sequence of {thousands} x 1024 tokens on {context} context ranks, {tensor} "
        "tensor ranks, bf16. Latents go round forward and again backward, their gradients once. How many GB does a "
        "device send for the sequence?"
    ),
    given={"layers": 61, "thousands": 128, "context": 16, "tensor": 4},
    draw=picks(layers=(27, 61), thousands=(64, 128, 256), context=(8, 16, 32), tensor=(2, 4, 8)),
    answer=_latents,
    unit="GB",
    relative=0.005,
    mistakes=(
        Mistake("latent cut by heads", lambda x: _latents(x) / x["tensor"]),
        Mistake("heads for latent", lambda x: _wide(x, 1)),
        Mistake("heads for latent", lambda x: _wide(x, x["tensor"]),
                "Wide keys and values of a tensor rank's heads were counted; latents are sent in their place."),
        Mistake("half an all-reduce", lambda x: _latents(x) * 512 / (512 + 64),
                "The part of the key that carries the position must travel as well: it is not made from the latent."),
        Mistake("backward forgotten", lambda x: _latents(x) / 3,
                "One round was counted; backward needs the latents again and sends their gradients home."),
        Mistake("one layer for all", lambda x: _latents(x) / x["layers"]),
    ),
    hints=(
        "What must a rank be sent so that it can make keys and values of a token for its own heads?",
        "512 + 64 numbers a token. A latent belongs to no head, so what do tensor ranks divide of it?",
        "3 rounds x 2 bytes x 576 x T x (c - 1)/c, times the layers. Tensor ranks divide nothing.",
    ),
    difficulty=2,
    minutes=7,
    source="DeepSeek-V3 report (2024), section 2.1; NVIDIA/Megatron-LM#1475: formulas lag latent attention",
)  # fmt: skip

_wide_numbers = a * (d_n + d_r + d_v) / T_p

_ratio = Expression(
    id="shard.29",
    title="Wide over narrow, in symbols",
    prompt=(
        "How many times the bytes of latents do wide keys and values send round the context ranks? There are `a` "
        "heads, of which a tensor rank has its share of `T_p`; a key has `d_n` numbers of its own and `d_r` shared "
        "ones, which are sent with each head; a value has `d_v`; the latent `r_kv`, and the shared numbers go with it "
        "once."
    ),
    symbols=("heads", "tensor", "nope_head_size", "rope_head_size", "v_head_size", "kv_lora"),
    answer=lambda _: _wide_numbers / (r_kv + d_r),
    mistakes=(
        Mistake("latent cut by heads", lambda _: _wide_numbers * T_p / (r_kv + d_r)),
        Mistake("half an all-reduce", lambda _: a * (d_n + d_r) / T_p / (r_kv + d_r),
                "Keys alone were counted; values go round as well."),
        Mistake("half an all-reduce", lambda _: _wide_numbers / r_kv,
                "The part of the key that all heads share travels beside the latent."),
    ),
    hints=(
        "Both go through the same ranks and hops. So compare numbers of one token.",
        "Wide: a/T_p heads of a key and a value. Narrow: a latent and the shared numbers, whole on every tensor rank.",
        "a (d_n + d_r + d_v) / T_p over r_kv + d_r.",
    ),
    difficulty=2,
    minutes=5,
    source="the two ways to pass keys and values of latent attention",
)  # fmt: skip


def _plan(given: Given, micro_batches: float, tensor: int | None = None) -> float:
    """GB a device sends in a step by tensor units of all layers."""
    unit = shard.tensor_unit_bytes(
        activation_bytes=2, hidden=given["hidden"], micro_batch=1, sequence_length=8192, tensor=tensor or given["ranks"]
    )
    return float(sum(shard.tensor_units(0, 0)) * unit * given["layers"] * micro_batches / 1e9)


_same_batch = Number(
    id="shard.31",
    title="Two plans, one batch",
    prompt=(
        "{ranks} devices as {ranks} replicas run {micro_batches} micro-batches a step each, one sequence of 8,192 "
        "tokens in each. Somebody compares this with {ranks} tensor ranks (8 units; {layers} layers of width "
        "{hidden:,}, bf16) and leaves the micro-batches as they are. How many GB does the tensor plan send in a step "
        "of the same global batch?"
    ),
    given={"ranks": 8, "micro_batches": 16, "layers": 32, "hidden": 4096},
    draw=picks(ranks=(4, 8), micro_batches=(4, 8, 16), layers=(32, 80), hidden=(4096, 8192)),
    answer=lambda x: _plan(x, x["micro_batches"] * x["ranks"]),
    unit="GB",
    mistakes=(
        Mistake("another global batch", lambda x: _plan(x, x["micro_batches"])),
        Mistake("backward forgotten", lambda x: _plan(x, x["micro_batches"] * x["ranks"]) / 2,
                "Half of the units were counted: backward has as many as forward."),
        Mistake("own share counted",
                lambda x: _plan(x, x["micro_batches"] * x["ranks"]) * x["ranks"] / (x["ranks"] - 1)),
        Mistake("one layer for all", lambda x: _plan(x, x["micro_batches"] * x["ranks"]) / x["layers"]),
    ),
    hints=(
        "How many sequences does a step of the first plan have?",
        "All devices of the second plan work on each sequence together: one replica takes them all.",
        "Replicas times micro-batches sequences, each with 8 units of 2 h T (t - 1)/t bytes in each layer.",
    ),
    difficulty=2,
    minutes=6,
    source="the first source document: comparing layouts with different global batches",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_ring, _ratio, _same_batch)
