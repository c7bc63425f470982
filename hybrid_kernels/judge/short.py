"""Mean, variance and median of short arrays, to the last bit what numpy gives, without what numpy's own cost to call.

A series has tens of values, and judging one takes hundreds of these. numpy.mean, .var and .median spend ten times as
long on their arguments as on so few numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean(x: Floats) -> float:
    """The mean of `x` [n >= 1]."""
    return float(np.add.reduce(x)) / len(x)


def squares(x: Floats) -> float:
    """The sum of squared differences from the mean of `x` [n >= 1]."""
    away = x - np.add.reduce(x) / len(x)
    return float(np.add.reduce(away * away))


def variance(x: Floats, lost: int = 0) -> float:
    """The variance of `x` [n > lost] with n - `lost` degrees of freedom."""
    return squares(x) / (len(x) - lost)


def median(x: Floats) -> float:
    """The median of `x` [n >= 1], which holds no NaN."""
    ordered, half = np.sort(x), len(x) // 2
    return float(ordered[half]) if len(x) % 2 else float((ordered[half - 1] + ordered[half]) / 2)


def medians(x: Floats) -> Floats:
    """The median of each row of `x` [rows, n >= 1], which holds no NaN."""
    ordered, half = np.sort(x, axis=1), x.shape[1] // 2
    middle: Floats = ordered[:, half] if x.shape[1] % 2 else (ordered[:, half - 1] + ordered[:, half]) / 2
    return middle


def windows(x: Floats, length: int) -> Floats:
    """Every stretch of `length` neighbours in `x`, one a row: float [n - length + 1, length], a copy."""
    found: Floats = x[np.arange(len(x) - length + 1)[:, None] + np.arange(length)]
    return found
