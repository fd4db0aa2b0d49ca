"""A report is read, refused with one sentence, merged, and always whole; what it allows to be divided is divided."""

from __future__ import annotations

import json

import pytest

from course.errors import UserError
from course.lab.describe import describe, machine_text
from course.lab.figures import curve, efficiency, flops_per_step, refused
from course.lab.report import CELL_KEYS, Report, complete, load, loads, merge, recorded, write

# interfaces.md, word for word
PROMISED = [
    "id",
    "engine",
    "family",
    "work_unit",
    "model",
    "global_batch_sequences",
    "sequence_length",
    "micro_batch",
    "micro_batches",
    "layout",
    "order",
    "devices",
    "placement",
    "step_time_s",
    "tokens_per_s",
    "mfu",
    "flops_convention",
    "peak_flops_per_s",
    "matmul_flops_per_s",
    "peak_memory_gib",
    "held_bytes",
    "communication_s",
    "exposed_communication_s",
    "payload_bytes",
    "busbw_bytes_per_s",
    "input_wait_s",
    "idle_share",
    "host_share",
    "loss",
    "loss_difference",
    "rank_spread_s",
    "noise",
    "status",
    "reason",
]
MACHINE = {"kind": "cpu", "accelerator": "A", "cores": 2, "hosts": 1}


def step(name, time_s=0.1, devices=1, unit="one update", **more):
    usual = {
        "id": name, "engine": "torch", "family": "strong", "work_unit": unit, "devices": devices, "status": "ok",
        "global_batch_sequences": 8, "step_time_s": {"p10": time_s, "p50": time_s, "p90": time_s, "n": 9},
        "placement": {"accelerator": "A", "cores": 2, "shared_cores": False, "pinned": False, "cores_per_device": 1.0},
    }  # fmt: skip
    return complete({**usual, **more})


def test_every_cell_has_every_key_of_the_interface(fake_measure):
    from lab_ranks import cell

    report = fake_measure([cell(4), cell(3, 2)])
    assert list(CELL_KEYS) == PROMISED
    for one in report:
        assert set(PROMISED) <= set(one)
    assert report["torch.strong.2.gb4"]["status"] == "ok" and report["torch.strong.2.gb3"]["status"] == "refused"


def test_a_report_comes_back_from_disk_as_it_was(tmp_path):
    report = Report(MACHINE, [step("a"), step("b", mfu=float("nan"))])
    write(tmp_path / "lab.json", report)
    back = load(tmp_path / "lab.json")
    assert back["a"] == report["a"]
    assert back["b"]["mfu"] is None
    assert back.machine == MACHINE


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "fine"}, 'lab.json, cell "a": status "fine" is none of ok, noisy,'),
        ({"id": ""}, "lab.json has a cell without an id"),
        ({"devices": 0}, "devices must be a whole number above 0, not 0"),
        ({"step_time_s": {"p50": -1}}, "step_time_s.p50 must be seconds above 0, not -1"),
        ({"layout": [2]}, "layout must be an object"),
    ],
)
def test_a_wrong_cell_is_named(change, said):
    text = json.dumps({"machine": MACHINE, "cells": [{**step("a"), **change}]})
    with pytest.raises(UserError) as caught:
        loads(text, "lab.json")
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": 1}', '{"machine": {}, "cells": [1]}'])
def test_what_is_no_report_is_said_in_a_sentence(text):
    with pytest.raises(UserError) as caught:
        loads(text, "lab.json")
    assert str(caught.value).startswith("lab.json ") and "course lab measure" in str(caught.value)


def test_a_cell_given_twice_is_refused():
    with pytest.raises(UserError, match="twice"):
        loads(json.dumps({"machine": MACHINE, "cells": [step("a"), step("a")]}))


def test_merged_hosts_are_numbered_and_are_no_cluster():
    joined = merge([Report(MACHINE, [step("a")]), Report(MACHINE, [step("a", 0.2), step("b")])])
    assert [(cell["id"], cell["host"]) for cell in joined] == [("a", 0), ("a@1", 1), ("b", 1)]
    assert joined.machine["hosts"] == 2 and len(joined.machine["machines"]) == 2
    assert "nothing was measured between the hosts" in describe(joined)
    again = merge([joined, Report(MACHINE, [step("a")])])
    assert [cell["id"] for cell in again] == ["a", "a@1", "b", "a@2"]
    assert refused(joined["a"], joined["a@1"]) == "a and a@1 were measured on different hosts"


def test_one_host_is_never_called_a_cluster():
    said = machine_text(MACHINE)
    assert said.startswith("One host: ") and "no cluster" in said


def test_efficiency_by_hand():
    # 2 devices take 0.06 s for what one does in 0.1 s: speedup 5/3, over 2 devices 5/6
    assert efficiency(step("a", 0.1), step("b", 0.06, 2)) == pytest.approx(5 / 6)
    weak = [step("a", 0.1, family="weak"), step("b", 0.125, 2, family="weak")]
    assert efficiency(*weak) == pytest.approx(0.8)


def place(**changes):
    return {**step("x")["placement"], **changes}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"work_unit": "another update"}, "different work units are not divided"),
        ({"placement": place(accelerator="B")}, "the devices differ (A, B)"),
        ({"placement": place(accelerators=["A", "B"])}, "the devices differ (A, B)"),
        ({"placement": place(shared_cores=True)}, "the 4 ranks of b share 2 cores"),
        ({"placement": place(shared_cores=True, pinned=True)}, "the 4 ranks of b share 2 cores"),
        ({"placement": place(cores=8, cores_per_device=2)}, "a device of a had 1 cores and one of b 2: pin"),
        ({"engine": "jax"}, "a ran on torch and b on jax"),
    ],
)
def test_what_means_nothing_is_not_divided(change, said):
    with pytest.raises(UserError) as caught:
        efficiency(step("a"), step("b", 0.05, 4, **change))
    assert said in str(caught.value)


def test_ranks_pinned_each_to_its_own_core_are_compared():
    pinned = place(shared_cores=True, pinned=True)
    assert efficiency(step("a"), step("b", 0.05, 2, placement=pinned)) == pytest.approx(1.0)


def test_a_curve_leaves_out_a_slowed_loader_and_says_what_it_refuses():
    slow = step("slow", 9.0, 2, request={"loader_s": 0.02})
    shared = step("d", 0.05, 4, placement=place(shared_cores=True))
    rows = curve(Report(MACHINE, [step("a"), step("b", 0.06, 2), slow, shared]))
    assert [row["id"] for row in rows] == ["a", "b", "d"]
    assert rows[1]["speedup"] == pytest.approx(5 / 3)
    assert rows[2]["efficiency"] is None and "share 2 cores" in rows[2]["refused"]


def test_flops_of_a_step_counted_matmul_by_matmul():
    """Forward: a matmul of m x k by k x n is 2 m k n; backward makes two of each; scores over the full square."""
    layers, hidden, heads, ffn, vocabulary, batch, length = 3, 96, 4, 384, 512, 5, 32
    tokens, head = batch * length, hidden // heads
    weights = 4 * [(tokens, hidden, hidden)] + [(tokens, hidden, ffn), (tokens, ffn, hidden)]
    scores = 2 * batch * heads * [(length, head, length)]
    matmuls = layers * (weights + scores) + [(tokens, hidden, vocabulary)]
    asked = {
        "model": {"layers": layers, "hidden": hidden, "heads": heads, "ffn": ffn, "vocabulary": vocabulary},
        "global_batch_sequences": batch, "sequence_length": length,
    }  # fmt: skip
    assert flops_per_step(asked) == 3 * sum(2 * m * k * n for m, k, n in matmuls)


def test_recorded_reports_name_their_hardware():
    for name, report in recorded().items():
        assert report.machine["accelerator"] and report.machine["versions"], name
        assert "One host: " in machine_text(report.machine) or report.machine["hosts"] > 1
