"""The walks against counts published with the models and closed forms from the literature."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.simulators.saved import Execution, saved_by_embedding, saved_by_head, saved_in_layer
from course.simulators.shapes import Shape, backward, matmuls, parameters, recomputed, total_bytes, total_elements

SMALL = settings(max_examples=30, deadline=None)

LLAMA_2_7B = Shape(32, 4096, 32, 32, 128, 11008, 32000)
LLAMA_2_70B = Shape(80, 8192, 64, 8, 128, 28672, 32000)
LLAMA_3_1_8B = Shape(32, 4096, 32, 8, 128, 14336, 128256)
LLAMA_3_1_405B = Shape(126, 16384, 128, 8, 128, 53248, 128256)
CLASSIC = {"gated_mlp": False, "tied_embeddings": True, "attention_bias": "qkvo", "mlp_bias": True, "norm_size": 2}
GPT_2 = Shape(12, 768, 12, 12, 64, 3072, 50257, **CLASSIC, learned_positions=1024)
GPT_3_175B = Shape(96, 12288, 96, 96, 128, 49152, 50257, **CLASSIC, learned_positions=2048)
QWEN_2_5_7B = Shape(28, 3584, 28, 4, 128, 18944, 152064, attention_bias="qkv")
QWEN_3_8B = Shape(36, 4096, 32, 8, 128, 12288, 151936, qk_norm="head")
GEMMA_3_27B = Shape(62, 5376, 32, 16, 128, 21504, 262208, tied_embeddings=True, norms_per_layer=4, qk_norm="head")
OLMO_2_7B = Shape(32, 4096, 32, 32, 128, 11008, 100352, qk_norm="width")
BLOOM_176B = Shape(70, 14336, 112, 112, 128, 57344, 250880, **CLASSIC, embedding_norm=True)


@pytest.mark.parametrize(
    ("model", "published"),
    [
        (LLAMA_2_7B, 6_738_415_616),
        (LLAMA_2_70B, 68_976_648_192),
        (LLAMA_3_1_8B, 8_030_261_248),
        (LLAMA_3_1_405B, 405_853_388_800),
        (GPT_2, 124_439_808),
        (GPT_3_175B, 174_604_259_328),
        (QWEN_2_5_7B, 7_615_616_512),
        (QWEN_3_8B, 8_190_735_360),
        (GEMMA_3_27B, 27_009_346_304),
        (OLMO_2_7B, 7_298_617_344),
        (BLOOM_176B, 176_247_271_424),
    ],
)
def test_parameters_are_those_of_the_released_models(model, published):
    assert total_elements(parameters(model)) == published
    assert total_bytes(parameters(model)) == 2 * published


def test_parameter_names_are_unique_and_shapes_as_released():
    walk = {tensor.name: tensor.shape for tensor in parameters(LLAMA_2_70B)}
    assert len(walk) == len(parameters(LLAMA_2_70B))
    assert walk["layer 79 key"] == (8192, 1024)
    assert walk["layer 0 gate"] == (8192, 28672)


def test_a_model_is_whatever_has_the_attributes():
    assert parameters(SimpleNamespace(**GPT_2.__dict__)) == parameters(GPT_2)


@pytest.mark.parametrize("model", [LLAMA_3_1_405B, GPT_3_175B, QWEN_2_5_7B])
def test_tensor_parallel_ranks_hold_everything_and_copies_of_what_is_not_split(model):
    model = replace(model, vocabulary=50304)
    ranks = 4
    copied = [t for t in parameters(model) if any(word in t.name for word in ("norm", "positions"))]
    copied += [t for t in parameters(model) if t.name.endswith(("projection bias", "down bias"))]
    whole = total_elements(parameters(model))
    assert ranks * total_elements(parameters(model, ranks)) == whole + (ranks - 1) * total_elements(copied)


def test_products_of_a_published_model():
    """Llama 2 7B by hand: 32 (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096 products a token, 4 L h T for attention.

    The total of forward and backward is the published 46.08 GFLOP a token at 4096 tokens (case MFU-03).
    """
    forward = matmuls(LLAMA_2_7B, 1, 4096)
    per_matrix = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    assert sum(one.flops for one in forward) == 4096 * (2 * per_matrix + 4 * 32 * 4096 * 4096)
    assert sum(one.flops for one in forward + backward(forward)) == 4096 * 46_084_915_200


@SMALL
@given(st.integers(1, 3), st.integers(1, 40))
def test_causal_attention_sees_each_pair_once(sequences, length):
    model = Shape(layers=3, hidden=24, heads=4, kv_heads=2, head_size=5, ffn=7, vocabulary=11)
    pairs = sum(1 for query in range(length) for key in range(length) if key <= query)
    for name in ("scores", "values"):
        full = [one.flops for one in matmuls(model, sequences, length) if one.name == name]
        causal = [one.flops for one in matmuls(model, sequences, length, causal=True) if one.name == name]
        assert sum(full) == 2 * 5 * length**2 * 4 * sequences * 3
        assert sum(causal) == 2 * 5 * pairs * 4 * sequences * 3
    others = [one for one in matmuls(model, sequences, length) if one.name not in ("scores", "values")]
    assert all(one in matmuls(model, sequences, length, causal=True) for one in others)


@SMALL
@given(st.integers(1, 3), st.integers(1, 20), st.booleans())
def test_the_backward_costs_twice_the_forward(sequences, length, causal):
    model = Shape(layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocabulary=10)
    forward = matmuls(model, sequences, length, causal)
    assert sum(one.flops for one in backward(forward)) == 2 * sum(one.flops for one in forward)
    assert all(one.m * one.n > 0 for one in backward(forward))


def test_the_backward_of_a_product_has_the_shapes_of_its_factors():
    left, right = backward(matmuls(replace(GPT_2, layers=1), 2, 8))[:2]
    assert (left.m, left.n) == (16, 768)  # the shape of the input
    assert (right.m, right.n) == (768, 768)  # the shape of the weight


def test_what_is_computed_again():
    forward = matmuls(LLAMA_3_1_8B, 1, 64)
    layers = sum(one.flops for one in forward if one.name != "head")
    assert recomputed(forward, "none") == []
    assert sum(one.flops for one in recomputed(forward, "full")) == layers
    assert sum(one.flops for one in recomputed(forward, "selective")) == 4 * 32 * 32 * 128 * 64 * 64
    with pytest.raises(ValueError, match="recompute is 'partial'; it is one of none, selective, full"):
        recomputed(forward, "partial")


@st.composite
def classic_layers(draw):
    """Shapes of Korthikanti's kind: as many key as query heads, hidden = heads x head size, an MLP 4 hidden wide."""
    tensor = draw(st.sampled_from([1, 2, 4]))
    heads = 4 * draw(st.integers(1, 3))
    head_size = draw(st.integers(1, 6))
    hidden = heads * head_size
    model = Shape(2, hidden, heads, heads, head_size, 4 * hidden, 16, gated_mlp=False, norm_size=2)
    return model, draw(st.integers(1, 3)), 4 * draw(st.integers(1, 5)), tensor


@SMALL
@given(classic_layers())
def test_korthikanti_2022(case):
    """Table 2 of arXiv 2205.05198, bytes a layer: s sequence length, b sequences, h width, a heads, t ranks."""
    model, b, s, t = case
    h, a = model.hidden, model.heads
    sbh, scores = s * b * h, 5 * a * s * s * b

    def bytes_kept(**how):
        return total_bytes(saved_in_layer(model, b, s, Execution(flash_attention=False, dropout=True, **how)))

    assert bytes_kept() == 34 * sbh + scores
    assert bytes_kept(tensor=t) * t == 10 * sbh * t + 24 * sbh + scores
    assert bytes_kept(tensor=t, sequence_parallel=True) * t == 34 * sbh + scores
    assert bytes_kept(tensor=t, recompute="selective") * t == 10 * sbh * t + 24 * sbh
    assert bytes_kept(tensor=t, sequence_parallel=True, recompute="selective") * t == 34 * sbh
    assert bytes_kept(tensor=t, recompute="full") == 2 * sbh
    assert bytes_kept(tensor=t, sequence_parallel=True, recompute="full") * t == 2 * sbh


@SMALL
@given(classic_layers())
def test_korthikanti_2022_outside_the_layers(case):
    """Section 4.3 there: a mask behind the embedding, input of the last norm and of the head, logits in fp32."""
    model, b, s, t = case
    how = Execution(flash_attention=False, dropout=True, tensor=t, sequence_parallel=True)
    assert total_bytes(saved_by_embedding(model, b, s, how)) * t == s * b * model.hidden
    assert total_bytes(saved_by_head(model, b, s, how)) * t == 4 * s * b * model.hidden + 4 * s * b * model.vocabulary


@SMALL
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 8), st.booleans())
def test_flash_attention_with_grouped_queries_and_three_matrices(kv, groups, head_size, ffn, length, sequence_parallel):
    """The published account without dropout: 8 h + (4 q + 4 kv + 6 f) / t bytes a token, all over t with splitting."""
    t = 4
    model = Shape(2, 4 * 7, t * kv * groups, t * kv, head_size, t * ffn, 16)
    q, k = model.heads * head_size, model.kv_heads * head_size
    how = Execution(tensor=t, sequence_parallel=sequence_parallel)
    kept = total_bytes(saved_in_layer(model, 1, t * length, how))
    between = 8 * model.hidden / (t if sequence_parallel else 1)
    assert kept == t * length * (between + (4 * q + 4 * k + 6 * model.ffn) / t)


def test_flash_attention_leaves_nothing_for_selective_recomputation():
    """Case MEM-13: 5 a s^2 b bytes without a fused kernel, 82.5 % of the layer; with one, nothing."""
    model = Shape(1, 4096, 32, 32, 128, 16384, 50304, gated_mlp=False)

    def kept(**how):
        return total_bytes(saved_in_layer(model, 1, 4096, Execution(dropout=True, **how)))

    unfused = kept(flash_attention=False) - kept(flash_attention=False, recompute="selective")
    assert unfused == 5 * 32 * 4096**2
    assert unfused / kept(flash_attention=False) == pytest.approx(0.8247423)
    assert kept() == kept(recompute="selective")


def test_without_dropout_there_is_no_mask_and_no_second_copy_of_the_scores():
    model = Shape(1, 8, 2, 2, 4, 32, 16, gated_mlp=False)
    kept = saved_in_layer(model, 1, 6, Execution(flash_attention=False))
    assert total_bytes(kept) == 32 * 6 * 8 + 2 * 2 * 6 * 6
    assert not any("dropout" in tensor.name for tensor in kept)


def test_inputs_that_are_not_gathered_again_stay_whole():
    model = Shape(1, 16, 4, 4, 4, 64, 16)
    gathered = Execution(tensor=4, sequence_parallel=True)
    whole = replace(gathered, tensor_regather=False)
    difference = [total_bytes(saved_in_layer(model, 1, 8, how)) for how in (whole, gathered)]
    assert difference[0] - difference[1] == 2 * (8 - 2) * 16 * 2  # two inputs, six more tokens of sixteen numbers


@pytest.mark.parametrize(
    ("change", "more"),  # bytes a token beside 8 h + 4 q + 4 kv + 6 f, with h = q = 8, kv = 4
    [
        ({"norms_per_layer": 4}, 2 * 2 * 8),
        ({"norms_per_layer": 1}, -2 * 2 * 8),
        ({"parallel_block": True}, -2 * 8),
        ({"qk_norm": "head"}, 2 * 8 + 2 * 4),
        ({"norm_size": 2}, 0),
    ],
)
def test_other_layers(change, more):
    plain = Shape(1, 8, 2, 1, 4, 16, 10)
    assert (
        total_bytes(saved_in_layer(replace(plain, **change), 1, 3)) - total_bytes(saved_in_layer(plain, 1, 3))
        == 3 * more
    )


@pytest.mark.parametrize(
    ("change", "numbers"),  # fp32 numbers a token: RMSNorm 1 a norm, LayerNorm 2, flash attention 1 a head
    [
        ({}, 2 + 2),
        ({"norm_size": 2}, 4 + 2),
        ({"qk_norm": "head"}, 2 + 2 + 2 + 1),
        ({"qk_norm": "width"}, 2 + 2 + 1 + 1),
    ],
)
def test_statistics_of_rows(change, numbers):
    model = replace(Shape(1, 8, 2, 1, 4, 16, 10), **change)
    counted = saved_in_layer(model, 1, 3, Execution(row_statistics=True))
    assert total_bytes(counted) - total_bytes(saved_in_layer(model, 1, 3)) == 4 * 3 * numbers


def test_norms_at_both_ends():
    model = replace(BLOOM_176B, layers=1)
    assert [one.name for one in saved_by_embedding(model, 1, 8)] == ["embedding norm input"]
    without = saved_by_head(replace(model, final_norm=False), 1, 8)
    assert [one.name for one in without] == ["head input", "logits"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parameters(LLAMA_2_70B, 16), "tensor = 16 does not divide kv_heads = 8"),
        (lambda: parameters(LLAMA_2_70B, 0), "tensor = 0 does not divide heads"),
        (lambda: parameters(GPT_2, 2), "tensor = 2 does not divide vocabulary = 50257"),
        (lambda: parameters(replace(GPT_2, norms_per_layer=3)), "norms_per_layer is 3; it is one of 1, 2, 4"),
        (lambda: parameters(replace(GPT_2, qk_norm="full")), "qk_norm is 'full'; it is one of none, head, width"),
        (lambda: parameters(replace(GPT_2, attention_bias="all")), "attention_bias is 'all'"),
        (lambda: parameters(replace(GPT_2, norm_size=3)), "norm_size is 3"),
        (
            lambda: saved_in_layer(GPT_2, 1, 9, Execution(tensor=2, sequence_parallel=True)),
            "does not divide tokens = 9",
        ),
        (lambda: saved_in_layer(GPT_2, 1, 9, Execution(recompute="some")), "recompute is 'some'"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
