"""What the pages cost: `python -m tests.report.publish_speed [--rounds N] [--records N]]`, from the root.

Side by side, in alternating rounds: `asv publish` of the Kedro history alone, with our pages built anew, and with our
pages as kept from the publish before. Then a made-up history of many records: the time our pages take, their sizes, and
when the first view stands in headless Chromium. Prints what it measured; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.report.conftest import PLUGIN, AsvProject

ROOT = Path(__file__).parents[2]
KEDRO = ROOT / "tests" / "data" / "kedro-asv-results.tar.gz"


def kedro(folder: Path) -> AsvProject:
    """The Kedro history on a made-up git history: its commits in order of date, their hashes rewritten."""
    with tarfile.open(KEDRO) as archive:
        archive.extractall(folder / "original", filter="data")
    results = folder / "original" / "kedro-benchmark-results" / ".asv" / "results"
    documents = {path: json.loads(path.read_text()) for path in results.glob("*/*.json") if path.name != "machine.json"}
    dates = {one["commit_hash"]: one["date"] for one in documents.values()}
    order = sorted(dates, key=lambda commit: (dates[commit], commit))
    project = AsvProject.create(folder / "kedro", len(order), "Kedro")
    renamed = dict(zip(order, project.commits, strict=True))
    for path, document in documents.items():
        document["commit_hash"] = commit = renamed[document["commit_hash"]]
        target = project.root / "results" / path.parent.name / (commit[:8] + path.name[8:])
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(document))
        shutil.copy(path.parent / "machine.json", target.parent)
    content = json.loads((results / "benchmarks.json").read_text())
    project.benchmarks = {name: entry for name, entry in content.items() if name != "version"}
    project.save()
    return project


def publish(project: AsvProject, plugin: bool, cache: Path) -> float:
    """Seconds of one `asv publish` of the project."""
    path = project.root / "asv.conf.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "plugins": [PLUGIN] if plugin else []}))
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT), "HYBRID_KERNELS_CACHE": os.fspath(cache)}
    # Both with compiled modules, as pip installs them; a checkout's may not be written.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = os.fspath(project.root.parent / "bytecode")
    command = [sys.executable, "-m", "asv", "publish", "--no-pull"]
    started = time.perf_counter()
    subprocess.run(command, cwd=project.root, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def side_by_side(project: AsvProject, folder: Path, rounds: int) -> None:
    """Medians of the three ways to publish, in alternating rounds."""
    times: dict[str, list[float]] = {"asv alone": [], "pages built anew": [], "pages as kept": []}
    for number in range(rounds + 1):
        cache = folder / f"cache-{number}"
        found = (publish(project, False, cache), publish(project, True, cache), publish(project, True, cache))
        if number:  # the first round warms the disk
            for name, seconds in zip(times, found, strict=True):
                times[name].append(seconds)
        shutil.rmtree(cache)
    alone = statistics.median(times["asv alone"])
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        print(f"{name:18} {middle:6.2f} s  {min(seconds):5.2f} to {max(seconds):5.2f}  {middle / alone - 1:+.0%}")


def many(folder: Path, records: int) -> AsvProject:
    """A history of so many records: sweeps, and series of which some have a step, over as many commits as it takes."""
    rng = np.random.default_rng(1)
    grid = (("device", ["cuda"]), ("strategy", ["resident", "in_place", "staged"]), ("mib", [12.5, 64.0, 256.0]))
    project = AsvProject.create(folder / "many", max(2, records // 1009), "many records")
    project.machine("box")
    project.benchmark("reads.Seconds.time_read", params=grid)
    names = [f"suite_{number // 20}.time_{number % 20}" for number in range(1000)]
    for name in names:
        project.benchmark(name)
    steps = {name: int(rng.integers(len(project.commits))) for name in names[::10]}
    for at in range(len(project.commits)):
        values = {name: 0.1 * (1.2 if at > steps.get(name, at) else 1) * float(rng.normal(1, 0.02)) for name in names}
        project.result("box", at, {**values, "reads.Seconds.time_read": [0.001 * (1 + cell) for cell in range(9)]})
    project.save()
    return project


def pages(project: AsvProject) -> None:
    """Seconds to build the pages of a history, and the largest page and data script."""
    script = (
        "import sys, time; from pathlib import Path\n"
        "from hybrid_kernels.report.dashboard import kept; from hybrid_kernels.report.dashboard.links import Project\n"
        "root = Path(sys.argv[1]); started = time.perf_counter()\n"
        "built = kept.refresh(kept.Source(root / 'results', Project('p'), root / 'figures.toml'))\n"
        "taken = time.perf_counter() - started\n"
        "sizes = sorted((len(data), path) for path, data in built.files.items())\n"
        "print(f'pages built in {taken:.1f} s; largest file {sizes[-1][0] / 1e6:.2f} MB ({sizes[-1][1]}), '"
        " f'all {sum(size for size, _ in sizes) / 1e6:.1f} MB')\n"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT), "HYBRID_KERNELS_CACHE": cache}
        subprocess.run([sys.executable, "-c", script, os.fspath(project.root)], env=environment, check=True)


def first_view(html: Path) -> None:
    """Milliseconds from opening each page to its first content, and to its chart where it has one."""
    from playwright.sync_api import sync_playwright

    from tests.report.test_browser import CHROMIUM

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name in ("figures.html", "corrections.html", "sweeps.html", "machines.html"):
            taken = []
            for _ in range(5):
                page = browser.new_context().new_page()
                page.goto("about:blank")
                page.add_init_script(
                    "new MutationObserver((_, self) => { if (document.querySelector('#content .card')) {"
                    " requestAnimationFrame(() => { window.drawnAt = performance.now(); }); self.disconnect(); } })"
                    ".observe(document, { childList: true, subtree: true })"
                )
                page.goto(f"{html.as_uri()}/{name}")
                page.wait_for_function("window.drawnAt")
                if name == "sweeps.html":
                    page.wait_for_selector(".chart svg")
                    taken.append(page.evaluate("performance.now()"))
                else:
                    taken.append(page.evaluate("window.drawnAt"))
                page.context.close()
            spread = f"(5 times, {min(taken):.0f} to {max(taken):.0f})"
            print(f"first view of {name:17} {statistics.median(taken):5.0f} ms {spread}")
        browser.close()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.rounds:
            project = kedro(folder)
            print(f"Kedro: {len(list(project.root.glob('results/*/*-*.json')))} result files")
            side_by_side(project, folder, arguments.rounds)
        if arguments.records:
            project = many(folder, arguments.records)
            print(f"{len(project.commits) * 1009:,} records made up")
            pages(project)
            publish(project, True, folder / "cache")
            first_view(project.root / "html")


if __name__ == "__main__":
    main()
