"""An asv project made up for the pages: a real git history, result files written by asv itself."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from asv.results import Results

PLUGIN = ".hybrid_kernels.report.dashboard.plugin"
START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


@dataclass
class AsvProject:
    """A repository with one commit a day, and results of any machine at any of them."""

    root: Path
    commits: list[str] = field(default_factory=list)
    benchmarks: dict[str, dict] = field(default_factory=dict)
    machines: dict[str, dict] = field(default_factory=dict)

    @classmethod
    def create(cls, root: Path, count: int, name: str = "demo", subjects=None, **config) -> AsvProject:
        """A project called `name` with `count` commits on main; `config` goes into asv.conf.json."""
        repo = root / "repo"
        repo.mkdir(parents=True)
        git = ["git", "-C", str(repo)]
        subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
        lines = []
        for at in range(count):
            subject = (subjects or {}).get(at, f"Change {at}")
            seconds = int((START + datetime.timedelta(days=at)).timestamp())
            lines.append(
                f"commit refs/heads/main\ncommitter A <a@example.org> {seconds} +0000\n"
                f"data {len(subject.encode())}\n{subject}\n"
            )
        subprocess.run([*git, "fast-import", "--quiet"], input="".join(lines).encode(), check=True)
        log = subprocess.run([*git, "rev-list", "--reverse", "main"], check=True, capture_output=True, text=True)
        settings = {
            "version": 1,
            "project": name,
            "repo": "repo",
            "branches": ["main"],
            "results_dir": "results",
            "html_dir": "html",
            "show_commit_url": "https://example.org/commit/",
            "plugins": [PLUGIN],
            **config,
        }
        (root / "asv.conf.json").write_text(json.dumps(settings))
        (root / "results").mkdir()
        return cls(root, log.stdout.split())  # fmt: skip

    def machine(self, name: str, **facts: str) -> None:
        """A machine with its facts, as `asv machine` writes them; called again, its facts from then on."""
        known = {
            "arch": "x86_64",
            "cpu": "Some CPU",
            "machine": name,
            "num_cpu": "8",
            "os": "Linux 6.1",
            "ram": str(2**35),
        }
        self.machines[name] = {**known, **facts}
        folder = self.root / "results" / name
        folder.mkdir(exist_ok=True)
        (folder / "machine.json").write_text(json.dumps({**self.machines[name], "version": 1}))

    def benchmark(self, name: str, unit: str = "seconds", version: str = "1", params=(), **more) -> None:
        """A benchmark of benchmarks.json; params: (name, values) pairs. Called again, its version from then on."""
        kind = "time" if unit == "seconds" else "track"
        self.benchmarks[name] = {
            "name": name, "type": kind, "unit": unit, "version": version, "code": "",
            "param_names": [key for key, _ in params],
            "params": [[repr(one) for one in values] for _, values in params],
            "timeout": 60, "number": 0, "repeat": 0, **more,
        }  # fmt: skip

    def result(self, machine: str, at: int, values: dict[str, float | list[float]], spread: float = 0.01) -> None:
        """Values of benchmarks on `machine` at commit number `at`: one a benchmark, or one a cell of its grid."""
        commit, date = self.commits[at], START + datetime.timedelta(days=at)
        facts = self.machines[machine]
        known = Results(
            {**facts, "python": "3.11"}, {}, commit, int(date.timestamp() * 1000), "3.11", "virtualenv-py3.11", {}
        )
        if (file := self.root / "results" / known._filename).exists():
            known = Results.load(str(file))
        for name, value in values.items():
            entry = self.benchmarks[name]
            cells = value if isinstance(value, list) else [value]
            timed = entry["type"] == "time"
            # Samples exactly around the value, so that asv stores it and an interval of the spread.
            spreads = [1 + spread * step for step in (-2, -1, 0, 0, 0, 1, 2)]
            outcome = SimpleNamespace(
                result=[float(one) for one in cells],
                samples=[[one * step for step in spreads] if timed and one == one else None for one in cells],
                number=[1 if timed else None] * len(cells),
                errcode=0,
                stderr="",
                profile=None,
            )
            known.add_result(entry, outcome, started_at=date + datetime.timedelta(hours=2), duration=1.0)
        known.save(str(self.root / "results"))

    def save(self) -> None:
        """Write benchmarks.json."""
        content = {**self.benchmarks, "version": 2}
        (self.root / "results" / "benchmarks.json").write_text(json.dumps(content))

    def asv(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run asv in the project, with this checkout importable."""
        self.save()
        here = os.fspath(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": here}
        return subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=self.root, env=environment, check=check,
                              capture_output=True, text=True)  # fmt: skip

    def publish(self) -> Path:
        """`asv publish`, and the folder it made."""
        self.asv("publish", "--no-pull")
        return self.root / "html"

    def data(self, name: str):
        """What a published data script hands over."""
        text = (self.root / "html" / "dashboard" / "data" / f"{name}.js").read_text()
        return json.loads(text[text.index("(") + 1 : text.rindex(")")].partition(", ")[2])


@pytest.fixture
def asv_project(tmp_path: Path):
    """Makes an asv project with so many commits in the test's own folder."""
    return lambda count, **more: AsvProject.create(tmp_path / "project", count, **more)


SIZES = [12.5, 64.0, 256.0]
STRATEGIES = ["resident", "in_place", "staged"]
FIGURES = """schema = 1

[events]
controls = ['^controls\\.', '^copies\\.']
facts = ['^machine\\.']

[figures.cold_path_read_bandwidth]
title = "Weights read in place from mapped host memory"
unit = "GB/s"
direction = "higher"
sizes = "how long a decode step waits for the weights that are not resident"

[[figures.cold_path_read_bandwidth.records]]
id = 1
date = 2026-03-02
machine = "laptop"
value = 11.41
kind = "upper bound"
method = { source = "sequential copy out of mapped host memory" }
conditions = "1 GiB slice, best of 3"

[[figures.cold_path_read_bandwidth.records]]
id = 2
date = 2026-03-02
machine = "laptop"
value = 5.6
kind = "measured"
method = { source = "strided int4 GEMV with only the weight pointer differing" }
conditions = "384 MiB packed"
corrects = 1
reason = "A copy has no kernel: it says what the link carries, not what the GEMV reads over it."

[[figures.cold_path_read_bandwidth.records]]
id = 3
date = 2026-03-20
machine = "tower"
value = 24.1
kind = "measured"

[figures.cold_path_read_bandwidth.records.method]
benchmark = "reads.Seconds.time_read"
version = "1"
params = { device = "cuda", strategy = "in_place", mib = 256.0 }

[figures.host_bytes]
title = "Weights read from host memory in one step"
unit = "GB"
direction = "none"

[[figures.host_bytes.records]]
id = 1
date = 2026-03-02
machine = "laptop"
value = 0.6
kind = "estimate"
method = { source = "model size less what is resident" }

[figures.decode_rate]
title = "Tokens decoded in a second"
unit = "tok/s"
direction = "higher"

[[figures.decode_rate.records]]
id = 1
date = 2026-03-02
machine = "laptop"
range = [7.78, 8.09]
kind = "measured"
method = { source = "decode of a 8.33 GB model" }

[cross-checks.from_decode_rate]
title = "Host bytes of a step times steps a second"
figure = "cold_path_read_bandwidth"
machine = "laptop"
expression = "host_bytes * decode_rate"
factor = 1.25
"""


def _bandwidth(strategy: str, mib: float, at: int) -> float:
    wide = at >= 22  # a kernel with wider requests
    level = {"resident": 2815.0, "in_place": 51.0 if wide else 24.0, "staged": 52.5}[strategy]
    return level * {12.5: 0.42, 64.0: 0.8, 256.0: 1.0}[mib] if strategy == "resident" else level


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsvProject:
    """Two machines over forty days: a faster kernel, a driver change that moved the copies too, a slower reader."""
    rng = np.random.default_rng(6)
    project = AsvProject.create(
        tmp_path_factory.mktemp("fleet"),
        40,
        "fleet <demo>",
        subjects={22: "Read 128 bytes a request <script>alert(1)</script>"},
    )
    (project.root / "figures.toml").write_text(FIGURES)
    grid = (("device", ["cuda"]), ("strategy", STRATEGIES), ("mib", SIZES))
    project.benchmark("reads.Seconds.time_read", params=grid)
    copies = (("device", ["cuda"]), ("kind", ["copy"]), ("mib", SIZES))
    project.benchmark("copies.Bandwidth.track_copy", "GB/s", params=copies, higher_is_better=True)
    project.benchmark("machine.Device.track_link_generation", "generation", params=(("device", ["cuda"]),))
    project.benchmark("machine.Device.track_link_width", "lanes", params=(("device", ["cuda"]),))
    project.benchmark("machine.Device.track_cache_bytes", "bytes", params=(("device", ["cuda"]),))
    project.benchmark("load.time_import")
    for machine, quick in (("tower", 1.0), ("rack <b>", 0.6)):
        project.machine(machine, cpu="Xeon & co", gpu="Some GPU")
        for at in range(40) if machine == "tower" else range(0, 30, 2):
            if at == 31:
                project.machine(machine, cpu="Xeon & co", gpu="Some GPU", os="Linux 6.8")
            slow = 0.5 if machine == "tower" and at >= 31 else 1.0  # the link came up at half its width
            reads = []
            for strategy, mib in itertools.product(STRATEGIES, SIZES):
                speed = quick * _bandwidth(strategy, mib, at) * (1 if strategy == "resident" else slow)
                reads.append(mib * 2**20 / 1e9 / speed * float(rng.normal(1, 0.004)))
            project.result(machine, at, {
                "reads.Seconds.time_read": reads,
                "copies.Bandwidth.track_copy": [55.5 * quick * slow * float(rng.normal(1, 0.004)) for _ in SIZES],
                "machine.Device.track_link_generation": [5.0],
                "machine.Device.track_link_width": [8.0 if slow < 1 else 16.0],
                "machine.Device.track_cache_bytes": [60.0 * 2**20],
                "load.time_import": 0.21 * (1.3 if at >= 12 else 1) * float(rng.normal(1, 0.01)),
            })  # fmt: skip
    project.publish()
    return project
