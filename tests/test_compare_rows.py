"""From a file to rows, from a row to a run: every cell reaches its field, and what is wrong is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measured_runs import TINY, measured, step, text_of

from course import cli, records
from course.catalog import fabric
from course.compare import Skipped, compare, read, run_of
from course.compare.rows import loads
from course.errors import UserError

# --- from a row to a run


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mfu_convention_code": "lora"}, "LoRA"),
        ({"model": "llama-3-8b (LoRA)"}, "LoRA"),
        ({"notes": "CPU AdamW offload"}, "offloading"),
        ({"model": "nobody's"}, "shape missing"),
        ({"accelerator": "abacus"}, 'unknown accelerator "abacus"'),
        ({"accelerator": "MI355X"}, "no links known"),
        ({"accelerator": "A100-80GB", "dtype": "fp8"}, "no peak known for fp8"),
        ({"dtype": "int3"}, 'unknown precision "int3"'),
        ({"software": "abacus"}, 'unknown software "abacus"'),
        ({"fabric": "string"}, 'unknown fabric "string"'),
        ({"seq_len": None}, "sequence length missing"),
        ({"global_batch_seqs": None}, "global batch missing"),
        ({"n_devices": None}, "device count missing"),
        ({"accelerator": None}, "accelerator missing"),
        ({"dp": None, "tp": None, "pp": None, "sharding": None}, "layout missing"),
        ({"dp": 0}, "no valid run"),
        ({"sharding": "zero9"}, "no valid run"),
        ({"schedule": "zero-bubble", "pp": 2, "dp": 8}, None),
        ({"schedule": "zb-h1", "pp": 2, "dp": 8}, None),
        ({"schedule": "zb-2p", "pp": 2, "dp": 8}, "schedule"),
        ({"n_devices": 10**30}, "no valid run"),
        ({"notes": "ZeRO-2, no offload"}, None),
        ({"model": "llama-3-8b (SFT)"}, None),
        ({"cp": 2, "dp": 8}, None),
        ({"model": "Mixtral 8x7B", "ep": 8}, None),
        ({"model": "DeepSeekV3 (w/o MTP)"}, None),
        ({"moe_experts": 8, "moe_topk": 2}, None),
    ],
)
def test_what_cannot_be_predicted_says_why(change: dict[str, Any], reason: str | None):
    found = run_of({**TINY, **change})
    if reason is None:
        assert not isinstance(found, Skipped)
    else:
        assert isinstance(found, Skipped) and reason in found.reason


def test_every_cell_of_a_row_reaches_its_field():
    row = {
        "id": "own-7", "model": "own", "n_layers": 24, "hidden": 2048, "n_heads": 16, "n_kv_heads": 4, "head_size": 64,
        "ffn_hidden": 5632, "vocab": 32000, "gated_mlp": True, "tied_embeddings": True, "seq_len": 1024,
        "global_batch_seqs": 128, "micro_batch": 2, "software": "megatron", "accelerator": "A100-40GB", "n_devices": 32,
        "dtype": "fp16", "dp": 4, "tp": 2, "pp": 4, "vpp": 3, "cp": 1, "sharding": "zero1", "recompute": "full",
        "node_size": 4, "fabric": "h100-efa", "sequence_parallel": False, "order": "tensor pipeline data context",
        "shard_group": 2, "state": "bf16-16",
    }  # fmt: skip
    run = run_of(row)
    assert not isinstance(run, Skipped) and run.layout is not None
    model, layout = run.model, run.layout
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.head_size, model.ffn, model.vocabulary) == (
        24, 2048, 16, 4, 64, 5632, 32000,
    )  # fmt: skip
    assert model.gated_mlp and model.tied_embeddings
    assert (layout.data, layout.tensor, layout.pipeline, layout.interleave, layout.schedule) == (
        4,
        2,
        4,
        3,
        "interleaved",
    )
    assert (layout.sharding, layout.shard_group, layout.recompute, layout.micro_batch) == ("zero1", 2, "full", 2)
    assert layout.sequence_parallel is False and layout.order == ("tensor", "pipeline", "data", "context")
    assert (run.training.precision, run.training.state.id) == ("fp16", "bf16-16")
    assert (run.training.sequence_length, run.training.global_batch_sequences) == (1024, 128)
    assert (run.cluster.accelerator.id, run.cluster.fabric.id, run.cluster.fabric.node_size) == (
        "a100-sxm-40gb", "h100-efa", 4,
    )  # fmt: skip
    assert run.software.recipe == "megatron" and run.assumptions == ()


@pytest.mark.parametrize(
    ("dtype", "precision", "peak"),
    [
        ("mxfp8", "fp8", 5e15), ("fp8-cs", "fp8", 5e15), ("fp8-mx", "fp8", 5e15), ("nvfp4", "fp4", 1e16),
        (None, "bf16", 2.5e15),
    ],
)  # fmt: skip
def test_names_of_precision(dtype: str | None, precision: str, peak: float):
    run = run_of({**TINY, "accelerator": "GB200", "dtype": dtype})
    assert not isinstance(run, Skipped)
    assert (run.training.precision, run.cluster.accelerator.peak_flops_per_s) == (precision, peak)


@pytest.mark.parametrize(
    ("change", "recipe"),
    [({}, "torch-fsdp"), ({"sharding": "zero1"}, "megatron"), ({"accelerator": "TPU v5p"}, "maxtext")],
)
def test_blank_software_is_inferred_and_said(change: dict[str, Any], recipe: str):
    run = run_of({**TINY, "software": None, **change})
    assert not isinstance(run, Skipped)
    assert run.software.recipe == recipe and f"software {recipe}" in run.assumptions


def test_early_megatron_brought_sequence_parallelism_with_selective_recomputation():
    by_id = {row["id"]: row for row in records.runs()}
    for name, expected in (("kor-0001", False), ("kor-0002", True), ("nar-0005", False)):
        run = run_of(by_id[name])
        assert not isinstance(run, Skipped) and run.layout is not None
        assert run.layout.sequence_parallel is expected


def test_a_pod_shards_and_other_pods_repeat():
    run = run_of({row["id"]: row for row in records.runs()}["mxt-0012"])
    assert not isinstance(run, Skipped) and run.layout is not None
    assert (run.layout.data, run.layout.shard_group) == (8192, fabric("tpu-v5e").node_size)


@pytest.mark.parametrize("column", ["mfu_reported", "hfu_reported", "tflops_per_device"])
def test_a_utilisation_above_one_is_no_measurement(column: str):
    most = 989.0 if column == "tflops_per_device" else 1.0
    good, bad = ({**TINY, "step_time_s": 1.0, column: value} for value in (most, 50 * most))
    assert not isinstance(run_of(good), Skipped)
    document = compare([good, {**bad, "id": "own-2"}]).document  # alike but for the figure, and read apart
    assert document["skipped"] == {"utilisation above 1": 1} and document["overall"]["predicted"] == 1
    found = run_of(bad)
    assert isinstance(found, Skipped) and column in found.reason


@pytest.mark.parametrize(
    "column", ["step_time_s", "tokens_per_s_per_device", "tflops_per_device", "mfu_reported", "peak_mem_gib"]
)
def test_a_measurement_below_zero_is_said(column: str):
    assert compare([{**TINY, column: -1.0}]).document["skipped"] == {"measured value below zero": 1}


@pytest.mark.parametrize(
    ("column", "value", "meant"),
    [
        ("sharding", "ZeRO2", "zero2"), ("sharding", "zero-1", "zero1"), ("sharding", "ZeRO stage 3", "zero3"),
        ("sharding", "DDP", "none"), ("sharding", "FSDP", "zero3"), ("software", "nemo", "megatron"),
        ("software", "Megatron-LM", "megatron"), ("software", "FSDP2", "torch-fsdp"), ("recompute", "Full", "full"),
        ("recompute", "Selective", "selective"), ("order", "TP CP DP PP", "tensor context data pipeline"),
        ("mfu_convention_code", "PaLM", "palm"), ("mfu_convention_code", "full attention", "full_attention"),
    ],
)  # fmt: skip
def test_capitals_and_common_spellings_do_not_matter(column: str, value: str, meant: str):
    row = {**TINY, "step_time_s": 1.0}
    one, other = compare([{**row, column: value}]).rows[0], compare([{**row, column: meant}]).rows[0]
    assert one.run == other.run and one.run is not None and (one.mfu, one.time_s) == (other.mfu, other.time_s)


@pytest.mark.parametrize(
    ("column", "value", "near"),
    [
        ("sharding", "zero9", "zero"), ("recompute", "fulll", "full"), ("mfu_convention_code", "plam", "palm"),
        ("mfu_convention_code", "bogus", ""), ("software", "megatronn", "megatron"), ("dtype", "bf17", "bf16"),
        ("fabric", "h100-ib40", "h100-ib400"), ("state", "bf16-19", "bf16-1"), ("accelerator", "h100-sx", "h100-sxm"),
    ],
)  # fmt: skip
def test_an_unknown_word_is_skipped_by_kind_with_the_nearest_known(column: str, value: str, near: str):
    found = compare([{**TINY, "step_time_s": 1.0, column: value}, {**TINY, "id": "own-2", column: f"{value}x"}])
    what = {"dtype": "precision"}.get(column, column)
    assert found.document["skipped"] == {f"unknown {what}": 2}
    cell = found.table()[0]["skipped"]
    assert f'"{value}"' in cell and f'the nearest is "{near}' in cell


def test_rows_that_share_a_run_keep_their_own_answers():
    rows = [measured(TINY, factor, id=f"own-{i}", micro_batch=i) for i in (1, 2) for factor in (1.0, 1.5)]
    found = compare(rows).rows
    assert [one.time_error for one in found] == pytest.approx([0.0, 0.5, 0.0, 0.5])
    assert [one.run and one.run.name for one in found] == [row["id"] for row in rows]


# --- files


def test_a_table_of_text_is_the_table_of_values():
    rows = [measured(TINY, 1.1), {**TINY, "id": "ü-2", "model": "模型"}]
    table = loads(text_of(rows))
    assert compare(table.rows).document == compare(rows).document


def test_missing_columns_are_blank_ones():
    table = loads("model,accelerator,n_devices,seq_len,global_batch_seqs,dp\nllama-3-8b,H100,8,4096,32,8\n")
    one = compare(table.rows).rows[0]
    assert one.skipped is None and one.source == "unnamed"


HEADER = "id,model,accelerator,n_devices,seq_len,global_batch_seqs,dp"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (HEADER, "no rows"),
        (HEADER.replace(",", ";") + "\na;b;c;1;1;1;1", "semicolons"),
        (HEADER.replace(",", "\t") + "\n", "tabs"),
        (HEADER + ",dp\n", "twice"),
        ("name,size\na,1\n", "no column accelerator"),
        (HEADER.replace("n_devices", "devices") + "\n", 'nearest is "devices"'),
        (HEADER + "\na-1,m,H100,eight,1,1,1\n", 'n_devices = "eight" must be a whole number'),
        (HEADER + "\na-1,m,H100,8.5,1,1,1\n", "Line 2"),
        (HEADER + "\na-1,m,H100,1e999,1,1,1\n", "finite"),
        (HEADER + "\na-1,m,H100\n", "3 cells"),
        (HEADER + "\n ,,,\n", "4 cells"),
        (HEADER + "\n" + "," * 9 + "\n", "10 cells"),
        (HEADER + "\n" + "," * 6 + "\n\n", "no rows"),
        (",,\n,,\n", "nothing else"),
        (HEADER + '\n"a-1,m', "no CSV"),
        (HEADER + "\na\0-1", "not text"),
        ("{", "no JSON"),
        ('{"cells": {}}', "no list of cells"),
        ('{"cells": []}', "no cells"),
        ("{" * 100_000, "no JSON"),
    ],
)
def test_a_wrong_file_is_one_sentence(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "runs.csv"
    file.write_text(text, encoding="utf-8")
    assert cli.main(["compare", str(file)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and said in shown.err


def test_other_wrong_files(tmp_path: Path):
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(UserError):
            read(path)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not text"):
        read(tmp_path / "bytes.csv")


def test_a_row_of_huge_numbers_costs_no_other_row_its_prediction():
    rows = [TINY, {**TINY, "id": "own-2", "n_devices": 10**300}, {**TINY, "id": "own-3", "micro_batch": 10**9},
            {**TINY, "id": "own-4", "step_time_s": 1e300}]  # fmt: skip
    found = compare(rows).rows
    assert [one.skipped is None for one in found] == [True, False, False, True]


# --- a lab report


def report(**change: Any) -> str:
    cell = {
        "id": "layout-8-a", "engine": "torch", "family": "layout",
        "model": {
            "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocabulary": 128256,
            "gated_mlp": True, "tied_embeddings": False,
        },
        "global_batch_sequences": 64, "sequence_length": 4096, "micro_batch": 1, "devices": 16,
        "layout": {"data": 16, "sharding": "zero3"}, "step_time_s": {"p10": 1.0, "p50": 2.0, "p90": 3.0, "n": 9},
        "peak_memory_gib": 20.0, "status": "ok",
    }  # fmt: skip
    return json.dumps({"machine": {"accelerator": "H100"}, "cells": [cell | change]})


def test_a_cell_is_a_run():
    one = compare(loads(report(), "lab.json").rows).rows[0]
    assert (one.source, one.skipped, one.time_s, one.row["peak_mem_gib"]) == ("lab", None, 2.0, 20.0)
    assert one.predicted_time_s == pytest.approx(step({**TINY, "model": "llama-3-8b"}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"family": "collective"}, "collective is no training step"),
        ({"status": "timeout"}, "not measured"),
        ({"model": None}, "shape missing"),
        ({"accelerator": "cpu"}, "unknown accelerator"),
        ({"devices": None}, "device count missing"),
        ({"layout": {"data": 16, "schedule": "zero-bubble"}}, "illegal: split_backward"),
        ({"layout": None}, "layout missing"),
        ({"devices": "eight"}, "device count missing"),
    ],
)
def test_a_cell_that_is_not_predicted_says_why(change: dict[str, Any], reason: str):
    skipped = compare(loads(report(**change), "lab.json").rows).document["skipped"]
    assert len(skipped) == 1 and reason in next(iter(skipped))


def test_a_cell_out_of_memory_is_a_failed_run():
    document = compare(loads(report(status="oom", step_time_s=None), "lab.json").rows).document
    assert document["fit"]["failed"]["rows"] == 1
