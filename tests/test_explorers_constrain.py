"""The explorers and figures of step 2: their numbers against tensors walked, schedules simulated, runs printed."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from course import catalog, records
from course.errors import UserError
from course.explorers import View
from course.explorers import constrain as explorers
from course.pictures import constrain as pictures
from course.simulators import pipeline, saved, shapes

GIB = 2**30


def cells(view: View) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in view.rows}


def bars(view: View, section: int, row: str) -> dict[str, float]:
    return dict(view.picture["sections"][section].rows[row])


# ---------------------------------------------------------------- one device
def test_state_is_divided_rung_by_rung() -> None:
    explorer = explorers.memory(devices=8)
    stored = 8_030_261_248
    for divided, (w, g, o) in {
        "none": (1, 1, 1), "zero1": (1, 1, 8), "zero2": (1, 8, 8), "zero3": (8, 8, 8),
    }.items():  # fmt: skip
        held = bars(explorer.view(divided=divided), 1, "as set")
        assert held["weights"] == 2 * stored / w
        assert held["gradients"] == 4 * stored / g
        assert held["optimizer"] == 12 * stored / o
        layer = 218_112_000
        whole = (2 * 2 * layer if w > 1 else 0) + (4 * layer if g > 1 else 0)
        assert held["buffers"] == pytest.approx(whole * 7 / 8)


def test_memory_says_what_limits_and_what_fits() -> None:
    assert (
        "the first limit of llama-3-8b on one H100 SXM 80 GB is optimizer state" in explorers.memory().view().sentence
    )
    small = explorers.memory(model="llama-3.2-1b").view()
    assert "is nothing but time" in small.sentence and small.sentence.endswith("it fits.")
    assert cells(small)["not counted"]


def test_checkpoints_every_few_layers() -> None:
    explorer = explorers.memory(model="llama-3.1-405b")
    held = [bars(explorer.view(checkpoints=every), 1, "as set")["activations"] for every in (1, 3, 18)]
    assert held == [8192 * (126 // every * 32768 + every * 520192) for every in (1, 3, 18)]
    with pytest.raises(UserError, match="checkpoints can be 0, 1, 2, 3, 6"):
        explorer.view(checkpoints=4)


def test_a_latent_model_can_be_asked_about() -> None:
    held = bars(explorers.memory(model="deepseek-v3").view(), 0, "undivided")
    assert held["weights"] == 2 * 671_026_419_200


# ---------------------------------------------------------------- splitting
@pytest.mark.parametrize(("tensor", "sequence_parallel"), [(1, False), (8, False), (8, True)])
@pytest.mark.parametrize("context", [1, 4])
@pytest.mark.parametrize(("pipeline_stages", "micro_batches"), [(1, 8), (4, 8), (8, 4)])
def test_what_is_left_is_what_a_rank_saves(
    tensor: int, sequence_parallel: bool, context: int, pipeline_stages: int, micro_batches: int
) -> None:
    model, length = catalog.model("llama-2-70b"), 1024
    view = explorers.cuts(sequence_length=length).view(
        tensor=tensor, sequence_parallel=sequence_parallel, context=context, pipeline=pipeline_stages,
        micro_batches=micro_batches,
    )  # fmt: skip
    how = saved.Execution(tensor=tensor, sequence_parallel=sequence_parallel)
    layer = shapes.total_bytes(saved.saved_in_layer(model, 1, length // context, how))
    order = pipeline.one_forward_one_backward(pipeline_stages, micro_batches)
    flight = pipeline.simulate(order, 1, 2).peak_in_flight()[0]
    left = sum(bars(view, 0, "first stage").values())
    assert left == pytest.approx(layer * model.layers / pipeline_stages * flight)


def test_stages_must_divide_the_layers() -> None:
    with pytest.raises(UserError, match="pipeline can be 1, 2, 4, 5, 8"):
        explorers.cuts().view(pipeline=3)


# ---------------------------------------------------------------- runs and experts
def test_printed_runs_are_shown_beside_the_count() -> None:
    explorer = explorers.measured()
    printed = {row["id"]: row for row in records.runs()}
    offered = explorer.controls[0].options
    assert len(offered) == 58
    assert not any(word in label for label in offered for word in ("FAILED", "failed", "ran"))
    for name in offered.values():
        view = explorer.view(run=name)
        peak = printed[name]["peak_mem_gib"]
        assert cells(view)["measured"] == ((f"{peak:.1f}",) if peak else ("FAILED",))
        assert records.failed(printed[name]) is ("FAILED" in view.sentence)


def test_the_game_shows_what_to_add_up_and_no_outcome() -> None:
    asked = explorers.measured(outcome=False)
    view = asked.view(run="usp-0066")  # 1.34B: 20 bytes a parameter, micro-batch 2, optimizer state over 16
    stored = 131072 * 2048 + 2048 + 16 * (4 * 2048**2 + 3 * 2048 * 8192 + 2 * 2048)
    one = bars(view, 0, "undivided")
    assert (one["weights"], one["gradients"], one["optimizer"]) == (2 * stored, 6 * stored, 12 * stored)
    assert one["logits"] == 14 * 4096 * 131072
    assert "optimizer state divided by 16" in view.sentence and "measured" not in cells(view)
    failed = asked.view(run="usp-2385")
    assert not any("FAILED" in word for word in (failed.sentence, *(cell for row in failed.rows for cell in row)))
    assert "FAILED" in asked.view(run="usp-2385", outcome=True).sentence


def test_experts_say_how_often_each_part_is_held() -> None:
    held = "1,024 devices hold the experts once and all else 16 times"
    assert held in explorers.experts(model="deepseek-v3", devices=64, expert_devices=1024).view().sentence
    assert "16 devices hold the experts 2 times and all else once" in (
        explorers.experts(devices=16, expert_devices=8).view().sentence
    )
    assert "1 device holds the experts once and all else once" in explorers.experts().view().sentence


def test_experts_are_divided_by_their_own_number() -> None:
    view = explorers.experts(model="deepseek-v3", devices=64, expert_devices=256).view()
    routed = 58 * 256 * 3 * 7168 * 2048
    held = bars(view, 1, "1 share")
    assert held["experts"] == 18 * routed / 256
    assert held["all else"] == 18 * (671_026_419_200 - routed) / 64


# ---------------------------------------------------------------- figures
SHARES = {"a on b": {"one layer": 0.1, "weights": 0.5, "with gradients": 2, "with optimizer": 5, "with activations": 6}}
FIGURES = {
    "memory": lambda: pictures.memory({"one": {"weights": 3.0, "activations": 5.0}}, "found", capacity=(6.0, "full")),
    "stages": lambda: pictures.stages({"one": {"inside attention": 3.0}}, "found", heading="GiB"),
    "first_limits": lambda: pictures.first_limits(SHARES, {"a on b": "gradients"}, "found"),
    "checkpoints": lambda: pictures.checkpoints({"a": {1: 3.0, 2: 2.0, 4: 4.0}}, "found"),
    "length": lambda: pictures.length([1024, 2048], [1.0, 2.0], [1.0, 1.9], "found"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_found_and_is_not_shown_twice(name: str) -> None:
    before = plt.get_fignums()
    figure = FIGURES[name]()
    assert "found" in " ".join(text.get_text() for text in figure.findobj(plt.Text))
    assert plt.get_fignums() == before


def test_the_least_of_a_curve_is_named() -> None:
    words = [text.get_text() for text in FIGURES["checkpoints"]().findobj(plt.Text)]
    assert "2.0 GiB at 2" in words
