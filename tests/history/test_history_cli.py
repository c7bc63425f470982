"""`hybrid-kernels history` as users run it."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass

import pandas as pd
import pytest

from hybrid_kernels import cli


@dataclass
class Done:
    stdout: bytes
    stderr: bytes


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """The command inside this process, as its entry point runs it; its exit code must be `code`."""

    def command(*arguments, code: int = 0) -> Done:
        monkeypatch.setattr(sys, "argv", ["hybrid-kernels", "history", *map(str, arguments)])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        sys.stdout.flush()
        done = Done(*capfdbinary.readouterr())
        assert stop.value.code == code, done.stderr.decode()
        return done

    return command


@pytest.fixture
def small(results):
    """Three commits of two benchmarks, one of them with parameters, and a file that cannot be read."""
    results.define("suite.time_one")
    results.define("suite.track_rate", type="track", unit="GB/s", params=[["12.5", "64"]], param_names=["mib"])
    for number in range(3):
        results.commit(
            number, {"suite.time_one": 0.5 + number, "suite.track_rate": [[5.0, None], [["12.5", "64"]], "1"]}
        )
    results.write("box/0000000f-py3.11.json", '{"commit_hash": "0000000f')
    return results


def test_table(run, small):
    """The table has a line a series and version, with the last value in a fitting unit."""
    done = run("--results", small.root)

    lines = done.stdout.decode().splitlines()
    assert len(lines) == 1 + 3
    assert "2.50 s" in done.stdout.decode()
    assert "higher is better" in done.stdout.decode()


def test_skipped_files_are_told(run, small, tmp_path):
    """Every format says on standard error which file was skipped and why; JSON has it too."""
    for form in ("table", "csv", "json", "parquet"):
        done = run("--results", small.root, "--format", form, "--output", tmp_path / form)
        assert b"0000000f-py3.11.json is not JSON" in done.stderr

    assert [one["file"] for one in json.loads((tmp_path / "json").read_text())["skipped"]] == [
        str(small.root / "box/0000000f-py3.11.json")
    ]


def test_json(run, small):
    """JSON has every row, with null and its reason where there is no value."""
    document = json.loads(run("--results", small.root, "--format", "json").stdout)

    assert document["schema"] == 1
    assert len(document["rows"]) == 9
    failed = [row for row in document["rows"] if row["value"] is None]
    assert {(row["status"], row["params"]["mib"]) for row in failed} == {("failed", "64")}


def test_csv_and_parquet_agree(run, small, tmp_path):
    """CSV and Parquet hold the same rows, with a column for each parameter."""
    csv = pd.read_csv(io.BytesIO(run("--results", small.root, "--format", "csv").stdout))
    run("--results", small.root, "--format", "parquet", "--output", tmp_path / "rows.parquet")

    parquet = pd.read_parquet(tmp_path / "rows.parquet")
    assert csv["value"].tolist() == pytest.approx(parquet["value"].tolist(), nan_ok=True)
    assert parquet["param.mib"].astype(object).dropna().tolist() == ["12.5", "64"] * 3
    assert list(csv.columns) == list(parquet.columns)


def test_filters_that_match_nothing(run, small):
    """A filter that matches nothing ends with 2 and one line that lists near names."""
    benchmark = run("--results", small.root, "--benchmark", "track_rats", code=2).stderr.decode()
    machine = run("--results", small.root, "--machine", "bix", code=2).stderr.decode()

    assert "near names: suite.track_rate" in benchmark
    assert "near names: box" in machine
    assert len(benchmark.splitlines()) == len(machine.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--results", "/nowhere"], "/nowhere does not exist"),
        (["--format", "xml"], "unknown format 'xml'"),
        (["--format", "parquet"], "name a file"),
        (["--benchmark", "("], "not a regular expression"),
        (["--output", "/nowhere/rows.csv"], "/nowhere"),
    ],
)
def test_bad_input(run, small, arguments, said):
    """Bad input ends with 2 and one line that says what is wrong."""
    done = run(*(arguments if "--results" in arguments else ["--results", small.root, *arguments]), code=2)

    assert said in done.stderr.decode()
    assert done.stdout == b""


def test_empty_folder(run, tmp_path):
    """A folder without results is said to be one."""
    assert b"no results in" in run("--results", tmp_path, code=2).stderr
