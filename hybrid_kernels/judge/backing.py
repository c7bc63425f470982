"""The history behind a figure: the value it would get from the results now, and whether its records still agree.

A record agrees while the current level of its series lies in its stated range, give or take the noise of the series.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hybrid_kernels import units
from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import arithmetic, figure_series, moves
from hybrid_kernels.judge.arithmetic import Interval
from hybrid_kernels.judge.corrections import Statement
from hybrid_kernels.judge.events import History
from hybrid_kernels.judge.ledger import CHANGES, Figure, Ledger, Method, Record, current
from hybrid_kernels.judge.series import Series

SIGMAS = 2.0  # standard deviations of a single value to each side that count as noise
ROUNDED = 0.005  # a published value may be off by so much, at three digits


@dataclass(frozen=True)
class Measured:
    """What the results say of a figure on a machine now: the current level, and the range `low`..`high` of it.

    The range is 95 % of single values (of cells, where the statistic is a range). `commit` and `date` are of the last
    value at that level, `points` how many there are, `unit` the series' own.
    """

    method: Method
    value: float
    low: float
    high: float
    unit: str
    commit: str
    date: datetime.datetime | None
    points: int
    file: str
    since: str  # commit from which on the level holds


@dataclass(frozen=True)
class Problem:
    """Something about the ledger that the history contradicts: the line of figures.toml, what is wrong, what to do."""

    line: int | None
    what: str
    fix: str


def measured(history: History, figure: Figure, machine: str, method: Method | None = None) -> Measured:
    """The value of `figure` on `machine` in the results, by `method` (None: the most trusted one measured there).

    A figure that is computed from others is computed from theirs. BadInput when the results hold nothing for it, or
    hold it in another unit; the message says what was looked for.
    """
    expression = method.expression if method is not None else figure.expression
    if expression is not None and (method is not None or not figure_series.methods(figure, history.ledger, machine)):
        return _computed(history, figure, machine, expression)
    if method is None:
        known = figure_series.methods(figure, history.ledger, machine)
        if not known:
            raise BadInput(f"figure {figure.id!r}: no method of it is a benchmark; give it `methods` in figures.toml")
    else:
        known = (method,)
    for one in reversed(known):
        found = _latest(history, figure, one, machine)
        if found is not None:
            if found.unit != figure.unit:
                text = (
                    f"{one.benchmark} is in {found.unit!r}, the figure in {figure.unit!r}; tie it to another benchmark"
                )
                raise BadInput(f"figure {figure.id!r}: {text}")
            return found
    sought = " or ".join(one.describe() for one in known)
    where = " and ".join(str(folder) for folder in history.results)
    raise BadInput(f"figure {figure.id!r}: {where} holds no value on machine {machine!r} of {sought}")


def _latest(history: History, figure: Figure, method: Method, machine: str) -> Measured | None:
    """The current level of `figure` by `method`; of several environments the one measured last."""
    best: tuple[int, Series] | None = None
    for env in dict.fromkeys(s.env for s in history.series if s.machine == machine):
        found = figure_series.values(history.series, figure, method, machine, env)
        if found is not None and (best is None or found[0].order[-1] > best[0]):
            best = int(found[0].order[-1]), found[0]
    if best is None:
        return None
    s = best[1]
    start, end = s.runs[-1].levels[-1]
    value = float(np.median(s.values[start:end]))
    spread = _own_range(s, start, end)
    last = s.points[end - 1]
    if method.statistic == "range":
        cells = figure_series.cells_at(history.series, figure, method, s, int(s.order[end - 1]))
        spread = min(cells), max(cells)
    return Measured(
        replace(method, params={**figure.params, **method.params}, version=method.version or last.version),
        value, *spread, s.unit, last.commit, last.date, end - start, last.file, s.points[start].commit,
    )  # fmt: skip


def _own_range(s: Series, start: int, end: int) -> tuple[float, float]:
    """Where 95 % of single values at this level lie."""
    values = s.values[start:end]
    value = float(np.median(values))
    spread = moves.spread(values, (s.ci_low[start:end], s.ci_high[start:end]), s.noise or moves.PRIOR_SPREAD)
    noise = math.exp(min(SIGMAS * spread, moves.MOST))
    return (value / noise, value * noise) if value > 0 else (value, value)


def _computed(history: History, figure: Figure, machine: str, expression: str) -> Measured:
    """A figure out of others: each from the results."""
    parts: dict[str, Measured] = {}
    values: dict[str, Interval] = {}
    middles: dict[str, Interval] = {}
    for name in arithmetic.names(expression):
        parts[name] = part = measured(history, history.ledger.figure(name), machine)
        values[name] = Interval(part.low, part.high)
        middles[name] = Interval(part.value, part.value)
    if not parts:
        raise BadInput(f"figure {figure.id!r}: {expression!r} names no figure")
    spread = arithmetic.evaluate(expression, values)
    last = max(parts.values(), key=lambda part: part.date.timestamp() if part.date is not None else 0.0)
    value = arithmetic.evaluate(expression, middles).middle
    return replace(
        last, method=Method(expression=expression), value=value, low=spread.low, high=spread.high, unit=figure.unit,
        points=min(part.points for part in parts.values()),
    )  # fmt: skip


def agrees(record: Record, now: Measured) -> bool:
    """Whether the record's range and the range of what is measured now overlap."""
    return record.low <= now.high and now.low <= record.high


def statement(history: History, figure: Figure, machine: str) -> Statement:
    """What to record of `figure` on `machine` now, rounded to three digits, with method, commit and evidence."""
    now = measured(history, figure, machine)
    before = figure.current(machine)
    # What is computed from others stays what it was, such as an upper bound: how they were measured does not tell.
    kind = before.kind if before is not None and now.method.expression is not None else now.method.kind
    value = _rounded(now.value)
    ends = (_rounded(now.low), _rounded(now.high)) if now.method.statistic == "range" else (value, value)
    names = f"median of {now.points} values at this level" if now.points > 1 else "one value at this level"
    return Statement(
        None if now.method.statistic == "range" else value, *ends,
        method=now.method, kind=kind, change=_change(history, figure, machine), conditions=names,
        commit=now.commit, evidence=(_relative(now.file, history.ledger.path.parent),),
    )  # fmt: skip


def _relative(file: str, root: Path) -> str:
    if "://" in file:  # an address
        return file
    path = Path(file).resolve()
    return path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else path.name


def rests_on_results(record: Record) -> bool:
    """Whether the record was taken from an asv history, directly or through other figures."""
    return record.method.benchmark is not None or record.method.expression is not None


def _rounded(value: float) -> float:
    return float(units.significant(value).replace(",", ""))


def _change(history: History, figure: Figure, machine: str) -> str | None:
    """What the last change of the figure in the history was, if it came after the commit of the current record."""
    record = figure.current(machine)
    told = [event for event in history.statements(figure.id, machine) if event.before is not None]
    if record is None or not told:
        return None
    measured_at = [
        rank
        for s in history.series
        for rank, commit in zip(s.order.tolist(), s.column("commit"), strict=True)
        if commit == record.commit
    ]
    if measured_at and told[-1].order <= measured_at[0]:
        return None
    return told[-1].kind if told[-1].kind in CHANGES else None


def problems(history: History) -> Iterator[Problem]:
    """Everything of the ledger that the results contradict, in the order of the ledger."""
    ledger = history.ledger
    for figure, record in current(ledger):
        if rests_on_results(record):
            yield from _of_record(history, figure, record)
    yield from _versions(history)


def _of_record(history: History, figure: Figure, record: Record) -> Iterator[Problem]:
    where = f"figure {figure.id!r}, record {record.id} ({record.machine})"
    redo = f"run `hybrid-kernels figures correct {figure.id} --machine {record.machine} --from-history --reason ...`"
    try:
        now = measured(history, figure, record.machine, record.method)
    except BadInput as error:
        yield Problem(
            record.line, f"{where} rests on results that are not there: {error}", "add them, or state its source"
        )
        return
    if not agrees(record, now):
        level = (
            f"{units.significant(now.value)} {figure.unit} since {now.since[:8]} ({units.counted(now.points, 'value')})"
        )
        yield Problem(record.line, f"{where} says {figure.format(record)}, the history {level}", redo)
    elif (parts := _from_records(history.ledger, record)) is not None and not (
        record.low <= parts.high and parts.low <= record.high
    ):
        gives = f"the figures it is computed from give {units.significant(parts.middle)} {figure.unit}"
        yield Problem(record.line, f"{where} says {figure.format(record)}, {gives}", redo)
    known = figure_series.methods(figure, history.ledger, record.machine)
    names = [method.name for method in known]
    if record.method.benchmark is not None and record.method.name in names:
        for better in known[names.index(record.method.name) + 1 :]:
            found = _latest(history, figure, better, record.machine)
            if found is not None:
                what = f"{where} is by {record.method.name!r}, but {better.name!r} is measured since {found.since[:8]}"
                yield Problem(record.line, what, redo)
                return


def _from_records(ledger: Ledger, record: Record) -> Interval | None:
    """The expression of `record` over the figures as published now, to their digits; None where there is none, or a
    figure has no record of the machine."""
    if record.method.expression is None:
        return None
    values: dict[str, Interval] = {}
    for name in arithmetic.names(record.method.expression):
        part = ledger.figure(name).current(record.machine)
        if part is None:
            return None
        values[name] = Interval(part.low * (1 - ROUNDED), part.high * (1 + ROUNDED))
    found = arithmetic.evaluate(record.method.expression, values)
    return Interval(found.low * (1 - ROUNDED), found.high * (1 + ROUNDED))


def _versions(history: History) -> Iterator[Problem]:
    """Benchmarks whose version was raised without a method in the ledger that says what the new one measures."""
    ledger = history.ledger
    pinned = {method.benchmark for method in ledger.methods.values() if method.version is not None}
    for name, (versions, files) in _seen(history).items():
        for before, version in zip((None, *versions[:-1]), versions, strict=True):
            if (before is not None or (name in pinned and len(versions) == 1)) and not _declared(ledger, name, version):
                line = _line_of(ledger, name)
                was = f" from {before!r}" if before is not None else ""
                what = (
                    f"benchmark {name} went{was} to version {version!r} ({files[version]}); no method says what it is"
                )
                fix = f'add [methods.NAME] with benchmark = "{name}", version = "{version}", and what it supersedes'
                yield Problem(line, what, fix)


def _seen(history: History) -> Mapping[str, tuple[list[str], dict[str, str]]]:
    """Versions of each benchmark in commit order, and the first file of each."""
    seen: dict[str, tuple[list[str], dict[str, str]]] = {}
    ranked = sorted(
        (
            (rank, s.benchmark, version, file)
            for s in history.series
            for rank, version, file in zip(s.order.tolist(), s.column("version"), s.column("file"), strict=True)
        ),
        key=lambda item: item[0],
    )
    for _, name, version, file in ranked:
        if version is None:
            continue
        versions, files = seen.setdefault(name, ([], {}))
        if version not in files:
            versions.append(version)
            files[version] = file
    return seen


def _declared(ledger: Ledger, name: str, version: str) -> bool:
    return any(
        method.benchmark == name and method.version == version and (method.what or method.supersedes or method.reason)
        for method in ledger.methods.values()
    )


def _line_of(ledger: Ledger, name: str) -> int | None:
    """Where figures.toml names the benchmark last."""
    of_records = [record.method for figure in ledger.figures.values() for record in figure.records]
    lines = [method.line for method in (*of_records, *ledger.methods.values()) if method.benchmark == name]
    return lines[-1] if lines else None
