"""Take samples of arms, honestly: ramped, batched, interleaved; and say what their median is worth.

Nothing here knows a device: an arm returns device-clock seconds and keeps everything else outside its timed region.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from hybrid_kernels.devices.base import Arm

RAMP_FLOOR_SECONDS = 0.3
"""Wall time that a ramp lasts at least: an idle GPU needs a few hundred ms of work to reach its clocks."""
RAMP_LIMIT_SECONDS = 3.0
RAMP_TOLERANCE = 0.02
"""A ramp goes on while the best time still improves by more than this share."""
BATCH_SECONDS = 4e-3
"""A sample lasts at least this long on the device's clock: a thousand times an event's or a timer's resolution."""
MAX_BATCH = 512
"""Passes in one sample at most: a launch queue holds about a thousand before the host has to wait."""


@dataclass(frozen=True)
class Samples:
    """Seconds per pass of one arm, float64 [n], as taken; each is the mean of `passes` passes in one batch."""

    seconds: npt.NDArray[np.float64]
    passes: int

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def best(self) -> float:
        return float(self.seconds.min())

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        return median_interval(self.seconds, confidence)


def median_interval(values: npt.ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median of `values` [n], from order statistics.

    The interval (x_(r), x_(n+1-r)) covers the median with probability 1 - 2 P(Binomial(n, 1/2) < r); r is the largest
    that keeps `confidence` (David and Nagaraja, Order Statistics, section 7.1). Below six values no pair reaches 95 %,
    and the range is given. ValueError when there are no values.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if n == 0:
        raise ValueError("values: an interval needs at least one value")
    rank = int(stats.binom.ppf((1 - confidence) / 2, n, 0.5))  # smallest r with P(B <= r) >= tail: P(B < r) <= tail
    rank = max(rank, 1)
    return float(ordered[rank - 1]), float(ordered[n - rank])


def batch_size(arm: Arm, seconds: float = BATCH_SECONDS) -> int:
    """Passes per sample of `arm`, so that one sample lasts `seconds` or more and whole rounds of buffers."""
    once = max(arm.run(1), 1e-9)
    passes = min(max(math.ceil(seconds / once), 1), MAX_BATCH)
    if passes > arm.copies > 1:
        passes = math.ceil(passes / arm.copies) * arm.copies
    return passes


def ramp(arm: Arm, passes: int, floor: float = RAMP_FLOOR_SECONDS, limit: float = RAMP_LIMIT_SECONDS) -> float:
    """Work on `arm` until its time stops improving and `floor` seconds of wall time have passed, at most `limit`.

    Returns the best seconds per pass seen.
    """
    start = time.monotonic()
    best, since_best = math.inf, 0
    while True:
        now = arm.run(passes) / passes
        since_best = 0 if now < best * (1 - RAMP_TOLERANCE) else since_best + 1
        best = min(best, now)
        spent = time.monotonic() - start
        if (spent >= floor and since_best >= 3) or spent >= limit:
            return best


def interleave(
    arms: Sequence[Arm], reps: int, passes: Sequence[int], tick: Callable[[], None] | None = None
) -> list[Samples]:
    """Take `reps` samples of every arm, turn by turn, every other round backwards, so that a drift meets all alike.

    Returns one Samples an arm, in the order of `arms`. `tick` is called after each sample.
    """
    taken: list[list[float]] = [[] for _ in arms]
    for rep in range(reps):
        order = range(len(arms)) if rep % 2 == 0 else range(len(arms) - 1, -1, -1)
        for index in order:
            taken[index].append(arms[index].run(passes[index]) / passes[index])
            if tick is not None:
                tick()
    return [Samples(np.asarray(values), count) for values, count in zip(taken, passes, strict=True)]
