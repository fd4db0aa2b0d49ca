"""Solving: in closed form, by bisection, over the integers, and where there is nothing to find."""

from __future__ import annotations

import random

import pytest
import sympy as sp
from formulas import FORMULAS

from course import batch, constrain, estimate, mfu, overlap, place, shard
from course.formula import Formula, FormulaError
from course.solving import NoSolution, Solution, same_expression
from course.symbols import SYMBOLS, symbols

P, S, T, D_p, B, K, c, r = symbols(
    "parameters",
    "tokens",
    "sequence_length",
    "data",
    "micro_batch",
    "buckets",
    "compute_per_layer",
    "communication_per_layer",
)


# ---------------------------------------------------------------- closed form
def test_closed_form_with_a_number():
    found = estimate.six_ps_run.solve("tokens", equals=6.3e24, parameters=70e9)
    assert found == Solution(pytest.approx(15e12, rel=1e-12), "closed form", found.expression)
    assert str(found).endswith("(closed form)")


def test_closed_form_that_a_human_can_check():
    # Llama 3.1 405B: 3.8e25 FLOPs at 41 % on 16,384 devices of 989.4e12 take about 66 days
    hours = mfu.run_time.solve("mfu", equals=66 * 86400, model_flops=3.8e25, devices=16384, peak_flops_per_s=989.4e12)
    assert hours.value == pytest.approx(3.8e25 / (66 * 86400) / 16384 / 989.4e12, rel=1e-12)
    assert hours.how == "closed form"


def test_two_symbols_left_open_give_an_expression():
    found = estimate.six_ps_run.solve("tokens", equals=6e24)
    assert found.value is None and found.how == "closed form"
    assert sp.simplify(found.expression - 10**24 / P) == 0
    assert str(found) == f"{found.expression} (closed form)"
    named = mfu.scaling_efficiency.solve("scaled_devices", equals=1, baseline_devices=64)
    assert named.expression.free_symbols == set(symbols("baseline_time", "scaled_time"))


def test_two_symbols_left_open_without_a_closed_form_name_the_missing_one():
    with pytest.raises(
        FormulaError, match=r"no closed form for communication_per_layer: give a number for compute_per_layer"
    ):
        overlap.exposed_reduction.solve("communication_per_layer", equals=1, buckets=4)


def test_the_root_inside_the_range_is_taken():
    # 2 h^2 L = 800 has the roots -10 and 10
    L, h = symbols("layers", "hidden")
    square = Formula("square", "x", 2 * h**2 * L, "1", "a square")
    assert square.solve("hidden", equals=800, layers=4).value == 10
    # (m - 3)(m - 90) = 0, of which `mlp_matrices` may only be 3
    n = symbols("mlp_matrices")[0]
    assert Formula("both", "x", (n - 3) * (n - 90), "1", "two roots").solve("mlp_matrices", equals=0).value == 3


# ---------------------------------------------------------------- whole numbers
def test_a_count_that_comes_out_whole_is_exact():
    found = batch.tokens_per_step.solve(
        "accumulation", equals=16_777_216, data=128, micro_batch=1, sequence_length=8192
    )
    assert found.value == 16 and found.how == "closed form"


def test_a_count_is_the_smallest_that_reaches_the_goal():
    # 5 stages, bubble of at most 20 %: M = 16; with 18 % asked for, 4/(M + 4) <= .18 from M = 19 on
    found = batch.bubble_share.solve("micro_batches", equals=0.18, pipeline=5, interleave=1)
    assert found.value == 19 and found.how == "bisection over the integers"
    assert batch.bubble_share(pipeline=5, interleave=1, micro_batches=19) <= 0.18
    assert batch.bubble_share(pipeline=5, interleave=1, micro_batches=18) > 0.18
    assert batch.bubble_share.solve("micro_batches", equals=0.2, pipeline=5, interleave=1).value == 16


def test_smallest_group_that_fits_by_brute_force():
    model = {"stage_parameters": 70e9, "tensor": 1, "weight_bytes": 2, "gradient_bytes": 4, "optimizer_bytes": 12}
    flags = {"shard_optimizer": 1, "shard_gradients": 1, "shard_weights": 1}
    for limit in (80e9, 40e9, 9e9, 1260e9):
        found = shard.state_per_device.solve("ranks", equals=limit, **model, **flags)
        by_force = next(n for n in range(1, 10000) if shard.state_per_device(ranks=n, **model, **flags) <= limit)
        assert found.value == by_force


def test_a_large_count_is_exact():
    found = batch.tokens_per_step.solve(
        "data", equals=3 * 8192 * 1_234_567 + 1, micro_batch=3, sequence_length=8192, accumulation=1
    )
    assert found.value == 1_234_568 and found.how == "bisection over the integers"


def test_whole_numbers_by_brute_force_over_random_cases():
    draw = random.Random(3)
    for _ in range(25):
        given = {"data": draw.randint(1, 9), "micro_batch": draw.randint(1, 9), "sequence_length": draw.randint(1, 50)}
        wanted = draw.randint(1, 20_000)
        one = given["data"] * given["micro_batch"] * given["sequence_length"]
        if wanted < one:  # already one micro-batch is too much: nothing reaches it from below
            continue
        found = batch.tokens_per_step.solve("accumulation", equals=wanted, **given)
        assert found.value == -(-wanted // one)


# ---------------------------------------------------------------- bisection
def test_through_a_maximum():
    # 1e-3 + 9 max(0, r - 1e-3) as r: one number below the kink, another above
    for exposed, answer in ((0.5e-3, 0.5e-3), (11e-3, 2e-3)):
        found = overlap.exposed_reduction.solve(
            "communication_per_layer", equals=exposed, buckets=10, compute_per_layer=1e-3
        )
        assert found.value == pytest.approx(answer, rel=1e-9) and found.how == "bisection"


def test_through_a_minimum_at_the_ridge():
    found = estimate.attainable.solve("intensity", equals=100e12, peak_flops_per_s=312e12, memory_bytes_per_s=2e12)
    assert found.value == pytest.approx(50, rel=1e-9) and found.how == "bisection"


def test_a_count_through_a_minimum():
    found = batch.one_f_one_b_in_flight.solve("micro_batches", equals=4, pipeline=8, stage=2)
    assert found.value == 4 and found.how == "bisection over the integers"


def test_where_a_whole_range_meets_the_equation_its_start_is_given():
    # from the ridge on the peak is reached; from 100 micro-batches on stage 28 of 128 holds 100
    found = estimate.attainable.solve("intensity", equals=312e12, peak_flops_per_s=312e12, memory_bytes_per_s=2.04e12)
    assert found.value == pytest.approx(312 / 2.04, rel=1e-9)
    assert batch.one_f_one_b_in_flight.solve("micro_batches", equals=100, pipeline=128, stage=28).value == 100


def test_through_a_ceiling():
    stepped = Formula("stepped", "x", sp.ceiling(P / 3), "1", "thirds, rounded up")
    assert stepped.solve("parameters", equals=4).value == pytest.approx(9, abs=3)
    assert stepped(parameters=stepped.solve("parameters", equals=4).value) == 4
    counted = Formula("counted", "x", sp.ceiling(symbols("layers")[0] / 3), "1", "thirds, rounded up")
    assert counted.solve("layers", equals=4).value == 10


def test_a_falling_function():
    found = place.group_bandwidth.solve(
        "ranks_per_node", equals=200, scale_up_bytes_per_s=450, scale_out_bytes_per_s=50
    )
    assert found.value == 4
    rising = overlap.step_lower_bound.solve("compute_time", equals=3, communication_time=1)
    assert rising.value == pytest.approx(3, rel=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_every_symbol_of_every_formula_is_found_again(name):
    """Compute with a known value, forget it, solve for it: the formula then has the same value."""
    formula = FORMULAS[name]
    draw = random.Random(name)
    known = {}
    for entry in formula.inputs:
        high = entry.high if entry.high <= 3 else max(entry.low, 1.0) + 20
        value = draw.uniform(max(entry.low, 0.2), high)
        known[entry.key] = float(round(value)) if entry.whole else value
    wanted = formula(**known)
    for key in known:
        rest = {other: value for other, value in known.items() if other != key}
        if formula(**rest, **{key: min(known[key] * 1.001, SYMBOLS[key].high)}) == wanted:
            continue  # a maximum hides this symbol here: any value will do
        found = formula.solve(key, equals=wanted, **rest)
        again = formula(**rest, **{key: found.value})
        if SYMBOLS[key].whole and found.value < known[key]:
            # what rises and falls again is reached earlier: the value lies between this count and the one before
            before = formula(**rest, **{key: found.value - 1})
            assert min(before, again) <= wanted <= max(before, again), key
            continue
        assert again == pytest.approx(wanted, rel=1e-6, abs=1e-12), key


# ---------------------------------------------------------------- no solution
@pytest.mark.parametrize(
    ("formula", "symbol", "equals", "given"),
    [
        (batch.bubble_share, "micro_batches", 0.9, {"pipeline": 4, "interleave": 1}),
        (mfu.mfu, "time", -1.0, {"model_flops": 1e20, "devices": 8, "peak_flops_per_s": 1e15}),
        (mfu.run_time, "mfu", 1.0, {"model_flops": 1e25, "devices": 8, "peak_flops_per_s": 1e15}),
        (estimate.attainable, "intensity", 400e12, {"peak_flops_per_s": 312e12, "memory_bytes_per_s": 2e12}),
        (batch.one_f_one_b_in_flight, "micro_batches", 9, {"pipeline": 8, "stage": 0}),
        (constrain.activation_memory, "stage_layers", -5.0, {
            "token_layer_bytes": 1e5, "micro_batch": 1, "sequence_length": 8192, "in_flight": 1}),
    ],
)  # fmt: skip
def test_no_solution_names_the_symbol_and_its_range(formula, symbol, equals, given):
    with pytest.raises(NoSolution, match=rf"No {symbol} between .* and .* meets the equation"):
        formula.solve(symbol, equals=equals, **given)


def test_solving_for_what_a_formula_does_not_take_is_refused():
    with pytest.raises(FormulaError, match="six_ps cannot be solved for tokens: it takes parameters"):
        estimate.six_ps.solve("tokens", equals=1e12)


def test_wrong_arguments_are_refused_as_in_a_call():
    with pytest.raises(FormulaError, match=r"takes no tensr\. Did you mean"):
        shard.tensor_unit_bytes.solve("hidden", equals=1e6, tensr=8)
    with pytest.raises(FormulaError, match=r"parameters .* must be at least 0; it is -7"):
        estimate.six_ps_run.solve("tokens", equals=1e24, parameters=-7)


@pytest.mark.parametrize("equals", ["many", None, float("nan"), float("inf"), True, [1, 2]], ids=repr)
def test_the_right_side_must_be_a_finite_number(equals):
    with pytest.raises(FormulaError, match="equals"):
        estimate.six_ps_run.solve("tokens", equals=equals, parameters=70e9)


# ---------------------------------------------------------------- equality
def test_same_expression():
    x, y = sp.symbols("x y", positive=True)
    assert same_expression((x + y) ** 2, x**2 + 2 * x * y + y**2)
    assert same_expression(x / (x + y), 1 - y / (x + y))
    assert not same_expression(x / (x + y), 1 - y / (x - y))
    assert same_expression(sp.Max(x, y), x + sp.Max(0, y - x))
    assert same_expression(sp.Min(x, y), -sp.Max(-x, -y))
    assert not same_expression(sp.Max(x, y), sp.Min(x, y))
    assert not same_expression(sp.Max(x, y), sp.Max(x, y) + sp.Rational(1, 10**12))
    assert same_expression(sp.ceiling(x), sp.ceiling(x + 1) - 1)
    assert not same_expression(sp.ceiling(x), sp.floor(x))
    assert same_expression(K * c + sp.Max(0, r - c), sp.Max(K * c, (K - 1) * c + r))
