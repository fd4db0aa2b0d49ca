"""The protocol holds what was promised, cells are legal on their machine, and illegal ones are refused beforehand."""

from __future__ import annotations

import math

import pytest
from lab_ranks import HERE

from course.lab.legality import refusal
from course.lab.protocol import batch_for, cells, counts, seconds, training, work_unit
from course.lab.report import FAMILIES

ONE = {**HERE, "cores": 1}
FOUR = {**HERE, "cores": 4}
GPU = {**HERE, "kind": "gpu", "accelerator": "NVIDIA H100 80GB HBM3", "gpus": [{"name": "H100", "memory_bytes": 8e10}]}
EIGHT = {**GPU, "gpus": GPU["gpus"] * 8, "cores": 64}
WORKER_KEYS = [
    "id",
    "family",
    "model",
    "sequence_length",
    "global_batch_sequences",
    "micro_batch",
    "micro_batches",
    "layout",
    "order",
    "devices",
    "precision",
    "warmup",
    "steps",
    "blocks",
    "alternate",
    "measure_exposed",
    "loader_s",
    "trace",
    "payload_bytes",
    "operation",
    "shape",
    "loss_steps",
]


@pytest.mark.parametrize("machine", [ONE, HERE, FOUR, GPU, EIGHT], ids=["1", "2", "4", "gpu", "8 gpus"])
@pytest.mark.parametrize("engine", ["torch", "jax"])
@pytest.mark.parametrize("quick", [True, False])
def test_every_cell_is_legal_whole_and_named_once(machine, engine, quick):
    found = cells(machine, quick, engine)
    assert [refusal(one, machine) for one in found] == [None] * len(found)
    assert len({one["id"] for one in found}) == len(found)
    for one in found:
        assert set(WORKER_KEYS) <= set(one)
        assert set(one["model"]) == {"layers", "hidden", "heads", "ffn", "vocabulary"}
        assert " " not in one["id"] and "/" not in one["id"]


def test_the_torch_protocol_on_two_cores_measures_all_families():
    found = cells(HERE, engine="torch")
    assert {one["family"] for one in found} == set(FAMILIES)
    grid = {tuple(one["layout"][axis] for axis in ("tensor", "pipeline", "context", "data"))
            for one in found if one["devices"] == 4}  # fmt: skip
    assert len(grid) >= 6
    assert all(math.prod(degrees) == 4 for degrees in grid)
    mixed = [degrees for degrees in grid if sorted(degrees) == [1, 1, 2, 2]]
    assert len(mixed) >= 4  # two axes at once, each of the four among them
    assert all(any(degrees[axis] == 2 for degrees in mixed) for axis in range(4))
    pipelines = {(one["layout"]["schedule"], one["micro_batches"]) for one in found if one["family"] == "pipeline"}
    assert pipelines == {("gpipe", m) for m in (1, 2, 4, 8)} | {("1f1b", m) for m in (2, 4, 8)}
    assert any(one["loader_s"] for one in found)
    layouts = [one["layout"] for one in found if one["family"] == "layout" and one["devices"] == 2]
    assert {one["sharding"] for one in layouts} == {"none", "zero2", "zero3"}
    assert any(one["sequence_parallel"] for one in layouts)


def test_quick_is_a_small_part_and_has_every_family():
    short, whole = cells(HERE, True), cells(HERE, False)
    assert {one["family"] for one in short} == set(FAMILIES)
    assert max(one["devices"] for one in short) == 2
    assert sum(map(seconds, short)) < 0.3 * sum(map(seconds, whole))
    jax = cells(HERE, True, "jax")  # compiling takes the time: layouts, what they are held against, and a peak
    assert {one["family"] for one in jax} == {"layout", "strong", "matmul"} and len(jax) == 6


@pytest.mark.parametrize("machine", [HERE, FOUR, EIGHT], ids=["2", "4", "8 gpus"])
def test_every_loss_has_a_serial_run_to_be_held_against(machine):
    for engine in ("torch", "jax"):
        found = cells(machine, engine=engine)
        serial = {one["global_batch_sequences"] for one in found
                  if one["devices"] == 1 and one["family"] in ("strong", "weak")}  # fmt: skip
        trained = {
            one["global_batch_sequences"] for one in found if one["family"] not in ("matmul", "collective", "p2p")
        }
        assert trained <= serial


@pytest.mark.parametrize("quick", [True, False])
def test_every_matmul_is_measured_alone_and_at_once(quick):
    shapes = [{tuple(one["shape"]) for one in cells(HERE, quick) if one["family"] == "matmul" and one["devices"] == n}
              for n in (1, 2)]  # fmt: skip
    assert shapes[0] == shapes[1] and len(shapes[0]) > 4


def test_one_device_has_a_baseline_and_no_messages():
    found = cells(ONE, engine="torch", grid=False)
    assert {one["devices"] for one in found} == {1}
    assert not {"collective", "p2p", "pipeline"} & {one["family"] for one in found}


def test_three_cores_are_measured_as_two():
    assert counts({**HERE, "cores": 3}) == [1, 2]


def test_work_units_tell_strong_from_weak():
    strong = [work_unit(training(HERE, "torch", "strong", devices, 8)) for devices in (1, 2)]
    weak = [work_unit(training(HERE, "torch", "weak", devices, 8 * devices)) for devices in (1, 2)]
    assert strong[0] == strong[1] and weak[0] == weak[1] and strong[0] != weak[0]
    assert work_unit(training(HERE, "torch", "strong", 1, 16)) != strong[0]


def request(devices=2, batch=8, micro_batches=1, machine=HERE, **layout):
    return training(machine, "torch", "layout", devices, batch, layout=layout, micro_batches=micro_batches)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (request(3, 8, data=3), "a global batch of 8 sequences does not divide into equal parts for 3 data-parallel"),
        (request(3, 9, tensor=3), "a model's heads of 4 does not split over 3 tensor ranks"),
        (request(3, 9, context=3), "a sequence of 64 tokens does not split over 3 context ranks"),
        (request(8, 8, pipeline=8, micro_batches=8), "4 layers leave some of 8 pipeline stages empty"),
        (request(3, 9, pipeline=3, micro_batches=3), "4 layers do not divide over 3 pipeline stages"),
        (
            request(2, 8, pipeline=2, schedule="1f1b"),
            "1F1B needs at least as many micro-batches as stages: 1 are fewer",
        ),
        (
            request(3, 8, data=2),
            "data 2 x tensor 1 x pipeline 1 x context 1 is 2, and the cell asks for 3 devices; 3 is",
        ),
        ({**request(2, 8, data=2), "micro_batch": 3}, "1 micro-batches of 3 sequences on 2 data-parallel ranks are 6"),
        ({**request(1, 8, data=1), "devices": 0}, "devices must be a whole number above 0, not 0"),
        ({**request(1, 8, data=1), "family": "collective"}, "a message needs at least 2 devices"),
    ],
)
def test_an_illegal_cell_is_refused_in_a_sentence(asked, said):
    why = refusal(asked, HERE)
    assert why is not None and why.startswith(said)
    assert "\n" not in why and not why.endswith(".")


def test_more_ranks_than_accelerators_are_refused():
    why = refusal(request(2, 8, data=2, machine=GPU), GPU)
    assert why == "2 ranks need 2 accelerators and this host has 1 accelerator: two ranks cannot share one"


def test_gpipe_takes_one_micro_batch():
    assert refusal(request(2, 8, pipeline=2, schedule="gpipe"), HERE) is None


def test_another_batch_of_the_same_cell():
    held = batch_for(training(HERE, "torch", "strong", 2, 8, alternate="x"), 24)
    assert (held["id"], held["micro_batch"], held["alternate"]) == ("torch.strong.2.gb24", 12, None)
    assert refusal(held, HERE) is None
