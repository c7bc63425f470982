"""Make the histories in this folder: real asv runs of this project's own suites on the CPU device.

    python tests/data/histories/make.py PYTHON

PYTHON is an interpreter that has asv and this package's dependencies, and the C extension must be built in place. Each
stage measures what a project at that stage would have: first only the copy, then also the reads. The commits are
labels: the same checkout is measured each time, so every value here is real and none of the changes between them is.
Tests copy these files and scale values in the copies to plant a change whose cause they know.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
COPY = r"copies\.Bandwidth\.track_copy\('cpu', 'copy', 64\.0\)"
READS = r"reads\.Bandwidth\.track_read\('cpu', '(in_place|resident)', 64\.0\)"
TIMED = r"reads\.Seconds\.time_read\('cpu', 'resident', 64\.0\)"
ALWAYS = ["controls.NumpyCopy", r"machine\.track_", r"machine\.Device.*\('cpu'\)"]
STAGES = [[COPY], [COPY], [COPY, READS, TIMED], [COPY, READS, TIMED], [COPY, READS, TIMED], [COPY, READS, TIMED]]


def main(python: str) -> None:
    """Measure every stage into a fresh folder and put the results here."""
    log = ["git", "-C", str(ROOT), "log", "--first-parent", "--reverse", "--format=%H"]
    commits = subprocess.run(log, check=True, capture_output=True, text=True).stdout.split()
    spread = [commits[i * (len(commits) - 1) // (len(STAGES) - 1)] for i in range(len(STAGES))]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "asv.conf.json"
        config.write_text(
            f'{{"version": 1, "project": "hybrid_kernels", "repo": "{ROOT}", "branches": ["HEAD"],'
            f' "environment_type": "existing", "benchmark_dir": "{ROOT / "benchmarks"}", '
            f'"results_dir": "{folder}/results", "env_dir": "{folder}/env"}}'
        )
        asv = [python, "-m", "asv", "--config", str(config)]
        facts = ["--machine", "laptop", "--os", "Linux", "--arch", "x86_64", "--cpu", "a CPU", "--num_cpu", "2"]
        environment = {**os.environ, "ASV_PYTHONPATH": str(ROOT), "HOME": folder}
        subprocess.run([*asv, "machine", "--yes", *facts, "--ram", "8G"], check=True, env=environment)
        for commit, stage in zip(spread, STAGES, strict=True):
            benches = [option for pattern in (*stage, *ALWAYS) for option in ("--bench", pattern)]
            run = [
                *asv,
                "run",
                "--environment",
                f"existing:{python}",
                "--set-commit-hash",
                commit,
                "--machine",
                "laptop",
            ]
            subprocess.run([*run, "--show-stderr", *benches], check=True, env=environment, cwd=folder)
        shutil.rmtree(HERE / "results", ignore_errors=True)
        shutil.copytree(f"{folder}/results", HERE / "results")
    # asv names an existing environment after the path of its interpreter, which says nothing to anybody else.
    path_name = "existing-py" + python.replace("/", "_")
    for file in sorted((HERE / "results").rglob("*.json")):
        text = file.read_text().replace(path_name, "existing-py3").replace(python, "3")
        file.unlink()
        file.with_name(file.name.replace(path_name, "existing-py3")).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
