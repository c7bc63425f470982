"""Arithmetic over ranges: sums right, ranges hold every value, and nothing but arithmetic is evaluated."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import arithmetic
from hybrid_kernels.judge.arithmetic import Interval


def test_cross_check_of_the_first_case() -> None:
    """0.6 GB a step at 7.78 to 8.09 steps a second are 4.67 to 4.85 GB/s."""
    result = arithmetic.evaluate("gb * rate", {"gb": Interval(0.6, 0.6), "rate": Interval(7.78, 8.09)})
    assert result.low == pytest.approx(4.668)
    assert result.high == pytest.approx(4.854)
    assert result.middle == pytest.approx(math.sqrt(4.668 * 4.854))


@given(
    st.lists(st.floats(0.1, 100), min_size=3, max_size=3),
    st.lists(st.floats(1, 2), min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
def test_every_value_lies_in_the_range(lows: list[float], widths: list[float], places: list[float]) -> None:
    """Whatever values the names take in their ranges, Python's own result lies in the evaluated range."""
    expression = "max(a, b) / (b + c) - -2.5 * min(a, c) + 1e3"
    values = {name: Interval(low, low * width) for name, low, width in zip("abc", lows, widths, strict=True)}
    chosen = {
        name: values[name].low + place * (values[name].high - values[name].low)
        for name, place in zip("abc", places, strict=True)
    }
    exact = eval(expression, {"max": max, "min": min}, chosen)
    result = arithmetic.evaluate(expression, values)
    slack = 1e-9 * max(abs(result.low), abs(result.high))
    assert result.low - slack <= exact <= result.high + slack


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "a.b",
        "a[0]",
        "a ** 9",
        "lambda: 1",
        "[1]",
        "'x'",
        "b'x'",
        "True",
        "a if a else 1",
        "max(a, key=a)",
        "max(*a)",
        "max()",
        "abs(a)",
        "1 +",
        "",
        "a := 1",
        "1j",
        "a // 2",
        "a < 1",
        "(" * 300 + "1" + ")" * 300,
        "9" * 2000,
    ],
)
def test_nothing_else_is_evaluated(expression: str) -> None:
    """Calls, attributes, powers, booleans, texts and broken input are refused in one line."""
    with pytest.raises(BadInput) as error:
        arithmetic.evaluate(expression, {"a": Interval(1, 1)})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("expression", "said"), [("1 / a", "holds zero"), ("b", "'b'"), ("1e308 * 10", "not a finite")]
)
def test_what_has_no_value_is_said(expression: str, said: str) -> None:
    """A division by a range around zero, an unknown name and an overflow each say what is wrong."""
    with pytest.raises(BadInput, match=said):
        arithmetic.evaluate(expression, {"a": Interval(-1, 1)})
