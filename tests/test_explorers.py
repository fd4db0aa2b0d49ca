"""Explorers: their answers against shapes walked and numbers done by hand, and a frame that never shows a traceback."""

from __future__ import annotations

import pytest

from course import catalog, estimate
from course.errors import UserError
from course.explorers import View, parts
from course.explorers import estimate as explorers
from course.simulators import saved, shapes

EVERY = ("roofline", "parameters", "state", "activations")
FRONT_END = ("COURSE_STATIC", "JPY_SESSION_NAME", "VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG",
             "KAGGLE_KERNEL_RUN_TYPE")  # fmt: skip


@pytest.fixture(autouse=True)
def _nobody_looks(monkeypatch):
    for name in FRONT_END:
        monkeypatch.delenv(name, raising=False)


def number(cell: str) -> float:
    return float(cell.split()[0].replace(",", ""))


def table(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0].removeprefix("– "): row[1:] for row in view.rows}


# ---------------------------------------------------------------- roofline
@pytest.mark.parametrize(("bandwidth", "reached"), [(50, "400"), (100, "800"), (125, "1,000"), (200, "1,000")])
def test_the_instrument_of_the_seed(bandwidth, reached):
    view = explorers.roofline().view(intensity=8, bandwidth=bandwidth)
    assert f"reaches {reached} GFLOP/s" in view.sentence
    assert ("the compute cap: more" in view.sentence) == (bandwidth >= 125)
    assert table(view)["compute cap"] == ("1,000 GFLOP/s",)
    assert list(view.picture["points"].values()) == [(8, number(reached) * 1e9)]


def test_the_bandwidth_alone_would_allow_1600():
    assert table(explorers.roofline_view("hypothetical", 8, 200))["memory bandwidth allows"] == ("1,600 GFLOP/s",)


def test_an_accelerator_brings_its_own_peak_and_bandwidth():
    explorer = explorers.roofline(device="h100-sxm")
    assert explorer.start["bandwidth"] == 3350
    # 989.4 TFLOP/s over 3.35 TB/s
    assert table(explorer.view())["ridge point: the cap binds from"] == ("295.3 FLOP/byte",)
    assert "200 GB/s" in explorer.view(bandwidth=200).sentence
    # no bf16, so the fp16 peak
    assert table(explorer.view(device="t4"))["compute cap"] == ("65 TFLOP/s",)


def test_play_ends_at_the_bandwidth_that_is_set():
    explorer = explorers.roofline()
    passed = explorer.sweep.through({**explorer.start, "bandwidth": 50.0})
    assert len(passed) == 20
    assert passed[0] == 2.5
    assert passed[-1] == 50.0
    assert passed == sorted(passed)


# ---------------------------------------------------------------- parameters and FLOPs
@pytest.mark.parametrize("name", ["gpt2", "llama-2-7b", "llama-3.1-405b", "mixtral-8x7b", "qwen3-30b-a3b"])
def test_parts_of_the_parameters_add_up(name):
    view = explorers.parameters().view(model=name)
    held = view.picture["sections"][0].rows["total"]
    total = number(table(view)["parameters"][0])
    assert sum(held.values()) == pytest.approx(total, rel=1e-12)
    assert total == pytest.approx(catalog.published_total(name), rel=0.01)


@pytest.mark.parametrize("name", ["gpt2", "llama-2-7b", "llama-3-8b", "qwen2.5-7b", "llama-3.1-405b"])
def test_parts_of_the_parameters_are_those_of_the_tensors(name):
    model = catalog.model(name)
    kinds = {"embedding": "tables", "head": "tables", "down": "MLP", **dict.fromkeys(shapes.mlp_inputs(model), "MLP"),
             **dict.fromkeys(("query", "key", "value", "projection"), "attention")}  # fmt: skip
    walked = dict.fromkeys(("attention", "MLP", "tables", "norms, biases"), 0.0)
    for tensor in shapes.parameters(model):
        name_in_layer = tensor.name.split(" ", 2)[-1] if tensor.name.startswith("layer ") else tensor.name
        walked[kinds.get(name_in_layer, "norms, biases")] += tensor.elements
    held = explorers.parameters().view(model=name).picture["sections"][0].rows["total"]
    assert {part: held.get(part, 0) for part in walked} == pytest.approx(walked, rel=1e-12)


def test_flops_of_a_small_shape_by_hand():
    widths = {"layers": 2, "hidden": 8, "heads": 2, "kv_heads": 1, "head_size": 4, "ffn": 16, "vocabulary": 10,
              "gated_mlp": True, "tied_embeddings": False}  # fmt: skip
    view = explorers.parameters_view("llama-3-8b", 3, "full", **widths)
    layer = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16
    everything = 2 * (layer + 2 * 8) + 2 * 10 * 8 + 8
    multiplies = 2 * layer + 10 * 8
    square = 12 * 2 * 8 * 3  # 12 L a d T
    again = 2 * 2 * layer + 4 * 2 * 8 * 3  # every layer forward once more, the head not
    by_hand = {
        "six_ps": {"matrices": 6 * everything},
        "palm": {"attention scores": square, "matrices": 6 * everything},
        "full_attention": {"attention scores": square, "matrices": 6 * multiplies},
        "causal_attention": {"attention scores": square / 2, "matrices": 6 * multiplies},
        "executed": {"recomputation": again, "attention scores": square, "matrices": 6 * multiplies},
    }
    assert number(table(view)["parameters"][0]) == everything
    assert view.picture["sections"][1].rows == by_hand
    for name, spent in by_hand.items():
        assert number(table(view)[f"{name}, FLOP/token"][0]) == pytest.approx(sum(spent.values()), rel=5e-4)


def test_a_mixture_spends_what_a_token_uses():
    view = explorers.parameters().view(model="mixtral-8x7b")
    assert "46.7 billion parameters, of which a token uses 12.88 billion" in view.sentence
    assert number(table(view)["six_ps, FLOP/token"][0]) == pytest.approx(6 * 12.88e9, rel=1e-3)


def test_a_changed_shape_is_not_called_by_the_name_of_its_model():
    explorer = explorers.parameters()
    assert explorer.view().sentence.startswith("llama-3-8b has")
    assert explorer.view(layers=33).sentence.startswith("This shape (from llama-3-8b)")


def test_a_wider_expert_is_wider():
    explorer = explorers.parameters(model="mixtral-8x7b")
    narrow, wide = (explorer.view(ffn=width).picture["sections"][0].rows["total"]["experts"] for width in (100, 200))
    assert wide == 2 * narrow


def test_key_value_heads_stay_legal():
    explorer = explorers.parameters()
    kv_heads = next(control for control in explorer.controls if control.name == "kv_heads")
    assert list(kv_heads.legal({"heads": 12}).values()) == [1, 2, 3, 4, 6, 12]
    assert explorer.settled({"heads": 12}, explorer.start)["kv_heads"] == 6  # 8 no longer divides
    with pytest.raises(UserError, match="kv_heads can be 1, 2, 4, 8, 16, 32, not 5"):
        explorer.view(kv_heads=5)


def test_a_preset_brings_its_widths_but_what_is_asked_wins():
    start = explorers.parameters(model="gpt2", layers=13).start
    assert (start["layers"], start["hidden"], start["kv_heads"], start["tied_embeddings"]) == (13, 768, 12, True)


# ---------------------------------------------------------------- model state
@pytest.mark.parametrize(("recipe", "size"), [("bf16-16", 16), ("bf16-18", 18), ("bf16-20", 20), ("bf16-8", 8)])
def test_state_is_bytes_times_parameters(recipe, size):
    view = explorers.state().view(parameters=2.0, recipe=recipe, devices=4)
    whole, each = (section.rows for section in view.picture["sections"])
    assert sum(whole[recipe].values()) == size * 2e9
    assert sum(each["1 of 4"].values()) == size * 2e9 / 4
    assert table(view)["together"][0] == str(size)
    assert f"of {size} bytes are {size * 2} GB" in view.sentence


def test_state_says_whether_it_fits():
    explorer = explorers.state(model="llama-3.1-405b")
    # 405.85e9 x 18 bytes over 79.6 GiB is 85.4 devices
    assert "85.4 times the 79.6 GiB" in explorer.view().sentence
    assert explorer.view(devices=64).sentence.endswith("It does not fit.")
    assert explorer.view(devices=128).sentence.endswith("It fits, before activations.")


# ---------------------------------------------------------------- activations
GROUPS = {
    "scores": ("softmax output", "attention dropout mask", "attention dropout output"),
    "dropout masks": ("projection dropout mask", "mlp dropout mask"),
    "K, V": ("key", "value"), "Q, attention output": ("query", "projection input"),
    "norm and matmul inputs": ("attention norm input", "attention input", "mlp norm input", "mlp input"),
}  # fmt: skip


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("dropout", [True, False])
@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b"])
def test_activations_are_the_saved_tensors(name, recompute, dropout, flash):
    how = saved.Execution(flash_attention=flash, dropout=dropout, recompute=recompute)
    walked: dict[str, float] = {}
    for tensor in saved.saved_in_layer(catalog.model(name), 2, 512, how):
        part = next((part for part, names in GROUPS.items() if tensor.name in names), "MLP")
        walked[part] = walked.get(part, 0) + shapes.total_bytes([tensor])
    view = explorers.activations().view(
        model=name, sequence_length=512, micro_batch=2, recompute=recompute, flash_attention=flash, dropout=dropout
    )
    one, every = (next(iter(section.rows.values())) for section in view.picture["sections"])
    assert one == pytest.approx(walked)
    assert sum(every.values()) == pytest.approx(catalog.model(name).layers * sum(walked.values()))


def test_activations_of_gpt3_as_published():
    # Korthikanti et al. 2022: s b h (34 + 5 a s / h)
    view = explorers.activations().view(model="gpt3-175b", sequence_length=2048, flash_attention=False, dropout=True)
    layer = sum(view.picture["sections"][0].rows["1 layer"].values())
    assert layer == 2048 * 12288 * (34 + 5 * 96 * 2048 / 12288)


def test_full_recomputation_keeps_inputs_and_one_layer():
    values = {"model": "llama-3-8b", "sequence_length": 8192}
    view = explorers.activations().view(recompute="full", **values)
    one, every = (next(iter(section.rows.values())) for section in view.picture["sections"])
    assert every["layer input"] == 32 * 8192 * 4096 * 2
    assert sum(every.values()) == every["layer input"] + sum(one.values())


# ---------------------------------------------------------------- parts of a formula
def test_parts_follow_a_changed_formula():
    values = {"parameters": 8.0, "layers": 2, "heads": 2, "head_size": 4, "sequence_length": 3}
    assert parts.parts(estimate.palm, parts.FLOPS, values)["matrices"] == 48
    with estimate.palm.replaced(2 * estimate.palm.expression):
        assert parts.parts(estimate.palm, parts.FLOPS, values)["matrices"] == 96


def test_parts_want_every_argument():
    with pytest.raises(ValueError, match="palm needs sequence_length"):
        parts.parts(estimate.palm, parts.FLOPS, {"parameters": 8.0, "layers": 2, "heads": 2, "head_size": 4})
