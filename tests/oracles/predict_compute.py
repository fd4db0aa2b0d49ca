"""Oracles of the compute part of a prediction: arrays of one rank, and the bytes of what each pass reads and writes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from course.simulators.shapes import Matmul, matmuls, mlp_inputs, part
from oracles.checking import Answers, Check, agrees
from oracles.shapes import random_shapes

FLOATS = {2: np.float16, 4: np.float32}
CORE = ("scores", "values")


def matmul_of_one_rank() -> Answers:
    for rows, inner, columns, tensor in ((3, 5, 8, 1), (7, 2, 12, 4), (4, 9, 6, 2)):
        mine = Matmul("", rows, inner, part(columns, tensor, "columns"))
        yield {"rows": rows, "inner": inner, "columns": columns, "tensor": tensor}, mine.flops


def arrays_of_one_rank() -> Answers:
    for (rows, inner, columns, tensor), size in product(
        ((3, 5, 8, 1), (7, 2, 12, 4), (4, 9, 6, 2), (2, 30, 8, 4)), FLOATS
    ):
        left = np.zeros((rows, inner), FLOATS[size])
        right = np.hsplit(np.zeros((inner, columns), FLOATS[size]), tensor)[0]
        yield (
            {
                "rows": rows,
                "inner": inner,
                "columns": columns,
                "tensor": tensor,
                "activation_bytes": size,
            },
            left.nbytes + right.nbytes + (left @ right).nbytes,
        )


def visible_scores_and_values() -> Answers:
    # a token sees (T + 1) / 2 keys on average and the formula says T / 2: equal for long sequences only
    for sequences, tensor, shape in zip((1, 3), (1, 2), random_shapes(2, seed=40, divisible_by=2), strict=True):
        length = 1500
        mine = replace(shape, layers=1, heads=part(shape.heads, tensor, "heads"))
        flops = sum(one.flops for one in matmuls(mine, sequences, length, causal=True) if one.name in CORE)
        yield {
            "heads": shape.heads, "head_size": shape.head_size, "sequence_length": length, "micro_batch": sequences,
            "tensor": tensor,
        }, flops  # fmt: skip


def visible_through_a_window() -> Answers:
    # the walk counts a token's own key, the formula half of it: equal for long windows only
    for heads, size, sequences, length, window, tensor in (
        (4, 3, 1, 4000, 2000, 2), (6, 5, 2, 6000, 1500, 1), (2, 7, 3, 3000, 3000, 2), (8, 2, 1, 5000, 900, 4),
    ):
        seen = sum(min(token + 1, window) for token in range(length))
        yield {
            "heads": heads, "head_size": size, "sequence_length": length, "micro_batch": sequences, "tensor": tensor,
            "sliding_window": window,
        }, sum(2 * size * seen for _ in ("scores", "values")) * sequences * heads / tensor  # fmt: skip


def score_matrices() -> Answers:
    for heads, sequences, length, tensor in ((4, 3, 5, 2), (6, 1, 8, 3), (2, 2, 3, 1)):
        scores = np.zeros((sequences, part(heads, tensor, "heads"), length, length))
        yield {"heads": heads, "micro_batch": sequences, "sequence_length": length, "tensor": tensor}, scores.size


class _Memory:
    """Counts the bytes that passes over arrays read and write."""

    def __init__(self) -> None:
        self.moved = 0

    def pass_over(self, reads: list[np.ndarray], writes: list[np.ndarray]) -> None:
        self.moved += sum(array.nbytes for array in (*reads, *writes))


def passes_of_a_layer() -> Answers:
    shapes = iter(random_shapes(24, seed=41, divisible_by=4))
    for (tensor, sharded), dropout, size, gated in product(
        ((1, False), (2, False), (4, True)), (False, True), FLOATS, (False, True)
    ):
        shape = replace(next(shapes), gated_mlp=gated)
        sequences, length = 2, 6
        tokens = sequences * length

        def array(rows: int, width: int, size: int = size) -> np.ndarray:
            return np.zeros((rows, width), FLOATS[size])

        around = array(tokens // tensor if sharded else tokens, shape.hidden)
        memory = _Memory()
        for _ in ("attention", "mlp"):
            memory.pass_over([around], [around])  # norm
            if dropout:
                memory.pass_over([around], [around])
            memory.pass_over([around, around], [around])  # sum with the residual
        for heads in (shape.heads, shape.kv_heads):  # rotary turn of queries and of keys
            turned = array(tokens, heads // tensor * shape.head_size)
            memory.pass_over([turned], [turned])
        inside = array(tokens, shape.ffn // tensor)
        memory.pass_over([inside for _ in mlp_inputs(shape)], [inside])  # activation function
        yield {
            "hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.kv_heads, "head_size": shape.head_size,
            "ffn": shape.ffn, "mlp_matrices": 3 if gated else 2, "micro_batch": sequences, "sequence_length": length,
            "tensor": tensor, "sequence_sharded": sharded, "dropout": dropout, "activation_bytes": size,
        }, memory.moved  # fmt: skip


def _one_rank(sharded: bool, tensor: int, gated: bool, size: int, seed: int):  # type: ignore[no-untyped-def]
    """A layer's arrays on one rank: between the matrices, queries, keys, the MLP's inner vector; symbols and tokens."""
    shape = replace(next(iter(random_shapes(1, seed=seed, divisible_by=4))), gated_mlp=gated)
    sequences, length = 2, 6
    tokens = sequences * length
    around = np.zeros((tokens // tensor if sharded else tokens, shape.hidden), FLOATS[size])
    query, key = (
        np.zeros((tokens, heads // tensor * shape.head_size), FLOATS[size]) for heads in (shape.heads, shape.kv_heads)
    )
    inside = np.zeros((tokens, shape.ffn // tensor), FLOATS[size])
    values = {
        "hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.kv_heads, "head_size": shape.head_size,
        "ffn": shape.ffn, "mlp_matrices": 3 if gated else 2, "micro_batch": sequences, "sequence_length": length,
        "tensor": tensor, "sequence_sharded": sharded, "activation_bytes": size,
    }  # fmt: skip
    return around, query, key, inside, values, tokens


_CASES = tuple(product(((1, False), (2, False), (4, True)), (False, True), FLOATS))


def passes_of_single_operations() -> Answers:
    for seed, ((tensor, sharded), gated, size) in enumerate(_CASES):
        around, query, key, inside, values, _ = _one_rank(sharded, tensor, gated, size, 50 + seed)
        memory = _Memory()
        for _norm in range(2):  # a copy of twice the width is written, and half of it again read back
            memory.pass_over([around], [around, around])
        for turned in (query, key):  # both halves are read, turned and joined: three passes in and out
            for _pass in range(3):
                memory.pass_over([turned], [turned])
        if gated:
            memory.pass_over([inside], [inside])
            memory.pass_over([inside], [])
        yield values, memory.moved


def casts_to_eight_bits() -> Answers:
    for seed, ((tensor, sharded), gated, _) in enumerate(_CASES):
        around, query, _, inside, values, _ = _one_rank(sharded, tensor, gated, 2, 80 + seed)
        memory = _Memory()
        for one in (around, query, around, inside):
            narrow = one.astype(np.int8)
            memory.pass_over([one], [narrow, narrow.T])
        yield {name: value for name, value in values.items() if name not in ("kv_heads", "mlp_matrices")}, memory.moved


def copies_of_single_operations() -> Answers:
    for seed, ((tensor, sharded), gated, size) in enumerate(_CASES):
        _, query, key, inside, values, tokens = _one_rank(sharded, tensor, gated, size, 110 + seed)
        kept = [query.copy(), key.copy(), key.copy(), *([inside.copy()] if gated else [])]
        yield (
            {
                name: value
                for name, value in values.items()
                if name not in ("hidden", "micro_batch", "sequence_length", "sequence_sharded")
            },
            sum(one.nbytes for one in kept) / tokens,
        )


def inputs_kept_whole() -> Answers:
    for seed, ((tensor, sharded), gated, size) in enumerate(_CASES):
        around, _, _, _, values, tokens = _one_rank(sharded, tensor, gated, size, 140 + seed)
        whole = np.zeros((tokens, around.shape[1]), FLOATS[size])
        mine = ("hidden", "tensor", "sequence_sharded", "activation_bytes")
        yield {name: values[name] for name in mine}, 2 * (whole.nbytes - around.nbytes) / tokens


def passes_of_an_optimizer_step() -> Answers:
    for count, weight, gradient, kept in (
        (90, "f2", "f4", ("f4", "f4", "f4")),
        (70, "f4", "f2", ("f2", "f2")),
        (51, "f2", "f8", ("f8",)),
    ):
        memory = _Memory()
        parts = [np.zeros(count, kind) for kind in kept]  # master copy and moments
        memory.pass_over([*parts, np.zeros(count, gradient)], parts)
        memory.pass_over([], [np.zeros(count, weight)])
        yield (
            {
                "stage_parameters": count,
                "optimizer_bytes": sum(np.dtype(kind).itemsize for kind in kept),
                "gradient_bytes": np.dtype(gradient).itemsize,
                "weight_bytes": np.dtype(weight).itemsize,
            },
            memory.moved,
        )


ORACLES: dict[str, list[Check]] = {
    "predict.compute.shard_matmul_flops": [agrees(matmul_of_one_rank)],
    "predict.compute.shard_matmul_bytes": [agrees(arrays_of_one_rank)],
    "predict.compute.attention_flops": [agrees(visible_scores_and_values, 0.002)],
    "predict.compute.window_flops": [agrees(visible_through_a_window, 0.002)],
    "predict.compute.score_count": [agrees(score_matrices)],
    "predict.compute.element_wise_bytes": [agrees(passes_of_a_layer)],
    "predict.compute.eager_bytes": [agrees(passes_of_single_operations)],
    "predict.compute.narrow_cast_bytes": [agrees(casts_to_eight_bits)],
    "predict.memory.eager_copies_bytes": [agrees(copies_of_single_operations)],
    "predict.memory.kept_inputs_bytes": [agrees(inputs_kept_whole)],
    "predict.compute.optimizer_bytes_moved": [agrees(passes_of_an_optimizer_step)],
}
