"""Losses that add up whatever the numbers, published pairs and series, faults of logs by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import catalog, estimate, mfu, records
from course.errors import UserError
from course.mfu.logs import peak, token_flops, tokens

RUNS = {row["id"]: row for row in records.runs()}
positive = st.floats(0.01, 100)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 500), st.integers(0, 50), positive, positive, st.floats(0, 1), st.floats(0, 1))
def test_what_is_lost_and_what_is_left_are_all_there_is(devices, spare, busy, waiting, speed, useful):
    held = {"devices": devices, "held_devices": devices + spare}
    step = {"step_time": busy + waiting}
    executed = devices * busy * 1e15 * speed
    flops = {"executed_flops": executed, "model_flops": executed * useful, "peak_flops_per_s": 1e15}
    lost = (
        mfu.unused_share(**held)
        + mfu.waiting_share(**held, **step, waiting_time=waiting)
        + mfu.slow_kernels_share(**held, **step, busy_time=busy, executed_flops=executed, peak_flops_per_s=1e15)
        + mfu.repeated_share(held_devices=devices + spare, **step, **flops)
    )
    left = mfu.mfu(model_flops=executed * useful, devices=devices + spare, peak_flops_per_s=1e15, time=busy + waiting)
    assert lost + left == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "use", "executed"),
    [("kor-0002", 0.415, 0.437), ("kor-0004", 0.514, 0.528), ("kor-0006", 0.560, 0.570), ("kor-0008", 0.563, 0.570)],
)
def test_the_published_pairs_of_selective_recomputation(name, use, executed):
    row = RUNS[name]
    layers, width, length, vocabulary = row["n_layers"], row["hidden"], 2048, 51200
    matrices = 12 * layers * width**2 + vocabulary * width
    given = {"devices": row["n_devices"], "peak_flops_per_s": 312e12, "time": row["step_time_s"]}
    total = row["global_batch_seqs"] * length
    model = (6 * matrices + 12 * layers * width * length) * total
    assert mfu.mfu(model_flops=model, **given) == pytest.approx(use, rel=0.005)
    # theirs charges forward and backward of the core as repeated
    charged = model + 12 * layers * width * length * total
    assert mfu.hfu(executed_flops=charged, **given) == pytest.approx(executed, rel=0.005)


def test_two_tables_of_one_model_count_differently():
    costs = estimate.flops_per_token(catalog.model("llama-3-8b"), 8192)
    for name, convention in (("nemo-0011", "full_attention"), ("mbr-0256", "causal_attention")):
        row = RUNS[name]
        implied = row["tflops_per_device"] * 1e12 / row["tokens_per_s_per_device"]
        assert implied == pytest.approx(costs[convention], rel=0.001)


def test_bounds_by_bubbles_of_the_405b_run():
    pipe = {"pipeline": 16, "micro_batches": 16, "baseline_devices": 8192, "scaled_devices": 16384}
    bounds = [mfu.pipeline_speedup(interleave=chunks, **pipe) for chunks in (1, 4, 5, 6, 8)]
    assert bounds == pytest.approx([47 / 31, 143 / 79, 175 / 95, 207 / 111, 271 / 143])
    # 400 and 41 %, 430 and 43 % of 989.4, each rounded: the columns together
    least = 2 * max(395, 0.405 * 989.4) / min(435, 0.435 * 989.4)
    assert bounds[2] < least < bounds[3]


def test_what_cannot_be_is_refused_with_causes_that_raise_it():
    with pytest.raises(UserError) as refused:
        mfu.refuse_above_one(6.9)
    assert "690%" in str(refused.value)
    assert "sparse" not in str(refused.value)  # a sparse peak makes an MFU smaller
    assert "all experts" in str(refused.value)


def test_a_deadline_by_another_convention():
    costs = estimate.flops_per_token(catalog.model("llama-3-8b"), 8192)
    by_short = mfu.devices_for_deadline(
        parameters=8.03e9, tokens=15e12, mfu=0.4, goodput=0.9, time=30 * 86400, peak_flops_per_s=989.4e12
    )
    assert by_short == pytest.approx(782.8, abs=0.1)
    work = costs["full_attention"] * 15e12
    days = mfu.run_time(model_flops=work, mfu=0.4, devices=941, peak_flops_per_s=989.4e12) / 86400 / 0.9
    assert days == pytest.approx(30, rel=1e-3)


def test_the_records_own_efficiencies():
    rows = [row for row in records.strong_series() if row["group_id"] == "G0005"]
    first = rows[0]
    for row in rows:
        ours = mfu.scaling_efficiency(
            baseline_devices=first["n_devices"], scaled_devices=row["n_devices"],
            baseline_time=1 / first["throughput"], scaled_time=1 / row["throughput"],
        )  # fmt: skip
        assert ours == pytest.approx(row["efficiency"], abs=1e-4)
        assert mfu.hours_ratio(
            baseline_devices=first["n_devices"], scaled_devices=row["n_devices"],
            baseline_time=1 / first["throughput"], scaled_time=1 / row["throughput"],
        ) == pytest.approx(1 / row["efficiency"], rel=1e-3)  # fmt: skip


LOG = mfu.Log(
    "llama-3-8b", "h100-sxm", 16, 10.0, 4096, data=8, micro_batch=2, accumulation=4, recompute="full", real=0.5
)


def test_a_log_by_hand():
    assert tokens(LOG) == 8 * 2 * 4096 * 4 / 2
    assert token_flops(LOG) == pytest.approx(6 * (8_030_261_248 - 128256 * 4096 - 65 * 4096) + 12 * 32 * 4096 * 4096)
    assert mfu.utilisation(LOG) == pytest.approx(token_flops(LOG) * tokens(LOG) / (16 * 989.4e12 * 10))


@pytest.mark.parametrize(
    ("fault", "times"),
    [("sparse peak", 1 / 2), ("peak of another device", 989.4 / 312), ("one device's peak for many", 16),
     ("accumulation forgotten", 1 / 4), ("padding counted", 2)],
)  # fmt: skip
def test_faults_of_peak_and_tokens_are_plain_factors(fault, times):
    assert mfu.utilisation(LOG, [fault]) / mfu.utilisation(LOG) == pytest.approx(times)


def test_faults_of_flops():
    square = 12 * 32 * 4096 * 4096
    matrices = token_flops(LOG) - square
    assert token_flops(LOG, ["causal half"]) == pytest.approx(matrices + square / 2)
    assert token_flops(LOG, ["sharded parameter count"]) == pytest.approx(matrices / 8 + square)
    head = 2 * 128256 * 4096
    assert token_flops(LOG, ["recomputation as useful work"]) == pytest.approx((matrices + square) * 4 / 3 - head)
    assert token_flops(LOG, ["all experts counted"]) == token_flops(LOG)  # it has none
    mixture = mfu.Log("mixtral-8x7b", "h100-sxm", 1, 1.0, 4096, data=1)
    six_more = 6 * 6 * 32 * 3 * 4096 * 14336  # experts beside the two, 6 FLOPs a parameter
    assert token_flops(mixture, ["all experts counted"]) - token_flops(mixture) == pytest.approx(six_more)


def test_a_program_that_assumes_an_a100_on_an_a100_assumes_another():
    log = mfu.Log("llama-3-8b", "a100-sxm-80gb", 1, 1.0, 4096, data=1)
    assert peak(log, ["peak of another device"]) == 989.4e12


def test_an_unknown_fault_is_told():
    with pytest.raises(UserError, match="nearest is 'sparse peak'"):
        mfu.utilisation(LOG, ["spare peak"])


def test_faults_have_the_names_of_the_table():
    from course.questions.mistakes import MISTAKES

    assert set(mfu.FAULTS) <= set(MISTAKES)
