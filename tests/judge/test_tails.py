"""Tail probabilities and what has them, against scipy's."""

from __future__ import annotations

import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from hybrid_kernels.judge import tails

FREEDOM = st.one_of(st.integers(1, 3000), st.floats(1, 3000))
T, RATIOS = st.floats(1e-6, 1e100), st.floats(1e-6, 1e12)
TAILS = st.floats(1e-12, 0.49)
DIGITS = 1e-9  # relative; scipy itself loses them in the far tail of F


@given(T, FREEDOM)
def test_student(t, freedom):
    """The tail of Student's t, also far out and for degrees of freedom that are no whole number."""
    expected = scipy.special.stdtr(freedom, -t)
    assert tails.student(t, freedom) == pytest.approx(expected, rel=DIGITS, abs=1e-300)


@given(TAILS, FREEDOM)
def test_student_deviate(tail, freedom):
    """The value with a given tail."""
    assert tails.student_deviate(tail, freedom) == pytest.approx(-scipy.special.stdtrit(freedom, tail), rel=DIGITS)


@given(RATIOS, st.integers(1, 3000), st.integers(1, 3000))
def test_variance_ratio(ratio, above, below):
    """The upper tail of F."""
    expected = scipy.special.fdtrc(above, below, ratio)
    assert tails.variance_ratio(ratio, above, below) == pytest.approx(expected, rel=DIGITS, abs=1e-200)


@given(st.floats(0, 37), TAILS)
def test_normal(z, tail):
    """The tail of the normal distribution, and the value with a given one."""
    assert tails.normal(z) == pytest.approx(scipy.special.ndtr(-z), rel=DIGITS)
    assert tails.normal_deviate(tail) == pytest.approx(-scipy.special.ndtri(tail), rel=DIGITS)


@pytest.mark.parametrize(
    ("tail", "freedom", "expected"), [(0.025, 4, 2.776), (0.025, 30, 2.042), (0.005, 10, 3.169), (0.0005, 120, 3.373)]
)
def test_printed_tables(tail, freedom, expected):
    """Values of t as statistical tables print them."""
    assert tails.student_deviate(tail, freedom) == pytest.approx(expected, abs=5e-4)


def test_ends():
    """No difference has half of the probability beyond it, an endless one none."""
    assert tails.student(0.0, 7) == 0.5
    assert tails.student_deviate(0.5, 7) == 0.0
    assert tails.student(1e100, 1000) == 0.0
    assert tails.variance_ratio(1e308, 50, 50) == 0.0
