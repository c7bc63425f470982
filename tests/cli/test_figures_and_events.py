"""`figures` and `events` as users type them: what is printed, exit codes, files left alone."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from hybrid_kernels.cli import main

ROOT = Path(__file__).parents[2]
REAL = ROOT / "tests/data/histories/results"
COLD = "cold_path_read_bandwidth"


@dataclass
class Done:
    """What a command left behind."""

    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs a command as its entry point does; an exit code other than `code`, or a traceback, fails the test."""

    def command(*arguments: str, code: int = 0) -> Done:
        monkeypatch.setattr(sys, "argv", ["hybrid-kernels", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsysbinary.readouterr()
        done = Done(captured.out.decode(), captured.err.decode())
        assert stop.value.code == code, done
        if code == 2:
            assert done.stdout == ""
            assert len(done.stderr.splitlines()) == 1
        return done

    return command


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with this project's figures and a README that quotes one of them."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests/data/figures.toml", tmp_path)
    (tmp_path / "README.md").write_text(f"Reads at <!-- figure {COLD}@rtx4060-laptop-wddm -->?<!-- /figure -->.\n")
    return tmp_path


def test_a_number_from_ledger_to_document_and_back(run: Run, project: Path) -> None:
    """check finds the stale marker, sync mends it, correct supersedes the value, check finds it again."""
    stale = run("figures", "check", code=1)
    assert stale.stdout.startswith("README.md:1: marker holds '?'")
    run("figures", "sync", "README.md", "--check", code=1)
    run("figures", "sync", "README.md")
    assert ">5.6 GB/s<" in (project / "README.md").read_text()
    assert "nothing" not in run("figures", "check").stdout
    before = (project / "figures.toml").read_text()
    done = run(
        "figures", "correct", COLD, "--machine", "rtx4060-laptop-wddm", "--value", "5.8 GB/s", "--kind", "measured",
        "--method", "a wider GEMV", "--reason", "Wider requests.", "--change", "improvement", "--date", "2026-09-01",
    )  # fmt: skip
    assert "record 3" in done.stdout
    after = (project / "figures.toml").read_text()
    assert len(after) > len(before)
    assert all(line in after.splitlines() for line in before.splitlines())
    assert "5.8 GB/s" in run("figures", "check", code=1).stdout
    run("figures", "sync")
    run("figures", "check")
    shown = run("figures", "show", COLD, "--machine", "rtx4060-laptop-wddm").stdout
    assert shown.index("5.8 GB/s") < shown.index("5.6 GB/s") < shown.index("11.41 GB/s")
    assert "Wider requests." in shown
    assert "cross-check closes" in shown


def test_list_and_show_as_json(run: Run, project: Path) -> None:
    """One object with schema, facts and rows; numbers are numbers."""
    listed = json.loads(run("figures", "list", "--json").stdout)
    assert {"schema", "facts", "rows"} <= set(listed)
    row = next(row for row in listed["rows"] if row["figure"] == COLD and row["machine"] == "rtx4060-laptop-wddm")
    assert (row["value"], row["unit"], row["corrects"]) == (5.6, "GB/s", 1)
    shown = json.loads(run("figures", "show", COLD, "--json").stdout)
    assert [row["value"] for row in shown["rows"]][:2] == [11.41, 5.6]
    assert shown["cross_checks"][0]["closes"] is True
    assert shown["figure"]["id"] == COLD


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("correct", COLD, "--value", "6 GB/s", "--kind", "measured", "--method", "m"), "--reason"),
        (("correct", COLD, "--value", "6", "--kind", "measured", "--method", "m", "--reason", "r"), "no unit"),
        (("correct", COLD, "--value", "6 ms", "--kind", "measured", "--method", "m", "--reason", "r"), "'ms'"),
        (("correct", COLD, "--value", "6 GB/s", "--method", "m", "--reason", "r"), "--kind"),
        (("correct", COLD, "--value", "6 GB/s", "--kind", "best", "--method", "m", "--reason", "r"), "--kind: 'best'"),
        (("correct", COLD, "--value", "6 GB/s", "--kind", "measured", "--reason", "r"), "--method"),
        (("correct", COLD, "--reason", "r"), "--value"),
        (("correct", COLD, "--from-history", "--value", "6 GB/s", "--reason", "r"), "--value"),
        (("correct", COLD, "--from-history", "--reason", "r"), "results"),
        (("correct", "colt", "--value", "6 GB/s", "--kind", "measured", "--method", "m", "--reason", "r"), "'colt'"),
        (
            (
                "correct",
                COLD,
                "--value",
                "6 GB/s",
                "--kind",
                "measured",
                "--method",
                "m",
                "--reason",
                "r",
                "--date",
                "x",
            ),
            "--date",
        ),
        (("show", "cold_path_bandwidth"), f"did you mean {COLD}"),
        (("show", COLD, "--machine", "rtx4060"), "no record of machine"),
        (("check", "missing.md"), "missing.md"),
        (("sync", "missing.md"), "missing.md"),
        (("list", "--file", "missing.toml"), "missing.toml"),
        (("nothing",), "nothing"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    run: Run, project: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Exit 2, one line that says what is wrong, the ledger untouched."""
    before = (project / "figures.toml").read_bytes()
    machine = ("--machine", "rtx4060-laptop-wddm") if arguments[0] == "correct" else ()
    assert said in run("figures", *arguments, *machine, code=2).stderr
    assert (project / "figures.toml").read_bytes() == before


def test_broken_ledger_is_one_line(run: Run, project: Path) -> None:
    """Every command says where the TOML is broken, exit 2."""
    (project / "figures.toml").write_text("schema = 1\n[figures.a\n")
    for command in (
        ("list",),
        ("show", "a"),
        ("check",),
        ("sync",),
        ("correct", "a", "--value", "1 x", "--reason", "r"),
    ):
        assert "figures.toml:2: not valid TOML" in run("figures", *command, code=2).stderr


def test_check_names_an_open_cross_check_and_a_quoted_old_value(run: Run, project: Path) -> None:
    """Each finding is a line of its own with file, line and what to do; --json has the same."""
    text = (project / "figures.toml").read_text().replace("range = [7.78, 8.09]", "range = [77.8, 80.9]")
    (project / "figures.toml").write_text(text)
    (project / "README.md").write_text("It reads at\n11.41 GB/s.\n")
    done = run("figures", "check", code=1)
    lines = done.stdout.splitlines()
    assert any(line.startswith("figures.toml:") and "does not close" in line for line in lines)
    assert any(line.startswith("README.md:2: quotes 11.41 GB/s, superseded 2026-08-13") for line in lines)
    rows = json.loads(run("figures", "check", "--json", code=1).stdout)["rows"]
    assert len(rows) == len(lines)


TIED = """\
schema = 1
documents = ["README.md"]

[methods.copy]
kind = "upper bound"
benchmark = "copies.Bandwidth.track_copy"
params = { kind = "copy" }

[methods.in_place]
benchmark = "reads.Bandwidth.track_read"
params = { strategy = "in_place" }
supersedes = "copy"

[figures.cold]
title = "Cold path"
unit = "GB/s"
methods = ["copy", "in_place"]
params = { device = "cpu", mib = 64 }
"""


def date_of(file: Path) -> int:
    """When the commit of a result file was made."""
    return int(json.loads(file.read_text())["date"])


def test_events_of_a_real_history(run: Run, project: Path) -> None:
    """Table, JSON and Markdown of one history say the same; a filter that matches nothing names near ones."""
    shutil.copytree(REAL, project / "results")
    for stage, file in enumerate(sorted((project / "results/laptop").glob("*-*.json"), key=date_of)):
        data = json.loads(file.read_text())
        for name, row in data["results"].items():  # that machine was busy: plain levels, the reads halved at the end
            level = 1.5 if stage >= 4 and name.startswith("reads.Bandwidth") else 3.0
            row[0] = [value if value is None or value != value else level for value in row[0]]
        file.write_text(json.dumps(data))
    table = run("events").stdout
    assert table.count(" regression ") == 2
    data = json.loads(run("events", "--format", "json").stdout)
    assert {"schema", "facts", "rows", "skipped"} <= set(data)
    assert len(table.splitlines()) == 1 + len(data["rows"])
    assert all(arm["moved"] is False for row in data["rows"] for arm in row["controls"])
    assert run("events", "--kind", "improvement").stdout == "no events\n"
    markdown = run("events", "--format", "markdown", "--output", "out.md")
    assert markdown.stdout == ""
    html = MarkdownIt("commonmark").enable("table").render((project / "out.md").read_text())
    assert html.count("<tr>") == 1 + len(data["rows"])
    near = run("events", "--benchmark", "track_cpoy", code=2)
    assert "copies.Bandwidth.track_copy" in near.stderr
    assert "laptop" in run("events", "--machine", "labtop", code=2).stderr
    twice = run("events", "--results", "results", "--machine", "laptop", "--machine", "laptop", "--format", "json")
    assert json.loads(twice.stdout)["rows"] == data["rows"]
    assert "--kind" in run("events", "--kind", "regresion", code=2).stderr
    assert "--format" in run("events", "--format", "xml", code=2).stderr


def test_events_report_what_was_skipped(run: Run, project: Path) -> None:
    """A file that cannot be read is named with the reason and counted; the rest is judged."""
    shutil.copytree(REAL, project / "results")
    broken = next((project / "results/laptop").glob("*-*.json"))
    broken.write_text("")
    done = run("events")
    assert broken.name in done.stderr
    assert "skipped, as it cannot be read" in done.stderr


def test_nothing_measured_has_its_own_exit_code(run: Run, project: Path) -> None:
    """pybroker #287: an empty history is neither a pass nor a regression: exit 3, nothing printed as a result."""
    shutil.copytree(REAL, project / "results")
    for file in (project / "results/laptop").glob("*-*.json"):
        data = json.loads(file.read_text())
        data["results"] = {}
        file.write_text(json.dumps(data))
    done = run("events", code=3)
    assert done.stdout == ""
    assert "nothing measured" in done.stderr
    assert "no-results" in run("events", "--results", "no-results", code=2).stderr


def test_correct_from_history(run: Run, project: Path) -> None:
    """A figure tied to a benchmark takes value, method, commit and evidence from the results, and check then agrees."""
    shutil.copytree(REAL, project / "results")
    (project / "figures.toml").write_text(TIED)
    (project / "README.md").write_text("It is <!-- figure cold@laptop -->?<!-- /figure -->.\n")
    done = run("figures", "correct", "cold", "--from-history", "--machine", "laptop", "--reason", "First seen.")
    assert "record 1" in done.stdout
    run("figures", "sync")
    run("figures", "check")
    shown = json.loads(run("figures", "show", "cold", "--json").stdout)
    assert shown["rows"][0]["method_benchmark"] == "reads.Bandwidth.track_read"
    assert shown["rows"][0]["commit"]
    assert shown["events"][0]["kind"] == "upper bound"


def test_correct_as_of_a_commit(run: Run, project: Path) -> None:
    """The whole record can be taken from the history, a commit at a time: the copy, then what corrected it."""
    shutil.copytree(REAL, project / "results")
    (project / "figures.toml").write_text(TIED)
    files = sorted((project / "results/laptop").glob("*-*.json"), key=date_of)
    commits = [json.loads(file.read_text())["commit_hash"] for file in files]
    taken = ("figures", "correct", "cold", "--from-history", "--machine", "laptop", "--reason", "Measured.")
    assert "the first of this machine" in run(*taken, "--commit", commits[1][:12]).stdout
    run(*taken)
    first, second = json.loads(run("figures", "show", "cold", "--json").stdout)["rows"]
    assert (first["kind"], first["commit"], first["status"]) == ("upper bound", commits[1], "superseded")
    assert (second["kind"], second["commit"], second["corrects"]) == ("measured", commits[-1], 1)
    assert first["method_benchmark"].startswith("copies")
    assert "no value is of it" in run(*taken, "--commit", "123456789", code=2).stderr
