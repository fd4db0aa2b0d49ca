"""The Torch worker: every layout learns what one device learns, and holds and sends the bytes that arithmetic says.

Ranks are started here as any launcher would start them, by their environment. Times are not asserted, but for orders
that no neighbour on the machine can turn round.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course.traces import read_trace

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SHAPE = {"layers": 4, "hidden": 32, "heads": 4, "ffn": 64, "vocabulary": 64}
LENGTH, BATCH = 16, 8
MATRICES = SHAPE["layers"] * (4 * 32 * 32 + 2 * 32 * 64)
TABLES = 2 * 64 * 32
NORMS = 32 * (2 * SHAPE["layers"] + 1)
PARAMETERS = MATRICES + TABLES + NORMS
TOKEN = 4 * 32
"""Bytes of one token's activation."""
OUTWARD = ["data", "pipeline", "context", "tensor"]


def cell(name: str, devices: int, micro_batches: int = 1, **more: Any) -> dict[str, Any]:
    """A small training cell."""
    own = {key: more.pop(key) for key in list(more) if key in (
        "data", "tensor", "pipeline", "context", "sharding", "sequence_parallel", "schedule")}  # fmt: skip
    return {
        "id": name, "family": "layout", "model": SHAPE, "sequence_length": LENGTH, "global_batch_sequences": BATCH,
        "micro_batches": micro_batches, "layout": own, "devices": devices, "warmup": 1, "steps": 3, "blocks": 1,
        "loss_steps": 3, "profile": False, **more,
    }  # fmt: skip


def part(name: str, family: str, devices: int, **more: Any) -> dict[str, Any]:
    """A cell that trains nothing."""
    return {"id": name, "family": family, "devices": devices, "warmup": 1, "steps": 5, "blocks": 1, **more}


def launch(folder: Path, ranks: int, cells: list[dict[str, Any]]) -> tuple[list[int], str]:
    """Start the ranks, wait for them; their exit codes and all they said."""
    config = folder / "config.json"
    config.write_text(json.dumps({"engine": "torch", "folder": str(folder), "seed": 3, "cells": cells}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "course.lab.torch_engine", str(config)], cwd=ROOT, text=True,
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        said = [one.communicate(timeout=240)[0] for one in started]
    finally:
        for one in started:
            one.kill()
    return [one.returncode for one in started], "".join(said)


def lines(folder: Path) -> dict[str, dict[str, Any]]:
    """The finished cells by name."""
    found = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    return {one["id"]: one for one in found}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One rank: the serial run, and an ending that fails."""
    folder = tmp_path_factory.mktemp("one")
    cells = [
        cell("serial", 1, profile=True),
        cell("accumulated", 1, micro_batches=4, alternate="pair"),
        cell("fed slowly", 1, loader_s=0.06),
        cell("beside", 1, alternate="pair", blocks=3, steps=7),
        cell("uneven", 1, micro_batches=3),
        cell("broken", 1, model={**SHAPE, "layers": "four"}),
        cell("never", 1),
    ]
    codes, said = launch(folder, 1, cells)
    error = json.loads((folder / "error.0.json").read_text())
    return {"cells": lines(folder), "codes": codes, "said": said, "error": error, "folder": folder}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two ranks: every axis alone, every collective."""
    folder = tmp_path_factory.mktemp("two")
    cells = [
        cell("ddp", 2, data=2, trace=str(folder / "kept" / "ddp.json.gz"), measure_exposed=True),
        cell("ddp accumulated", 2, micro_batches=2, data=2),
        cell("zero2", 2, data=2, sharding="zero2"),
        cell("zero3", 2, data=2, sharding="zero3"),
        cell("zero3 accumulated", 2, micro_batches=2, data=2, sharding="zero3"),
        cell("tp", 2, tensor=2, profile=True),
        cell("tp sp", 2, tensor=2, sequence_parallel=True),
        cell("cp", 2, context=2),
        cell("gpipe", 2, micro_batches=2, pipeline=2, schedule="gpipe"),
        cell("1f1b", 2, micro_batches=4, pipeline=2, schedule="1f1b"),
        *(part(name, "collective", 2, operation=name, payload_bytes=4096)
          for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
        part("send", "p2p", 2, operation="send", payload_bytes=4096),
        part("matmul", "matmul", 2, shape=[64, 32, 16]),
        *(cell(f"turns {devices}", devices, data=devices, alternate="turns", blocks=3, steps=7, measure_exposed=True)
          for devices in (1, 2)),
        part("matmul alone", "matmul", 1, shape=[64, 32, 16], alternate="mixed"),
        part("to nobody", "p2p", 1, operation="send", payload_bytes=4096, alternate="mixed"),
        part("gossip", "collective", 1, operation="gossip"),
        cell("after", 2, tensor=2, alternate="mixed"),
    ]  # fmt: skip
    codes, said = launch(folder, 2, cells)
    assert codes == [0, 0], said
    return {"cells": lines(folder), "said": said, "folder": folder}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Four ranks: axes together, inside out as well."""
    folder = tmp_path_factory.mktemp("four")
    cells = [
        cell("tp dp outward", 4, tensor=2, data=2, order=OUTWARD),
        cell("sp zero3 outward", 4, tensor=2, data=2, sequence_parallel=True, sharding="zero3", order=OUTWARD),
        cell("pp dp", 4, micro_batches=2, pipeline=2, data=2),
        cell("pp zero2", 4, micro_batches=2, pipeline=2, data=2, sharding="zero2", schedule="gpipe"),
        cell("cp dp", 4, context=2, data=2),
        cell("sp pp", 4, micro_batches=2, tensor=2, sequence_parallel=True, pipeline=2),
        cell("zero3 of two", 2, data=2, sharding="zero3", alternate="some"),
        part("sum of two", "collective", 2, operation="all_reduce", payload_bytes=4096, alternate="some"),
        cell("cp of two", 2, context=2, alternate="some"),
    ]
    codes, said = launch(folder, 4, cells)
    assert codes == [0, 0, 0, 0], said
    return {"cells": lines(folder), "said": said}


def by_hand(steps: int) -> list[float]:
    """Losses of the same model written out: softmax, mask, norms and update by their definitions, in float64."""
    from course.lab.torch_engine.model import whole
    from course.lab.torch_engine.program import LEARNING_RATE, batch
    from course.lab.torch_engine.request import Request, Shape

    rows = batch(Request("a", "layout", shape=Shape(**SHAPE), sequence_length=LENGTH, global_batch=BATCH), 3)
    model = whole(Shape(**SHAPE), LENGTH, 3)
    weights = {name: one.detach().double().requires_grad_() for name, one in model.named_parameters()}
    places = model.positions.double()
    heads, size = SHAPE["heads"], SHAPE["hidden"] // SHAPE["heads"]
    future = torch.ones(LENGTH, LENGTH).triu(1).bool()

    def norm(x: Any, scale: Any) -> Any:
        return x / ((x * x).mean(-1, keepdim=True) + 1e-5) ** 0.5 * scale

    losses = []
    for _ in range(steps):
        x = weights["embedding.weight"][rows[:, :-1]] + places
        for layer in range(SHAPE["layers"]):
            own = {name.removeprefix(f"blocks.{layer}."): one for name, one in weights.items()}
            inward = norm(x, own["norm_attention.weight"]) @ own["attention.inward.weight"].T
            seen = []
            for head in range(heads):
                query, key, value = inward[..., 3 * size * head : 3 * size * (head + 1)].split(size, dim=-1)
                scores = (query @ key.transpose(1, 2) / size**0.5).masked_fill(future, -torch.inf).exp()
                seen.append(scores / scores.sum(-1, keepdim=True) @ value)
            x = x + torch.cat(seen, -1) @ own["attention.outward.weight"].T
            wide = norm(x, own["norm_feedforward.weight"]) @ own["feedforward.up.weight"].T
            wide = wide * (1 + torch.erf(wide / 2**0.5)) / 2
            x = x + wide @ own["feedforward.down.weight"].T
        logits = norm(x, weights["norm.weight"]) @ weights["head.weight"].T
        right = logits.exp() / logits.exp().sum(-1, keepdim=True)
        loss = -right.gather(-1, rows[:, 1:, None]).log().mean()
        losses.append(loss.item())
        found = torch.autograd.grad(loss, list(weights.values()))
        with torch.no_grad():
            for one, gradient in zip(weights.values(), found, strict=True):
                one -= LEARNING_RATE * gradient
    return losses


def test_one_device_learns_what_the_definitions_say(one: dict[str, Any]) -> None:
    serial = one["cells"]["serial"]
    wanted = by_hand(4)
    assert wanted[3] < wanted[0] - 0.01  # something was learnt, or equality would say little
    np.testing.assert_allclose(serial["extra"]["losses"], wanted, rtol=1e-5)
    assert serial["loss"] == serial["extra"]["losses"][3]


@pytest.mark.parametrize("launched", ["one", "two", "four"])
def test_every_layout_learns_the_same(launched: str, one: dict[str, Any], request: pytest.FixtureRequest) -> None:
    wanted = one["cells"]["serial"]["extra"]["losses"]
    found = {
        name: cell["extra"]["losses"]
        for name, cell in request.getfixturevalue(launched)["cells"].items() if cell.get("loss") is not None
    }  # fmt: skip
    assert len(found) == {"one": 4, "two": 13, "four": 8}[launched]
    for name, losses in found.items():
        np.testing.assert_allclose(losses, wanted, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("launched", "name", "weights"),
    [
        ("one", "serial", PARAMETERS),
        ("two", "ddp", PARAMETERS),
        ("two", "zero2", PARAMETERS / 2),
        ("two", "zero3", PARAMETERS / 2),
        ("two", "tp", (MATRICES + TABLES) / 2 + NORMS),
        ("two", "tp sp", (MATRICES + TABLES) / 2 + NORMS),
        ("two", "cp", PARAMETERS),
        ("two", "1f1b", (MATRICES + TABLES + 32 * 8) / 2 + 32),  # the last stage has the last norm as well
        ("four", "tp dp outward", (MATRICES + TABLES) / 2 + NORMS),
        ("four", "sp zero3 outward", (MATRICES + TABLES) / 4 + NORMS / 2),
        ("four", "pp zero2", ((MATRICES + TABLES + 32 * 8) / 2 + 32) / 2),
        ("four", "sp pp", (MATRICES + TABLES) / 4 + 32 * 4 + 32),
    ],
)
def test_a_rank_holds_its_share(launched: str, name: str, weights: float, request: pytest.FixtureRequest) -> None:
    cell = request.getfixturevalue(launched)["cells"][name]
    assert cell["held_bytes"] == 2 * 4 * weights  # weights and gradients of 4 bytes; plain SGD keeps nothing
    assert max(held["parameters"] for held in cell["extra"]["held"]) == 4 * weights


def test_collectives_carry_what_arithmetic_says(two: dict[str, Any]) -> None:
    sequences, layers = BATCH, SHAPE["layers"]
    activation = sequences * LENGTH * TOKEN
    wanted = {
        "ddp": {"all-reduce": 4 * PARAMETERS},
        "zero2": {"all-gather": 4 * PARAMETERS, "reduce-scatter": 4 * PARAMETERS},
        "zero3": {"all-gather": 2 * 4 * PARAMETERS, "reduce-scatter": 4 * PARAMETERS},
        # Four a layer, the embedding's forward and the head's backward, three numbers a token for the loss.
        "tp": {"all-reduce": (4 * layers + 2) * activation + 3 * 4 * sequences * LENGTH},
        "tp sp": {
            "all-gather": (4 * layers + 2) * activation,
            "reduce-scatter": (4 * layers + 2) * activation,
            "all-reduce": 3 * 4 * sequences * LENGTH + 4 * NORMS,
        },
        # Keys and values forward, their gradients backward, and the gradients of all weights.
        "cp": {"all-gather": 2 * layers * activation, "reduce-scatter": 2 * layers * activation,
               "all-reduce": 4 * PARAMETERS},
        "1f1b": {"send": activation, "receive": activation},
        "gpipe": {"send": activation, "receive": activation},
    }  # fmt: skip
    for name, traffic in wanted.items():
        cell = two["cells"][name]
        for rank, found in enumerate(cell["extra"]["traffic"]):
            counted = {kind: entry["bytes"] for kind, entry in found.items()}
            if name == "tp sp":
                # An all-gather in front of each pair of matrices, again for the gradient behind it; the embedding's
                # output is scattered, the head's input gathered, and backward the other way round.
                assert counted["all-gather"] == counted["reduce-scatter"]
            assert counted == traffic, (name, rank)
        assert cell["payload_bytes"] == sum(size for kind, size in traffic.items() if kind != "receive")
    for name in ("ddp accumulated", "zero3 accumulated"):  # gradients travel once, gathers every time
        found = two["cells"][name]["extra"]["traffic"][0]
        assert found["all-reduce" if name[0] == "d" else "reduce-scatter"]["bytes"] == 4 * PARAMETERS
    assert two["cells"]["zero3 accumulated"]["extra"]["traffic"][0]["all-gather"]["bytes"] == 4 * 4 * PARAMETERS


def test_orders_put_neighbours_side_by_side(four: dict[str, Any]) -> None:
    inward = [(at["tensor"], at["pipeline"]) for at in four["cells"]["sp pp"]["extra"]["coordinates"]]
    outward = [(at["tensor"], at["data"]) for at in four["cells"]["tp dp outward"]["extra"]["coordinates"]]
    assert inward == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert outward == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_parts_are_checked_and_counted(two: dict[str, Any]) -> None:
    for name, factor in (("all_reduce", 1.0), ("all_gather", 0.5), ("reduce_scatter", 0.5), ("all_to_all", 0.5),
                         ("send", 1.0)):  # fmt: skip
        cell = two["cells"][name]
        assert cell["payload_bytes"] == 4096 and cell["status"] == "ok"
        assert cell["busbw_bytes_per_s"] * cell["step_time_s"]["p50"] == pytest.approx(4096 * factor)
    matmul = two["cells"]["matmul"]
    assert matmul["matmul_flops_per_s"] >= 2 * 64 * 32 * 16 / matmul["step_time_s"]["p90"]


def test_figures_of_a_point_are_there_and_in_range(two: dict[str, Any], one: dict[str, Any]) -> None:
    for cell in (two["cells"]["tp"], one["cells"]["serial"], two["cells"]["ddp"]):
        times = cell["step_time_s"]
        assert 0 < times["p10"] <= times["p50"] <= times["p90"] and times["n"] == 3
        assert 0 <= cell["idle_share"] <= 1 and 0 <= cell["host_share"] <= 1
        assert cell["matmul_flops_per_s"] > 0 and cell["rank_spread_s"] >= 0 and cell["peak_memory_gib"] >= 0
        assert set(cell["noise"]) == {"foreign_cores", "runq_wait", "cpu_per_wall"}
    assert one["cells"]["serial"]["communication_s"] == 0 and one["cells"]["serial"]["payload_bytes"] == 0
    tensor = two["cells"]["tp"]
    assert tensor["exposed_communication_s"] <= tensor["communication_s"] and tensor["extra"]["exposed_by"] == "trace"
    assert two["cells"]["ddp"]["extra"]["exposed_by"] == "difference"
    assert [place["device"] for place in tensor["placement"]] == ["cpu:0", "cpu:1"]
    assert socket.gethostname() not in json.dumps(tensor["placement"]).split('"')


def test_the_kept_trace_is_read(two: dict[str, Any]) -> None:
    trace = read_trace(two["folder"] / "kept" / "ddp.json.gz")
    assert [step.name for step in trace.steps] == ["lab_step#0", "lab_step#1", "lab_step#2"]
    assert {total.kind for total in trace.by_kind()} == {"all-reduce"}
    assert trace.communication_s > 0 and trace.compute_s > 0
    counted = two["cells"]["ddp"]["extra"]["traffic"][0]["all-reduce"]["count"]
    assert trace.by_kind()[0].count == 3 * counted
    assert two["cells"]["ddp"]["communication_s"] == pytest.approx(trace.communication_s / 3)


def test_slow_input_is_seen(one: dict[str, Any]) -> None:
    slow, plain = one["cells"]["fed slowly"], one["cells"]["serial"]
    assert slow["input_wait_s"] > 0.01 > plain["input_wait_s"]
    assert slow["step_time_s"]["p50"] >= slow["input_wait_s"]


def test_cells_of_one_name_take_turns(one: dict[str, Any]) -> None:
    names = list(one["cells"])
    assert names.index("beside") == names.index("accumulated") + 1
    assert one["cells"]["beside"]["step_time_s"]["n"] == 7 and one["cells"]["accumulated"]["step_time_s"]["n"] == 3


def test_a_smaller_cell_takes_turns_with_a_larger_one(two: dict[str, Any], four: dict[str, Any]) -> None:
    """One device and two in one launch: the first rank alone, then both, block by block."""
    alone, both = two["cells"]["turns 1"], two["cells"]["turns 2"]
    assert list(two["cells"]).index("turns 2") == list(two["cells"]).index("turns 1") + 1
    assert [len(cell["placement"]) for cell in (alone, both)] == [1, 2]
    for cell in (alone, both):
        blocks = cell["extra"]["block_step_time_s"]
        assert len(blocks) == 3 and cell["step_time_s"]["n"] == 7
        assert min(blocks) <= cell["step_time_s"]["p50"] <= max(blocks)
    assert alone["payload_bytes"] == 0
    assert both["payload_bytes"] == 4 * PARAMETERS and both["extra"]["exposed_by"] == "difference"
    assert two["cells"]["matmul alone"]["matmul_flops_per_s"] > 0
    assert two["cells"]["to nobody"]["reason"] == "A message needs two ranks, and there is one."
    assert two["cells"]["gossip"]["reason"].endswith("not gossip.")
    shared, summed = four["cells"]["zero3 of two"], four["cells"]["sum of two"]
    assert [len(cell["placement"]) for cell in (shared, summed)] == [2, 2]
    assert shared["held_bytes"] == 2 * 4 * PARAMETERS / 2
    assert summed["busbw_bytes_per_s"] * summed["step_time_s"]["p50"] == pytest.approx(4096)


def test_a_block_says_whose_turn_it_is_before_it_begins() -> None:
    """What fails in a block is told of its cell, and a rank without a part has said that it has none."""
    from types import SimpleNamespace

    from course.lab.torch_engine.timing import measure

    seen: list[object] = []
    ranks = SimpleNamespace(beat=lambda name, step: seen.append((name, step)), meet=lambda: seen.append("met"))
    lane = SimpleNamespace(own=[], steps=4, run=lambda _, count: seen.append(count))
    measure([("alone", ranks, []), ("both", ranks, [lane])], 2, seen.append)  # type: ignore[list-item]
    assert seen == ["alone", ("alone", 0), "met", "both", ("both", 0), 2, "met",
                    "both", ("both", 0), 2, "met", "alone", ("alone", 0), "met"]  # fmt: skip


def test_a_batch_that_does_not_divide_is_refused(one: dict[str, Any]) -> None:
    refused = one["cells"]["uneven"]
    assert refused["status"] == "refused" and "8 is not divisible by data 1 × micro_batches 3" in refused["reason"]


def test_what_fails_leaves_word_and_what_is_done_stays(one: dict[str, Any]) -> None:
    assert one["codes"] == [1] and "never" not in one["cells"]
    error = one["error"]
    assert error["cell"] == "broken" and error["type"] == "ValueError" and "four" in error["message"]
    assert (one["folder"] / "heartbeat.0").read_text().split()[0] in ("fed", "uneven", "serial", "beside")


def test_nothing_is_said_but_by_failures(two: dict[str, Any], four: dict[str, Any]) -> None:
    assert two["said"] == "" and four["said"] == ""
