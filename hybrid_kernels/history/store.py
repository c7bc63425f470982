"""asv results, any version of them, as one tidy frame.

Nothing is dropped because it is old, renamed or of another version: the method that a value was measured with is a
column (`version`, `is_current_version`), and a file that cannot be read is listed with its reason (`skipped`).
"""

from __future__ import annotations

import difflib
import gc
import json
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import asv_files, cache, columns, folders, frames, orders
from hybrid_kernels.history.asv_files import ResultFile, Unreadable
from hybrid_kernels.history.columns import Table
from hybrid_kernels.history.frames import Benchmark, Context, Rows

if TYPE_CHECKING:
    import pandas as pd

BATCH_BYTES = 2**26
"""Bytes of JSON decoded at a time: as Python objects they take about five times as much memory."""

Results = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Note:
    """Something odd about a file that was read."""

    file: str
    text: str


@dataclass(frozen=True)
class Report:
    """What one result file says of its commit, machine and environment; columns of `StoredHistory.files`."""

    file: str
    machine: str
    env: str
    commit: str
    order: int
    date: np.datetime64  # of the commit, UTC; NaT
    facts: dict[str, Any]  # of machine and environment as they were when the file was written
    env_vars: dict[str, str]
    schema: int
    rows: int


@dataclass(frozen=True)
class _Root:
    """One results folder as it was read."""

    path: str
    table: Table
    definitions: dict[str, Benchmark] | None  # None: no benchmarks.json that can be read
    machines: dict[str, dict[str, Any]]  # facts in machine.json, by folder
    skipped: list[Skipped]


@dataclass(frozen=True)
class _File:
    """A result file and what its place among the others says of it."""

    record: columns.FileRecord
    path: str
    root: int
    machine: str


class StoredHistory:
    """Everything that some results folders hold, as far as the filters let through. Made by `load`.

    Attributes
    ----------
    skipped : list of Skipped
        Files that could not be read. Filters do not shorten it: a file that cannot be read may hold anything.
    notes : list of Note
        Oddities of files that were read: cut off, results that are not numbers, another machine than their folder's.
    benchmarks : dict of str to Benchmark
        By name: every benchmark that the results hold or `benchmarks.json` defines (of several roots the first counts).
    machines : dict of str to dict
        Facts in `machine.json` by machine, after the filters; no facts for a machine that only result files name.
    """

    def __init__(
        self, roots: Sequence[_Root], *, samples: bool, benchmark: str | None, machines: Sequence[str]
    ) -> None:
        self._samples = samples
        self._roots = roots
        self.skipped = [one for root in roots for one in root.skipped]
        self.notes: list[Note] = []
        self.machines: dict[str, dict[str, Any]] = {}
        self._files = [one for index, root in enumerate(roots) for one in self._placed(index, root)]
        self._table = columns.join([root.table for root in roots])
        self.benchmarks = self._defined()
        self._rows: NDArray[np.intp] | None = None  # those that the filters let through; None: all
        if machines:
            self._pick_machines(machines)
        self._cells = frames.cells(self._table, self.benchmarks)
        if benchmark is not None:
            self._pick_benchmarks(benchmark)

    def _placed(self, index: int, root: _Root) -> Iterator[_File]:
        of_folder = {}
        for folder, facts in root.machines.items():
            of_folder[folder] = name = str(facts.get("machine") or os.path.basename(folder))
            self.machines.setdefault(name, {key: value for key, value in facts.items() if key != "version"})
        for record in root.table.files:
            path = os.path.join(root.path, record.path)
            folder = os.path.dirname(path)
            of_this = of_folder.get(folder)
            name = record.machine or of_this or os.path.basename(folder)
            if of_this is not None and name != of_this:
                text = f"names machine {name!r} and lies in the folder of {of_this!r}: counted as {name!r}"
                self.notes.append(Note(path, text))
            self.notes.extend(Note(path, text) for text in record.notes)
            self.machines.setdefault(name, {})
            yield _File(record, path, index, name)

    def _defined(self) -> dict[str, Benchmark]:
        found: dict[str, Benchmark] = {}
        for root in self._roots:
            for name, one in (root.definitions or {}).items():
                found.setdefault(name, one)
        for name in self._table.benchmarks:
            found.setdefault(name, frames.from_name(name))
        return dict(sorted(found.items()))

    def _pick_machines(self, wanted: Sequence[str]) -> None:
        there = sorted({file.machine for file in self._files})
        for name in wanted:
            if there and name not in there:
                raise BadInput(f"machine: no results of {name!r}; {_near(name, there, 'machines')}")
        keep = np.array([file.machine in wanted for file in self._files], np.bool_)
        self._table = columns.select(self._table, keep)
        self._files = [file for file in self._files if file.machine in wanted]
        self.machines = {name: facts for name, facts in self.machines.items() if name in wanted}

    def _pick_benchmarks(self, regex: str) -> None:
        """asv's rule: the pattern is searched for in `name` and in `name(value, value)`."""
        try:
            pattern = re.compile(regex)
        except re.error as error:
            raise BadInput(f"benchmark: {regex!r} is not a regular expression: {error}") from None
        table = self._table
        wanted = np.zeros(len(table.cells), np.bool_)
        for code, (benchmark, _) in enumerate(table.cells):
            name = table.benchmarks[benchmark]
            values = ", ".join(value for _, value in self._cells.params[code])
            wanted[code] = bool(pattern.search(name) or (values and pattern.search(f"{name}({values})")))
        self._rows = np.flatnonzero(wanted[table.codes[1]])
        if table.codes.shape[1] and not len(self._rows):
            there = sorted({table.benchmarks[code] for code in np.unique(table.codes[0])})
            raise BadInput(f"benchmark: {regex!r} matches nothing; {_near(regex, there, 'benchmarks')}")

    def narrowed(self, benchmark: str | None = None, machine: str | Sequence[str] | None = None) -> StoredHistory:
        """What filters as those of `load` let through, out of what was loaded already: nothing is read again.

        BadInput when a filter matches nothing.
        """
        with no_collection():
            machines = [machine] if isinstance(machine, str) else list(machine or ())
            return StoredHistory(self._roots, samples=self._samples, benchmark=benchmark, machines=machines)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each parameter cell of each benchmark in each file; in commit order within every series.

        machine, env, commit
            Categories; env is "" where the file names none.
        order
            int, rank of the commit: along the commit graph when the results lie in a repository that knows the
            commits, else by date.
        date
            Of the commit, UTC.
        benchmark, cell, params
            Category; category, text such as `device=cpu, mib=64`, "" without parameters; the same as a tuple of
            (name, value) pairs of str.
        version, is_current_version
            Category, NaN where the file gives none; bool, whether asv would show the row, because its version is the
            one in `benchmarks.json` or it has none.
        value, unit, direction
            float in `unit` as asv stores it, NaN unless `status` is ok or infinite; category, "" where nothing tells;
            int, +1 higher is better, -1 lower is better, 0 unknown.
        ci_low, ci_high, q25, q75
            float, asv's 99 % interval of the median and quartiles of the samples; NaN where the file has none.
        n, number, repeat
            int, samples behind the value, calls a sample, samples as asv counts them; 0 where the file does not say.
        status
            Category: ok; failed (null in the file); skipped (NaN); infinite; missing (the file's list is shorter than
            its parameter grid).
        started
            Of the measurement, UTC.
        file
            Category, path of the result file.
        samples
            With samples=True: list of float, or None where the file keeps none.
        """
        frame = frames.frame(self.__dict__.get("rows") or self._made_rows())
        if self._samples:
            frame["samples"] = self._read_samples(frame)
        return frame

    @cached_property
    def rows(self) -> Rows:
        """The columns of `frame`, without samples, as arrays: pandas takes longer to import than a history to load."""
        return self._made_rows()

    def _made_rows(self) -> Rows:
        context = Context(
            paths=[file.path for file in self._files],
            machines=[file.machine for file in self._files],
            root_of_file=np.array([file.root for file in self._files], np.int32),
            order_of_file=self._order,
            definitions=[root.definitions for root in self._roots],
        )
        return frames.rows_of(self._table, self._rows, self._cells, context)

    @cached_property
    def reports(self) -> list[Report]:
        """What each result file that was read says of commit, machine and environment, in commit order."""
        dates = frames.times(np.array([one.record.date for one in self._files], np.float64))
        order = self._order.tolist()
        return [
            Report(
                file=one.path,
                machine=one.machine,
                env=one.record.env or "",
                commit=one.record.commit,
                order=order[at],
                date=dates[at],
                facts=json.loads(one.record.facts),
                env_vars=json.loads(one.record.env_vars),
                schema=one.record.schema,
                rows=one.record.rows,
            )
            for at, one in self._in_order
        ]

    @property
    def _in_order(self) -> list[tuple[int, _File]]:
        order = self._order.tolist()
        return sorted(enumerate(self._files), key=lambda pair: (order[pair[0]], pair[1].path))

    @cached_property
    def files(self) -> pd.DataFrame:
        """One row for each result file that was read: what it says of commit, machine and environment.

        Columns: file, machine, env, commit, order, date (UTC), facts (dict: machine facts and environment parameters
        as they were when the file was written), env_vars (dict), schema (1 or 2), rows, partial (bool: the file breaks
        off, or lacks benchmarks that its machine and environment had before and `benchmarks.json` still defines).
        """
        import pandas as pd

        told: dict[str, Any] = {
            one.name: [getattr(report, one.name) for report in self.reports] for one in fields(Report)
        }
        told["order"] = np.array(told["order"], np.int32)
        told["date"] = frames.utc(np.array(told["date"], "datetime64[ms]"))
        return pd.DataFrame(told).assign(partial=self._partial()[[at for at, _ in self._in_order]])

    def facts(self, file: str) -> dict[str, Any]:
        """Machine facts and environment parameters in the result file `file`; empty when it is none of these."""
        record = self._record_of.get(file)
        return json.loads(record.facts) if record is not None else {}

    @cached_property
    def _record_of(self) -> dict[str, columns.FileRecord]:
        return {one.path: one.record for one in self._files}

    def series_names(self) -> set[tuple[str, str, str]]:
        """(machine, benchmark, cell) of every row that the filters let through, without making the frame."""
        machines: columns.Numbering[str] = columns.Numbering()
        of_file = np.array([machines[file.machine] for file in self._files], np.int64)
        file = np.repeat(np.arange(len(self._files)), self._table.rows_of_file)
        rows = slice(None) if self._rows is None else self._rows
        count = max(len(self._table.cells), 1)
        names = list(machines)
        pairs = np.unique(of_file[file[rows]] * count + self._table.codes[1][rows])
        return {
            (names[pair // count], self._table.benchmarks[self._table.cells[pair % count][0]],
             self._cells.texts[pair % count])
            for pair in pairs.tolist()
        }  # fmt: skip

    def _partial(self) -> NDArray[np.bool_]:
        table = self._table
        has = np.zeros((len(table.files), len(table.benchmarks)), np.bool_)
        has[np.repeat(np.arange(len(table.files)), table.rows_of_file), table.codes[0]] = True
        defined = [
            np.array([name in (root.definitions or {}) for name in table.benchmarks], np.bool_) for root in self._roots
        ]
        partial = np.array([file.record.partial for file in self._files], np.bool_)
        before: dict[tuple[int, str, str | None], NDArray[np.bool_]] = {}
        for at in np.argsort(self._order, kind="stable").tolist():
            file = self._files[at]
            key = (file.root, file.machine, file.record.env)
            known = before.setdefault(key, np.zeros(len(table.benchmarks), np.bool_))
            partial[at] |= bool(np.any(known & defined[file.root] & ~has[at]))
            known |= has[at]
        return partial

    @cached_property
    def _order(self) -> NDArray[np.int32]:
        """Rank of the commit of each file."""
        dates: dict[str, float | None] = {}
        for file in self._files:
            date = dates.get(file.record.commit)
            if date is None or (file.record.date is not None and file.record.date < date):
                dates[file.record.commit] = file.record.date
        rank = None
        for root in self._roots:
            repository = orders.repository_of(root.path) if rank is None else None
            if repository is not None:
                rank = orders.by_graph(dates, repository)
        rank = rank or orders.by_date(dates)
        return np.fromiter((rank[file.record.commit] for file in self._files), np.int32, len(self._files))

    def _read_samples(self, frame: pd.DataFrame) -> NDArray[np.object_]:
        """The samples of each row, out of the files again: few ask for them, and they are most of a history's bytes."""
        samples = np.empty(len(frame), np.object_)
        for path, rows in frame.groupby("file", observed=True, sort=False).indices.items():
            try:
                results = asv_files.decode(folders.read(str(path)), str(path)).results
            except (Unreadable, OSError):
                continue  # it changed since it was read a moment ago
            stored: dict[tuple[str, int], list[float] | None] = {}
            for name, row in results.items():
                stored.update({(name, at): one for at, one in enumerate(asv_files.samples_of(row))})
            # Rows of one file and benchmark lie in the order of the grid, and filters may have left some out.
            part = frame.iloc[rows]
            for at, name, place in zip(rows, part["benchmark"], self._place_in_grid(part, results), strict=True):
                samples[at] = stored.get((name, place))
        return samples

    def _place_in_grid(self, part: pd.DataFrame, results: Mapping[str, asv_files.Row]) -> list[int]:
        places: dict[tuple[str, tuple[str, ...]], int] = {}
        for name, row in results.items():
            for at, values in enumerate(asv_files.grid_of(bytes(row.params))):
                places[name, values] = at
                places.setdefault((name, tuple(frames.unquoted(value) for value in values)), at)
        return [
            places.get((name, tuple(value for _, value in params)), -1)
            for name, params in zip(part["benchmark"], part["params"], strict=True)
        ]


def load(
    results: Results,
    *,
    samples: bool = False,
    cache: bool = True,
    benchmark: str | None = None,
    machine: str | Sequence[str] | None = None,
) -> StoredHistory:
    """Everything in one or several results folders of asv.

    Parameters
    ----------
    results
        A results folder, a folder above several of them, an address that fsspec knows (such as `s3://bucket/results`),
        or a list of these.
    samples
        Whether the frame gets the raw samples. They are read from the files again.
    cache
        Whether the columns of files read are kept in, and taken from, the user's cache folder.
    benchmark
        A regular expression, searched for in `name` and `name(value, value)` as asv's `--bench` does.
    machine
        Name of a machine, or several.

    Raises
    ------
    BadInput
        `results` names no folder, or a filter matches nothing; the message lists near names.
    """
    with no_collection():
        loaded = [_load_root(root, use_cache=cache) for root in folders.roots(results)]
        machines = [machine] if isinstance(machine, str) else list(machine or ())
        return StoredHistory(loaded, samples=samples, benchmark=benchmark, machines=machines)


def _load_root(root: str, *, use_cache: bool) -> _Root:
    found = folders.listing(root)
    prefix = len(os.path.join(root, ""))
    present = {entry.path[prefix:]: entry for entry in found.results}
    tables, segments = cache.load(root, present) if use_cache else ([], [])
    known = {file.path for table in tables for file in table.files}
    skipped = [Skipped(path, "has a name that is not UTF-8 text") for path in found.nameless]
    new = [columns.build(batch) for batch in _decoded_batches(present, known, skipped)]
    if new:
        table = columns.join(new)
        if use_cache:
            cache.store(root, table, tables, segments)
        tables = [*tables, table]
    table = columns.join(tables) if tables else columns.build([])
    unreadable = [Skipped(os.path.join(root, one.path), one.error) for one in table.files if one.error is not None]
    skipped += unreadable
    if unreadable:
        table = columns.select(table, np.array([one.error is None for one in table.files], np.bool_))
    definitions: dict[str, Benchmark] | None = None
    for path in found.definitions:
        try:
            entries = asv_files.definitions(folders.read(path))
        except (Unreadable, OSError) as error:
            skipped.append(Skipped(path, str(error)))
            continue
        definitions = definitions or {}
        for name, entry in entries.items():
            definitions.setdefault(name, frames.from_entry(name, entry))
    machines = {}
    for path in found.machines:
        try:
            machines[os.path.dirname(path)] = asv_files.machine(folders.read(path))
        except (Unreadable, OSError) as error:
            skipped.append(Skipped(path, str(error)))
    return _Root(root, table, definitions, machines, skipped)


def _decoded_batches(
    present: Mapping[str, folders.Entry], known: Container[str], skipped: list[Skipped]
) -> Iterator[list[tuple[str, folders.Entry, ResultFile | Unreadable]]]:
    """The files that are not known yet, decoded, as many at a time as bound the memory that decoding takes.

    What the system does not let us read now may be readable next time: it goes to `skipped`, and not into a table.
    """
    batch: list[tuple[str, folders.Entry, ResultFile | Unreadable]] = []
    size = 0
    new = [(path, entry) for path, entry in present.items() if path not in known]
    contents = folders.read_all([entry.path for _, entry in new])
    for (path, entry), content in zip(new, contents, strict=True):
        if isinstance(content, FileNotFoundError):
            continue  # gone since it was listed
        if isinstance(content, OSError):
            skipped.append(Skipped(entry.path, f"cannot be read: {content.strerror or content}"))
            continue
        try:
            batch.append((path, entry, asv_files.decode(content, os.path.basename(path))))
        except Unreadable as error:
            batch.append((path, entry, error))
        size += entry.stamp[0]
        if size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the cyclic garbage collector, for what makes many objects and no cycles: it would visit them all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _near(name: str, there: Sequence[str], what: str) -> str:
    """Names near `name` out of `there`, or else how many there are and the first of them."""
    words = [word for word in re.findall(r"\w+", name.lower()) if len(word) > 2]
    near = difflib.get_close_matches(name, there, n=5, cutoff=0.5)
    near += [one for one in there if one not in near and any(word in one.lower() for word in words)]
    last = {one.rpartition(".")[2]: one for one in there}
    near += [last[one] for one in difflib.get_close_matches(name, last, n=5, cutoff=0.5) if last[one] not in near]
    if near:
        return f"near names: {', '.join(near[:5])}"
    shown = ", ".join(there[:5]) + (", ..." if len(there) > 5 else "")
    return f"the {len(there)} {what} are: {shown}" if there else f"there are no {what}"
