"""`hybrid-kernels publish`, as a user runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from hybrid_kernels.cli import main; main()", "publish", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_publish_says_where_the_site_is(asv_project):
    """The command publishes into the folder it is given, and names it."""
    project = asv_project(1)
    project.save()
    done = run(project.root, "--html-dir", "site")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("site/index.html")
    assert (project.root / "site" / "figures.html").exists()
    assert not (project.root / "html").exists()


def test_results_in_a_bucket_become_the_same_site(asv_project, bucket, tmp_path):
    """`--results s3://...`: our pages and asv's own graphs from a real S3 server, the folder here being gone; a second
    publish finds what was added to the bucket since."""
    fsspec = pytest.importorskip("fsspec")
    project = asv_project(3)
    project.machine("box")
    project.benchmark("suite.time_read")
    for at in range(3):
        project.result("box", at, {"suite.time_read": 1.0 + at / 100})
    project.save()
    first = run(project.root, "--html-dir", "here")
    assert first.returncode == 0, first.stderr
    system = fsspec.filesystem("s3", use_listings_cache=False)
    results = shutil.move(project.root / "results", tmp_path / "moved")
    for path in Path(results).rglob("*.json"):
        system.pipe_file(f"{bucket}/results/{path.relative_to(results).as_posix()}", path.read_bytes())
    there = run(project.root, "--results", f"s3://{bucket}/results", "--html-dir", "there")
    assert there.returncode == 0, there.stderr
    files = [{f.relative_to(project.root / name).as_posix() for f in (project.root / name).rglob("*") if f.is_file()}
             for name in ("here", "there")]  # fmt: skip
    assert files[0] == files[1]
    assert any(name.startswith("graphs/") for name in files[1])
    for name in ("dashboard/data/machines.js", "index.json"):
        ours, theirs = ((project.root / folder / name).read_text() for folder in ("here", "there"))
        assert len(ours) == len(theirs)


def test_bad_input_is_one_line(tmp_path, asv_project):
    """No configuration, a broken one, or no results: exit code 2 and one line without a traceback."""
    cases = [(tmp_path, "asv.conf.json: no such file")]
    project = asv_project(1)
    cases.append((project.root, "benchmarks.json"))  # nothing measured yet
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "asv.conf.json").write_text("{")
    cases.append((broken, "asv.conf.json"))
    for folder, word in cases:
        done = run(folder)
        assert done.returncode == 2, done.stderr
        assert word in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
