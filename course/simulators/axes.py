"""One idea: cut a layer along an axis, run the pieces on ranks: the numbers stay the serial ones, bytes are counted.

Each program returns a `Trial`: what the ranks computed, put together; what a serial program computes; bytes each rank
sent. Arrays are float64, so a number is 8 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.simulators.ranks import Ranks
from course.simulators.ring import Array

__all__ = [
    "Trial", "attention", "attention_backward", "expert_groups", "expert_reduction", "head_exchange", "hybrid_step",
    "mixture", "pipeline", "ring_attention", "tensor_mlp", "whole_keys_attention",
]  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """What a parallel program gave, what the serial one gives, and the bytes each rank sent."""

    parallel: Array
    serial: Array
    sent: list[int]

    def agrees(self) -> bool:
        """Whether both programs computed the same numbers."""
        return bool(np.allclose(self.parallel, self.serial, rtol=1e-9, atol=1e-9))


# ---------------------------------------------------------------- tensor and sequence parallelism
def tensor_mlp(
    ranks: int, tokens: int, hidden: int, ffn: int, *, sequence_parallel: bool, gathers_again: bool = False,
    seed: int = 0,
) -> Trial:  # fmt: skip
    """One MLP, forward and backward: each rank has a share of the columns of the first matrix and rows of the second.

    With `sequence_parallel` a rank holds a share of the tokens around the block: gathered before it, its outputs
    reduce-scattered behind it; without it every rank holds all tokens and outputs are all-reduced. With
    `gathers_again` a rank keeps its share of the block's input alone, and gathers it once more for the gradient of
    the weights.

    >>> tensor_mlp(2, 4, 3, 2, sequence_parallel=True).sent == tensor_mlp(2, 4, 3, 2, sequence_parallel=False).sent
    True
    """
    random = np.random.default_rng(seed)
    x, dy = random.normal(size=(2, tokens, hidden))
    first, second = random.normal(size=(hidden, ffn)), random.normal(size=(ffn, hidden))
    inside = np.maximum(x @ first, 0)
    gradient = (dy @ second.T) * (inside > 0)
    serial = [inside @ second, gradient @ first.T, x.T @ gradient]
    columns, rows = np.split(first, ranks, axis=1), np.split(second, ranks)
    world, results = Ranks(ranks), []
    for name, array in (("x", x), ("dy", dy)):
        shares = np.split(array, ranks) if sequence_parallel else [array] * ranks
        world.put(name, shares)
        if sequence_parallel:
            world.all_gather(name)
        if name == "x":
            world.compute("inside", lambda r, own: np.maximum(own["x"].reshape(x.shape) @ columns[r], 0))
            world.compute("out", lambda r, own: own["inside"] @ rows[r])
        else:
            world.compute("inside", lambda r, own: (own["dy"].reshape(x.shape) @ rows[r].T) * (own["inside"] > 0))
            world.compute("out", lambda r, own: own["inside"] @ columns[r].T)
        if sequence_parallel:
            world.reduce_scatter("out")
            results.append(np.concatenate([world[r]["out"] for r in range(ranks)]).reshape(x.shape))
        else:
            world.all_reduce("out")
            results.append(world[ranks - 1]["out"])
        if name == "x" and sequence_parallel and gathers_again:
            world.put("x", shares)
    if sequence_parallel and gathers_again:
        world.all_gather("x")
    weights = [world[r]["x"].reshape(x.shape).T @ world[r]["inside"] for r in range(ranks)]
    found = [*results, np.concatenate(weights, axis=1)]
    parallel, whole = (np.concatenate([part.ravel() for part in parts]) for parts in (found, serial))
    return Trial(parallel, whole, world.sent)


# ---------------------------------------------------------------- context parallelism
def _attention_inputs(tokens: int, heads: int, kv_heads: int, head_size: int, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(tokens, count, head_size)) for count in (heads, kv_heads, kv_heads, heads)]


def _scores(q: Array, k: Array, first: int, start: int) -> Array:
    """Causal scores (head, query, key); queries begin at token `first`, keys at token `start`."""
    shared = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    scores = np.einsum("qhd,khd->hqk", q, shared)
    later = start + np.arange(k.shape[0])[None] > first + np.arange(q.shape[0])[:, None]
    return np.where(later[None], -np.inf, scores)


def _softmax(scores: Array) -> Array:
    exponents: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total: Array = exponents.sum(axis=-1, keepdims=True)
    return exponents / total


def attention(q: Array, k: Array, v: Array, first: int = 0) -> Array:
    """Causal attention of (token, head, width) arrays, unscaled; queries begin at token `first`."""
    values = np.repeat(v, q.shape[1] // v.shape[1], axis=1)
    result: Array = np.einsum("hqk,khd->qhd", _softmax(_scores(q, k, first, 0)), values)
    return result


def ring_attention(ranks: int, tokens: int, heads: int, kv_heads: int, head_size: int, seed: int = 0) -> Trial:
    """Forward: each rank keeps its queries, blocks of keys and values go round; the softmax is built up block by block.

    >>> trial = ring_attention(4, 8, 4, 2, 3)
    >>> trial.agrees(), trial.sent[0] == 3 * 2 * (2 * 2 * 3) * 8  # 3 hops of keys and values: 2 tokens, 2 heads of 3
    (True, True)
    """
    q, k, v, _ = _attention_inputs(tokens, heads, kv_heads, head_size, seed)
    block, group = tokens // ranks, heads // kv_heads
    world = Ranks(ranks)
    world.put("q", np.split(q, ranks))
    world.put("kv", [np.stack(pair) for pair in zip(np.split(k, ranks), np.split(v, ranks), strict=True)])
    highest = [np.full((heads, block), -np.inf) for _ in range(ranks)]
    total, mixed = np.zeros((ranks, heads, block)), np.zeros((ranks, heads, block, head_size))
    for hop in range(ranks):
        for r in range(ranks):
            own, source = world[r], (r - hop) % ranks
            scores = _scores(own["q"], own["kv"][0], r * block, source * block)
            top = np.maximum(highest[r], scores.max(axis=-1))
            weights = np.exp(scores - top[..., None])
            shrink = np.exp(highest[r] - top)
            values = np.repeat(own["kv"][1], group, axis=1)
            total[r] = total[r] * shrink + weights.sum(axis=-1)
            mixed[r] = mixed[r] * shrink[..., None] + np.einsum("hqk,khd->hqd", weights, values)
            highest[r] = top
        if hop < ranks - 1:
            for r in range(ranks):
                world.send(r, (r + 1) % ranks, "kv", into="arriving")
            world.compute("kv", lambda _, own: own["arriving"])
    parallel = (mixed / total[..., None]).transpose(0, 2, 1, 3).reshape(tokens, heads, head_size)
    return Trial(parallel, attention(q, k, v), world.sent)


def whole_keys_attention(
    ranks: int, tokens: int, heads: int, kv_heads: int, head_size: int, *, kept: bool, seed: int = 0
) -> Trial:
    """Forward and backward of attention on shares of the queries, all keys and values gathered on every rank.

    Backward gathers them again unless they were `kept`, and brings their gradients home by a reduce-scatter.
    """
    q, k, v, do = _attention_inputs(tokens, heads, kv_heads, head_size, seed)
    serial = attention_backward(q, k, v, do, first=0)
    block = tokens // ranks
    world = Ranks(ranks)
    world.put("q", np.split(q, ranks))
    world.put("do", np.split(do, ranks))
    # token by token, so that pieces one behind the other are the whole
    world.put("kv", np.split(np.stack([k, v], axis=1), ranks))

    def both(own: dict[str, Array]) -> tuple[Array, Array]:
        keys_values = own["whole"].reshape(tokens, 2, kv_heads, head_size)
        return keys_values[:, 0], keys_values[:, 1]

    world.all_gather("kv", into="whole")
    world.compute("out", lambda r, own: attention(own["q"], *both(own), r * block))
    if not kept:
        world.drop("whole")
        world.all_gather("kv", into="whole")
    world.compute(
        "grads", lambda r, own: np.stack(
            attention_backward(own["q"], *both(own), own["do"], first=r * block)[1:], axis=1)
    )  # fmt: skip
    world.compute("dq", lambda r, own: attention_backward(own["q"], *both(own), own["do"], first=r * block)[0])
    world.reduce_scatter("grads")
    grads = np.concatenate([world[r]["grads"] for r in range(ranks)]).reshape(tokens, 2, kv_heads, head_size)
    outputs = [np.concatenate([world[r][name] for r in range(ranks)]) for name in ("out", "dq")]
    found = [*outputs, grads[:, 0], grads[:, 1]]
    wanted = [attention(q, k, v), *serial]
    parallel, whole = (np.concatenate([part.ravel() for part in parts]) for parts in (found, wanted))
    return Trial(parallel, whole, world.sent)


def attention_backward(q: Array, k: Array, v: Array, do: Array, *, first: int) -> tuple[Array, Array, Array]:
    """Gradients of queries, keys and values; those of a shared key/value head are summed over its queries' heads."""
    group = q.shape[1] // k.shape[1]
    weights = _softmax(_scores(q, k, first, 0))
    keys, values = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    dp = np.einsum("qhd,khd->hqk", do, values)
    ds = weights * (dp - (dp * weights).sum(axis=-1, keepdims=True))
    dk, dv = np.einsum("hqk,qhd->khd", ds, q), np.einsum("hqk,qhd->khd", weights, do)
    dk, dv = (grad.reshape(*part.shape[:2], group, part.shape[2]).sum(axis=2) for grad, part in ((dk, k), (dv, v)))
    return np.einsum("hqk,khd->qhd", ds, keys), dk, dv


def head_exchange(ranks: int, tokens: int, heads: int, kv_heads: int, head_size: int, seed: int = 0) -> Trial:
    """Forward: all-to-alls turn shares of the tokens into shares of the heads, and the output back (Ulysses)."""
    q, k, v, _ = _attention_inputs(tokens, heads, kv_heads, head_size, seed)
    world = Ranks(ranks)
    for name, array in (("q", q), ("k", k), ("v", v)):
        world.put(name, [part.swapaxes(0, 1) for part in np.split(array, ranks)])  # heads first: a share each
        world.all_to_all(name)

    def all_tokens(array: Array, count: int) -> Array:
        parts = array.reshape(ranks, count // ranks, tokens // ranks, head_size)
        return parts.transpose(0, 2, 1, 3).reshape(tokens, count // ranks, head_size)

    world.compute(
        "out", lambda _, own: attention(
            all_tokens(own["q"], heads), all_tokens(own["k"], kv_heads), all_tokens(own["v"], kv_heads))
    )  # fmt: skip
    world.all_to_all("out")
    shares = [world[r]["out"].reshape(ranks, tokens // ranks, heads // ranks, head_size) for r in range(ranks)]
    parallel = np.concatenate([part.transpose(1, 0, 2, 3).reshape(-1, heads, head_size) for part in shares])
    return Trial(parallel, attention(q, k, v), world.sent)


# ---------------------------------------------------------------- pipeline and experts
def pipeline(stages: int, tensor: int, tokens: int, hidden: int, *, sharded: bool, seed: int = 0) -> Trial:
    """One micro-batch through `stages` matrices: each stage sends its output on; `sent` is what one device sends.

    Where the activations are `sharded` over the tensor ranks, a device sends its share, else all of them.
    """
    random = np.random.default_rng(seed)
    x, matrices = random.normal(size=(tokens, hidden)), random.normal(size=(stages, hidden, hidden))
    serial = x
    for matrix in matrices:
        serial = serial @ matrix
    pieces = np.split(x, tensor) if sharded else [x]
    worlds = [Ranks(stages) for _ in pieces]
    for world, piece in zip(worlds, pieces, strict=True):
        world.put("x", [piece, *[np.zeros(0)] * (stages - 1)])
    for stage in range(stages):
        whole = np.concatenate([world[stage]["x"] for world in worlds]) @ matrices[stage]
        for world, piece in zip(worlds, np.split(whole, len(worlds)), strict=True):
            world.put("x", [piece if r == stage else world[r]["x"] for r in range(stages)])
            if stage < stages - 1:
                world.send(stage, stage + 1, "x")
    parallel = np.concatenate([world[stages - 1]["x"] for world in worlds])
    return Trial(parallel, serial, worlds[0].sent)


def mixture(
    ranks: int, tokens: int, hidden: int, experts: int, per_token: int, *, seed: int = 0
) -> Trial:
    """A mixture layer, forward and backward, `tokens` on each rank and `experts / ranks` experts; routing is balanced.

    Copies of tokens go to the ranks of their experts and come back; so do the gradients.
    """
    random = np.random.default_rng(seed)
    x, dy = random.normal(size=(2, ranks, tokens, hidden))
    matrices = random.normal(size=(experts, hidden, hidden))
    gates = random.random((ranks, tokens, per_token))
    chosen = (np.arange(tokens * per_token) % experts).reshape(tokens, per_token)  # balanced, on every rank alike
    order = np.argsort(chosen.ravel(), kind="stable")
    serial = np.stack([
        np.einsum("rtj,rth,tjhk->rtk", gates, x, matrices[chosen]),
        np.einsum("rtj,rtk,tjhk->rth", gates, dy, matrices[chosen]),
    ])  # fmt: skip
    world, results = Ranks(ranks), []
    local, copies = experts // ranks, tokens * per_token // experts
    for array, turned in ((x, matrices), (dy, matrices.swapaxes(1, 2))):
        world.put("copies", [np.repeat(array[r], per_token, axis=0)[order] for r in range(ranks)])
        world.all_to_all("copies")

        def work(r: int, own: dict[str, Array], turned: Array = turned) -> Array:
            parcels = own["copies"].reshape(ranks, local, copies, hidden)
            made: Array = np.einsum("slch,lhk->slck", parcels, turned[r * local : (r + 1) * local])
            return made

        world.compute("copies", work)
        world.all_to_all("copies")
        back = np.stack([world[r]["copies"].reshape(-1, hidden)[np.argsort(order)] for r in range(ranks)])
        results.append(np.einsum("rtj,rtjk->rtk", gates, back.reshape(ranks, tokens, per_token, hidden)))
    return Trial(np.stack(results), serial, world.sent)


def expert_groups(stage_ranks: int, expert: int, expert_tensor: int) -> list[list[int]]:
    """Which ranks of a pipeline stage hold the same part of the same experts, and so share their gradients and state.

    Ranks are dealt out: expert-tensor neighbours first, then the experts, then copies of all that.

    >>> expert_groups(8, expert=2, expert_tensor=1)
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """
    whole = expert * expert_tensor
    if stage_ranks % whole:
        raise ValueError(f"{stage_ranks} ranks of a stage do not hold {expert} x {expert_tensor} parts of the experts")
    return [[rank for rank in range(stage_ranks) if rank % whole == part] for part in range(whole)]


def expert_reduction(stage_ranks: int, expert: int, expert_tensor: int, parameters: int, seed: int = 0) -> Trial:
    """Gradients of all experts, `parameters` numbers, summed over the ranks that hold the same part, and no others.

    >>> expert_reduction(8, expert=2, expert_tensor=1, parameters=16).agrees()
    True
    """
    groups = expert_groups(stage_ranks, expert, expert_tensor)
    own = np.random.default_rng(seed).normal(size=(stage_ranks, parameters // len(groups)))
    summed, sent = [], [0] * stage_ranks
    for group in groups:
        world = Ranks(len(group))
        world.put("gradient", [own[rank] for rank in group])
        world.all_reduce("gradient")
        summed.append(world[len(group) - 1]["gradient"])
        for rank, bytes_sent in zip(group, world.sent, strict=True):
            sent[rank] = bytes_sent
    serial = own.reshape(-1, len(groups), own.shape[1]).sum(axis=0)  # ranks were dealt out in turn
    return Trial(np.stack(summed), serial, sent)


def hybrid_step(
    ranks: int, group: int, parameters: int, micro_batches: int = 1, gradient: type = np.float64, seed: int = 0
) -> Trial:
    """One step of hybrid sharding: weights in pieces inside groups of `group` ranks, every group has all pieces.

    Weights are gathered in the group before forward and before backward, gradients scattered in the group and then
    summed over the ranks that hold the same piece, for each micro-batch; `gradient` is their type on the wire.

    >>> trial = hybrid_step(8, group=4, parameters=16)
    >>> trial.agrees(), trial.sent[0] == 3 * 3 * (4 * 8) + 2 * (4 * 8 // 2)  # 3 collectives of 3 hops, then all-reduce
    (True, True)
    """
    random, groups = np.random.default_rng(seed), ranks // group
    start = random.integers(-9, 9, size=parameters).astype(float)
    examples = random.integers(-9, 9, size=(micro_batches, ranks, parameters)).astype(float)
    inside, between = [Ranks(group) for _ in range(groups)], [Ranks(groups) for _ in range(group)]
    summed = np.zeros((group, parameters // group))
    for world in inside:
        world.put("weights", np.split(start, group))
    for micro_batch in examples:
        for world, own in zip(inside, np.split(micro_batch, groups), strict=True):
            world.all_gather("weights", into="whole")  # forward
            world.drop("whole")
            world.all_gather("weights", into="whole")  # backward
            gradients = [(world[rank]["whole"] - own[rank]).astype(gradient) for rank in range(group)]
            world.put("gradient", gradients)
            world.reduce_scatter("gradient")
        for rank, world in enumerate(between):
            world.put("gradient", [one[rank]["gradient"] for one in inside])
            world.all_reduce("gradient")
            summed[rank] += world[0]["gradient"]
    serial = start - 0.5 * (start - examples).sum(axis=(0, 1))
    parallel = start - 0.5 * summed.ravel()
    sent = [inside[rank // group].sent[rank % group] + between[rank % group].sent[rank // group]
            for rank in range(ranks)]  # fmt: skip
    return Trial(parallel, serial, sent)
