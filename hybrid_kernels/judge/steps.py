"""Where the level of a series changes.

A step is a point from which on the values lie on another level. The test is a scan: over intervals of many lengths,
over every place in them, Student's t between the two sides, on logarithms, so that a step is a ratio. What makes it
hold on real histories:

- Single values far off their neighbours are set aside before the test (a running median sees them) and never make a
  level: at least three points must agree.
- The spread is that of the interval looked at, so quiet and noisy stretches are each judged by their own noise; where
  one side is noisier than the other beyond chance, Welch's form of the test is used.
- Where neighbours are alike beyond chance after the steps are taken out (drift, autocorrelation), the mean of some
  points is less certain than that of independent ones, and steps are searched again allowing for that.
- The critical score depends on the number of points and comes from a simulation of pure noise.

asv's own detector is not used: at its false rate, which is lower than needed, it finds 13 % of 10 % steps with five
points on either side. docs/method.md has the table, with Apache Otava beside them, and the command that makes it.

The intervals are those of seeded binary segmentation (Kovacs, Buehlmann, Li, Munk: Biometrika 110, 2023); the shortest
interval with a step wins, as in narrowest-over-threshold selection (Baranowski, Chen, Fryzlewicz: JRSS B 81, 2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybrid_kernels.judge import short, tails

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

MIN_SIDE = 3
"""Points that must agree on each side of a step."""

MIN_CHANGE = 0.005
"""Changes below half a percent are not reported, however certain they are."""

OUTLIER = 5.0
"""Robust standard deviations from the running median of its neighbours beyond which a value is set aside."""

CORRELATED = 2.6
"""Lag-1 correlation beyond which neighbours count as alike, in standard errors (1/sqrt(n)): 0.5 % by chance."""

MAX_CORRELATION = 0.98
UNEQUAL = 0.001  # probability below which a ratio of variances is beyond chance
ENOUGH = 5  # points that make a level beside which an end can be off
MIN_LENGTH = 10  # of an interval inside the series, in points
SHORT_LENGTHS, SHORT_EXCESS = (8, 6), 0.8  # shorter intervals, for levels that soon return: only for plain steps
NORMAL = 1.4826  # standard deviation over median absolute deviation, for the normal distribution

# Scores that pure noise exceeds, anywhere in a series of so many points, with the probability `false_rate` states.
# Made by `python -m benchmarks.detector --calibrate --series 20000`, to the digit.
_SIZES = (6, 8, 10, 12, 15, 20, 35, 60, 100, 200, 500, 1000)
_SCORES = (2.77, 3.04, 3.24, 3.34, 3.4, 3.74, 3.93, 4.4, 4.7, 5.17, 5.29, 5.47)


def false_rate(n: int) -> float:
    """Probability that a series of `n` points of pure noise shows a step: 3 in 10,000 from 200 points on.

    Shorter series are allowed more, up to 6 in 1,000 at 27 points and fewer, as hardly anything could be found in
    them otherwise. As points are added, a step that chance made loses its support and is withdrawn.
    """
    return max(0.0003, min(0.006, 0.0003 * math.pow(200 / max(n, 1), 1.5)))


@lru_cache(maxsize=4096)
def critical(n: int) -> float:
    """Score above which a change in a series of `n` points is a step (see `false_rate`)."""
    return float(np.interp(math.log(max(n, 1)), np.log(_SIZES), _SCORES))


@dataclass(frozen=True)
class Step:
    """The level changes at point `index`, the first one on the new level.

    Levels are geometric means without outliers, or plain means, without a ratio, where a series holds values that are
    not positive.
    """

    index: int
    before: float  # levels in the unit of the values
    after: float
    ratio: float  # after / before, with its 95 % interval; NaN where the levels have none
    ratio_low: float
    ratio_high: float
    score: float  # of the change, as a standard normal deviate; a step when above `critical`
    n_before: int  # points without outliers on the level before, back to the step before it
    n_after: int
    confirmed: bool = True  # False: too few points at an end of the series, see `find`


def find(values: ArrayLike, *, ends: bool = False) -> list[Step]:
    """The steps in a series.

    Parameters
    ----------
    values
        float [n], in order. NaN and infinite values are passed over.
    ends
        Whether to add what may be a step so close to an end that it cannot be told from an outlier: one or two points
        there, all off the level next to them on the same side by more than an ordinary point can be. Such a step has
        `confirmed` False, and a score without meaning (NaN).

    Returns
    -------
    list of Step
        In order; `index` counts in `values` as given.
    """
    raw = np.asarray(values, np.float64).ravel()
    places = np.flatnonzero(np.isfinite(raw))
    series = _Series(raw[places])
    steps = series.search()
    found = series.described(steps, places)
    return sorted([*found, *series.ends(steps, places)], key=lambda step: step.index) if ends else found


def find_all(frame: pd.DataFrame) -> pd.DataFrame:
    """The steps of every series of a history frame (`history.store`), each version of a benchmark on its own.

    A change of version splits a series. Where it does, `ends` of `find` is on, so that a step right beside the change
    is not hidden by it.

    Returns
    -------
    pandas.DataFrame
        One row a step: machine, env, benchmark, cell, version, unit, direction; commit, order, date and row (label in
        `frame`) of the first point on the new level; and the fields of `Step` but `index`.
    """
    import pandas as pd

    series = ["machine", "env", "benchmark", "cell"]
    copied = [*series, "version", "unit", "direction", "commit", "order", "date"]
    said = [field.name for field in fields(Step) if field.name != "index"]
    usable = frame[np.isfinite(frame["value"].to_numpy())]
    values, versions = usable["value"].to_numpy(), usable["version"].cat.codes.to_numpy()
    at: list[int] = []
    found: list[Step] = []
    for rows in usable.groupby(series, observed=True, sort=False).indices.values():
        edges = [0, *(np.flatnonzero(np.diff(versions[rows])) + 1).tolist(), len(rows)]
        for start, stop in pairwise(edges):
            steps = find(values[rows[start:stop]], ends=len(edges) > 2)
            at.extend(int(rows[start + step.index]) for step in steps)
            found.extend(steps)
    result: pd.DataFrame = usable[copied].iloc[at].reset_index(names="row")
    for name in said:
        result[name] = pd.Series([getattr(step, name) for step in found], dtype=bool if name == "confirmed" else float)
    return result.astype({"n_before": int, "n_after": int})


def highest_score(values: ArrayLike) -> float:
    """The score that decides whether a series shows any step, 2 where it is no higher: what `critical` is held to."""
    series = _Series(np.asarray(values, np.float64).ravel())
    return max((-excess + 2.0 for _, excess, *_ in series.above(2.0)), default=2.0)


class _Series:
    """A series of finite values while it is searched. Places are those of the points that are kept."""

    def __init__(self, values: Floats) -> None:
        self.logs = bool(len(values)) and bool((values > 0).all())
        # Values that are not all positive are taken relative to the largest: nothing overflows, and no unit matters.
        self.size = 1.0 if self.logs or not len(values) else float(np.abs(values).max()) or 1.0
        self.y = np.log(values) if self.logs else values / self.size
        self.kept = ~_outliers(self.y)
        self.place = np.flatnonzero(self.kept)
        self.x = self.y[self.place]
        self.bound = critical(len(values))
        self.variance_floor = _resolution(self.x) ** 2
        self.min_change = MIN_CHANGE * (1.0 if self.logs or not len(self.x) else short.median(np.abs(self.x)))
        self.rho = 0.0

    def search(self) -> list[int]:
        """First places of the new levels, with the correlation of neighbours estimated from what the steps leave."""
        self.rho = 0.0
        while True:
            steps = self._settled(self._candidates())
            rho = self._correlation(steps)
            if not steps or rho <= self.rho + 0.01:
                return steps
            self.rho = rho

    def _candidates(self) -> list[int]:
        """Best places of the shortest intervals that hold a step, no two intervals about the same step."""
        taken: list[int] = []
        for length, _, start, at in sorted(self.above(self.bound)):
            if not any(start < other < start + length for other in taken):
                taken.append(at)
        return sorted(taken)

    def above(self, least: float) -> Iterator[tuple[int, float, int, int]]:
        """(length, least minus score, start, place) of every interval whose best split scores above `least`."""
        for length, starts, excess in _layers(len(self.x)):
            bound = least + excess
            splits, squares = self._scan(self.x[starts[:, None] + np.arange(length)])
            for window in np.flatnonzero(squares > _critical_t(bound, length - 2) ** 2).tolist():
                start, at = int(starts[window]), int(starts[window] + splits[window])
                score = self.score(start, at, start + length)
                if score > bound:
                    yield length, bound - score, start, at

    def _scan(self, x: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The best split of each window x [windows, length], as points before it, and its squared t."""
        length = x.shape[1]
        k, of_sum, of_square, spread = _splits(length)
        if self.rho > 0:
            spread = _variance_of_mean(k, self.rho) + _variance_of_mean(length - k, self.rho)
        x = x - np.add.reduce(x, axis=1, keepdims=True) / length
        difference = np.add.accumulate(x, axis=1)[:, MIN_SIDE - 1 : length - MIN_SIDE] * of_sum
        squared = difference * difference
        within = np.add.reduce(x * x, axis=1)[:, None] - squared * of_square
        variance = np.maximum(within / (length - 2), self.variance_floor)
        squares = squared / np.maximum(variance * spread, 1e-300)
        best = squares.argmax(axis=1)
        return k[best], squares[np.arange(len(x)), best]

    def _settled(self, steps: list[int]) -> list[int]:
        """Each step moved to where it fits best between its neighbours; those that do not hold up there are dropped."""
        for _ in range(2 * len(steps) + 10):
            edges = [0, *steps, len(self.x)]
            triples = list(zip(edges, edges[1:], edges[2:], strict=False))
            weak = [self._excess(*triple) for triple in triples]
            if weak and min(weak) <= 0:
                steps = [at for at, one in zip(steps, weak, strict=True) if one > min(weak)]
                continue
            moved = sorted({start + int(self._scan(self.x[None, start:stop])[0][0]) for start, _, stop in triples})
            if moved == steps:
                break
            steps = moved
        return steps

    def _excess(self, start: int, at: int, stop: int) -> float:
        """By how much the step at `at` exceeds the critical score; -inf where the change is too small to matter."""
        if min(at - start, stop - at) < MIN_SIDE:
            return -math.inf
        if abs(short.mean(self.x[at:stop]) - short.mean(self.x[start:at])) < self.min_change:
            return -math.inf
        return self.score(start, at, stop) - self.bound

    def _correlation(self, steps: list[int]) -> float:
        """Lag-1 correlation of what the steps leave, 0 unless it is beyond chance; corrected for the fitted levels."""
        edges = [0, *steps, len(self.x)]
        n = len(self.x)
        if n < 12:
            return 0.0
        rest = np.concatenate([self.x[a:b] - short.mean(self.x[a:b]) for a, b in pairwise(edges)])
        total = float(rest @ rest)
        if total <= n * 1e-24:
            return 0.0
        rho = float(rest[1:] @ rest[:-1]) / total
        if rho < CORRELATED / math.sqrt(n):
            return 0.0
        levels = len(steps) + 1
        return min(rho + (1 + 3 * rho) * levels / n, MAX_CORRELATION)

    def score(self, start: int, at: int, stop: int) -> float:
        """Standard normal score of the difference between the two sides of `at`."""
        a, b = self.x[start:at], self.x[at:stop]
        va, vb = short.variance(a, 1), short.variance(b, 1)
        df_a, df_b = len(a) - 1, len(b) - 1
        spread_a, spread_b = (_spread_of_mean(len(one), self.rho) for one in (a, b))
        df = float(df_a + df_b)
        pooled = max((va * df_a + vb * df_b) / df, self.variance_floor)
        near, df_near = self._near(a, b)
        if near > pooled and tails.variance_ratio(near / pooled, df_near, df) < UNEQUAL:
            pooled, df = near, float(df_near)
        if self.rho > 0:
            gaps = np.concatenate([np.diff(a), np.diff(b)])
            pooled = max(pooled, float(gaps @ gaps) / len(gaps) / 2 / (1 - self.rho))
            df = max(df * (1 - self.rho) / (1 + self.rho), 1.0)
        squared = pooled * (spread_a + spread_b)
        if _unequal(va, df_a, vb, df_b):
            of_a, of_b = max(va, self.variance_floor) * spread_a, max(vb, self.variance_floor) * spread_b
            if of_a + of_b > squared:
                squared = of_a + of_b
                df = squared**2 / (of_a**2 / df_a + of_b**2 / df_b)
        difference = abs(short.mean(b) - short.mean(a))
        return _normal_score(difference / math.sqrt(squared) if squared > 0 else math.inf, df)

    def _near(self, a: Floats, b: Floats) -> tuple[float, int]:
        """Variance of single points close to the place where `a` meets `b`, and its degrees of freedom."""
        reach = 2 * min(len(a), len(b)) + 10
        a, b = a[-reach:], b[:reach]
        df = len(a) + len(b) - 2
        return (short.variance(a) * len(a) + short.variance(b) * len(b)) / df, df

    def described(self, steps: list[int], places: NDArray[np.intp]) -> list[Step]:
        """What the steps at these places are; `places` are those of the finite values in the series as given."""
        edges = [0, *steps, len(self.x)]
        return [
            self._step(self.x[start:at], self.x[at:stop], int(places[self.place[at]]), self.score(start, at, stop))
            for start, at, stop in zip(edges, edges[1:], edges[2:], strict=False)
        ]

    def _step(self, a: Floats, b: Floats, index: int, score: float, confirmed: bool = True) -> Step:
        before, after = short.mean(a), short.mean(b)
        ratio = low = high = math.nan
        if self.logs:
            width = self._half_width(a, b)
            ratio, low, high = (_exp(after - before + side) for side in (0.0, -width, width))
            before, after = _exp(before), _exp(after)
        else:
            ratio = after / before if before > 0 and after > 0 else math.nan
            before, after = before * self.size, after * self.size
        return Step(index, before, after, ratio, low, high, score, len(a), len(b), confirmed)

    def _half_width(self, a: Floats, b: Floats) -> float:
        """Half the 95 % interval of the difference of two levels: Welch's, the spread of single points pooled."""
        if len(a) < 2 and len(b) < 2:
            return math.nan
        pooled = (short.squares(a) + short.squares(b)) / (len(a) + len(b) - 2)
        squares = []
        for one in (a, b):
            variance = short.variance(one, 1) if len(one) >= MIN_SIDE else pooled
            spread = _spread_of_mean(len(one), self.rho)
            squares.append(max(variance, self.variance_floor) * spread)
        total = sum(squares)
        if total <= 0:
            return 0.0
        df = total**2 / sum(one**2 / max(len(side) - 1, 1) for one, side in zip(squares, (a, b), strict=True))
        return tails.student_deviate(0.025, max(df, 1.0)) * math.sqrt(total)

    def ends(self, steps: list[int], places: NDArray[np.intp]) -> list[Step]:
        """One or two points at either end that are all off the level beside them, on the same side of it."""
        edges = [0, *(self.place[at] for at in steps), len(self.y)]
        found = []
        for backwards, start, stop in ((True, edges[0], edges[1]), (False, edges[-2], edges[-1])):
            y, kept = self.y[start:stop], self.kept[start:stop]
            if backwards:
                y, kept = y[::-1], kept[::-1]
            for count in (2, 1):
                level, end = y[:-count][kept[:-count]], y[-count:]
                if len(level) < ENOUGH or not self._off(level, end):
                    continue
                a, b, index = (end, level, start + count) if backwards else (level, end, stop - count)
                found.append(self._step(a, b, int(places[index]), math.nan, confirmed=False))
                break
        return found

    def _off(self, level: Floats, end: Floats) -> bool:
        """Whether all points of `end` are off `level`, on the same side."""
        middle = short.median(level)
        away = end - middle
        robust = NORMAL * short.median(np.abs(level - middle))
        inner = level[np.abs(level - middle) <= OUTLIER * robust]
        spread = max(robust, float(inner.std()), math.sqrt(self.variance_floor))
        least = max(OUTLIER * spread, self.min_change)
        return bool((away > least).all() or (away < -least).all())


def _unequal(va: float, df_a: int, vb: float, df_b: int) -> bool:
    """Whether one side is noisier than the other beyond chance (F test)."""
    if va < vb:
        va, df_a, vb, df_b = vb, df_b, va, df_a
    return va > 0 and (vb <= 0 or tails.variance_ratio(va / vb, df_a, df_b) < UNEQUAL)


def _exp(log: float) -> float:
    return math.exp(log) if log < 700 else math.inf


def _normal_score(t: float, df: float) -> float:
    """The standard normal deviate with the same tail probability as Student's `t` with `df` degrees of freedom."""
    tail = tails.student(min(t, 1e100), df)
    return tails.normal_deviate(tail) if tail > 1e-300 else 37.0


@lru_cache(maxsize=4096)
def _critical_t(score: float, df: int) -> float:
    """Student's t with `df` degrees of freedom that has the tail probability of the standard normal `score`."""
    return tails.student_deviate(tails.normal(score), df)


def _variance_of_mean(n: NDArray[np.int64], rho: float) -> Floats:
    """Variance of the mean of `n` neighbouring points of an AR(1) series of variance 1 and lag-1 correlation `rho`."""
    if rho <= 0:
        return 1.0 / n
    return ((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**n) / (n * (1 - rho) ** 2)) / n


def _spread_of_mean(n: int, rho: float) -> float:
    """The same for one `n`."""
    return 1.0 / n if rho <= 0 else float(_variance_of_mean(np.array([n]), rho)[0])


def _outliers(y: Floats) -> NDArray[np.bool_]:
    """Points far from their neighbours: from the median of those around them, and of those on either side alone.

    Right after a step the points around are half of the old level, and only those after it agree. The spread is the
    larger of two robust ones, from the running median and from differences: in a few points either alone is now and
    then far too small, and would take ordinary points for outliers.
    """
    n = len(y)
    if n < 5:
        return np.zeros(n, np.bool_)
    half = 3 if n >= 12 else 2
    middle = _running_median(y, half)
    away = np.abs(y - middle)
    gaps = np.empty(n)
    gaps[:-1] = np.abs(y[1:] - y[:-1])
    gaps[-1] = gaps[-2]
    spread = np.maximum(_around(away), _around(gaps) / math.sqrt(2)) * NORMAL
    limit = OUTLIER * (1 + 3 / n) * np.maximum(spread, 1e-9 * np.abs(middle))
    far = away > limit
    for at in np.flatnonzero(far).tolist():
        sides = (y[max(at - half, 0) : at], y[at + 1 : at + 1 + half])
        far[at] = all(abs(y[at] - short.median(side)) > limit[at] for side in sides if len(side))
    return far


def _running_median(y: Floats, half: int) -> Floats:
    """Median of each point and its `half` neighbours on either side; fewer, but as many on both, towards the ends."""
    n = len(y)
    half = min(half, (n - 1) // 2)
    result = np.empty(n)
    result[half : n - half] = short.medians(short.windows(y, 2 * half + 1))
    for at in range(half):
        result[at] = short.median(y[: 2 * at + 1])
        result[n - 1 - at] = short.median(y[n - 1 - 2 * at :])
    return result


def _around(sizes: Floats) -> Floats:
    """Median of the 31 sizes around each one, of all where there are fewer."""
    width = min(31, len(sizes))
    inner = short.medians(short.windows(sizes, width))
    before = width // 2
    result = np.empty(len(sizes))
    result[:before] = inner[0]
    result[before : before + len(inner)] = inner
    result[before + len(inner) :] = inner[-1]
    return result


def _resolution(x: Floats) -> float:
    """Standard deviation that rounding alone gives: that of a uniform error over the smallest gap between values."""
    ordered = np.sort(x)
    gaps = ordered[1:] - ordered[:-1]
    gaps = gaps[gaps > 1e-12]
    return float(gaps.min()) / math.sqrt(12) if len(gaps) else 0.0


@lru_cache(maxsize=256)
def _layers(m: int) -> list[tuple[int, NDArray[np.intp], float]]:
    """Intervals to scan in `m` points: (length, starts, by how much more than critical a score must be).

    All of it, then halves, quarters and so on, each half overlapping the next; then the short ones at every place.
    """
    layers = []
    length = float(m)
    while length >= MIN_LENGTH or length == m >= 2 * MIN_SIDE:
        size = math.ceil(length)
        count = math.ceil((m - size) / (size / 2)) + 1
        layers.append((size, np.unique(np.linspace(0, m - size, count).round().astype(np.intp)), 0.0))
        length /= 2
    return layers + [(size, np.arange(m - size + 1), SHORT_EXCESS) for size in SHORT_LENGTHS if size < m]


@lru_cache(maxsize=256)
def _splits(length: int) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """The places where an interval may be split, as points before them, and what only depends on these.

    From the sum before a place to the difference of the two means; from its square to the squares between the sides;
    and the variance of the difference, in that of independent points.
    """
    k = np.arange(MIN_SIDE, length - MIN_SIDE + 1)
    return k, length / (k * (length - k)), k * (length - k) / length, 1.0 / k + 1.0 / (length - k)
