"""The work of a step whatever the layout and the attention, and ranks that share sequences, against counts by hand."""

from __future__ import annotations

import dataclasses

import pytest

from course.predict import predict
from course.predict.constants import constants_for
from tests.test_predict import with_cluster, with_layout
from tests.test_predict_experts import mixture, with_model

GIB = 2.0**30


# ------------------------------------------------------------------------------------------------ work
@pytest.mark.parametrize("preset", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"])
@pytest.mark.parametrize("fold", [(16, 1, 1, 1), (4, 1, 4, 1), (8, 2, 1, 8), (2, 2, 4, 4)])
def test_the_work_of_a_step_is_that_of_the_model(preset: str, fold: tuple[int, int, int, int]) -> None:
    """With free memory traffic and no host, time x peak is what the conventions count, whatever the layout."""
    data, tensor, context, expert = fold
    run = mixture(preset, 16, 64, 8192)
    run = with_cluster(run, "accelerator", memory_bytes_per_s=1e16)
    layout = {"expert": expert} if run.model.experts else {}
    run = with_layout(run, data=data, tensor=tensor, context=context, **layout)
    plain = dataclasses.replace(
        constants_for(run), matmul_share=0.5, wide_share=0.5, attention_share=0.5, host_forward_s=0.0,
        host_backward_s=0.0,
    )  # fmt: skip
    document = predict(run, plain)
    full, causal = (document["flops_per_token"][name] for name in ("full_attention", "causal_attention"))
    attention = full - causal  # half the square, three times
    # flash attention's backward is 2.5 forwards, not 2
    expected = (causal - attention + attention / 3 * 3.5) * 64 * 8192
    assert document["step"]["compute_s"] * 16 * 0.5 * 989.4e12 == pytest.approx(expected, rel=2e-3)


def test_few_rows_an_expert_wait_for_its_weights() -> None:
    """128 experts on one device: a short micro-batch reads all of them for a handful of rows each."""
    run = with_layout(mixture("qwen3-30b-a3b", 16, 16, 256), data=16)
    bare = dataclasses.replace(constants_for(run), host_forward_s=0.0, host_backward_s=0.0)
    compute = predict(run, bare)["step"]["compute_s"]
    weights = 48 * 128 * 3 * 2048 * 768 * 2  # bytes, read once forward and twice backward
    assert compute > 3 * weights / run.cluster.accelerator.memory_bytes_per_s
    assert compute < 1.5 * 3 * weights / run.cluster.accelerator.memory_bytes_per_s


def test_a_window_limits_the_work_of_local_layers() -> None:
    """Gemma 2 9B at 32k tokens: 21 of 42 layers look back 4,096, and meet that many keys but for the first ones."""
    run = with_layout(mixture("gemma-2-9b", 8, 8, 32768), data=8)
    free = with_cluster(run, "accelerator", memory_bytes_per_s=1e16)
    bare = dataclasses.replace(
        constants_for(run), matmul_share=0.5, wide_share=0.5, attention_share=0.5, host_forward_s=0.0,
        host_backward_s=0.0,
    )  # fmt: skip
    whole = with_model(free, dataclasses.replace(run.model, sliding_window=0, window_layers=0))
    saved = predict(whole, bare)["step"]["compute_s"] - predict(free, bare)["step"]["compute_s"]
    pairs = 32768 * 32768 / 2 - sum(min(token + 1, 4096) for token in range(32768))
    assert saved * 0.5 * 989.4e12 == pytest.approx(3.5 * 21 * 4 * 16 * 256 * pairs, rel=2e-3)
    assert any("21 of 42 layers" in line for line in predict(run)["assumptions"])
    short = with_layout(mixture("gemma-2-9b", 8, 8, 4096), data=8)
    same = with_model(short, dataclasses.replace(short.model, sliding_window=0, window_layers=0))
    assert predict(short)["step"] == predict(same)["step"]


# ------------------------------------------------------------------------------------------------ context
@pytest.mark.parametrize("degree", [2, 4, 16])
def test_a_context_rank_holds_what_a_shorter_sequence_would(degree: int) -> None:
    long = mixture("llama-3-8b", 64, 64, 8192 * degree)
    short = mixture("llama-3-8b", 64, 64, 8192)
    shared = predict(with_layout(long, data=64 // degree, context=degree))["memory"]["parts_gib"]
    alone = predict(with_layout(short, data=64))["memory"]["parts_gib"]
    for name in ("activations", "logits", "weights", "gradients", "optimizer"):
        assert shared[name] == pytest.approx(alone[name]), name
    blocks = min(2, degree - 1) * 2 * 2 * 8 * 128 * 8192  # keys and values of two blocks of 8192 tokens
    assert (shared["buffers"] - alone["buffers"]) * GIB == pytest.approx(blocks)


def test_context_ranks_share_the_state_with_the_replicas() -> None:
    run = mixture("llama-3-8b", 64, 64)
    parts = predict(with_layout(run, data=16, context=4, sharding="zero3"))["memory"]["parts_gib"]
    assert (parts["weights"] + parts["gradients"] + parts["optimizer"]) * GIB == pytest.approx(18 * 8_030_261_248 / 64)
    traffic = predict(with_layout(run, data=1, tensor=8, context=8, sharding="zero1"))["step"]["communication"]["data"]
    assert traffic["total_s"] > 0 and traffic["link"] == "between nodes"


def test_a_ring_hides_behind_long_blocks_and_a_gather_never() -> None:
    """Attention on a block grows with its square, its keys and values with its length."""
    for length, hidden in ((1024, False), (1 << 20, True)):
        run = with_layout(mixture("llama-3-8b", 8, 8, length), context=8)
        bare = dataclasses.replace(constants_for(run), host_forward_s=0.0, host_backward_s=0.0)
        ring = predict(run, bare)["step"]["communication"]["context"]
        assert (ring["exposed_s"] == 0) is hidden
        gathers = dataclasses.replace(run, software=dataclasses.replace(run.software, overlap_context=False))
        whole = predict(gathers, bare)["step"]["communication"]["context"]
        assert whole["exposed_s"] == whole["total_s"] == pytest.approx(ring["total_s"])
    rate, latency = constants_for(run).scale_up_bytes_per_s, run.cluster.fabric.scale_up_latency_s
    unit = 7 * latency + 2 * 2 * 8 * 128 * length * 7 / 8 / rate
    assert ring["total_s"] == pytest.approx(8 * 32 * 3 * unit)  # one forward, two backward
