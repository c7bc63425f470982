"""False events and power of step detectors on simulated series: ours, asv's and Apache Otava's, on the same series.

    python -m benchmarks.detector --series 1000
    python -m benchmarks.detector --series 1000 --otava PYTHON    PYTHON: an interpreter that has apache-otava installed
    python -m benchmarks.detector --series 4000 --few             how often few points are said to move by chance
    python -m benchmarks.detector --calibrate --series 20000      makes the critical scores of judge/steps.py (8 min)

Otava pins other versions of numpy and scipy than a project may have, so it runs under an interpreter of its own.
Not an asv suite: nothing here is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

SEED = 20261201
NOISE = 0.03  # standard deviation of the logarithm of a value
STEP = 1.10
WITHIN = 2  # points between a step and where it is found

Detector = Callable[[np.ndarray], list[int]]


def ours() -> Detector:
    """judge/steps.py."""
    from hybrid_kernels.judge import steps

    return lambda values: [step.index for step in steps.find(values)]


def asv() -> Detector:
    """asv's detector as `asv publish` calls it; an event is every border between two of its levels."""
    from asv.step_detect import detect_steps

    return lambda values: [int(left) for left, *_ in detect_steps(values.tolist())[1:]]


def otava() -> Detector:
    """Apache Otava with its defaults: window 50, p below 0.001."""
    from otava.analysis import compute_change_points

    return lambda values: [int(point.index) for point in compute_change_points(values.tolist())[0]]


DETECTORS = {"ours": ours, "asv": asv, "otava": otava}


def noise(random: np.random.Generator, series: int, n: int) -> np.ndarray:
    """Independent noise. Logarithms, [series, n]."""
    return random.normal(0.0, NOISE, (series, n))


def with_outliers(random: np.random.Generator, series: int, n: int) -> np.ndarray:
    """Independent noise, and 2 % of the values 1.5 times as large."""
    return noise(random, series, n) + np.where(random.random((series, n)) < 0.02, math.log(1.5), 0.0)


def wandering(random: np.random.Generator, series: int, n: int) -> np.ndarray:
    """AR(1), coefficient 0.9, innovations of 1.3 %: as much noise as the others have, but neighbours are alike."""
    shocks = random.normal(0.0, 0.013, (series, n))
    values = np.empty_like(shocks)
    values[:, 0] = shocks[:, 0] / math.sqrt(1 - 0.9**2)
    for at in range(1, n):
        values[:, at] = 0.9 * values[:, at - 1] + shocks[:, at]
    return values


def noisier(random: np.random.Generator, series: int, n: int) -> np.ndarray:
    """Noise of 1 % that becomes 5 % half way."""
    return random.normal(0.0, 1.0, (series, n)) * np.where(np.arange(n) < n // 2, 0.01, 0.05)


QUIET = {
    **{f"pure noise, {n} points": (noise, n) for n in (10, 15, 35, 100, 200, 500)},
    "2 % outliers x1.5, 200 points": (with_outliers, 200),
    "AR(1) 0.9, 200 points": (wandering, 200),
    "noise from 1 to 5 %, 200 points": (noisier, 200),
}
PLANTED = ((5, 5), (10, 5), (30, 5), (100, 5), (100, 10), (100, 20))


def measure(detector: Detector, series: int) -> dict[str, float]:
    """Share of series with a false event, and share of planted steps found, by name of the cell."""
    shares = {}
    for name, (make, n) in QUIET.items():
        logs = make(np.random.default_rng([SEED, n]), series, n)
        shares[name] = float(np.mean([bool(detector(values)) for values in np.exp(logs)]))
    for before, after in PLANTED:
        logs = noise(np.random.default_rng([SEED, before, after]), series, before + after)
        logs[:, before:] += math.log(STEP)
        found = [any(abs(at - before) <= WITHIN for at in detector(values)) for values in np.exp(logs)]
        shares[f"{before} + {after}"] = float(np.mean(found))
    return shares


FEW_POINTS = (2, 3, 4, 6, 11)
FEW_NOISES = (0.03, 0.10, 0.30)


def few(series: int) -> str:
    """The share of short series of pure noise that are said to move (judge/moves.py), as a Markdown table.

    Without control arms nothing tells how noisy the machine is; with them its noise is known.
    """
    from hybrid_kernels.judge import moves

    rows = [f"| {series:,} series a cell | {' | '.join(f'{n} points' for n in FEW_POINTS)} |"]
    rows.append(f"| --- |{' ---: |' * len(FEW_POINTS)}")
    for known in (False, True):
        for spread in FEW_NOISES:
            shares = []
            for n in FEW_POINTS:
                none = np.full(n, math.nan)
                logs = np.random.default_rng([SEED, n, round(1000 * spread)]).normal(0.0, spread, (series, n))
                prior = max(spread, moves.PRIOR_SPREAD) if known else None
                shares.append(np.mean([bool(moves.few(values, none, none, prior)) for values in np.exp(logs)]))
            label = f"{100 * spread:.0f} % noise, {'known from control arms' if known else 'no control arm'}"
            rows.append(f"| {label} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |")
    return "\n".join(rows)


CALIBRATED = (6, 8, 10, 12, 15, 20, 35, 60, 100, 200, 500, 1000)


def calibrate(series: int, sizes: Sequence[int] = CALIBRATED) -> None:
    """Prints the critical scores of judge/steps.py: what pure noise exceeds with the probability `false_rate(n)`.

    Where too few of the series exceed it, from the tail before it: that is straight on a logarithmic scale of
    probability against the squared score, as a normal distribution's nearly is, and is drawn on from 5 % to 0.5 %.
    """
    from hybrid_kernels.judge import steps

    scores = []
    for n in sizes:
        logs = noise(np.random.default_rng([SEED, n, 1]), series, n)
        highest = np.array([steps.highest_score(values) for values in np.exp(logs)])
        rate = steps.false_rate(n)
        tails = np.geomspace(0.05, 0.005, 10)
        slope, start = np.polyfit(np.log(tails), np.quantile(highest, 1 - tails) ** 2, 1)
        seen = series * rate >= 30
        score = np.quantile(highest, 1 - rate) if seen else np.sqrt(slope * math.log(rate) + start)
        scores.append(round(float(score), 2))
        print(f"{n} points: {scores[-1]}", file=sys.stderr, flush=True)
    print(f"_SIZES = {sizes}\n_SCORES = {tuple(scores)}")


def table(shares: dict[str, dict[str, float]], series: int) -> str:
    """The shares as a Markdown table: a row a cell, a column a detector."""
    lines = [f"| {series:,} series a row | {' | '.join(shares)} |", f"| --- |{' ---: |' * len(shares)}"]
    for cell in [*QUIET, *(f"{before} + {after}" for before, after in PLANTED)]:
        name = f"false events: {cell}" if cell in QUIET else f"10 % step found: {cell} points"
        lines.append(f"| {name} | {' | '.join(f'{100 * one[cell]:.1f} %' for one in shares.values())} |")
    return "\n".join(lines)


def main() -> None:
    """Reads the command line, simulates, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1000, help="series a cell (default 1000)")
    parser.add_argument("--detectors", default="ours,asv", help="which of ours, asv, otava to run in this interpreter")
    parser.add_argument("--otava", metavar="PYTHON", help="an interpreter with apache-otava; adds its column")
    parser.add_argument("--json", action="store_true", help="print the shares as JSON instead of a table")
    parser.add_argument("--calibrate", action="store_true", help="print the critical scores of judge/steps.py")
    parser.add_argument("--few", action="store_true", help="print how often few points are said to move by chance")
    options = parser.parse_args()
    if options.few:
        print(few(options.series))
        return
    if options.calibrate:
        calibrate(options.series)
        return
    names = [name for name in options.detectors.split(",") if name]
    unknown = sorted({*names} - DETECTORS.keys())
    if unknown:
        parser.error(f"--detectors: {', '.join(unknown)} unknown; choose from {', '.join(DETECTORS)}")
    shares = {name: measure(DETECTORS[name](), options.series) for name in names}
    if options.otava:
        command = [
            options.otava,
            str(Path(__file__)),
            "--detectors",
            "otava",
            "--json",
            "--series",
            str(options.series),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            parser.error(f"--otava: {options.otava} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        shares |= json.loads(done.stdout)
    print(json.dumps(shares) if options.json else table(shares, options.series))


if __name__ == "__main__":
    main()
