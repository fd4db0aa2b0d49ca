"""Every row of the catalog against what its source prints: counts by a walk over tensor shapes, rates by direction."""

from __future__ import annotations

import re

import pytest

from course import catalog
from course.fields import FIELDS
from course.problem import Model

GIB = 2**30
MODELS = catalog.names("models")


def shapes(model: Model) -> list[tuple[int, ...]]:
    """The shape of every tensor of a dense decoder, written out one by one."""
    query, key = model.heads * model.head_size, model.kv_heads * model.head_size
    found: list[tuple[int, ...]] = [(model.vocabulary, model.hidden)]
    if not model.tied_embeddings:
        found.append((model.hidden, model.vocabulary))
    if model.learned_positions:
        found.append((model.learned_positions, model.hidden))
    norm = [(model.hidden,)] * model.norm_size
    for _ in range(model.layers):
        for width in (query, key, key):
            found.append((model.hidden, width))
            if model.attention_bias in ("qkv", "qkvo"):
                found.append((width,))
        found.append((query, model.hidden))
        if model.attention_bias == "qkvo":
            found.append((model.hidden,))
        for inner, outer in [(model.hidden, model.ffn)] * (2 if model.gated_mlp else 1) + [(model.ffn, model.hidden)]:
            found.append((inner, outer))
            if model.mlp_bias:
                found.append((outer,))
        for _ in range(model.norms_per_layer):
            found.extend(norm)
        if model.qk_norm == "head":
            found.extend([(model.head_size,), (model.head_size,)])
        elif model.qk_norm == "width":
            found.extend([(query,), (key,)])
    found.extend(norm * (model.final_norm + model.embedding_norm))
    return found


def count(model: Model) -> int:
    total = 0
    for shape in shapes(model):
        product = 1
        for width in shape:
            product *= width
        total += product
    return total


DENSE = [name for name in MODELS if catalog.model(name).is_dense]


def rounding(printed: str) -> float:
    """Half a unit of the last printed digit: 0.05e9 for 7.3e9."""
    digits, _, exponent = printed.partition("e")
    decimals = len(digits.partition(".")[2])
    return float(0.5 * 10.0 ** (int(exponent) - decimals))


@pytest.mark.parametrize("name", DENSE)
def test_the_shape_gives_the_published_count(name: str) -> None:
    row = catalog.facts("models", name)[0]
    total, published = count(catalog.model(name)), catalog.published_total(name)
    if row["published_agreement"] == "exact":
        assert total == published
    elif row["published_agreement"] == "rounded":
        assert abs(total - published) <= rounding(row["published_total"])
    else:
        assert row["published_agreement"] == "within 1 %"
        assert abs(total / published - 1) <= 0.01


def test_the_four_counts_everyone_knows() -> None:
    for name, total in {
        "llama-2-7b": 6_738_415_616, "llama-2-70b": 68_976_648_192, "llama-3.1-8b": 8_030_261_248,
        "llama-3.1-405b": 405_853_388_800,
    }.items():  # fmt: skip
        assert count(catalog.model(name)) == total


def test_experts_and_latent_attention_have_their_place() -> None:
    assert catalog.model("mixtral-8x7b").experts == 8
    assert catalog.model("deepseek-v3").kv_lora == 512
    assert {name for name in MODELS if name not in DENSE} >= {"mixtral-8x7b", "deepseek-v3"}


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_every_row_says_where_it_is_from_and_when_it_was_read(kind: str) -> None:
    rows = [row for name in catalog.names(kind) for row in catalog.facts(kind, name)]
    assert rows
    for row in rows:
        assert len(row["source"]) > 5, row
        assert re.fullmatch(r"20\d\d-\d\d", row["read"]), row
        assert row["confidence"] in ("1", "2", "memory"), row
        assert "doubt" in row, row
        assert None not in row, "a cell too many: a comma without quotes"
        assert None not in row.values(), "a cell too few"


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_names_and_aliases_are_unique(kind: str) -> None:
    spellings: dict[str, str] = {}
    for name in catalog.names(kind):
        row = catalog.facts(kind, name)[0]
        for spelling in [name, *filter(None, row.get("aliases", "").split("; "))]:
            assert catalog.find(kind, spelling) == name
            assert catalog.find(kind, spelling.upper()) == name
            assert spellings.setdefault(spelling, name) == name


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_an_unknown_name_is_an_error_that_names_the_nearest(kind: str) -> None:
    name = catalog.names(kind)[0]
    with pytest.raises(catalog.UnknownName, match=f'the nearest name is "{re.escape(name)}"'):
        catalog.find(kind, name + "q")
    with pytest.raises(LookupError):
        catalog.find(kind, "")


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(catalog.UnknownName, match="models, accelerators"):
        catalog.names("planets")


def test_the_names_that_records_use_are_understood() -> None:
    for spelling, name in {
        "H100-80GB": "h100-sxm", "A100-40GB": "a100-sxm-40gb", "NVIDIA H100-SXM5-80GB": "h100-sxm", "GB300": "gb300",
        "TPU v5e": "tpu-v5e", "H800": "h800-sxm", "V100": "v100-sxm2-32gb", "h100 sxm": "h100-sxm",
        "NVIDIA Blackwell GPU (B200-SXM-180GB)": "b200-sxm",
    }.items():  # fmt: skip
        assert catalog.find("accelerators", spelling) == name


ACCELERATORS = [catalog.facts("accelerators", name)[0] for name in catalog.names("accelerators")]


@pytest.mark.parametrize("row", ACCELERATORS, ids=lambda row: row["id"])
def test_the_sparse_figure_is_twice_the_dense_one(row: dict[str, str]) -> None:
    for kind, printed in re.findall(r"(bf16|fp8|tf32) ([\d.]+)", row["sparse_printed"]):
        dense = float(row[f"peak_{kind}_flops_per_s"])
        assert float(printed) * 1e12 == pytest.approx(2 * dense, rel=0.015)


@pytest.mark.parametrize("row", ACCELERATORS, ids=lambda row: row["id"])
def test_two_way_figures_are_halved(row: dict[str, str]) -> None:
    found = re.match(r"([\d.,]+) (TB/s|GB/s|GBps) two-way", row["scale_up_printed"])
    if found is None or "for all" in row["scale_up_printed"]:  # Gaudi 3 prints the links that leave the node as well
        assert "two-way" not in row["scale_up_printed"] or row["id"] == "gaudi3"
        return
    scale = 1e12 if found[2] == "TB/s" else 1e9
    framing = 0.02 if "PCIe" in row["scale_up_printed"] else 1e-6  # PCIe sends 130 bits for 128
    twice = 2 * float(row["scale_up_bytes_per_s"])
    assert float(found[1].replace(",", "")) * scale == pytest.approx(twice, rel=framing)


@pytest.mark.parametrize("row", ACCELERATORS, ids=lambda row: row["id"])
def test_measured_products_stay_below_the_peak_and_memory_near_its_label(row: dict[str, str]) -> None:
    if row["measured_matmul_bf16_flops_per_s"]:
        assert 0.4 < float(row["measured_matmul_bf16_flops_per_s"]) / float(row["peak_bf16_flops_per_s"]) < 1
        assert row["measured_matmul_source"]
    printed = float(re.findall(r"\d+", row["memory_printed"])[0])
    assert 0.9 <= float(row["memory_bytes"]) / (printed * GIB) <= 1.0 + 1e-9 or row["id"] in ("b200-sxm", "gb200")
    assert 0.9 <= float(row["memory_bytes"]) / (printed * 1e9) <= 1.1


LINKS = [catalog.facts("links", name)[0] for name in catalog.names("links")]


@pytest.mark.parametrize("row", LINKS, ids=lambda row: row["id"])
def test_a_link_is_the_printed_figure_one_way_per_device(row: dict[str, str]) -> None:
    """Printed figure, unit and direction give the rate by arithmetic: bits by 8, two ways by 2, a group by its size."""
    figure = 1.0
    for factor in row["printed"].split(" x "):
        figure *= float(factor)
    figure *= {"Gb/s": 1e9 / 8, "Tb/s": 1e12 / 8, "GB/s": 1e9, "TB/s": 1e12, "PB/s": 1e15}[row["printed_unit"]]
    direction = row["printed_direction"]
    if direction.startswith("two-way"):
        figure /= 2
    if direction.endswith("a link"):
        figure *= float(row["links"])
    elif direction.endswith(("whole rack", "a node")):
        figure /= 72 if direction.endswith("rack") else 8
    elif "a pod of" in direction:
        figure /= int(direction.rsplit(" ", 1)[1])
    assert figure == pytest.approx(float(row["bytes_per_s"]), rel=0.005)


@pytest.mark.parametrize("name", catalog.names("fabrics"))
def test_a_preset_joins_two_tiers_of_its_accelerator(name: str) -> None:
    preset, up, out = catalog.facts("fabrics", name)
    fabric = catalog.fabric(name)
    assert (up["tier"], out["tier"]) == ("scale-up", "scale-out")
    assert fabric.scale_up_bytes_per_s > fabric.scale_out_bytes_per_s
    assert fabric.scale_up_latency_s < fabric.scale_out_latency_s
    assert fabric.scale_out_measured_bytes_per_s is None or (
        fabric.scale_out_measured_bytes_per_s <= fabric.scale_out_bytes_per_s
    )
    for accelerator in preset["accelerators"].split("; "):
        assert name in catalog.fabrics_for(accelerator)
        assert float(catalog.facts("accelerators", accelerator)[0]["scale_up_bytes_per_s"]) == pytest.approx(
            fabric.scale_up_bytes_per_s
        )


def test_the_presets_people_ask_for_are_there() -> None:
    assert set(catalog.names("fabrics")) >= {
        "a100-ib200", "h100-ib400", "h100-efa", "b200-ib400", "gb200-nvl72", "mi300x-ib400", "tpu-v5p",
    }  # fmt: skip
    assert (catalog.fabric("h100-ib400").node_size, catalog.fabric("gb200-nvl72").node_size) == (8, 72)


def test_precision_picks_the_peak_and_an_absent_one_is_an_error() -> None:
    h100 = {kind: catalog.accelerator("H100", kind).peak_flops_per_s for kind in ("bf16", "fp16", "fp8")}
    assert h100 == {"bf16": 9.894e14, "fp16": 9.894e14, "fp8": 1.9789e15}
    for name, kind in [("v100", "bf16"), ("a100", "fp8"), ("h100", "fp4"), ("tpu-v5p", "fp16"), ("t4", "bf16")]:
        with pytest.raises(catalog.NoPeak, match=f"no {kind} peak"):
            catalog.accelerator(name, kind)
    assert catalog.accelerator("v100", "bf16", 1e14).peak_flops_per_s == 1e14


def test_a_measured_product_is_of_its_own_precision_only() -> None:
    bf16, fp8 = catalog.accelerator("h100-sxm"), catalog.accelerator("h100-sxm", "fp8")
    assert bf16.measured_matmul_flops_per_s == pytest.approx(794.5e12)
    assert fp8.measured_matmul_flops_per_s is None
    assert bf16.measured_matmul_share == fp8.measured_matmul_share == pytest.approx(794.5 / 989.4)


def test_state_recipes_sum_to_the_number_in_their_name() -> None:
    parts = {
        "bf16-16": (2, 2, 0, 4, 8), "bf16-18": (2, 4, 0, 4, 8), "bf16-20": (2, 2, 4, 4, 8), "fp32-16": (4, 4, 0, 0, 8),
        "bf16-8": (2, 2, 0, 0, 4),
    }  # fmt: skip
    assert set(catalog.names("states")) == set(parts)
    for name, expected in parts.items():
        recipe = catalog.state(name)
        assert (recipe.weights, recipe.gradients, recipe.extra_gradients, recipe.master, recipe.moments) == expected
        assert recipe.total == sum(expected) == int(name.rpartition("-")[2])
        assert recipe.used_by
        assert catalog.state(recipe) is recipe


def test_the_cases_of_the_distributed_optimizer() -> None:
    """Megatron: 18 bytes plain, 6 + 12/d distributed. DeepSpeed, 7e9 parameters on 8: 112, 38.5, 26.25, 14 GB."""
    megatron, zero = catalog.state("bf16-18"), catalog.state("bf16-16")
    assert megatron.weights + megatron.all_gradients + megatron.optimizer / 8 == 7.5
    assert 7 * zero.total == 112
    assert 7 * (zero.weights + zero.all_gradients + zero.optimizer / 8) == 38.5
    assert 7 * (zero.weights + (zero.all_gradients + zero.optimizer) / 8) == 26.25
    assert 7 * zero.total / 8 == 14


def test_each_recipe_says_why_for_each_field() -> None:
    fields = {name for (table, name) in FIELDS if table == "software"} - {"recipe"}
    assert set(catalog.names("software")) == {"megatron", "megatron-2021", "nanotron-2025", "torch-fsdp", "maxtext"}
    for name in catalog.names("software"):
        rows = {row["field"]: row for row in catalog.facts("software", name)}
        assert set(rows) == fields | {"name", "order"}
        assert all(len(row["why"]) > 10 for row in rows.values())


def test_the_recipes_differ_where_the_programs_do() -> None:
    old, new, nano = (catalog.software(name) for name in ("megatron-2021", "megatron", "nanotron-2025"))
    assert not any([old.overlap_gradients, old.overlap_parameters, old.overlap_tensor, old.overlap_pipeline])
    assert (old.flash_attention, new.flash_attention) == (False, True)
    assert new.overlap_gradients
    assert not nano.overlap_gradients
    assert nano.stage_rule == "first-extra"
    assert nano.pipeline_minimum_micro_batches == "stages-1"


@pytest.mark.parametrize("name", catalog.names("software"))
def test_gradients_travel_as_wide_as_they_are_accumulated(name: str) -> None:
    if name == "maxtext":
        assert catalog.software(name).gradient_reduction_bytes == 2
        return
    widths = {"bf16-16": 2, "bf16-18": 4, "bf16-20": 4, "fp32-16": 4, "bf16-8": 2}
    for recipe, width in widths.items():
        assert catalog.software(name, recipe).gradient_reduction_bytes == width


def test_tpus_run_maxtext_and_the_rest_megatron() -> None:
    for row in ACCELERATORS:
        assert row["default_recipe"] == ("maxtext" if row["id"].startswith("tpu") else "megatron")
        assert row["default_recipe"] in catalog.names("software")
