"""Predictions beside measurements: the scores against hand-made tables whose errors, ranks and regrets are known."""

from __future__ import annotations

import csv
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_runs import LAYOUTS, TINY, measured, step, text_of

from course import cli, records
from course.compare import Comparison, Skipped, compare, read, run_of
from course.compare.rows import ADDED
from course.compare.scores import spearman
from course.predict import predict

LORA = "LoRA trains a part of the weights: not predicted"


@pytest.fixture(scope="module")
def whole() -> Comparison:
    return compare(records.runs())


# --- errors


def test_errors_are_measured_over_predicted():
    factors = [1.0, 1.1, 1.2, 1.4, 2.0]
    rows = [measured(TINY, f, id=f"own-{i}", global_batch_seqs=64 * 2**i) for i, f in enumerate(factors)]
    found = compare(rows).document["sources"]
    assert [(one["name"], one["rows"], one["predicted"]) for one in found] == [("own", 5, 5)]
    assert found[0]["throughput"]["median"] == pytest.approx(0.2)
    assert found[0]["throughput"]["p90"] == pytest.approx(0.4 + 0.6 * (1.0 - 0.4))  # at 3.6 of 4 intervals
    assert found[0]["memory"] == {"median": None, "p90": None}


def test_a_run_too_fast_errs_as_well():
    assert compare([measured(TINY, 0.7)]).document["sources"][0]["throughput"]["median"] == pytest.approx(0.3)


def test_sources_weigh_the_same():
    many = [measured(TINY, 1.1, id=f"big-{i}", global_batch_seqs=16 * (i + 1)) for i in range(6)]
    one = [measured(TINY, 1.5, id="small-1")]
    document = compare([*many, *one]).document
    assert document["overall"]["throughput"]["median"] == pytest.approx((0.1 + 0.5) / 2)
    assert (document["overall"]["rows"], document["overall"]["predicted"]) == (7, 7)


def test_memory_error_is_against_the_prediction_without_margin():
    run = run_of(TINY)
    assert not isinstance(run, Skipped)
    memory = predict(run)["memory"]
    bare = memory["peak_gib"] - memory["parts_gib"]["margin"]
    found = compare([{**TINY, "peak_mem_gib": 1.25 * bare}])
    assert found.rows[0].peak_gib == pytest.approx(bare)
    assert found.document["sources"][0]["memory"]["median"] == pytest.approx(0.25)
    assert found.document["sources"][0]["throughput"]["median"] is None


@pytest.mark.parametrize("seed", range(5))
def test_one_row_or_many_the_same_prediction(whole: Comparison, seed: int):
    one = random.Random(seed).choice([row for row in whole.rows if row.skipped is None])
    assert one.run is not None
    document = predict(one.run)
    assert one.predicted_time_s == pytest.approx(document["step"]["time_s"], rel=1e-12)
    assert one.tokens_per_s_per_device == pytest.approx(document["tokens_per_s_per_device"], rel=1e-12)
    assert one.fits == document["memory"]["fits"]
    convention = one.row["mfu_convention_code"]
    expected = document["hfu"] if convention == "executed" else document["mfu"].get(convention)
    assert one.mfu == (None if expected is None else pytest.approx(expected, rel=1e-12))


# --- measured time


@pytest.mark.parametrize(
    ("given", "time"),
    [
        ({"step_time_s": 3.0}, 3.0),
        ({"step_time_s": 3.0, "tokens_per_s_per_device": 1.0}, 3.0),
        ({"tokens_per_s_per_device": 8192.0}, 64 * 4096 / 16 / 8192),
        # 8.03e9 parameters less the input table of 128256 x 4096, and 12 x 32 x 4096 x 4096 for the full square
        ({"tflops_per_device": 400.0}, (6 * (8.030e9 - 128256 * 4096) + 12 * 32 * 4096**2) * 64 * 4096 / 16 / 400e12),
        ({"mfu_reported": 0.5}, (6 * (8.030e9 - 128256 * 4096) + 12 * 32 * 4096**2) * 64 * 4096 / 16 / 0.5 / 989.4e12),
        ({"tflops_per_device": 400.0, "notes": "grad accum 1; ANOMALY: odd"}, None),
        ({"tokens_per_s_per_device": 8192.0, "notes": "ANOMALY: odd"}, 2.0),
        ({"tflops_per_device": 400.0, "mfu_convention_code": None}, None),
        ({"step_time_s": 3.0, "notes": "FAILED: out of memory"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_measured_time(given: dict[str, Any], time: float | None):
    found = compare([{**TINY, **given}]).rows[0].time_s
    assert found == (None if time is None else pytest.approx(time, rel=2e-3))


# --- ranking


def brute_rank(values: list[float]) -> list[float]:
    return [sum(other < one for other in values) + (sum(other == one for other in values) - 1) / 2 for one in values]


def brute_spearman(one: list[float], other: list[float]) -> float | None:
    a, b = brute_rank(one), brute_rank(other)
    return None if len(set(a)) == 1 or len(set(b)) == 1 else statistics.correlation(a, b)


@pytest.mark.parametrize("seed", range(40))
def test_spearman_by_brute_force(seed: int):
    draw = random.Random(seed)
    size = draw.randint(2, 12)
    one, other = ([float(draw.randint(0, 6)) for _ in range(size)] for _ in range(2))
    expected = brute_spearman(one, other)
    assert spearman(np.array(one), np.array(other)) == (None if expected is None else pytest.approx(expected))


def test_regret_of_our_choice():
    rows = [{**TINY, **layout, "id": f"own-{i}"} for i, layout in enumerate(LAYOUTS)]
    predicted = [step(row) for row in rows]
    ranked = sorted(range(4), key=predicted.__getitem__)
    times = dict(zip(ranked, (5.0, 4.5, 6.0, 4.0), strict=True))  # the best measured is our last choice
    found = compare([{**row, "step_time_s": times[i]} for i, row in enumerate(rows)]).document["groups"]
    assert len(found) == 1 and found[0]["rows"] == 4
    assert found[0]["regret"] == pytest.approx(5.0 / 4.0 - 1)
    assert found[0]["regret_top3"] == pytest.approx(4.5 / 4.0 - 1)
    assert found[0]["spearman"] == pytest.approx(brute_spearman(predicted, [times[i] for i in range(4)]))


def test_a_layout_we_say_does_not_fit_is_never_our_choice():
    # Whole, the activations of 80 layers exceed 80 GB; recomputed they fit, and take longer.
    rows = [
        measured(TINY, 1.0, id="own-1", model="llama-2-70b", n_devices=64, dp=64, recompute=recompute)
        for recompute in ("full", "none")
    ]
    found = compare(rows)
    assert [one.fits for one in found.rows] == [True, False]
    assert found.rows[1].predicted_time_s < found.rows[0].predicted_time_s
    assert found.document["groups"][0]["regret"] == pytest.approx(rows[0]["step_time_s"] / rows[1]["step_time_s"] - 1)


@pytest.mark.parametrize(
    "other",
    [
        {"id": "else-2"}, {"model": "llama-3.1-8b"}, {"accelerator": "H200"}, {"dtype": "fp8"},
        {"software": "megatron"}, {"n_devices": 32, "dp": 16}, {"global_batch_seqs": 128}, {"seq_len": 8192},
    ],
)  # fmt: skip
def test_another_question_is_another_group(other: dict[str, Any]):
    rows = [
        measured(TINY, 1.0),
        measured({**TINY, "tp": 2, "dp": 8}, 1.0),
        measured({**TINY, "tp": 2, "dp": 8, **other}, 1.0),
    ]
    assert [group["rows"] for group in compare(rows).document["groups"]] == [2]


def test_the_same_layout_is_no_group():
    assert compare([measured(TINY, 1.0), measured(TINY, 2.0)]).document["groups"] == []


def test_the_first_of_duplicates_counts_and_the_spread_is_told():
    rows = [measured(TINY, 1.2, id="own-1"), measured(TINY, 3.0, id="own-2"), measured(TINY, 1.2, id="else-1")]
    document = compare(rows).document
    assert document["sources"][0]["throughput"]["median"] == pytest.approx(0.2)
    assert document["duplicates"] == [{"ids": ["own-1", "own-2"], "spread": pytest.approx(2.5)}]


def test_a_failed_run_takes_nothing_from_one_that_ran():
    rows = [{**TINY, "id": "own-1", "notes": "FAILED: crashed"}, measured(TINY, 1.2, id="own-2")]
    document = compare(rows).document
    assert document["sources"][0]["throughput"]["median"] == pytest.approx(0.2)
    assert document["duplicates"] == []


@pytest.mark.parametrize("note", ["ANOMALY: slow", "grad accum 1; ANOMALY: slow", "anomaly: slow, MFU of 1 %"])
def test_an_anomaly_is_in_no_score_of_time(note: str):
    rows = [measured({**TINY, **layout}, 1.1, id=f"own-{i}") for i, layout in enumerate(LAYOUTS[:3])]
    odd = {**TINY, **LAYOUTS[3], "id": "own-3", "step_time_s": 500.0, "notes": note}
    found, without = compare([*rows, odd]), compare(rows)
    assert found.rows[3].skipped is None and found.rows[3].time_s == 500.0
    assert found.document["groups"] == without.document["groups"]
    assert found.document["sources"][0]["throughput"] == {"median": pytest.approx(0.1), "p90": pytest.approx(0.1)}
    assert found.document["inferred"]["noted ANOMALY: its time is in no score"] == 1
    assert "noted ANOMALY" in found.table()[3]["inferred"]


def test_an_anomaly_of_the_printed_utilisation_leaves_the_time_good():
    odd = measured(TINY, 1.2, mfu_reported=0.9, notes="ANOMALY: MFU counts a table twice")
    assert compare([odd]).document["sources"][0]["throughput"]["median"] == pytest.approx(0.2)
    assert compare([{**odd, "step_time_s": None}]).document["sources"][0]["throughput"]["median"] is None


def test_an_anomaly_does_not_stand_for_the_good_run_measured_again():
    rows = [measured(TINY, 9.0, id="own-1", notes="ANOMALY: slow"), measured(TINY, 1.2, id="own-2")]
    assert compare(rows).document["sources"][0]["throughput"]["median"] == pytest.approx(0.2)


@pytest.mark.parametrize("note", ["FAILED", "failed: nan loss", " Failed, out of memory"])
def test_failed_is_read_in_any_case(note: str):
    document = compare([measured(TINY, 1.2, notes=note)]).document
    assert (document["fit"]["failed"]["rows"], document["fit"]["ran"]["rows"]) == (1, 0)
    assert document["sources"][0]["throughput"]["median"] is None


# --- fit


def test_fit_counts_refusals():
    big = {**TINY, "model": "llama-3.1-405b", "sharding": "none"}
    illegal = {**TINY, "tp": 3}
    lost = {"notes": "FAILED: crashed or out of memory"}
    part = {"mfu_convention_code": "lora"}
    rows = [{**big, **lost}, {**illegal, **lost}, {**TINY, **lost}, TINY, big, illegal, {**TINY, **part, **lost}]
    document = compare([{**row, "id": f"own-{i}"} for i, row in enumerate(rows)]).document
    assert document["fit"] == {
        "failed": {"rows": 3, "refused_memory": 1, "refused_legal": 1},
        "ran": {"rows": 3, "refused": 2},
    }
    assert document["skipped"] == {"illegal: devices": 2, LORA: 1}


# --- the whole of the records


def test_every_record_is_predicted_or_says_why_not(whole: Comparison):
    document = whole.document
    assert [one.row["id"] for one in whole.rows] == [row["id"] for row in records.runs()]
    assert all((one.skipped is None) != (one.predicted_time_s is None) for one in whole.rows)
    overall = document["overall"]
    assert overall["rows"] == 3149 == overall["predicted"] + sum(document["skipped"].values())
    assert document["fit"]["failed"]["rows"] == 1280
    assert sum(len(one["ids"]) > 1 for one in document["duplicates"] if one["ids"][0].startswith("usp-")) == 12
    assert {one["name"] for one in document["sources"]} == {records.key(row) for row in records.runs()}
    playbook = [group for group in document["groups"] if group["id"].startswith("usp:")]
    assert len(playbook) == 19  # three sizes at seven device counts, the largest at five
    assert all(0 <= group["regret_top3"] <= group["regret"] for group in document["groups"])


# --- the command


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rows = [
        measured({**TINY, **layout}, 1.1, id=f"own-{i}", mfu_convention_code="palm") for i, layout in enumerate(LAYOUTS)
    ]
    rows += [{**TINY, "id": "own-8", "model": "llama-3-8b (LoRA)"}, {**TINY, "id": "own-9", "tp": 5}]
    file = tmp_path / "runs.csv"
    file.write_text(text_of(rows), encoding="utf-8-sig")
    return file


def test_json_has_the_promised_keys(runs: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["compare", str(runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"sources", "overall", "groups", "fit", "skipped"} <= set(document)
    assert set(document["sources"][0]) == {"name", "rows", "predicted", "throughput", "memory"}
    assert set(document["groups"][0]) == {"id", "rows", "spearman", "regret", "regret_top3"}
    assert set(document["overall"]) == set(document["sources"][0])
    assert document["groups"][0]["regret"] == 0 and document["groups"][0]["spearman"] == pytest.approx(1)
    assert document["skipped"] == {LORA: 1, "illegal: devices": 1}
    assert document["fit"]["ran"] == {"rows": 5, "refused": 1}


def test_output_holds_every_row(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "out.csv"
    assert cli.main(["compare", str(runs), "--output", str(target), "--json"]) == 0
    json.loads(capsys.readouterr().out)
    with target.open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    with runs.open(encoding="utf-8-sig", newline="") as file:
        given = list(csv.DictReader(file))
    assert list(written[0]) == [*given[0], *ADDED]
    assert [row["id"] for row in written] == [row["id"] for row in given]
    for row in written[:4]:
        time = float(row["predicted_step_time_s"])
        assert float(row["step_time_s"]) / time == pytest.approx(1.1)
        assert float(row["predicted_tokens_per_s_per_device"]) == pytest.approx(64 * 4096 / 16 / time)
        flops = 6 * 8.030e9 + 12 * 32 * 4096**2
        assert float(row["predicted_mfu"]) == pytest.approx(flops * 64 * 4096 / 16 / time / 989.4e12, rel=1e-3)
        assert row["predicted_fits"] in ("true", "false") and row["skipped"] == ""
    assert written[4]["skipped"] == LORA and written[4]["predicted_fits"] == ""
    assert written[5]["skipped"] == "illegal: devices" and written[5]["predicted_fits"] == "false"
    # What was written can be read, and is predicted as before.
    assert compare(read(target).rows).document == compare(read(runs).rows).document


@pytest.mark.parametrize("target", ["missing/out.csv", ".", "runs.csv"])
def test_a_place_that_cannot_be_written(target: str, runs: Path, capsys: pytest.CaptureFixture[str]):
    before = runs.read_bytes()
    assert cli.main(["compare", str(runs), "--output", str(runs.parent / target)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert runs.read_bytes() == before


def test_text_is_at_most_a_page_wide(runs: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["compare", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "own" in shown and "10.0 %" in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_the_command_in_its_own_process(course: Callable[..., Any], runs: Path):
    done = course("compare", runs, "--json")
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout)["overall"]["rows"] == 6
