"""The walk over shapes against what torch itself counts and keeps, for a tiny decoder written with plain matmuls."""

from __future__ import annotations

import pytest

from course.simulators.saved import Execution, saved_by_head, saved_in_layer
from course.simulators.shapes import Shape, backward, matmuls, parameters, total_elements

torch = pytest.importorskip("torch")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
functional = torch.nn.functional

GROUPED = Shape(layers=3, hidden=24, heads=4, kv_heads=2, head_size=5, ffn=28, vocabulary=37)
CLASSIC = Shape(2, 16, 4, 4, 4, 64, 50, gated_mlp=False, tied_embeddings=True, norm_size=2)
WIDE = Shape(1, 8, 6, 3, 4, 12, 20, norms_per_layer=2, qk_norm="head")
SHAPES = pytest.mark.parametrize("shape", [GROUPED, CLASSIC, WIDE], ids=["grouped", "classic", "wide"])
SEQUENCES, LENGTH = 2, 7


class Norm(torch.nn.Module):
    """One kernel, with a bias or not: torch makes RMSNorm of several kernels on a CPU, each keeping its input."""

    def __init__(self, width, size):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width))
        self.bias = torch.nn.Parameter(torch.zeros(width)) if size == 2 else None

    def forward(self, x):
        return functional.layer_norm(x, x.shape[-1:], self.scale, self.bias)


class Layer(torch.nn.Module):
    def __init__(self, shape, fused):
        super().__init__()
        self.shape, self.fused = shape, fused
        queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.first, self.second = Norm(shape.hidden, shape.norm_size), Norm(shape.hidden, shape.norm_size)
        self.query = torch.nn.Linear(shape.hidden, queries, bias=False)
        self.key = torch.nn.Linear(shape.hidden, keys, bias=False)
        self.value = torch.nn.Linear(shape.hidden, keys, bias=False)
        self.projection = torch.nn.Linear(queries, shape.hidden, bias=False)
        if shape.qk_norm == "head":
            self.query_norm, self.key_norm = (
                Norm(shape.head_size, shape.norm_size),
                Norm(shape.head_size, shape.norm_size),
            )
        if shape.gated_mlp:
            self.gate = torch.nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up = torch.nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down = torch.nn.Linear(shape.ffn, shape.hidden, bias=False)

    def attention(self, x):
        shape = self.shape
        sequences, length, _ = x.shape
        query = self.query(x).view(sequences, length, shape.heads, shape.head_size)
        key = self.key(x).view(sequences, length, shape.kv_heads, shape.head_size)
        value = self.value(x).view(sequences, length, shape.kv_heads, shape.head_size).transpose(1, 2)
        if shape.qk_norm == "head":
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = query.transpose(1, 2), key.transpose(1, 2)
        if self.fused:
            out = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        else:  # the query heads of one key head stand below each other, so no key is copied
            query = query.reshape(sequences, shape.kv_heads, -1, shape.head_size)
            scores = query @ key.transpose(-1, -2) / shape.head_size**0.5
            mask = torch.ones(length, length).tril().log().to(x.dtype).repeat(shape.heads // shape.kv_heads, 1)
            out = (scores + mask).softmax(-1) @ value
            out = out.view(sequences, shape.heads, length, shape.head_size)
        return self.projection(out.transpose(1, 2).reshape(sequences, length, -1))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        y = self.second(x)
        wide = functional.silu(self.gate(y)) * self.up(y) if self.shape.gated_mlp else functional.gelu(self.up(y))
        return x + self.down(wide)


class Decoder(torch.nn.Module):
    def __init__(self, shape, fused=False):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = torch.nn.ModuleList(Layer(shape, fused) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.norm_size)
        self.head = torch.nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.tied_embeddings:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def tokens(shape):
    return torch.arange(SEQUENCES * LENGTH).view(SEQUENCES, LENGTH) % shape.vocabulary


def counted(run):
    with flop_counter.FlopCounterMode(display=False) as counter:
        result = run()
    by_kind = {str(kind): flops for kind, flops in counter.get_flop_counts().get("Global", {}).items()}
    return result, counter.get_total_flops(), by_kind


def flops(products, names=None):
    return sum(one.flops for one in products if names is None or one.name.split(",")[0] in names)


@SHAPES
def test_parameters_are_those_of_the_module(shape):
    assert sum(parameter.numel() for parameter in Decoder(shape).parameters()) == total_elements(parameters(shape))


@SHAPES
def test_forward_and_backward_flops(shape):
    model = Decoder(shape)
    walk = matmuls(shape, SEQUENCES, LENGTH)
    logits, total, by_kind = counted(lambda: model(tokens(shape)))
    assert total == flops(walk)
    assert by_kind["aten.bmm"] == flops(walk, {"scores", "values"})
    _, total, by_kind = counted(lambda: logits.float().logsumexp(-1).sum().backward())
    assert total == flops(backward(walk))
    assert by_kind["aten.bmm"] == flops(backward(walk), {"scores", "values"})


@SHAPES
def test_the_counter_sees_nothing_in_fused_attention_on_a_cpu(shape):
    """Why the decoder above is written with plain matmuls."""
    query = torch.ones(1, 2, 8, 4)
    _, alone, _ = counted(lambda: functional.scaled_dot_product_attention(query, query, query))
    assert alone == 0
    fused, plain = Decoder(shape, fused=True), Decoder(shape)
    assert torch.allclose(fused(tokens(shape)), plain(tokens(shape)), atol=1e-5)
    walk = matmuls(shape, SEQUENCES, LENGTH)
    _, total, _ = counted(lambda: fused(tokens(shape)))
    assert total == flops(walk) - flops(walk, {"scores", "values"})


def kept_elements(module, *inputs):
    """The numbers in all distinct 16-bit tensors that autograd keeps, parameters apart."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if tensor.dtype == torch.bfloat16 and tensor.shape[-1] > 1 and storage.data_ptr() not in own:
            storages[storage.data_ptr()] = (storage.nbytes() // 2, tensor)  # held, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = module(*inputs)
    return sum(elements for elements, _ in storages.values()), result


@SHAPES
def test_what_a_layer_keeps_for_its_backward(shape):
    """A layer without dropout, eager: what torch keeps is the list of the walk.

    One copy more is known: silu(gate), since the gated product is not one kernel here. Statistics of rows, one number
    wide, are left out on both sides.
    """
    layer = Layer(shape, fused=False).to(torch.bfloat16)
    x = torch.ones(SEQUENCES, LENGTH, shape.hidden, dtype=torch.bfloat16, requires_grad=True)
    kept, _ = kept_elements(layer, x)
    walk = total_elements(saved_in_layer(shape, SEQUENCES, LENGTH, Execution(flash_attention=False)))
    unfused = SEQUENCES * LENGTH * shape.ffn if shape.gated_mlp else 0
    assert kept == walk + unfused


def test_what_the_head_keeps_for_its_backward():
    head = torch.nn.Sequential(Norm(16, 1), torch.nn.Linear(16, 50, bias=False)).to(torch.bfloat16)
    x = torch.ones(SEQUENCES, LENGTH, 16, dtype=torch.bfloat16, requires_grad=True)
    kept, _ = kept_elements(head, x)
    walk = saved_by_head(Shape(1, 16, 4, 4, 4, 64, 50), SEQUENCES, LENGTH)
    assert kept == total_elements(one for one in walk if one.name != "logits")
