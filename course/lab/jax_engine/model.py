"""The model that is measured: a plain decoder and its loss, written once, without a word about devices.

Where it is laid out over devices, `place` is called with each array and its name; alone it is the identity, and that
is the serial run which every layout's loss is held to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax

__all__ = ["LEARNING_RATE", "Parameters", "Shape", "draw_batch", "draw_parameters", "flops_per_token", "mean_loss"]

LEARNING_RATE = 0.1
EPSILON = 1e-5
SPREAD = 0.02

Parameters = dict[str, Any]
Place = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Shape:
    """A decoder's sizes: layers, width of the residual stream, attention heads, width of the MLP, tokens known.

    Each layer has a norm, attention, a norm and an MLP of two matrices; no biases, no gate, embedding and head apart,
    positions as fixed sines: the shape that the Torch engine trains.

    >>> Shape(layers=4, hidden=128, heads=4, ffn=512, vocabulary=512).head_size
    32
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int

    @property
    def head_size(self) -> int:
        """Numbers of one head's query."""
        return self.hidden // self.heads

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Each parameter's name and shape, in the order in which they are used.

        >>> Shape(1, 8, 2, 32, 64).sizes()["layer0.attention_in"]
        (8, 3, 2, 4)
        >>> sum(int(np.prod(size)) for size in Shape(4, 128, 4, 512, 512).sizes().values())
        918656
        """
        found: dict[str, tuple[int, ...]] = {"embedding": (self.vocabulary, self.hidden)}
        for number in range(self.layers):
            layer = f"layer{number}."
            found[layer + "attention_norm"] = (self.hidden,)
            found[layer + "attention_in"] = (self.hidden, 3, self.heads, self.head_size)
            found[layer + "attention_out"] = (self.heads, self.head_size, self.hidden)
            found[layer + "mlp_norm"] = (self.hidden,)
            found[layer + "mlp_in"] = (self.hidden, self.ffn)
            found[layer + "mlp_out"] = (self.ffn, self.hidden)
        found["norm"] = (self.hidden,)
        found["head"] = (self.hidden, self.vocabulary)
        return found


def draw_parameters(shape: Shape, seed: int) -> dict[str, np.ndarray]:
    """Draw the same parameters whatever the layout: norms 1, matrices normal with a spread of 0.02.

    >>> drawn = draw_parameters(Shape(1, 8, 2, 32, 64), seed=0)
    >>> again = draw_parameters(Shape(1, 8, 2, 32, 64), seed=0)
    >>> float(drawn["norm"].sum()), drawn["head"].shape, bool((drawn["head"] == again["head"]).all())
    (8.0, (8, 64), True)
    """
    random = np.random.default_rng(seed)
    drawn = {}
    for name, size in shape.sizes().items():
        if name.endswith("norm"):
            drawn[name] = np.ones(size, np.float32)
        else:
            drawn[name] = (SPREAD * random.standard_normal(size)).astype(np.float32)
    return drawn


def draw_batch(sequences: int, length: int, vocabulary: int, seed: int) -> np.ndarray:
    """Draw the global batch whole: (sequences, length + 1) token numbers; the last is only a label.

    >>> draw_batch(2, 4, 512, seed=0).shape
    (2, 5)
    """
    return np.random.default_rng(seed + 1).integers(0, vocabulary, (sequences, length + 1), dtype=np.int32)


def mean_loss(
    parameters: Mapping[str, jax.Array], tokens: jax.Array, shape: Shape, precision: str, place: Place
) -> jax.Array:
    """Return the mean cross-entropy (nats a token) of tokens (sequences, length + 1).

    Matrices are used in `precision` ("fp32" or "bf16"), norms, softmax and loss stay in float32. place is called with
    "residual", "query", "key", "logits" and with each parameter's name, and returns the array as it shall be laid out.
    """
    import jax
    import jax.numpy as jnp

    number = jnp.bfloat16 if precision == "bf16" else jnp.float32

    def weight(name: str) -> jax.Array:
        found: jax.Array = place(parameters[name], name).astype(number)
        return found

    def norm(x: jax.Array, name: str) -> jax.Array:
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + EPSILON)
        found: jax.Array = (wide * scale * place(parameters[name], name)).astype(number)
        return found

    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    length = inputs.shape[1]
    allowed = jnp.tril(jnp.ones((length, length), bool))
    x = weight("embedding")[inputs] + _sines(length, shape.hidden).astype(number)
    x = place(x, "residual")
    for layer in (f"layer{index}." for index in range(shape.layers)):
        mixed = jnp.einsum("bth,hcad->cbtad", norm(x, layer + "attention_norm"), weight(layer + "attention_in"))
        query, key, value = place(mixed[0], "query"), place(mixed[1], "key"), place(mixed[2], "key")
        scores = jnp.einsum("bqad,bkad->baqk", query, key).astype(jnp.float32) * shape.head_size**-0.5
        weights = jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf), axis=-1).astype(number)
        seen = jnp.einsum("baqk,bkad->bqad", weights, value)
        x = x + place(jnp.einsum("bqad,adh->bqh", seen, weight(layer + "attention_out")), "residual")
        wide = jax.nn.gelu(norm(x, layer + "mlp_norm") @ weight(layer + "mlp_in"), approximate=False)
        x = x + place(wide @ weight(layer + "mlp_out"), "residual")
    logits = place(norm(x, "norm") @ weight("head"), "logits").astype(jnp.float32)
    # Picking by comparison keeps a vocabulary that is cut over devices where it is; indexing would gather it.
    picked = jnp.where(labels[..., None] == jnp.arange(shape.vocabulary), logits, 0.0).sum(axis=-1)
    mean: jax.Array = jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
    return mean


def _sines(length: int, width: int) -> np.ndarray:
    """Positions as sines and cosines of falling frequency, scaled to the embedding's size: (length, width)."""
    angles = np.arange(length)[:, None] * 1e4 ** (-np.arange(0, width, 2) / width)
    return (SPREAD * np.concatenate((np.sin(angles), np.cos(angles)), axis=1)[:, :width]).astype(np.float32)


def flops_per_token(shape: Shape, length: int) -> int:
    """Return the training FLOPs of one token by the convention `full_attention`.

    Six for each parameter in a matrix that multiplies it (the embedding is looked up), and the scores and weighted
    values of the whole attention square: this model masks, it does not skip.

    >>> flops_per_token(Shape(layers=4, hidden=128, heads=4, ffn=512, vocabulary=512), length=64)
    5505024
    """
    matrices = shape.layers * (4 * shape.hidden**2 + 2 * shape.hidden * shape.ffn) + shape.hidden * shape.vocabulary
    return 6 * matrices + 12 * shape.layers * shape.hidden * length
