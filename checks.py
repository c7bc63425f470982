"""The one list of checks, for people and for CI: `python checks.py` runs them all, `python checks.py lint types` some.

A check is a command line run at the root of the checkout, with the programs of the interpreter that runs this file
first on PATH. All of them run, also after a failure; the closing table says which failed, and so does the exit code.
The tests are started by the very line that README.md gives, so that the two cannot drift apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent

ROWS_AT_LEAST = {"layout": 90.0, "history": 90.0, "judge": 90.0, "report": 90.0}
"""Percent of branches that tests must take, by row of the design. The other rows are printed only."""

QUICK = r"^(reads|copies)\..*cpu.*12\.5|^controls\.NumpyCopy|^machine\.track_memory"
"""Benchmarks of the quick run: one of each kind at the smallest size. It shows that they work, not what they give."""


def readme_command(mark: str, text: str | None = None) -> str:
    """The one `$ ` line of the console block after `<!-- ci: MARK -->` in README.md. ValueError when it is not one."""
    text = (ROOT / "README.md").read_text("utf-8") if text is None else text
    blocks: list[str] = re.findall(
        rf"^<!-- ci: {re.escape(mark)} -->\n+```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    if len(lines) != 1:
        raise ValueError(
            f"README.md: {len(lines)} command lines after '<!-- ci: {mark} -->', there must be exactly one"
        )
    return lines[0]


def commands() -> dict[str, str]:
    """Every check in order: its name and its shell command."""
    return {
        "tests": readme_command("test"),  # first: this line also installs what the others need
        "coverage": "python checks.py --coverage",
        "format": "ruff format --check .",
        "lint": "ruff check .",
        "types": "mypy",
        "imports": "lint-imports",
        "figures": "hybrid-kernels figures check",
        "wheel": "python checks.py --wheel",
        "asv-check": "asv machine --yes && asv check",
        "asv-run": f"asv run --quick --show-stderr --bench '{QUICK}' HEAD^!",  # asv keeps no result of a quick run
        "asv-publish": "asv publish",
    }


def coverage_by_row(report: Mapping[str, dict[str, dict[str, int]]]) -> dict[str, tuple[float, float]]:
    """Percent of branches taken and of lines run, by row, from the `files` of coverage.py's JSON report."""
    sums: dict[str, list[int]] = {}
    for path, file in report.items():
        parts = Path(path).parts
        row = parts[1] if len(parts) > 2 else Path(path).stem
        total = sums.setdefault(row, [0, 0, 0, 0])
        for index, key in enumerate(("covered_branches", "num_branches", "covered_lines", "num_statements")):
            total[index] += file["summary"][key]
    return {
        row: (100.0 * taken / branches if branches else 100.0, 100.0 * run / lines if lines else 100.0)
        for row, (taken, branches, run, lines) in sorted(sums.items())
    }


def too_low(rows: Mapping[str, tuple[float, float]], at_least: Mapping[str, float] = ROWS_AT_LEAST) -> list[str]:
    """The rows whose branches are taken too rarely, or that the tests never reached."""
    return [row for row, least in at_least.items() if row not in rows or rows[row][0] < least]


def print_coverage() -> int:
    """Print what the last run of the tests covered, row by row; 1 when a row is below its minimum."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "coverage.json")
        subprocess.run(
            [sys.executable, "-m", "coverage", "json", "-q", "-o", str(target)], cwd=ROOT, check=True
        )  # reads .coverage
        rows = coverage_by_row(json.loads(target.read_text("utf-8"))["files"])
    print(f"{'row':12} {'branches':>9} {'lines':>7}   minimum")
    for row, (branches, lines) in rows.items():
        least = f"{ROWS_AT_LEAST[row]:.0f} %" if row in ROWS_AT_LEAST else "-"
        print(f"{row:12} {branches:8.1f}% {lines:6.1f}%   {least}")
    low = too_low(rows)
    if low:
        print(f"too few branches tested in: {', '.join(low)}")
    return 1 if low else 0


def left_out(wheel: Iterable[str], tracked: Iterable[str]) -> list[str]:
    """Files of the package that a wheel lacks: tracked ones (kernel sources, templates), or the compiled kernel."""
    names = set(wheel)
    missing = [name for name in tracked if name not in names]
    if not any(re.fullmatch(r"hybrid_kernels/kernels/_gemv_int4\..*(so|pyd)", name) for name in names):
        missing.append("hybrid_kernels/kernels/_gemv_int4 (compiled)")
    return missing


def check_wheel() -> int:
    """Build a wheel and print what of the package is not in it; 1 when anything is missing."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(ROOT)]
        subprocess.run(build, check=True)
        (path,) = Path(folder).glob("*.whl")
        wheel = zipfile.ZipFile(path).namelist()
    listed = subprocess.run(["git", "ls-files", "hybrid_kernels"], cwd=ROOT, capture_output=True, text=True, check=True)
    missing = left_out(wheel, listed.stdout.split())
    print(f"{len(wheel)} files in {path.name}; missing: {', '.join(missing) or 'none'}")
    return 1 if missing else 0


def environment() -> dict[str, str]:
    """The environment of a check: this interpreter's programs first, and coverage collected by whatever runs pytest."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    options = f"{os.environ.get('PYTEST_ADDOPTS', '')} --cov --cov-report=".strip()
    return {**os.environ, "PATH": path, "PYTEST_ADDOPTS": options}


def run(name: str, command: str) -> tuple[bool, float, str]:
    """Run one check, its output shown as it comes: whether it passed, its seconds, and its last line."""
    print(f"\n== {name}: {command}", flush=True)
    started, last = time.monotonic(), ""
    with subprocess.Popen(
        command, shell=True, cwd=ROOT, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode == 0, time.monotonic() - started, last


def main(arguments: list[str] | None = None) -> int:
    """Run the checks that are asked for; 0 when every one passed."""
    parser = argparse.ArgumentParser(description="Run this project's checks.")
    parser.add_argument("names", nargs="*", metavar="CHECK", help="checks to run (default: all, in order)")
    parser.add_argument("--list", action="store_true", help="print the checks and their commands")
    parser.add_argument("--coverage", action="store_true", help="print what the last run of the tests covered")
    parser.add_argument("--wheel", action="store_true", help="build a wheel and see that nothing is missing in it")
    parser.add_argument("--readme", metavar="MARK", help="print the command that README.md gives for MARK")
    options = parser.parse_args(arguments)
    if options.readme:
        print(readme_command(options.readme))
        return 0
    if options.coverage:
        return print_coverage()
    if options.wheel:
        return check_wheel()
    checks = commands()
    unknown = [name for name in options.names if name not in checks]
    if unknown:
        parser.error(f"unknown check {unknown[0]}; there are {', '.join(checks)}")
    if options.list:
        for name, command in checks.items():
            print(f"{name:12} {command}")
        return 0

    results = {name: run(name, checks[name]) for name in options.names or checks}
    print("\n== summary")
    for name, (passed, seconds, _) in results.items():
        print(f"{'passed' if passed else 'FAILED'} {name:12} {seconds:6.1f} s")
    if "tests" in results:
        print(results["tests"][2])
    return 0 if all(passed for passed, _, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
