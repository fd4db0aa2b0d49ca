"""Step 4, axes on links: when communication is the limit, FSDP beside tensor parallelism, where the usual rule "
"fails."""

from __future__ import annotations

from functools import cache
from typing import Any

from course import place
from course.questions.draws import picks
from course.questions.kinds import (
    Expression,
    Given,
    Mistake,
    Number,
    Question,
)
from course.symbols import symbols

__all__ = ["QUESTIONS"]

T_p, u_T, P_L, b_a, h, C, beta, alpha, tau = symbols(
    "tensor", "tensor_units", "layer_parameters", "activation_bytes", "hidden", "peak_flops_per_s", "bandwidth",
    "latency", "tokens_per_device",
)  # fmt: skip


def _limit(given: Given, *, rate: float, tensor: float | None = None) -> float:
    """Tokens a device below which FSDP is bound, in bf16."""
    at_one_token = place.fsdp_ratio(  # the ratio falls as one over the tokens
        tokens_per_device=1, ranks=1e9, weight_bytes=2, reduced_gradient_bytes=2, latency=0, layer_parameters=1e9,
        tensor=given["tensor"] if tensor is None else tensor, bandwidth=rate, peak_flops_per_s=given["peak"] * 1e12,
    )  # fmt: skip
    return float(at_one_token)


def _cards(given: Given) -> float:
    return float(place.group_bandwidth(
        scale_up_bytes_per_s=given["up"] * 1e9, scale_out_bytes_per_s=given["out"] * 1e9,
        ranks_per_node=8 // given["tensor"]))  # fmt: skip


_fsdp = Number(
    id="place.18",
    title="Tokens for FSDP",
    prompt=(
        "Devices of {peak:g} TFLOP/s (dense), 8 a node, {up:g} GB/s one way inside and a card of {out:g} GB/s each. "
        "Tensor degree {tensor}, innermost, then FSDP over very many ranks; weights and gradients move in bf16, and "
        "each pass covers its own traffic. From how many tokens of a micro-batch a device on can compute hide the FSDP "
        "traffic? Leave latency out."
    ),
    given={"peak": 989.4, "up": 450.0, "out": 50.0, "tensor": 4},
    draw=picks(peak=(312.0, 989.4, 2250.0), up=(450.0, 900.0), out=(25.0, 50.0), tensor=(2, 4)),
    answer=lambda g: _limit(g, rate=_cards(g)),
    unit="tokens",
    mistakes=(
        Mistake("another link", lambda g: _limit(g, rate=g["up"] * 1e9),
                "The rate inside the node was used; the group leaves the node."),
        Mistake("one card for all", lambda g: _limit(g, rate=g["out"] * 1e9)),
        Mistake("gathered once", lambda g: _limit(g, rate=_cards(g)) * 4 / 6,
                "One gather and one scatter were held against forward and backward: 4 bytes over 6 FLOPs."),
        Mistake("nothing sharded", lambda g: _limit(g, rate=_cards(g), tensor=1),
                "Each tensor rank gathers only its part of a layer, while the group computes on all its tokens."),
    ),
    hints=(
        "For one layer: seconds on the link, seconds of arithmetic. Which of them depends on the tokens?",
        "Backward: 4 bytes a parameter of the tensor share over 4 FLOPs a parameter and token; forward has half of "
        "each. The rate is that of the cards which the group's ranks on one node have.",
        "C / (beta T_p), with beta = 8 / T_p cards.",
    ),
    difficulty=2,
    minutes=8,
    source="the JAX Scaling Book, chapter 5 (2550 tokens on a TPU v5p axis) and its GPU chapter; COM-19",
)  # fmt: skip

_limit_degree = 1 + 6 * P_L * beta / (u_T * b_a * h * C)

_degree = Expression(
    id="place.19",
    title="The largest tensor degree",
    prompt=(
        "A layer has `P_L` parameters and hidden width `h`; in forward and backward `u_T` gathers and scatters move "
        "its vectors, `b_a` bytes a number, over links of `beta` byte/s; a device does `C` FLOP/s. Latency is left "
        "out. Write the tensor degree at which these take as long as the layer's matmuls."
    ),
    symbols=("layer_parameters", "hidden", "tensor_units", "activation_bytes", "bandwidth", "peak_flops_per_s"),
    answer=lambda _: _limit_degree,
    mistakes=(
        Mistake("backward forgotten", lambda _: 1 + 2 * P_L * beta / (u_T * b_a * h * C),
                "The units of forward and backward were held against the FLOPs of forward."),
        Mistake("rule for another case", lambda _: 6 * P_L * beta / (u_T * b_a * h * C),
                "A rank sends to the others, not to itself: (T_p - 1) of T_p shares, not all."),
        Mistake("roofline upside down", lambda _: 1 + u_T * b_a * h * C / (6 * P_L * beta)),
    ),
    hints=(
        "Take the tokens of one group. What does a rank send in one unit, and what does it compute?",
        "With tau tokens a device the group has tau T_p: a unit sends b_a h tau (T_p - 1), the layer is 6 P_L tau / C.",
        "u_T b_a h tau (T_p - 1) / beta = 6 P_L tau / C. The tokens cancel; solve for T_p.",
    ),
    difficulty=2,
    minutes=7,
    source="the JAX Scaling Book, chapter 5: Y < F W / C for the MLP alone",
)  # fmt: skip


def _block(given: Given) -> dict[str, float]:
    return {"hidden": given["hidden"], "layer_parameters": 12 * given["hidden"] ** 2, "tensor_units": 8,
            "activation_bytes": 2}  # fmt: skip


def _tensor(given: Given, rate: float, units: int = 8, degree: float | None = None) -> float:
    return float(place.tensor_ratio(
        **{**_block(given), "tensor_units": units}, tensor=degree or given["tensor"], latency=0,
        bandwidth=rate * 1e9, peak_flops_per_s=given["peak"] * 1e12, tokens_per_device=1024))  # fmt: skip


_share = Number(
    id="place.20",
    title="What tensor parallelism costs",
    prompt=(
        "A layer of 12 h^2 parameters, h = {hidden:,}, bf16, eight gathers and scatters of its activations in forward "
        "and backward together. {tensor} tensor ranks on links of {rate:g} GB/s one way, devices of {peak:g} TFLOP/s. "
        "Which share of the time of the layer's matmuls do these collectives take? Leave latency out."
    ),
    given={"hidden": 4096, "tensor": 8, "rate": 300.0, "peak": 312.0},
    draw=picks(hidden=(4096, 5120, 8192), tensor=(2, 4, 8), rate=(300.0, 235.0), peak=(312.0, 250.0)),
    answer=lambda g: _tensor(g, g["rate"]),
    unit="1",
    mistakes=(
        Mistake("backward forgotten", lambda g: _tensor(g, g["rate"], units=4),
                "Four of the eight collectives were held against forward and backward."),
        Mistake("rule for another case", lambda g: _tensor(g, g["rate"], degree=g["tensor"] + 1),
                "A rank sends to the others, not to itself."),
    ),
    hints=(
        "The number of tokens does not matter: it stands on both sides.",
        "A unit sends 2 h (T_p - 1) bytes for each token a device has; the matmuls do 6 times 12 h^2 FLOPs for it.",
        "8 times 2 h (T_p - 1) over the rate, divided by 72 h^2 over the peak.",
    ),
    difficulty=2,
    minutes=6,
    source="NVIDIA/Megatron-LM#258: eight tensor ranks inside one node were slower than eight stages",
)  # fmt: skip


def _stage(given: Given, layers: float, rate: float) -> float:
    return float(place.pipeline_ratio(
        hidden=given["hidden"], layer_parameters=12 * given["hidden"] ** 2, activation_bytes=2, stage_layers=layers,
        latency=0, bandwidth=rate * 1e9, peak_flops_per_s=given["peak"] * 1e12, tokens_per_device=1024))  # fmt: skip


_pipe = Number(
    id="place.21",
    title="What a pipeline sends",
    prompt=(
        "The same layers (12 h^2 parameters, h = {hidden:,}, bf16), now {layers} of them on a stage; a stage sends "
        "each micro-batch's activations on and their gradients back, through one card of {rate:g} GB/s. Devices of "
        "{peak:g} TFLOP/s, no tensor parallelism. Which share of the time of the stage's matmuls do the two sends take?"
    ),
    given={"hidden": 8192, "layers": 2, "rate": 12.5, "peak": 312.0},
    draw=picks(hidden=(4096, 5120, 8192), layers=(2, 4), rate=(25.0, 12.5), peak=(312.0, 250.0)),
    answer=lambda g: 100 * _stage(g, g["layers"], g["rate"]),
    unit="%",
    mistakes=(
        Mistake("one layer for all", lambda g: 100 * _stage(g, 1, g["rate"]),
                "The sends were held against one layer; the stage computes all of its layers between them."),
        Mistake("backward forgotten", lambda g: 50 * _stage(g, g["layers"], g["rate"]),
                "One send was counted; the gradients come back."),
        Mistake("bits for bytes", lambda g: 800 * _stage(g, g["layers"], g["rate"])),
    ),
    hints=(
        "One token: what crosses, and what is computed on either side of the crossing?",
        "Two vectors of 2 h bytes each; 72 h^2 FLOPs in every layer.",
        "4 h over the rate, divided by layers times 72 h^2 over the peak.",
    ),
    difficulty=2,
    minutes=5,
    source="the first source document: pipeline communication is less frequent; here by how much",
)  # fmt: skip


def _mixed(given: Given, **changes: float) -> float:
    values = {
        **_block(given),
        "weight_bytes": 2,
        "reduced_gradient_bytes": 2,
        "tokens_per_device": given["tokens"],
        "scale_up_bytes_per_s": given["tensor_rate"] * 1e9,
        "scale_out_bytes_per_s": given["fsdp_rate"] * 1e9,
    }
    return float(place.fsdp_tensor_optimum(**{**values, **changes}))


_optimum = Number(
    id="place.22",
    title="FSDP and tensor together",
    prompt=(
        "On a torus two axes carry FSDP at {fsdp_rate:g} GB/s and one carries tensor parallelism at {tensor_rate:g} "
        "GB/s. A layer has 12 h^2 parameters, h = {hidden:,}, eight tensor-parallel collectives, all in bf16; a device "
        "has {tokens:,} tokens. At which tensor degree, a real number, is the sum of both communications least?"
    ),
    given={"hidden": 8192, "tokens": 1024, "fsdp_rate": 360.0, "tensor_rate": 180.0},
    draw=picks(hidden=(4096, 8192, 16384), tokens=(256, 512, 1024, 2048), fsdp_rate=(360.0,), tensor_rate=(180.0,)),
    answer=_mixed,
    unit="1",
    mistakes=(
        Mistake("another link", lambda g: _mixed(g, scale_up_bytes_per_s=g["fsdp_rate"] * 1e9,
                                                 scale_out_bytes_per_s=g["tensor_rate"] * 1e9),
                "The two rates were exchanged."),
        Mistake("gathered once", lambda g: _mixed(g, weight_bytes=1)),
        Mistake("rule for another case", lambda g: _mixed(g) ** 2,
                "The square of the degree was given: the slope holds 1/T_p squared."),
    ),
    hints=(
        "One part falls with the degree, the other rises with it.",
        "FSDP: 6 bytes a parameter of a T_p-th of the layer. Tensor: 16 h bytes a token and each further rank.",
        "A / T_p + B T_p is least at the root of A / B: A = 72 h^2 / FSDP rate, B = 16 h tokens / tensor rate.",
    ),
    difficulty=3,
    minutes=8,
    source="the JAX Scaling Book, chapter 5: the mix of FSDP and model parallelism",
)  # fmt: skip


# ---------------------------------------------------------------- whole numbers
def _sum(given: Given, degree: float) -> float:
    return float(place.fsdp_tensor_time(
        **_block(given), weight_bytes=2, reduced_gradient_bytes=2, tokens_per_device=given["tokens"], tensor=degree,
        devices=given["devices"], scale_up_bytes_per_s=180e9, scale_out_bytes_per_s=360e9))  # fmt: skip


def _dividing(given: Given) -> list[int]:
    return [size for size in range(1, 65) if given["heads"] % size == 0 and given["devices"] % size == 0]


def _best(given: Given) -> int:
    return min(_dividing(given), key=lambda size: _sum(given, size))


def _at(given: Given) -> float:
    return _mixed({**given, "tensor_rate": 180.0, "fsdp_rate": 360.0})


def _whole_cases() -> list[dict[str, Any]]:
    """Numbers whose best degree is neither the nearest whole number nor the nearest one that divides."""
    found = []
    for hidden, heads in ((5120, 40), (6144, 48), (4608, 36), (7168, 56)):
        for tokens in range(256, 4096, 8):
            given = {"hidden": hidden, "heads": heads, "tokens": tokens, "devices": 1024}
            real, best = _at(given), _best(given)
            nearest = min(_dividing(given), key=lambda size: abs(size - real))
            if len({best, nearest, round(real)}) == 3 and abs(real / round(real) - 1) > 0.01:
                found.append(given)
    return found


@cache
def _wholes() -> tuple[dict[str, Any], ...]:
    return tuple(_whole_cases())


_whole = Number(
    id="place.23",
    title="Then whole numbers",
    prompt=(
        "As before, with h = {hidden:,}, {heads} attention heads (and as many key/value heads), {devices:,} devices "
        "and {tokens:,} tokens a device; FSDP at 360 GB/s, tensor parallelism at 180. The degree must divide heads and "
        "devices. Which one communicates least?"
    ),
    given={"hidden": 5120, "heads": 40, "tokens": 344, "devices": 1024},
    draw=lambda source: dict(source.choice(_wholes())),
    answer=lambda g: float(_best(g)),
    unit="1",
    mistakes=(
        Mistake("illegal layout", lambda g: float(round(_at(g))),
                "That is the real optimum, rounded. Does it divide heads and devices?"),
        Mistake("rule for another case", lambda g: float(min(_dividing(g), key=lambda size: abs(size - _at(g)))),
                "That is the nearest degree that divides; the curve is steeper on one side. Compute both neighbours."),
    ),
    hints=(
        "First the real optimum, then the degrees that divide on either side of it.",
        "Near the optimum A / T_p + B T_p depends on the ratio of T_p to it: twice and half cost the same.",
        "Compute A / T_p + B T_p for both neighbours.",
    ),
    difficulty=3,
    minutes=9,
    source="notes of the scaling book's readers: real optima, rounded without a second look",
)  # fmt: skip

_context = Number(
    id="place.24",
    title="Tokens for a ring of keys",
    prompt=(
        "Context parallelism passes blocks of keys and values round a ring of cards of {out:g} GB/s: {heads} query "
        "heads share {kv} key/value heads, bf16, devices of {peak:g} TFLOP/s. The causal work is shared out evenly, so "
        "half of each block's pairs count. From how many tokens of one sequence on each rank of that ring on does "
        "attention, at the peak, hide the passing, in forward?"
    ),
    given={"out": 50.0, "heads": 64, "kv": 8, "peak": 989.4},
    draw=picks(out=(25.0, 50.0), heads=(64, 128), kv=(8, 16), peak=(312.0, 989.4)),
    answer=lambda g: float(place.context_ratio(
        sequence_length=1, context=1, heads=g["heads"], kv_heads=g["kv"], activation_bytes=2, bandwidth=g["out"] * 1e9,
        peak_flops_per_s=g["peak"] * 1e12)),
    unit="tokens",
    mistakes=(
        Mistake("grouped heads ignored", lambda g: 2 * g["peak"] * 1e3 / g["out"]),
        Mistake("causal half", lambda g: g["kv"] * g["peak"] * 1e3 / g["heads"] / g["out"]),
        Mistake("one of two attention matmuls", lambda g: 4 * g["kv"] * g["peak"] * 1e3 / g["heads"] / g["out"]),
    ),
    hints=(
        "For one block of t tokens: bytes passed on grow with t, pairs of tokens with t squared.",
        "Passed: 2 times a_kv d numbers a token. Computed: two matmuls of 2 a d FLOPs a pair, over t^2 / 2 pairs.",
        "t = a_kv b_a C / (a beta).",
    ),
    difficulty=3,
    minutes=8,
    source="course.place.context_ratio; the JAX Scaling Book has no such bound",
)  # fmt: skip


def _waited(given: Given, *, latency: float = 1.0, tensor: int = 8, cards: int = 1) -> float:
    """Tokens a device at which a layer's gather over `ranks`, one a node, takes as long as forward's matmuls."""
    at_one_token = place.fsdp_ratio(
        tokens_per_device=1, ranks=given["ranks"], weight_bytes=2, reduced_gradient_bytes=2, tensor=tensor,
        latency=latency * given["microseconds"] * 1e-6, layer_parameters=given["billions"] * 1e9,
        bandwidth=cards * given["out"] * 1e9, peak_flops_per_s=given["peak"] * 1e12,
    )  # fmt: skip
    return float(at_one_token)


_long_ring = Number(
    id="place.34",
    title="FSDP round a long ring",
    prompt=(
        "Beside 8 tensor ranks in each node FSDP runs over {ranks:,} ranks, one on each node: a step of its rings "
        "takes {microseconds:g} us and then its bytes over one card of {out:g} GB/s. A layer has {billions:g} billion "
        "parameters, in bf16; devices of {peak:g} TFLOP/s. From how many tokens of a micro-batch a device on does the "
        "gather of a layer take no longer than its matmuls in forward, latency counted?"
    ),
    given={"ranks": 512, "microseconds": 9.6, "out": 50.0, "billions": 0.856, "peak": 989.4},
    draw=picks(ranks=(256, 512, 1024, 2048), microseconds=(9.6, 12.0), out=(25.0, 50.0), billions=(0.856, 1.81, 3.19),
               peak=(312.0, 989.4)),
    answer=_waited,
    unit="tokens",
    mistakes=(
        Mistake("latency forgotten", lambda g: _waited(g, latency=0)),
        Mistake("nothing sharded", lambda g: _waited(g, tensor=1),
                "The whole layer was gathered; a tensor rank gathers an eighth of it."),
        Mistake("cards not shared", lambda g: _waited(g, cards=8)),
    ),
    hints=(
        "Seconds of the gather: steps that wait, and bytes. Then: for how many tokens do the matmuls take that long?",
        "(n - 1) steps; in each an n-th of an eighth of the layer, 2 bytes a parameter. Forward computes 2 FLOPs a "
        "parameter for each of a device's tokens.",
        "(n - 1) (latency + 2 P / (8 n rate)), times peak over 2 P.",
    ),
    difficulty=3,
    minutes=8,
    source="course.place.fsdp_ratio; latency of a network step as in NCCL's own table",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_fsdp, _degree, _share, _pipe, _optimum, _whole, _context, _long_ring)
