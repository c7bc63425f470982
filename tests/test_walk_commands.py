"""`walk` and `plan` as a user meets them: the real program and device, the smallest model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, "-c", "from hybrid_kernels.cli import main; main()"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *map(str, arguments)], capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "sweep.json"
    got = run("probe", "--device", "cpu", "--sizes", "0.5,4", "--k", "896", "--reps", "3", "--json", path)
    assert got.returncode == 0, got.stderr
    return path


def test_a_plan_is_made_walked_and_drawn(sweep: Path, tmp_path: Path) -> None:
    """A sweep becomes a plan within its budget; the plan's walk has the resident walk's bits; files are whole."""
    made = run("plan", "--model", "qwen2.5-0.5b", "--budget", "200MB", "--sweep", sweep, "--json", tmp_path / "p.json")
    assert made.returncode == 0, made.stderr
    assert "1 GB more of device memory" in made.stdout
    assert "first layers" in made.stdout
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["plan"]["device_bytes"] <= 200e6
    assert len(document["rows"]) == 24 * 7 + 1

    out = tmp_path / "w.json"
    walked = run(
        "walk", "--device", "cpu", "--plan", tmp_path / "p.json", "--sweep", sweep, "--reps", "3", "--json", out,
        "--plot", tmp_path / "w.svg",
    )  # fmt: skip
    assert walked.returncode == 0, walked.stderr
    assert "identical" in walked.stdout
    assert "ceiling" in walked.stdout
    (row,) = json.loads(out.read_text())["rows"]
    assert row["outputs_identical"] is True
    assert row["predicted_seconds"] > 0
    assert row["resident_fraction"] == pytest.approx(document["plan"]["resident_fraction"])
    assert (tmp_path / "w.svg").read_text().startswith("<svg")


def test_without_a_sweep_one_is_taken_in_turn_with_each_step(tmp_path: Path) -> None:
    """On a device whose speeds drift; every row has its prediction, and that this was done is said."""
    out = tmp_path / "w.json"
    got = run(
        "walk", "--device", "cpu", "--model", "qwen2.5-0.5b", "--fractions", "1,0.5", "--reps", "3", "--json", out
    )
    assert got.returncode == 0, got.stderr
    assert "a sweep taken in turn with each step" in got.stdout.replace("\n", " ")
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 4
    assert all(row["predicted_seconds"] > 0 and row["floor_seconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["walk", "--model", "qwen2.5-0.4b"], "did you mean qwen2.5-0.5b"),
        (["walk", "--model", "qwen2.5-0.5b", "--schedule", "parallel"], "--schedule"),
        (["walk", "--model", "qwen2.5-0.5b", "--resident-bytes", "7.7XB"], "--resident-bytes"),
        (["walk", "--model", "qwen2.5-0.5b", "--plan", "/nonexistent.json"], "/nonexistent.json"),
        (["walk", "--model", "qwen2.5-0.5b", "--plot", "w.bmp"], "--plot"),
        (["walk", "--model", "qwen2.5-0.5b", "--fractions", "2", "--sweep", "SWEEP"], "fraction"),
        (["walk", "--model", "qwen2.5-0.5b", "--resident-bytes", "1kB"], "scales and zero points and one tensor"),
        (["walk", "--model", "qwen2.5-0.5b", "--resident-bytes", "100TB"], "budget: 93,100 GiB is more than device"),
        (["walk", "--model", "qwen2.5-0.5b", "--reps", "0"], "reps"),
        (["walk", "--model", "qwen2.5-0.5b", "--ring", "1"], "ring"),
        (["walk", "--model", "qwen2.5-0.5b", "--fractions", "1", "--resident-bytes", "1GB"], "--fractions"),
        (["walk", "--model", "qwen2.5-0.5b", "--sweep", "OTHER"], "is of device cuda"),
        (["plan", "--model", "qwen2.5-0.5b", "--budget", "1GB"], "--sweep or --machine"),
        (["plan", "--model", "qwen2.5-0.5b", "--budget", "-1GB", "--sweep", "SWEEP"], "--budget"),
        (["plan", "--model", "qwen2.5-0.5b", "--budget", "1GB", "--sweep", "/etc/hostname"], "/etc/hostname"),
        (
            ["plan", "--model", "qwen2.5-0.5b", "--budget", "1GB", "--machine", "m", "--results", "/nonexistent"],
            "results",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], says: str, sweep: Path, tmp_path: Path) -> None:
    """Unknown model, schedule, unit, file; a share above 1; a budget below one tensor or above the device; no samples;
    two splits at once; the sweep of another device."""
    other = tmp_path / "other.json"
    other.write_text(sweep.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    files = {"SWEEP": str(sweep), "OTHER": str(other)}
    device = ["--device", "cpu"] if arguments[0] == "walk" else []
    got = run(*[files.get(word, word) for word in arguments], *device)
    assert got.returncode == 2, got.stderr
    errors = [line for line in got.stderr.splitlines() if not line.startswith("walk: ")]
    assert len(errors) == 1
    assert says in errors[0]


def test_a_capacity_that_is_not_known_is_none(tmp_path: Path) -> None:
    """On a GPU nothing is read in place unless it is known how much stays right; a file or a size says it."""
    rows = [
        {"device": "cuda", "strategy": name, "form": "graph", "n": n, "k": 896, "packed_bytes": n * 448,
         "seconds": n * 448 / rate, "seconds_low": n * 448 / rate, "seconds_high": n * 448 / rate}
        for n in (1024, 65536)
        for name, rate in (("resident", 3e12), ("in_place", 50e9), ("staged", 40e9), ("copy_h2d", 55e9))
    ]  # fmt: skip
    sweep, walked, bare = tmp_path / "s.json", tmp_path / "w.json", tmp_path / "bare.json"
    sweep.write_text(json.dumps({"schema": 1, "facts": {}, "rows": rows}))
    walked.write_text(json.dumps({"schema": 1, "facts": {"in_place_capacity_bytes": 30_000_000}, "rows": []}))
    bare.write_text(json.dumps({"schema": 1, "facts": {}, "rows": []}))

    def plan(*more: str | Path) -> tuple[str, dict[str, int]]:
        target = tmp_path / "p.json"
        got = run("plan", "--model", "qwen2.5-0.5b", "--budget", "150MB", "--sweep", sweep, "--json", target, *more)
        assert got.returncode == 0, got.stderr
        held = {"in_place": 0, "staged": 0}
        for row in json.loads(target.read_text())["rows"]:
            held[row["strategy"]] = held.get(row["strategy"], 0) + row["packed_bytes"]
        return got.stdout.replace("\n", " "), held

    said, held = plan()
    assert held["in_place"] == 0
    assert held["staged"] > 0
    assert "Nothing is read in place" in said
    said, held = plan("--capacity", walked)
    assert 0 < held["in_place"] <= 30_000_000
    assert held["staged"] > 0
    assert "Nothing is read in place" not in said
    said, held = plan("--capacity", "1GB")
    assert held["in_place"] > 30_000_000
    assert held["staged"] == 0
    for wrong, says in ((bare, "bare.json says of no bytes"), ("much", "--capacity")):
        got = run("plan", "--model", "qwen2.5-0.5b", "--budget", "150MB", "--sweep", sweep, "--capacity", wrong)
        assert got.returncode == 2
        assert len(got.stderr.splitlines()) == 1
        assert says in got.stderr


def test_the_capacity_found_is_a_fact(tmp_path: Path) -> None:
    """`walk --capacity --json` writes it where `plan --capacity` reads it."""
    out = tmp_path / "w.json"
    got = run(
        "walk", "--device", "cpu", "--model", "qwen2.5-0.5b", "--fractions", "1", "--schedule", "serial", "--reps", "3",
        "--capacity", "--json", out,
    )  # fmt: skip
    assert got.returncode == 0, got.stderr
    document = json.loads(out.read_text())
    assert document["capacity"]["whole_model"] is True
    assert document["facts"]["in_place_capacity_bytes"] == document["capacity"]["bytes"] > 200_000_000


def test_a_plan_for_another_model_is_refused(sweep: Path, tmp_path: Path) -> None:
    """The plan names its model, and a walk over another is one line."""
    run("plan", "--model", "qwen2.5-0.5b", "--budget", "200MB", "--sweep", sweep, "--json", tmp_path / "p.json")
    got = run("walk", "--device", "cpu", "--model", "qwen2.5-1.5b", "--plan", tmp_path / "p.json", "--sweep", sweep)
    assert got.returncode == 2
    assert "is a plan for qwen2.5-0.5b" in got.stderr

    document = json.loads((tmp_path / "p.json").read_text())
    document["rows"] = document["rows"][::-1]  # as many tensors, in another order
    (tmp_path / "p.json").write_text(json.dumps(document))
    got = run("walk", "--device", "cpu", "--plan", tmp_path / "p.json", "--sweep", sweep)
    assert got.returncode == 2
    assert "are not those of qwen2.5-0.5b" in got.stderr


def test_ctrl_c_in_the_sweep_of_a_walk_is_said(tmp_path: Path) -> None:
    """Interrupted before the first walk: the file says that it is not complete, and there is no traceback."""
    target = tmp_path / "w.json"
    command = [*RUN, "walk", "--device", "cpu", "--model", "qwen2.5-0.5b", "--reps", "500", "--json", str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        before = child.stderr.readline()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130, before + err
    assert err.splitlines()[-1] == f"hybrid-kernels: interrupted: 0 of 2 walks finished, kept in {target}"
    assert "Traceback" not in err
    document = json.loads(target.read_text())
    assert document["complete"] is False
    assert document["rows"] == []
