"""The statistics of a comparison: paired log-ratios, their interval, many rows at once, several looks, equivalence.

Everything works on log(head / base), one number a round, so that a slowdown and the speed-up that undoes it are equally
large. Nothing here knows what a benchmark is. Why these methods: docs/method.md, "Comparing two commits".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

FALSE_REPORTS = 0.01
"""Probability that a comparison of equal code calls any row at all, over all rows and all looks."""

LOOKS = (4, 6, 8, 12, 16, 24, 32)
"""Rounds after which `auto` decides. All even: in A B B A order a steady drift then cancels out of the mean."""

DEFAULT_THRESHOLD = 0.03
"""Change below which two sides are the same, where no A/A history says better. Another build of equal code alone moves
a benchmark by one to three percent through its memory layout, which no number of rounds averages away."""

LEAST_THRESHOLD = 0.01
"""However quiet a benchmark is, smaller changes are the same: rounds do not cover what differs between two builds."""

LEARNING_ROUNDS = 8
"""A learned threshold is what comparisons of equal code with this many rounds stay within 99 times in 100."""


@dataclass(frozen=True)
class Estimate:
    """Mean of paired log-ratios with its standard error and degrees of freedom; `sd` is that of one round."""

    mean: float
    error: float
    freedom: int
    sd: float
    rounds: int

    def interval(self, miss: float) -> tuple[float, float]:
        """Two-sided t interval that misses the true mean with probability `miss`. Infinite with fewer than 2 rounds."""
        if self.freedom < 1:
            return -math.inf, math.inf
        half = float(stats.t.isf(miss / 2, self.freedom)) * self.error if self.error > 0 else 0.0
        return self.mean - half, self.mean + half

    def p_value(self) -> float:
        """Probability of a mean this far from zero, or farther, when the true mean is zero (two-sided t test)."""
        if self.freedom < 1:
            return 1.0
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.freedom))


def estimate(differences: npt.ArrayLike, runs: Sequence[str] | None = None) -> Estimate:
    """The mean log-ratio of `differences` (one a round) and how well it is known.

    `runs` names the sitting that each round belongs to. With several sittings the error is the larger of two: that of
    the rounds about their sitting's mean, and that of the sittings' means, with the degrees of freedom of the one used
    (one-way analysis of variance with random effects: Snedecor and Cochran, Statistical Methods, ch. 13). So sittings
    that disagree widen the interval, and sittings that agree narrow it.
    """
    d = np.asarray(differences, dtype=float)
    n = d.size
    if n == 0:
        return Estimate(math.nan, math.nan, 0, math.nan, 0)
    labels = np.zeros(n, dtype=int) if runs is None else np.unique(np.asarray(runs), return_inverse=True)[1]
    count = int(labels.max()) + 1
    mean = float(d.mean())
    if count == 1:
        sd = float(d.std(ddof=1)) if n > 1 else math.nan
        sd = 0.0 if sd < 1e-12 else sd  # equal values leave rounding errors, not noise
        return Estimate(mean, sd / math.sqrt(n), n - 1, sd, n)
    sizes = np.bincount(labels)
    centres = np.bincount(labels, weights=d) / sizes
    within = float(np.sum((d - centres[labels]) ** 2)) / (n - count) if n > count else 0.0
    between = float(np.sum(sizes * (centres - mean) ** 2)) / (count - 1)
    if n > count and within >= between:
        return Estimate(mean, math.sqrt(within / n), n - count, math.sqrt(within), n)
    return Estimate(mean, math.sqrt(between / n), count - 1, math.sqrt(max(within, between)), n)


def called(p_values: npt.ArrayLike, level: float) -> npt.NDArray[np.bool_]:
    """Which rows may be called so that the expected share of false ones among them is at most `level`.

    Benjamini and Hochberg (J. R. Statist. Soc. B 57, 1995), through scipy. When no row truly changed every call is
    false, so `level` is then also the probability of any call in the report.
    """
    p = np.asarray(p_values, dtype=float)
    if p.size == 0:
        return np.zeros(0, dtype=bool)
    return np.asarray(stats.false_discovery_control(p, method="bh") <= level)


def allowance(level: float, rounds: int, looks: Sequence[int] = ()) -> float:
    """The part of `level` that a look after `rounds` rounds may spend; all of it when there is a single look.

    Spending grows linearly with the rounds (Kim and DeMets, Biometrika 74, 1987, with exponent 1), and each look tests
    at its own part only, so by Bonferroni the parts of all looks together never exceed `level`, whatever their
    dependence. A look outside the plan (time was up) spends what has accrued since the last planned one.
    """
    if not looks:
        return level
    before = max((look for look in looks if look < rounds), default=0)
    return level * max(min(rounds, looks[-1]) - before, 0) / looks[-1]


def equivalent(known: Estimate, margin: float, miss: float = 0.05) -> bool:
    """Whether the mean is shown to lie within ±`margin` (log units): two one-sided t tests at `miss` / 2 each.

    Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987. The same as the two-sided interval lying inside the margin.
    """
    low, high = known.interval(miss)
    return -margin < low and high < margin


def rms(differences: npt.ArrayLike) -> float:
    """Noise of one round from comparisons of equal code: root mean square, since their true mean is known to be 0."""
    d = np.asarray(differences, dtype=float)
    return float(np.sqrt(np.mean(d**2))) if d.size else math.nan


def threshold(differences: npt.ArrayLike) -> float:
    """Threshold (a log-ratio) learned from the rounds of A/A comparisons.

    A mean of LEARNING_ROUNDS rounds of equal code stays within it 99 times in 100: t quantile times noise over
    sqrt(rounds), never under LEAST_THRESHOLD. Needs two rounds; NaN with fewer.
    """
    d = np.asarray(differences, dtype=float)
    if d.size < 2:
        return math.nan
    return max(
        float(stats.t.isf(0.005, d.size)) * rms(d) / math.sqrt(LEARNING_ROUNDS),
        math.log1p(LEAST_THRESHOLD),
    )


def lacking(known: Estimate, margin: float, level: float, rows: int, most: int = 128) -> int | None:
    """Rounds more until the row would settle if mean and spread stay as they are; None when `most` do not suffice.

    It settles when the interval corrected for `rows` rows at `level` excludes zero (a change beyond the margin), or the
    95 % interval lies inside the margin.
    """
    if known.rounds < 2 or not math.isfinite(known.sd):
        return None
    size = abs(known.mean)
    rounds = np.arange(max(known.rounds + 1, LOOKS[0]), most + 1)
    error = known.sd / np.sqrt(rounds)
    changed = (size >= margin) & (size > stats.t.isf(level / rows / 2, rounds - 1) * error)
    alike = size + stats.t.isf(0.025, rounds - 1) * error < margin
    enough = rounds[changed | alike]
    return int(enough[0]) - known.rounds if enough.size else None
