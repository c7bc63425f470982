"""`hybrid-kernels compare` as users type it: exit codes, formats, what is said for bad input, what is left on disk."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from hybrid_kernels import cli
from hybrid_kernels.measure import rounds as measuring


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


imports = _load("imports_for_compare", "history/test_importers.py")
projects = _load("projects_for_compare", "measure/test_rounds.py")
project = projects.project  # a git repository with an asv suite and four commits


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line; returns (exit code, standard output, standard error)."""

    def running(*words):
        monkeypatch.setattr(sys, "argv", ["hybrid-kernels", "compare", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        told = capsys.readouterr()
        return stopped.value.code or 0, told.out, told.err

    return running


@pytest.fixture
def runs(tmp_path):
    """Four criterion runs a side; the head is 30 % slower."""
    for k in range(4):
        imports.criterion(tmp_path / f"a{k}", "rib/insert", 1000.0 + k)
        imports.criterion(tmp_path / f"b{k}", "rib/insert", 1300.0 + 2 * k)
    return [tmp_path / f"a{k}" for k in range(4)], [tmp_path / f"b{k}" for k in range(4)]


def test_several_runs_a_side_follow_one_option(run, runs):
    """`--base A1 A2 ... --head B1 B2 ...` takes every path up to the next option."""
    code, out, _ = run("--import", "criterion", "--base", *runs[0], "--head", *runs[1], "--format", "json")
    (row,) = json.loads(out)["rows"]

    assert code == 0
    assert (row["name"], row["verdict"], row["rounds"]) == ("rib/insert", "slower", 4)
    assert row["change"] == pytest.approx(0.3, abs=0.01)


def test_fail_on_slower_ends_with_1_after_the_report_is_written(run, runs, tmp_path):
    """The file is there and whole, and the exit code says no."""
    report = tmp_path / "report.md"
    words = (
        "--import",
        "criterion",
        "--base",
        *runs[0],
        "--head",
        *runs[1],
        "--format",
        "markdown",
        "--output",
        report,
    )
    code, out, _ = run(*words, "--fail-on", "slower")

    assert (code, out) == (1, "")
    assert "1 benchmark of 1 slower" in report.read_text()
    assert run(*words, "--fail-on", "faster")[0] == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_two_folders_are_one_run_a_side(run, runs):
    """BASE_PATH HEAD_PATH: nothing is called, and the report says what would settle it."""
    code, out, _ = run("--import", "criterion", runs[0][0], runs[1][0], "--fail-on", "slower")

    assert code == 0
    assert "No verdict: one run a side cannot tell a change from noise" in out
    assert "more runs of each side would settle it" in out


def test_nothing_measured_has_an_exit_code_of_its_own(run, runs, tmp_path):
    """Neither 0 nor 1: exit code 3, one line, and a Markdown report that says so."""
    (tmp_path / "empty").mkdir()
    report = tmp_path / "report.md"
    code, _, err = run(
        "--import", "criterion", runs[0][0], tmp_path / "empty", "--format", "markdown", "--output", report
    )

    assert code == 3
    assert "nothing measured on head" in err
    assert len(err.strip().splitlines()) == 1
    assert "Nothing to compare" in report.read_text()


def test_what_a_harness_left_out_is_said_when_nothing_is_left(run, tmp_path):
    """Only `change` on disk: nothing to compare, and the warning names the benchmark."""
    imports.criterion(tmp_path, "matmul/small", change=(0.5, 0.4, 0.6))
    code, _, err = run("--import", "criterion", tmp_path)

    assert code == 3
    assert "matmul/small: only `change` is present" in err


def test_the_harness_own_regression_is_in_the_headline(run, tmp_path):
    """criterion says regression, one run cannot: both are said, and nothing fails on it."""
    imports.criterion(tmp_path, "rib/insert", 1000.0, baseline="base")
    imports.criterion(tmp_path, "rib/insert", 1040.0, change=(0.04, 0.0198, 0.0606))
    code, out, _ = run("--import", "criterion", tmp_path, "--fail-on", "slower")

    assert code == 0
    assert "No verdict: one run a side" in out
    assert "say regression in 1." in out
    assert run("--import", "criterion", tmp_path, "--own-intervals", "--fail-on", "slower")[0] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["HEAD"], "needs two commits"),
        (["--import", "criterion"], "--import: needs both sides"),
        (["--import", "criterion", "a", "b", "--base", "c"], "not both"),
        (["--import", "hyperfine", ".", "."], "--import: unknown harness"),
        (["--import", "criterion", "missing", "missing"], "missing: no such file"),
        (["a", "b", "--format", "html"], "--format: 'html' is not one of"),
        (["a", "b", "--fail-on", "red"], "--fail-on: 'red' is not a verdict"),
        (["a", "b", "--rounds", "many"], "--rounds: 'many' is neither auto nor"),
        (["a", "b", "--time-limit", "soon"], "--time-limit: 'soon'"),
        (["a", "b", "--config", "missing.json"], "--config missing.json: no such file"),
        (["a", "b", "--attribute", "repeat"], "--attribute: 'repeat' is not NAME=VALUE"),
        (["a", "b", "--join", "missing"], "--join: the kept folders name their commits"),
        (["--join", "missing"], "missing/plan.json"),
        (["a", "b", "--calibrate", "c"], "--calibrate: compares one commit with itself"),
        (["a", "b", "--output", "missing/report.md"], "--output"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, words, said):
    """The option or file, what is wrong, and no traceback."""
    code, out, err = run(*words)

    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def test_two_commits_from_the_command_line(run, project, tmp_path):
    """Build, alternate, judge, report; a second call resumes and measures nothing; `--join` gives the same verdicts."""
    root, commits = project
    words = [commits["first"], commits["slower"], "--config", root / "asv.conf.json", "--benchmark", "track_cost"]
    words += ["--controls", "^none", "--rounds", "3", "--keep", tmp_path / "kept", "--format", "json"]
    code, out, err = run(*words)
    (row,) = json.loads(out)["rows"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}

    assert (code, row["verdict"]) == (0, "slower")
    assert "round 3 of at most 3" in err
    assert json.loads(out)["facts"]["cpu"]
    code, again, err = run(*words)
    assert "round" not in err
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()} == before
    (joined,) = json.loads(run("--join", tmp_path / "kept", "--format", "json")[1])["rows"]
    assert joined == row == json.loads(again)["rows"][0]


def test_equal_code_becomes_calibration_and_sets_the_threshold(run, project, tmp_path):
    """`--calibrate` and a change of documentation store their rounds; the next comparison uses and names them."""
    root, commits = project
    shared = ["--config", root / "asv.conf.json", "--benchmark", "track_cost", "--controls", "^none", "--rounds", "2"]
    shared += ["--format", "json"]
    code, _, err = run("--calibrate", commits["slower"], *shared, "--keep", tmp_path / "a")
    assert (code, "2 rounds of equal code kept in" in err) == (0, True)

    code, out, err = run(commits["slower"], commits["documented"], *shared, "--keep", tmp_path / "b")
    told = json.loads(out)
    assert told["untouched"] is True
    assert "touches nothing that the benchmarks import" in told["headline"]
    assert told["rows"][0]["learned_from"] == 2
    (stored,) = (root / ".asv" / "results").glob("*/calibrations.jsonl")
    assert [len(json.loads(line)["rows"][0]["rounds"]) for line in stored.read_text().splitlines()] == [2, 2]

    _, out, _ = run(commits["first"], commits["slower"], *shared, "--keep", tmp_path / "c")
    assert json.loads(out)["rows"][0]["learned_from"] == 4
    stored.unlink()


def test_ctrl_c_gives_the_verdicts_of_the_finished_rounds(run, project, tmp_path, monkeypatch):
    """Interrupted in the third round, the report judges two and says so; the exit code is that of an interrupt."""
    root, commits = project
    measure = measuring.AsvLaboratory.measure

    def interrupted(self, side, cell, number):
        if number == 3:
            raise KeyboardInterrupt
        return measure(self, side, cell, number)

    monkeypatch.setattr(measuring.AsvLaboratory, "measure", interrupted)
    code, out, err = run(
        commits["first"], commits["slower"], "--config", root / "asv.conf.json", "--benchmark", "track_cost",
        "--controls", "^none", "--keep", tmp_path / "kept",
    )  # fmt: skip

    assert (code, "interrupted after 2 rounds" in err) == (130, True)
    assert "Interrupted after 2 rounds: Nothing called slower or faster" in out
    assert sorted(os.listdir(tmp_path / "kept")) == ["plan.json", "round-001.json", "round-002.json"]
