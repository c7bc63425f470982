"""From kept samples to verdicts: which rows moved, which stayed, and which nobody can tell.

Takes a tidy frame of samples (columns COLUMNS, one row a sample; see `history.importers.frame`) and returns a
`records.Comparison`. Measures nothing, reads no clock, draws no random number: the same samples give the same verdict.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from hybrid_kernels.errors import NothingMeasured
from hybrid_kernels.history import directions, importers
from hybrid_kernels.judge import moves, stats
from hybrid_kernels.records import Comparison, Sampled, Verdict
from hybrid_kernels.units import significant

SLOWER, FASTER, SAME = "slower", "faster", "same"
UNSETTLED, UNADJUDICABLE = "unsettled", "unadjudicable"
ADDED, REMOVED, METHOD_CHANGED = "added", "removed", "method changed"
HELD, MOVED = "held", "moved"

COLUMNS = importers.COLUMNS
LOOKS = stats.LOOKS
CALIBRATION_ROUNDS = 16  # of a comparison of equal code: enough that its noise is known to about a fifth
UNTOUCHED_ROUNDS = 8  # of a change that cannot matter: there is nothing to settle, only noise to learn
_CONTROL_LEVEL = 0.01  # a control arm that moves by chance costs the whole report, so it is tested as strictly as a row
_FEWEST_ROUNDS = 3  # two equal differences would look free of noise


@dataclasses.dataclass(frozen=True)
class _Row:
    """One benchmark cell, prepared: either `known` (a ratio can be judged) or `verdict` (it cannot)."""

    verdict: Verdict
    known: stats.Estimate | None
    margin: float


def judge(
    samples: pd.DataFrame,
    *,
    base: str = "base",
    head: str = "head",
    looks: Sequence[int] = (),
    noise: Mapping[tuple[str, str | None], Sequence[float]] | None = None,
    harness: Mapping[str, tuple[float, float, float]] | None = None,
    trust_harness: bool = False,
    incomparable: str = "",
    untouched: bool = False,
    level: float = stats.FALSE_REPORTS,
    **more: Any,
) -> Comparison:
    """Verdicts for every benchmark cell of `samples` (columns COLUMNS).

    `looks`: planned looks of a sequential comparison; empty when the number of rounds was fixed beforehand.
    `noise`: per (row name, version), log-ratios of A/A rounds on this machine. `harness`: per row name, the change that
    another harness computed itself, with its interval (ratios minus 1); it is shown, and decides only if
    `trust_harness`. `incomparable`: why the two sides cannot be compared at all. `untouched`: the change touches
    nothing that the benchmarks import, so whatever moved is noise. `more` goes into the Comparison as it is.
    NothingMeasured, naming the side, when a side or both hold no value.
    """
    _something_measured(samples, base, head)
    noise, harness = noise or {}, harness or {}
    medians = _medians(samples)
    prepared = [
        _prepare(name, told, medians.get(name), noise, harness.get(name)) for name, told in _by_name(samples).items()
    ]
    skipped = [
        (row.verdict.name, row.verdict.reason) for row in prepared if row.verdict.verdict == "" and row.known is None
    ]
    prepared = [row for row in prepared if row.verdict.verdict or row.known is not None]
    rounds = max((row.known.rounds for row in prepared if row.known is not None), default=0)
    runs = samples["run"].nunique()
    share = stats.allowance(1.0, rounds, looks) if runs == 1 else 1.0

    controls = _judge_controls([row for row in prepared if row.verdict.control], share)
    why = incomparable or _why_nothing_counts(controls)
    floor = max((abs(math.log1p(row.change)) for row in controls if row.change is not None), default=0.0)
    tested = [row for row in prepared if not row.verdict.control]
    rows = _judge_rows(tested, level * share, floor, why, untouched)
    if trust_harness and rounds == 1 and not why and not untouched:
        rows = _as_the_harness_says(rows, harness, level)
    return Comparison(
        base=base, head=head, rows=tuple(rows), controls=tuple(controls), rounds=rounds, runs=runs,
        level=level * share, spread=_spread(tested) if rounds == 1 else None, untouched=untouched,
        skipped=tuple(skipped), **more,
    )  # fmt: skip


class Settled:
    """The stopping rule of `--rounds auto`, handed to the runner: nothing left that more rounds could settle.

    `looks` are the rounds after which it wants to be asked; called with all samples so far, it returns the names of the
    rows that are still unsettled (control arms not among them).
    """

    def __init__(self, noise: Mapping[tuple[str, str | None], Sequence[float]] | None = None) -> None:
        self.looks: tuple[int, ...] = stats.LOOKS
        self._noise = noise

    def __call__(self, samples: Sequence[Sampled]) -> list[str]:
        """Names of unsettled rows; all rows while a control arm has moved, since more rounds may bring it back."""
        result = judge(importers.frame(samples), looks=self.looks, noise=self._noise)
        moved = any(row.verdict == MOVED for row in result.controls)
        return [
            row.name
            for row in result.rows
            if row.verdict == UNSETTLED or (moved and row.change is not None and row.direction != 0)
        ]


def differences(samples: pd.DataFrame) -> dict[tuple[str, str | None], list[float]]:
    """Per (row name, version): log(head / base) of every round that has both. What a calibration stores."""
    found: dict[tuple[str, str | None], list[float]] = {}
    for name, pairs in _medians(samples).items():
        logs = pairs.logs()
        version = samples.loc[samples["name"] == name, "version"].iloc[0]
        if logs.size:
            found[str(name), None if pd.isna(version) else str(version)] = [float(value) for value in logs]
    return found


def _something_measured(samples: pd.DataFrame, base: str, head: str) -> None:
    asked = samples if samples["control"].all() else samples[~samples["control"].astype(bool)]
    counts = {
        side: asked.loc[(asked["side"] == side) & asked["value"].notna(), "name"].nunique() for side in ("base", "head")
    }
    names = {"base": f"base ({base})", "head": f"head ({head})"}
    empty = [names[side] for side in ("base", "head") if counts[side] == 0]
    if empty:
        other = next((f"; {names[side]} has {counts[side]} series" for side in counts if counts[side]), "")
        errors = [str(text) for text in samples["error"].dropna().unique()]
        first = f"; first error: {errors[0].strip().splitlines()[-1]}" if errors and errors[0].strip() else ""
        raise NothingMeasured(
            f"nothing measured on {' and '.join(empty)}{other}{first}. This is neither a pass nor a regression: "
            "check that the benchmarks run there and that the filter matches any"
        )


@dataclasses.dataclass
class _Told:
    """What the records of one row say of it beside their values; version, unit and error by side."""

    benchmark: str
    cell: str
    direction: int
    control: bool
    versions: dict[str, set[str]]
    units: dict[str, set[str]]
    errors: dict[str, str]

    def only(self, what: str, side: str) -> str | None:
        """The one version or unit of a side; several are joined, since they make sides differ."""
        found = (self.versions if what == "version" else self.units).get(side, set())
        return " and ".join(sorted(found)) if found else None


def _by_name(samples: pd.DataFrame) -> dict[str, _Told]:
    """Every row's records, in the order met."""
    told: dict[str, _Told] = {}
    columns = ["name", "side", "benchmark", "cell", "unit", "direction", "version", "control", "error"]
    distinct = samples[columns].drop_duplicates()
    for name, side, benchmark, cell, unit, direction, version, control, error in distinct.itertuples(index=False):
        row = told.setdefault(name, _Told(str(benchmark), str(cell), int(direction), bool(control), {}, {}, {}))
        row.units.setdefault(side, set()).add(str(unit))
        row.versions.setdefault(side, set())
        if not pd.isna(version):
            row.versions[side].add(str(version))
        if not pd.isna(error) and str(error).strip():
            row.errors.setdefault(side, str(error).strip().splitlines()[-1].strip())
    return told


_Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """Each process's median, one entry a round, in order; NaN where a side has none."""

    runs: list[str]
    base: _Floats
    head: _Floats

    def whole(self) -> _Pairs:
        """The rounds that both sides have."""
        both = ~(np.isnan(self.base) | np.isnan(self.head))
        return _Pairs(
            [run for run, kept in zip(self.runs, both, strict=True) if kept], self.base[both], self.head[both]
        )

    def logs(self) -> _Floats:
        """log(head / base) of the rounds that both sides have; values that form no ratio are left out."""
        both = self.whole()
        good = (both.base > 0) & (both.head > 0)
        return np.log(both.head[good]) - np.log(both.base[good])

    def level(self, side: str) -> float | None:
        """The value to show for a side: geometric mean of its rounds, or their median where a value is not positive."""
        values = self.base if side == "base" else self.head
        values = values[~np.isnan(values)]
        if not values.size:
            return None
        return float(np.exp(np.log(values).mean())) if (values > 0).all() else float(np.median(values))


def _medians(samples: pd.DataFrame) -> dict[str, _Pairs]:
    """Per row name, the medians of its processes."""
    some = samples[samples["value"].notna()]
    table = some.groupby(["name", "run", "round", "side"], sort=True)["value"].median().unstack("side")
    table = table.reindex(columns=["base", "head"])
    names, runs = (table.index.get_level_values(level).to_numpy() for level in ("name", "run"))
    base, head = (table[side].to_numpy(dtype=float) for side in ("base", "head"))
    starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1), len(names)] if len(names) else [0]
    return {str(names[i]): _Pairs([str(run) for run in runs[i:j]], base[i:j], head[i:j]) for i, j in pairwise(starts)}


def _prepare(
    name: str,
    told_of: _Told,
    pairs: _Pairs | None,
    noise: Mapping[tuple[str, str | None], Sequence[float]],
    harness: tuple[float, float, float] | None,
) -> _Row:
    versions = {side: told_of.only("version", side) for side in ("base", "head")}
    units = {side: told_of.only("unit", side) for side in ("base", "head")}
    plain = Verdict(
        name=name, base=None, head=None, change=None, ci_low=None, ci_high=None, rounds=0, verdict="",
        unit=units["head"] or units["base"] or "", direction=told_of.direction, benchmark=told_of.benchmark,
        cell=told_of.cell, version_base=versions["base"], version_head=versions["head"], control=told_of.control,
        harness=_harness_words(harness),
    )  # fmt: skip
    learned = list(noise.get((plain.name, versions["head"]), ()))
    margin = stats.threshold(learned)
    known_noise = math.isfinite(margin)
    margin = margin if known_noise else math.log1p(stats.DEFAULT_THRESHOLD)
    plain = dataclasses.replace(plain, threshold=_change(margin), learned_from=len(learned) if known_noise else 0)

    def told(verdict: str, reason: str, **values: Any) -> _Row:
        return _Row(dataclasses.replace(plain, verdict=verdict, reason=reason, **values), None, margin)

    values: dict[str, Any] = {side: pairs.level(side) if pairs else None for side in ("base", "head")}
    here = {side: side in told_of.units for side in ("base", "head")}
    if not (here["base"] and here["head"]):
        side, verdict = ("head", ADDED) if here["head"] else ("base", REMOVED)
        if values[side] is None and not told_of.errors.get(side):
            return told("", "skips itself")
        return told(verdict, f"only at {side}", **values)
    if values["base"] is None or values["head"] is None:
        sides = [side for side in ("base", "head") if values[side] is None]
        errors = {side: told_of.errors.get(side, "") for side in sides}
        if len(sides) == 2 and not any(errors.values()):
            return told("", "skips itself on both sides")
        where = " and ".join(
            f"{side}{f' ({errors[side]})' if errors[side] else ' (it skips itself)'}" for side in sides
        )
        return told(UNADJUDICABLE, f"nothing measured at {where}", **values)
    if versions["base"] and versions["head"] and versions["base"] != versions["head"]:
        return told(
            METHOD_CHANGED,
            f"version {versions['base'][:40]} at base, {versions['head'][:40]} at head: two methods form no ratio",
            **values,
        )
    if units["base"] != units["head"]:
        return told(UNADJUDICABLE, f"unit {units['base']} at base, {units['head']} at head", **values)
    assert pairs is not None
    both = pairs.whole()
    rounds = len(both.runs)
    if not rounds:
        return told(UNADJUDICABLE, "no round has a value on both sides", **values)
    if (both.base <= 0).any() or (both.head <= 0).any():
        if not (both.base == both.head).all():
            return told(UNADJUDICABLE, "a value is zero or negative: no ratio can be formed", **values)
        return _Row(
            dataclasses.replace(plain, **values), stats.Estimate(0.0, 0.0, max(rounds - 1, 1), 0.0, rounds), margin
        )
    known = stats.estimate(both.logs(), both.runs)
    return _Row(dataclasses.replace(plain, base=both.level("base"), head=both.level("head")), known, margin)


def _judge_controls(rows: list[_Row], share: float) -> list[Verdict]:
    judged = []
    testable = [row for row in rows if row.known is not None]
    for row in rows:
        if row.known is None:
            judged.append(row.verdict)
            continue
        verdict = _with_interval(row, _CONTROL_LEVEL * share / len(testable))
        beyond = abs(row.known.mean) > row.margin
        sure = row.known.p_value() <= _CONTROL_LEVEL * share / len(testable)
        if row.known.rounds == 1:
            verdict = dataclasses.replace(verdict, verdict=UNADJUDICABLE, reason="one run a side")
        elif beyond and sure and row.known.rounds >= _FEWEST_ROUNDS:
            against = "its own history" if verdict.learned_from else "the default"
            verdict = dataclasses.replace(
                verdict, verdict=MOVED, reason=f"moved by more than {_percent(row.margin)}, {against}"
            )
        else:
            verdict = dataclasses.replace(verdict, verdict=HELD)
        judged.append(verdict)
    return judged


def _why_nothing_counts(controls: list[Verdict]) -> str:
    moved = [row for row in controls if row.verdict == MOVED]
    if not moved:
        return ""
    worst = max(moved, key=lambda row: abs(math.log1p(row.change or 0.0)))
    return (
        f"control arm {worst.name} moved by {significant(100 * (worst.change or 0.0), 2)} %, which no change to the "
        "code can do: the machine changed between the sides"
    )


def _judge_rows(rows: list[_Row], level: float, floor: float, why: str, untouched: bool) -> list[Verdict]:
    testable = [row for row in rows if row.known is not None and row.verdict.direction != 0]
    hits = dict(
        zip(
            (row.verdict.name for row in testable),
            stats.called([row.known.p_value() for row in testable if row.known is not None], level),
            strict=True,
        )
    )
    miss = level * max(sum(hits.values()), 1) / max(len(testable), 1)
    judged = []
    for row in rows:
        if row.known is None:
            judged.append(row.verdict)
            continue
        verdict = _with_interval(row, miss)
        word, reason, more = _word(row, bool(hits.get(verdict.name)), floor, level, len(testable))
        if why:
            word, reason, more = UNADJUDICABLE, why, None
        elif untouched and word in (SLOWER, FASTER):
            word, reason = (
                UNADJUDICABLE,
                "the change touches nothing that the benchmarks import: this movement is noise",
            )
        judged.append(dataclasses.replace(verdict, verdict=word, reason=reason, lacking=more))
    return judged


def _word(row: _Row, hit: bool, floor: float, level: float, family: int) -> tuple[str, str, int | None]:
    """(verdict, reason, rounds it lacks) of a row with a ratio."""
    known, margin, direction = row.known, row.margin, row.verdict.direction
    assert known is not None
    if known.rounds == 1:
        return UNADJUDICABLE, "one run a side: the noise between runs cannot be told from a change", None
    if direction == 0:
        return (
            UNADJUDICABLE,
            f"direction unknown: nothing says whether more {directions.quantity(row.verdict.unit)} is better",
            None,
        )
    size = abs(known.mean)
    if known.rounds >= _FEWEST_ROUNDS:
        if stats.equivalent(known, margin):
            return SAME, f"shown to be within {_percent(margin)}", None
        if hit and size >= margin and size > floor:
            return (SLOWER if known.mean * direction < 0 else FASTER), "", None
    if hit and size >= margin:
        return UNSETTLED, f"no larger than the control arms moved ({_percent(floor)})", None
    more = stats.lacking(known, margin, level, family)
    if more is None:
        return UNSETTLED, f"{_percent(known.sd)} of noise a round: 128 rounds would not settle {_percent(margin)}", None
    return UNSETTLED, f"about {more} more round{'s' if more != 1 else ''} would settle it", more


def _with_interval(row: _Row, miss: float) -> Verdict:
    known = row.known
    assert known is not None
    low, high = known.interval(0.05)
    called_low, called_high = known.interval(min(max(miss, 0.0), 1.0)) if miss > 0 else (-math.inf, math.inf)
    return dataclasses.replace(
        row.verdict, change=_change(known.mean), ci_low=_ratio(low), ci_high=_ratio(high), rounds=known.rounds,
        noise=known.sd if math.isfinite(known.sd) else None, called_low=_ratio(called_low),
        called_high=_ratio(called_high),
    )  # fmt: skip


def _as_the_harness_says(
    rows: list[Verdict], harness: Mapping[str, tuple[float, float, float]], level: float
) -> list[Verdict]:
    """Verdicts from the harness's own intervals, because the user asked: they cover one process a side and no more."""
    judged = []
    for row in rows:
        if row.name in harness and row.verdict == UNADJUDICABLE and row.change is not None and row.direction != 0:
            change, low, high = harness[row.name]
            word, reason = _harness_word(change, low, high, row)
            row = dataclasses.replace(
                row,
                verdict=word,
                reason=reason,
                change=change,
                ci_low=low,
                ci_high=high,
                called_low=None,
                called_high=None,
            )
        judged.append(row)
    return judged


def _harness_word(change: float, low: float, high: float, row: Verdict) -> tuple[str, str]:
    margin = row.threshold or stats.DEFAULT_THRESHOLD
    basis = "by the harness's own interval, which covers the noise inside one process only"
    if low <= change <= high and abs(change) >= margin and (low > 0 or high < 0):
        return (SLOWER if change * row.direction < 0 else FASTER), basis
    if -margin < low and high < margin and low <= change <= high:
        return SAME, basis
    return UNADJUDICABLE, f"not shown {basis}"


def _harness_words(harness: tuple[float, float, float] | None) -> str:
    if harness is None:
        return ""
    change, low, high = harness
    text = f"{100 * change:+.2f} % ({100 * low:+.2f} to {100 * high:+.2f} %)"
    if not low <= change <= high:
        return f"no regression: {text}, an interval that does not hold its own estimate"
    return f"{'regression' if low > 0 else 'improvement' if high < 0 else 'no regression'}: {text}"


def _spread(rows: list[_Row]) -> dict[str, float] | None:
    """How far single runs of all rows lie apart: relative changes at the 5th, 50th and 95th percentile, and more."""
    means = np.array([row.known.mean for row in rows if row.known is not None])
    if not means.size:
        return None
    low, mid, high = np.percentile(means, [5, 50, 95])
    return {
        "rows": float(means.size), "low": _change(low), "median": _change(mid), "high": _change(high),
        "typical": _change(float(np.median(np.abs(means - mid)))),
        "least": _change(float(means.min())), "most": _change(float(means.max())),
    }  # fmt: skip


def _change(log: float) -> float:
    """The ratio minus 1 of a log-ratio, at most the largest number there is."""
    return math.expm1(min(log, moves.MOST))


def _ratio(log: float) -> float | None:
    return _change(log) if math.isfinite(log) else None


def _percent(log: float) -> str:
    return f"{significant(100 * _change(log), 2)} %"
