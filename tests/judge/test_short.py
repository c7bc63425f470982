"""Statistics of short arrays against numpy's, to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hybrid_kernels.judge import short

NUMBERS = st.floats(-1e100, 1e100, allow_nan=False)
SERIES = arrays.arrays(np.float64, st.integers(1, 300), elements=NUMBERS)


@given(SERIES)
def test_one_array(x):
    """Mean, variance and median are the very numbers that numpy gives."""
    assert short.mean(x) == x.mean()
    assert short.median(x) == np.median(x)
    assert short.variance(x) == x.var()
    if len(x) > 1:
        assert short.variance(x, 1) == x.var(ddof=1)
    assert short.squares(x) == ((x - x.mean()) ** 2).sum()


@given(SERIES, st.integers(1, 40))
def test_windows(x, length):
    """The medians of all windows of a series are numpy's of numpy's windows."""
    length = min(length, len(x))
    expected = np.lib.stride_tricks.sliding_window_view(x, length)
    assert (short.windows(x, length) == expected).all()
    assert (short.medians(short.windows(x, length)) == np.median(expected, axis=1)).all()


def test_pieces_of_an_array():
    """A slice and a reversed array count as the same numbers in an array of their own, as numpy has them."""
    x = np.random.default_rng(1).normal(size=101)
    for part in (x[3:70], x[::-1], x[::3]):
        assert (short.mean(part), short.variance(part, 1)) == (part.mean(), part.var(ddof=1))
        assert short.median(part) == np.median(part)
