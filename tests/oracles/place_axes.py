"""Oracles of step 4, axes: bytes over simulated rings against multiplications counted one weight at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import numpy as np

from course.simulators import ring
from course.simulators.ring import Links, rings_on_nodes
from oracles.checking import Answers, Check, agrees

_draw = random.Random(32)
RANKS = (1, 2, 3, 5, 8)


def _ring(collective: str, ranks: int, payload: float, latency: float, bandwidth: float) -> float:
    """Seconds of one ring inside a node of its own; the payload may be any number of bytes."""
    links = Links(bandwidth, latency)
    return float(rings_on_nodes([range(ranks)], payload, ranks, links, links, collective).time)


def _multiplied(matrix: tuple[int, int], tokens: int, passes: int) -> int:
    """FLOPs of `passes` matmuls of tokens by a matrix: a multiplication and an addition each."""
    return sum(2 for _ in range(passes) for _ in range(tokens) for _ in range(matrix[0]) for _ in range(matrix[1]))


def _chip() -> tuple[float, float, float]:
    """Peak in FLOP/s, bandwidth in byte/s, latency in s."""
    return _draw.uniform(50, 5000), _draw.uniform(5, 500), _draw.uniform(0.1, 3)


def gradients_behind_one_backward() -> Answers:
    for ranks, tensor in product(RANKS, (1, 2, 4)):
        matrix, tokens, gradient = (3, _draw.randint(2, 6)), _draw.randint(1, 9), _draw.choice((2, 4))
        peak, bandwidth, latency = _chip()
        part = matrix[0] * matrix[1] * gradient  # of one tensor rank
        moved = _ring("all_reduce", ranks, part, latency, bandwidth)
        yield {
            "tensor": tensor, "ranks": ranks, "reduced_gradient_bytes": gradient, "peak_flops_per_s": peak,
            "bandwidth": bandwidth, "latency": latency, "tokens_per_device": tokens,
            "layer_parameters": matrix[0] * matrix[1] * tensor,
        }, moved / (_multiplied(matrix, tokens * tensor, 2) / peak)  # fmt: skip


def weights_gathered_and_gradients_scattered() -> Answers:
    for ranks, tensor in product(RANKS, (1, 2, 4)):
        matrix, tokens = (4, _draw.randint(2, 6)), _draw.randint(1, 9)
        weight, gradient = _draw.choice(((2, 1), (2, 2), (2, 4), (1, 2), (4, 2)))
        peak, bandwidth, latency = _chip()
        size = matrix[0] * matrix[1]
        gather = _ring("all_gather", ranks, size * weight, latency, bandwidth)
        scatter = _ring("reduce_scatter", ranks, size * gradient, latency, bandwidth)
        forward = gather / (_multiplied(matrix, tokens * tensor, 1) / peak)
        backward = (gather + scatter) / (_multiplied(matrix, tokens * tensor, 2) / peak)
        yield {
            "tensor": tensor, "ranks": ranks, "weight_bytes": weight, "reduced_gradient_bytes": gradient,
            "peak_flops_per_s": peak, "bandwidth": bandwidth, "latency": latency, "tokens_per_device": tokens,
            "layer_parameters": size * tensor,
        }, max(forward, backward)  # fmt: skip


def units_of_a_tensor_group() -> Answers:
    for tensor, units in product((1, 2, 4, 8), (4, 8)):
        hidden, columns, tokens, size = 4, 8 * _draw.randint(1, 4), _draw.randint(1, 6), _draw.choice((2, 4))
        peak, bandwidth, latency = _chip()
        group = tokens * tensor  # tokens the group works on together
        moved = sum(_ring("all_gather", tensor, group * hidden * size, latency, bandwidth) for _ in range(units))
        yield {
            "tensor": tensor, "tensor_units": units, "hidden": hidden, "activation_bytes": size, "latency": latency,
            "bandwidth": bandwidth, "peak_flops_per_s": peak, "tokens_per_device": tokens,
            "layer_parameters": hidden * columns,
        }, moved / (_multiplied((hidden, columns // tensor), group, 3) / peak)  # fmt: skip


def sends_of_a_stage() -> Answers:
    for layers, tokens in product((1, 2, 5), (1, 4)):
        hidden, columns, size = _draw.randint(2, 6), _draw.randint(2, 6), 2
        peak, bandwidth, latency = _chip()
        vectors = np.zeros((tokens, hidden), np.float16)
        moved = sum(ring.send(vectors, Links(bandwidth, latency)).time for _ in ("activations", "gradients"))
        computed = sum(_multiplied((hidden, columns), tokens, 3) for _ in range(layers)) / peak
        yield {
            "stage_layers": layers, "tokens_per_device": tokens, "hidden": hidden, "activation_bytes": size,
            "layer_parameters": hidden * columns, "peak_flops_per_s": peak, "bandwidth": bandwidth, "latency": latency,
        }, moved / computed  # fmt: skip


def tokens_to_their_experts() -> Answers:
    for (ranks, per_node), chosen in product(((1, 1), (2, 1), (4, 1), (4, 2), (6, 3)), (1, 2)):
        hidden, width, size = 3, _draw.randint(2, 6), _draw.choice((2, 4))
        tokens, matrices = 12 * _draw.randint(1, 2), _draw.choice((2, 3))
        peak, bandwidth, _ = _chip()
        out = tokens * chosen * hidden * size  # a device's copies, spread evenly over the ranks
        links = Links(bandwidth)
        shared = rings_on_nodes([range(ranks)], out, per_node, links, links, "all_to_all")
        moved = sum(shared.bytes_out(0) / per_node / bandwidth for _ in ("out", "back", "out", "back"))
        computed = chosen * matrices * _multiplied((hidden, width), tokens, 3) / peak
        yield {
            "ranks": ranks, "ranks_per_node": per_node, "activation_bytes": size, "mlp_matrices": matrices,
            "expert_ffn": width, "peak_flops_per_s": peak, "bandwidth": bandwidth,
        }, moved / computed  # fmt: skip


def blocks_of_keys_round_a_ring() -> Answers:
    """Device i holds chunks i and 2n-1-i of a causal sequence; pairs of tokens are counted one by one."""
    for ranks, heads, kv_heads in ((2, 2, 1), (3, 2, 2), (4, 4, 1)):
        half, head_size, size = 40, 2, 2
        peak, bandwidth, _ = _chip()
        chunks = np.arange(2 * ranks * half).reshape(2 * ranks, half)
        held = [np.concatenate([chunks[rank], chunks[2 * ranks - 1 - rank]]) for rank in range(ranks)]
        tokens = 2 * half
        passed = np.zeros((2, tokens, kv_heads, head_size), np.float16)  # keys and values
        moved = ring.send(passed, Links(bandwidth)).time
        other = held[1]  # the block that comes to device 0 from its neighbour
        pairs = sum(1 for query in held[0] for key in other if key <= query)
        yield {
            "sequence_length": tokens * ranks, "context": ranks, "heads": heads, "kv_heads": kv_heads,
            "activation_bytes": size, "peak_flops_per_s": peak, "bandwidth": bandwidth,
        }, moved / (pairs * heads * head_size * 2 * 2 / peak)  # fmt: skip


def _mixed(tensor: int, devices: int, given: dict[str, float]) -> float:
    """Seconds of one layer's collectives: FSDP among devices / tensor ranks, then the units of a tensor group."""
    ranks, shard = devices // tensor, given["layer_parameters"] / tensor
    out, inside = given["scale_out_bytes_per_s"], given["scale_up_bytes_per_s"]
    moved = sum(_ring("all_gather", ranks, shard * given["weight_bytes"], 0, out) for _ in ("forward", "backward"))
    moved += _ring("reduce_scatter", ranks, shard * given["reduced_gradient_bytes"], 0, out)
    vectors = given["tokens_per_device"] * tensor * given["hidden"] * given["activation_bytes"]
    return moved + sum(_ring("all_gather", tensor, vectors, 0, inside) for _ in range(int(given["tensor_units"])))


def _layer() -> dict[str, float]:
    return {
        "layer_parameters": 4096 * _draw.randint(1, 9), "weight_bytes": _draw.choice((1, 2)),
        "reduced_gradient_bytes": _draw.choice((2, 4)), "tokens_per_device": _draw.randint(1, 40),
        "hidden": _draw.randint(1, 9), "activation_bytes": _draw.choice((1, 2)), "tensor_units": _draw.choice((4, 8)),
        "scale_up_bytes_per_s": _draw.uniform(50, 500), "scale_out_bytes_per_s": _draw.uniform(5, 50),
    }  # fmt: skip


def two_axes_one_after_the_other() -> Answers:
    for tensor, devices in ((1, 1), (1, 4), (2, 8), (4, 4), (4, 16), (8, 16)):
        given = _layer()
        yield given | {"tensor": tensor, "devices": devices}, _mixed(tensor, devices, given)


def degree_between_two_that_take_equally_long() -> Answers:
    """f = A/T + B T + c through three simulated degrees; its lowest point follows from A and B alone."""
    for _ in range(8):
        given = _layer()
        degrees = np.array([1, 2, 4])
        rows = np.stack([1 / degrees, degrees, np.ones(3)], axis=1)
        falling, rising, _ = np.linalg.solve(rows, [_mixed(int(one), 8, given) for one in degrees])
        yield given, (falling / rising) ** 0.5


def bytes_that_leave_a_node() -> Answers:
    """Rings of an axis that lies outside another: k of each group on a node, every device in one of them."""
    for per_node, stride, nodes in ((1, 1, 3), (2, 1, 2), (4, 1, 2), (1, 4, 3), (2, 4, 2), (4, 2, 3)):
        node_size, size = per_node * stride, 60
        ranks = per_node * nodes
        rings = [[first + stride * place for place in range(ranks)] for first in range(stride)]
        links = Links(100.0)
        shared = rings_on_nodes(rings, size * ranks, node_size, links, links)
        yield {
            "payload_bytes": size * ranks, "ranks": ranks, "ranks_per_node": per_node
        }, shared.bytes_out(0) / node_size  # fmt: skip


def rings_under_a_leaf_switch() -> Answers:
    """A device is one card of a node; the leaf's way up carries what its cards send, divided by o."""
    for nodes, factor, rings in ((1, 1, 1), (2, 1, 2), (2, 4, 2), (4, 2, 1), (4, 8, 3), (3, 4.5, 2)):
        leaves, card, chunk = 3, 8.0, 60
        cards = nodes * rings  # below one leaf
        uplinks = cards * card / factor
        members = [[leaf * cards + ring_ * nodes + node for leaf in range(leaves) for node in range(nodes)]
                   for ring_ in range(rings)]  # fmt: skip
        ranks = nodes * leaves
        done = rings_on_nodes(members, chunk * ranks, cards, Links(card), Links(uplinks), "all_gather")
        rate = (ranks - 1) * chunk / done.time
        yield {"scale_out_bytes_per_s": card, "leaf_nodes": nodes, "oversubscription": factor}, rate


def _exact(find: Callable[[], Answers]) -> list[Check]:
    return [agrees(find)]


ORACLES: dict[str, list[Check]] = {
    "place.data_ratio": _exact(gradients_behind_one_backward),
    "place.fsdp_ratio": _exact(weights_gathered_and_gradients_scattered),
    "place.tensor_ratio": _exact(units_of_a_tensor_group),
    "place.pipeline_ratio": _exact(sends_of_a_stage),
    "place.expert_ratio": _exact(tokens_to_their_experts),
    # the diagonal of the mask is whole, so half of the pairs is exact for blocks that do not meet it
    "place.context_ratio": [agrees(blocks_of_keys_round_a_ring, 0.01)],
    "place.fsdp_tensor_time": _exact(two_axes_one_after_the_other),
    "place.fsdp_tensor_optimum": _exact(degree_between_two_that_take_equally_long),
    "place.crossing_bytes": _exact(bytes_that_leave_a_node),
    "place.leaf_bandwidth": [agrees(rings_under_a_leaf_switch, 0.03)],
}
