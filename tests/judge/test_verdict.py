"""Verdicts: what is called, what is not, and why."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_kernels.errors import NothingMeasured
from hybrid_kernels.history import importers
from hybrid_kernels.judge import stats, verdict
from hybrid_kernels.records import Sampled


def rounds(benchmark, ratios, *, base=1.0, noise=0.0, seed=0, **more):
    """Records of a benchmark whose head takes `ratios[r]` times what the base takes in round r."""
    rng = np.random.default_rng(seed)
    defaults = {"unit": "seconds", "direction": -1, "version": "1", "cell": ""}
    made = []
    for number, ratio in enumerate(ratios, 1):
        for side, value in (("base", base), ("head", base * ratio)):
            samples = tuple(value * math.exp(rng.normal(0, noise)) for _ in range(3))
            made.append(Sampled(side=side, round=number, benchmark=benchmark, samples=samples, **(defaults | more)))
    return made


def noisy(mean, n=8, sd=0.01, seed=0):
    return np.exp(np.random.default_rng(seed).normal(math.log1p(mean), sd, n))


def judged(samples, **options):
    return verdict.judge(importers.frame(samples), **options)


def words(result):
    return {row.name: row.verdict for row in result.rows}


def test_a_clear_change_is_called_by_its_direction():
    """+20 % is slower for a time and faster for a bandwidth; -20 % the reverse; asv issue 1617 has it backwards."""
    samples = [
        *rounds("a.time_up", noisy(0.2, seed=1)),
        *rounds("a.track_up", noisy(0.2, seed=2), unit="GB/s", direction=1),
        *rounds("a.time_down", noisy(-0.2, seed=3)),
        *rounds("a.track_down", noisy(-0.2, seed=4), unit="MFLOPS", direction=0),
    ]

    assert words(judged(samples)) == {
        "a.time_up": "slower", "a.track_up": "faster", "a.time_down": "faster", "a.track_down": "slower",
    }  # fmt: skip


def test_unknown_direction_is_never_a_verdict():
    """A unit that says nothing about better or worse gives a change and no verdict, however sure the change."""
    (row,) = judged(rounds("a.track_x", noisy(0.5), unit="unit", direction=0)).rows

    assert row.verdict == "unadjudicable"
    assert "direction unknown" in row.reason
    assert row.change == pytest.approx(0.5, abs=0.02)


def test_change_is_head_over_base_of_the_values_shown():
    """The three numbers of a row agree with one another, and the interval holds the change."""
    (row,) = judged(rounds("a.time_x", noisy(0.1, sd=0.03), base=2e-3)).rows

    assert row.head / row.base - 1 == pytest.approx(row.change)
    assert row.ci_low < row.change < row.ci_high
    assert row.called_low < row.ci_low
    assert row.ci_high < row.called_high


def test_same_is_shown_not_assumed():
    """Little noise and no change: the same. Much noise and no change: unsettled, with the rounds it lacks."""
    result = judged(
        [*rounds("a.time_quiet", noisy(0.0, sd=0.005)), *rounds("a.time_loud", noisy(0.0, sd=0.05, seed=5))]
    )
    loud = next(row for row in result.rows if row.name == "a.time_loud")

    assert words(result) == {"a.time_quiet": "same", "a.time_loud": "unsettled"}
    assert loud.lacking > 0
    assert f"about {loud.lacking} more round" in loud.reason


def test_a_single_run_a_side_is_unadjudicable_and_shows_its_spread():
    """Nothing is called from one run a side, even a doubling; the spread of all rows is given as the noise it is."""
    samples = [s for k, ratio in enumerate((2.0, 1.1, 0.9, 1.0)) for s in rounds(f"a.time_{k}", [ratio])]
    result = judged(samples)

    assert set(words(result).values()) == {"unadjudicable"}
    assert result.spread["rows"] == 4
    assert result.spread["most"] == pytest.approx(1.0)
    assert all("one run a side" in row.reason for row in result.rows)


def test_a_control_arm_that_moved_makes_every_row_unadjudicable():
    """The machine changed between the sides, so a slowdown of a row proves nothing."""
    samples = [
        *rounds("a.time_x", noisy(0.2)),
        *rounds("controls.time_memcpy", noisy(0.2, seed=2), control=True),
    ]
    result = judged(samples)

    assert [row.verdict for row in result.controls] == ["moved"]
    assert words(result) == {"a.time_x": "unadjudicable"}
    assert "controls.time_memcpy" in result.rows[0].reason


def test_a_change_no_larger_than_the_control_arms_moved_is_not_called():
    """A control arm that wandered by 8 % without being sure of it sets the floor: 6 % is not called, 20 % is."""
    wander = np.exp([0.2, -0.1, 0.25, -0.02, 0.18, 0.0, 0.2, -0.07])
    samples = [
        *rounds("controls.time_memcpy", wander, control=True),
        *rounds("a.time_small", noisy(0.06, sd=0.002)),
        *rounds("a.time_large", noisy(0.2, sd=0.002)),
    ]
    result = judged(samples)

    assert result.controls[0].verdict == "held"
    assert words(result) == {"a.time_small": "unsettled", "a.time_large": "slower"}
    assert "control arms" in result.rows[0].reason


def test_noise_learned_from_equal_code_sets_the_threshold():
    """4 % is slower against the default of 3 %, and the same for a benchmark known to wander by that much."""
    samples = rounds("a.time_x", noisy(0.04, sd=0.004, n=12))
    wanders = {("a.time_x", "1"): list(np.random.default_rng(0).normal(0, 0.06, 24))}
    quiet = {("a.time_x", "1"): list(np.random.default_rng(0).normal(0, 0.001, 24))}
    other = {("a.time_x", "0"): list(np.random.default_rng(0).normal(0, 0.06, 24))}

    (default,), (loud,), (still,), (method,) = (
        judged(samples, noise=noise).rows for noise in (None, wanders, quiet, other)
    )
    assert (default.verdict, default.threshold, default.learned_from) == ("slower", pytest.approx(0.03), 0)
    assert (loud.verdict, loud.learned_from) == ("same", 24)
    assert (still.verdict, still.threshold) == ("slower", pytest.approx(0.01))
    assert method.learned_from == 0  # the noise of another method says nothing


def test_one_sided_benchmarks_are_added_or_removed():
    """What exists on one side only is listed as such, with the value it has."""
    both = rounds("a.time_x", noisy(0.0))
    only = [s for s in rounds("a.time_new", noisy(0.0)) if s.side == "head"]
    gone = [s for s in rounds("a.time_old", noisy(0.0)) if s.side == "base"]
    result = judged([*both, *only, *gone])

    assert words(result) == {"a.time_x": "same", "a.time_new": "added", "a.time_old": "removed"}
    assert result.rows[1].base is None
    assert result.rows[1].head == pytest.approx(1.0, abs=0.1)


def test_another_version_is_a_method_change_and_never_a_ratio():
    """A benchmark whose version differs has no change, whatever its values do."""
    samples = [dataclasses.replace(s, version="2") if s.side == "head" else s for s in rounds("a.time_x", noisy(1.0))]
    (row,) = judged(samples).rows

    assert (row.verdict, row.change) == ("method changed", None)
    assert (row.version_base, row.version_head) == ("1", "2")


def test_a_benchmark_that_fails_on_one_side_is_named_with_its_error():
    """A failure is not a removal: the row says where it failed and the last line of the error."""
    good = rounds("a.time_x", noisy(0.0))
    bad = [
        dataclasses.replace(s, samples=(), error="Traceback...\nValueError: no such kernel") if s.side == "head" else s
        for s in rounds("a.time_y", noisy(0.0))
    ]
    row = judged([*good, *bad]).rows[1]

    assert row.verdict == "unadjudicable"
    assert "nothing measured at head (ValueError: no such kernel)" in row.reason


def test_what_skips_itself_everywhere_is_listed_as_skipped_not_as_a_row():
    """A benchmark for a device that is absent is no row, but what the run left out names it."""
    skipping = [dataclasses.replace(s, samples=()) for s in rounds("a.time_gpu", noisy(0.0), cell="device=cuda")]
    result = judged([*rounds("a.time_x", noisy(0.0)), *skipping])

    assert words(result) == {"a.time_x": "same"}
    assert [name for name, _ in result.skipped] == ["a.time_gpu(device=cuda)"]


@pytest.mark.parametrize("empty", ["base", "head"])
def test_nothing_measured_on_a_side_is_an_error_of_its_own(empty):
    """12 series on one side and none on the other is neither a pass nor a regression (pybroker issue 287)."""
    samples = [s for k in range(12) for s in rounds(f"a.time_{k}", noisy(0.0)) if s.side != empty]

    with pytest.raises(
        NothingMeasured, match=f"nothing measured on {empty}.*has 12 series.*neither a pass nor"
    ) as error:
        judged(samples)
    assert error.value.exit_code == 3
    with pytest.raises(NothingMeasured, match=r"base.*and head"):
        judged([])


def test_control_arms_alone_do_not_make_a_side_measured():
    """When every benchmark of the head failed, a copy that ran there does not turn that into a report."""
    failed = [
        dataclasses.replace(s, samples=(), error="boom") if s.side == "head" else s
        for s in rounds("a.time_x", noisy(0.0))
    ]

    with pytest.raises(NothingMeasured, match=r"head.*first error: boom"):
        judged([*failed, *rounds("controls.time_copy", noisy(0.0), control=True)])


def test_zeros_form_no_ratio_and_equal_zeros_are_the_same():
    """Counts of zero on both sides did not change; zero against something has no ratio."""
    same = [
        dataclasses.replace(s, samples=(0.0,)) for s in rounds("a.track_fallbacks", [1] * 4, unit="count", direction=-1)
    ]
    grew = [
        dataclasses.replace(s, samples=(0.0 if s.side == "base" else 2.0,))
        for s in rounds("a.track_captures", [1] * 4, unit="count", direction=-1)
    ]
    result = judged([*same, *grew])

    assert words(result) == {"a.track_fallbacks": "same", "a.track_captures": "unadjudicable"}
    assert "zero" in result.rows[1].reason


def test_a_diff_that_touches_nothing_measured_calls_nothing():
    """When the change cannot matter, whatever moved is noise by construction."""
    result = judged(rounds("a.time_x", noisy(0.3)), untouched=True)

    assert words(result) == {"a.time_x": "unadjudicable"}
    assert "noise" in result.rows[0].reason


def test_values_that_never_vary_are_called_from_three_rounds_on():
    """A deterministic count that changed is a change; two equal rounds alone could be chance."""

    def count(n):
        return judged(rounds("a.track_registers", [1.25] * n, unit="registers", direction=-1)).rows[0].verdict

    assert [count(n) for n in (2, 3, 8)] == ["unsettled", "slower", "slower"]


def test_a_round_that_only_one_side_finished_is_left_out():
    """An interrupted run judges the rounds that both sides have."""
    samples = rounds("a.time_x", noisy(0.2))[:-1]

    assert judged(samples).rows[0].rounds == 7


@given(st.permutations(range(16)))
@settings(max_examples=20, deadline=None)
def test_order_of_records_does_not_matter(order):
    """The same samples in any order give the same verdict."""
    samples = rounds("a.time_x", noisy(0.05, sd=0.02), noise=0.01)

    assert judged([samples[k] for k in order]).rows == judged(samples).rows


@given(st.floats(-0.4, 0.8), st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_swapping_the_sides_swaps_the_verdict(change, seed):
    """Slower one way round is faster the other way round; same and unsettled stay."""
    samples = rounds("a.time_x", noisy(change, sd=0.03, seed=seed))
    swapped = [dataclasses.replace(s, side="head" if s.side == "base" else "base") for s in samples]
    opposite = {"slower": "faster", "faster": "slower"}
    (row,), (back,) = judged(samples).rows, judged(swapped).rows

    assert back.verdict == opposite.get(row.verdict, row.verdict)
    assert (1 + row.change) * (1 + back.change) == pytest.approx(1)


def test_equal_code_is_called_in_at_most_one_of_a_hundred_reports():
    """400 comparisons of equal code, 20 benchmarks with outliers, drift and a bias a process, looked at 4 times."""
    rng = np.random.default_rng(11)
    reports = 0
    for _ in range(400):
        d = rng.normal(0, 0.05, (20, 12)) + rng.normal(0, 0.02, 12) + 0.4 * rng.standard_t(2, (20, 12)) * 0.05
        d += 0.03 * np.where(np.arange(12) % 2, 1, -1)  # a steady drift, in A B B A order
        called = False
        for look in (4, 6, 8, 12):
            p = [stats.estimate(row[:look]).p_value() for row in d]
            called = called or bool(stats.called(p, stats.allowance(stats.FALSE_REPORTS, look, stats.LOOKS)).any())
        reports += called

    assert reports <= 8  # 4 expected at the very most; 8 has a chance of 2 % then


def test_the_stopping_rule_names_what_is_unsettled():
    """More rounds are asked for by name, and no longer once every row is settled."""
    rule = verdict.Settled()
    open_row = rounds("a.time_loud", noisy(0.0, n=4, sd=0.05))
    closed = rounds("a.time_flat", [1.0] * 4)

    assert rule(open_row + closed) == ["a.time_loud"]
    assert rule(closed) == []
    unknown = rounds("a.track_score", noisy(0.5, n=4), unit="unit", direction=0)
    assert rule(closed + unknown) == []  # no number of rounds tells its direction
    shaken = rounds("controls.time_copy", noisy(0.5, n=4, sd=1e-6), control=True)
    assert rule(closed + shaken) == ["a.time_flat"]
    assert rule.looks == stats.LOOKS


def test_differences_are_what_a_calibration_keeps():
    """Per row and version, one log-ratio a round."""
    samples = rounds("a.time_x", [1.1, 0.9], cell="mib=64")

    ((key, values),) = verdict.differences(importers.frame(samples)).items()
    assert key == ("a.time_x(mib=64)", "1")
    assert values == pytest.approx([math.log(1.1), math.log(0.9)])


def test_values_further_apart_than_any_number_are_told_in_full():
    """1e-320 s to 1e308 s is slower by the largest number there is, not an overflow; the other way it is -100 %."""
    up = judged(rounds("a.time_x", [1e308] * 4) + rounds("a.time_y", [1e-320] * 4)).rows

    assert {row.name: row.verdict for row in up} == {"a.time_x": "slower", "a.time_y": "faster"}
    assert all(math.isfinite(row.change) for row in up)
