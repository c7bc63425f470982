"""Moves between few points: what is found, what is not, and how often chance makes one."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hybrid_kernels.judge import moves

Floats = np.ndarray


def gaps(values: Floats) -> tuple[Floats, Floats]:
    """Intervals of runs that kept none."""
    return np.full(len(values), np.nan), np.full(len(values), np.nan)


def noisy(rng: np.random.Generator, n: int, spread: float = 0.02) -> Floats:
    """Values of one level."""
    return np.exp(rng.normal(0, spread, n))


def test_one_point_each_needs_a_large_change() -> None:
    """With a point a side a tenth proves nothing and a half does; the interval says how little is known."""
    one = np.array([10.0])
    assert not moves.compare(one, one * 1.1).moved
    halved = moves.compare(one, one * 0.5)
    assert halved.moved
    assert halved.ratio == pytest.approx(0.5)
    assert halved.low < 0.5 / 1.05 < 0.5 * 1.05 < halved.high


def test_more_points_show_smaller_changes() -> None:
    """Ten points a side with 2 % noise show a change of a tenth, and not one of half a percent."""
    rng = np.random.default_rng(1)
    a, b = noisy(rng, 10), noisy(rng, 10)
    assert moves.compare(a, b * 1.1).moved
    assert not moves.compare(a, b * 1.005).moved


def test_the_runs_own_noise_is_a_floor() -> None:
    """Two points that agree do not make a change certain when each run saw a spread of a third."""
    a, b = np.array([1.0, 1.0]), np.array([1.6, 1.6])
    wide = np.array([0.6, 0.6]), np.array([1.7, 1.7])
    assert moves.compare(a, b).moved
    assert not moves.compare(a, b, wide, (wide[0] * 1.6, wide[1] * 1.6)).moved


def test_against_the_formula_by_hand() -> None:
    """The score is Student's t with the shrunk variance: two points a side, worked out by hand."""
    move = moves.compare(np.exp([0.0, 0.2]), np.exp([0.9, 1.1]))
    variance = (4 * 0.03**2 + 4 * 0.1**2) / (4 + 2)
    t = 0.9 / np.sqrt(variance)  # error = sqrt(variance (1/2 + 1/2))
    assert move.score == pytest.approx(t / stats.t.isf(0.0005, 6))


def test_values_that_are_not_positive_have_no_ratio() -> None:
    """Zeros and negative values are compared as they are; a ratio is not made up."""
    move = moves.compare(np.array([0.0, 0.0]), np.array([5.0, 5.0]))
    assert move.moved
    assert np.isnan(move.ratio)
    assert not moves.compare(np.array([0.0]), np.array([0.0])).moved
    assert not moves.compare(np.array([-1.0, 1.0]), np.array([1.0, -1.0])).moved


@given(st.floats(1e-9, 1e12), st.floats(0.2, 5), st.integers(1, 6), st.integers(1, 6))
def test_units_do_not_matter(unit: float, factor: float, before: int, after: int) -> None:
    """In another unit the ratio and the verdict are the same, and looking back gives the inverse ratio."""
    rng = np.random.default_rng(before * 7 + after)
    a, b = noisy(rng, before), noisy(rng, after) * factor
    move, scaled, back = moves.compare(a, b), moves.compare(a * unit, b * unit), moves.compare(b, a)
    assert scaled.ratio == pytest.approx(move.ratio)
    assert scaled.moved == move.moved == back.moved
    assert back.ratio == pytest.approx(1 / move.ratio)
    assert (back.low, back.high) == (pytest.approx(1 / move.high), pytest.approx(1 / move.low))


@pytest.mark.parametrize(
    ("counts", "factors", "expected"),
    [
        ((1, 1), (1, 0.5), [1]),
        ((2, 1), (1, 2), [2]),
        ((3, 3), (1, 2.1), [3]),
        ((1, 4), (1, 0.5), [1]),
        ((4, 4, 4), (1, 0.6, 1), [4, 8]),
        ((3, 3, 3), (1, 0.6, 0.3), [3, 6]),
        ((3, 1, 3), (1, 3, 1), []),
        ((3, 2, 3), (1, 3, 1), []),
        ((12, 1), (1, 1.5), []),
        ((11, 1), (1, 1.5), [11]),
        ((7, 6), (1, 2), []),
    ],
)
def test_short_series(counts: tuple[int, ...], factors: tuple[float, ...], expected: list[int]) -> None:
    """Planted levels in short series are found; single values off are no level; long series are left to steps."""
    rng = np.random.default_rng(sum(counts))
    values = np.concatenate([noisy(rng, n, 0.01) * factor for n, factor in zip(counts, factors, strict=True)])
    assert moves.few(values, *gaps(values)) == expected


@pytest.mark.parametrize("n", [2, 3, 6, 12])
def test_pure_noise_moves_rarely(n: int) -> None:
    """Series of equal code with the noise that runs commonly have: at most 1 in 100 here shows a move."""
    rng = np.random.default_rng(n)
    found = sum(bool(moves.few(values, *gaps(values))) for values in (noisy(rng, n, 0.03) for _ in range(150)))
    assert found <= 1


def test_spread_of_a_level() -> None:
    """A few points do not make a level quieter than runs commonly are; many do, and wide runs make it noisier."""
    assert 0.02 < moves.spread(np.ones(2), gaps(np.ones(2))) < 0.03
    assert moves.spread(np.ones(100), gaps(np.ones(100))) < 0.01
    assert moves.spread(np.ones(2), (np.full(2, 0.5), np.full(2, 2.0))) > 0.2
    assert moves.spread(np.zeros(2), gaps(np.zeros(2))) == 0


def test_noise_of_a_machine_from_its_control_arms() -> None:
    """A noisy machine is noisy for all its series; a quiet one, or one with few values, counts as runs commonly are."""
    rng = np.random.default_rng(3)
    stepped = np.concatenate([noisy(rng, 30, 0.2), noisy(rng, 30, 0.2) * 3])
    assert moves.noise([noisy(rng, 100, 0.2), stepped]) == pytest.approx(0.2, rel=0.3)
    assert moves.noise([noisy(rng, 100, 0.001)]) == moves.PRIOR_SPREAD
    assert moves.noise([np.array([1.0, 2.0]), np.array([5.0])]) == moves.PRIOR_SPREAD
    assert moves.noise([]) is None
    one = np.array([1.0, 1.0])
    assert moves.compare(one, one * 1.5).moved
    assert not moves.compare(one, one * 1.5, prior=0.2).moved


def test_levels_further_apart_than_any_number_have_the_largest_ratio():
    """1e-320 to 1e308 is a move with a finite factor, not an overflow."""
    move = moves.compare(np.full(3, 1e-320), np.full(3, 1e308))

    assert move.moved
    assert move.ratio == pytest.approx(sys.float_info.max)
    assert 0 < move.low <= move.ratio <= move.high < math.inf
