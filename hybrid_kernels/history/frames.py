"""Columns of result files with what the definitions add: units, directions, names of parameters.

`Rows` has them as arrays, for what must not wait for pandas to be imported, and `frame` as a pandas frame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybrid_kernels.history import columns, directions
from hybrid_kernels.history.columns import Numbering, Table

if TYPE_CHECKING:
    import pandas as pd

Params = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Benchmark:
    """What `benchmarks.json` says of a benchmark today; of one that it no longer has, what asv's naming rules say."""

    name: str
    type: str  # asv's: time, timeraw, memory, peakmemory, track; "" unknown
    unit: str  # "" unknown
    direction: int  # +1 higher is better, -1 lower is better, 0 unknown
    version: str | None  # None: gone from benchmarks.json, or it gives none
    param_names: tuple[str, ...] = ()
    params: tuple[tuple[str, ...], ...] = ()
    number: int | None = None  # as set for the benchmark; 0: asv chooses
    repeat: Any = None  # a count or (min, max, time); 0: asv chooses
    higher_is_better: bool | None = None  # as declared
    defined: bool = True  # False: gone from benchmarks.json
    entry: Mapping[str, Any] | None = None  # the whole entry, own attributes included


@dataclass(frozen=True, eq=False)
class Cells:
    """The parameter cells of a table, by their code: (name, value) pairs and text such as `device=cpu, mib=64`."""

    params: NDArray[np.object_]
    texts: list[str]


def cells(table: Table, benchmarks: Mapping[str, Benchmark]) -> Cells:
    """Names every cell with the parameter names that the benchmark has today, `p1`, `p2`, ... where they do not fit.

    asv writes the values of parameters as Python would print them; the quotes of a string are left away unless that
    would make two cells alike.
    """
    bare = [tuple(unquoted(value) for value in values) for _, values in table.cells]
    seen: dict[tuple[int, tuple[str, ...]], int] = {}
    for (benchmark, _), values in zip(table.cells, bare, strict=True):
        seen[benchmark, values] = seen.get((benchmark, values), 0) + 1
    params = np.empty(len(table.cells), np.object_)
    texts: list[str] = []
    for at, ((benchmark, raw), values) in enumerate(zip(table.cells, bare, strict=True)):
        kept = values if seen[benchmark, values] == 1 else raw
        names = benchmarks[table.benchmarks[benchmark]].param_names
        if len(names) != len(kept):
            names = tuple(f"p{i + 1}" for i in range(len(kept)))
        params[at] = pairs = tuple(zip(names, kept, strict=True))
        texts.append(", ".join(f"{name}={value}" for name, value in pairs))
    return Cells(params, texts)


def unquoted(value: str) -> str:
    """The text inside matching quotes; anything else as it is."""
    match = re.fullmatch(r"(['\"])(.*)\1", value, re.DOTALL)
    return match[2] if match and match[1] not in match[2] else value


@dataclass(frozen=True, eq=False)
class Context:
    """What the files of a table are read with; lists run along `table.files`, `definitions` along the roots."""

    paths: list[str]
    machines: list[str]
    root_of_file: NDArray[np.int32]
    order_of_file: NDArray[np.int32]
    definitions: Sequence[Mapping[str, Benchmark] | None]  # None: the root has no benchmarks.json


@dataclass(frozen=True, eq=False)
class Words:
    """A column of texts: the code of each row's, -1 where it has none, and the texts by their code.

    Only texts that occur, in the order in which they do; of a column `status` all that there are.
    """

    codes: NDArray[np.int32]
    texts: list[str]

    def tolist(self, rows: NDArray[np.intp]) -> list[Any]:
        """The texts of these rows, None where there is none."""
        found: list[Any] = np.array([*self.texts, None], np.object_)[self.codes[rows]].tolist()
        return found

    def among(self, texts: Collection[str]) -> NDArray[np.bool_]:
        """Which rows have one of `texts`."""
        found: NDArray[np.bool_] = np.array([*(one in texts for one in self.texts), False], np.bool_)[self.codes]
        return found


@dataclass(frozen=True, eq=False)
class Rows:
    """The columns of `store.StoredHistory.frame` as arrays, in its order. Times are datetime64[ms], in UTC."""

    machine: Words
    env: Words
    commit: Words
    order: NDArray[np.int32]
    date: NDArray[np.datetime64]
    benchmark: Words
    cell: Words
    params: NDArray[np.object_]
    version: Words
    is_current_version: NDArray[np.bool_]
    value: NDArray[np.float64]
    unit: Words
    direction: NDArray[np.int8]
    ci_low: NDArray[np.float64]
    ci_high: NDArray[np.float64]
    q25: NDArray[np.float64]
    q75: NDArray[np.float64]
    n: NDArray[np.int32]
    number: NDArray[np.int32]
    repeat: NDArray[np.int32]
    status: Words
    started: NDArray[np.datetime64]
    file: Words

    def __len__(self) -> int:
        return len(self.value)


def times(milliseconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Times from milliseconds since 1970; NaT where there is none, or none that a calendar has."""
    known = np.abs(milliseconds) < 1e14  # also leaves out NaN: asv's own dates end with the year 5138
    whole = np.where(known, milliseconds, 0).astype("datetime64[ms]")
    whole[~known] = np.datetime64("NaT")
    return whole


def utc(found: NDArray[np.datetime64]) -> pd.DatetimeIndex:
    """Times of `times` as pandas has them, with their time zone."""
    import pandas as pd

    return pd.DatetimeIndex(found).tz_localize("UTC")


def frame(rows: Rows) -> pd.DataFrame:
    """The frame that `store.StoredHistory.frame` describes."""
    import pandas as pd

    def column(found: Any) -> Any:
        if isinstance(found, Words):
            return pd.Categorical.from_codes(found.codes, categories=pd.Index(found.texts, dtype="str"))
        return utc(found) if found.dtype.kind == "M" else found

    return pd.DataFrame({one.name: column(getattr(rows, one.name)) for one in fields(Rows)}, copy=False)


def rows_of(table: Table, rows: NDArray[np.intp] | None, cells: Cells, context: Context) -> Rows:
    """The columns of all rows of `table`, or of those numbered in `rows`."""
    # Rows lie in the order of their files; bring those into the order of commits, whatever order they were read in.
    by_commit = sorted(range(len(table.files)), key=lambda at: (context.order_of_file[at], context.paths[at]))
    counts = table.rows_of_file
    all_codes, all_numbers, file_order = table.codes, table.numbers, np.array(by_commit, np.int32)
    if rows is not None:
        starts = np.cumsum(counts) - counts
        counts = np.diff(np.searchsorted(rows, [*starts, table.codes.shape[1]]))  # rows ascend
        before = np.cumsum(counts) - counts  # of the first row of each file among `rows`
        counts = counts[by_commit]
        after = np.cumsum(counts) - counts
        rows = rows[np.repeat(before[by_commit] - after, counts) + np.arange(len(rows))]
        all_codes, all_numbers = table.codes[:, rows], table.numbers[:, rows]
    else:
        if by_commit != list(range(len(by_commit))):
            ends = np.cumsum(counts)
            parts = [
                slice(int(ends[at] - counts[at]), int(ends[at])) for at in by_commit
            ]  # whole files: no index a row
            all_codes = np.concatenate([table.codes[:, part] for part in parts], axis=1)
            all_numbers = np.concatenate([table.numbers[:, part] for part in parts], axis=1)
        counts = counts[by_commit]
    file = np.repeat(file_order, counts)
    code = dict(zip(columns.CODES, all_codes, strict=True))
    number = dict(zip(columns.NUMBERS, all_numbers, strict=True))

    def words(codes: NDArray[Any], texts: Sequence[str]) -> Words:
        codes, used = _by_appearance(codes, len(texts))
        return Words(codes, [texts[one] for one in used])

    def of_file(values: Sequence[str]) -> Words:
        numbering: Numbering[str] = Numbering()
        numbered = [numbering[values[at]] for at, count in zip(by_commit, counts.tolist(), strict=True) if count]
        codes = np.repeat(np.array(numbered, np.int32), counts[counts > 0])
        return Words(codes, list(numbering))

    texts: Numbering[str] = Numbering()
    text = np.array([texts[one] for one in cells.texts], np.int32)
    root, benchmark = context.root_of_file[file], code["benchmark"]
    described = _Described(table, context)
    dates = np.array([np.nan if one.date is None else one.date for one in table.files], np.float64)
    return Rows(
        machine=of_file(context.machines),
        env=of_file([one.env or "" for one in table.files]),
        commit=of_file([one.commit for one in table.files]),
        order=context.order_of_file[file],
        date=times(dates)[file],
        benchmark=words(benchmark, table.benchmarks),
        cell=words(text[code["cell"]], list(texts)),
        params=cells.params[code["cell"]],
        version=words(code["version"], table.versions),
        is_current_version=described.is_current(root, benchmark, code["version"], file),
        value=number["value"],
        unit=words(described.unit[root, benchmark], described.units),
        direction=described.direction[root, benchmark],
        ci_low=number["ci_low"],
        ci_high=number["ci_high"],
        q25=number["q25"],
        q75=number["q75"],
        n=code["n"],
        number=code["number"],
        repeat=code["repeat"],
        status=Words(code["status"], list(columns.STATUS)),
        started=times(number["started"]),
        file=of_file(context.paths),
    )


def _by_appearance(codes: NDArray[Any], count: int) -> tuple[NDArray[np.int32], list[int]]:
    """The codes numbered by first appearance (-1 stays), and the old codes below `count` in that order."""
    first = np.full(count + 1, len(codes), np.intp)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last write is the first appearance; -1 writes the end
    used = [one for one in np.argsort(first[:count], kind="stable").tolist() if first[one] < len(codes)]
    new = np.full(count + 1, -1, np.int32)
    new[used] = np.arange(len(used), dtype=np.int32)
    return new[codes], used


class _Described:
    """Units, directions and current versions as arrays [root, benchmark]."""

    def __init__(self, table: Table, context: Context) -> None:
        shape = (len(context.definitions), len(table.benchmarks))
        self.direction = np.zeros(shape, np.int8)
        self.unit = np.zeros(shape, np.int32)
        self._current = np.full(shape, _GONE, np.int32)
        self._machine_env = _machine_env(table, context)
        units: Numbering[str] = Numbering()
        version_code = {version: code for code, version in enumerate(table.versions)}
        for root, definitions in enumerate(context.definitions):
            for code, name in enumerate(table.benchmarks):
                one = (definitions or {}).get(name) or from_name(name)
                self.direction[root, code] = one.direction
                self.unit[root, code] = units[one.unit]
                if definitions is None:
                    self._current[root, code] = _LATEST
                elif one.defined:
                    self._current[root, code] = _ANY if one.version is None else version_code.get(one.version, _NONE)
        self.units = list(units)

    def is_current(
        self, root: NDArray[np.int32], benchmark: NDArray[np.int32], version: NDArray[np.int32], file: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        """Whether asv would show the row. Where a root has no benchmarks.json, whether its version is the latest one.

        Rows are in the order of commits.
        """
        current = self._current[root, benchmark]
        result = (version == current) | (current == _ANY) | ((version == -1) & (current != _GONE))
        latest = np.flatnonzero(current == _LATEST)
        if len(latest):
            series = self._machine_env[file[latest]].astype(np.int64) * self._current.shape[1] + benchmark[latest]
            newest_first = version[latest][::-1]
            _, first, place = np.unique(series[::-1], return_index=True, return_inverse=True)
            result[latest] = (newest_first == newest_first[first][place])[::-1]
        return np.asarray(result, np.bool_)


# Codes of current versions that are not codes of versions.
_NONE, _ANY, _LATEST, _GONE = -2, -3, -4, -5


def _machine_env(table: Table, context: Context) -> NDArray[np.int32]:
    numbering: Numbering[tuple[str, str | None]] = Numbering()
    pairs = zip(context.machines, table.files, strict=True)
    return np.array([numbering[machine, one.env] for machine, one in pairs], np.int32)


def from_name(name: str) -> Benchmark:
    """A benchmark that no `benchmarks.json` defines, as asv's naming rules would have it."""
    kind, unit = directions.type_of(name)
    return Benchmark(name, kind, unit, directions.of(None, name), None, defined=False)


def from_entry(name: str, entry: Mapping[str, Any]) -> Benchmark:
    """A benchmark as its entry in `benchmarks.json` defines it."""
    declared = entry.get("higher_is_better")
    version = entry.get("version")
    return Benchmark(
        name=name,
        type=str(entry.get("type") or ""),
        unit=str(entry.get("unit") or ""),
        direction=directions.of(entry, name),
        version=None if version is None else str(version),
        param_names=tuple(str(one) for one in _list(entry.get("param_names"))),
        params=tuple(
            tuple(one if isinstance(one, str) else json.dumps(one) for one in _list(axis))
            for axis in _list(entry.get("params"))
        ),
        number=entry.get("number") if isinstance(entry.get("number"), int) else None,
        repeat=entry.get("repeat"),
        higher_is_better=declared if isinstance(declared, bool) else None,
        entry=entry,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
