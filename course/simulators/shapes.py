"""One idea: name every tensor of a dense decoder with its shape, and every total is a sum over the list.

Two walks stand here: over the parameters, and over the matrix multiplications of one forward pass, with the backward
made from it. A third, over the tensors kept for the backward pass, is in `saved`. No closed formula is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

ShapeLike: TypeAlias = Any
"""A Shape, or anything with its attributes, such as the Model of a run file."""


@dataclass(frozen=True)
class Shape:
    """The shape of a dense decoder.

    `heads` query heads and `kv_heads` key and value heads of `head_size` each (their product need not be `hidden`);
    an MLP of width `ffn` with three matrices where `gated_mlp`, else two; `attention_bias` is none, qkv or qkvo;
    a norm holds `norm_size` numbers per width (1 RMSNorm, 2 LayerNorm with bias, 0 none); `norms_per_layer` is 1
    (attention and MLP share it), 2, or 4 (also on their outputs); `qk_norm` is none, head (one head wide) or width (all
    heads wide); where `parallel_block`, attention and MLP both read the layer's input.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    attention_bias: str = "none"
    mlp_bias: bool = False
    norm_size: int = 1
    norms_per_layer: int = 2
    qk_norm: str = "none"
    final_norm: bool = True
    embedding_norm: bool = False
    learned_positions: int = 0
    parallel_block: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor that one rank holds: its name, its shape, and the bytes of one element."""

    name: str
    shape: tuple[int, ...]
    element_bytes: int = 2

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        return self.elements * self.element_bytes


def total_elements(tensors: Iterable[Tensor]) -> int:
    """The numbers held in all `tensors`."""
    return sum(tensor.elements for tensor in tensors)


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """The bytes held in all `tensors`."""
    return sum(tensor.bytes for tensor in tensors)


def parameters(model: ShapeLike, tensor: int = 1) -> list[Tensor]:
    """Every parameter tensor, in 2 bytes an element, as one of `tensor` tensor-parallel ranks holds it.

    The first matrices of attention and MLP are split by columns, the second by rows, the tables by vocabulary; norms,
    positions and the biases of the second matrices are whole on every rank. Raises ValueError where `tensor` does not
    divide what it splits.

    >>> llama_2_7b = Shape(32, 4096, 32, 32, 128, 11008, 32000)
    >>> total_elements(parameters(llama_2_7b))
    6738415616
    """
    one_of(model.attention_bias, "attention_bias", ("none", "qkv", "qkvo"))
    one_of(model.qk_norm, "qk_norm", ("none", "head", "width"))
    one_of(model.norm_size, "norm_size", (0, 1, 2))
    hidden = model.hidden
    query = part(model.heads, tensor, "heads") * model.head_size
    key = part(model.kv_heads, tensor, "kv_heads") * model.head_size
    ffn = part(model.ffn, tensor, "ffn")
    vocabulary = part(model.vocabulary, tensor, "vocabulary")
    found: list[Tensor] = []

    def add(name: str, *shape: int) -> None:
        found.append(Tensor(name, shape))

    def norm(name: str, width: int) -> None:
        for part in ("scale", "bias")[: model.norm_size]:
            add(f"{name} {part}", width)

    add("embedding", vocabulary, hidden)
    if model.learned_positions:
        add("positions", model.learned_positions, hidden)
    if model.embedding_norm:
        norm("embedding norm", hidden)
    for layer in range(model.layers):
        at = f"layer {layer} "
        for name in layer_norms(model):
            norm(at + name, hidden)
        for name, width in (("query", query), ("key", key), ("value", key)):
            add(at + name, hidden, width)
            if model.attention_bias in ("qkv", "qkvo"):
                add(f"{at}{name} bias", width)
        if model.qk_norm == "head":
            norm(at + "query norm", model.head_size)
            norm(at + "key norm", model.head_size)
        elif model.qk_norm == "width":
            norm(at + "query norm", query)
            norm(at + "key norm", key)
        add(at + "projection", query, hidden)
        if model.attention_bias == "qkvo":
            add(at + "projection bias", hidden)
        for name in mlp_inputs(model):
            add(at + name, hidden, ffn)
            if model.mlp_bias:
                add(f"{at}{name} bias", ffn)
        add(at + "down", ffn, hidden)
        if model.mlp_bias:
            add(at + "down bias", hidden)
    if model.final_norm:
        norm("final norm", hidden)
    if not model.tied_embeddings:
        add("head", hidden, vocabulary)
    return found


@dataclass(frozen=True)
class Matmul:
    """`count` products of an m x k by a k x n matrix. A multiplication and an addition are two FLOPs."""

    name: str
    m: int
    k: int
    n: int
    count: int = 1

    @property
    def flops(self) -> int:
        """FLOPs of all `count` of them."""
        return 2 * self.m * self.k * self.n * self.count


def matmuls(model: ShapeLike, sequences: int, sequence_length: int, causal: bool = False) -> list[Matmul]:
    """Every matrix multiplication of one forward pass over `sequences` of `sequence_length` tokens; layers are counted.

    Attention is one product a head and sequence: the full square, or, where `causal`, one product for every query
    with just the keys it may see.

    >>> tiny = Shape(layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocabulary=10)
    >>> [(one.name, one.m, one.k, one.n, one.count) for one in matmuls(tiny, 1, 3)][1:5:2]
    [('key', 3, 8, 4, 2), ('scores', 3, 4, 3, 4)]
    >>> sum(one.flops for one in matmuls(tiny, 1, 3, causal=True) if one.name == "scores")  # 6 pairs, not 9
    192
    """
    tokens = sequences * sequence_length
    query, key = model.heads * model.head_size, model.kv_heads * model.head_size
    square = [(sequence_length, sequence_length)]
    blocks = [(1, seen) for seen in range(1, sequence_length + 1)] if causal else square
    attention = model.layers * sequences * model.heads
    return [
        Matmul("query", tokens, model.hidden, query, model.layers),
        Matmul("key", tokens, model.hidden, key, model.layers),
        Matmul("value", tokens, model.hidden, key, model.layers),
        *[Matmul("scores", queries, model.head_size, keys, attention) for queries, keys in blocks],
        *[Matmul("values", queries, keys, model.head_size, attention) for queries, keys in blocks],
        Matmul("projection", tokens, query, model.hidden, model.layers),
        *[Matmul(name, tokens, model.hidden, model.ffn, model.layers) for name in mlp_inputs(model)],
        Matmul("down", tokens, model.ffn, model.hidden, model.layers),
        Matmul("head", tokens, model.hidden, model.vocabulary),
    ]


def backward(forward: Iterable[Matmul]) -> list[Matmul]:
    """The products of the backward pass: from the gradient (m x n), that of the left factor and that of the right.

    >>> backward([Matmul("up", m=5, k=2, n=3)])[1]
    Matmul(name='up, gradient of right', m=2, k=5, n=3, count=1)
    """
    made = []
    for one in forward:
        made.append(replace(one, name=f"{one.name}, gradient of left", k=one.n, n=one.k))
        made.append(replace(one, name=f"{one.name}, gradient of right", m=one.k, k=one.m))
    return made


def recomputed(forward: Iterable[Matmul], recompute: str) -> list[Matmul]:
    """What the backward pass computes again: nothing, the attention core (selective), or every layer (full).

    The head stands outside the layers and is never computed again.

    >>> tiny = Shape(layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocabulary=10)
    >>> [one.name for one in recomputed(matmuls(tiny, 1, 3), "selective")]
    ['scores', 'values']
    """
    one_of(recompute, "recompute", ("none", "selective", "full"))
    again = {"none": lambda _: False, "selective": ("scores", "values").__contains__, "full": "head".__ne__}[recompute]
    return [one for one in forward if again(one.name)]


def mlp_inputs(model: ShapeLike) -> tuple[str, ...]:
    """The matrices that read the input of the MLP.

    >>> mlp_inputs(Shape(2, 8, 2, 1, 4, 16, 10, gated_mlp=False))
    ('up',)
    """
    return ("gate", "up") if model.gated_mlp else ("up",)


def layer_norms(model: ShapeLike) -> tuple[str, ...]:
    """The norms of a layer besides those of query and key. Raises ValueError unless `norms_per_layer` is 1, 2 or 4.

    >>> layer_norms(Shape(2, 8, 2, 1, 4, 16, 10))
    ('attention norm', 'mlp norm')
    """
    names = {
        1: ("norm",),
        2: ("attention norm", "mlp norm"),
        4: ("attention norm", "attention output norm", "mlp norm", "mlp output norm"),
    }
    return names[one_of(model.norms_per_layer, "norms_per_layer", tuple(names))]


def part(count: int, tensor: int, name: str) -> int:
    """What one of `tensor` ranks holds of `count`. Raises ValueError where that is no whole number.

    >>> part(64, 8, "heads")
    8
    """
    if tensor < 1 or count % tensor:
        raise ValueError(f"tensor = {tensor} does not divide {name} = {count}; choose a degree that does")
    return count // tensor


Choice = TypeVar("Choice")


def one_of(value: Choice, name: str, choices: tuple[Choice, ...]) -> Choice:
    """`value`, if it is among `choices`; else a ValueError that names them.

    >>> one_of("full", "recompute", ("none", "full"))
    'full'
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(str, choices))}")
    return value
