"""Run files: the good ones load with their defaults, and whatever is wrong gets one or two sentences that help."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from course.problem import NotYet, Run, RunFileError, load, loads

EXAMPLES = sorted(Path(str(files("course"))).joinpath("examples").glob("*.toml"))

GOOD: dict[str, dict[str, str]] = {
    "model": {"preset": '"llama-3-8b"'},
    "training": {"tokens": "1e12", "sequence_length": "8192", "global_batch_sequences": "512"},
    "cluster": {"accelerator": '"h100-sxm"', "devices": "64", "fabric": '"h100-ib400"'},
}
SHAPE = {"layers": "4", "hidden": "64", "heads": "8", "ffn": "256", "vocabulary": "1000"}
CHIP = {"peak_flops_per_s": "1e14", "memory_bytes": "8e10", "memory_bytes_per_s": "1e12"}
LINKS = {"node_size": "8", "scale_up_bytes_per_s": "1e11", "scale_out_bytes_per_s": "1e10"}


def write(*changes: str, drop: tuple[str, ...] = (), **tables: dict[str, str]) -> str:
    """The good file with whole tables replaced, `table.field` dropped, and `table.field = value` set."""
    content = {table: dict(fields) for table, fields in {**GOOD, **tables}.items()}
    for key in drop:
        table, _, field = key.partition(".")
        if field:
            del content[table][field]
        else:
            del content[table]
    for change in changes:
        key, _, value = change.partition(" = ")
        table, _, field = key.partition(".")
        content.setdefault(table, {})[field] = value
    return "\n".join(
        f"[{table}]\n" + "\n".join(f"{field} = {value}" for field, value in fields.items())
        for table, fields in content.items()
    )


def message(text: str) -> str:
    with pytest.raises(RunFileError) as caught:
        loads(text)
    said = str(caught.value)
    assert_helpful(said)
    return said


def assert_helpful(said: str) -> None:
    """One line of at most a few sentences, and nothing of Python in it."""
    assert "\n" not in said
    assert said.isprintable()
    assert 20 < len(said) < 400, said
    assert said.endswith((".", "?")), said
    assert not re.search(r"Traceback|<class|object at|None\b|KeyError|NoneType", said), said
    assert len(re.findall(r"[.?] [A-Z`]", said)) <= 1, said


LAYOUT = "layout."
BAD: list[tuple[str, str, tuple[str, ...]]] = [
    # missing
    ("no tokens", write(drop=("training.tokens",)),
     ("[training] tokens is missing", "length of the whole run, in tokens", "15.6e12")),
    ("no sequence length", write(drop=("training.sequence_length",)), ("sequence_length is missing", "in tokens")),
    ("no batch", write(drop=("training.global_batch_sequences",)),
     ("global_batch_sequences is missing", "in sequences")),
    ("no devices", write(drop=("cluster.devices",)), ("[cluster] devices is missing", "in devices")),
    ("no accelerator", write(drop=("cluster.accelerator",)), ("[cluster] accelerator is missing", "h100-sxm")),
    ("no fabric", write(drop=("cluster.fabric",)), ("fabric is missing", "h100-ib400, h100-efa", "one way")),
    ("no fabric fits", write('cluster.accelerator = "l4"', drop=("cluster.fabric",)),
     ("fabric is missing", "Presets: a100-ib200")),
    ("another's fabric", write('cluster.fabric = "a100-ib200"'),
     ('fabric = "a100-ib200" is not made for accelerator = "h100-sxm"', '"h100-ib400" or "h100-efa"', "node_size")),
    ("half a fabric", write("cluster.node_size = 8", drop=("cluster.fabric",)),
     ("scale_up_bytes_per_s is missing", "bytes/s", "one way")),
    ("half an accelerator", write("cluster.memory_bytes = 8e10", drop=("cluster.accelerator",)),
     ("peak_flops_per_s is missing", "FLOP/s")),
    ("no model", write(drop=("model",)), ("[model] is missing",)),
    ("no training", write(drop=("training",)), ("[training] is missing",)),
    ("no cluster", write(drop=("cluster",)), ("[cluster] is missing",)),
    ("empty model", write(model={}), ("preset is missing", "layers, hidden, heads, ffn, vocabulary")),
    ("half a shape", write(model={"layers": "4"}), ("[model] hidden is missing", "residual stream")),
    ("no head size", write(model={**SHAPE, "heads": "7"}), ("head_size is missing", "hidden = 64", "heads = 7")),
    # misspelt or unknown
    ("misspelt table", write(modle={"layers": "4"}), ("[modle]", "[model]")),
    ("misspelt field", write("training.tokenz = 1"), ("no field tokenz", "nearest name is tokens", "in tokens")),
    ("field elsewhere", write("model.tokens = 1e12"), ("[model] has no field tokens", "belongs below [training]")),
    ("field outside", "devices = 8\n" + write(), ("devices stands above", "below [cluster]")),
    ("stray field", "speed = 8\n" + write(), ("speed is no field", "nearest name is")),
    ("table as value", "model = 3\n", ("model must be a table", "[model]")),
    ("list of tables", "[[model]]\nlayers = 4\n", ("model must be a table",)),
    ("misspelt preset", write('model.preset = "llama-3.1-405"'),
     ('no model "llama-3.1-405"', '"llama-3.1-405b"', "course show models")),
    ("unknown accelerator", write('cluster.accelerator = "h100-sxn"'), ("[cluster] accelerator", '"h100-sxm"')),
    ("unknown fabric", write('cluster.fabric = "h100-ib40"'), ("[cluster] fabric", '"h100-ib400"')),
    ("unknown state", write('training.state = "bf16-17"'), ("[training] state", "nearest name is")),
    ("unknown recipe", write('software.recipe = "megatorn"'), ("[software] recipe", '"megatron"')),
    ("unknown precision", write('training.precision = "int8"'), ("precision", "bf16, fp16, fp8, fp4")),
    ("unknown sharding", write('layout.sharding = "zero4"'), ("sharding", "none, zero1, zero2, zero3")),
    ("unknown recompute", write('layout.recompute = "some"'), ("recompute", "none, selective, full")),
    ("unknown axis", write('layout.order = ["tensor", "depth"]'), ("order", "tensor, context, pipeline, data")),
    ("axis twice", write('layout.order = ["tensor", "tensor"]'), ("order", "twice")),
    # impossible numbers
    ("negative tokens", write("training.tokens = -1"), ("tokens = -1", "more than 0", "in tokens")),
    ("zero tokens", write("training.tokens = 0"), ("tokens = 0", "more than 0")),
    ("NaN tokens", write("training.tokens = nan"), ("tokens = nan", "finite")),
    ("infinite tokens", write("training.tokens = inf"), ("tokens = inf", "finite")),
    ("endless price", write("goal.price_per_accelerator_hour = -inf"), ("price_per_accelerator_hour", "finite")),
    ("huge tokens", write("training.tokens = 1e40"), ("tokens = 1e+40", "at most 1e+18")),
    ("huge devices", write(f"cluster.devices = {10**30}"), ("devices = 1e+30", "at most 10,000,000")),
    ("endless digits", write(f"cluster.devices = {'9' * 5000}"), ("not TOML", "too long")),
    ("endless hex", write(f"cluster.devices = 0x{'f' * 5000}"), ("devices", "over 300 digits", "at most")),
    ("no devices at all", write("cluster.devices = 0"), ("devices = 0", "at least 1")),
    ("half a device", write("cluster.devices = 1.5"), ("devices = 1.5", "whole number")),
    ("goodput of 2", write("cluster.goodput = 2"), ("goodput = 2", "at most 1")),
    ("no goodput", write("cluster.goodput = 0.0"), ("goodput = 0 ", "more than 0")),
    ("negative days", write("goal.days = -3"), ("[goal] days = -3", "in days")),
    ("negative memory", write("measured.peak_memory_gib = -1"), ("peak_memory_gib", "GiB")),
    ("negative latency", write("cluster.scale_up_latency_s = -1e-6"), ("scale_up_latency_s", "at least 0", "seconds")),
    ("zero link", write("cluster.scale_out_bytes_per_s = 0"), ("scale_out_bytes_per_s = 0", "more than 0")),
    ("zero tensor", write("layout.tensor = 0"), ("[layout] tensor = 0", "at least 1")),
    ("negative stage", write("layout.stage_layers = [33, -1]", "layout.pipeline = 2"), ("stage_layers", "at least 0")),
    ("zero heads", write(model={**SHAPE, "heads": "0"}), ("heads = 0", "at least 1")),
    # wrong types
    ("tokens in words", write('training.tokens = "15T"'), ('tokens = "15T"', "must be a number")),
    ("yes is no number", write("cluster.devices = true"), ("devices = true", "whole number")),
    ("one is no yes", write("layout.sequence_parallel = 1"), ("sequence_parallel = 1", "true or false")),
    ("name without quotes", write("cluster.accelerator = 100"), ("accelerator = 100", "name in quotes")),
    ("list of devices", write("cluster.devices = [8, 8]"), ("devices = [8, 8]", "whole number")),
    ("table for a number", write("training.tokens = {a = 1}"), ("tokens = a table", "must be a number")),
    ("a date", write("training.tokens = 2026-11-01"), ("tokens = 2026-11-01", "must be a number")),
    ("number for a choice", write("layout.schedule = 1"), ("schedule = 1", "gpipe, 1f1b")),
    ("number for a list", write("layout.stage_layers = 8"), ("stage_layers = 8", "list")),
    ("fraction of a layer", write("layout.stage_layers = [1.5]"), ("stage_layers = 1.5", "whole number")),
    ("empty order", write("layout.order = []"), ("order", "list")),
    # precision the device does not have
    ("fp8 on A100", write('cluster.accelerator = "a100-sxm-80gb"', 'training.precision = "fp8"'),
     ("[training] precision", "no fp8 peak", "bf16, fp16")),
    ("bf16 on V100", write('cluster.accelerator = "v100-sxm2-32gb"'), ("no bf16 peak", "it has fp16")),
    # contradictions
    ("key heads", write(model={**SHAPE, "kv_heads": "3"}), ("heads = 8", "kv_heads = 3", "contradict")),
    ("more key heads", write(model={**SHAPE, "kv_heads": "16"}), ("heads = 8", "kv_heads = 16")),
    ("run under a step", write("training.tokens = 1000"),
     ("tokens = 1000", "global_batch_sequences = 512", "contradict")),
    ("short table", write('model.preset = "gpt2"'), ("sequence_length = 8192", "learned_positions = 1024")),
    ("no group", write("layout.sequence_parallel = true"), ("sequence_parallel = true", "tensor = 1")),
    ("1f1b in chunks", write("layout.interleave = 2", 'layout.schedule = "1f1b"', "layout.pipeline = 2"),
     ("interleave = 2", '"1f1b"')),
    ("default in chunks", write("layout.interleave = 2"), ("interleave = 2", "(the default)")),
    ("gpipe in chunks", write("layout.interleave = 2", 'layout.schedule = "gpipe"'), ("interleave = 2", '"gpipe"')),
    ("one chunk", write('layout.schedule = "interleaved"', "layout.pipeline = 2"), ('"interleaved"', "interleave = 1")),
    ("one stage", write('layout.schedule = "interleaved"', "layout.interleave = 2"), ('"interleaved"', "pipeline = 1")),
    ("nothing to fill", write('layout.schedule = "zero-bubble"'), ('"zero-bubble"', "pipeline = 1")),
    ("split chunks", write('layout.schedule = "zero-bubble"', "layout.pipeline = 2", "layout.interleave = 2"),
     ("interleave = 2", '"zero-bubble"')),
    ("micro-batches", write("layout.micro_batch = 3"), ("micro_batch = 3", "global_batch_sequences = 512")),
    ("nothing to shard", write("layout.shard_group = 8", "layout.data = 8"), ("shard_group = 8", '"none"')),
    ("stages", write("layout.pipeline = 4", "layout.stage_layers = [16, 16]"), ("2 entries", "pipeline = 4")),
    ("layers", write("layout.pipeline = 2", "layout.stage_layers = [16, 17]"), ("sum to 33", "layers = 32")),
    ("axis left out", write('layout.order = ["data"]', "layout.tensor = 8"), ("leaves out tensor", "tensor = 8")),
    ("dense layers", write("model.dense_layers = 3"), ("dense_layers = 3", "layers = 32")),
    ("experts alone", write("model.experts = 8"), ("experts_per_token is missing", "experts = 8")),
    ("experts without width", write("model.experts = 8", "model.experts_per_token = 2"), ("expert_ffn is missing",)),
    ("visits", write("model.experts = 8", "model.experts_per_token = 9", "model.expert_ffn = 64"),
     ("experts_per_token = 9", "experts = 8")),
    ("shared alone", write("model.shared_experts = 1"), ("shared_experts = 1", "experts = 0")),
    ("more dense than layers", write('model.preset = "deepseek-v3"', "model.layers = 2"),
     ("dense_layers = 3", "layers = 2")),
    ("kv_lora alone", write("model.kv_lora = 512"), ("rope_head_size is missing", "kv_lora = 512")),
    ("local layers", write("model.sliding_window = 64", "model.window_layers = 33"), ("window_layers = 33", "layers")),
    ("no window", write("model.window_layers = 3"), ("window_layers = 3", "sliding_window = 0")),
    ("q_lora alone", write("model.q_lora = 512"), ("q_lora = 512", "kv_lora = 0")),
    # not a run file
    ("empty", "", ("empty", "[model], [training] and [cluster]")),
    ("blank", " \n\t\n", ("empty",)),
    ("comment only", "# nothing\n", ("[model] is missing",)),
    ("not TOML", "layers: 4\n", ("not TOML", "line 1")),
    ("JSON", '{"model": {}}', ("not TOML", "line 1")),
    ("field twice", "[model]\nlayers = 1\nlayers = 2\n", ("not TOML",)),
    ("zero bytes", "[model]\n\0\0", ("not text",)),
    ("deep", "a = " + "[" * 5000, ("not TOML", "too deep")),
]  # fmt: skip

LATER: list[tuple[str, str, tuple[str, ...]]] = [
    ("expert_bias", write("model.expert_bias = true"), ("expert_bias = true", "set expert_bias = false")),
    ("sinks", write("model.attention_sinks = true"), ("attention_sinks = true", "set attention_sinks = false")),
    ("Falcon", write('model.preset = "falcon-40b"'), ("falcon-40b", "parallel_block = true", "choose another model")),
]


def test_the_table_is_long_enough_and_its_rows_differ() -> None:
    assert len(BAD) >= 45
    assert len({text for _, text, _ in BAD}) == len(BAD)


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_run_file_gets_a_sentence(text: str, words: tuple[str, ...]) -> None:
    said = message(text)
    for word in words:
        assert word in said, said


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in LATER], ids=[row[0] for row in LATER])
def test_what_has_no_chapter_yet_is_refused(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(NotYet) as caught:
        loads(text)
    said = str(caught.value)
    assert_helpful(said)
    for word in words:
        assert word in said, said


@pytest.mark.parametrize(
    "neutral",
    ["model.experts = 0", "model.kv_lora = 0", "model.sliding_window = 8192", "model.attention_sinks = false"],
)  # fmt: skip
def test_the_neutral_value_of_a_later_field_is_fine(neutral: str) -> None:
    assert loads(write(neutral)).model.layers == 32


def test_the_defaults_are_those_of_the_interface() -> None:
    run = loads(write(layout={}))
    assert (run.training.precision, run.training.state.id, run.cluster.goodput) == ("bf16", "bf16-18", 1.0)
    assert (run.software.recipe, run.goal.days, run.measured.step_time_s) == ("megatron", None, None)
    layout = run.layout
    assert layout is not None
    assert (layout.data, layout.tensor, layout.pipeline, layout.context, layout.micro_batch) == (1, 1, 1, 1, 1)
    assert (layout.sharding, layout.recompute, layout.schedule, layout.interleave) == ("none", "none", "1f1b", 1)
    assert layout.order == run.software.order
    assert (layout.sequence_parallel, layout.stage_layers, layout.shard_group) == (False, None, 1)
    assert loads(write(layout={"tensor": "8", "data": "4"})).layout.sequence_parallel is True  # type: ignore[union-attr]
    assert loads(write()).layout is None


def test_assumptions_name_every_default_taken() -> None:
    said = " ".join(loads(write()).assumptions)
    for name in ("precision", "state", "goodput", "recipe"):
        assert f"{name} = " in said
    assert load(EXAMPLES[0].with_stem("llama-3.1-405b-16384-h100")).assumptions == ()


def test_a_model_may_be_given_whole() -> None:
    model = loads(write(model=SHAPE)).model
    assert (model.kv_heads, model.head_size, model.gated_mlp, model.tied_embeddings) == (8, 8, True, False)
    assert (model.norms_per_layer, model.final_norm, model.norm_size, model.dense_layers) == (2, True, 1, 4)
    odd = loads(write(model={**SHAPE, "heads": "7", "head_size": "10", "kv_heads": "1"})).model
    assert (odd.heads * odd.head_size, odd.hidden) == (70, 64)


def test_fields_override_a_preset() -> None:
    model = loads(write("model.layers = 3", "model.vocabulary = 128512")).model
    assert (model.name, model.layers, model.vocabulary, model.hidden, model.dense_layers) == (
        "a shape from llama-3-8b", 3, 128512, 4096, 3,
    )  # fmt: skip


def test_a_preset_repeated_keeps_its_name() -> None:
    assert loads(write("model.layers = 32")).model.name == "llama-3-8b"


def test_raw_rates_stand_whatever_the_fabric_is_called() -> None:
    raw = ("cluster.node_size = 4", "cluster.scale_up_bytes_per_s = 2e11", "cluster.scale_out_bytes_per_s = 1e10")
    fabric = loads(write('cluster.fabric = "a100-ib200"', *raw)).cluster.fabric
    assert (fabric.node_size, fabric.scale_up_bytes_per_s, fabric.scale_out_bytes_per_s) == (4, 2e11, 1e10)


@pytest.mark.parametrize(
    ("layout", "note"),
    [({"tensor": "8", "pipeline": "2"}, ["[layout] data was left out, so it is 1; data = 4 would do"]),
     ({"tensor": "3"}, ["[layout] data was left out, so it is 1"]), ({"tensor": "8", "pipeline": "8"}, []),
     ({"tensor": "8", "data": "1"}, [])],
)  # fmt: skip
def test_a_left_out_data_that_leaves_devices_idle_is_noted(layout: dict[str, str], note: list[str]) -> None:
    assert [line for line in loads(write(layout=layout)).assumptions if line.startswith("[layout]")] == note


def test_fields_override_the_accelerator_the_fabric_and_the_recipe() -> None:
    run = loads(
        write("cluster.memory_bytes = 9e10", "cluster.node_size = 4", "cluster.scale_up_bytes_per_s = 2e11",
              'software.recipe = "nanotron-2025"', "software.overlap_gradients = true")
    )  # fmt: skip
    assert (run.cluster.accelerator.memory_bytes, run.cluster.accelerator.peak_flops_per_s) == (9e10, 9.894e14)
    fabric = run.cluster.fabric
    assert (fabric.node_size, fabric.scale_up_bytes_per_s, fabric.scale_out_bytes_per_s) == (4, 2e11, 5e10)
    assert fabric.scale_up_measured_bytes_per_s is None
    assert (run.software.recipe, run.software.overlap_gradients, run.software.fused_loss) == (
        "nanotron-2025", True, False,
    )  # fmt: skip


def test_a_cluster_may_be_given_whole() -> None:
    cluster = loads(write(cluster={"devices": "8", **CHIP, **LINKS})).cluster
    assert cluster.accelerator.measured_matmul_share is None
    assert (cluster.fabric.scale_up_latency_s, cluster.fabric.scale_out_latency_s) == (3.4e-6, 9.6e-6)


def test_an_own_peak_serves_a_precision_the_catalog_does_not_know() -> None:
    text = write('cluster.accelerator = "v100"', "cluster.peak_flops_per_s = 6e13")
    assert loads(text).cluster.accelerator.peak_flops_per_s == 6e13


def test_tpus_take_their_own_recipe() -> None:
    text = write('cluster.accelerator = "tpu-v5p"', 'cluster.fabric = "tpu-v5p"')
    assert loads(text).software.recipe == "maxtext"


def test_fp16_gradients_of_a_sixteen_byte_state_travel_in_two_bytes() -> None:
    assert loads(write('training.state = "bf16-16"')).software.gradient_reduction_bytes == 2
    assert loads(write()).software.gradient_reduction_bytes == 4


def test_an_order_may_leave_out_axes_of_degree_one() -> None:
    layout = loads(write('layout.order = ["data", "tensor"]', "layout.tensor = 2")).layout
    assert layout is not None
    assert layout.order == ("data", "tensor", "context", "pipeline")


def test_an_illegal_layout_is_still_a_run_file() -> None:
    """5 replicas of 3 devices on 64: the step `shard` says no, with a reason; reading does not."""
    layout = loads(write("layout.data = 5", "layout.tensor = 3")).layout
    assert layout is not None
    assert layout.devices == 15


def test_the_examples_are_there() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "llama-3.1-405b-16384-h100", "llama-3.1-405b-8192-h100", "llama-3-8b-8-h100", "gpt-3-175b-1024-a100",
        "llama-2-70b-64-a100",
    }  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_loads_and_uses_all_its_devices(path: Path) -> None:
    run = load(path)
    assert isinstance(run, Run)
    assert run.name == path.stem
    assert run.layout is not None
    assert run.layout.devices == run.cluster.devices
    assert run.training.global_batch_sequences % (run.layout.data * run.layout.micro_batch) == 0
    assert run.goal.days is not None


def test_the_published_layouts_are_written_as_published() -> None:
    llama = load(EXAMPLES[0].with_stem("llama-3.1-405b-16384-h100"))
    assert llama.layout is not None
    assert (llama.layout.tensor, llama.layout.pipeline, llama.layout.data) == (8, 16, 128)
    assert llama.layout.order == ("tensor", "context", "pipeline", "data")
    assert sum(llama.layout.stage_layers or ()) == 126
    assert llama.training.tokens_per_step == 16_777_216
    gpt = load(EXAMPLES[0].with_stem("gpt-3-175b-1024-a100"))
    assert gpt.layout is not None
    assert (gpt.layout.tensor, gpt.layout.pipeline, gpt.layout.data, gpt.layout.recompute) == (8, 16, 8, "full")
    assert (gpt.software.recipe, gpt.training.global_batch_sequences) == ("megatron-2021", 1536)


def load_message(path: Path) -> str:
    with pytest.raises(RunFileError) as caught:
        load(path)
    assert_helpful(str(caught.value))
    return str(caught.value)


def test_a_path_that_is_no_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("picture.toml").write_bytes(bytes(range(256)) * 4)
    Path("empty.toml").write_bytes(b"")
    assert "no file" in load_message(Path("missing.toml"))
    assert "no file" in load_message(Path("missing", "run.toml"))
    assert "is a folder" in load_message(Path())
    assert "not text" in load_message(Path("picture.toml"))
    assert "empty" in load_message(Path("empty.toml"))
    assert "cannot be read" in load_message(Path("empty.toml", "run.toml"))
    assert "cannot be read" in load_message(Path("x" * 5000))
    assert "cannot be read" in load_message(Path("a\0b"))
    if Path("/dev/null").exists():
        assert "not a regular file" in load_message(Path("/dev/null"))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.toml"
    path.write_text(write(), encoding="utf-8")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "may not be read" in load_message(path) or "permissions" in load_message(path)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbf" + write().replace("\n", "\r\n").encode())
    assert load(path).model.name == "llama-3-8b"
