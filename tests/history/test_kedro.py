"""A whole public history, read by this store and by the standard library side by side."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hybrid_kernels.history import store

STATISTICS = {
    "stats_ci_99_a": "ci_low", "stats_ci_99_b": "ci_high", "stats_q_25": "q25", "stats_q_75": "q75",
    "stats_number": "number", "stats_repeat": "repeat",
}  # fmt: skip


def plain(results: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Every cell of every file, from nothing but json.loads."""
    found = {}
    for path in sorted(results.glob("*/*.json")):
        if path.name == "machine.json":
            continue
        content = json.loads(path.read_text())
        for name, row in content["results"].items():
            fields = dict(itertools.zip_longest(content["result_columns"], row))
            grid = list(itertools.product(*fields["params"])) if fields["params"] else [()]
            for at, cell in enumerate(grid):
                key = (str(path), name, tuple(value.strip("'") for value in cell))
                found[key] = {
                    "value": fields["result"][at],
                    "version": fields["version"],
                    "env": content["env_name"],
                    "commit": content["commit_hash"],
                    "date": content["date"],
                    "started": fields["started_at"],
                    **{ours: fields[theirs] and fields[theirs][at] for theirs, ours in STATISTICS.items()},
                }
    return found


def test_no_value_is_lost(kedro):
    """Every value, interval, version, date and commit in the files stands in the frame, and nothing else does."""
    expected = plain(kedro)

    loaded = store.load(kedro)

    frame = loaded.frame
    assert loaded.skipped == []
    assert loaded.notes == []
    keys = [(f, b, tuple(v for _, v in p)) for f, b, p in zip(frame.file, frame.benchmark, frame.params, strict=True)]
    assert len(keys) == len(set(keys)) == len(expected) == 17370
    assert set(keys) == set(expected)
    for column in ("value", "ci_low", "ci_high", "q25", "q75", "number", "repeat"):
        wanted = np.array([expected[key][column] for key in keys], dtype=float)
        wanted = np.nan_to_num(wanted) if column in ("number", "repeat") else wanted
        np.testing.assert_array_equal(frame[column].to_numpy(dtype=float), wanted, err_msg=column)
    for column in ("version", "env", "commit"):
        assert frame[column].astype(object).tolist() == [expected[key][column] for key in keys]
    for column in ("date", "started"):
        wanted = pd.to_datetime([expected[key][column] for key in keys], unit="ms", utc=True)
        assert (frame[column].array == wanted).all()


def test_series_and_version_changes(kedro):
    """The history is 149 series, in the order of their commits, with 22 changes of version inside them."""
    frame = store.load(kedro).frame

    series = frame.groupby(["machine", "env", "benchmark", "cell"], observed=True, sort=False)
    changes = sum(
        int((one.version.astype(object) != one.version.astype(object).shift()).sum()) - 1 for _, one in series
    )
    assert series.ngroups == 149
    assert changes == 22
    assert all(one.date.is_monotonic_increasing for _, one in series)


def test_gone_benchmarks(kedro):
    """Benchmarks that benchmarks.json no longer has keep their rows, with the direction that asv's names imply."""
    loaded = store.load(kedro)

    gone = loaded.frame[loaded.frame.benchmark == "benchmark_datacatalog.TimeDataCatalog.time_list"]
    assert len(gone) > 0
    assert set(gone.direction) == {-1}
    assert set(gone.unit) == {"seconds"}
    assert not gone.is_current_version.any()
    assert not loaded.benchmarks["benchmark_datacatalog.TimeDataCatalog.time_list"].defined


def test_second_load_is_the_same(kedro, cache_folder):
    """What comes out of the cache is what came out of the files."""
    fresh = store.load(kedro, cache=False).frame

    first, second = store.load(kedro).frame, store.load(kedro).frame

    assert list(cache_folder.rglob("*.npz"))
    assert first.equals(fresh)
    assert second.equals(fresh)
    assert first.dtypes.equals(fresh.dtypes)
