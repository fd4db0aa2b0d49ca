"""The JAX engine against answers of other origin: NumPy's loss, counts on paper, bytes by hand; and run for real.

One model of two layers serves all: each kind of launch is run once and then looked at from all sides.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course.lab import figures
from course.lab.jax_engine import compiled, kernels, meshes, model
from course.lab.jax_engine.__main__ import _out_of_memory
from course.traces import read_trace

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"layers": 2, "hidden": 128, "heads": 4, "ffn": 512, "vocabulary": 512}
SHALLOW = {**SIZES, "layers": 1}  # where steps are run: it compiles in half the time
BATCH, LENGTH, UPDATES = 4, 32, 3
# By hand: two embeddings, and for each layer four square matrices, two of the MLP and two norms; a last norm.
PARAMETERS = 2 * 512 * 128 + 2 * (4 * 128 * 128 + 2 * 128 * 512 + 2 * 128) + 128
ARRAYS = 2 + 2 * 6 + 1
TOKEN_BYTES = 4 * BATCH * (LENGTH + 1)

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed, so its engine cannot run")


def cell(name: str, devices: int = 1, family: str = "layout", **more: Any) -> dict[str, Any]:
    degrees = {key: more.pop(key) for key in ("data", "tensor", "context", "pipeline", "sharding") if key in more}
    return {
        "id": name, "family": family, "model": SHALLOW, "sequence_length": LENGTH, "global_batch_sequences": BATCH,
        "devices": devices, "layout": degrees, "precision": "fp32", "warmup": 1, "steps": 4, "blocks": 2,
        "loss_steps": UPDATES, **more,
    }  # fmt: skip


def start(folder: Path, cells: list[dict[str, Any]], processes: int = 1, **more: str) -> list[subprocess.Popen[str]]:
    """The worker as a launcher starts it: one argument, and torchrun's environment names."""
    config = folder / "config.json"
    config.write_text(json.dumps({"engine": "jax", "folder": str(folder), "threads": 1, "cells": cells}))
    alone = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    alone |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": compiled.QUICK, "PYTHONPATH": str(ROOT), **more}
    port = str(free_port())
    ranks = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1",
         "MASTER_PORT": port} if processes > 1 else {}
        for rank in range(processes)
    ]  # fmt: skip
    command = [sys.executable, "-m", "course.lab.jax_engine", str(config)]
    return [
        subprocess.Popen(command, env=alone | rank, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in ranks
    ]


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def finish(workers: list[subprocess.Popen[str]], seconds: float = 240) -> list[tuple[int, str]]:
    """Exit code and all that each worker printed; none is left running."""
    try:
        said = [worker.communicate(timeout=seconds) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(worker.returncode, out + err) for worker, (out, err) in zip(workers, said, strict=True)]


def records(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Three launches side by side: one device, two simulated ones, two processes."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("one", "two", "processes")}
    message = {"family": "collective", "payload_bytes": 4096}
    launches = {
        "one": start(folders["one"], [
            cell("serial"), cell("matmul", family="matmul", shape=[64, 32, 16]),
        ]),
        "two": start(folders["two"], [
            cell("data", 2, data=2, measure_exposed=True, alternate="turns", loader_s=0.02,
                 trace=str(folders["two"] / "data.json")),
            cell("other", 2, data=2, sharding="zero2", alternate="turns"),
            *(cell(operation, 2, operation=operation, **message) for operation in kernels.OPERATIONS),
        ]),
        "processes": start(folders["processes"], [
            cell("data", 2, data=2, trace=str(folders["processes"] / "data.json.gz")),
            cell("zero3", 2, data=2, sharding="zero3"), cell("alone", 1),
        ], processes=2),
    }  # fmt: skip
    try:
        for name, workers in launches.items():
            assert finish(workers) == [(0, "")] * len(workers), f"{name}: a worker failed, or spoke to the terminal"
        yield folders
    finally:
        for workers in launches.values():
            for worker in workers:
                worker.kill()


@pytest.fixture(scope="module")
def programs() -> dict[str, dict[str, Any]]:
    """What the compiler made of each layout, by the function that a notebook calls."""
    wanted = [
        cell("serial"), cell("data", 2, data=2), cell("by hand", 2, data=2, explicit=True, micro_batches=2),
        cell("zero3", 2, data=2, sharding="zero3"), cell("tensor", 2, tensor=2), cell("context", 2, context=2),
        cell("both", 4, data=2, tensor=2, sharding="zero3"), cell("pipeline", 2, pipeline=2),
    ]  # fmt: skip
    deep = [{**one, "model": SIZES} for one in wanted]
    return {record["id"]: record for record in compiled.compile_cells(deep, timeout_s=240)}


@needs_jax
def test_the_loss_is_numpys(programs: dict[str, dict[str, Any]]):
    shape = model.Shape(**SIZES)
    drawn = {name: array.astype(float) for name, array in model.draw_parameters(shape, 0).items()}
    tokens = model.draw_batch(BATCH, LENGTH, shape.vocabulary, 0)
    losses = programs["serial"]["extra"]["losses"]
    assert losses[0] == pytest.approx(by_numpy(drawn, tokens), rel=1e-5)
    assert len(losses) == UPDATES + 1 and np.diff(losses).max() < -0.05  # each update on the same batch helps
    assert programs["serial"]["loss"] == losses[-1]


def by_numpy(p: dict[str, np.ndarray], tokens: np.ndarray) -> float:
    """The same decoder, head by head and sequence by sequence."""
    total = 0.0
    for sequence in tokens:
        inputs, labels = sequence[:-1], sequence[1:]
        place, rate = np.arange(len(inputs))[:, None], 10000.0 ** (-np.arange(0, 128, 2) / 128)
        x = p["embedding"][inputs] + 0.02 * np.hstack((np.sin(place * rate), np.cos(place * rate)))
        for layer in ("layer0.", "layer1."):
            normed = rms(x) * p[layer + "attention_norm"]
            for head in range(4):
                q, k, v = (normed @ p[layer + "attention_in"][:, part, head] for part in range(3))
                for row in range(len(inputs)):
                    weights = np.exp(k[: row + 1] @ q[row] / math.sqrt(32))
                    x[row] += weights @ v[: row + 1] / weights.sum() @ p[layer + "attention_out"][head]
            wide = rms(x) * p[layer + "mlp_norm"] @ p[layer + "mlp_in"]
            x = x + wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2))) / 2 @ p[layer + "mlp_out"]
        logits = rms(x) * p["norm"] @ p["head"]
        total += sum(math.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, labels, strict=True))
    return total / labels.size / len(tokens)


def rms(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)


@needs_jax
def test_every_layout_trains_the_serial_model(programs: dict[str, dict[str, Any]], ran: dict[str, Path]):
    deep = {f"compiled {name}": record for name, record in programs.items() if name != "pipeline"}
    shallow = {
        f"{launch} {name}": record
        for launch in ("one", "two", "processes") for name, record in records(ran[launch]).items() if record.get("loss")
    }  # fmt: skip
    assert (len(deep), len(shallow)) == (7, 1 + 2 + 2)
    for several, serial in ((deep, deep["compiled serial"]), (shallow, shallow["one serial"])):
        for name, record in several.items():
            assert record["extra"]["losses"] == pytest.approx(serial["extra"]["losses"], rel=1e-4), name
    assert abs(shallow["one serial"]["loss"] / deep["compiled serial"]["loss"] - 1) > 1e-4  # another model shows


@needs_jax
def test_flops_of_a_device_halve(programs: dict[str, dict[str, Any]]):
    flops = {name: record["extra"]["flops_per_device"] for name, record in programs.items() if "extra" in record}
    for name in ("data", "zero3", "tensor", "context"):
        assert flops[name] == pytest.approx(flops["serial"] / 2, rel=0.01), name
    assert flops["both"] == pytest.approx(flops["serial"] / 4, rel=0.02)
    assert flops["by hand"] is None  # its micro-batches are a loop: the compiler counts its body once
    assert programs["by hand"]["extra"]["loops"] == 1 and programs["data"]["extra"]["loops"] == 0
    counted = model.flops_per_token(model.Shape(**SIZES), LENGTH) * BATCH * LENGTH
    assert 1.0 < flops["serial"] / counted < 1.05  # the compiler counts what is no matmul as well


@needs_jax
def test_collectives_are_those_of_the_layout(programs: dict[str, dict[str, Any]]):
    counts = {name: record["extra"]["collectives"] for name, record in programs.items() if "extra" in record}
    layers = SIZES["layers"]
    assert counts["serial"] == {}
    assert counts["data"] == counts["by hand"] == {"all-reduce": 1}
    assert counts["zero3"] == {"all-gather": ARRAYS, "all-reduce": 1}  # on CPUs no reduce-scatter
    # Two forward and two backward in a layer; the softmax over a cut vocabulary: greatest, sum, label's.
    assert counts["tensor"] == {"all-reduce": 4 * layers + 3}
    assert counts["context"]["all-gather"] == 2 * layers  # keys and values
    size = programs["data"]["extra"]["collective_bytes"]
    assert size == {"all-reduce": 4 * PARAMETERS + 4}  # every gradient, and the loss
    assert programs["zero3"]["extra"]["collective_bytes"]["all-gather"] == 4 * PARAMETERS


@needs_jax
def test_bytes_of_a_device(programs: dict[str, dict[str, Any]]):
    handed = {name: record["extra"]["argument_bytes"] for name, record in programs.items() if "extra" in record}
    assert handed["serial"] == 4 * PARAMETERS + TOKEN_BYTES
    assert handed["data"] == 4 * PARAMETERS + TOKEN_BYTES // 2
    assert handed["zero3"] == 4 * PARAMETERS // 2 + TOKEN_BYTES // 2
    held = {name: record.get("held_bytes") for name, record in programs.items()}
    assert held["data"] == 4 * PARAMETERS and held["zero3"] == 4 * PARAMETERS // 2
    # Norms and embedding are whole on each tensor rank, all else is halved.
    whole = 4 * (512 * 128 + 5 * 128)
    assert held["tensor"] == whole + (4 * PARAMETERS - whole) // 2
    extra = programs["data"]["extra"]
    # Beside whole gradients a device has the activations of half the batch.
    activations = programs["serial"]["extra"]["temporary_bytes"] - 4 * PARAMETERS
    assert extra["temporary_bytes"] - 4 * PARAMETERS < 0.7 * activations
    peak = handed["data"] + extra["temporary_bytes"] + extra["output_bytes"] - extra["aliased_bytes"]
    assert extra["peak_memory_by"] == "compiler" and programs["data"]["peak_memory_gib"] == peak / 2**30


@needs_jax
def test_what_cannot_run_is_refused_in_its_place(programs: dict[str, dict[str, Any]], ran: dict[str, Path]):
    assert programs["pipeline"]["status"] == "refused" and "--engine torch" in programs["pipeline"]["reason"]
    assert records(ran["processes"])["alone"]["status"] == "refused"


@needs_jax
def test_one_device_is_held_to_one_core(ran: dict[str, Path]):
    one, two = records(ran["one"])["serial"], records(ran["two"])["data"]
    if hasattr(os, "sched_setaffinity"):
        place = one["placement"]
        assert place["pinned"] and place["cores_per_device"] == 1 and len(place["rows"][0]["cores"]) == 1
        assert one["noise"]["cpu_per_wall"] < 1.1  # unheld it was 1.86
    assert two["placement"]["simulated"] and two["placement"]["shared_cores"] and not two["placement"]["pinned"]
    cells = ({**one, "devices": 1}, {**two, "devices": 2})
    serial, data = ({"work_unit": "u", "engine": "jax", **cell} for cell in cells)
    assert "share" in str(figures.refused(serial, data))


@needs_jax
def test_times_of_simulated_devices(ran: dict[str, Path]):
    found = records(ran["two"])
    data, other = found["data"], found["other"]
    assert [data["step_time_s"]["n"], other["step_time_s"]["n"]] == [4, 4]
    assert data["step_time_s"]["p10"] <= data["step_time_s"]["p50"] <= data["step_time_s"]["p90"]
    assert 0.02 <= data["input_wait_s"] < data["step_time_s"]["p50"] and other["input_wait_s"] < 0.01
    assert 0 < data["communication_s"] < data["extra"]["step_time_by_hand_s"]
    assert data["exposed_communication_s"] < data["extra"]["step_time_by_hand_s"]
    assert "exposed_communication_s" not in other
    assert data["matmul_flops_per_s"] > 1e6 and data["rank_spread_s"] is None
    assert set(data["noise"]) == {"foreign_cores", "runq_wait", "cpu_per_wall"}
    assert (ran["two"] / "heartbeat.0").read_text().split()[0] in found
    assert data["extra"]["versions"].keys() == {"python", "jax", "jaxlib", "numpy"}


@needs_jax
def test_single_operations(ran: dict[str, Path]):
    found = records(ran["one"]) | records(ran["two"])
    time = found["matmul"]["step_time_s"]["p10"]
    assert found["matmul"]["matmul_flops_per_s"] == pytest.approx(2 * 64 * 32 * 16 / time)
    assert found["matmul"]["extra"]["flops_per_device"] == 2 * 64 * 32 * 16
    for operation, kind, factor in (
        ("all_reduce", "all-reduce", 1.0), ("all_gather", "all-gather", 0.5),
        ("reduce_scatter", "reduce-scatter", 0.5), ("all_to_all", "all-to-all", 0.5),
    ):  # fmt: skip
        record = found[operation]
        assert record["extra"]["collectives"] == {kind: 1}
        assert record["busbw_bytes_per_s"] == pytest.approx(factor * 4096 / record["step_time_s"]["p50"])
        whole = record["extra"]["argument_bytes" if operation != "all_gather" else "output_bytes"]
        assert whole == 4096, operation


@needs_jax
def test_two_processes_are_two_devices(ran: dict[str, Path]):
    found = records(ran["processes"])
    place = found["data"]["placement"]
    assert place["processes"] == 2 and not place["simulated"]
    assert [row["rank"] for row in place["rows"]] == [0, 1]
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= 2:
        assert place["pinned"] and place["cores_per_device"] == 1
        assert not set(place["rows"][0]["cores"]) & set(place["rows"][1]["cores"])
    assert found["data"]["extra"]["collectives"] == {"all-reduce": 1}
    assert 2 * found["zero3"]["held_bytes"] == found["data"]["held_bytes"]
    assert found["data"]["rank_spread_s"] >= 0
    assert {(ran["processes"] / f"heartbeat.{rank}").exists() for rank in (0, 1)} == {True}


@needs_jax
@pytest.mark.parametrize(("launch", "file"), [("two", "data.json"), ("processes", "data.json.gz")])
def test_the_trace_is_read(ran: dict[str, Path], launch: str, file: str):
    trace = read_trace(ran[launch] / file)
    assert len(trace.steps) == 3
    assert [collective.kind for collective in trace.collectives] == ["all-reduce"] * 3
    assert trace.compute_s > 0 and trace.exposed_s > 0


@needs_jax
def test_an_error_names_its_cell_and_keeps_what_is_finished(tmp_path: Path):
    broken = cell("broken", family="matmul", shape=None)
    ((code, said),) = finish(start(tmp_path, [cell("fine", family="matmul", shape=[8, 8, 8]), broken]))
    error = json.loads((tmp_path / "error.0.json").read_text())
    assert code == 1 and error["cell"] == "broken" and error["type"] == "TypeError" and error["time"] > 1e9
    assert said == f"TypeError: {error['message']}\n"
    assert set(records(tmp_path)) == {"fine"}


def test_without_jax_one_sentence_says_so(tmp_path: Path):
    (tmp_path / "jax.py").write_text("raise ImportError('planted')")
    ((code, said),) = finish(start(tmp_path, [cell("serial")], PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}"))
    assert code == 1 and said.startswith("UserError: jax is not installed") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), True),
        (RuntimeError("INVALID_ARGUMENT: shapes"), False),
    ],
)
def test_out_of_memory_is_told_from_the_rest(reason: Exception, expected: bool):
    assert _out_of_memory(reason) is expected


def test_a_collective_is_counted_by_what_it_is_not_by_its_name():
    text = """
  %fusion.1 = f32[8]{0} fusion(%all-reduce.2), kind=kLoop, calls=%all-gather, metadata={op_name="jit(f)/all-reduce(x)"}
  %mine = (f32[2,3]{1,0}, /*index=1*/bf16[4]{0}, (s8[5]{0})) all-reduce(%a, %b, %c), to_apply=%sum
  ROOT %x.1 = f32[16]{0:T(8)} all-gather(f32[8]{0} %d), dimensions={0}
  %s = (f32[8]{0}, f32[16]{0}) all-gather-start(%e), dimensions={0}
  %d.2 = f32[16]{0} all-gather-done(%s)
  %r = f32[7]{0} all-reduce-start(%e)
  all-to-all(%not an instruction)
"""
    assert compiled.collective_counts(text) == {"all-gather": 2, "all-reduce": 2}
    assert compiled.collective_bytes(text) == {"all-gather": 64 + 64, "all-reduce": 24 + 8 + 5 + 28}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"global_batch_sequences": 3}, "global_batch_sequences is 3"),
        ({"layout": {"tensor": 2}, "model": {**SIZES, "heads": 3}}, "heads is 3"),
        ({"layout": {"context": 2}, "sequence_length": 31}, "sequence_length is 31"),
        ({"layout": {"data": 4}}, "multiply to 4"),
        ({"layout": {"data": 2, "sharding": "zero1"}}, "zero1"),
        ({"layout": {"tensor": 2, "sequence_parallel": True}}, "sequence_parallel"),
        ({"layout": {"tensor": 2}, "explicit": True}, "explicit"),
    ],
)
def test_refusals_name_the_field(change: dict[str, Any], word: str):
    fine = cell("fine", 2, data=2)
    assert meshes.refusal(fine) is None
    assert word in str(meshes.refusal({**fine, **change}))


def test_the_recorded_figures_name_their_versions_and_agree_with_paper():
    found = compiled.recorded()
    assert {"versions", "accelerator"} <= found["machine"].keys() and found["machine"]["versions"]["jax"]
    by_name = {record["id"].split(".")[-1]: record["extra"] for record in found["cells"]}
    assert by_name["serial"]["flops_per_device"] / by_name["data"]["flops_per_device"] == pytest.approx(2, rel=0.01)
    assert by_name["zero3"]["collectives"]["all-gather"] == 4 * 6 + 3
