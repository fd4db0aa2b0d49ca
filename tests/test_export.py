"""Settings written for an engine say the layout that was proposed: read back here by parsers of their own."""

from __future__ import annotations

import dataclasses

import pytest
from export_readers import (
    EXACT,
    SEVERAL,
    document,
    megatron_arguments,
    megatron_layout,
    question,
    rows,
    titan,
    titan_layout,
)  # fmt: skip

from course.compare import run_of
from course.errors import UserError
from course.export import files
from course.export.port import chunk_layers
from course.export.results import COLUMNS, MEASURED
from course.problem import Layout


@pytest.mark.parametrize(("name", "layout"), EXACT)
def test_megatron_options_read_back_as_the_layout(name, layout):
    run = question(name)
    found, settings = files(run, document(layout), "megatron")
    assert settings.ported[0].cannot == ()
    back, batch = megatron_layout(found["layout_1.args"], run.cluster.devices)
    assert back == layout
    assert back.devices == run.cluster.devices
    assert batch == run.training.global_batch_sequences


def test_megatron_options_say_the_model():
    text = files(question("llama-3-8b-8-h100"), document(Layout(data=8)), "megatron")[0]["layout_1.args"]
    found = megatron_arguments(text)
    widths = (found.num_layers, found.hidden_size, found.ffn_hidden_size, found.num_attention_heads, found.kv_channels)
    assert widths == (32, 4096, 14336, 32, 128)
    assert found.group_query_attention and found.num_query_groups == 8
    assert found.swiglu and found.disable_bias_linear and found.normalization == "RMSNorm"
    assert found.untie_embeddings_and_output_weights and found.position_embedding_type == "rope"
    # the null tokenizer holds one token more than it is told
    assert found.vocab_size + 1 == 128256 and found.make_vocab_size_divisible_by == 1
    assert found.bf16 and found.seq_length == 8192 and found.train_iters > found.log_interval

    gpt = question("gpt-3-175b-1024-a100")
    layout = Layout(data=16, tensor=8, pipeline=8, recompute="selective")
    found = megatron_arguments(files(gpt, document(layout), "megatron")[0]["layout_1.args"])
    assert not found.swiglu and not found.disable_bias_linear and found.normalization == "LayerNorm"
    assert not found.untie_embeddings_and_output_weights and found.position_embedding_type == "learned_absolute"
    assert found.fp16 and not found.use_flash_attn and found.attention_backend == "unfused"


def test_megatron_core_reads_the_layout_of_uneven_stages():
    reason = "megatron-core is not installed"
    parser = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout", reason=reason)
    layout = Layout(pipeline=2, data=4, stage_layers=(15, 17))
    text = files(question("llama-3-8b-8-h100"), document(layout), "megatron")[0]["layout_1.args"]
    stages = parser.PipelineParallelLayerLayout.parse_str_to_list(
        megatron_arguments(text).pipeline_model_parallel_layout
    )
    assert [len(stage) for stage in stages] == [16, 18]


@pytest.mark.parametrize(("name", "layout"), EXACT)
def test_torchtitan_configuration_reads_back_as_the_layout(name, layout):
    run = question(name)
    found, settings = files(run, document(layout), "torchtitan")
    config = titan(found["torchtitan_layouts.py"])["layout_1"]()
    back, batch = titan_layout(config, run.cluster.devices)
    if layout.context > 1 and layout.sharding == "none":
        assert "always shards" in settings.ported[0].cannot[0]
        back = dataclasses.replace(back, sharding="none", shard_group=layout.shard_group)
    else:
        assert settings.ported[0].cannot == ()
        back = dataclasses.replace(
            back, shard_group=layout.shard_group if layout.sharding == "none" else back.shard_group
        )
    assert back == dataclasses.replace(layout, stage_layers=None)
    assert batch == run.training.global_batch_sequences


def test_torchtitan_chunks_hold_every_module_once_and_in_order():
    run = question("llama-3-8b-8-h100")
    held = Layout(pipeline=2, data=4, stage_layers=(15, 17))
    module = titan(files(run, document(held), "torchtitan")[0]["torchtitan_layouts.py"])
    stages = module["layout_1"]().parallelism.module_fqns_per_model_part
    assert [sum(name.startswith("layers.") for name in stage) for stage in stages] == [15, 17]
    flat = [name for stage in stages for name in stage]
    assert flat == ["tok_embeddings", *(f"layers.{n}" for n in range(32)), "norm", "lm_head"]


def test_torchtitan_itself_loads_the_configuration(tmp_path, monkeypatch):
    pytest.importorskip("torchtitan.trainer", reason="torchtitan is not installed, or not on this kind of machine")
    import torch
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims

    run = question("llama-3-8b-8-h100")
    layouts = SEVERAL["llama-3-8b-8-h100"]
    (tmp_path / "torchtitan_layouts.py").write_text(
        files(run, document(*layouts), "torchtitan")[0]["torchtitan_layouts.py"]
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for number, layout in enumerate(layouts, 1):
        config = ConfigManager().parse_args(["--module", "torchtitan_layouts", "--config", f"layout_{number}"])
        sizes = ParallelDims.from_config(config.parallelism, run.cluster.devices)
        assert (sizes.tp, sizes.pp, sizes.cp) == (layout.tensor, layout.pipeline, layout.context)
        assert sizes.dp_replicate * sizes.dp_shard == layout.data
        assert config.training.global_batch_size == run.training.global_batch_sequences
    config.model_spec.model.update_from_config(config=config)
    with torch.device("meta"):
        model = config.model_spec.model.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == 8_030_261_248  # the published count


@pytest.mark.parametrize(
    ("kind", "layout", "said", "runs"),
    [
        ("torchtitan", Layout(data=8, sharding="zero1"), "no ZeRO-1", {"sharding": "zero2"}),
        ("torchtitan", Layout(data=8, sharding="zero2"), "no ZeRO-2", {"sharding": "zero2"}),
        ("torchtitan", Layout(data=4, context=2, sharding="zero3", shard_group=1), "whole context", {"shard_group": 8}),
        ("torchtitan", Layout(data=8, recompute="selective"), "every second matrix product", {}),
        ("torchtitan", Layout(data=4, pipeline=2, order=("pipeline", "tensor", "context", "data")), "one order", {}),
        ("megatron", Layout(data=4, pipeline=2, sharding="zero2"), "ZeRO-2 across a pipeline", {"sharding": "zero1"}),
        ("megatron", Layout(data=4, pipeline=2, sharding="zero3"), "ZeRO-3 across a pipeline", {"sharding": "zero1"}),
        ("megatron", Layout(data=4, pipeline=2, schedule="gpipe"), "no gpipe schedule", {"schedule": "1f1b"}),
        ("megatron", Layout(data=4, pipeline=2, schedule="zero-bubble"), "no zero-bubble schedule",
         {"schedule": "1f1b"}),
        ("torchtitan", Layout(data=4, pipeline=2, schedule="zero-bubble"), "ZBVZeroBubble, hold several chunks",
         {"schedule": "1f1b"}),
        ("megatron", Layout(data=4, tensor=2, order=("data", "tensor", "context", "pipeline")), "cannot place", {}),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_do_is_said_and_what_it_runs_is_in_the_row(kind, layout, said, runs):
    found, settings = files(question("llama-3-8b-8-h100"), document(layout), kind)
    one = settings.ported[0]
    assert [said in sentence for sentence in one.cannot] == [True]
    assert one.cannot[0] in settings.sentences()[-1]
    name = "torchtitan_layouts.py" if kind == "torchtitan" else "layout_1.args"
    assert said in " ".join(found[name].replace("\n#", "").split())
    row = rows(found["results.csv"])[0]
    assert said in row["notes"]
    assert all(row[field] == value for field, value in runs.items())


def test_megatron_can_place_the_stages_inside_the_replicas():
    layout = Layout(data=4, pipeline=2, order=("tensor", "pipeline", "data", "context"))
    found, settings = files(question("llama-3-8b-8-h100"), document(layout), "megatron")
    assert settings.ported[0].cannot == () and megatron_arguments(found["layout_1.args"]).use_tp_pp_dp_mapping


def test_layouts_that_become_the_same_are_measured_once():
    layouts = [Layout(data=4, pipeline=2, sharding=rung) for rung in ("zero1", "none", "zero2")]
    found, settings = files(question("llama-3-8b-8-h100"), document(*layouts), "megatron")
    assert [one.name for one in settings.ported] == ["layout_1", "layout_2"] and "layout_3.args" not in found
    assert any("layout_3" in said and "would run as layout_1" in said for said in settings.said)


def test_a_model_or_device_an_engine_cannot_take_is_refused():
    gpt = question("gpt-3-175b-1024-a100")
    with pytest.raises(UserError, match=r"which has a feed-forward without a gate, .*biases.*--export megatron"):
        files(gpt, document(Layout(data=1024)), "torchtitan")
    run = question("llama-3-8b-8-h100")
    tpu = dataclasses.replace(run.cluster.accelerator, vendor="Google", name="TPU v5p (chip)")
    with pytest.raises(UserError, match="no GPU"):
        files(
            dataclasses.replace(run, cluster=dataclasses.replace(run.cluster, accelerator=tpu)),
            document(Layout(data=8)),
            "megatron",
        )


@pytest.mark.parametrize("kind", ["torchtitan", "megatron"])
@pytest.mark.parametrize(("name", "layout"), EXACT)
def test_a_row_of_results_is_what_compare_reads_as_the_layout_that_runs(kind, name, layout):
    run = question(name)
    found, settings = files(run, document(layout), kind)
    row = rows(found["results.csv"])[0]
    assert list(row) == list(COLUMNS) and all(row[column] is None for column in MEASURED)
    if layout.context > 1:
        assert (
            any("context parallelism" in said for said in settings.said) or run_of(row).layout.context == layout.context
        )
        return
    back = run_of(row)
    assert back.layout == dataclasses.replace(settings.ported[0].layout, stage_layers=None)
    assert dataclasses.replace(back.model, name=run.model.name) == run.model
    assert back.training.global_batch_sequences == run.training.global_batch_sequences
    assert back.cluster.devices == run.cluster.devices and back.cluster.fabric == run.cluster.fabric
    assert back.software.recipe == settings.recipe


def test_what_the_table_cannot_hold_is_said():
    run = question("llama-3-8b-8-h100")
    fabric = dataclasses.replace(run.cluster.fabric, scale_out_bytes_per_s=1e9)
    run = dataclasses.replace(run, cluster=dataclasses.replace(run.cluster, fabric=fabric))
    said = files(run, document(Layout(data=8)), "megatron")[1].said
    assert any("cannot hold" in sentence and "links" in sentence for sentence in said)
    assert any(
        "run again as" in s or "again as torch-fsdp" in s
        for s in files(run, document(Layout(data=8)), "torchtitan")[1].said
    )


def test_layers_of_chunks_follow_the_rules_of_a_split():
    run = question("llama-3.1-405b-16384-h100")
    assert chunk_layers(run, Layout(pipeline=16)) == (7, *[8] * 14, 7)
    assert chunk_layers(run, Layout(pipeline=8, interleave=16)) == (0, *[1] * 126, 0)
    assert chunk_layers(run, Layout(pipeline=9)) == (14,) * 9
    assert chunk_layers(run, Layout(pipeline=2, interleave=2, stage_layers=(62, 64))) == (31, 32, 31, 32)
    extra = dataclasses.replace(run, software=dataclasses.replace(run.software, stage_rule="first-extra"))
    assert chunk_layers(extra, Layout(pipeline=4)) == (32, 32, 31, 31)


def test_the_settings_name_no_type_twice():
    """The options of one file are given once each, so that none overrides another unseen."""
    text = files(question("llama-3-8b-8-h100"), document(Layout(data=8, sharding="zero3")), "megatron")[0]
    names = [line.split()[0] for line in text["layout_1.args"].splitlines() if line.startswith("--")]
    assert len(names) == len(set(names))


def test_stage_layers_are_not_in_the_table_and_that_is_said():
    layout = Layout(pipeline=2, data=4, stage_layers=(15, 17))
    assert any(
        "stage_layers" in said for said in files(question("llama-3-8b-8-h100"), document(layout), "megatron")[1].said
    )


def test_megatron_splits_experts_by_its_own_options():
    run = question("llama-3-8b-8-h100")
    model = dataclasses.replace(
        run.model,
        experts=16,
        experts_per_token=4,
        shared_experts=2,
        expert_ffn=1024,
        dense_layers=3,
        name="own mixture",
    )
    layout = Layout(data=4, tensor=2, expert=8, expert_tensor=1, sharding="zero1")
    found, _ = files(dataclasses.replace(run, model=model), document(layout), "megatron")
    options = megatron_arguments(found["layout_1.args"])
    assert (options.expert_model_parallel_size, options.expert_tensor_parallel_size) == (8, 1)
    assert (options.num_experts, options.moe_router_topk, options.moe_ffn_hidden_size) == (16, 4, 1024)
    assert options.moe_shared_expert_intermediate_size == 2048
    assert options.moe_layer_freq == "[0]*3+[1]*29"
    assert rows(found["results.csv"])[0]["ep"] == 8
    with pytest.raises(UserError, match="which has experts"):
        files(dataclasses.replace(run, model=model), document(layout), "torchtitan")
