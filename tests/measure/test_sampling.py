"""Sampling finds what is planted, and its intervals cover what they say."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_kernels.measure import sampling
from tests.fakes import FakeArm


def test_median_interval_of_eleven_is_the_second_and_tenth_value() -> None:
    """By hand: P(Binomial(11, 1/2) < 2) = 12/2048 = 0.0059, and < 3 = 0.0327 > 0.025; so ranks 2 and 10."""
    assert sampling.median_interval(np.arange(11.0)[::-1]) == (1.0, 9.0)


def test_median_interval_below_six_values_is_the_range() -> None:
    """No pair of five order statistics reaches 95 %, so everything seen is given."""
    assert sampling.median_interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (1.0, 5.0)


def test_median_interval_needs_a_value() -> None:
    """Nothing has no median."""
    with pytest.raises(ValueError, match="values"):
        sampling.median_interval([])


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=60))
def test_median_interval_holds_the_median(values: list[float]) -> None:
    """Whatever the values, the sample median lies inside."""
    low, high = sampling.median_interval(values)
    assert low <= np.median(values) <= high


@pytest.mark.parametrize("n", [6, 11, 30])
def test_median_interval_covers_what_it_says(n: int) -> None:
    """Over 4,000 seeded draws from a skewed distribution the true median is covered in 95 % or more."""
    rng = np.random.default_rng(n)
    covered = 0
    for _ in range(4000):
        low, high = sampling.median_interval(rng.lognormal(0, 1, n))
        covered += low <= 1.0 <= high
    assert covered / 4000 > 0.94


def test_batch_lasts_long_enough_and_holds_whole_rounds() -> None:
    """A pass of 0.3 ms and a batch of 4 ms make 14 passes, and 5 buffers round them up to 15."""
    assert sampling.batch_size(FakeArm("a", lambda: 3e-4), 4e-3) == 14
    assert sampling.batch_size(FakeArm("a", lambda: 3e-4, copies=5), 4e-3) == 15


def test_batch_of_a_long_pass_is_one() -> None:
    """A pass that outlasts the batch is taken alone."""
    assert sampling.batch_size(FakeArm("a", lambda: 1.0, copies=5)) == 1


def test_ramp_goes_on_while_it_gets_faster() -> None:
    """A device that speeds up by 10 % a pass until it reaches its clocks is worked until then."""
    times = itertools.chain((1e-3 * 0.9**i for i in range(20)), itertools.repeat(1e-3 * 0.9**20))
    arm = FakeArm("a", lambda: next(times))
    assert sampling.ramp(arm, 1, floor=0.0) == pytest.approx(1e-3 * 0.9**20)
    assert sum(arm.passes) >= 20


def test_ramp_ends_at_its_limit() -> None:
    """A device that never settles does not hold the run up."""
    times = (0.9**i for i in itertools.count())
    start = time.monotonic()
    sampling.ramp(FakeArm("a", lambda: next(times)), 1, floor=0.0, limit=0.05)
    assert time.monotonic() - start < 5


def test_interleaving_takes_turns_both_ways() -> None:
    """Every arm is sampled once a round, every other round backwards, and each tick is reported."""
    order: list[str] = []

    def arm(name: str) -> FakeArm:
        return FakeArm(name, lambda: order.append(name) or 1.0)

    ticks: list[int] = []
    taken = sampling.interleave([arm("a"), arm("b")], 3, [1, 1], lambda: ticks.append(1))
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert len(ticks) == 6
    assert [len(t.seconds) for t in taken] == [3, 3]


def test_a_drift_meets_interleaved_arms_alike() -> None:
    """A clock that falls by 1 % a sample moves the ratio of two equal arms by less than one step."""
    clock = (1.01**i for i in itertools.count())
    arms = [FakeArm(name, lambda: next(clock)) for name in "ab"]
    a, b = sampling.interleave(arms, 20, [1, 1])
    assert abs(a.seconds.mean() / b.seconds.mean() - 1) < 0.005


def test_a_pass_that_sleeps_is_measured_as_such() -> None:
    """Planted truth, on the real clock: passes of 2 ms and 6 ms differ by 3, with noise of the sleep only."""

    def slept(seconds: float) -> FakeArm:
        def work() -> float:
            start = time.perf_counter()
            time.sleep(seconds)
            return time.perf_counter() - start

        return FakeArm("sleep", work)

    short, long = sampling.interleave([slept(2e-3), slept(6e-3)], 15, [1, 1])
    assert short.best >= 2e-3
    assert long.best >= 6e-3
    assert 2.0 < long.best / short.best < 3.5


def test_planted_noise_comes_back() -> None:
    """Log-normal noise of 5 % a pass: the spread of 400 samples is 5 %, of batches of 16 a quarter of it."""
    rng = np.random.default_rng(1)
    arm = FakeArm("noisy", lambda: 1e-3 * rng.lognormal(0, 0.05))
    (single,) = sampling.interleave([arm], 400, [1])
    (batched,) = sampling.interleave([arm], 400, [16])
    assert np.std(np.log(single.seconds)) == pytest.approx(0.05, rel=0.15)
    assert np.std(np.log(batched.seconds)) == pytest.approx(0.0125, rel=0.15)
    assert single.median == pytest.approx(1e-3, rel=0.01)
