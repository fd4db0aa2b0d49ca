"""Step 3: the smallest group by brute force, and the table of axes against one layout counted by hand."""

from __future__ import annotations

import pytest

from course import catalog, shard
from course.problem import Layout


def brute(parameters, parts, room, tensor=1):
    """The first group size with which the state fits, by trying them."""
    found = {}
    for rung, least in (("none", (9, 9, 9)), ("zero1", (9, 9, 1)), ("zero2", (9, 1, 1)), ("zero3", (1, 1, 1))):
        found[rung] = None
        for ranks in range(1, 5000):
            state = sum(part / (ranks if first == 1 else 1) for part, first in zip(parts, least, strict=True))
            if parameters / tensor * state <= room:
                found[rung] = ranks
                break
    return found


@pytest.mark.parametrize("parameters", [1e9, 8.03e9, 70.6e9])
@pytest.mark.parametrize("parts", [(2, 2, 12), (2, 4, 12), (4, 4, 8)])
@pytest.mark.parametrize(("room", "tensor"), [(60 * 2**30, 1), (75e9, 8), (20e9, 2)])
def test_the_smallest_group_is_the_first_that_fits(parameters, parts, room, tensor):
    assert shard.smallest_groups(parameters, *parts, room_bytes=room, tensor=tensor) == brute(
        parameters, parts, room, tensor
    )


def test_solve_finds_the_same():
    parts = {"weight_bytes": 2, "gradient_bytes": 4, "optimizer_bytes": 12}
    found = shard.smallest_groups(8.03e9, *parts.values(), room_bytes=60 * 2**30)
    for rung in ("zero1", "zero2", "zero3"):
        one = {"stage_parameters": 8.03e9, "tensor": 1, **parts, **shard.STAGE_FLAGS[rung]}
        assert shard.state_per_device.solve("ranks", equals=60 * 2**30, **one).value == found[rung]


def test_a_group_that_exactly_fits_is_enough():
    # 2 + 4 bytes stay, 12 over 4 ranks are 3: 9 bytes a parameter to the byte
    assert shard.smallest_groups(1e9, 2, 4, 12, room_bytes=9e9)["zero1"] == 4
    assert shard.smallest_groups(1e9, 2, 4, 12, room_bytes=18e9)["none"] == 1


def by_axis(model, layout, **given):
    return {row.axis: row for row in shard.axis_costs(catalog.model(model), layout, **given)}


def test_the_axes_of_a_dense_layout_by_hand():
    layout = Layout(data=4, tensor=8, context=2, pipeline=4, sharding="zero1", micro_batch=2)
    rows = by_axis("llama-3-70b", layout, sequence_length=8192, micro_batches=3, reduced_gradient_bytes=4)
    assert set(rows) == {"data", "tensor", "context", "pipeline"}
    parameters = 70_553_706_496  # of the released tensors
    assert rows["data"].bytes_per_step == pytest.approx((4 + 2) * parameters / 4 / 8 * 7 / 8)
    tokens = 2 * 8192 / 2  # of a micro-batch, on each context rank
    assert rows["tensor"].bytes_per_step == pytest.approx(8 * 20 * 3 * 2 * 8192 * tokens * 7 / 8)
    # a ring hop: keys and values of the rank's one head, in three rounds
    assert rows["context"].bytes_per_step == pytest.approx(3 * 20 * 3 * 2 * 2 * 128 * tokens)
    assert rows["pipeline"].bytes_per_step == pytest.approx(2 * 3 * 2 * 8192 * tokens / 8)


def test_the_axes_of_a_mixture_by_hand():
    layout = Layout(data=16, tensor=2, expert=8, sharding="zero3")
    rows = by_axis("mixtral-8x7b", layout, sequence_length=8192, micro_batches=5)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert rows["expert data"].degree == 4
    assert rows["expert data"].bytes_per_step == pytest.approx(5 * 6 * experts / 8 * 3 / 4)
    assert rows["data"].bytes_per_step == pytest.approx(5 * 6 * (46_702_792_704 - experts) / 2 * 15 / 16)
    # tokens travel in shares of a half, two copies of each; the MLP needs no tensor collective
    assert rows["expert"].bytes_per_step == pytest.approx(4 * 32 * 5 * 2 * 2 * 4096 * 8192 / 2 * 7 / 8)
    assert rows["tensor"].bytes_per_step == pytest.approx(4 * 32 * 5 * 2 * 4096 * 8192 / 2)


def test_inputs_gathered_again_are_two_units_more_where_there_are_shares_of_them():
    batch = {"sequence_length": 8192, "micro_batches": 3}

    def times(layout, **given):
        return by_axis("llama-3-8b", layout, **batch, **given)["tensor"].times

    assert (times(Layout(tensor=8)), times(Layout(tensor=8), gathers_again=True)) == (8 * 32 * 3, 10 * 32 * 3)
    again = Layout(tensor=8, recompute="full")
    assert (times(again), times(again, gathers_again=True)) == (12 * 32 * 3, 14 * 32 * 3)
    whole = Layout(tensor=8, sequence_parallel=False)
    assert times(whole, gathers_again=True) == 8 * 32 * 3
    # whole experts leave attention alone to the tensor ranks: 5 units of 10
    mixture = by_axis("mixtral-8x7b", Layout(tensor=2, data=8, expert=8), **batch, gathers_again=True)
    assert mixture["tensor"].times == 5 * 32 * 3


def test_latents_go_round_where_the_model_has_them():
    layout = Layout(tensor=2, context=4, data=8, expert=8)
    row = by_axis("deepseek-v3", layout, sequence_length=8192, micro_batches=3)["context"]
    assert row.collective == "latents round a ring"
    assert row.bytes_per_step == pytest.approx(3 * 61 * 3 * (512 + 64) * 2 * 8192 * 3 / 4)


def test_a_single_device_sends_nothing():
    assert by_axis("llama-3-8b", Layout(), sequence_length=8192, micro_batches=4) == {}
    assert by_axis("mixtral-8x7b", Layout(), sequence_length=8192, micro_batches=4) == {}


def test_an_end_stage_makes_one_send_fewer_than_a_stage_between():
    # chunk by chunk: a chunk sends on unless it is the last of all, and back unless it is the first
    for stages in (2, 3, 4, 8):
        for chunks in (1, 2, 3):
            sends = [0] * stages
            for chunk in range(stages * chunks):
                sends[chunk % stages] += (chunk < stages * chunks - 1) + (chunk > 0)
            assert shard.pipeline_sends(stages, chunks) == max(sends)
            assert sends[0] == sends[-1] == 2 * chunks - 1
    two, four = (by_axis("llama-3-8b", Layout(pipeline=stages), sequence_length=8192, micro_batches=5)["pipeline"]
                 for stages in (2, 4))  # fmt: skip
    assert (two.times, four.times) == (5, 10)


def test_small_shard_groups_count_inside_the_group_and_between_groups():
    parameters = 8_030_261_248
    layout = Layout(data=64, sharding="zero3", shard_group=8)
    row = by_axis("llama-3-8b", layout, sequence_length=8192, micro_batches=3, reduced_gradient_bytes=4)["data"]
    assert row.bytes_per_step == pytest.approx(3 * parameters * (8 * 7 / 8 + 2 * 4 / 8 * 7 / 8))
