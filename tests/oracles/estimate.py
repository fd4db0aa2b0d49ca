"""Oracles of step 1: walks over tensors and matmuls, arrays that are really allocated, and published figures."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from course import estimate
from course.simulators.saved import Execution, saved_by_head, saved_in_layer
from course.simulators.shapes import Matmul, Shape, backward, matmuls, recomputed, total_elements
from course.simulators.shapes import parameters as walk
from oracles.checking import Answers, Check, agrees
from oracles.shapes import LLAMA_3_405B, PUBLIC_COUNTS, plain, random_shapes

CORE = ("scores", "values")


def _given(shape: Shape, *keys: str, **more: float) -> dict[str, Any]:
    values = estimate.shape(shape)
    return {key: values[key] for key in keys} | more


_PARAMETER_KEYS = (
    "layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocabulary", "mlp_matrices", "embedding_tables",
    "layer_vectors", "outer_vectors",
)  # fmt: skip
_MATMUL_KEYS = _PARAMETER_KEYS[:8]
_CORE_KEYS = ("layers", "heads", "head_size")


def every_tensor_counted() -> Answers:
    for shape in random_shapes(40, seed=1):
        yield _given(shape, *_PARAMETER_KEYS), total_elements(walk(shape))


def released_checkpoints() -> Answers:
    for shape, count in PUBLIC_COUNTS:
        yield _given(shape, *_PARAMETER_KEYS), count


def _multiplied(shape: Shape) -> int:
    """Numbers in the matrices that every token is multiplied by."""
    return sum(one.k * one.n * one.count for one in matmuls(shape, 1, 1) if one.name not in CORE)


def every_matrix_counted() -> Answers:
    for shape in random_shapes(20, seed=2):
        yield _given(shape, *_MATMUL_KEYS), _multiplied(shape)


def _mixture_tensors(shape: Shape, routed: int, shared: int, width: int, dense: int) -> list[tuple[int, ...]]:
    """Every tensor of a decoder whose layers, after the first `dense`, have a router and `routed` experts."""
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    tables = [(shape.vocabulary, shape.hidden)] * (1 if shape.tied_embeddings else 2)
    tensors = [*tables, (shape.hidden,)]  # and the last norm
    for layer in range(shape.layers):
        tensors += [(shape.hidden,), (shape.hidden,)]
        tensors += [(shape.hidden, query), (shape.hidden, key), (shape.hidden, key), (query, shape.hidden)]
        matrices = 3 if shape.gated_mlp else 2
        if layer < dense:
            tensors += [(shape.hidden, shape.ffn)] * matrices
        else:
            tensors.append((shape.hidden, routed))
            tensors += [(shape.hidden, width)] * (matrices * (routed + shared))
    return tensors


def _mixtures(active: bool) -> Answers:
    draw = random.Random(11)
    for shape in random_shapes(25, seed=12):
        shape = replace(
            shape, attention_bias="none", mlp_bias=False, norm_size=1, norms_per_layer=2, qk_norm="none",
            final_norm=True, embedding_norm=False, learned_positions=0,
        )  # fmt: skip
        experts, shared, width = draw.randint(3, 9), draw.randint(0, 3), draw.randint(2, 30)
        chosen, dense = draw.randint(1, experts), draw.randint(0, shape.layers)
        count = sum(math.prod(one) for one in _mixture_tensors(shape, experts, shared, width, dense))
        if active:  # the experts a token is not sent to, in the layers that have experts
            idle = [(shape.hidden, width)] * ((3 if shape.gated_mlp else 2) * (experts - chosen))
            count -= (shape.layers - dense) * sum(math.prod(one) for one in idle)
        given = _given(
            shape, *_PARAMETER_KEYS, shared_experts=shared, expert_ffn=width, dense_layers=dense, experts=experts
        )
        yield given | ({"experts_per_token": chosen} if active else {}), count


def every_tensor_of_a_mixture() -> Answers:
    yield from _mixtures(active=False)


def every_tensor_a_token_meets() -> Answers:
    yield from _mixtures(active=True)


MIXTRAL = Shape(32, 4096, 32, 8, 128, 1, 32000)
QWEN_3_30B = Shape(48, 2048, 32, 4, 128, 1, 151936, qk_norm="head")


def released_mixtures() -> Answers:
    # summed over the tensors of the released configurations
    for shape, experts, width, count in ((MIXTRAL, 8, 14336, 46_702_792_704), (QWEN_3_30B, 128, 768, 30_532_122_624)):
        yield (
            _given(shape, *_PARAMETER_KEYS, shared_experts=0, expert_ffn=width, dense_layers=0, experts=experts),
            count,
        )


def published_active_parameters() -> Answers:
    # Mixtral's announcement: 12.9B used for each token; Qwen3's model card: 3.3B
    for shape, experts, chosen, width, count in ((MIXTRAL, 8, 2, 14336, 12.9e9), (QWEN_3_30B, 128, 8, 768, 3.3e9)):
        given = _given(shape, *_PARAMETER_KEYS, shared_experts=0, expert_ffn=width, dense_layers=0, experts=experts)
        yield given | {"experts_per_token": chosen}, count


def loops_of_a_matmul() -> Answers:
    for rows, inner, columns in ((2, 3, 5), (7, 2, 3), (4, 5, 1)):
        flops = 0
        for _ in range(rows):
            for _ in range(columns):
                for _ in range(inner):
                    flops += 1  # multiply
                    flops += 1  # add to the sum
        yield {"rows": rows, "inner": inner, "columns": columns}, flops


# ---------------------------------------------------------------- FLOPs of a token
def _training(forward: list[Matmul]) -> int:
    return sum(one.flops for one in forward) + sum(one.flops for one in backward(forward))


def training_matmuls_without_attention() -> Answers:
    for shape in random_shapes(5, seed=3):
        forward = [one for one in matmuls(shape, 2, 5) if one.name not in CORE]
        yield {"parameters": _multiplied(shape)}, _training(forward) / 10


def whole_run_of_matmuls() -> Answers:
    for sequences, shape in enumerate(random_shapes(5, seed=4), start=3):
        forward = [one for one in matmuls(shape, sequences, 5) if one.name not in CORE]
        yield {"parameters": _multiplied(shape), "tokens": sequences * 5}, _training(forward)


def published_training_flops() -> Answers:
    yield {"parameters": 174.6e9, "tokens": 300e9}, 3.14e23  # GPT-3 paper, table D.1
    yield {"parameters": 405e9, "tokens": 15.6e12}, 3.8e25  # Llama 3 paper, section 1


def _lengths() -> Iterator[tuple[Shape, int]]:
    """Sequences from short to so long that attention is most of the work."""
    yield from zip(random_shapes(12, seed=5), (1, 3, 10, 40, 2, 7, 25, 90, 4, 15, 60, 150), strict=True)


def _walk_per_token(shape: Shape, length: int, recompute: str = "none") -> float:
    forward = matmuls(shape, 2, length)
    again = sum(one.flops for one in recomputed(forward, recompute))
    return (_training(forward) + again) / (2 * length)


def matmuls_and_six_for_every_other_parameter() -> Answers:
    for shape, length in _lengths():
        total = total_elements(walk(shape))
        others = total - _multiplied(shape)
        given = _given(shape, *_CORE_KEYS, sequence_length=length) | {"parameters": total}
        yield given, _walk_per_token(shape, length) + 6 * others


def palm_540b() -> Answers:
    # PaLM paper, appendix B: 46.2 % with attention, at 238.3 thousand tokens/s on 6,144 TPU v4 of 275 TFLOP/s
    given = {"parameters": 540.35e9, "layers": 118, "heads": 48, "head_size": 256, "sequence_length": 2048}
    yield given, 0.462 * 6144 * 275e12 / 238.3e3


def training_matmuls_full_square() -> Answers:
    for shape, length in _lengths():
        given = _given(shape, *_CORE_KEYS, sequence_length=length) | {"matmul_parameters": _multiplied(shape)}
        yield given, _walk_per_token(shape, length)


def training_matmuls_of_visible_keys() -> Answers:
    # a token sees (T + 1) / 2 keys on average and the formula says T / 2: equal for long sequences only
    for shape in random_shapes(3, seed=6):
        length = 1500
        forward = matmuls(shape, 1, length, causal=True)
        given = _given(shape, *_CORE_KEYS, sequence_length=length) | {"matmul_parameters": _multiplied(shape)}
        yield given, _training(forward) / length


def training_matmuls_and_recomputed_ones() -> Answers:
    for recompute in ("none", "selective", "full"):
        for shape, length in _lengths():
            given = _given(shape, *_CORE_KEYS, "hidden", "vocabulary", sequence_length=length) | {
                "matmul_parameters": _multiplied(shape),
                "full_recompute": recompute == "full",
                "core_recompute": recompute == "selective",
            }
            yield given, _walk_per_token(shape, length, recompute)


def error_against_the_walk() -> Answers:
    for shape, length in _lengths():
        total = total_elements(walk(shape))
        given = _given(shape, *_CORE_KEYS, sequence_length=length) | {
            "parameters": total,
            "matmul_parameters": _multiplied(shape),
        }
        yield given, 6 * total / _walk_per_token(shape, length) - 1


# ---------------------------------------------------------------- bytes
def arrays_of_state() -> Answers:
    for count, weight, gradient, moments in (
        (900, np.float16, np.float16, (np.float32, np.float32, np.float32)),
        (700, np.float16, np.float32, (np.float32, np.float32, np.float32)),
        (512, np.float32, np.float32, (np.float16, np.float16)),
        (333, np.float64, np.float16, (np.int8,)),
    ):
        held = [np.zeros(count, kind) for kind in (weight, gradient, *moments)]
        yield (
            {
                "parameters": count,
                "weight_bytes": np.dtype(weight).itemsize,
                "gradient_bytes": np.dtype(gradient).itemsize,
                "optimizer_bytes": sum(np.dtype(kind).itemsize for kind in moments),
            },
            sum(array.nbytes for array in held),
        )


_LAYER_KEYS = ("hidden", "heads", "kv_heads", "head_size", "ffn", "mlp_matrices")


def _saved(shape: Shape, sequences: int, length: int, how: Execution, activation_bytes: int) -> float:
    """Bytes a token; masks keep their one byte, every other tensor has `activation_bytes` an element."""
    kept = saved_in_layer(shape, sequences, length, how)
    held = sum(one.elements * (one.element_bytes if one.element_bytes == 1 else activation_bytes) for one in kept)
    return held / (sequences * length)


def saved_tensors_of_a_layer() -> Answers:
    shapes = iter(random_shapes(64, seed=7, divisible_by=4))
    for flash, dropout, recompute, (tensor, sharded), size in product(
        (True, False), (True, False), ("none", "selective"), ((1, False), (2, False), (2, True), (4, True)), (2, 4)
    ):
        shape = plain(next(shapes))
        how = Execution(flash, dropout, recompute, tensor, sharded)
        given = _given(shape, *_LAYER_KEYS, sequence_length=8) | {
            "activation_bytes": size,
            "dropout": dropout,
            "unfused_attention": not flash,
            "core_recompute": recompute == "selective",
            "sequence_sharded": sharded,
            "tensor": tensor,
        }
        yield given, _saved(shape, 3, 8, how, size)


def korthikanti_2022() -> Answers:
    # "Reducing Activation Recomputation in Large Transformer Models", table 2, in bytes a token, f = 4h, 16-bit
    h, a, s, t = 6144, 64, 2048, 8
    base = {
        "hidden": h, "heads": a, "kv_heads": a, "head_size": h // a, "ffn": 4 * h, "mlp_matrices": 2,
        "sequence_length": s, "activation_bytes": 2, "dropout": 1, "unfused_attention": 1,
    }  # fmt: skip
    for core, sharded, tensor, answer in (
        (0, 0, 1, h * (34 + 5 * a * s / h)),
        (0, 0, t, h * (10 + 24 / t + 5 * a * s / (h * t))),
        (0, 1, t, h / t * (34 + 5 * a * s / h)),
        (1, 0, t, h * (10 + 24 / t)),
        (1, 1, t, h * 34 / t),
    ):
        yield base | {"core_recompute": core, "sequence_sharded": sharded, "tensor": tensor}, answer


def layer_inputs() -> Answers:
    for shape, (tensor, sharded), size in product(
        random_shapes(2, seed=8), ((1, False), (1, True), (2, False), (2, True), (4, True)), (2, 4)
    ):
        how = Execution(recompute="full", tensor=tensor, sequence_parallel=sharded)
        yield (
            {
                "hidden": shape.hidden,
                "activation_bytes": size,
                "sequence_sharded": sharded,
                "tensor": tensor,
            },
            _saved(shape, 3, 8, how, size),
        )


def logits_of_the_head() -> Answers:
    for number, (shape, tensor) in enumerate(product(random_shapes(3, seed=9, divisible_by=4), (1, 2, 4))):
        sequences, length, size = 1 + number % 3, 5 + number, (2, 6, 14)[number % 3]
        kept = saved_by_head(shape, sequences, length, Execution(tensor=tensor), logit_bytes=size)
        yield (
            {
                "logit_bytes": size,
                "micro_batch": sequences,
                "sequence_length": length,
                "vocabulary": shape.vocabulary,
                "tensor": tensor,
            },
            next(one.bytes for one in kept if one.name == "logits"),
        )


def logits_of_a_long_sequence() -> Answers:
    # foundation-model-stack/fms-fsdp #152: 16-bit logits of 4,096 tokens take 1 GiB at 2^17 words
    given = {"logit_bytes": 2, "micro_batch": 1, "sequence_length": 4096, "vocabulary": 131072, "tensor": 1}
    yield given, 2**30


def llama_3_405b_per_token() -> Answers:
    # the walk at full size; 6 x 405e9 alone would be 2.43e12
    given = _given(LLAMA_3_405B, *_CORE_KEYS, sequence_length=8192)
    yield given | {"matmul_parameters": _multiplied(LLAMA_3_405B)}, _walk_per_token(LLAMA_3_405B, 8192)


ORACLES: dict[str, list[Check]] = {
    "estimate.parameters": [agrees(every_tensor_counted), agrees(released_checkpoints)],
    "estimate.matmul_parameters": [agrees(every_matrix_counted)],
    "estimate.mixture_parameters": [agrees(every_tensor_of_a_mixture), agrees(released_mixtures)],
    "estimate.mixture_active_parameters": [
        agrees(every_tensor_a_token_meets),
        agrees(published_active_parameters, 0.02),
    ],
    "estimate.matmul_flops": [agrees(loops_of_a_matmul)],
    "estimate.six_ps": [agrees(training_matmuls_without_attention)],
    "estimate.six_ps_run": [agrees(whole_run_of_matmuls), agrees(published_training_flops, 0.01)],
    "estimate.palm": [agrees(matmuls_and_six_for_every_other_parameter), agrees(palm_540b, 0.003)],
    "estimate.full_attention": [agrees(training_matmuls_full_square), agrees(llama_3_405b_per_token)],
    "estimate.causal_attention": [agrees(training_matmuls_of_visible_keys, 0.002)],
    "estimate.executed": [agrees(training_matmuls_and_recomputed_ones)],
    "estimate.six_ps_error": [agrees(error_against_the_walk)],
    "estimate.state_bytes": [agrees(arrays_of_state)],
    "estimate.token_layer_bytes": [agrees(saved_tensors_of_a_layer), agrees(korthikanti_2022)],
    "estimate.layer_input_bytes": [agrees(layer_inputs)],
    "estimate.logits_bytes": [agrees(logits_of_the_head), agrees(logits_of_a_long_sequence)],
}
