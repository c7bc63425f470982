"""Whether a level moved between two groups of points, however few, and steps in series too short for `steps.find`.

A handful of points tells too little of its own spread: two that happen to agree would make anything significant. So the
spread is shrunk towards what repeated runs of equal code commonly show: `variance = (d0 s0^2 + SS) / (d0 + d)`, tested
with Student's t of d0 + d degrees of freedom (the moderated t of Smyth, Statist. Appl. Genet. Mol. Biol. 3(1), 2004,
with a fixed prior). Where the runs kept an interval of their own, their spread is never taken for smaller than that.
Everything is on logarithms, so that a change is a ratio; where a value is not positive, on the values themselves.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hybrid_kernels.judge import short, tails

Floats = npt.NDArray[np.float64]

PRIOR_SPREAD = 0.03
"""Standard deviation, relative, between runs of equal code: other memory layout, other clocks, other neighbours."""

UNKNOWN_SPREAD = 0.10
"""The same where no control arm tells how noisy the machine is: a shared one easily makes runs differ that much."""

PRIOR_FREEDOM = 4
"""Degrees of freedom the prior counts for: outweighed once a level has a few points of its own."""

LEVEL = 0.001
"""Probability of saying moved when nothing did (two-sided)."""

LEAST = 0.005
"""Relative changes below this are none, however certain."""

SHORT = 12
"""Series of up to this many points are searched here too: they cannot wait for three points that agree."""

INNER = 3
"""Points that must agree to be a level between two others."""

MOST = math.log(sys.float_info.max)
"""No ratio is larger, on the log scale: values may lie further apart than that."""

ENOUGH_STEPS = 4  # values after another value, over all control arms, that tell a machine's noise
_NORMAL_MEDIAN = 1.4826  # standard deviation over median absolute deviation, for the normal distribution
_NORMAL_99 = 2.5758  # asv's intervals are 99 %


@dataclass(frozen=True)
class Move:
    """After over before: the ratio of the levels with its 95 % interval (NaN where there is none), and the verdict."""

    ratio: float
    low: float
    high: float
    moved: bool
    score: float  # |t| over the critical value at LEVEL: from 1 on it moved


def compare(
    before: Floats,
    after: Floats,
    before_ci: tuple[Floats, Floats] | None = None,
    after_ci: tuple[Floats, Floats] | None = None,
    level: float = LEVEL,
    prior: float | None = PRIOR_SPREAD,
) -> Move:
    """Whether the level of `after` is another than that of `before`.

    Parameters
    ----------
    before, after
        float [n >= 1], finite.
    before_ci, after_ci
        (low, high) of each point, float [n], NaN where a run kept none.
    level
        Probability of a false "moved".
    prior
        Standard deviation, relative, between runs of equal code: that of `noise`, None where nothing tells.
    """
    logs = bool((before > 0).all() and (after > 0).all())
    scale = 1.0 if logs else float(np.median(np.abs(np.concatenate([before, after])))) or 1.0
    a, b = (np.log(before), np.log(after)) if logs else (before / scale, after / scale)
    level_a, level_b = short.median(a), short.median(b)
    difference = level_b - level_a
    within = [_within(ci, scale, logs) for ci in (before_ci, after_ci) if ci is not None]
    own = np.concatenate(within) if within else np.zeros(0)
    floor = float(np.mean(own**2)) if own.size else 0.0
    known = max((UNKNOWN_SPREAD if prior is None else prior) ** 2, floor)
    squares = float(((a - level_a) ** 2).sum() + ((b - level_b) ** 2).sum())
    freedom = PRIOR_FREEDOM + a.size + b.size - 2
    variance = (PRIOR_FREEDOM * known + squares) / freedom
    error = math.sqrt(variance * (1 / a.size + 1 / b.size))
    critical = _quantile(level / 2, freedom)
    score = abs(difference) / error / critical
    half = _quantile(0.025, freedom) * error
    least = math.log1p(LEAST) if logs else LEAST
    if logs:
        ratio, low, high = (math.exp(min(x, MOST)) for x in (difference, difference - half, difference + half))
    else:
        start, end = short.median(before), short.median(after)
        ratio = end / start if start > 0 and end > 0 else math.nan
        low = high = math.nan
    return Move(ratio, low, high, bool(score >= 1 and abs(difference) > least), score)


def spread(values: Floats, ci: tuple[Floats, Floats], prior: float = PRIOR_SPREAD) -> float:
    """Standard deviation of the log of one value at a level, shrunk as in `compare`; 0 where one is not positive."""
    if not (values > 0).all():
        return 0.0
    y = np.log(values)
    own = _within(ci, 1.0, logs=True)
    known = max(prior**2, float(np.mean(own**2)) if own.size else 0.0)
    squares = float(((y - np.median(y)) ** 2).sum())
    return math.sqrt((PRIOR_FREEDOM * known + squares) / (PRIOR_FREEDOM + y.size - 1))


def noise(series: Iterable[Floats]) -> float | None:
    """Spread between runs, from series of work that no change touches: PRIOR_SPREAD when they are quieter or too short,
    None when there are none.

    The median step from one value to the next, which a few real changes do not move.
    """
    logs = [np.log(values) for values in series if len(values) > 1 and (values > 0).all()]
    steps = np.abs(np.concatenate([np.diff(log) for log in logs])) if logs else np.zeros(0)
    if steps.size < ENOUGH_STEPS:
        return PRIOR_SPREAD if steps.size else None
    return max(PRIOR_SPREAD, float(np.median(steps)) * _NORMAL_MEDIAN / math.sqrt(2))


@lru_cache(maxsize=4096)
def _quantile(tail: float, freedom: int) -> float:
    """Student's t that is exceeded with probability `tail`."""
    return tails.student_deviate(tail, freedom)


def _within(ci: tuple[Floats, Floats], scale: float, logs: bool) -> Floats:
    """Standard deviations of the points as their own runs saw them, on the scale of the test."""
    low, high = ci
    known = np.isfinite(low) & np.isfinite(high) & (high >= low)
    if logs:
        known &= low > 0
        return (np.log(high[known]) - np.log(low[known])) / (2 * _NORMAL_99)
    return (high[known] - low[known]) / scale / (2 * _NORMAL_99)


def few(values: Floats, ci_low: Floats, ci_high: Floats, prior: float | None = PRIOR_SPREAD) -> list[int]:
    """First points of new levels in a short series; [] for one of more than SHORT points, which `steps` judges.

    Every part of the series is looked at, and the shortest that holds a move wins. A level between two others needs
    INNER points that agree, so that a single value off is no level; one at an end needs no more than it takes to stand
    out. The probability of a false move is shared among all places, so that a short series of equal values has at most
    LEVEL of any.
    """
    n = values.size
    if not 2 <= n <= SHORT:
        return []
    level = LEVEL / (n - 1) ** 2

    def move(start: int, at: int, end: int) -> Move:
        one, other = slice(start, at), slice(at, end)
        ci = (ci_low[one], ci_high[one]), (ci_low[other], ci_high[other])
        return compare(values[one], values[other], *ci, level, prior)

    def least(start: int, end: int) -> int:
        return 1 if start == 0 or end == n else INNER

    found: list[int] = []
    parts = sorted((end - start, start, end) for start in range(n) for end in range(start + 2, n + 1))
    for _, start, end in parts:
        if any(start < at < end for at in found):
            continue
        places = range(start + least(start, start + 1), end - least(end - 1, end) + 1)
        moves = [(one.score, at) for at in places if (one := move(start, at, end)).moved]
        if moves:
            found.append(max(moves)[1])
    while found:  # those that do not hold up between their neighbours are dropped, the weakest first
        edges = [0, *sorted(found), n]
        held = [(move(a, b, c), b, min(b - a, c - b)) for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)]
        inner = [c - b < INNER for b, c in itertools.pairwise(edges[1:-1])]
        weak = [one.score if one.moved else 0.0 for one, _, _ in held]
        if min(weak) > 0 and not any(inner):
            break
        if min(weak) > 0:  # a level too short to be one: the weaker of its two steps goes
            at = inner.index(True)
            found.remove(held[at if weak[at] <= weak[at + 1] else at + 1][1])
        else:
            found.remove(held[weak.index(0.0)][1])
    return sorted(found)
