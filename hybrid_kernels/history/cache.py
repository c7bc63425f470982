"""Columns of result files kept between two loads, so that a load costs only the files that are new or have changed.

The cache of a results root is a folder of segments in the user's cache folder ($HYBRID_KERNELS_CACHE, else
$XDG_CACHE_HOME, else ~/.cache). A segment is one .npz file: the columns of some result files and, for each file, its
size, modification time and inode (at an address, what the file system there says instead). Nothing else says what is
in the cache: a reader takes from the segments what matches the files as they are now and parses the rest into a new
segment. So it may be deleted at any time, a segment that cannot be read is dropped and rebuilt, and two processes at
once at worst parse the same file twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from hybrid_kernels import files
from hybrid_kernels.history import columns, folders
from hybrid_kernels.history.columns import FileRecord, Table
from hybrid_kernels.history.folders import Entry

FORMAT = 1
"""Raised whenever the meaning of a stored column changes: segments of another format are dropped."""

MANY = 8
"""Segments beyond which the small ones are merged into one."""


class _Meta(msgspec.Struct, array_like=True):
    format: int
    files: list[FileRecord]
    benchmarks: list[str]
    versions: list[str]
    cells: list[tuple[int, tuple[str, ...]]]


_meta_decoder = msgspec.json.Decoder(_Meta)


def folder(root: str) -> Path:
    """Where the cache of the results root `root` lies, whether it exists or not."""
    name = hashlib.sha256(os.fsencode(folders.identity(root))).hexdigest()[:24]
    return files.cache_folder() / "history" / name


def load(root: str, present: Mapping[str, Entry]) -> tuple[list[Table], list[Path]]:
    """Tables of those files in `present` (by path below the root) that the cache holds as they are now, each once.

    Also the segments they came from, in the same order.
    """
    tables, segments = [], []
    wanted = dict(present)
    for path, table in _segments(folder(root)):
        live = np.zeros(len(table.files), np.bool_)
        for at, file in enumerate(table.files):
            entry = wanted.get(file.path)
            if entry is not None and entry.stamp == file.stamp:
                live[at] = True
                del wanted[file.path]
        if live.any():
            tables.append(columns.select(table, live))
            segments.append(path)
        else:
            _remove(path)  # all of its files are gone, have changed, or stand in another segment
    return tables, segments


def _segments(where: Path) -> Iterator[tuple[Path, Table]]:
    try:
        paths = sorted(where.glob("*.npz"), key=lambda path: (-path.stat().st_size, path.name))
    except OSError:
        return
    for path in paths:
        table = _read(path)
        if table is None:
            _remove(path)
        else:
            yield path, table


def _read(path: Path) -> Table | None:
    """The table in a segment; None when it is damaged, of another format, or gone."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            meta = _meta_decoder.decode(arrays["meta"].tobytes())
            if meta.format != FORMAT:
                return None
            table = Table(meta.files, meta.benchmarks, meta.versions, meta.cells, arrays["codes"], arrays["numbers"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError):
        return None
    return table if _is_sound(table) else None


def _is_sound(table: Table) -> bool:
    rows = int(table.rows_of_file.sum())
    return (
        table.codes.shape == (len(columns.CODES), rows)
        and table.numbers.shape == (len(columns.NUMBERS), rows)
        and table.codes.dtype == np.int32
        and table.numbers.dtype == np.float64
    )


def store(root: str, new: Table, old: list[Table], segments: list[Path]) -> None:
    """Keeps `new`; merges the smaller of the segments `old` came from when there are many.

    A cache that cannot be written (full disk, no permission) is no error: the next load parses again.
    """
    where = folder(root)
    merged: list[Path] = []
    if len(segments) >= MANY:  # all but the largest, which comes first
        new, merged = columns.join([*old[1:], new]), segments[1:]
    with contextlib.suppress(OSError):
        where.mkdir(parents=True, exist_ok=True)
        _write(where, new)
        for path in merged:
            _remove(path)


def _write(where: Path, table: Table) -> None:
    meta = _Meta(FORMAT, table.files, table.benchmarks, table.versions, table.cells)
    handle, name = tempfile.mkstemp(suffix=".part", dir=where)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(
                file,
                meta=np.frombuffer(msgspec.json.encode(meta), np.uint8),
                codes=table.codes,
                numbers=table.numbers,
            )
        # No fsync: what a power cut leaves of it fails its checksum and is parsed again.
        os.replace(name, Path(name).with_suffix(".npz"))
    except BaseException:
        _remove(Path(name))
        raise


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
