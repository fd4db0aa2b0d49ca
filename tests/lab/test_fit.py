"""Fits find the constants that made synthetic cells, and their bands cover what was held out."""

from __future__ import annotations

import numpy as np
import pytest
from lab_ranks import HERE

from course.errors import UserError
from course.lab.figures import flops_per_step
from course.lab.finish import placement
from course.lab.fitting import fit, link, matmul_rates, predict
from course.lab.protocol import training, work_unit
from course.lab.report import Report, complete

LATENCY, BANDWIDTH, RATE, OVERHEAD, GRADIENTS = 2e-4, 1.5e9, 6e10, 4e-3, 3.7e6
WAITS = {"all_reduce": lambda n: 2 * (n - 1), "all_gather": lambda n: n - 1, "send": lambda _: 1}
CROSSES = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "send": lambda _: 1}


def message_s(operation, ranks, size):
    return WAITS[operation](ranks) * LATENCY + CROSSES[operation](ranks) * size / BANDWIDTH


def cell(request, time_s, spread=0.0, **more):
    times = {"p10": time_s * (1 - 1.28 * spread), "p50": time_s, "p90": time_s * (1 + 1.28 * spread), "n": 24}
    return complete({
        **{key: request[key] for key in ("id", "engine", "family", "devices", "layout", "micro_batches")},
        "global_batch_sequences": request["global_batch_sequences"], "work_unit": work_unit(request),
        "placement": placement(request, HERE), "step_time_s": times, "request": request, "status": "ok", **more,
    })  # fmt: skip


def messages(operation="all_reduce", ranks=2, noise=lambda: 1.0):
    family = "p2p" if operation == "send" else "collective"
    return [
        cell(training(HERE, "torch", family, ranks, ranks, name=f"{operation}-{size}", operation=operation,
                      payload_bytes=size), noise() * message_s(operation, ranks, size), payload_bytes=size)
        for size in (2**12, 2**16, 2**18, 2**20, 2**22)
    ]  # fmt: skip


def steps(devices, batches=(2, 4, 8, 16, 32), visible=1.0, noise=lambda: 1.0, spread=0.0):
    found = []
    for batch in batches:
        request = training(HERE, "torch", "strong", devices, batch)
        time_s = OVERHEAD + flops_per_step(request) / devices / RATE
        time_s += visible * message_s("all_reduce", devices, GRADIENTS) if devices > 1 else 0.0
        found.append(cell(request, noise() * time_s, spread, payload_bytes=GRADIENTS if devices > 1 else None))
    return found


@pytest.mark.parametrize(("operation", "ranks"), [("all_reduce", 2), ("all_reduce", 8), ("all_gather", 4), ("send", 2)])
def test_a_link_is_found_again(operation, ranks):
    found = link(Report(HERE, messages(operation, ranks)), operation)
    assert found.latency_s == pytest.approx(LATENCY, rel=1e-6)
    assert found.bytes_per_s == pytest.approx(BANDWIDTH, rel=1e-6)
    assert found.spread < 1e-6
    assert found.time_s(ranks, 2**24) == pytest.approx(message_s(operation, ranks, 2**24), rel=1e-6)


def test_a_noisy_link_is_found_within_its_noise():
    random = np.random.default_rng(0)
    found = link(Report(HERE, messages(noise=lambda: random.normal(1, 0.03))))
    assert found.latency_s == pytest.approx(LATENCY, rel=0.1)
    assert found.bytes_per_s == pytest.approx(BANDWIDTH, rel=0.1)


@pytest.mark.parametrize("visible", [0.0, 0.4, 1.0, 2.9])
def test_rate_overhead_and_visibility_are_found_again(visible):
    report = Report(HERE, [*messages(), *steps(1), *steps(2, visible=visible)])
    found = fit(report, leave_out=["torch.strong.2.gb8"])
    assert found.flops_per_s == pytest.approx(RATE, rel=1e-6)
    assert found.overhead_s == pytest.approx(OVERHEAD, rel=1e-6)
    assert found.visible == pytest.approx(visible, abs=1e-6)
    assert "torch.strong.2.gb8" not in found.cells
    predicted = predict(found, report["torch.strong.2.gb8"])
    assert predicted.time_s == pytest.approx(report["torch.strong.2.gb8"]["step_time_s"]["p50"], rel=1e-6)
    assert sum(predicted.parts.values()) == pytest.approx(predicted.time_s)


def test_more_devices_are_predicted_from_fewer():
    report = Report(HERE, [*messages(), *steps(1), *steps(2, visible=1.3)])
    wanted = steps(4, visible=1.3)
    found = fit(report)
    assert [predict(found, one).time_s for one in wanted] == pytest.approx(
        [one["step_time_s"]["p50"] for one in wanted], rel=1e-6
    )
    alone = fit(report, devices=[1])
    for one in steps(
        2, visible=1.3
    ):  # nothing is known of overlap: the band holds all of it, once hidden, once doubled
        predicted = predict(alone, one)
        assert predicted.holds(one["step_time_s"]["p50"])
        hidden = predicted.time_s - predicted.parts["communication"]
        assert predicted.low_s < hidden


def test_a_neighbour_slows_what_one_device_predicts_of_two():
    """Matmuls at once have three quarters of the rate alone: two devices compute 4/3 as long as one suggests."""

    def multiply(devices, rate, m):
        request = training(HERE, "torch", "matmul", devices, devices, name=f"{m}", shape=[m, 128, 512])
        return cell(request, 1e-3, matmul_flops_per_s=9e99, extra={"matmul_median_flops_per_s": rate})

    matmuls = [multiply(devices, rate * m, m) for m in (64, 128, 256) for devices, rate in ((1, 4e9), (2, 3e9))]
    report = Report(HERE, [*messages(), *steps(1), *matmuls])
    for one in steps(2):
        parts = predict(fit(report, devices=[1]), one).parts
        assert parts["compute"] == pytest.approx(flops_per_step(one["request"]) / 2 / RATE / 0.75, rel=1e-6)
    more = predict(fit(report, devices=[1]), steps(4)[0]).parts  # four were not measured: no better than two
    assert more["compute"] == pytest.approx(flops_per_step(steps(4)[0]["request"]) / 4 / RATE / 0.75, rel=1e-6)
    seen = fit(Report(HERE, [*report.cells, *steps(2)]))
    assert seen.at_once == {} and seen.flops_per_s == pytest.approx(RATE, rel=1e-6)  # steps of two tell it themselves


def test_the_band_covers_nine_of_ten_held_out_steps():
    random = np.random.default_rng(1)
    inside = errors = 0
    trials = 200
    for _ in range(trials):
        noise = lambda: random.normal(1, 0.05)  # noqa: E731
        report = Report(HERE, [*messages(noise=noise), *steps(1, noise=noise, spread=0.03),
                               *steps(2, visible=1.5, noise=noise, spread=0.03)])  # fmt: skip
        held = report["torch.strong.2.gb8"]
        predicted = predict(fit(report, leave_out=[held["id"]]), held)
        measured = held["step_time_s"]["p50"]
        inside += predicted.holds(measured)
        errors += abs(predicted.time_s / measured - 1) < 0.15
    assert 0.85 * trials < inside  # 90 % is meant; the spread of the cells is counted on top
    assert errors > 0.95 * trials
    assert (predicted.high_s - predicted.low_s) / predicted.time_s < 0.6


def test_disturbed_cells_widen_the_band():
    quiet, loud = (
        predict(fit(Report(HERE, [*messages(), *steps(1, spread=s), *steps(2, spread=s)])), steps(2)[2])
        for s in (0.01, 0.2)
    )
    assert loud.high_s - loud.low_s > 2 * (quiet.high_s - quiet.low_s)


def test_a_fit_needs_cells():
    with pytest.raises(UserError, match="two batches"):
        fit(Report(HERE, steps(1, (4,))))
    with pytest.raises(UserError, match="two sizes"):
        link(Report(HERE, steps(1)))
    with pytest.raises(UserError, match="no measured all-reduce"):
        predict(fit(Report(HERE, steps(1))), steps(2)[0])


def test_shared_cores_slow_loaders_and_accumulation_are_not_fitted():
    slow = cell(training(HERE, "torch", "strong", 2, 8, name="slow", loader_s=0.02), 9.0)
    shared = cell(training(HERE, "torch", "strong", 4, 8), 9.0)
    pieces = cell(training(HERE, "torch", "strong", 1, 8, name="pieces", micro_batches=4), 9.0)
    found = fit(Report(HERE, [*messages(), *steps(1), *steps(2), slow, shared, pieces]))
    assert found.overhead_s == pytest.approx(OVERHEAD, rel=1e-6)


def test_matmul_rates_by_shape():
    request = training(HERE, "torch", "matmul", 2, 2, name="m", shape=[8, 16, 32])
    assert matmul_rates(Report(HERE, [cell(request, 0.1, matmul_flops_per_s=7e9)])) == {(8, 16, 32, 2): 7e9}
