"""`history --format parquet --output DIR`, read back by programs that nobody here wrote."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd
import pytest

from hybrid_kernels import cli, files
from hybrid_kernels.history import store
from hybrid_kernels.report.history_tables import wide_frame

duckdb = pytest.importorskip("duckdb", reason="needs the extra `test`")
dataset = pytest.importorskip("pyarrow.dataset", reason="needs the extra `parquet`")


def export(monkeypatch: pytest.MonkeyPatch, results: Path, target: str | Path, code: int = 0) -> None:
    arguments = ["history", "--results", str(results), "--format", "parquet", "--output", str(target)]
    monkeypatch.setattr(sys, "argv", ["hybrid-kernels", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == code


def test_a_dataset_has_every_row_once(kedro: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB, pyarrow and pandas count the rows of the history, by machine and month, and find the same values."""
    export(monkeypatch, kedro, tmp_path / "set")
    frame = store.load(kedro).frame
    wide = wide_frame(frame)

    expected = frame.groupby([frame["machine"].astype(str), frame["date"].dt.strftime("%Y-%m")]).size()
    told = duckdb.sql(
        f"select machine, month, count(*), sum(value) from read_parquet('{tmp_path}/set/**/*.parquet', "
        "hive_partitioning = true) group by all order by all"
    ).fetchall()
    assert {(machine, month): count for machine, month, count, _ in told} == expected.to_dict()
    assert sum(row[3] for row in told if row[3] is not None) == pytest.approx(frame["value"].sum())

    arrow = dataset.dataset(tmp_path / "set", partitioning="hive")
    assert set(arrow.schema.names) == {*wide.columns, "month"}
    assert arrow.count_rows() == len(frame)

    read = pd.read_parquet(tmp_path / "set").drop(columns="month")
    keys = ["file", "benchmark", "cell"]
    moments = {"date": "datetime64[us, UTC]", "started": "datetime64[us, UTC]"}
    left = wide.astype({**dict.fromkeys(wide.select_dtypes("category"), "str"), **moments})
    right = read[wide.columns].astype({"machine": "str", **moments})
    pd.testing.assert_frame_equal(
        left.sort_values(keys, ignore_index=True), right.sort_values(keys, ignore_index=True), check_dtype=False
    )


def test_every_file_has_the_same_columns(kedro: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter that the rows of a month lack is a column there too: a program may take its schema from any file."""
    export(monkeypatch, kedro, tmp_path / "set")
    schemas = {str(dataset.dataset(path).schema) for path in (tmp_path / "set").rglob("*.parquet")}
    assert len(list((tmp_path / "set").rglob("*.parquet"))) > 1
    assert len(schemas) == 1


def test_dask_reads_it(kedro: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask takes the folder as one frame and the partitions as columns to choose by."""
    dask = pytest.importorskip("dask.dataframe", reason="needs dask with its frames")
    export(monkeypatch, kedro, tmp_path / "set")
    assert len(dask.read_parquet(tmp_path / "set")) == len(store.load(kedro).frame)


def test_an_export_replaces_the_one_before(kedro: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written again, the folder holds the new files only, also where folders cannot change places in one step."""
    target = tmp_path / "set"
    for exchanged in (files._exchanged, lambda one, other: False):
        monkeypatch.setattr(files, "_exchanged", exchanged)
        (target / "machine=gone/month=2020-01").mkdir(parents=True)
        (target / "machine=gone/month=2020-01/part-0.parquet").write_bytes(b"")
        export(monkeypatch, kedro, target)
        assert not (target / "machine=gone").exists()
        assert os.listdir(tmp_path) == ["set"]


def test_a_folder_with_something_else_is_left_alone(
    kedro: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that holds anything but a dataset is refused before anything is read, and so is a file."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name, word in (("mine", "letter.txt"), ("file", "is a file"), ("no/folder", "does not exist")):
        export(monkeypatch, kedro, tmp_path / name, code=2)
        assert word in capsys.readouterr().err
    assert (tmp_path / "mine/letter.txt").read_text() == "dear"


def test_a_dataset_at_an_address(kedro: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that fsspec knows takes a dataset as a folder does, and a second one replaces it."""
    fsspec = pytest.importorskip("fsspec", reason="needs the extra `test`")
    system = fsspec.filesystem("memory")
    system.pipe_file("/exported/set/machine=gone/month=2020-01/part-0.parquet", b"")
    export(monkeypatch, kedro, "memory://exported/set")
    assert dataset.dataset("/exported/set", filesystem=system, partitioning="hive").count_rows() == len(
        store.load(kedro).frame
    )
