"""`hybrid-kernels publish`, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
