"""Steps in series with known answers; rates over many series are measured by benchmarks/detector.py."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_kernels.history import store
from hybrid_kernels.judge import steps


def noise(seed: int, n: int, spread: float = 0.03) -> np.ndarray:
    """A series at level 1 with log-normal noise."""
    return np.exp(np.random.default_rng(seed).normal(0.0, spread, n))


def near(found: list[steps.Step], index: int, within: int = 2) -> bool:
    """Whether exactly one step was found, and there."""
    return len(found) == 1 and abs(found[0].index - index) <= within


def test_levels_and_interval():
    """A step states both levels, their ratio and a 95 % interval that holds the planted one."""
    values = noise(1, 60) * np.where(np.arange(60) < 40, 2.0, 3.0)

    (step,) = steps.find(values)

    assert step.index == 40
    assert step.before == pytest.approx(2.0, rel=0.03)
    assert step.after == pytest.approx(3.0, rel=0.03)
    assert step.ratio == pytest.approx(step.after / step.before)
    assert step.ratio_low < 1.5 < step.ratio_high
    assert (step.n_before, step.n_after) == (40, 20)
    assert step.confirmed


def test_interval_covers():
    """The 95 % interval of the ratio holds the planted ratio in about 95 of 100 series."""
    held = [
        any(
            one.ratio_low < 1.2 < one.ratio_high
            for one in steps.find(noise(seed, 40) * np.where(np.arange(40) < 20, 1, 1.2))
        )
        for seed in range(300)
    ]

    assert 0.90 < np.mean(held) < 0.99


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    before=st.integers(10, 60),
    after=st.integers(10, 60),
    ratio=st.sampled_from([0.4, 0.7, 0.8, 1.3, 1.6, 3.0]),
    unit=st.floats(1e-9, 1e9),
)
def test_planted_step(seed, before, after, ratio, unit):
    """A step of ten times the noise is found where it is, whatever the unit, and not as something else besides."""
    values = unit * noise(seed, before + after, 0.02) * np.where(np.arange(before + after) < before, 1.0, ratio)

    assert near(steps.find(values), before, within=1)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-6, 1e6))
def test_unit_does_not_matter(seed, scale):
    """The same series in another unit has the same steps."""
    values = noise(seed, 50) * np.where(np.arange(50) < 25, 1.0, 1.1)

    assert [one.index for one in steps.find(values)] == [one.index for one in steps.find(values * scale)]


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_reversed(seed):
    """Read backwards, a series has the same step, turned over."""
    values = noise(seed, 40) * np.where(np.arange(40) < 20, 1.0, 1.5)

    found = steps.find(values), steps.find(values[::-1])

    # chance makes another step in a few of 1,000 series (steps.false_rate): the planted one is the one in the middle
    forwards, backwards = (min(all_of, key=lambda one: abs(one.index - 20)) for all_of in found)
    assert backwards.index == 40 - forwards.index
    assert backwards.ratio == pytest.approx(1 / forwards.ratio)


def test_several_levels():
    """Each of several steps is found, also one that is undone ten points later."""
    level = np.ones(200)
    level[40:80], level[120:130] = 1.25, 0.8

    found = [one.index for one in steps.find(noise(3, 200) * level)]

    assert len(found) == 4
    np.testing.assert_allclose(found, [40, 80, 120, 130], atol=1)


@pytest.mark.parametrize("seed", range(30))
def test_outliers_are_no_steps(seed):
    """Single wild values, high or low or two at once, make no step."""
    values = noise(seed, 120)
    values[[7, 50, 51, 100]] *= [5, 1.5, 1.7, 0.1]

    assert steps.find(values) == []


def test_step_among_outliers():
    """A step is found although every twentieth value is wild."""
    values = noise(5, 100) * np.where(np.arange(100) < 60, 1.0, 1.2)
    values[::20] *= 4

    assert near(steps.find(values), 60)


def test_noise_that_grows():
    """Noise that becomes five times larger is no step; a step in the quiet part is found all the same."""
    for seed in range(20):
        wild = np.concatenate([noise(seed, 100, 0.01), noise(seed + 100, 100, 0.05)])
        assert steps.find(wild) == []

    wild[50:] *= 1.05
    assert near(steps.find(wild), 50)


def test_drift_is_no_step():
    """A series whose neighbours are alike (AR(1), 0.9) wanders, and that is not a step; a doubling in it is one."""
    false = 0
    for seed in range(40):
        shocks = np.random.default_rng(seed).normal(0, 0.013, 200)
        wander = np.zeros(200)
        for at in range(1, 200):
            wander[at] = 0.9 * wander[at - 1] + shocks[at]
        false += bool(steps.find(np.exp(wander)))
    assert false <= 2

    assert near(steps.find(np.exp(wander) * np.where(np.arange(200) < 120, 1.0, 2.0)), 120)


def test_exact_counts():
    """A count without any noise has a step where it changes, and none below half a percent."""
    assert [one.index for one in steps.find([100.0] * 6 + [110.0] * 6)] == [6]
    assert steps.find([1000.0] * 20 + [1001.0] * 20) == []
    assert steps.find([7.0] * 30) == []


def test_rounded_values():
    """Values rounded to a coarse step do not seem to change level because some neighbours are equal."""
    for seed in range(20):
        values = np.round(noise(seed, 100, 0.003) * 300) / 300
        assert steps.find(values) == []


def test_zero_and_negative():
    """Levels that are zero or negative have steps, and no ratio where none can be formed."""
    (zero,) = steps.find([0.0] * 8 + [5.0] * 8)
    (negative,) = steps.find(np.concatenate([noise(0, 10) - 3, noise(1, 10) + 3]))

    assert (zero.index, zero.before, zero.after) == (8, 0.0, 5.0)
    assert math.isnan(zero.ratio)
    assert negative.index == 10
    assert math.isnan(negative.ratio_low)


@settings(max_examples=25)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_any_numbers(values):
    """Whatever the numbers are, the answer is a list of steps inside the series, in order, and no warning."""
    found = steps.find(values, ends=True)

    assert all(0 < one.index < len(values) for one in found)
    assert [one.index for one in found] == sorted({one.index for one in found})


def test_gaps_keep_places():
    """Missing values are passed over, and the place of a step is that in the series as given."""
    values = noise(2, 40) * np.where(np.arange(40) < 20, 1.0, 1.5)
    values[[3, 4, 19, 30]] = np.nan

    assert near(steps.find(values), 20, within=0)


def test_ends():
    """One or two points off at either end are told on request, as not confirmed; an ordinary end is not."""
    values = noise(4, 40)
    assert steps.find(values, ends=True) == []

    values[-1] *= 1.3
    values[:2] *= 0.7
    first, last = steps.find(values, ends=True)

    assert steps.find(values) == []
    assert (first.index, first.n_before, first.confirmed) == (2, 2, False)
    assert (last.index, last.n_after, last.confirmed) == (39, 1, False)
    assert last.ratio == pytest.approx(1.3, rel=0.1)


def frame_of(values: np.ndarray, versions: list[str]) -> pd.DataFrame:
    """A history frame of one series, with the columns that `find_all` reads."""
    frame = pd.DataFrame({"value": values, "version": pd.Categorical(versions), "order": range(len(values))})
    for name, text in {"machine": "m", "env": "e", "benchmark": "b", "cell": "", "unit": "s"}.items():
        frame[name] = pd.Categorical([text] * len(values))
    frame["commit"] = [f"c{at}" for at in range(len(values))]
    frame["date"] = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(range(len(values)), "D")
    frame["direction"] = -1
    return frame


def test_version_splits():
    """A change of version is no step, however large; a step inside a version is."""
    level = np.where(np.arange(60) < 30, 1.0, 5.0) * np.where(np.arange(60) < 45, 1.0, 1.3)

    found = steps.find_all(frame_of(noise(0, 60) * level, ["a"] * 30 + ["b"] * 30))

    assert found["commit"].tolist() == ["c45"]
    assert found["row"].tolist() == [45]
    assert found["version"].tolist() == ["b"]


def test_step_on_the_last_point_of_a_version():
    """A real step on the very last point before a change of version is told, as not confirmed."""
    level = np.where(np.arange(60) < 29, 1.0, 1.4)

    found = steps.find_all(frame_of(noise(0, 60) * level, ["a"] * 30 + ["b"] * 30))

    assert found["commit"].tolist() == ["c29"]
    assert found["confirmed"].tolist() == [False]
    assert found["version"].tolist() == ["a"]


def test_kedro(kedro):
    """In a real history the slowdown of Kedro's data catalog in November 2024 is found in series after series."""
    found = steps.find_all(store.load(kedro, benchmark="TimeDataCatalog").frame)

    same = found[found["date"].dt.strftime("%Y-%m-%d") == "2024-11-29"]
    assert same["benchmark"].nunique() >= 4
    assert (same["ratio_low"] > 1).all()


def test_nothing_to_find(kedro):
    """No steps give an empty frame with all its columns."""
    frame = store.load(kedro, benchmark="time_session_").frame.head(3)

    found = steps.find_all(frame)

    assert found.empty
    assert {"row", "machine", "ratio_low", "confirmed"} <= set(found.columns)


@pytest.mark.parametrize("points", [4, 5, 6, 8, 12])
def test_level_that_returns(points):
    """A level that returns after a few points gives two steps, however short all three stretches are."""
    for seed in range(10):
        values = noise(seed, 3 * points, 0.01)
        values[points : 2 * points] *= 0.6
        assert [one.index for one in steps.find(values)] == [points, 2 * points]


@pytest.mark.parametrize("before", [10, 20, 30])
def test_three_points_at_an_end(before):
    """Three points at an end that agree on another level are a step; their place is the first of them."""
    values = noise(before, before + 3, 0.005)
    values[before:] *= 0.3

    assert [one.index for one in steps.find(values)] == [before]
    assert [one.index for one in steps.find(values[::-1])] == [3]


def test_rates():
    """Pure noise hardly ever has a step, and most steps of 10 % in noise of 3 % are found with ten points and five."""
    level = np.where(np.arange(15) < 10, 1.0, 1.1)

    false = sum(bool(steps.find(noise(seed, 60))) for seed in range(300))
    found = sum(any(abs(one.index - 10) <= 2 for one in steps.find(noise(seed, 15) * level)) for seed in range(200))

    assert false <= 4  # one in 500 expected
    assert found >= 160  # nine in ten expected


@pytest.mark.parametrize("n", [10, 15])
def test_critical_scores_are_those_of_the_calibration(n: int) -> None:
    """Pure noise exceeds the critical score as often as is stated, within four standard errors of so many series."""
    rng = np.random.default_rng([7, n])
    series, rate = 1500, steps.false_rate(n)
    found = sum(steps.highest_score(np.exp(rng.normal(0, 0.03, n))) > steps.critical(n) for _ in range(series))
    assert abs(found - series * rate) <= 4 * (series * rate * (1 - rate)) ** 0.5
