"""How long a history takes to load, side by side with asv's own loader, in one run.

    python -m benchmarks.history_load RESULTS           a results folder, for example of a public project
    python -m benchmarks.history_load --synthetic 4x250x300     machines x commits x series, made in a temporary folder

Printed for each way of loading: the best and the median of `--times` repetitions, every one in a process of its own, so
that nothing is warm but the disk. Importing is not counted. `asv` is `asv.results.iter_results` reading every file.
Not an asv suite: what asv's loader takes is measured here, and a suite cannot ask that of asv.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = {
    "asv, every file": "asv",
    "first load": "first",
    "second load": "second",
    "second load, one new file": "new",
    "second load, one benchmark": "one",
}
JUDGING = {"events of one benchmark": "events", "pages": "pages"}
"""With --judge: a second load and what is made of it. Importing pandas and scipy is not counted."""


def generate(root: Path, machines: int, commits: int, series: int) -> None:
    """Result files as asv writes them: `series` values a file, ten to a benchmark, with statistics."""
    rng = random.Random(0)
    benchmarks = [f"suite_{at % 7}.Suite.time_case_{at}" for at in range(max(series // 10, 1))]
    grid = [[str(2**at) for at in range(min(series, 10))]]
    columns = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25"]
    columns += ["stats_q_75", "stats_number", "stats_repeat", "samples", "profile"]
    entries = {
        name: {"name": name, "type": "time", "unit": "seconds", "version": "1", "params": grid, "param_names": ["size"]}
        for name in benchmarks
    }
    root.mkdir(parents=True)
    (root / "benchmarks.json").write_text(json.dumps({**entries, "version": 2}))
    for at in range(machines):
        machine = f"machine-{at:02}"
        (root / machine).mkdir()
        (root / machine / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
        for number in range(commits):
            write_commit(root / machine, machine, number, benchmarks, grid, columns, rng)


def write_commit(
    folder: Path,
    machine: str,
    number: int,
    benchmarks: list[str],
    grid: list[list[str]],
    columns: list[str],
    rng: random.Random,
) -> Path:
    """The file of one commit."""
    date = 1_600_000_000_000 + 3_600_000 * number
    rows = {}
    for name in benchmarks:
        values = [rng.lognormvariate(-6, 0.03) for _ in grid[0]]
        around = [[float(f"{one * factor:.5g}") for one in values] for factor in (0.98, 1.02, 0.99, 1.01)]
        rows[name] = [values, grid, "1", date + 1000, 1.5, *around, [4] * len(values), [10] * len(values)]
    commit = f"{number:08x}{rng.getrandbits(128):032x}"
    content = {
        "commit_hash": commit,
        "env_name": "virtualenv-py3.11",
        "date": date,
        "params": {"machine": machine, "python": "3.11"},
        "python": "3.11",
        "requirements": {},
        "env_vars": {},
        "result_columns": columns,
        "results": rows,
        "durations": {},
        "version": 2,
    }
    path = folder / f"{commit[:8]}-virtualenv-py3.11.json"
    path.write_text(json.dumps(content, separators=(",", ":")))
    return path


def measure(way: str, results: str) -> tuple[float, int]:
    """(seconds, rows) of one load in this process; the frame is part of it."""
    if way == "asv":
        from asv.results import iter_results

        start = time.perf_counter()
        files = [result for result in iter_results(results)]  # noqa: C416  (asv's generator, read to its end)
        return time.perf_counter() - start, len(files)
    import pandas  # noqa: F401  (importing it is not counted)

    from hybrid_kernels.history import store

    if way in JUDGING.values():
        from hybrid_kernels.judge import events
        from hybrid_kernels.report.dashboard import build, kept, links

        start = time.perf_counter()
        if way == "events":
            history = events.History(results)
            history.events(rf"^{re.escape(sorted(history.stored.benchmarks)[0])}$")
        else:
            build.build(kept.Source(Path(results), links.Project("synthetic"), Path(results) / "figures.toml"))
        return time.perf_counter() - start, 0
    benchmark = None
    if way == "one":
        benchmark = f"^{store.load(results).frame['benchmark'].iloc[-1]}$".replace(".", r"\.")
    start = time.perf_counter()
    frame = store.load(results, benchmark=benchmark).frame
    return time.perf_counter() - start, len(frame)


def repeat(results: Path, times: int, ways: dict[str, str]) -> dict[str, tuple[list[float], int, float]]:
    """For each way: seconds of each repetition, rows, and the most memory a process took (MiB)."""
    found: dict[str, tuple[list[float], int, float]] = {name: ([], 0, 0.0) for name in ways}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "HYBRID_KERNELS_CACHE": cache}
        for _ in range(times):
            for name, way in ways.items():  # interleaved: whatever the machine does meanwhile meets all of them
                if way == "first":
                    shutil.rmtree(cache, ignore_errors=True)
                touched = next(path for path in sorted(results.rglob("*-*.json"))) if way == "new" else None
                if touched is not None:
                    os.utime(touched)
                command = [sys.executable, "-m", "benchmarks.history_load", "--way", way, str(results)]
                done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
                seconds, rows, memory = json.loads(done.stdout)
                found[name] = ([*found[name][0], seconds], rows, max(found[name][2], memory))
    return found


def table(found: dict[str, tuple[list[float], int, float]]) -> str:
    """The times as a Markdown table."""
    asv = min(found["asv, every file"][0]) if "asv, every file" in found else float("nan")
    lines = ["| way | best ms | median ms | of asv's | rows | peak MiB |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, (seconds, rows, memory) in found.items():
        counted = f"{rows:,}" if name != "asv, every file" else f"{rows:,} files"
        best, median = 1e3 * min(seconds), 1e3 * statistics.median(seconds)
        lines.append(f"| {name} | {best:,.1f} | {median:,.1f} | {best / 1e3 / asv:.2f} | {counted} | {memory:,.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, help="a results folder of asv")
    parser.add_argument("--synthetic", metavar="MxCxS", help="machines x commits x series of a history made for this")
    parser.add_argument("--keep", type=Path, help="folder to make the synthetic history in, and to leave it there")
    parser.add_argument("--times", type=int, default=7, help="repetitions (default 7)")
    parser.add_argument("--judge", action="store_true", help="instead first and second load, events and pages")
    parser.add_argument("--way", choices=[*WAYS.values(), *JUDGING.values()], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        import resource

        seconds, rows = measure(options.way, str(options.results))
        print(json.dumps([seconds, rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    if (options.results is None) == (options.synthetic is None):
        parser.error("name either a results folder or --synthetic MxCxS")
    with tempfile.TemporaryDirectory() as made:
        results = options.results
        if options.synthetic:
            results = (options.keep or Path(made)) / "results"
            machines, commits, series = (int(part) for part in options.synthetic.split("x"))
            if not results.exists():
                generate(results, machines, commits, series)
        print(f"{results if options.results else options.synthetic} on {platform.processor() or platform.machine()},")
        print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
        ways = {**{name: WAYS[name] for name in ("first load", "second load")}, **JUDGING} if options.judge else WAYS
        print(table(repeat(results, options.times, ways)))


if __name__ == "__main__":
    main()
