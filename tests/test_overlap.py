"""The largest of n normal numbers against closed forms, against draws, and against the rule of thumb it is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp

from course.overlap import expected_maximum

_THIRD = math.asin(1 / 3)
EXACT = {
    1: 0.0,
    2: 1 / math.sqrt(math.pi),
    3: 3 / (2 * math.sqrt(math.pi)),
    4: 3 / (2 * math.sqrt(math.pi)) * (1 + 2 / math.pi * _THIRD),
    5: 5 / (4 * math.sqrt(math.pi)) * (1 + 6 / math.pi * _THIRD),
}


@pytest.mark.parametrize("ranks", EXACT)
def test_closed_forms(ranks):
    assert expected_maximum(ranks) == pytest.approx(EXACT[ranks], abs=1e-12)


def test_sympy_does_the_first_two_integrals_itself():
    x = sp.Symbol("x", real=True)
    density, below = sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi), (1 + sp.erf(x / sp.sqrt(2))) / 2
    for ranks in (1, 2):
        mean = sp.integrate(x * ranks * density * below ** (ranks - 1), (x, -sp.oo, sp.oo))
        assert float(mean) == pytest.approx(expected_maximum(ranks), abs=1e-12)


@pytest.mark.parametrize(("ranks", "printed"), [(8, 1.42), (64, 2.34), (1024, 3.25)])
def test_tabulated(ranks, printed):
    assert expected_maximum(ranks) == pytest.approx(printed, abs=0.005)
    assert math.sqrt(2 * math.log(ranks)) > expected_maximum(ranks) + 0.4


@pytest.mark.parametrize("ranks", [8, 200])
def test_drawn(ranks):
    largest = np.random.default_rng(3).standard_normal((40_000, ranks)).max(axis=1)
    assert expected_maximum(ranks) == pytest.approx(float(largest.mean()), abs=4 * float(largest.std()) / 200)


@pytest.mark.parametrize("ranks", [0, 2.5, True, -1])
def test_what_is_no_count_is_said(ranks):
    with pytest.raises(ValueError, match="a whole number from 1 on"):
        expected_maximum(ranks)
