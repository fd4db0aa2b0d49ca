"""FLOPs of a token by every named convention, beside published figures and a framework's own counter."""

from __future__ import annotations

import pytest

from course import catalog, estimate, mfu
from course.estimate import flops_per_token
from course.simulators.shapes import Shape, backward, matmuls, recomputed

# A throughput table prints TFLOP/s and tokens/s of one device; their ratio is the FLOPs it counts for a token.
PRINTED = [
    # NVIDIA NeMo 24.07 performance summary, H100: the full square
    ("full_attention", "llama-3-8b", 8192, 711e12 / 12273),
    ("full_attention", "llama-3-70b", 8192, 746e12 / 1549),
    ("full_attention", "llama-2-70b", 4096, 768e12 / 1728),
    # NVIDIA Megatron-Bridge performance summary, containers 26.06, 26.04 and 25.11, H100: half the square
    ("causal_attention", "llama-3.1-405b", 8192, 822e12 / 326),
    ("causal_attention", "llama-3-70b", 8192, 734e12 / 1633),
    ("causal_attention", "llama-3-8b", 8192, 744e12 / 14451),
]


@pytest.mark.parametrize(("convention", "model", "length", "printed"), PRINTED)
def test_the_convention_of_a_published_table_is_told_from_the_others(convention, model, length, printed):
    ours = flops_per_token(catalog.model(model), length)
    assert ours[convention] == pytest.approx(printed, rel=0.01)
    other = "causal_attention" if convention == "full_attention" else "full_attention"
    assert ours[other] != pytest.approx(printed, rel=0.02)


def test_palm_convention_of_mpt_and_megatron():
    # llm-foundry benchmark table: MPT-1B at 8,192 tokens, 13,814 tokens/s on an A100, MFU 56.69 %
    mpt = estimate.palm(parameters=1.328534e9, layers=24, heads=16, head_size=128, sequence_length=8192)
    assert mfu.mfu(model_flops=mpt * 13814, devices=1, peak_flops_per_s=312e12, time=1) == pytest.approx(
        0.5669, rel=0.001
    )
    # Korthikanti et al. 2022, table 5: 530B on 280 A100, 280 sequences of 2,048 in 37.83 s, MFU 56.0 %
    megatron = estimate.palm(parameters=530e9, layers=105, heads=128, head_size=160, sequence_length=2048)
    step = {"tokens_per_step": 280 * 2048, "step_time": 37.83, "devices": 280, "peak_flops_per_s": 312e12}
    assert mfu.step_mfu(flops_per_token=megatron, **step) == pytest.approx(0.56, rel=0.003)


def test_executed_convention_of_narayanan_2021():
    # equation 3: 96 B s L h^2 (1 + s/6h + V/16Lh) FLOPs a step with every layer recomputed, for f = 4h and no grouping
    for layers, h, heads in ((24, 2304, 24), (96, 12288, 96), (128, 25600, 160)):
        s, V = 2048, 51200
        widths = {"layers": layers, "hidden": h, "heads": heads, "head_size": h // heads}
        matrices = estimate.matmul_parameters(**widths, kv_heads=heads, ffn=4 * h, mlp_matrices=2, vocabulary=V)
        ours = estimate.executed(
            **widths, matmul_parameters=matrices, vocabulary=V, sequence_length=s, full_recompute=1, core_recompute=0
        )
        assert ours == pytest.approx(96 * layers * h**2 * (1 + s / (6 * h) + V / (16 * layers * h)), rel=1e-12)


def test_six_ps_of_published_runs():
    # GPT-3 paper, table D.1; Llama 3 paper, section 1
    assert estimate.six_ps_run(parameters=174.6e9, tokens=300e9) == pytest.approx(3.14e23, rel=0.005)
    llama = flops_per_token(catalog.model("llama-3.1-405b"), 8192)
    assert llama["six_ps"] * 15.6e12 == pytest.approx(3.8e25, rel=0.005)


def test_conventions_stand_in_a_known_order():
    for name in ("llama-2-7b", "llama-3-8b", "llama-3.1-405b"):
        found = flops_per_token(catalog.model(name), 8192)
        assert found["six_ps"] < found["palm"]
        assert found["causal_attention"] < found["full_attention"] < found["palm"]
        assert found["executed"] == found["full_attention"]
        whole = flops_per_token(catalog.model(name), 8192, "full")
        core = flops_per_token(catalog.model(name), 8192, "selective")
        assert found["executed"] < core["executed"] < whole["executed"] < 4 / 3 * found["executed"]


SHAPES = [
    Shape(layers=3, hidden=24, heads=4, kv_heads=2, head_size=5, ffn=28, vocabulary=37),
    Shape(2, 16, 4, 4, 4, 64, 50, gated_mlp=False, tied_embeddings=True, norm_size=2),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_framework_counts_what_the_formulas_say(shape, recompute):
    """Torch runs every matmul of the list, forward, backward and again, and counts what it executed."""
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    sequences, length = 2, 7
    forward = matmuls(shape, sequences, length)
    with counter:
        for one in forward:
            for _ in range(one.count):
                left = torch.ones(one.m, one.k, requires_grad=True)
                right = torch.ones(one.k, one.n, requires_grad=True)
                (left @ right).sum().backward()
        trained = counter.get_total_flops()
        for one in recomputed(forward, recompute):
            for _ in range(one.count):
                torch.ones(one.m, one.k) @ torch.ones(one.k, one.n)
    assert trained == sum(one.flops for one in (*forward, *backward(forward)))
    given = estimate.shape(shape)
    matrices = estimate.matmul_parameters(**estimate.pick(estimate.matmul_parameters, given))
    executed = estimate.executed(
        **estimate.pick(
            estimate.executed, given, matmul_parameters=matrices, sequence_length=length,
            full_recompute=float(recompute == "full"), core_recompute=float(recompute == "selective"),
        )
    )  # fmt: skip
    assert executed * sequences * length == pytest.approx(counter.get_total_flops(), rel=1e-12)
    if recompute == "none":
        core = estimate.pick(estimate.full_attention, given, matmul_parameters=matrices, sequence_length=length)
        assert estimate.full_attention(**core) * sequences * length == pytest.approx(trained, rel=1e-12)
