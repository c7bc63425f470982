"""The statistics against numbers done by hand, slow textbook versions, and their own promises under simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from hybrid_kernels.judge import stats

LOGS = st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=2, max_size=12)


@given(LOGS)
def test_the_interval_and_p_value_are_those_of_a_one_sample_t_test(differences):
    """For one sitting the estimate is the textbook t test of the paired log-ratios, as scipy computes it."""
    known = stats.estimate(differences)
    if known.error == 0:
        return
    reference = scipy_stats.ttest_1samp(differences, 0.0)
    low, high = reference.confidence_interval(0.95)

    assert known.p_value() == pytest.approx(reference.pvalue, rel=1e-6, abs=1e-12)
    assert known.interval(0.05) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


def test_four_rounds_by_hand():
    """Mean 0.1, sd 0.02: error 0.01, t = 10 with 3 degrees of freedom, 95 % interval 0.1 +- 3.182 * 0.01."""
    known = stats.estimate(0.1 + np.array([0.03, -0.01, -0.01, -0.01]))

    assert (known.mean, known.sd, known.error, known.freedom) == pytest.approx((0.1, 0.02, 0.01, 3))
    assert known.interval(0.05) == pytest.approx((0.06818, 0.13182), abs=1e-5)


@given(st.lists(st.floats(0, 1), max_size=30), st.sampled_from([0.01, 0.05, 0.2]))
def test_called_rows_are_those_of_the_step_up_rule(p_values, level):
    """The largest k with p(k) <= level * k / m marks the k smallest p-values: the rule of 1995, written out slowly."""
    m = len(p_values)
    ordered = sorted(p_values)
    bar = max((p for k, p in enumerate(ordered, 1) if p <= level * k / m), default=-1.0)
    expected = [p <= bar for p in p_values]
    near = any(math.isclose(p, level * k / m, rel_tol=1e-9) for k, p in enumerate(ordered, 1) if p)

    assert near or list(stats.called(p_values, level)) == expected


def test_one_row_among_many_needs_more_evidence_than_one_row_alone():
    """p = 0.005 is a call for a single row at 1 %, and no call among 59."""
    assert stats.called([0.005], 0.01).tolist() == [True]
    assert not stats.called([0.005] + [0.5] * 58, 0.01).any()


@given(st.integers(4, 60), st.integers(4, 60))
def test_looks_never_spend_more_than_there_is(first, second):
    """Planned looks spend exactly the level together; a look outside the plan only what has accrued since the last."""
    spent = [stats.allowance(0.01, look, stats.LOOKS) for look in stats.LOOKS]

    assert sum(spent) == pytest.approx(0.01)
    planned = [look for look in stats.LOOKS if look < first]
    total = sum(stats.allowance(0.01, look, stats.LOOKS) for look in planned)
    assert total + stats.allowance(0.01, first, stats.LOOKS) <= 0.01 + 1e-15
    assert stats.allowance(0.01, second) == 0.01


def test_equivalence_is_the_interval_inside_the_margin():
    """Sure and small is the same; sure and large, or small and unsure, is not."""

    def known(mean, error):
        return stats.Estimate(mean, error, 7, error * math.sqrt(8), 8)

    assert stats.equivalent(known(0.01, 0.005), 0.03)
    assert not stats.equivalent(known(0.04, 0.005), 0.03)
    assert not stats.equivalent(known(0.01, 0.02), 0.03)


def test_sittings_that_disagree_widen_the_interval_and_those_that_agree_narrow_it():
    """Two sittings 10 % apart leave the mean open, whatever each says; two that agree know it better than one."""
    rng = np.random.default_rng(1)
    one = rng.normal(0.0, 0.01, 8)
    other = one[::-1].copy()
    runs = ["monday"] * 8 + ["friday"] * 8

    agree = stats.estimate(np.concatenate([one, other]), runs)
    disagree = stats.estimate(np.concatenate([one, other + 0.1]), runs)

    assert agree.error < stats.estimate(one).error
    assert disagree.freedom == 1
    low, high = disagree.interval(0.05)
    assert low < 0 < high


def test_a_share_of_the_variance_between_sittings_is_covered():
    """With a bias of its own in each of 4 sittings, the 95 % interval holds the truth in about 95 of 100 cases."""
    rng = np.random.default_rng(7)
    runs = np.repeat(["a", "b", "c", "d"], 6)
    held = 0
    for _ in range(1000):
        d = rng.normal(0, 0.02, 24) + np.repeat(rng.normal(0, 0.03, 4), 6)
        low, high = stats.estimate(d, runs).interval(0.05)
        held += low < 0 < high

    assert held >= 930


@pytest.mark.parametrize("sd", [0.01, 0.05])
def test_learned_threshold_holds_comparisons_of_equal_code(sd):
    """Means of LEARNING_ROUNDS rounds of equal code stay within the learned threshold in about 99 of 100 cases."""
    rng = np.random.default_rng(3)
    beyond = 0
    for _ in range(2000):
        margin = stats.threshold(rng.normal(0, sd, 24))
        beyond += abs(rng.normal(0, sd, stats.LEARNING_ROUNDS).mean()) > margin

    assert beyond <= 40
    assert stats.threshold(np.zeros(24)) == pytest.approx(math.log1p(stats.LEAST_THRESHOLD))
    assert math.isnan(stats.threshold([0.01]))


@given(st.floats(0, 0.3), st.floats(0.001, 0.05), st.integers(4, 16))
@settings(max_examples=60)
def test_rounds_lacking_are_just_enough(mean, sd, rounds):
    """With as many rounds more as named, and the same mean and spread, the row settles; with one fewer it does not."""
    known = stats.Estimate(mean, sd / math.sqrt(rounds), rounds - 1, sd, rounds)
    more = stats.lacking(known, 0.03, 0.001, 10)

    def settles(n):
        at = stats.Estimate(mean, sd / math.sqrt(n), n - 1, sd, n)
        return (mean >= 0.03 and at.p_value() < 0.001 / 10) or stats.equivalent(at, 0.03)

    if more is None:
        assert not settles(128)
    else:
        assert settles(rounds + more)
        assert more == 1 or not settles(rounds + more - 1)
