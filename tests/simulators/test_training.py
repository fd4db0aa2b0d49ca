"""Training on ranks: right programs reach weights, traffic and memory of their rung; plausible wrong ones do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import shard
from course.questions.shard_programs import _replicated, _zero1, _zero3
from course.simulators.training import EXAMPLES, FLOAT, STEPS, Net, begin, compare, expected, serial, targets

RIGHT = {"ddp": _replicated(), "zero1": _zero1(), "zero3": _zero3()}
WRONG = {
    "a sum taken for the mean": ("ddp", _replicated(divide=False)),
    "nothing reduced": ("ddp", _replicated(reductions=0)),
    "reduced twice": ("ddp", _replicated(reductions=2)),
    "ZeRO-1, a sum for the mean": ("zero1", _zero1(divide=False)),
    "ZeRO-1 without its gather": ("zero1", _zero1(gather=False)),
    "ZeRO-1 with an all-reduce": ("zero1", _zero1(scatter=False)),
    "ZeRO-3, a sum for the mean": ("zero3", _zero3(divide=False)),
    "ZeRO-3 that keeps what it gathered": ("zero3", _zero3(again=False)),
    "ZeRO-3 with an all-reduce": ("zero3", _zero3(scatter=False)),
    "plain data parallelism for ZeRO-1": ("zero1", _replicated()),
    "ZeRO-1 for ZeRO-3": ("zero3", _zero1()),
}
sizes = given(ranks=st.sampled_from((1, 2, 4)), layers=st.integers(1, 3), width=st.sampled_from((2, 4, 6)))


def reaches(program, rung, ranks, layers, width):
    found, wanted = program(ranks, layers, width), expected(rung, ranks, layers, width)
    return found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rung", RIGHT)
@settings(max_examples=15, deadline=None)
@sizes
def test_the_reference_programs_reach_their_targets(rung, ranks, layers, width):
    assert reaches(RIGHT[rung], rung, ranks, layers, width)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_misses_them(name):
    rung, program = WRONG[name]
    assert not reaches(program, rung, 4, 3, 8)
    assert not reaches(program, rung, 2, 2, 4)


@pytest.mark.parametrize("rung", RIGHT)
@settings(max_examples=15, deadline=None)
@sizes
def test_the_traffic_target_is_the_formula_of_the_ladder(rung, ranks, layers, width):
    formula = {"ddp": shard.data_parallel_traffic, "zero1": shard.zero1_traffic, "zero3": shard.zero3_traffic}[rung]
    given_ = {"ranks": ranks, "stage_parameters": layers * width**2, "tensor": 1, "reduced_gradient_bytes": FLOAT,
              "weight_bytes": FLOAT, "reductions": 1}  # fmt: skip
    known = {entry.key for entry in formula.inputs}
    step = formula(**{name: value for name, value in given_.items() if name in known})
    assert targets(Net(rung, ranks, layers, width)).sent == pytest.approx(STEPS * step)


@pytest.mark.parametrize("rung", RIGHT)
def test_the_memory_target_is_the_formula_of_the_ladder(rung):
    flags = shard.STAGE_FLAGS["none" if rung == "ddp" else rung]
    held = shard.state_per_device(
        stage_parameters=3 * 64, tensor=1, ranks=4, weight_bytes=FLOAT, gradient_bytes=0, optimizer_bytes=FLOAT, **flags
    )
    assert targets(Net(rung, 4, 3, 8)).held == held


def test_the_gradient_of_the_net_is_that_of_its_loss():
    net = Net("ddp", ranks=1, layers=2, width=3)
    inputs, wanted = net.examples[0, :, 0]

    def loss(first, second):
        out = np.tanh(np.tanh(inputs @ first) @ second)
        return ((out - wanted) ** 2).sum() / 2 / EXAMPLES

    first, second = net.start
    net.forward(0, 0, 0, first)
    net.forward(0, 1, 0, second)
    found = net.backward(0, 1, 0, second), net.backward(0, 0, 0, first)
    for which, gradient in zip((1, 0), found, strict=True):
        for place in np.ndindex(3, 3):
            nudge = np.zeros((3, 3))
            nudge[place] = 1e-6
            up, down = ([first + nudge, second], [first - nudge, second])
            if which == 1:
                up, down = [first, second + nudge], [first, second - nudge]
            assert gradient[place] == pytest.approx((loss(*up) - loss(*down)) / 2e-6, rel=1e-4, abs=1e-7)


def test_the_serial_program_trains_on_everybodys_examples():
    one, two = (serial(Net("ddp", ranks, layers=2, width=2)) for ranks in (1, 2))
    assert not np.allclose(one[0], two[0])


def test_what_is_said_of_a_program():
    assert compare(RIGHT["zero3"], "zero3").splitlines() == [
        "weights: those of the serial program",
        "sent:    6,912 bytes a rank; 6,912 expected",
        "held:    768 bytes a rank between steps; 768 expected",
        "peak:    within 2,048 bytes",
    ]
    assert "768 above 2,048 bytes" in compare(_zero3(again=False), "zero3")
    assert compare(lambda *_: [1, 2], "ddp").startswith("It reports 2 numbers")

    def forgets(ranks, layers, width):
        world, net = begin("zero3", ranks, layers, width)
        net.forward(0, 0, 0, world[0]["w0"])

    assert "gather them first" in compare(forgets, "zero3")


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="rung is 'zero2'"):
        begin("zero2", 2, 1, 2)
    with pytest.raises(ValueError, match="not cut into 4 equal pieces"):
        begin("ddp", 4, 1, 3)
