"""A history as a Parquet dataset: a folder that DuckDB, Dask, Spark and pandas read as one table.

    DIR/machine=NAME/month=2026-08/part-0.parquet

Machine and month (of the commit, UTC) are in the names of the folders only, as these programs expect; every file has
the same columns. A query for a machine or a month opens no other files.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import remote

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = "unknown"
"""Month of a commit whose date no file gives."""

_PART = re.compile(r"machine=[^/]*/month=[^/]*/[^/]*\.parquet")


def check(target: str) -> None:
    """BadInput when `target` is a place where a dataset must not be put: it holds something else."""
    path = Path(target)
    if remote.is_address(target) or not path.exists():
        if not remote.is_address(target):
            files.check_writable(path, "--output")
        return
    if not path.is_dir():
        raise BadInput(f"--output: {path} is a file; name a folder, or a file that ends in .parquet")
    other = next((one for one in path.rglob("*") if one.is_file() and not _is_part(one, path)), None)
    if other is not None:
        raise BadInput(f"--output: {path} holds {other.name}, which is no part of a dataset; name another folder")


def _is_part(path: Path, root: Path) -> bool:
    return _PART.fullmatch(path.relative_to(root).as_posix()) is not None


def write(frame: pd.DataFrame, target: str) -> int:
    """Put `frame` at `target`, a folder or an address that fsspec knows, in place of what was there; how many files.

    The columns are those of `history_tables.wide_frame`, words as text, dates in microseconds. A folder appears, or
    changes, only when all of it is written. BadInput where it cannot be, or pyarrow is not installed.
    """
    if remote.is_address(target):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            paths = _parts(frame, Path(folder))
            remote.write(target.rstrip("/"), Path(folder), paths)
            return len(paths)
    place = Path(os.path.realpath(target))
    beside = place.with_name(f".{place.name}.{os.getpid()}.new")
    try:
        try:
            beside.mkdir()
            count = len(_parts(frame, beside))
            files.flush(beside)
            if place.exists():
                files.exchange(beside, place)
            else:
                os.rename(beside, place)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise BadInput(f"--output: {target} cannot be written ({error.strerror or error}); name another") from error
    return count


def _parts(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the files, a machine at a time: a history of millions of rows is not held twice."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise BadInput("--format: parquet needs pyarrow; pip install 'hybrid-kernels[parquet]'") from None
    import numpy as np

    from hybrid_kernels.report.history_tables import wide_frame

    schema: Any = None
    written = []
    wide = wide_frame(frame)
    for machine, rows in wide.groupby("machine", observed=True, sort=True).indices.items():
        part = wide.iloc[rows].drop(columns="machine")
        months = part["date"].dt.strftime("%Y-%m").fillna(UNKNOWN).to_numpy(str)
        table = pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata(None)
        schema = schema or _plain(table.schema, pa)
        table = table.cast(schema)
        order = np.argsort(months, kind="stable")
        names, starts = np.unique(months[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        for month, start, end in zip(names.tolist(), starts.tolist(), ends, strict=True):
            path = folder / f"machine={_quoted(str(machine))}" / f"month={month}" / "part-0.parquet"
            path.parent.mkdir(parents=True)
            pyarrow.parquet.write_table(table.take(order[start:end]), path)
            written.append(path)
    return written


def _plain(schema: Any, pa: Any) -> Any:
    """Text for words, microseconds for moments: what every reader knows, and alike in every file."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
            kind = pa.string()
        elif pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", tz="UTC")
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe=" ")
