"""One idea: latent attention on ranks, with wide keys and values or narrow latents on the way; the numbers are alike.

Hidden vectors go down to latents, and from there up to all heads. A head's key has a part of its own and one that all
heads share. Arrays are float64, so a number is 8 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.simulators.axes import Trial, attention, attention_backward
from course.simulators.ranks import Ranks
from course.simulators.ring import Array

__all__ = ["LatentShape", "latent_context", "latent_tensor"]


@dataclass(frozen=True)
class LatentShape:
    """Heads, and the widths of latent attention: of a key its own and its shared part, of a value, of both latents."""

    heads: int
    nope: int
    rope: int
    value: int
    kv_lora: int
    q_lora: int = 1


def _up(shape: LatentShape, latent: Array, shared: Array, keys_up: Array, values_up: Array) -> tuple[Array, Array]:
    """Keys (token, head, nope + rope) and values of the heads whose matrices are given."""
    own = np.einsum("tr,rhd->thd", latent, keys_up)
    every = np.broadcast_to(shared[:, None], (len(shared), own.shape[1], shape.rope))
    return np.concatenate([own, every], axis=2), np.einsum("tr,rhd->thd", latent, values_up)


def _down_again(shape: LatentShape, dk: Array, dv: Array, keys_up: Array, values_up: Array) -> Array:
    """Gradients of latent and shared key, side by side, from those of keys and values."""
    own, shared = dk[:, :, : shape.nope], dk[:, :, shape.nope :].sum(axis=1)
    latent = np.einsum("thd,rhd->tr", own, keys_up) + np.einsum("thd,rhd->tr", dv, values_up)
    return np.concatenate([latent, shared], axis=1)


def latent_context(
    ranks: int, tokens: int, shape: LatentShape, *, wide: bool, kept: bool = False, seed: int = 0
) -> Trial:
    """Forward and backward on shares of the tokens: all keys and values are gathered, `wide`, or their latents.

    Backward gathers again unless they were `kept`, and gradients come home by a reduce-scatter.

    >>> shape = LatentShape(heads=4, nope=2, rope=1, value=2, kv_lora=3)
    >>> wide, narrow = (latent_context(2, 4, shape, wide=wide) for wide in (True, False))
    >>> wide.agrees() and narrow.agrees(), wide.sent[0] / narrow.sent[0]  # 4 heads of 2 + 1 + 2, against 3 + 1
    (True, 5.0)
    """
    random = np.random.default_rng(seed)
    size = shape.nope + shape.rope
    latent, shared = (random.normal(size=(tokens, width)) for width in (shape.kv_lora, shape.rope))
    q, do = (random.normal(size=(tokens, shape.heads, width)) for width in (size, shape.value))
    ups = [random.normal(size=(shape.kv_lora, shape.heads, width)) for width in (shape.nope, shape.value)]
    k, v = _up(shape, latent, shared, *ups)
    dq, dk, dv = attention_backward(q, k, v, do, first=0)
    serial = [attention(q, k, v), dq, _down_again(shape, dk, dv, *ups)]
    block, narrow = tokens // ranks, shape.kv_lora + shape.rope
    world = Ranks(ranks)
    world.put("q", np.split(q, ranks))
    world.put("do", np.split(do, ranks))
    flat = [np.concatenate([k.reshape(tokens, -1), v.reshape(tokens, -1)], axis=1), np.hstack([latent, shared])]
    world.put("sent", np.split(flat[0] if wide else flat[1], ranks))

    def both(own: dict[str, Array]) -> tuple[Array, Array]:
        if not wide:
            whole = own["whole"].reshape(tokens, narrow)
            return _up(shape, whole[:, : shape.kv_lora], whole[:, shape.kv_lora :], *ups)
        whole = own["whole"].reshape(tokens, shape.heads * (size + shape.value))
        keys, values = np.split(whole, [shape.heads * size], axis=1)
        return keys.reshape(tokens, shape.heads, size), values.reshape(tokens, shape.heads, shape.value)

    world.all_gather("sent", into="whole")
    world.compute("out", lambda r, own: attention(own["q"], *both(own), r * block))
    if not kept:
        world.drop("whole")
        world.all_gather("sent", into="whole")

    def back(r: int, own: dict[str, Array]) -> tuple[Array, Array, Array]:
        return attention_backward(own["q"], *both(own), own["do"], first=r * block)

    def home(r: int, own: dict[str, Array]) -> Array:
        _, keys, values = back(r, own)
        if not wide:
            return _down_again(shape, keys, values, *ups)
        return np.concatenate([keys.reshape(tokens, -1), values.reshape(tokens, -1)], axis=1)

    world.compute("grads", home)
    world.compute("dq", lambda r, own: back(r, own)[0])
    world.reduce_scatter("grads")
    grads = np.concatenate([world[r]["grads"] for r in range(ranks)]).reshape(tokens, -1)
    if wide:
        keys, values = np.split(grads, [shape.heads * size], axis=1)
        grads = _down_again(shape, keys.reshape(k.shape), values.reshape(v.shape), *ups)
    found = [np.concatenate([world[r][name] for r in range(ranks)]) for name in ("out", "dq")]
    return _trial([*found, grads], serial, world)


def latent_tensor(ranks: int, tokens: int, hidden: int, shape: LatentShape, *, seed: int = 0) -> Trial:
    """Forward and backward on shares of the heads: each rank leads its own tokens down, and latents are gathered.

    Outputs are reduce-scattered as hidden vectors; backward gathers those of the output and scatters gradients of
    latents.

    >>> latent_tensor(2, 4, 3, LatentShape(heads=2, nope=2, rope=1, value=2, kv_lora=3, q_lora=2)).agrees()
    True
    """
    random = np.random.default_rng(seed)
    size, narrow = shape.nope + shape.rope, shape.q_lora + shape.kv_lora + shape.rope
    x, dy = random.normal(size=(2, tokens, hidden))
    down = random.normal(size=(hidden, narrow))
    widths = ((shape.q_lora, size), (shape.kv_lora, shape.nope), (shape.kv_lora, shape.value))
    ups = [random.normal(size=(rank, shape.heads, width)) for rank, width in widths]
    out = random.normal(size=(shape.heads, shape.value, hidden))

    def heads(latents: Array, mine: list[Array]) -> tuple[Array, Array, Array]:
        queries, latent, shared = np.split(latents, [shape.q_lora, shape.q_lora + shape.kv_lora], axis=1)
        return np.einsum("tr,rhd->thd", queries, mine[0]), *_up(shape, latent, shared, *mine[1:])

    def forward(latents: Array, mine: list[Array], rows: Array) -> Array:
        mixed: Array = np.einsum("thd,hdk->tk", attention(*heads(latents, mine)), rows)
        return mixed

    def backward(latents: Array, mine: list[Array], rows: Array, wanted: Array) -> Array:
        gradients = attention_backward(*heads(latents, mine), np.einsum("tk,hdk->thd", wanted, rows), first=0)
        queries = np.einsum("thd,rhd->tr", gradients[0], mine[0])
        return np.concatenate([queries, _down_again(shape, *gradients[1:], *mine[1:])], axis=1)

    serial = [forward(x @ down, ups, out), backward(x @ down, ups, out, dy) @ down.T]
    parts = [[np.split(up, ranks, axis=1)[r] for up in ups] for r in range(ranks)]
    rows = np.split(out, ranks)
    world = Ranks(ranks)
    world.put("latents", [share @ down for share in np.split(x, ranks)])
    world.all_gather("latents")
    world.compute("out", lambda r, own: forward(own["latents"].reshape(tokens, narrow), parts[r], rows[r]))
    world.reduce_scatter("out")
    world.put("dy", np.split(dy, ranks))
    world.all_gather("dy")
    world.compute(
        "grads", lambda r, own: backward(
            own["latents"].reshape(tokens, narrow), parts[r], rows[r], own["dy"].reshape(dy.shape))
    )  # fmt: skip
    world.reduce_scatter("grads")
    dx = np.concatenate([world[r]["grads"].reshape(-1, narrow) @ down.T for r in range(ranks)])
    return _trial([np.concatenate([world[r]["out"] for r in range(ranks)]).reshape(x.shape), dx], serial, world)


def _trial(found: list[Array], wanted: list[Array], world: Ranks) -> Trial:
    parallel, serial = (np.concatenate([part.ravel() for part in parts]) for parts in (found, wanted))
    return Trial(parallel, serial, world.sent)
