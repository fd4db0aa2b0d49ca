"""Step 9: work units refuse, families compare, laws go through their points, published series come out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from course import records, scaling
from course.errors import UserError
from course.formula import Formula
from course.scaling import Experiment, Point, WorkUnit
from course.scaling.families import STRONG_CASE
from course.scaling.fits import LINE

STEP = WorkUnit("a model", 512, 4096)
OTHERS = {"model": "another", "sequences": 256, "sequence_length": 8192, "lengths": "padded",
          "update": "a step, skipped or not", "precision": "fp8"}  # fmt: skip


# ---------------------------------------------------------------- work units
@pytest.mark.parametrize("field", OTHERS)
def test_every_field_of_a_work_unit_must_be_equal(field):
    other = replace(STEP, **{field: OTHERS[field]})
    with pytest.raises(scaling.DifferentWork) as raised:
        Experiment.strong([Point(64, 10.0, STEP), Point(128, 6.0, other)])
    said = str(raised.value)
    assert str(getattr(STEP, field)) in said and str(OTHERS[field]) in said
    assert said.count(". ") == 0 and said.endswith(".")


def test_how_work_is_done_is_no_part_of_it():
    local = [{"micro_batch": 2, "accumulation": 4}, {"micro_batch": 4, "accumulation": 1}]
    runs = [Point(64 * 2**place, 10.0 / 2**place, STEP, how) for place, how in enumerate(local)]
    assert Experiment.strong(runs).rows()[1].changed == local[1]


@pytest.mark.parametrize("field", ["sequences", "sequence_length"])
@pytest.mark.parametrize("value", [0, -4, 2.5, True, "8"])
def test_a_work_unit_needs_whole_numbers(field, value):
    with pytest.raises(UserError, match=f"^{field} .*whole number above 0"):
        replace(STEP, **{field: value})


def test_a_work_unit_says_what_counts_as_done():
    with pytest.raises(UserError, match=r"update .* in words"):
        replace(STEP, update=" ")


@pytest.mark.parametrize(("points", "said"), [
    ([Point(64, 1.0, STEP)], "two measurements or more"),
    ([Point(64, 1.0, STEP), Point(64, 2.0, STEP)], "differ in devices"),
])  # fmt: skip
def test_a_series_needs_two_sizes(points, said):
    with pytest.raises(UserError, match=said):
        Experiment.strong(points)


def test_a_baseline_must_be_one_of_the_sizes():
    runs = Experiment.strong([Point(64, 10.0, STEP), Point(128, 6.0, STEP)])
    with pytest.raises(UserError, match="can be 64, 128, not 32"):
        runs.against(32)
    assert [row.efficiency for row in runs.against(128).rows()] == pytest.approx([6 * 128 / 640, 1])


@pytest.mark.parametrize(("devices", "time"), [(0, 1.0), (8, 0.0), (8, float("inf")), (True, 1.0)])
def test_a_point_needs_devices_and_time(devices, time):
    with pytest.raises(UserError, match=r"devices|time_s"):
        Point(devices, time, STEP)


# ---------------------------------------------------------------- families
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 64), st.integers(2, 16), st.floats(0.1, 100), st.floats(0.1, 100))
def test_a_weak_series_holds_the_work_of_a_device(devices, times, first, second):
    works = [replace(STEP, sequences=4 * devices * factor) for factor in (1, times)]
    runs = [Point(devices * factor, time, work)
            for factor, time, work in zip((1, times), (first, second), works, strict=True)]  # fmt: skip
    small, large = Experiment.weak(runs).rows()
    assert large.efficiency == pytest.approx(first / second)
    assert (small.speedup, large.tokens) == (None, times * small.tokens)
    with pytest.raises(scaling.DifferentWork):
        Experiment.strong(runs)
    with pytest.raises(scaling.DifferentWork, match="work of a device"):
        Experiment.weak([runs[0], replace(runs[1], work=works[0])])


def test_global_work_and_time_always_stand_beside_the_efficiency():
    for name in ("G0105", "G0002", "G0155"):
        lines = str(scaling.published(name)).splitlines()
        said = {word.strip() for word in lines[2].split("|")}
        assert {"sequences", "M tokens", "time (s)", "device-s", "efficiency"} <= said


def test_a_model_size_family_needs_its_rule_and_its_flops():
    runs = [Point(n, 4.0, replace(STEP, model=f"{n}B"), model_flops=n * 1e16) for n in (32, 64)]
    assert [row.efficiency for row in Experiment.model_size(runs, "a rule").rows()] == [1, 1]
    with pytest.raises(UserError, match="rule"):
        Experiment.model_size(runs, " ")
    with pytest.raises(UserError, match=r"model_flops .* missing on 64"):
        Experiment.model_size([runs[0], replace(runs[1], model_flops=None)], "a rule")
    with pytest.raises(scaling.DifferentWork, match="precision"):
        Experiment.model_size([runs[0], replace(runs[1], work=replace(STEP, precision="fp8"))], "a rule")


def test_strong_scaling_is_the_general_efficiency_with_equal_work():
    assert sp.simplify(STRONG_CASE[0] - STRONG_CASE[1]) == 0


# ---------------------------------------------------------------- laws
SHARES = st.floats(0.001, 0.9)


@settings(max_examples=25, deadline=None)
@given(SHARES, st.integers(1, 64), st.integers(2, 64))
def test_karp_flatt_gives_back_the_share_of_amdahl(share, base, times):
    up = scaling.amdahl_speedup(fixed_share=share, baseline_devices=base, scaled_devices=base * times)
    found = scaling.karp_flatt(baseline_time=1, scaled_time=1 / up, device_ratio=times)
    assert found == pytest.approx(share, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(SHARES, st.integers(2, 64))
def test_gustafson_and_amdahl_are_one_run_seen_from_both_ends(share, times):
    # the work of the large run on the small machine: fixed share of it by the small machine's clock
    scaled = scaling.gustafson_speedup(large_fixed_share=share, baseline_devices=1, scaled_devices=times)
    small = share / (share + (1 - share) * times)
    same = scaling.amdahl_speedup(fixed_share=small, baseline_devices=1, scaled_devices=times)
    assert scaled == pytest.approx(same)


def test_the_step_is_shortest_where_the_slope_is_nothing():
    given_parts = {"fixed_time": 0.3, "divisible_time": 16.2, "growing_time": 0.018, "baseline_devices": 8}
    best = scaling.fastest_devices(divisible_time=16.2, growing_time=0.018, baseline_devices=8)
    sizes = np.arange(8, 2000)
    times = scaling.strong_time(**given_parts, scaled_devices=sizes)
    assert sizes[np.argmin(times)] == round(best)


@pytest.mark.parametrize("law", ["Amdahl", "growing part", LINE, "growing work"])
def test_a_law_goes_through_its_two_points(law):
    points = [(8, 3.0), (32, 3.2)] if law == "growing work" else [(8, 10.0), (16, 5.6)]
    found = scaling.fit(law, points)
    assert [float(found.time(devices)) for devices, _ in points] == pytest.approx([time for _, time in points])


def test_three_parts_are_found_again():
    sizes = (8, 32, 128, 512)
    true = {"fixed_time": 0.2, "divisible_time": 9.0, "growing_time": 0.01, "baseline_devices": 8}
    points = [(n, scaling.strong_time(**true, scaled_devices=n)) for n in sizes]
    found = scaling.fit("universal", points)
    assert (found.fixed_time, found.divisible_time, found.growing_time) == pytest.approx((0.2, 9.0, 0.01))


def test_no_part_comes_out_below_nothing():
    superlinear = scaling.fit("Amdahl", [(32, 115.0), (64, 24.6)])
    assert superlinear.fixed_time == 0 and superlinear.divisible_time > 0


@pytest.mark.parametrize("law", scaling.LAWS)
def test_a_band_holds_its_law_and_widens_with_the_error(law):
    points = [(8, 10.0), (16, 5.6), (32, 3.4)]
    middle = scaling.fit(law, points).time(256)
    widths = []
    for error in (0.0, 0.02, 0.05):
        low, high = scaling.band(law, points, error, 256)
        assert low - 1e-9 <= middle <= high + 1e-9
        widths.append(high - low)
    assert widths == sorted(widths) and widths[0] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("law", "points", "said"), [
    ("Amdal", [(8, 1.0), (16, 0.6)], "law must be one of"),
    ("universal", [(8, 1.0), (16, 0.6)], "needs 3 different"),
])  # fmt: skip
def test_a_fit_says_what_it_needs(law, points, said):
    with pytest.raises(UserError, match=said):
        scaling.fit(law, points)


# ---------------------------------------------------------------- published series
@pytest.mark.parametrize("name", sorted({str(row["group_id"]) for row in records.strong_series()}))
def test_strong_series_have_the_efficiencies_of_their_table(name):
    table = {row["n_devices"]: row["efficiency"] for row in records.strong_series() if row["group_id"] == name}
    found = {row.devices: row.efficiency for row in scaling.published(name).rows()}
    assert found == pytest.approx(table, rel=1e-3)


def test_every_named_series_can_be_made():
    families = {family: scaling.published_named(family) for family in ("strong", "weak", "model size")}
    assert [len(families[family]) >= least for family, least in
            (("strong", 12), ("weak", 20), ("model size", 1))] == [True] * 3  # fmt: skip
    for family, named in families.items():
        for name in named.values():
            found = scaling.published(name)
            assert found.family == family and found.rows()[0].efficiency == 1


def test_an_unknown_series_is_told():
    with pytest.raises(UserError, match="nearest is G0021"):
        scaling.published("G00021")


def test_the_replicas_series_is_the_playbooks_figure():
    # tokens a second a device as its data-parallel figure prints them, where that figure has micro-batches of one
    rates = {row.devices: row.tokens / row.device_s for row in scaling.published("replicas").rows()}
    assert [rates[n] for n in (16, 32, 64, 256)] == pytest.approx([37609.69, 35367.61, 31112.23, 15700.38], rel=1e-4)


def test_sequences_to_a_target():
    used = {(one.batch, round(one.sequences / 24576)) for one in scaling.batches_to_target("gpt3")}
    assert {(2048, 24), (3072, 25), (4096, 26)} <= used
    fine = {one.batch: one.sequences for one in scaling.batches_to_target("llama2_70b_lora") if one.batch in (8, 128)}
    assert fine[128] == 11136
    steps, least = (fine[128] - 3072) / 120, 3072 - 8 * (fine[128] - 3072) / 120
    critical = scaling.critical_batch(least_steps=steps, least_sequences=least)
    at = {"least_steps": steps, "least_sequences": least, "global_batch_sequences": critical}
    assert scaling.steps_to_target(**at) == pytest.approx(2 * steps)
    assert scaling.sequences_to_target(**at) == pytest.approx(2 * least)


def test_the_hyperbola():
    model = {"least_steps": 67, "least_sequences": 2534}
    for batch in (1, 8, 300):
        at = {**model, "global_batch_sequences": batch}
        found = (scaling.steps_to_target(**at) / 67 - 1) * (scaling.sequences_to_target(**at) / 2534 - 1)
        assert found == pytest.approx(1)


def test_formulas_are_shown_by_name():
    formulas = [value for value in vars(scaling).values() if isinstance(value, Formula)]
    assert len(formulas) == 15
    for formula in formulas:
        formula.verify()
