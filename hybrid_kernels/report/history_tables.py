"""A history as a terminal table, CSV, JSON or Parquet."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from hybrid_kernels import records
from hybrid_kernels.errors import BadInput
from hybrid_kernels.report import tables
from hybrid_kernels.units import format_value

if TYPE_CHECKING:
    import pandas as pd

    from hybrid_kernels.history.store import StoredHistory

DIRECTIONS = {1: "higher is better", -1: "lower is better", 0: "direction unknown"}
SERIES = ["machine", "env", "benchmark", "cell", "version"]


def series_table(frame: pd.DataFrame) -> Table:
    """One row a series and version: how many values, from when to when, and the last one."""
    columns = ["machine", "environment", "benchmark", "parameters", "version", "values", "from", "to", "last", ""]
    rows = []
    for names, part in frame.groupby(SERIES, observed=True, sort=False, dropna=False):
        machine, env, benchmark, cell, version = ("" if isinstance(one, float) else str(one) for one in names)
        last = part.iloc[-1]
        text = format_value(float(last["value"]), str(last["unit"])) if last["status"] == "ok" else str(last["status"])
        current = version[:10] + ("" if last["is_current_version"] else " (earlier)")
        dates = part["date"].dt.strftime("%Y-%m-%d").fillna("unknown")
        rows.append([machine, env, benchmark, cell, current, f"{int((part['status'] == 'ok').sum()):,}", dates.iloc[0],
                     dates.iloc[-1], text, DIRECTIONS[int(last["direction"])]])  # fmt: skip
    if len({row[1] for row in rows}) == 1:  # one environment tells nothing apart
        rows = [row[:1] + row[2:] for row in rows]
        del columns[1]
    return tables.rows_table(columns, rows, left=("machine", "environment", "benchmark", "parameters", "version", ""))


def csv(frame: pd.DataFrame) -> bytes:
    """Every row, each parameter a column `param.NAME`, dates in ISO 8601."""
    wide = wide_frame(frame)
    for column in ("date", "started"):
        wide[column] = wide[column].dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    text: str = wide.to_csv(index=False, lineterminator="\n")
    return text.encode()


def parquet(frame: pd.DataFrame) -> bytes:
    """Every row, each parameter a column `param.NAME`. BadInput where pyarrow is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise BadInput("--format: parquet needs pyarrow; pip install 'hybrid-kernels[parquet]'") from None
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pandas(wide_frame(frame), preserve_index=False), buffer)
    return buffer.getvalue()


def document(history: StoredHistory) -> dict[str, Any]:
    """The JSON document of a history: rows with their parameters as an object, NaN as null with `status` its reason."""
    frame = history.frame
    columns = {}
    for name in frame.columns:
        if name in ("date", "started"):
            text = frame[name].dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ").astype(object)
            columns[name] = text.where(frame[name].notna(), None).tolist()
        elif name == "params":
            columns[name] = [dict(pairs) for pairs in frame[name]]
        else:
            columns[name] = frame[name].astype(object).where(frame[name].notna(), None).tolist()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return records.document({"machines": history.machines}, rows, skipped=history.skipped, notes=history.notes)


def wide_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with one column `param.NAME` for each parameter that a row has, in place of `params`; NaN elsewhere."""
    import pandas as pd

    # Rows share the tuples of their cells, so that each is looked at once, and not once a row.
    _, first, at = np.unique(np.fromiter(map(id, frame["params"]), np.int64), return_index=True, return_inverse=True)
    distinct = [dict(frame["params"].iloc[place]) for place in first.tolist()]
    by_appearance = [distinct[place] for place in np.argsort(first, kind="stable").tolist()]
    names = list(dict.fromkeys(name for pairs in by_appearance for name in pairs))
    wide = frame.drop(columns="params")
    for name in names:
        values = [pairs.get(name) for pairs in distinct]
        words = list(dict.fromkeys(value for value in values if value is not None))
        code = {value: number for number, value in enumerate(words)}
        codes = np.array([-1 if value is None else code[value] for value in values], np.int32)
        wide[f"param.{name}"] = pd.Categorical.from_codes(codes[at], categories=pd.Index(words, dtype="str"))
    return wide
