"""Step 2: what one device holds, which limit comes first; mixtures and latent attention counted by tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course import catalog, constrain, estimate, examples, records
from course.compare.mapping import run_of
from course.problem import Model, load
from course.simulators import saved, shapes

GIB = 2**30
STATE = catalog.state("bf16-18")
DENSE = [name for name in catalog.names("models") if catalog.model(name).is_dense]


# ---------------------------------------------------------------- what is held
@pytest.mark.parametrize("name", ["gpt2", "llama-2-70b", "llama-3-8b", "llama-3.1-405b"])
def test_parts_are_the_tensors(name: str) -> None:
    model, length = catalog.model(name), 512
    parts = constrain.held(model, STATE, length, micro_batch=3)
    stored = shapes.total_elements(shapes.parameters(model))
    assert parts["weights"] == 2 * stored and parts["gradients"] == 4 * stored and parts["optimizer"] == 12 * stored
    assert parts["activations"] == model.layers * shapes.total_bytes(saved.saved_in_layer(model, 3, length))
    assert parts["logits"] == 6 * 3 * length * model.vocabulary


def test_full_recomputation_keeps_inputs_and_one_layer() -> None:
    model = catalog.model("llama-3-8b")
    parts = constrain.held(model, STATE, 8192, recompute="full")
    assert parts["activations"] == 8192 * (32 * 2 * 4096 + 139264)


def test_unfused_programs_hold_more() -> None:
    model, old = catalog.model("gpt3-175b"), catalog.software("megatron-2021")
    assert constrain.held(model, STATE, 2048, software=old)["activations"] == 96 * 2048 * (34 * 12288 + 5 * 96 * 2048)


def test_a_mixture_keeps_the_experts_a_token_passes_and_its_copies() -> None:
    mixture = catalog.model("mixtral-8x7b")
    wide = replace(catalog.model("llama-3-8b"), ffn=2 * 14336)
    copies = 2 * 2 * 4096 * 32 * 1024
    assert constrain.held(mixture, STATE, 1024)["activations"] == (
        constrain.held(wide, STATE, 1024)["activations"] + copies
    )


def test_latent_attention_keeps_latents_and_wide_vectors() -> None:
    latents = 2 * (2 * 1536 + 2 * 512)
    attention = latents + 2 * 128 * (192 + 192 + 128 + 128)
    mlp = 2 * 3 * 9 * 2048 + 2 * 8 * 7168  # eight experts and the shared one, a copy of the token for each of the eight
    layer = 2 * 4 * 7168 + attention + mlp
    assert constrain.held(catalog.model("deepseek-v3"), STATE, 4096)["activations"] == 61 * 4096 * layer


# ---------------------------------------------------------------- the first limit
@pytest.mark.parametrize(
    ("model", "device", "last"),
    [
        ("llama-3.2-1b", "l4", "activations"),  # 22 GB of state in 23.7, 15 GiB more for a sequence
        ("llama-2-7b", "tpu-v5e", "gradients"),  # 13.5 GB in 17.2, 40 GB with gradients
        ("llama-3-8b", "mi300x", "time"),
        ("llama-3-8b", "h100-sxm", "optimizer state"),  # 48 and 145 GB in 85.5
        ("llama-2-70b", "h100-sxm", "weights"),  # 138 GB
        ("llama-3.1-405b", "tpu-v5e", "one layer"),  # 3.19 billion parameters, 6 bytes
    ],
)
def test_first_limit_and_how_far(model: str, device: str, last: str) -> None:
    case = catalog.model(model), catalog.accelerator(device), STATE, 8192
    assert constrain.how_far(*case) == last
    assert constrain.first_limit(*case) == (last if last in ("activations", "time") else "optimizer state")


@pytest.mark.parametrize("name", examples.names())
def test_the_first_limit_is_the_first_that_the_questions_refuse(name: str) -> None:
    run = load(examples.path(name))
    refused = [limit.name for limit in constrain.limits(run) if not limit.fits]
    case = run.model, run.cluster.accelerator, run.training.state, run.training.sequence_length
    if refused and refused[0] != "activations":
        assert constrain.first_limit(*case) == refused[0]


def test_more_memory_never_moves_the_limit_back() -> None:
    order = ["one layer", "weights", "gradients", "optimizer state", "activations", "time"]
    device = catalog.accelerator("h100-sxm")
    for name in DENSE:
        found = [
            constrain.how_far(catalog.model(name), replace(device, memory_bytes=2.0**power), STATE, 4096)
            for power in range(28, 47)
        ]
        assert [order.index(limit) for limit in found] == sorted(order.index(limit) for limit in found)
        assert found[-1] == "time"


def test_counted_peaks_lie_near_the_measured_ones() -> None:
    """Whole models on one device: the playbook's 1.34B, nothing but the optimizer state divided."""
    errors = []
    for row in records.runs():
        if (row["tp"], row["pp"]) == (1, 1) and row["id"].startswith("usp-") and row["peak_mem_gib"]:
            run = run_of(row)
            parts = constrain.held(run.model, run.training.state, 4096, run.layout.micro_batch, software=run.software)
            parts["optimizer"] /= run.layout.shard_group if row["sharding"] == "zero1" else 1
            errors.append(abs(sum(parts.values()) / GIB / row["peak_mem_gib"] - 1))
    assert len(errors) == 19
    assert sorted(errors)[9] < 0.03 and max(errors) < 0.12


# ---------------------------------------------------------------- latent attention and experts
def _latent(**widths: int) -> Model:
    common = {"kv_lora": 512, "rope_head_size": 64, "nope_head_size": 128, "v_head_size": 128, "head_size": 128}
    return Model("latent", **common | widths)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "total", "active", "matmul_active"),
    [  # counted over the tensors of the released configurations
        (catalog.model("deepseek-v3"), 671_026_419_200, 37_552_297_472, 36_624_596_992),
        (
            _latent(
                layers=27, hidden=2048, heads=16, kv_heads=16, ffn=10944, vocabulary=102400, experts=64,
                experts_per_token=6, shared_experts=2, expert_ffn=1408, dense_layers=1,
            ),  # DeepSeek-V2-Lite: queries not compressed
            15_706_484_224, 2_661_150_208, 2_451_308_544,
        ),
        (
            _latent(
                layers=61, hidden=7168, heads=64, kv_heads=64, ffn=18432, vocabulary=163840, experts=384,
                experts_per_token=8, shared_experts=1, expert_ffn=2048, dense_layers=1, q_lora=1536,
                router_bias=True,
            ),  # Kimi K2
            1_026_408_232_448, 32_861_500_928, 31_686_066_176,
        ),
    ],
    ids=["deepseek-v3", "deepseek-v2-lite", "kimi-k2"],
)  # fmt: skip
def test_latent_mixtures_are_counted_to_the_last_parameter(
    model: Model, total: int, active: int, matmul_active: int
) -> None:
    counted = estimate.count(model)
    assert (counted.total, counted.active, counted.matmul_active) == (total, active, matmul_active)


def test_latent_attention_scores_count_both_widths() -> None:
    """2 (192 + 128) T FLOPs a head and token forward, three times that in training."""
    model = catalog.model("deepseek-v3")
    short, long = (estimate.flops_per_token(model, length)["full_attention"] for length in (1000, 2000))
    assert long - short == pytest.approx(3 * 61 * 128 * 2 * (192 + 128) * 1000)


def test_published_counts_of_the_catalog() -> None:
    row = catalog.facts("models", "deepseek-v3")[0]
    assert estimate.count(catalog.model("deepseek-v3")).total == pytest.approx(float(row["published_total"]), rel=1e-3)
