"""Many result files as columns: what the cache keeps on disk and the frame is made of.

One row for each cell of each benchmark in each file. Words are numbered (benchmarks, versions, cells), numbers lie in
two matrices, one row a column, and the rows of a file are contiguous and in the order of the files, so that a file can
be dropped, a benchmark picked or two tables joined without looking at a single row in Python.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybrid_kernels.history import asv_files
from hybrid_kernels.history.asv_files import Numbers, ResultFile, Row, Unreadable
from hybrid_kernels.history.folders import Entry

CODES = ("benchmark", "cell", "version", "status", "number", "repeat", "n")  # rows of Table.codes
NUMBERS = ("value", "ci_low", "ci_high", "q25", "q75", "started")  # rows of Table.numbers; started in ms since 1970

# Why a row has no ordinary value. asv writes null for a benchmark that failed and NaN for one that skipped itself.
STATUS = ("ok", "failed", "skipped", "infinite", "missing")
OK, FAILED, SKIPPED, INFINITE, MISSING = range(5)

EXTRA = "(beyond the grid)"
"""First part of the cell of a value that the file holds beyond its parameter grid."""

Floats = NDArray[np.float64]
Word = TypeVar("Word", bound=Hashable)


class FileRecord(msgspec.Struct, array_like=True):
    """One result file: where it lies, what it is about, how many rows it has. Dates are ms since 1970."""

    path: str  # below its root
    stamp: tuple[int, int, int]
    rows: int = 0
    error: str | None = None  # why it could not be read
    commit: str = ""
    machine: str | None = None
    env: str | None = None
    date: float | None = None
    facts: str = "{}"  # JSON
    env_vars: str = "{}"  # JSON
    schema: int = 2
    partial: bool = False
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Table:
    """Rows of result files. `codes` int32 [len(CODES), rows], `numbers` float64 [len(NUMBERS), rows]."""

    files: list[FileRecord]
    benchmarks: list[str]
    versions: list[str]  # code -1: the file gives no version
    cells: list[tuple[int, tuple[str, ...]]]  # code of the benchmark, parameter values as the file writes them
    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]

    @property
    def rows_of_file(self) -> NDArray[np.int64]:
        """How many rows each file has, in the order of `files` and of the rows."""
        return np.fromiter((file.rows for file in self.files), np.int64, len(self.files))


class Numbering(dict[Word, int]):
    """Gives each new word the next number."""

    def __missing__(self, word: Word) -> int:
        number = self[word] = len(self)
        return number


class _Grids(dict[tuple[int, bytes], int]):
    """Numbers parameter grids, each a benchmark's code and the JSON of its axes, and the cells in them."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: Numbering[tuple[int, tuple[str, ...]]] = Numbering()
        self.sizes: list[int] = []
        self._grids: list[tuple[int, list[tuple[str, ...]]]] = []
        self._extended: dict[tuple[int, int], int] = {}

    def __missing__(self, key: tuple[int, bytes]) -> int:
        number = self[key] = self._add(key[0], asv_files.grid_of(key[1]))
        return number

    def _add(self, benchmark: int, cells: list[tuple[str, ...]]) -> int:
        self._grids.append((benchmark, cells))
        self.sizes.append(len(cells))
        return len(self.sizes) - 1

    def extended(self, grid: int, extra: int) -> int:
        """The number of `grid` with `extra` cells more, for values that a file holds beyond it."""
        if (grid, extra) not in self._extended:
            benchmark, cells = self._grids[grid]
            beyond = [(EXTRA, str(at + 1)) for at in range(extra)]
            self._extended[grid, extra] = self._add(benchmark, [*cells, *beyond])
        return self._extended[grid, extra]

    def flat(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Codes of the cells of all grids in one array, the start of each grid in it, its length."""
        numbered = [self.cells[benchmark, cell] for benchmark, cells in self._grids for cell in cells]
        sizes = np.array(self.sizes, np.int64)
        return np.array(numbered, np.int32), np.cumsum(sizes) - sizes, sizes


def build(entries: Sequence[tuple[str, Entry, ResultFile | Unreadable]]) -> Table:
    """A table from decoded files, each with its path below the root and its entry; unreadable ones keep the reason."""
    files: list[FileRecord] = []
    names: list[str] = []
    rows: list[Row] = []
    records: list[tuple[FileRecord, int]] = []  # file, number of its benchmarks
    encode: Callable[[object], bytes] = msgspec.json.encode
    for path, entry, found in entries:
        if isinstance(found, Unreadable):
            files.append(FileRecord(path, entry.stamp, error=str(found)))
            continue
        file = FileRecord(
            path,
            entry.stamp,
            commit=found.commit,
            machine=found.machine,
            env=found.env,
            date=found.date,
            facts=encode(found.facts).decode(),
            env_vars=encode(found.env_vars).decode(),
            schema=found.schema,
            partial=found.partial,
            notes=tuple(found.notes),
        )
        files.append(file)
        names.extend(found.results)
        rows.extend(found.results.values())
        records.append((file, len(found.results)))

    benchmarks: Numbering[str] = Numbering()
    versions: Numbering[str | None] = Numbering({None: 0})
    grids = _Grids()
    benchmark = [benchmarks[name] for name in names]
    version = [versions[row.version] for row in rows]
    grid = [grids[code, bytes(row.params)] for code, row in zip(benchmark, rows, strict=True)]
    results, missing = _results([row.result for row in rows], grid, grids)
    cells_of_grid, starts, sizes_of_grid = grids.flat()
    grid_codes = np.array(grid, np.int64)
    sizes = sizes_of_grid[grid_codes] if len(grid) else np.zeros(0, np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0

    codes = np.zeros((len(CODES), total), np.int32)
    numbers = np.full((len(NUMBERS), total), np.nan)
    if total:
        within = np.arange(total) - np.repeat(ends - sizes, sizes)
        codes[0] = np.repeat(np.array(benchmark, np.int32), sizes)
        codes[1] = cells_of_grid[np.repeat(starts[grid_codes], sizes) + within]
        codes[2] = np.repeat(np.array(version, np.int32) - 1, sizes)
        values = list(itertools.chain.from_iterable(results))
        numbers[0] = values
        for at in np.flatnonzero(~np.isfinite(numbers[0])).tolist():
            codes[3, at] = FAILED if values[at] is None else SKIPPED if values[at] != values[at] else INFINITE
        for record, first in missing:
            codes[3, int(ends[record] - sizes[record]) + first : int(ends[record])] = MISSING
        numbers[1] = _flat([row.ci_low for row in rows], sizes)
        numbers[2] = _flat([row.ci_high for row in rows], sizes)
        numbers[3] = _flat([row.q25 for row in rows], sizes)
        numbers[4] = _flat([row.q75 for row in rows], sizes)
        numbers[5] = np.repeat(np.array([row.started_at for row in rows], np.float64), sizes)
        codes[4] = _counts(_flat([row.number for row in rows], sizes))
        codes[5] = codes[6] = _counts(_flat([row.repeat for row in rows], sizes))
        _count_samples(rows, codes, ends, sizes)

    at = 0
    for file, count in records:
        file.rows = int(sizes[at : at + count].sum())
        at += count
    named = [str(one) for one in versions if one is not None]
    return Table(files, list(benchmarks), named, list(grids.cells), codes, numbers)


def _results(
    results: Sequence[Numbers | float | None], grid: list[int], grids: _Grids
) -> tuple[list[Numbers], list[tuple[int, int]]]:
    """The values of each row, as many as its grid has cells; `grid` is corrected where a file holds more than that.

    Also (row, first cell) of rows whose list is shorter than their grid: from there on values are missing.
    """
    missing: list[tuple[int, int]] = []
    lists: list[Numbers] = [one if type(one) is list else [one] for one in results]  # type: ignore[list-item]
    sizes = np.array(grids.sizes, np.int64)[np.array(grid, np.int64)] if grid else np.zeros(0, np.int64)
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    for at in np.flatnonzero(lengths != sizes).tolist():
        result, size = lists[at], int(sizes[at])
        if len(result) > size:
            grid[at] = grids.extended(grid[at], len(result) - size)
            continue
        if results[at] is not None:  # None: nothing was recorded because all of it failed
            missing.append((at, len(result)))
        lists[at] = result + [None] * (size - len(result))
    return lists, missing


def _flat(column: list[Numbers | None], sizes: NDArray[np.int64]) -> Floats:
    """One statistic of all rows, each cut or padded with NaN to the size of its grid."""
    unknown: Numbers = [math.nan]
    lists = [unknown if values is None else values for values in column]
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    for at in np.flatnonzero(lengths != sizes).tolist():
        size = int(sizes[at])
        lists[at] = (lists[at] + unknown * size)[:size]
    try:
        return np.fromiter(itertools.chain.from_iterable(lists), np.float64)
    except TypeError:  # a None among them
        return np.array(list(itertools.chain.from_iterable(lists)), np.float64)


def _counts(numbers: Floats) -> NDArray[np.int32]:
    """Numbers as int32, 0 where they are unknown."""
    return np.clip(np.nan_to_num(numbers, nan=0.0), 0, np.iinfo(np.int32).max).astype(np.int32)


def _count_samples(
    rows: Sequence[Row], codes: NDArray[np.int32], ends: NDArray[np.int64], sizes: NDArray[np.int64]
) -> None:
    """Fills `n` from the stored samples where the file does not give their number."""
    for at in [at for at, row in enumerate(rows) if row.repeat is None]:
        if bytes(rows[at].samples) != b"null":
            start = int(ends[at] - sizes[at])
            for cell, samples in enumerate(asv_files.samples_of(rows[at])[: int(sizes[at])]):
                codes[6, start + cell] = len(samples or ())


def select(table: Table, files: NDArray[np.bool_]) -> Table:
    """The table with only the files marked in `files` (bool, one a file)."""
    if files.all():
        return table
    rows = np.repeat(files, table.rows_of_file)
    kept = [file for file, keep in zip(table.files, files.tolist(), strict=True) if keep]
    return Table(kept, table.benchmarks, table.versions, table.cells, table.codes[:, rows], table.numbers[:, rows])


def join(tables: Sequence[Table]) -> Table:
    """One table of the files of all, in that order; words are numbered anew."""
    if len(tables) == 1:
        return tables[0]
    benchmarks: Numbering[str] = Numbering()
    versions: Numbering[str] = Numbering()
    cells: Numbering[tuple[int, tuple[str, ...]]] = Numbering()
    codes: list[NDArray[np.int32]] = [np.zeros((len(CODES), 0), np.int32)]
    for table in tables:
        benchmark = np.array([benchmarks[name] for name in table.benchmarks], np.int32)
        version = np.array([*(versions[one] for one in table.versions), -1], np.int32)  # -1 finds the last
        cell = np.array([cells[int(benchmark[of]), values] for of, values in table.cells], np.int32)
        mapped = table.codes.copy()
        if mapped.shape[1]:
            mapped[0] = benchmark[mapped[0]]
            mapped[1] = cell[mapped[1]]
            mapped[2] = version[mapped[2]]
        codes.append(mapped)
    return Table(
        [file for table in tables for file in table.files],
        list(benchmarks),
        list(versions),
        list(cells),
        np.concatenate(codes, axis=1),
        np.concatenate([np.zeros((len(NUMBERS), 0)), *(table.numbers for table in tables)], axis=1),
    )
