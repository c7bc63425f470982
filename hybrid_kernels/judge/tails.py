"""Tail probabilities of the normal, Student's t and F distributions, of plain numbers, and the values that have them.

scipy.special has them all and takes longer to import than a history to judge; tests hold these against it, to 9 digits.
All come from the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22) in Lentz's form.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_NORMAL = NormalDist()
_TINY = 1e-300
_MOST_TERMS = 10_000  # the fraction takes about the square root of the larger degree of freedom


def normal(z: float) -> float:
    """Probability that a standard normal value exceeds `z`."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def normal_deviate(tail: float) -> float:
    """The value that a standard normal one exceeds with probability `tail`, in 0 to 1 without these."""
    return -_NORMAL.inv_cdf(tail)


def student(t: float, freedom: float) -> float:
    """Probability that Student's t with `freedom` > 0 degrees of freedom exceeds `t` >= 0."""
    ratio = t * t / freedom
    if ratio == 0:
        return 0.5
    return 0.5 * _beta(freedom / 2, 0.5, -math.log1p(ratio), -math.log1p(1 / ratio))


def student_deviate(tail: float, freedom: float) -> float:
    """The value that Student's t with `freedom` >= 1 degrees of freedom exceeds with probability `tail`, 0 to 1/2."""
    if tail >= 0.5:
        return 0.0
    z, v = normal_deviate(tail), freedom
    # Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5) to begin with. The logarithm of the tail is nearly a
    # straight line in the logarithm of t where the distribution is far from normal, so Newton's steps are taken there.
    t = z + z * (z**2 + 1) / (4 * v) + z * (5 * z**4 + 16 * z**2 + 3) / (96 * v**2)
    for _ in range(100):
        now = student(t, v)
        slope = -t * _student_density(t, v) / now
        step = max(-2.0, min(2.0, math.log(tail / now) / slope))
        t *= math.exp(step)
        if abs(step) < 1e-9:  # the next step would be of the order of its square
            break
    return t


def _student_density(t: float, v: float) -> float:
    log = math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - (v + 1) / 2 * math.log1p(t * t / v)
    return math.exp(log) / math.sqrt(v * math.pi)


def variance_ratio(f: float, freedom: float, below: float) -> float:
    """Probability that F exceeds `f` > 0, with `freedom` degrees of freedom above the line and `below` below it."""
    ratio = f * freedom / below
    return _beta(below / 2, freedom / 2, -math.log1p(ratio), -math.log1p(1 / ratio))


def _beta(a: float, b: float, log_x: float, log_rest: float) -> float:
    """The regularised incomplete beta function I_x(a, b), from the logarithms of x and of 1 - x."""
    if math.exp(log_x) > (a + 1) / (a + b + 2):
        return 1.0 - _fraction(b, a, log_rest, log_x)
    return _fraction(a, b, log_x, log_rest)


def _fraction(a: float, b: float, log_x: float, log_rest: float) -> float:
    x = math.exp(log_x)
    front = math.exp(a * log_x + b * log_rest + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1) or _TINY)
    value = d
    for m in range(1, _MOST_TERMS):
        at = a + 2 * m
        for term in (m * (b - m) * x / ((at - 1) * at), -(a + m) * (a + b + m) * x / (at * (at + 1))):
            d = 1.0 / (1.0 + term * d or _TINY)
            c = 1.0 + term / c or _TINY
            value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return front * value
