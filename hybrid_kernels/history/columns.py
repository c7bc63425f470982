"""Many result files as columns: what the cache keeps on disk and the frame is made of.

One row for each cell of each benchmark in each file. Words are numbered (benchmarks, versions, cells), numbers lie in
two matrices, one row a column, and the rows of a file are contiguous and in the order of the files, so that a file can
be dropped, a benchmark picked or two tables joined without looking at a single row in Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
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


class _Grids:
    """Numbers the cells of parameter grids; a grid is a benchmark and the JSON of its axes."""

    def __init__(self) -> None:
        self.cells: Numbering[tuple[int, tuple[str, ...]]] = Numbering()
        self._numbers: dict[tuple[int, bytes, int], int] = {}
        self._cells_of: list[list[int]] = []

    def number(self, benchmark: int, params: bytes, extra: int = 0) -> int:
        key = (benchmark, params, extra)
        known = self._numbers.get(key)
        if known is None:
            cells = [*asv_files.grid_of(params), *((EXTRA, str(i + 1)) for i in range(extra))]
            known = self._numbers[key] = len(self._cells_of)
            self._cells_of.append([self.cells[benchmark, cell] for cell in cells])
        return known

    def size(self, grid: int) -> int:
        return len(self._cells_of[grid])

    def flat(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Cells of all grids in one array, the start of each grid in it, its length."""
        sizes = np.fromiter(map(len, self._cells_of), np.int64, len(self._cells_of))
        flat = np.fromiter(itertools.chain.from_iterable(self._cells_of), np.int32, int(sizes.sum()))
        return flat, np.cumsum(sizes) - sizes, sizes


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
    grid = [grids.number(code, bytes(row.params)) for code, row in zip(benchmark, rows, strict=True)]
    results, missing = _results(rows, benchmark, grid, grids)
    cells_of_grid, starts, sizes_of_grid = grids.flat()
    grid_codes = np.array(grid, np.int64)
    sizes = sizes_of_grid[grid_codes] if len(grid) else np.zeros(0, np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0

    codes = np.zeros((len(CODES), total), np.int32)
    numbers = np.empty((len(NUMBERS), total), np.float64)
    within = np.arange(total) - np.repeat(ends - sizes, sizes)
    codes[0] = np.repeat(np.array(benchmark, np.int32), sizes)
    codes[1] = cells_of_grid[np.repeat(starts[grid_codes], sizes) + within] if total else 0
    codes[2] = np.repeat(np.array(version, np.int32) - 1, sizes)
    values = list(itertools.chain.from_iterable(results))
    numbers[0] = values
    for at in np.flatnonzero(~np.isfinite(numbers[0])).tolist():
        codes[3, at] = FAILED if values[at] is None else SKIPPED if values[at] != values[at] else INFINITE
    for record, first in missing:
        codes[3, int(ends[record] - sizes[record]) + first : int(ends[record])] = MISSING
    statistics = ("ci_low", "ci_high", "q25", "q75", "number", "repeat")
    for index, column in enumerate(statistics):
        flat = np.array(_flat(map(attrgetter(column), rows), sizes), np.float64)
        if index < 4:
            numbers[1 + index] = flat
        else:
            codes[index] = np.clip(np.nan_to_num(flat, nan=0.0), 0, np.iinfo(np.int32).max)
    numbers[5] = np.repeat(np.array([row.started_at for row in rows], np.float64), sizes)
    codes[6] = codes[5]
    _count_samples(rows, codes, ends, sizes)

    at = 0
    for file, count in records:
        file.rows = int(sizes[at : at + count].sum())
        at += count
    return Table(files, list(benchmarks), [str(one) for one in versions if one is not None], list(grids.cells), codes,
                 numbers)  # fmt: skip


def _results(
    rows: Sequence[Row], benchmark: Sequence[int], grid: list[int], grids: _Grids
) -> tuple[list[Numbers], list[tuple[int, int]]]:
    """The values of each row, as many as its grid has cells; `grid` is corrected where a file holds more than that.

    Also (row, first cell) of rows whose list is shorter than their grid: from there on values are missing.
    """
    missing: list[tuple[int, int]] = []
    results: list[Numbers] = []
    for at, row in enumerate(rows):
        result = row.result
        size = grids.size(grid[at])
        if type(result) is not list:
            result = [result] * size if result is None else [result]  # type: ignore[list-item]  # a float is left
        if len(result) != size:
            if len(result) > size:
                grid[at] = grids.number(benchmark[at], bytes(row.params), len(result) - size)
            else:
                missing.append((at, len(result)))
                result = result + [None] * (size - len(result))
        results.append(result)
    return results, missing


def _flat(column: Iterable[Numbers | None], sizes: NDArray[np.int64]) -> Numbers:
    """One statistic of all rows, each cut or padded with None to the size of its grid."""
    one: Numbers = [None]
    lists = [one if values is None else values for values in column]
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    for at in np.flatnonzero(lengths != sizes).tolist():
        size = int(sizes[at])
        lists[at] = (lists[at] + [None] * size)[:size]
    return list(itertools.chain.from_iterable(lists))


def _count_samples(
    rows: Sequence[Row], codes: NDArray[np.int32], ends: NDArray[np.int64], sizes: NDArray[np.int64]
) -> None:
    """Fills `n` from the stored samples where the file does not give their number."""
    for at, row in enumerate(rows):
        if row.repeat is None and len(bytes(row.samples)) > len("null"):
            start = int(ends[at] - sizes[at])
            for cell, samples in enumerate(asv_files.samples_of(row)[: int(sizes[at])]):
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
