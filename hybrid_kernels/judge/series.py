"""The history as series: one benchmark cell on one machine in one environment, in commit order, every version of it."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import isfinite
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from hybrid_kernels.history import store
from hybrid_kernels.history.frames import Rows
from hybrid_kernels.judge import moves, steps

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series as the results hold it, with what it was measured with."""

    commit: str
    date: datetime.datetime | None
    value: float
    ci_low: float | None
    ci_high: float | None
    version: str | None
    number: int
    repeat: int
    file: str


class Points(Sequence[Point]):
    """The points of a series, each made when it is asked for: millions of objects are more than a memory holds.

    `columns` run over the whole history, named as the fields of Point; this is the stretch from `start` to `stop`.
    """

    __slots__ = ("columns", "start", "stop")

    def __init__(self, columns: Mapping[str, Sequence[Any]], start: int, stop: int) -> None:
        self.columns, self.start, self.stop = columns, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    @overload
    def __getitem__(self, at: int) -> Point: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Point, ...]: ...
    def __getitem__(self, at: int | slice) -> Point | tuple[Point, ...]:
        if isinstance(at, slice):
            return tuple(self._made(place) for place in range(len(self))[at])
        return self._made(range(len(self))[at])

    def _made(self, place: int) -> Point:
        row = {name: column[self.start + place] for name, column in self.columns.items()}
        row["value"] = float(row["value"])
        below, above = row["ci_low"], row["ci_high"]
        row["ci_low"] = float(below) if isfinite(below) else None
        row["ci_high"] = float(above) if isfinite(above) else None
        return Point(**row)

    def column(self, name: str) -> Sequence[Any]:
        """One field of every point."""
        return self.columns[name][self.start : self.stop]


@dataclass(frozen=True, eq=False)
class Series:
    """Values of one cell in commit order. `order` is the rank of each value's commit; two may share one.

    `noise` is the spread that runs of equal code are known to have on this machine. `params` are the cell's (name,
    value) pairs; `direction` +1 higher is better, -1 lower, 0 unknown.
    """

    machine: str
    env: str
    benchmark: str
    cell: str
    params: Mapping[str, str]
    unit: str
    direction: int
    order: npt.NDArray[np.int64]
    values: Floats
    ci_low: Floats
    ci_high: Floats
    points: Points | tuple[Point, ...]
    noise: float | None = None  # between runs of equal code, as control arms show; None: nothing tells

    @property
    def name(self) -> str:
        """`benchmark (cell)`, for people."""
        return f"{self.benchmark} ({self.cell})" if self.cell else self.benchmark

    def column(self, name: str) -> Sequence[Any]:
        """One field of every point (`commit`, `version`, `file`), without making the points."""
        if isinstance(self.points, Points):
            return self.points.column(name)
        return [getattr(point, name) for point in self.points]

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Stretches of one version. A value whose file names no version goes with its neighbours."""
        starts, current = [0], None
        for index, version in enumerate(self.column("version")):
            if version is None:
                continue
            if current is not None and version != current:
                starts.append(index)
            current = version
        ends = [*starts[1:], len(self.points)]
        return tuple(Run(self, start, end) for start, end in zip(starts, ends, strict=True) if end > start)

    def of_version(self, version: str | None) -> Series | None:
        """The values of one version (None: all of them); None when there are none."""
        if version is None:
            return self
        return self._only([index for index, own in enumerate(self.column("version")) if own == version])

    def until(self, order: int) -> Series | None:
        """The values of commits up to this rank; None when there are none."""
        return self._only(list(range(int(np.searchsorted(self.order, order, side="right")))))

    def _only(self, keep: list[int]) -> Series | None:
        if not keep:
            return None
        at = np.array(keep)
        return replace(
            self, order=self.order[at], values=self.values[at], ci_low=self.ci_low[at], ci_high=self.ci_high[at],
            points=tuple(self.points[i] for i in keep),
        )  # fmt: skip

    def fits(self, params: Mapping[str, Sequence[str]]) -> bool:
        """Whether the cell has every parameter of `params`, with one of the values listed there."""
        return all(name in self.params and _same(self.params[name], wanted) for name, wanted in params.items())


@dataclass(frozen=True, eq=False)
class Run:
    """The values start..end of a series, all of one version, and the levels in them."""

    series: Series
    start: int
    end: int

    @property
    def version(self) -> str | None:
        """The version, None when no file of the stretch names one."""
        versions = self.series.column("version")[self.start : self.end]
        return next((version for version in versions if version is not None), None)

    @cached_property
    def _steps(self) -> tuple[tuple[int, bool], ...]:
        """(first point of a new level, whether enough points confirm it), indices into the series."""
        s = self.series
        part = slice(self.start, self.end)
        # What stands at the edge of a version will never get more points: a change of version must not hide it.
        found = [(step.index, step.confirmed) for step in steps.find(s.values[part], ends=len(s.runs) > 1)]
        # What is too short for a step to be found may still hold one that stands out against its own runs' noise.
        if not found:
            found = [(index, True) for index in moves.few(s.values[part], s.ci_low[part], s.ci_high[part], s.noise)]
        return tuple((self.start + index, confirmed) for index, confirmed in found)

    @cached_property
    def levels(self) -> tuple[tuple[int, int], ...]:
        """(start, end) of each stretch of one level, indices into the series."""
        return tuple(itertools.pairwise([self.start, *(index for index, _ in self._steps), self.end]))

    @property
    def unconfirmed(self) -> frozenset[int]:
        """First points of levels that one or two points at an edge of this version make: they may be outliers."""
        return frozenset(index for index, confirmed in self._steps if not confirmed)

    def level_at(self, order: int, *, before: bool) -> tuple[int, int] | None:
        """The part of a level that ends with the last value up to `order`, or begins with the first from it on."""
        ranks = self.series.order[self.start : self.end]
        if before:
            index = self.start + int(np.searchsorted(ranks, order, side="right")) - 1
        else:
            index = self.start + int(np.searchsorted(ranks, order, side="left"))
        if not self.start <= index < self.end:
            return None
        start, end = next(level for level in self.levels if level[0] <= index < level[1])
        return (start, index + 1) if before else (index, end)


def _same(value: str, wanted: Sequence[str]) -> bool:
    """Whether `value` is one of `wanted`; numbers are compared as numbers, so 256 is 256.0."""
    if value in wanted:
        return True
    try:
        number = float(value)
    except ValueError:
        return False
    for other in wanted:
        try:
            if float(other) == number:
                return True
        except ValueError:
            continue
    return False


def from_rows(rows: Rows) -> list[Series]:
    """The series of a history, in order of first appearance. Cells that failed or were skipped hold no value."""
    with store.no_collection():
        return _from_rows(rows)


def _from_rows(rows: Rows) -> list[Series]:
    keys = ("machine", "env", "benchmark", "cell")
    usable = np.flatnonzero(np.isfinite(rows.value))
    number = np.zeros(len(usable), np.int64)
    for words in (rows.machine, rows.env, rows.benchmark, rows.cell):
        number = number * len(words.texts) + words.codes[usable]
    by_series = np.argsort(number, kind="stable")
    edges = np.flatnonzero(np.diff(number[by_series], prepend=-1)) if len(usable) else by_series
    usable, first = usable[by_series], by_series[edges]
    # Columns as lists once for all rows: objects of numpy for each of a thousand cells take seconds.
    texts = {name: getattr(rows, name).tolist(usable) for name in (*keys, "commit", "version", "file", "unit")}
    values, low, high = rows.value[usable], rows.ci_low[usable], rows.ci_high[usable]
    number_, repeat, direction = (column[usable].tolist() for column in (rows.number, rows.repeat, rows.direction))
    dates = _Dates()
    columns = {
        "commit": texts["commit"], "date": [dates[at] for at in rows.date[usable].astype(np.int64).tolist()],
        "value": values, "ci_low": low, "ci_high": high, "version": texts["version"], "number": number_,
        "repeat": repeat, "file": texts["file"],
    }  # fmt: skip
    order, cells = rows.order[usable].astype(np.int64), rows.params[usable].tolist()
    starts = edges.tolist()
    ends = [*starts[1:], len(usable)]
    found = []
    for which in np.argsort(first).tolist():
        start, end = starts[which], ends[which]
        machine, env, benchmark, cell = (texts[name][start] for name in keys)
        params = {str(name): str(value) for name, value in cells[end - 1]}
        unit, part = texts["unit"][end - 1], slice(start, end)
        found.append(
            Series(machine, env, benchmark, cell, params, unit, direction[end - 1], order[part], values[part],
                   low[part], high[part], Points(columns, start, end))
        )  # fmt: skip
    return found


class _Dates(dict[int, datetime.datetime | None]):
    """Dates by milliseconds since 1970, one object each; None where a calendar of years 1 to 9999 has none."""

    def __missing__(self, milliseconds: int) -> datetime.datetime | None:
        try:
            found = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)
        except OverflowError:  # such as the least integer, which stands for no date
            found = None
        self[milliseconds] = found
        return found


def with_noise(found: Sequence[Series], controls: Collection[str]) -> list[Series]:
    """The series, each with the noise that the control arms (benchmark names) of its machine and device show."""
    arms = [s for s in found if s.benchmark in controls]

    @cache
    def noise(machine: str, device: str | None) -> float | None:
        return moves.noise(s.values for s in arms if s.machine == machine and s.params.get("device") == device)

    return [replace(s, noise=noise(s.machine, s.params.get("device"))) for s in found]


def matching(
    series: Iterable[Series],
    benchmark: str | None,
    params: Mapping[str, Sequence[str]],
    machine: str | None = None,
    env: str | None = None,
) -> list[Series]:
    """The series of `benchmark` whose cell fits `params`, on `machine`, in `env` (None: any)."""
    return [
        s
        for s in series
        if s.benchmark == benchmark and machine in (None, s.machine) and env in (None, s.env) and s.fits(params)
    ]


def named(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the regular expressions is found in the benchmark's name."""
    return any(re.search(pattern, name) for pattern in patterns)
