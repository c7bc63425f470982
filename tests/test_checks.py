"""The list of checks itself: the README's commands, and coverage by row."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checks", ROOT / "checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def file(taken: int, branches: int, run: int, lines: int) -> dict[str, dict[str, int]]:
    """One file of coverage.py's JSON report, as far as it is read."""
    summary = {"covered_branches": taken, "num_branches": branches, "covered_lines": run, "num_statements": lines}
    return {"summary": summary}


def test_the_readme_has_both_commands(checks: ModuleType) -> None:
    """One line installs and measures, one line tests."""
    assert "hybrid-kernels probe" in checks.readme_command("probe")
    assert "pytest" in checks.readme_command("test")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<!-- ci: test -->\n```console\n$ one\n$ two\n```\n", 2),
        ("<!-- ci: test -->\n```console\noutput\n```\n", 0),
        ("<!-- ci: other -->\n```console\n$ one\n```\n", 0),
        ("<!-- ci: test -->\ntext between\n```console\n$ one\n```\n", 0),
    ],
)
def test_a_marked_block_holds_exactly_one_command(checks: ModuleType, text: str, count: int) -> None:
    """Two lines, none, another mark, or a mark that stands elsewhere: refused with the number found."""
    with pytest.raises(ValueError, match=rf"README.md: {count} command lines"):
        checks.readme_command("test", text)


def test_a_marked_block_gives_its_command(checks: ModuleType) -> None:
    """The line after the dollar sign, output left out."""
    assert checks.readme_command("test", "text\n<!-- ci: test -->\n\n```console\n$ a && b\n3 passed\n```\n") == "a && b"


def test_coverage_is_summed_by_row(checks: ModuleType) -> None:
    """Files of one folder, folders inside it too, count together; modules at the top are rows of their own."""
    rows = checks.coverage_by_row(
        {
            "hybrid_kernels/layout/a.py": file(8, 10, 50, 50),
            "hybrid_kernels/layout/deep/b.py": file(2, 10, 25, 50),
            "hybrid_kernels/units.py": file(0, 0, 3, 4),
        }
    )

    assert rows == {"layout": (50.0, 75.0), "units": (100.0, 75.0)}


def test_a_row_below_its_minimum_or_missing_fails(checks: ModuleType) -> None:
    """89.9 % of branches is too little for 90, and a row that no test reached is not forgotten."""
    rows = {"layout": (89.9, 100.0), "judge": (90.0, 90.0), "measure": (10.0, 10.0)}

    assert checks.too_low(rows, {"layout": 90.0, "judge": 90.0, "history": 90.0}) == ["layout", "history"]


def test_a_failing_check_fails_the_run(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others run all the same, the table names the one that failed, and the tests' closing line comes last."""
    monkeypatch.setattr(checks, "commands", lambda: {"lint": "exit 3", "tests": "echo 7 passed", "types": "true"})

    assert checks.main([]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-4:-1]] == [["FAILED", "lint"], ["passed", "tests"], ["passed", "types"]]
    assert lines[-1] == "7 passed"
    assert checks.main(["types"]) == 0


def test_a_wheel_without_a_source_or_the_compiled_kernel_is_found(checks: ModuleType) -> None:
    """A tracked file that was not packed, and a kernel that was not compiled, are named."""
    compiled = "hybrid_kernels/kernels/_gemv_int4.cpython-311-x86_64-linux-gnu.so"
    tracked = ["hybrid_kernels/cli/probe.py", "hybrid_kernels/kernels/gemv_int4.cu"]

    assert checks.left_out([*tracked, compiled, "more"], tracked) == []
    assert checks.left_out(tracked[:1], tracked) == [tracked[1], "hybrid_kernels/kernels/_gemv_int4 (compiled)"]


def test_the_run_of_ci_is_valid_shell() -> None:
    """`.ci/run` is executable and parses; what it does is for CI to run."""
    script = ROOT / ".ci" / "run"

    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_an_unknown_check_is_refused() -> None:
    """Exit 2, and the names there are."""
    done = subprocess.run(
        [sys.executable, "checks.py", "nonsense"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "unknown check nonsense; there are tests, coverage, format" in done.stderr
