"""The published runs are complete, typed and sourced, and our formulas reproduce the utilisation they print."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import Counter

import pytest

from course import catalog, records
from course.compare.shapes import model_of
from course.estimate import flops_per_token
from course.records.columns import RUN_COLUMNS, cell

BY_ID = {row["id"]: row for row in records.runs()}
ROWS = {
    "mpt": 216, "usp": 2445, "uspfig": 6, "mbr": 278, "nemo": 54, "nfl": 17, "mxt": 67, "nar": 10, "kor": 10,
    "mle": 14, "big": 14, "mlp": 18,
}  # fmt: skip


def test_every_run_is_there_once():
    assert len(BY_ID) == len(records.runs()) == 3149
    assert Counter(map(records.key, records.runs())) == ROWS
    assert all(tuple(row) == RUN_COLUMNS for row in records.runs())


def test_runs_that_ran_and_runs_that_failed():
    lost = [row for row in records.runs() if records.failed(row)]
    assert len(lost) == 1280
    assert sum(map(records.ran, records.runs())) == 1869
    assert all(row["tokens_per_s_per_device"] is None and row["step_time_s"] is None for row in lost)
    too_few = [row for row in lost if row["global_batch_seqs"] // (row["dp"] * row["micro_batch"]) < row["pp"] - 1]
    assert len(too_few) == 160
    assert not [
        row for row in records.runs()
        if records.key(row) == "usp" and records.ran(row)
        and row["global_batch_seqs"] // (row["dp"] * row["micro_batch"]) < row["pp"] - 1
    ]  # fmt: skip


def test_twelve_playbook_layouts_were_measured_several_times():
    ran = [row for row in records.runs() if records.key(row) == "usp" and records.ran(row)]
    # By the words of the records' own rule, written out: model, devices, degrees, micro-batch, sharding.
    rule = ("model", "n_devices", "dp", "tp", "pp", "cp", "micro_batch", "sharding")
    for key in (records.duplicate_key, lambda row: tuple(row[name] for name in rule)):
        assert sum(count > 1 for count in Counter(map(key, ran)).values()) == 12


def test_every_row_names_its_source():
    for table in ("runs", "collectives", "time_to_train", "models", "pipelines"):
        assert all(row["source"] for row in getattr(records, table)())
    known = {str(row["round"]) for row in records.time_to_train()}
    for group in records.groups():
        key, _, version = str(group["source_key"]).partition("-")
        assert key in ROWS and (not version or version in known)


def test_groups_and_series_point_at_runs():
    for group in records.groups():
        assert len(group["row_ids"]) == group["n_rows"]
        assert set(group["row_ids"]) <= set(BY_ID)
        assert {BY_ID[name]["n_devices"] for name in group["row_ids"]} == set(group["devices"])
    first: dict[object, dict[str, float]] = {}
    for row in records.strong_series():
        base = first.setdefault(row["group_id"], row)
        run = BY_ID[row["row_id"]]
        assert row["n_devices"] == run["n_devices"]
        if row["unit"] == "tokens/s":
            assert row["throughput"] == pytest.approx(run["tokens_per_s_per_device"] * run["n_devices"], rel=1e-3)
        assert row["speedup"] == pytest.approx(row["throughput"] / base["throughput"], rel=1e-3)
        assert row["efficiency"] == pytest.approx(row["speedup"] / (row["n_devices"] / base["n_devices"]), rel=2e-3)


def test_bus_bandwidth_follows_from_algorithm_bandwidth():
    both = [row for row in records.collectives() if row["algbw_GBps"] and row["busbw_GBps"] and row["n_devices"]]
    reduced = [row for row in both if row["collective"] == "all_reduce" and row["algbw_GBps"] > 5]
    assert len(reduced) > 20
    for row in reduced:
        n = row["n_devices"]
        assert row["busbw_GBps"] / row["algbw_GBps"] == pytest.approx(2 * (n - 1) / n, rel=0.02)


def test_time_to_train_is_the_middle_of_its_runs():
    assert len(records.time_to_train()) == 89
    timed = [row for row in records.time_to_train() if row["minutes"] is not None]
    assert len(timed) > 80
    assert all(row["minutes_min"] <= row["minutes"] <= row["minutes_max"] for row in timed)


def _errors(ids: list[str], printed: str) -> list[float]:
    """|ours / printed - 1| of runs: their utilisation by their own convention, from their tokens a second."""
    found = []
    for name in ids:
        row = BY_ID[name]
        flops = flops_per_token(model_of(row)[0], row["seq_len"], row["recompute"] or "none")
        rate = row["tokens_per_s_per_device"]
        if rate is None:
            rate = row["global_batch_seqs"] * row["seq_len"] / row["n_devices"] / row["step_time_s"]
        used = rate * flops[row["mfu_convention_code"]]
        peak = 1e12 if printed == "tflops_per_device" else catalog.accelerator(row["accelerator"]).peak_flops_per_s
        found.append(abs(used / peak / row[printed] - 1))
    return found


def _ids(key: str, *needed: str, **wanted: object) -> list[str]:
    return [
        name for name, row in BY_ID.items()
        if records.key(row) == key and records.ran(row) and row["mfu_convention_code"] not in (None, "lora")
        and all(row[column] for column in needed) and all(row[column] == value for column, value in wanted.items())
    ]  # fmt: skip


def test_printed_utilisation_mpt():
    errors = _errors(_ids("mpt", dtype="bf16"), "mfu_reported")
    assert len(errors) == 209
    assert statistics.median(errors) < 0.0002
    assert max(errors) < 0.005


def test_printed_utilisation_playbook():
    one_stage = _errors(_ids("usp", pp=1), "mfu_reported")
    assert statistics.median(one_stage) < 0.01  # printed with two or three digits
    piped = [name for name in _ids("usp", model="llama-like 1.34B") if "ANOMALY" in BY_ID[name]["notes"]]
    assert len(piped) == 194 and all(BY_ID[name]["pp"] > 1 for name in piped)
    # A tied table counted at both ends: 2 x 131072 x 2048 in 1.342e9 becomes 1.611e9, and 12Lhs = 1.61e9 of FLOPs.
    expected = 1 - (6 * 1.342e9 + 12 * 16 * 2048 * 4096) / (6 * 1.611e9 + 12 * 16 * 2048 * 4096)
    assert statistics.median(_errors(piped, "mfu_reported")) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("model", "key", "bound"),
    [
        ("GPT3-5B", "nemo", 0.002), ("GPT3-20B", "nemo", 0.002), ("GPT3-175B", "nemo", 0.01),
        ("Nemotron-8B", "nemo", 0.002), ("Nemotron-22B", "nemo", 0.002), ("Nemotron-340B", "nemo", 0.01),
        ("LLAMA2-70B", "nemo", 0.01), ("LLAMA3_70B", "mbr", 0.01), ("LLAMA3.1_405B", "mbr", 0.01),
    ],
)  # fmt: skip
def test_printed_rate_of_shapes_known_by_name(model: str, key: str, bound: float):
    errors = _errors(_ids(key, "tokens_per_s_per_device", "tflops_per_device", model=model), "tflops_per_device")
    assert errors and statistics.median(errors) < bound


def test_printed_utilisation_korthikanti():
    errors = _errors(_ids("kor", "mfu_reported", "step_time_s"), "mfu_reported")
    assert len(errors) == 4 and max(errors) < 0.006


def test_narayanan_counts_recomputation():
    for name in _ids("nar"):
        row = BY_ID[name]
        layers, h, s, v = row["n_layers"], row["hidden"], row["seq_len"], row["vocab"]
        theirs = 96 * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))  # the paper's F over its B x s tokens
        ours = flops_per_token(model_of(row)[0], s, "full")["executed"]
        assert ours == pytest.approx(theirs, rel=1e-3)
        assert row["tflops_per_device"] / 312 == pytest.approx(row["hfu_reported"], abs=0.006)


@pytest.mark.parametrize("size", [16, 32, 64, 128, 256, 512, 1024])
def test_maxtext_shapes_have_their_nominal_size(size: int):
    row = next(row for row in records.models() if row["model"] == f"MaxText {size}B")
    wide = row["n_heads"] * row["head_dim"]
    layer = 4 * row["hidden"] * wide + 3 * row["hidden"] * row["ffn_hidden"]
    assert row["n_layers"] * layer + 2 * row["vocab"] * row["hidden"] == pytest.approx(size * 1e9, rel=0.03)


@pytest.mark.parametrize(
    ("column", "text"), [("n_layers", "1.5"), ("n_layers", "x"), ("step_time_s", "1e999"), ("gated_mlp", "maybe")]
)
def test_a_cell_of_the_wrong_kind_is_refused(column: str, text: str):
    with pytest.raises(ValueError, match="must be"):
        cell(column, text)


def test_reading_is_light():
    code = "import sys, course.records as r; r.runs(); print([n for n in ('numpy', 'sympy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_record_cannot_be_changed():
    with pytest.raises(TypeError):
        records.runs()[0]["model"] = "another"  # type: ignore[index]
