"""Fleets with a real scheduler and worker processes on loopback ports: killed, late, of another version, cut off.

Every worker has a home of its own, and so a machine's name of its own; what it measures is its own number, so that a
value measured elsewhere under its name would show.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrid_kernels.errors import BadInput, NothingMeasured
from hybrid_kernels.measure import fleet_unit
from hybrid_kernels.records import FleetRun

distributed = pytest.importorskip("distributed", reason="needs the extra `fleet`")
from hybrid_kernels.measure import fleet  # noqa: E402  (after the skip)

ROOT = Path(__file__).parents[2]
CUT = float(os.environ.get("FLEET_CUT_SECONDS", "9"))
"""How long a worker is cut off. A scheduler set to 2 s gives a silent worker up after 5: ten of its heartbeats."""

SUITE = """import os, time

def track_{name}():
    time.sleep(float(os.environ.get("PACE_{name}", "0")))
    return float(os.environ["NUMBER"])

track_{name}.unit = "GB/s"
track_{name}.version = "1"
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An asv project of two suites, measured with this interpreter, nothing built."""
    folder = tmp_path / "project"
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks/__init__.py").touch()
    for name in ("alpha", "beta"):
        (folder / f"benchmarks/{name}.py").write_text(SUITE.format(name=name))
    (folder / "asv.conf.json").write_text(
        json.dumps(
            {
                "version": 1, "project": "small", "repo": ".", "branches": ["main"], "environment_type": "checkout",
                "plugins": [".checkout_environment"], "pythons": [f"{sys.version_info[0]}.{sys.version_info[1]}"],
            }
        )
    )  # fmt: skip
    shutil.copy(Path(__file__).with_name("checkout_environment.py"), folder)
    (folder / ".gitignore").write_text("results/\nenv/\n.fleet/\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


class Cluster:
    """A scheduler, and workers that come and go, each a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
        }
        self.start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", self.file
        )

    def start(self, program: str, *arguments: Any, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", *map(str, arguments)]
        with open(self.folder / f"log-{len(self.processes)}", "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
                env={**self.environment, **environment},
            )  # fmt: skip
        self.processes.append(process)
        return process

    def worker(self, machine: str, number: int, resource: bool = True, **environment: str) -> subprocess.Popen[bytes]:
        home = self.folder / f"home-{machine}"
        home.mkdir(exist_ok=True)
        known = {"machine": machine, "os": "Linux", "arch": "x", "cpu": "c", "num_cpu": "2", "ram": "1"}
        (home / ".asv-machine.json").write_text(json.dumps({"version": 1, machine: known}))
        options = ["--resources", "device=1"] if resource else []
        return self.start(
            "dask_worker", "--scheduler-file", self.file, "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard",
            "--name", machine, *options, HOME=str(home), NUMBER=str(number), **environment,
        )  # fmt: skip

    def client(self) -> Any:
        soon(self.file.exists)
        return distributed.Client(scheduler_file=str(self.file), set_as_default=False)

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.close()


def soon(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)


def values(project: Path) -> dict[str, dict[str, float]]:
    """{machine: {benchmark: value}} of the history here; every file must parse."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted((project / "results").glob("*/*-*.json")):
        data = json.loads(path.read_text())
        assert data["params"]["machine"] == path.parent.name
        found[path.parent.name] = {name: row[0][0] for name, row in data["results"].items()}
    return found


class Running:
    """A run in a thread, so that the test can do harm meanwhile."""

    def __init__(self, client: Any, project: Path, wait: float = 60, **more: Any) -> None:
        self.order, self.results = fleet.order(project / "asv.conf.json", ["HEAD"], **more)
        self.result: FleetRun | None = None
        self.seen: dict[str, list[str]] = {}
        self.thread = threading.Thread(target=self._run, args=(client, wait), daemon=True)
        self.thread.start()

    def _run(self, client: Any, wait: float) -> None:
        self.result = fleet.run(client, self.order, self.results, wait=wait, progress=self._note)

    def _note(self, members: Any) -> None:
        for one in members:
            states = self.seen.setdefault(one.machine, [])
            if not states or states[-1] != one.state:
                states.append(one.state)

    def end(self) -> FleetRun:
        self.thread.join(120)
        assert self.result is not None
        return self.result


def test_workers_that_are_killed_late_and_of_another_version(cluster: Cluster, project: Path, tmp_path: Path) -> None:
    """What a killed worker had finished is kept, and it goes on when its machine is back, under another address.

    A machine that joins late gets all of the work, one with another version and one without a device are refused by
    name, and no value stands under the name of a machine that did not measure it.
    """
    other = tmp_path / "other"
    shutil.copytree(ROOT / "hybrid_kernels", other / "hybrid_kernels")
    with open(other / "hybrid_kernels/units.py", "a") as file:
        file.write("# another version\n")
    cluster.worker("one", 1)
    killed = cluster.worker("two", 2, PACE_beta="60")
    cluster.worker("old", 3, PYTHONPATH=str(other))
    cluster.worker("idle", 4, resource=False)
    with cluster.client() as client:
        running = Running(client, project)
        soon(lambda: "alpha.track_alpha" in values(project).get("two", {}))
        before = (project / "results/two").glob("*-*.json").__next__().read_text()
        soon(lambda: (project / ".fleet/two/history").exists() and len(values(project).get("one", {})) == 2)
        os.killpg(killed.pid, signal.SIGKILL)
        soon(lambda: "away" in running.seen.get("two", []))
        cluster.worker("late", 5)
        soon(lambda: "late" in running.seen)
        cluster.worker("two", 2)
        done = running.end()

    both = ("alpha.track_alpha", "beta.track_beta")
    assert values(project) == {
        name: dict.fromkeys(both, number) for name, number in (("one", 1), ("two", 2), ("late", 5))
    }
    assert (done.failed, done.missing) == ((), ())
    assert running.seen["two"] == ["runs", "away", "runs", "done"]
    started = json.loads(before)["results"]["alpha.track_alpha"]
    (after,) = (project / "results/two").glob("*-*.json")
    assert json.loads(after.read_text())["results"]["alpha.track_alpha"] == started, "what was finished is not repeated"
    refused = {worker.split()[0]: reason for worker, reason in done.refused}
    assert set(refused) == {"old", "idle"}
    assert "machine old has another version: hybrid_kernels" in refused["old"]
    assert "--resources device=1" in refused["idle"]


def test_a_machine_that_stays_away_is_missing(cluster: Cluster, project: Path) -> None:
    """Its finished suite is in the history, the rest is reported missing, and nobody else measures it."""
    cluster.worker("one", 1)
    killed = cluster.worker("gone", 2, PACE_beta="60")
    with cluster.client() as client:
        running = Running(client, project, wait=3)
        soon(lambda: "alpha.track_alpha" in values(project).get("gone", {}))
        os.killpg(killed.pid, signal.SIGKILL)
        done = running.end()

    head = git(project, "rev-parse", "HEAD")
    assert done.missing == (("gone", head, "beta"),)
    assert values(project)["gone"] == {"alpha.track_alpha": 2}
    assert len(values(project)["one"]) == 2


def test_a_worker_that_is_cut_off_for_a_while(cluster: Cluster, project: Path) -> None:
    """Silent for longer than the scheduler tolerates, in the middle of a suite: it is away, returns, and finishes."""
    nanny = cluster.worker("cut", 7, PACE_beta="4")
    with cluster.client() as client:
        running = Running(client, project)
        soon(lambda: "alpha.track_alpha" in values(project).get("cut", {}))
        processes = [nanny.pid, *_children(nanny.pid)]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        time.sleep(CUT)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        done = running.end()

    assert (done.failed, done.missing) == ((), ())
    assert values(project) == {"cut": {"alpha.track_alpha": 7, "beta.track_beta": 7}}
    assert running.seen["cut"] == ["runs", "away", "runs", "done"]


def _children(process: int) -> list[int]:
    """The Dask processes below one; what they measure goes on, as it does on a machine without a network."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in listed.splitlines()[1:]:
        pid, parent, arguments = line.split(None, 2)
        if int(parent) == process and "fleet_unit" not in arguments:
            found += [int(pid), *_children(int(pid))]
    return found


def test_local_workers_from_the_command_line(project: Path) -> None:
    """`--local 2` measures on two workers of this host, each under a name of its own; lines say who runs what."""
    command = [sys.executable, "-c", "from hybrid_kernels.cli import main; main()", "fleet", "run", "--local", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBER": "3"}
    done = subprocess.run(
        [*command, "--benchmark", "track_beta", "HEAD"], cwd=project, env=environment, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = values(project)
    assert list(found.values()) == [{"beta.track_beta": 3}] * 2
    for name in found:
        assert f"{name}: done (2 of 2 suites)" in done.stdout
        assert f"fleet: {name}: measures" in done.stderr
    assert git(project, "status", "--porcelain") == ""


def test_ctrl_c_on_a_terminal_keeps_what_was_finished(project: Path) -> None:
    """On a terminal a table follows; Ctrl-C ends with 130, what was finished is kept and no worker is left."""
    command = [
        sys.executable,
        "-c",
        "from hybrid_kernels.cli import main; main()",
        "fleet",
        "run",
        "--local",
        "2",
        "HEAD",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NUMBER": "3",
        "PACE_beta": "300",
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    own, terminal = pty.openpty()
    shown = bytearray()
    with subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        start_new_session=True,
    ) as child:
        os.close(terminal)

        def reading() -> None:
            with contextlib.suppress(OSError):  # the terminal's other end is closed
                while data := os.read(own, 65536):
                    shown.extend(data)

        reader = threading.Thread(target=reading)
        reader.start()
        # alpha of both is done when both measure beta, which takes five minutes
        soon(
            lambda: (
                shown.decode(errors="replace").rpartition("machine ")[2].count("beta") >= 2 or child.poll() is not None
            )
        )
        os.killpg(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        reader.join(timeout=10)
    os.close(own)
    assert child.returncode == 130, out
    assert list(values(project).values()) == [{"alpha.track_alpha": 3}] * 2
    assert "interrupted" in out
    soon(lambda: not [line for line in _processes() if str(project) in line])


def _processes() -> list[str]:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()


def test_bad_input_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit, expression, scheduler or number of workers that cannot be used is one line that names it."""
    config = project / "asv.conf.json"
    with pytest.raises(BadInput, match="commit 'nowhere': not found"):
        fleet.order(config, ["nowhere"])
    with pytest.raises(BadInput, match="--benchmark: '\\(' is not a regular expression"):
        fleet.order(config, ["HEAD"], benchmark="(")
    with pytest.raises(BadInput, match="does not answer"), fleet.connected("tcp://127.0.0.1:9", 0.5):
        pass
    with pytest.raises(BadInput, match="--local: 0"), fleet.local(0):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadInput, match=r"pip install 'hybrid-kernels\[fleet\]'"), fleet.local(1):
        pass


def test_a_fleet_without_machines(cluster: Cluster, project: Path) -> None:
    """When nobody fit joins in time, the error names the workers that were refused."""
    cluster.worker("idle", 4, resource=False)
    with cluster.client() as client:
        soon(lambda: client.scheduler_info(n_workers=-1)["workers"])
        order, results = fleet.order(project / "asv.conf.json", ["HEAD"])
        with pytest.raises(NothingMeasured, match=r"no machine joined within 1 s; refused: idle .* --resources"):
            fleet.run(client, order, results, wait=1)


def test_a_unit_measures_nothing_under_another_name(project: Path) -> None:
    """A unit that reaches another machine than the one it names is refused there."""
    unit = fleet_unit.Unit("run", str(project / "asv.conf.json"), "elsewhere", False, "0" * 40, "alpha", None, 60)
    with pytest.raises(BadInput, match="not elsewhere: measured nothing"):
        fleet_unit.measure(unit)


def test_gathering_keeps_what_a_history_has(tmp_path: Path) -> None:
    """A file that comes from a worker adds to the one here: benchmarks that only the old one has stay."""

    def outcome(name: str, value: float) -> fleet_unit.Outcome:
        rows = {name: [[value], [], "1"]}
        content = {"result_columns": ["result", "params", "version"], "results": rows, "durations": {}}
        return fleet_unit.Outcome("done", {"box/abcdef01-env.json": json.dumps(content).encode()})

    for name, value in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        assert fleet_unit.gather(outcome(name, value), tmp_path) == 1
    assert fleet_unit.gather(outcome("a", 3.0), tmp_path) == 0

    rows = json.loads((tmp_path / "box/abcdef01-env.json").read_text())["results"]
    assert {name: row[0] for name, row in rows.items()} == {"a": [3.0], "b": [2.0]}
